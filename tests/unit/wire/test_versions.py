"""Ranges of versions in Kafka's notation."""

from __future__ import annotations

import pytest

from pessoa.wire.versions import HIGHEST, NO_VERSIONS, Versions

TEXTS = [
    ("3", Versions(3, 3), "3"),
    ("0-4", Versions(0, 4), "0-4"),
    ("12+", Versions(12, HIGHEST), "12+"),
    ("0+", Versions(0, HIGHEST), "0+"),
    ("none", NO_VERSIONS, "none"),
    ("7-7", Versions(7, 7), "7"),
]


@pytest.mark.parametrize(("text", "versions", "shown"), TEXTS)
def test_a_range_is_parsed_and_shown(text: str, versions: Versions, shown: str) -> None:
    assert Versions.parse(text) == versions
    assert str(versions) == shown


def test_a_version_range_includes_both_ends() -> None:
    assert [version in Versions(2, 4) for version in range(1, 6)] == [False, True, True, True, False]
    assert 0 not in NO_VERSIONS
    assert HIGHEST in Versions.parse("0+")


def test_each_iterates_over_every_version_of_a_closed_range() -> None:
    assert list(Versions(2, 4).each()) == [2, 3, 4]
    assert list(NO_VERSIONS.each()) == []
    with pytest.raises(AssertionError):
        Versions(0, HIGHEST).each()
