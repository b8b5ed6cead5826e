"""docs/CLIENTS.md agrees with the marks of the tests, and its table has the expected rows and signs."""

from __future__ import annotations

import pytest

from tests.conformance.features import (
    BEYOND,
    CLIENTS,
    FEATURES,
    NOT_ASKED,
    OTHER_LANGUAGES,
    PAGE,
    Shown,
    all_shown,
    checked,
    page,
    table,
)


def test_the_clients_page_is_the_one_generated_from_the_marks_of_the_tests() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(all_shown()), "run: python -m tests.conformance.features"


def test_every_client_has_a_test_of_every_feature_that_is_not_listed_as_beyond_it() -> None:
    wanted = {
        Shown(client, feature)
        for client, module in CLIENTS.items()
        for feature in FEATURES
        if (client, feature) not in BEYOND and not (module == OTHER_LANGUAGES and feature in NOT_ASKED)
    }
    assert wanted - set(all_shown()) == set()


def test_the_table_has_a_row_for_each_feature_and_marks_what_is_beyond_a_client() -> None:
    lines = table({Shown("kcat", "headers"): "✓"})
    assert len(lines) == len(FEATURES) + 2
    assert len({len(line) for line in lines}) == 1
    [headers] = [line for line in lines if line.startswith("| headers ")]
    assert [cell.strip() for cell in headers.split("|")[2:7]] == ["", "", "", "", "✓"]
    [topics] = [line for line in lines if line.startswith("| topics")]
    assert [cell.strip() for cell in topics.split("|")[2:7]] == ["", "", "", "", "–"]


@pytest.mark.parametrize(("client", "feature"), [("unknown", "headers"), ("kcat", "flying"), ("kcat", "topics")])
def test_a_mark_with_an_unknown_client_or_feature_or_an_unsupported_feature_is_refused(
    client: str, feature: str
) -> None:
    with pytest.raises(AssertionError, match=r"features\.py"):
        checked(client, feature)
