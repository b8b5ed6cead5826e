"""A masked field is hidden in every format that a reader requests, also in error messages that quote it."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from pessoa.base.json_value import JsonValue
from pessoa.control_center.masking import HIDDEN, masked, parse_masks, paths_for
from pessoa.control_center.message_decoding import FORMATS, Decoder
from pessoa.control_center.message_reading import Message, MessageQuery, as_text, to_message
from pessoa.control_center.own_serdes import OwnSerdes

CARD = {"card": "4000", "city": "Faro"}
SPELLINGS = ("4000", "34 30 30 30", "34303030")
RULES = ("cards: value.card, key.card", "cards: **.card")


class FakeRecord:
    def __init__(self, value: bytes, headers: list[tuple[str, bytes]] | None = None) -> None:
        self._value, self._headers = value, headers

    def value(self) -> bytes:
        return self._value

    def key(self) -> bytes:
        return self._value

    def headers(self) -> list[tuple[str, bytes]] | None:
        return self._headers

    def partition(self) -> int:
        return 0

    def offset(self) -> int:
        return 0

    def timestamp(self) -> tuple[int, int]:
        return (1, 1)


def message_of(record: FakeRecord, rules: str, wanted: str, decoder: Decoder | None = None) -> Message:
    hidden = paths_for(parse_masks(rules), "cards")
    query = MessageQuery("cards", key_format=wanted, value_format=wanted, hidden=hidden)
    shaped: Any = record
    return to_message(shaped, query, decoder or Decoder(None))


@pytest.mark.parametrize("rules", RULES)
@pytest.mark.parametrize("wanted", FORMATS)
@pytest.mark.parametrize(
    "data",
    [
        msgspec.json.encode(CARD), msgspec.msgpack.encode(CARD), b"<o><card>4000</card></o>",
        b"\xa1\x64card\x644000", b'{"card": "4000"', b"\xff{card: 4000", b"4000",
    ],
    ids=["json", "msgpack", "xml", "cbor", "broken json", "binary", "number"],
)  # fmt: skip
def test_a_masked_field_is_hidden_in_every_format_of_its_message(rules: str, wanted: str, data: bytes) -> None:
    found = message_of(FakeRecord(data), rules, wanted)
    seen = str(found.fields("cards")) + as_text(found.value) + as_text(found.key) + str(found.trouble)
    assert not [one for one in SPELLINGS if one in seen]


def test_fields_beside_a_masked_one_are_shown() -> None:
    assert message_of(FakeRecord(msgspec.json.encode(CARD)), RULES[0], "json").value == {"card": HIDDEN, "city": "Faro"}
    plain = message_of(FakeRecord(b"\xff"), "cards: headers.auth", "json")
    assert (plain.value, plain.trouble) == ("\ufffd", "This is not JSON.")


def test_the_error_of_a_failed_serde_is_not_shown_if_the_value_is_masked() -> None:
    class Telling:
        name = "telling"

        def can_read(self, topic: str, part: str) -> bool:
            return True

        def decode(self, data: bytes) -> JsonValue:
            raise ValueError(f"cannot read {data!r}")

    decoder = Decoder(None, OwnSerdes([Telling()]))
    found = message_of(FakeRecord(b"4000"), RULES[0], "auto", decoder)
    assert (found.value, found.trouble) == (HIDDEN, None)


def test_a_masked_value_shown_in_another_format_is_hidden_completely() -> None:
    class Short:
        name = "short"

        def can_read(self, topic: str, part: str) -> bool:
            return True

        def decode(self, data: bytes) -> JsonValue:
            return {"card": msgspec.json.decode(data)["c"]}

    decoder = Decoder(None, OwnSerdes([Short()]))
    record = FakeRecord(b'{"c": "4000"}')
    assert message_of(record, RULES[0], "auto", decoder).value == {"card": HIDDEN}
    assert message_of(record, RULES[0], "json", decoder).value == HIDDEN


def test_a_mask_of_all_headers_hides_every_header() -> None:
    record = FakeRecord(b"{}", [("auth", b"4000"), ("trace", b"1")])
    assert message_of(record, "cards: headers", "auto").headers == [("auth", HIDDEN), ("trace", HIDDEN)]


def test_a_mask_at_any_depth_does_not_hide_text_beside_the_field() -> None:
    paths = paths_for(parse_masks("*: **.password"), "t")
    value: JsonValue = {"tags": ["a", 1], "deep": [{"password": "x", "name": "y"}]}
    assert masked(value, "value", paths) == {"tags": ["a", 1], "deep": [{"password": HIDDEN, "name": "y"}]}
    assert masked(["a"], "value", paths_for(parse_masks("*: **"), "t")) == HIDDEN


def test_a_value_nested_too_deeply_to_be_masked_is_hidden() -> None:
    deep: JsonValue = "4000"
    for _ in range(5000):
        deep = [deep]
    assert masked(deep, "value", paths_for(parse_masks("*: value.card"), "t")) == HIDDEN
