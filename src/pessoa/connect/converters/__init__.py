"""Converters: the table of their class names. A converter is imported when a configuration names it."""

from __future__ import annotations

from importlib import import_module

from pessoa.connect.converters.converter import Converter

_PACKAGE = "pessoa.connect.converters"
CONVERTERS: dict[str, tuple[str, str]] = {
    **{
        f"org.apache.kafka.connect.converters.{name}": ("simple_converters", name)
        for name in (
            "BooleanConverter", "ByteArrayConverter", "DoubleConverter", "FloatConverter", "IntegerConverter",
            "LongConverter", "ShortConverter",
        )
    },
    "org.apache.kafka.connect.json.JsonConverter": ("json_converter", "JsonConverter"),
    "org.apache.kafka.connect.storage.StringConverter": ("simple_converters", "StringConverter"),
    "io.confluent.connect.avro.AvroConverter": ("avro_converter", "AvroConverter"),
    "io.confluent.connect.json.JsonSchemaConverter": ("json_schema_converter", "JsonSchemaConverter"),
    "io.confluent.connect.protobuf.ProtobufConverter": ("protobuf_converter", "ProtobufConverter"),
}  # fmt: skip
SIMPLE_HEADER = "org.apache.kafka.connect.storage.SimpleHeaderConverter"
HEADER_CONVERTERS: dict[str, tuple[str, str]] = {
    name: place for name, place in CONVERTERS.items() if name.startswith("org.apache.kafka.")
} | {SIMPLE_HEADER: ("simple_converters", "SimpleHeaderConverter")}


def load(place: tuple[str, str]) -> type[Converter]:
    module, name = place
    kind: type[Converter] = getattr(import_module(f"{_PACKAGE}.{module}"), name)
    return kind
