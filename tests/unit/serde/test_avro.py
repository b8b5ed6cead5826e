"""Avro schemas: invalid texts, canonical form, and round trips of data."""

from __future__ import annotations

import json
from typing import Any

import pytest

from pessoa.base.json_value import JsonObject
from pessoa.serde.avro.codec import AvroCodec
from pessoa.serde.avro.parsing import parse_avro
from pessoa.serde.avro.printing import print_avro
from pessoa.serde.schema_problems import DataProblem, SchemaProblem


def canonical(text: str, *, normalize: bool = False) -> str:
    schema, own = parse_avro(text)
    return print_avro(schema, own, normalize=normalize)


@pytest.mark.parametrize(
    ("text", "spelt"),
    [
        ('  "string" ', '"string"'),
        ('{"type": "string"}', '"string"'),
        ('{"type": {"type": "int"}}', '"int"'),
        ('{"type": "int", "logicalType": "date"}', '{"type":"int","logicalType":"date"}'),
        ('["null", {"type": "array", "items": "long"}]', '["null",{"type":"array","items":"long"}]'),
        (
            '{"name": "a.b.R", "fields": [{"type": "int", "name": "x", "default": 1}], "type": "record", "doc": "d"}',
            '{"type":"record","name":"R","namespace":"a.b","doc":"d","fields":[{"name":"x","type":"int","default":1}]}',
        ),
        (
            (
                '{"type":"record","name":"R","namespace":"n","fields":[{"name":"e","type":{"type":"fixed","name":"E","size":1}},'
                '{"name":"f","type":"n.E"},{"name":"o","type":["null","R"],"default":null}]}'
            ),
            (
                '{"type":"record","name":"R","namespace":"n","fields":[{"name":"e","type":{"type":"fixed","name":"E","size":1}},'
                '{"name":"f","type":"E"},{"name":"o","type":["null","R"],"default":null}]}'
            ),
        ),
        (
            '{"type":"fixed","size":4,"name":"F","aliases":["n.G"],"z":1,"a":2}',
            '{"type":"fixed","name":"F","size":4,"z":1,"a":2,"aliases":["n.G"]}',
        ),
    ],
)
def test_an_avro_schema_is_rendered_as_by_java(text: str, spelt: str) -> None:
    assert canonical(text) == spelt
    assert canonical(spelt) == spelt


def test_normalising_an_avro_schema_sorts_properties_that_are_not_in_the_specification() -> None:
    assert canonical('{"type":"int","z":1,"a":2}', normalize=True) == '{"type":"int","a":2,"z":1}'


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("string", "not JSON"),
        ("", "not JSON"),
        ("null", "a schema is"),
        ("3", "a schema is"),
        ("{}", "no type in"),
        ('"strin"', "nothing is called strin"),
        ('{"type": "record", "name": "R"}', "no list of fields"),
        ('{"type": "record", "fields": []}', "no name in"),
        ('{"type": "record", "name": "1R", "fields": []}', "1R is no name"),
        ('{"type": "record", "name": "R", "fields": [{"name": "x"}]}', "has no type"),
        ('{"type": "record", "name": "R", "fields": [{"name": "x-y", "type": "int"}]}', "x-y cannot be"),
        (
            '{"type":"record","name":"R","fields":[{"name":"x","type":"int"},{"name":"x","type":"int"}]}',
            "two fields x",
        ),
        (
            '{"type":"record","name":"R","fields":[{"name":"x","type":"int","default":"a"}]}',
            "the default of R.x is no int",
        ),
        (
            '{"type":"record","name":"R","fields":[{"name":"x","type":"int","default":1.5}]}',
            "the default of R.x is no int",
        ),
        (
            '{"type":"record","name":"R","fields":[{"name":"x","type":"int","default":3000000000}]}',
            "the default of R.x is no int",
        ),
        ('{"type":"enum","name":"E","symbols":["A","A"]}', "a symbol twice"),
        ('{"type":"enum","name":"E","symbols":["A"],"default":"B"}', "none of the symbols"),
        ('{"type":"fixed","name":"F"}', "size"),
        ('{"type":"fixed","name":"F","size":true}', "size"),
        ('["int","int"]', "has int twice"),
        ('["int",["string"]]', "another union"),
        ('[{"type":"fixed","name":"F","size":1},{"type":"fixed","name":"F","size":1}]', "F is defined twice"),
        ('{"type":"array"}', "items"),
        ('{"type":5}', "no type"),
        ("[" * 100000, "deep"),
    ],
)
def test_a_text_that_is_no_schema_is_refused_with_the_reason(text: str, says: str) -> None:
    with pytest.raises(SchemaProblem, match=says):
        parse_avro(text)


def test_references_are_used_by_name_and_inlined_when_asked() -> None:
    _, defined = parse_avro('{"type":"record","name":"n.Inner","fields":[{"name":"x","type":"int"}]}')
    outer, own = parse_avro(
        '{"type":"record","name":"n.Outer","fields":[{"name":"a","type":"Inner"},{"name":"b","type":"n.Inner"}]}',
        defined,
    )
    assert '"type":"Inner"' in print_avro(outer, own)
    tree = json.loads(print_avro(outer, own, resolve=True))
    assert tree["fields"][0]["type"]["fields"] == [{"name": "x", "type": "int"}]
    assert tree["fields"][1]["type"] == "Inner"


RECORD = (
    '{"type":"record","name":"R","fields":[{"name":"u","type":["null","string"]},'
    '{"name":"b","type":"bytes"},{"name":"m","type":{"type":"map","values":"int"}}]}'
)
VALUE: dict[str, Any] = {"u": "x", "b": b"\xff", "m": {"k": 1}}
AS_JSON: JsonObject = {"u": {"string": "x"}, "b": "\xff", "m": {"k": 1}}


def test_avro_data_survives_binary_and_json_encoding() -> None:
    codec = AvroCodec(parse_avro(RECORD)[0])
    data = codec.encode(VALUE)
    assert data == b"\2\2x\2\xff\2\2k\2\0"
    assert codec.decode(data) == VALUE
    assert codec.to_json(data) == AS_JSON
    assert codec.from_json(AS_JSON) == data


def test_data_that_does_not_fit_its_avro_schema_is_refused() -> None:
    codec = AvroCodec(parse_avro(RECORD)[0])
    for value in ({}, {**VALUE, "u": 3}, None, "x"):
        with pytest.raises(DataProblem):
            codec.encode(value)
    for data in (b"", b"\2", b"\7", codec.encode(VALUE) + b"x"):
        with pytest.raises(DataProblem):
            codec.decode(data)
    unwrapped: JsonObject = {"u": "x", "b": "", "m": {}}
    wrapped_wrong: JsonObject = {"u": {"int": 3}, "b": "", "m": {}}
    for text in (unwrapped, wrapped_wrong, "x", 3):
        with pytest.raises(DataProblem):
            codec.from_json(text)


@pytest.mark.parametrize("size", [4096, 4097, 1_000_000])
def test_a_decimal_with_more_digits_than_can_be_read_quickly_is_refused(size: int) -> None:
    plain = AvroCodec(parse_avro('"bytes"')[0])
    decimals = AvroCodec(parse_avro('{"type": "bytes", "logicalType": "decimal", "precision": 20000, "scale": 2}')[0])
    data = plain.encode(b"\x01" * size)
    if size <= 4096:
        assert decimals.decode(data) is not None
    else:
        with pytest.raises(DataProblem, match=f"a decimal of {size} bytes"):
            decimals.decode(data)
