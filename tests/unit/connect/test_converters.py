"""Converters: round trips, and bytes that are equal to those of Kafka's own converters."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any

import pytest

from pessoa.client.registry_client import ResolvedSchema
from pessoa.connect.converters.avro_converter import AvroConverter
from pessoa.connect.converters.json_converter import JsonConverter, schema_from_json
from pessoa.connect.converters.json_schema_converter import JsonSchemaConverter
from pessoa.connect.converters.protobuf_converter import ProtobufConverter
from pessoa.connect.converters.registry_converter import RegistryConverter
from pessoa.connect.converters.simple_converters import (
    ByteArrayConverter,
    FloatConverter,
    IntegerConverter,
    SimpleHeaderConverter,
    StringConverter,
)
from pessoa.connect.data import (
    BOOLEAN,
    BYTES,
    DATE_SCHEMA,
    FLOAT32,
    FLOAT64,
    INT8,
    INT32,
    INT64,
    STRING,
    TIME_SCHEMA,
    TIMESTAMP_SCHEMA,
    DataFailure,
    Schema,
    Type,
    decimal_schema,
    struct,
)
from pessoa.connect.values import parse_text, to_text
from pessoa.serde.avro.codec import AvroCodec
from pessoa.serde.avro.parsing import parse_avro
from pessoa.testing import Broker
from tests.services.schema_registry.serving import registry

MOMENT = datetime(2024, 2, 29, 13, 14, 15, 16000, tzinfo=UTC)
ORDER = struct(
    {
        "id": INT32,
        "tiny": INT8,
        "many": INT64.as_optional,
        "price": FLOAT64,
        "rate": FLOAT32,
        "is_new": BOOLEAN,
        "name": STRING.as_optional,
        "data": BYTES,
        "amount": decimal_schema(2, 10),
        "day": DATE_SCHEMA,
        "hour": TIME_SCHEMA,
        "moment": TIMESTAMP_SCHEMA,
        "tags": Schema(Type.ARRAY, values=STRING),
        "counts": Schema(Type.MAP, keys=STRING, values=INT32),
        "address": struct({"city": STRING, "zip": INT32.as_optional}, "Address").as_optional,
    },
    "Order",
)
VALUE: dict[str, Any] = {
    "id": 7, "tiny": -3, "many": None, "price": 3.75, "rate": 1.1, "is_new": True, "name": "pão", "data": b"\x00\xff",
    "amount": Decimal("-12.50"), "day": date(2024, 2, 29), "hour": time(13, 14, 15, 16000), "moment": MOMENT,
    "tags": ["a", "b"], "counts": {"x": 1}, "address": {"city": "Porto", "zip": None},
}  # fmt: skip


def test_the_json_converter_with_schemas_returns_the_schema_and_value_that_it_was_given() -> None:
    converter = JsonConverter({})
    data = converter.to_bytes("t", ORDER, VALUE)
    assert data is not None
    tree = json.loads(data)
    assert set(tree) == {"schema", "payload"}
    assert tree["payload"]["amount"] == "+x4="
    assert tree["payload"]["moment"] == 1709212455016
    assert tree["payload"]["day"] == 19782
    assert converter.from_bytes("t", data) == (ORDER, VALUE)


def test_the_json_converter_without_schemas_writes_plain_json() -> None:
    converter = JsonConverter({"schemas.enable": "false"})
    assert converter.to_bytes("t", None, {"a": [1, None]}) == b'{"a":[1,null]}'
    assert converter.from_bytes("t", b'{"a":1}') == (None, {"a": 1})
    assert converter.from_bytes("t", None) == (None, None)


def test_json_numbers_keep_their_digits_where_decimals_are_numeric() -> None:
    converter = JsonConverter({"schemas.enable": "false", "decimal.format": "NUMERIC"})
    assert converter.to_bytes("t", decimal_schema(2), Decimal("0.10")) == b"0.10"


@pytest.mark.parametrize("data", [b"no json", b'{"payload": 1}', b'{"schema": {"type": "int9"}, "payload": 1}',
                                  b'{"schema": {"type": "int32"}, "payload": "x"}'])  # fmt: skip
def test_invalid_json_or_json_without_an_envelope_is_refused(data: bytes) -> None:
    with pytest.raises(DataFailure):
        JsonConverter({}).from_bytes("t", data)


def test_the_json_converter_uses_each_records_own_schema_although_it_caches_the_last() -> None:
    number, text = b'{"type":"int32","optional":false}', b'{"type":"string","optional":false}'
    marked = b'{"type":"struct","fields":[],"optional":true,"parameters":{"a":"1","payload":"2"}}'
    converter = JsonConverter({})
    given = [
        (b'{"schema":%s,"payload":1}' % number, (INT32, 1)),
        (b'{"schema":%s,"payload":2}' % number, (INT32, 2)),
        (b'{"schema":%s,"payload":"2"}' % text, (STRING, "2")),
        (b'{"schema":%s,"payload":3} ' % number, (INT32, 3)),
        (b'{"payload":4,"schema":%s}' % number, (INT32, 4)),
        (b'{"schema":%s,"payload":null}' % marked, (schema_from_json(json.loads(marked)), None)),
        (b'{"schema":null,"payload":[5]}', (None, [5])),
        (b'{"schema":null,"payload":"6"}', (None, "6")),
        (b'{"schema":%s,"payload":7}' % number, (INT32, 7)),
    ]
    for data, expected in given:
        assert converter.from_bytes("t", data) == expected
    for wrong in (b'{"schema":%s,"payload":1,"x":2}', b'{"schema":%s,"payload":1', b'{"schema":%s,"payload":}'):
        with pytest.raises(DataFailure):
            converter.from_bytes("t", wrong % number)


def test_json_refuses_a_null_where_the_schema_allows_none() -> None:
    with pytest.raises(DataFailure, match="null value for field that is required"):
        JsonConverter({}).to_bytes("t", struct({"a": INT32}), {"a": None})


def test_simple_converters_write_kafkas_bytes() -> None:
    assert IntegerConverter({}).to_bytes("t", INT32, 258) == b"\x00\x00\x01\x02"
    assert IntegerConverter({}).from_bytes("t", b"\x00\x00\x01\x02")[1] == 258
    assert FloatConverter({}).from_bytes("t", FloatConverter({}).to_bytes("t", FLOAT32, 1.1))[1] == 1.1
    assert StringConverter({}).to_bytes("t", ORDER, {"id": 1, "is_new": True}) == b"Struct{id=1,is_new=true}"
    assert StringConverter({}).to_bytes("t", None, {"id": 1, "x": [1, 2]}) == b"{id=1, x=[1, 2]}"
    with pytest.raises(DataFailure):
        IntegerConverter({}).from_bytes("t", b"\x00")
    with pytest.raises(DataFailure):
        ByteArrayConverter({}).to_bytes("t", STRING, "text")


@pytest.mark.parametrize("text", ["12", "1.5", "true", "word", "2024-02-29", "13:14:15.016Z", "[1,2]", '{"a":1}'])
def test_headers_survive_conversion_to_text_and_back(text: str) -> None:
    schema, value = parse_text(text)
    assert to_text(schema, value) == text
    data = SimpleHeaderConverter({}).to_bytes("t", schema, value)
    assert SimpleHeaderConverter({}).from_bytes("t", data) == (schema, value)


@pytest.fixture(scope="module")
def registry_url() -> Iterator[str]:
    with Broker() as broker, registry(broker.bootstrap_servers) as server:
        yield server.url


def converter(kind: type[RegistryConverter], url: str, **settings: str) -> RegistryConverter:
    texts = {name.replace("_", "."): text for name, text in settings.items()}
    return kind({"schema.registry.url": url, **texts}, is_key=False)


def test_the_avro_converter_returns_the_schema_and_value_that_it_was_given(registry_url: str) -> None:
    data = converter(AvroConverter, registry_url).to_bytes("avro", ORDER, VALUE)
    assert data is not None
    assert data[0] == 0
    schema, value = converter(AvroConverter, registry_url).from_bytes("avro", data)
    assert value == VALUE
    assert schema == ORDER


def test_avro_uuid_and_union_become_connect_values() -> None:
    fields = [
        {"name": "id", "type": {"type": "string", "logicalType": "uuid"}},
        {"name": "either", "type": ["null", "string", {"type": "array", "items": "int"}]},
    ]
    text = json.dumps({"type": "record", "name": "Item", "fields": fields})
    schema, read = converter(AvroConverter, "http://127.0.0.1:1").reader(ResolvedSchema(1, "AVRO", text, {}))
    assert schema is not None
    assert schema.field("id") == STRING
    codec = AvroCodec(parse_avro(text)[0])
    value = {"id": "b8a7c1d2-0000-4000-8000-000000000001", "either": [1, 2]}
    assert read(codec.encode(value)) == {"id": value["id"], "either": {"string": None, "array": [1, 2]}}


def test_the_json_schema_converter_returns_the_schema_and_value_that_it_was_given(registry_url: str) -> None:
    data = converter(JsonSchemaConverter, registry_url).to_bytes("json-schema", ORDER, VALUE)
    schema, value = converter(JsonSchemaConverter, registry_url).from_bytes("json-schema", data)
    assert value == VALUE
    assert schema == ORDER


def test_the_protobuf_converter_returns_the_value_that_it_was_given(registry_url: str) -> None:
    data = converter(ProtobufConverter, registry_url).to_bytes("proto", ORDER, VALUE)
    schema, value = converter(ProtobufConverter, registry_url).from_bytes("proto", data)
    # What Protobuf has no type for comes back as what it was written as.
    changed = {"amount": "-12.50", "day": 19782, "hour": 47655016}
    assert value == {**VALUE, "rate": pytest.approx(1.1), **changed}
    assert schema is not None
    assert schema.name == "Order"


def test_a_converter_that_may_not_register_schemas_refuses_a_new_one(registry_url: str) -> None:
    strict = converter(AvroConverter, registry_url, auto_register_schemas="false")
    with pytest.raises(DataFailure, match="refused"):
        strict.to_bytes("never-seen", ORDER, VALUE)


def test_bytes_without_a_schema_id_are_refused(registry_url: str) -> None:
    for data in (b"", b"\x00\x00", b"\x07abcdef", b"\x00\x7f\xff\xff\xff"):
        with pytest.raises(DataFailure):
            converter(AvroConverter, registry_url).from_bytes("t", data)
