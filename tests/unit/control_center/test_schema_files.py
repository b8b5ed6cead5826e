"""Schemas on the operator's disk decode and encode records that have no frame."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from fastavro import parse_schema, schemaless_writer

from pessoa.base.config_values import ConfigProblem
from pessoa.control_center.center_config import from_properties
from pessoa.control_center.message_decoding import Decoder
from pessoa.control_center.own_serdes import SerdeFailed

ORDER = '{"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}'
MONEY = 'syntax = "proto3"; package shop; message Money { string currency = 1; }'
PAY = """
syntax = "proto3";
package shop;
import "money.proto";
message Payment { Money total = 1; message Line { int32 n = 1; } }
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, text in (("order.avsc", ORDER), ("money.proto", MONEY), ("pay.proto", PAY)):
        (tmp_path / name).write_text(text)
    return tmp_path


def decoder_of(setting: str) -> Decoder:
    return Decoder(None, from_properties({"pessoa.control.center.schema.files": setting}).own_serdes)


def test_bare_avro_is_decoded_by_the_file_of_its_topic_and_encoded(folder: Path) -> None:
    decoder = decoder_of(f"orders*: {folder}/order.avsc; key of carts: {folder}/order.avsc")
    out = io.BytesIO()
    schemaless_writer(out, parse_schema({"type": "record", "name": "O", "fields": [{"name": "id", "type": "long"}]}),
                      {"id": 7})  # fmt: skip
    data = out.getvalue()
    assert decoder.serdes.names == ("order.avsc",)
    assert decoder.decode(data, "auto", "orders-eu", "value")[:2] == ("order.avsc", {"id": 7})
    assert decoder.decode(data, "auto", "carts", "key")[:2] == ("order.avsc", {"id": 7})
    assert decoder.decode(data, "auto", "carts", "value").format == "hex"
    assert decoder.serdes.encode("order.avsc", '{"id": 7}') == data
    wrong = decoder.decode(b"\xff\xff", "auto", "orders-eu", "value")
    assert "The serde order.avsc says" in str(wrong.trouble)


def test_bare_protobuf_is_decoded_as_the_message_that_is_named_with_its_imports(folder: Path) -> None:
    decoder = decoder_of(f"payments: {folder}/pay.proto; lines: {folder}/pay.proto shop.Payment.Line")
    data = b"\x0a\x05\x0a\x03EUR"
    assert decoder.decode(data, "auto", "payments", "value")[:2] == ("pay.proto", {"total": {"currency": "EUR"}})
    assert decoder.decode(b"\x08\x05", "auto", "lines", "value")[:2] == ("shop.Payment.Line", {"n": 5})
    assert decoder.serdes.encode("pay.proto", '{"total": {"currency": "EUR"}}') == data
    assert decoder.serdes.encode("shop.Payment.Line", '{"n": 5}') == b"\x08\x05"
    with pytest.raises(SerdeFailed, match="does not fit"):
        decoder.serdes.encode("shop.Payment.Line", '{"m": 5}')


@pytest.mark.parametrize(
    ("setting", "reason"),
    [
        ("orders", "write topics: file"),
        ("orders: {}/nowhere.avsc", "No such file"),
        ("orders: {}/order.avsc shop.Order", "is not an .avsc file"),
        ("orders: {}/pay.proto shop.Nothing", "has no message shop.Nothing: there are shop.Payment, shop.Payment.Line"),
    ],
)
def test_an_invalid_schema_file_entry_is_refused_at_start_with_the_reason(
    folder: Path, setting: str, reason: str
) -> None:
    with pytest.raises(ConfigProblem, match=reason):
        decoder_of(setting.format(folder))
