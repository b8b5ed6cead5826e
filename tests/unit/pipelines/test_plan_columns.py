"""Column types in Spark's notation, derived from Python's types, Avro and Protobuf."""

from __future__ import annotations

import datetime
import decimal
import json
from dataclasses import dataclass
from typing import Annotated, Any

import pytest

from pessoa.pipelines.avro_columns import avro_columns, avro_schema
from pessoa.pipelines.columns import array_element, columns_of, quote_name, read_columns, struct_fields, type_of
from pessoa.pipelines.plan import PlanRefused
from pessoa.pipelines.protobuf_columns import message_columns, proto_text
from pessoa.serde.avro.avro_schema import AvroType
from pessoa.serde.avro.parsing import parse_avro
from pessoa.serde.protobuf.plain_values import as_dict, fill


@dataclass
class Item:
    nome: str
    preco: Annotated[decimal.Decimal, "DECIMAL(10,2)"]


@dataclass
class Sale:
    id: int
    quando: datetime.datetime
    itens: list[Item]
    notas: dict[str, float] | None = None


def test_column_definitions_are_parsed_with_brackets_quotes_and_trailers() -> None:
    text = "a INT NOT NULL, `b, ``c``` MAP<STRING, ARRAY<INT>>, d STRUCT<x: INT, y STRING> COMMENT 'um, dois'"
    assert read_columns(text) == [
        ("a", "INT"),
        ("b, `c`", "MAP<STRING, ARRAY<INT>>"),
        ("d", "STRUCT<x: INT, y STRING>"),
    ]
    assert quote_name("b, `c`") == "`b, ``c```"


@pytest.mark.parametrize("text", ["a", "a INT, b", "a ARRAY<INT", "`a INT", "a INT, a INT"])
def test_invalid_column_definitions_are_refused(text: str) -> None:
    with pytest.raises(PlanRefused):
        read_columns(text)


def test_the_fields_of_a_dataclass_become_columns() -> None:
    assert columns_of(Sale) == (
        "id BIGINT, quando TIMESTAMP, itens ARRAY<STRUCT<nome: STRING, preco: DECIMAL(10,2)>>, "
        "notas MAP<STRING, DOUBLE>"
    )
    assert columns_of({"a": int, "b": "DECIMAL(4,1)"}) == "a BIGINT, b DECIMAL(4,1)"
    assert columns_of("a INT,b STRING") == "a INT, b STRING"


@pytest.mark.parametrize("hint", [object, int | str, complex, list])
def test_a_type_that_spark_does_not_have_is_refused(hint: Any) -> None:
    with pytest.raises(PlanRefused, match="has no type in Spark"):
        type_of(hint, "campo")


def test_nested_types_are_parsed() -> None:
    assert struct_fields("STRUCT<a: INT, b STRING>") == "a INT, b STRING"
    assert struct_fields("INT") is None
    assert array_element("ARRAY<STRUCT<a: INT>>") == "STRUCT<a: INT>"
    assert array_element("STRING") is None


AVRO = {
    "type": "record",
    "name": "Venda",
    "namespace": "loja",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "tipo", "type": {"type": "enum", "name": "Tipo", "symbols": ["A", "B"]}},
        {"name": "outro", "type": ["null", "loja.Tipo"]},
        {"name": "quando", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "preco", "type": {"type": "bytes", "logicalType": "decimal", "precision": 8, "scale": 2}},
        {"name": "itens", "type": {"type": "array", "items": ["null", {"type": "map", "values": "int"}]}},
        {"name": "dentro", "type": {"type": "record", "name": "Dentro", "fields": [{"name": "x", "type": "float"}]}},
    ],
}


def parsed(schema: Any) -> AvroType:
    return parse_avro(json.dumps(schema))[0]


def test_the_fields_of_an_avro_record_become_plan_columns() -> None:
    assert avro_columns(parsed(AVRO), "value") == (
        "id BIGINT, tipo STRING, outro STRING, quando TIMESTAMP, preco DECIMAL(8,2), itens ARRAY<MAP<STRING, INT>>, "
        "dentro STRUCT<x FLOAT>"
    )
    assert avro_columns(parsed("string"), "value") == "value STRING"


def test_avro_types_without_a_column_type_are_refused() -> None:
    with pytest.raises(PlanRefused, match="several types"):
        avro_columns(parsed(["int", "string"]), "value")
    itself = {"type": "record", "name": "No", "fields": [{"name": "seguinte", "type": ["null", "No"]}]}
    with pytest.raises(PlanRefused, match="contains itself"):
        avro_columns(parsed(itself), "value")


STRUCT = {
    "type": "struct",
    "fields": [
        {"name": "nome", "type": "string"},
        {"name": "total", "type": "long"},
        {"name": "quando", "type": "timestamp"},
        {"name": "itens", "type": {"type": "array", "elementType": "double"}},
        {"name": "mapa", "type": {"type": "map", "keyType": "string", "valueType": "integer"}},
        {"name": "dentro", "type": {"type": "struct", "fields": [{"name": "x", "type": "boolean"}]}},
    ],
}


def test_columns_become_an_avro_record_that_reads_as_the_same_columns() -> None:
    made = avro_schema(STRUCT, "Saida")
    assert avro_columns(parsed(made), "value") == (
        "nome STRING, total BIGINT, quando TIMESTAMP, itens ARRAY<DOUBLE>, mapa MAP<STRING, INT>, "
        "dentro STRUCT<x BOOLEAN>"
    )
    with pytest.raises(PlanRefused, match="no name in Avro"):
        avro_schema({"fields": [{"name": "não", "type": "string"}]}, "X")


def test_columns_become_a_message_that_reads_as_the_same_columns_and_carries_values() -> None:
    from google.protobuf.message_factory import GetMessageClass

    from pessoa.serde.protobuf.linking import link, read_proto

    file = link(read_proto(proto_text(STRUCT, "Saida")), {})
    descriptor = file.descriptor.message_types_by_name["Saida"]
    assert message_columns(descriptor) == (
        "nome STRING, total BIGINT, quando TIMESTAMP, itens ARRAY<DOUBLE>, mapa MAP<STRING, INT>, "
        "dentro STRUCT<x BOOLEAN>"
    )
    row = {
        "nome": "Ana",
        "total": 2**40,
        "quando": datetime.datetime(2026, 1, 2, 3, 4, 5, tzinfo=datetime.UTC),
        "itens": [1.5, 2.5],
        "mapa": {"a": 1},
        "dentro": {"x": True},
    }
    kind = GetMessageClass(descriptor)
    assert as_dict(kind.FromString(fill(kind(), row).SerializeToString())) == row
    empty: dict[str, Any] = {"nome": None, "total": None, "quando": None, "itens": [], "mapa": {}, "dentro": None}
    assert as_dict(fill(kind(), dict.fromkeys(row))) == empty
    with pytest.raises(ValueError, match="no field cor"):
        fill(kind(), {"cor": "azul"})
