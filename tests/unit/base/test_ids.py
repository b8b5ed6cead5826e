"""Kafka's UUID: its bytes, its text, and invalid texts."""

from __future__ import annotations

import pytest

from pessoa.base.ids import ZERO_UUID, Uuid

# The text forms that Kafka's own tools print for these numbers.
TEXTS = [
    (0, "AAAAAAAAAAAAAAAAAAAAAA"),
    (1, "AAAAAAAAAAAAAAAAAAAAAQ"),
    (0xFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFF, "_____________________w"),
    (0xFB << 120, "-wAAAAAAAAAAAAAAAAAAAA"),
]


@pytest.mark.parametrize(("number", "text"), TEXTS)
def test_a_uuid_is_shown_and_parsed_as_url_safe_base64(number: int, text: str) -> None:
    assert str(Uuid.of(number)) == text
    assert Uuid.parse(text) == Uuid.of(number)
    assert Uuid.parse(text + "==") == Uuid.of(number)


def test_a_uuid_equals_and_hashes_as_its_bytes() -> None:
    raw = bytes(range(16))
    assert Uuid(raw) == raw
    assert hash(Uuid(raw)) == hash(raw)
    assert {raw: "found"}[Uuid(raw)] == "found"
    assert repr(Uuid(raw)) == "Uuid('AAECAwQFBgcICQoLDA0ODw')"


def test_the_zero_uuid_is_sixteen_zero_bytes() -> None:
    assert bytes(16) == ZERO_UUID


@pytest.mark.parametrize("raw", [b"", bytes(15), bytes(17)])
def test_a_uuid_of_another_size_is_refused(raw: bytes) -> None:
    with pytest.raises(ValueError, match=f"not {len(raw)}"):
        Uuid(raw)


@pytest.mark.parametrize("text", ["", "A", "AAAA", "AAAAAAAAAAAAAAAAAAAAAAAA", "ä" * 22])
def test_text_that_is_not_a_uuid_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        Uuid.parse(text)


@pytest.mark.parametrize(
    "text", ["AAAAAAAAAAAA+AAAAAAAAA", "AAAAAAAAAAAA/AAAAAAAAA", "AAAAAAAAAAA AAAAAAAAAAA", "!" * 22]
)
def test_characters_outside_the_url_safe_alphabet_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="URL-safe"):
        Uuid.parse(text)
