"""Columns that CREATE STREAM takes from a schema of the registry."""

from __future__ import annotations

import json

import pytest

from pessoa.ksql.operators.schema_source import KnownSchema
from pessoa.ksql.server.ksql_problems import KsqlProblem
from pessoa.ksql.server.schema_columns import columns_of_schema


def shown(kind: str, schema: object, *, is_key: bool = False) -> list[str]:
    text = schema if isinstance(schema, str) else json.dumps(schema)
    return [f"{name} {one}" for name, one in columns_of_schema(KnownSchema(1, kind, text), is_key=is_key)]


def test_the_fields_of_an_avro_record_become_columns() -> None:
    point = {"type": "record", "name": "Point", "fields": [{"name": "x", "type": "int"}]}
    fields = [
        {"name": "id", "type": "long"},
        {"name": "name", "type": ["null", "string"], "default": None},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 8, "scale": 2}},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
        {"name": "counts", "type": {"type": "map", "values": "int"}},
        {"name": "here", "type": point},
        {"name": "there", "type": ["null", "Point"]},
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["A"]}},
        {"name": "ratio", "type": "float"},
        {"name": "raw", "type": "bytes"},
    ]
    assert shown("AVRO", {"type": "record", "name": "Order", "fields": fields}) == [
        "ID BIGINT",
        "NAME STRING",
        "PRICE DECIMAL(8, 2)",
        "DAY DATE",
        "AT TIMESTAMP",
        "TAGS ARRAY<STRING>",
        "COUNTS MAP<STRING, INTEGER>",
        "HERE STRUCT<`X` INTEGER>",
        "THERE STRUCT<`X` INTEGER>",
        "KIND STRING",
        "RATIO DOUBLE",
        "RAW BYTES",
    ]
    assert shown("AVRO", '"string"', is_key=True) == ["ROWKEY STRING"]


def test_the_properties_of_a_json_schema_become_columns() -> None:
    schema = {
        "type": "object",
        "properties": {
            "id": {"type": "integer"},
            "small": {"type": "integer", "connect.type": "int32"},
            "name": {"oneOf": [{"type": "null"}, {"type": "string"}]},
            "price": {"type": ["null", "number"]},
            "ok": {"type": "boolean"},
            "tags": {"type": "array", "items": {"type": "string"}},
            "more": {"type": "object", "additionalProperties": {"type": "integer"}},
            "inner": {"$ref": "#/definitions/inner"},
        },
        "definitions": {"inner": {"type": "object", "properties": {"x": {"type": "string"}}}},
    }
    assert shown("JSON", schema) == [
        "ID BIGINT",
        "SMALL INTEGER",
        "NAME STRING",
        "PRICE DOUBLE",
        "OK BOOLEAN",
        "TAGS ARRAY<STRING>",
        "MORE MAP<STRING, BIGINT>",
        "INNER STRUCT<`X` STRING>",
    ]


def test_the_fields_of_a_protobuf_message_become_columns() -> None:
    text = """
        syntax = "proto3";
        message Order {
          int64 id = 1;
          string name = 2;
          repeated string tags = 3;
          map<string, int32> counts = 4;
          Inner inner = 5;
          Kind kind = 6;
          bool ok = 7;
          double price = 8;
          bytes raw = 9;
          message Inner { int32 x = 1; }
          enum Kind { A = 0; }
        }
    """
    assert shown("PROTOBUF", text) == [
        "ID BIGINT",
        "NAME STRING",
        "TAGS ARRAY<STRING>",
        "COUNTS MAP<STRING, INTEGER>",
        "INNER STRUCT<`X` INTEGER>",
        "KIND STRING",
        "OK BOOLEAN",
        "PRICE DOUBLE",
        "RAW BYTES",
    ]


@pytest.mark.parametrize(
    ("kind", "schema"),
    [
        ("AVRO", {"type": "record", "name": "R", "fields": [{"name": "u", "type": ["int", "string"]}]}),
        ("AVRO", {"type": "record", "name": "R", "fields": [{"name": "r", "type": ["null", "R"]}]}),
        ("JSON", {"type": "object", "properties": {"x": {}}}),
        ("JSON", {"$ref": "#"}),
    ],
)
def test_a_schema_that_has_no_sql_types_is_refused_with_its_id(kind: str, schema: object) -> None:
    with pytest.raises(KsqlProblem, match="The schema with id 1 cannot be used"):
        shown(kind, schema)
