"""Serdes of the operator: loaded from files and modules, used like the built-in formats; their errors are not fatal."""

from __future__ import annotations

import base64
from datetime import UTC, datetime
from pathlib import Path

import pytest

from pessoa.base.config_values import ConfigProblem
from pessoa.base.json_value import JsonValue
from pessoa.control_center.center_config import from_properties
from pessoa.control_center.message_decoding import FORMATS, Decoder
from pessoa.control_center.own_serdes import OwnSerdes, SerdeFailed, load_serdes

FILE = """
import base64


class Base64Texts:
    name = "base64"

    def can_read(self, topic, part):
        return topic.startswith("mail-") and part == "value"

    def decode(self, data):
        return base64.b64decode(data, validate=True).decode()

    def encode(self, value):
        return base64.b64encode(str(value).encode())


SERDES = [Base64Texts()]
"""


class Length:
    """A serde that can deserialise any bytes, and serialise nothing."""

    name = "length"

    def can_read(self, topic: str, part: str) -> bool:
        return True

    def decode(self, data: bytes) -> JsonValue:
        if data == b"bad":
            raise KeyError("no such field")
        if data == b"when":
            return {"at": datetime(2026, 1, 2, tzinfo=UTC)}  # type: ignore[dict-item]
        if data == b"object":
            return object()  # type: ignore[return-value]
        return {"length": len(data)}


@pytest.fixture
def place(tmp_path: Path) -> str:
    path = tmp_path / "base64_texts.py"
    path.write_text(FILE)
    return str(path)


def test_a_serde_file_of_the_configuration_decodes_the_topics_that_it_claims(place: str) -> None:
    decoder = Decoder(None, from_properties({"pessoa.control.center.serdes": place}).own_serdes)
    data = base64.b64encode(b"ola")
    assert decoder.formats == (*FORMATS, "base64")
    assert decoder.decode(data, "auto", "mail-in", "value")[:2] == ("base64", "ola")
    assert decoder.decode(data, "auto", "mail-in", "key")[:2] == ("text", data.decode())
    assert decoder.decode(data, "auto", "orders", "value")[:2] == ("text", data.decode())
    assert decoder.decode(data, "base64", "orders", "value")[:2] == ("base64", "ola")
    assert decoder.decode(data)[:2] == ("text", data.decode())
    assert decoder.decode(None, "base64").value is None


def test_bytes_that_a_serde_refuses_are_shown_by_the_built_in_formats_with_its_reason() -> None:
    decoder = Decoder(None, OwnSerdes([Length()]))
    refused = decoder.decode(b"bad", "auto", "t", "value")
    assert (refused.format, refused.value) == ("text", "bad")
    assert refused.trouble == "The serde length says: 'no such field'"
    assert decoder.decode(b"bad", "length").trouble == refused.trouble


def test_the_result_of_a_serde_becomes_json_data_or_an_error() -> None:
    decoder = Decoder(None, OwnSerdes([Length()]))
    assert decoder.decode(b"when", "length").value == {"at": "2026-01-02T00:00:00Z"}
    strange = decoder.decode(b"object", "length")
    assert strange.format == "text"
    assert strange.trouble is not None


def test_an_exception_in_can_read_is_shown_beside_the_message() -> None:
    class Broken(Length):
        def can_read(self, topic: str, part: str) -> bool:
            raise RuntimeError("no table")

    found = Decoder(None, OwnSerdes([Broken()])).decode(b"1", "auto", "t", "value")
    assert found.trouble == "The serde length says: no table"


def test_text_that_is_json_is_passed_to_a_serde_as_json_data(place: str) -> None:
    serdes = load_serdes([place], FORMATS)
    assert serdes.writing_names() == ("base64",)
    assert serdes.encode("base64", "olá") == base64.b64encode("olá".encode())
    assert serdes.encode("base64", '{"a": 1}') == base64.b64encode(b"{'a': 1}")
    with pytest.raises(SerdeFailed, match="no serde json that encodes"):
        serdes.encode("json", "{}")
    with pytest.raises(SerdeFailed, match="no serde length that encodes"):
        OwnSerdes([Length()]).encode("length", "1")


def test_a_serde_module_may_be_given_without_a_path(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(place).parent))
    assert load_serdes(["base64_texts"], FORMATS).names == ("base64",)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("SERDES = []", "no list SERDES"),
        ("1 / 0", "cannot be loaded: ZeroDivisionError"),
        ("SERDES = [3]", "lacks name, can_read or decode"),
        (FILE.replace('"base64"', '"a b"'), "is not letters"),
        (FILE.replace('"base64"', '"json"'), "another format is called json"),
        (FILE + "SERDES *= 2", "another format is called base64"),
    ],
)
def test_an_invalid_serde_file_is_refused_at_start_with_the_reason(tmp_path: Path, text: str, reason: str) -> None:
    path = tmp_path / "wrong.py"
    path.write_text(text)
    with pytest.raises(ConfigProblem, match=reason):
        from_properties({"pessoa.control.center.serdes": str(path)})


def test_a_missing_serde_file_is_refused_at_start() -> None:
    with pytest.raises(ConfigProblem, match="cannot be loaded"):
        load_serdes(["/nowhere/serde.py"], FORMATS)
