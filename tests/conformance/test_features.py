"""The page about clients says what the tests show, and the table is made as it should be."""

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


def test_the_page_is_the_one_that_the_marks_make() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(all_shown()), "run: python -m tests.conformance.features"


def test_every_client_shows_every_feature_that_is_not_beyond_it() -> None:
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
def test_a_mark_that_cannot_be_right_is_refused(client: str, feature: str) -> None:
    with pytest.raises(AssertionError, match=r"features\.py"):
        checked(client, feature)
