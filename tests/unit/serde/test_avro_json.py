"""Avro's JSON encoding. The bytes are those that Apache Avro 1.12.1 wrote for the same schema and text."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

from pessoa.base.json_value import JsonValue
from pessoa.serde.avro.codec import AvroCodec
from pessoa.serde.avro.parsing import parse_avro
from pessoa.serde.schema_problems import DataProblem

FIXED = {"type": "fixed", "name": "T", "size": 4}
ENUM = {"type": "enum", "name": "E", "symbols": ["A", "B"]}
ITEM: dict[str, Any] = {"type": "record", "name": "a.Item", "fields": [{"name": "c", "type": "int"}]}
OTHER = {**ITEM, "name": "b.Item"}
DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2}
TIME = {"type": "long", "logicalType": "timestamp-millis"}


def codec(schema: object) -> AvroCodec:
    return AvroCodec(parse_avro(json.dumps(schema))[0])


def record(*fields: tuple[str, object]) -> dict[str, object]:
    return {"type": "record", "name": "R", "fields": [{"name": name, "type": kind} for name, kind in fields]}


@pytest.mark.parametrize(
    ("schema", "value", "data"),
    [
        # A union's value is written as the branch that it names, though another would fit as well.
        (["int", "long"], {"long": 5}, "020a"),
        (["bytes", FIXED], {"T": "ABCD"}, "0241424344"),
        ([ITEM, OTHER], {"b.Item": {"c": 1}}, "0202"),
        ([{"type": "map", "values": "int"}, ITEM], {"a.Item": {"c": 1}}, "0202"),
        (["string", ENUM], {"E": "A"}, "0200"),
        (["null", "int"], None, "00"),
        ([{"type": "int", "logicalType": "date"}, "null"], {"int": 5}, "000a"),
        # What is stored counts, not what a logical type makes of it.
        (DECIMAL, "14.36", "0a31342e3336"),
        (TIME, 9223372036854775807, "feffffffffffffffff01"),
        ({"type": "string", "logicalType": "uuid"}, "nonsense", "106e6f6e73656e7365"),
        ("int", -1, "01"),
        ("int", -2147483648, "ffffffff0f"),
        ("float", 1.5, "0000c03f"),
        ("double", 2.3, "6666666666660240"),
        ("bytes", "\xff\0", "04ff00"),
        ("string", "a\0é𝄞", "106100c3a9f09d849e"),
        ("boolean", True, "01"),
        ({"type": "array", "items": "int"}, [1, 2], "04020400"),
        ({"type": "array", "items": "int"}, [], "00"),
        ({"type": "map", "values": "int"}, {"a": 1, "b": 2}, "0402610202620400"),
        (record(("a", "int"), ("b", "int")), {"a": 1, "b": 2}, "0204"),
    ],
)
def test_json_and_binary_are_those_of_apache_avro(schema: object, value: JsonValue, data: str) -> None:
    assert codec(schema).from_json(value).hex() == data
    assert codec(schema).to_json(bytes.fromhex(data)) == value


@pytest.mark.parametrize(
    ("schema", "value", "data"),
    [
        ("int", 5.0, "0a"),
        (["null", "int"], {"null": None}, "00"),
        ("float", 1e300, "0000807f"),
        (record(("a", "int")), {"a": 1, "unknown": 2}, "02"),
        ({"type": "record", "name": "R", "fields": [{"name": "a", "type": ["long", "int"], "default": 1}]}, {}, "0002"),
    ],
)
def test_alternative_json_spellings_that_apache_avro_accepts_are_accepted(
    schema: object, value: JsonValue, data: str
) -> None:
    assert codec(schema).from_json(value).hex() == data


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        (FIXED, "ABC"),
        (["null", "bytes", FIXED], {"T": "ABC"}),
        ("int", 1 << 40),
        ("int", 5.5),
        ("int", True),
        ("int", "5"),
        ("long", 1 << 63),
        ("boolean", 1),
        ("boolean", "true"),
        ("null", "x"),
        ("double", "NaN"),
        ("double", True),
        ("string", 5),
        ("string", "\ud800"),
        ("bytes", "€"),
        (ENUM, "C"),
        (ENUM, []),
        ([ITEM, OTHER], {"Item": {"c": 1}}),
        ([{"type": "int", "logicalType": "date"}, "null"], {"date": 5}),
        (["null", "int"], 5),
        (["null", "int"], {}),
        (record(("a", "int")), {}),
        (record(("a", "int")), [1]),
        ({"type": "array", "items": "int"}, {"0": 1}),
        ({"type": "map", "values": "int"}, [1]),
    ],
)
def test_json_that_apache_avro_refuses_is_refused(schema: object, value: JsonValue) -> None:
    with pytest.raises(DataProblem, match="the JSON does not fit its Avro schema"):
        codec(schema).from_json(value)


@pytest.mark.parametrize(
    ("schema", "data"),
    [
        ("int", "8080808010"),
        ("long", "ffffffffffffffffffff01"),
        ("boolean", "02"),
        ("string", "08616263"),
        ("string", "02ff"),
        ("string", "01"),
        (["null", "int"], "04"),
        (ENUM, "04"),
        (FIXED, "414243"),
        ({"type": "array", "items": "null"}, "fe" + "ff" * 8 + "0100"),
        ("null", "00"),
    ],
)
def test_bytes_that_break_their_schema_are_refused(schema: object, data: str) -> None:
    with pytest.raises(DataProblem):
        codec(schema).to_json(bytes.fromhex(data))


def test_numbers_without_a_json_form_are_encoded_as_text() -> None:
    doubles = codec("double")
    found = [doubles.to_json(doubles.encode(each)) for each in (math.inf, -math.inf, math.nan)]
    assert found == ["Infinity", "-Infinity", "NaN"]


def test_avro_blocks_with_a_byte_size_are_decoded() -> None:
    assert codec({"type": "array", "items": "int"}).to_json(bytes.fromhex("03040204020600")) == [1, 2, 3]


def test_a_value_nested_beyond_the_stack_is_refused() -> None:
    node = {"type": "record", "name": "N", "fields": [{"name": "n", "type": ["null", "N"]}]}
    value: Any = None
    for _ in range(5_000):
        value = {"N": {"n": value}}
    with pytest.raises(DataProblem, match="nested too deeply"):
        codec(node).from_json({"n": value})
    with pytest.raises(DataProblem, match="nested too deeply"):
        codec(node).to_json(b"\2" * 5_000 + b"\0")
