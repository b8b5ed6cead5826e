"""Converters whose bytes have no schema: text, raw bytes, Kafka's numbers, and headers as text."""

from __future__ import annotations

from typing import ClassVar

from pessoa.connect.converters.converter import Converter
from pessoa.connect.data import (
    BOOLEAN,
    BYTES,
    FLOAT32,
    FLOAT64,
    INT16,
    INT32,
    INT64,
    OPTIONAL_STRING,
    ConnectValue,
    DataFailure,
    Schema,
    Type,
    as_single,
    java_text,
)
from pessoa.connect.definition import HIGH, STRING, Config, Table, key
from pessoa.connect.values import parse_text, to_text
from pessoa.serde.primitive_codecs import SERDES
from pessoa.serde.schema_problems import DataProblem


class StringConverter(Converter):
    """Converts values to text, as Java's toString does."""

    CONFIG = Table(key("converter.encoding", STRING, "UTF-8", HIGH, "The name of the character set."))

    def configure(self, config: Config) -> None:
        self._encoding = config.string("converter.encoding")

    def to_bytes(self, topic: str, schema: Schema | None, value: ConnectValue) -> bytes | None:
        if value is None:
            return None
        return (value if isinstance(value, str) else java_text(schema, value)).encode(self._encoding)

    def from_bytes(self, topic: str, data: bytes | None) -> tuple[Schema | None, ConnectValue]:
        # As Java does, bytes that are no text give the replacement character.
        return OPTIONAL_STRING, None if data is None else data.decode(self._encoding, errors="replace")


class ByteArrayConverter(Converter):
    def to_bytes(self, topic: str, schema: Schema | None, value: ConnectValue) -> bytes | None:
        if schema is not None and schema.type is not Type.BYTES:
            raise DataFailure(f"Invalid schema type for ByteArrayConverter: {schema.type}")
        if value is not None and not isinstance(value, bytes | bytearray | memoryview):
            raise DataFailure(f"ByteArrayConverter is not compatible with objects of type {type(value).__name__}")
        return None if value is None else bytes(value)

    def from_bytes(self, topic: str, data: bytes | None) -> tuple[Schema | None, ConnectValue]:
        return BYTES.as_optional, data


class NumberConverter(Converter):
    """Converts by one of Kafka's own serialisers, `KIND` in `serde.primitive_codecs`."""

    KIND: ClassVar[str] = ""
    SCHEMA: ClassVar[Schema]

    def to_bytes(self, topic: str, schema: Schema | None, value: ConnectValue) -> bytes | None:
        if value is None:
            return None
        try:
            return SERDES[self.KIND].encode(value)
        except DataProblem as wrong:
            raise DataFailure(f"Failed to serialize to {self.KIND}: {wrong}") from None

    def from_bytes(self, topic: str, data: bytes | None) -> tuple[Schema | None, ConnectValue]:
        if data is None:
            return self.SCHEMA, None
        try:
            value = SERDES[self.KIND].decode(data)
        except DataProblem as wrong:
            raise DataFailure(f"Failed to deserialize {self.KIND}: {wrong}") from None
        return self.SCHEMA, as_single(value) if self.KIND == "float" else value


class LongConverter(NumberConverter):
    KIND, SCHEMA = "long", INT64.as_optional


class IntegerConverter(NumberConverter):
    KIND, SCHEMA = "integer", INT32.as_optional


class ShortConverter(NumberConverter):
    KIND, SCHEMA = "short", INT16.as_optional


class DoubleConverter(NumberConverter):
    KIND, SCHEMA = "double", FLOAT64.as_optional


class FloatConverter(NumberConverter):
    KIND, SCHEMA = "float", FLOAT32.as_optional


class BooleanConverter(NumberConverter):
    KIND, SCHEMA = "boolean", BOOLEAN.as_optional


class SimpleHeaderConverter(Converter):
    """Converts headers to text, and text to the smallest type that it could be of (`values.py`)."""

    def to_bytes(self, topic: str, schema: Schema | None, value: ConnectValue) -> bytes | None:
        text = to_text(schema, value)
        return None if text is None else text.encode()

    def from_bytes(self, topic: str, data: bytes | None) -> tuple[Schema | None, ConnectValue]:
        return parse_text(None if data is None else data.decode(errors="replace"))
