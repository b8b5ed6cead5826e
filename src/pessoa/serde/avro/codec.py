"""Avro data: binary, and the JSON that Avro defines for it (a union's member is wrapped: `{"string": "x"}`).

Between binary and Python's values fastavro does the work; here it is given whole schemas, with references resolved, and
its many exceptions become one. Between binary and JSON there are no Python values (`json_encoding.py`).
"""

from __future__ import annotations

import io
import struct
from collections.abc import Callable

import fastavro
from fastavro.read import LOGICAL_READERS, SchemaResolutionError
from fastavro.schema import SchemaParseException

from pessoa.base.json_value import JsonValue
from pessoa.serde.avro.avro_schema import AvroType
from pessoa.serde.avro.json_encoding import binary_to_json, json_to_binary
from pessoa.serde.avro.printing import avro_tree
from pessoa.serde.schema_problems import DataProblem, SchemaProblem

# fastavro lets the exceptions of its own code come out: a missing key, a short read, a number too large.
FAILURES = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    EOFError,
    LookupError,
    RecursionError,
    SchemaParseException,
    SchemaResolutionError,
    TypeError,
    ValueError,
    struct.error,
)
# The most bytes of a decimal: some ten thousand digits, read in milliseconds. The time grows with the square: 400 kB
# took 20 s.
MOST_DECIMAL_BYTES = 4096


def _limit_decimal_size(read: Callable[..., object]) -> Callable[..., object]:
    def bounded(data: bytes, *schemas: object) -> object:
        if len(data) > MOST_DECIMAL_BYTES:
            raise ValueError(f"a decimal of {len(data)} bytes is longer than {MOST_DECIMAL_BYTES}")
        return read(data, *schemas)

    return bounded


for _kind in ("bytes-decimal", "fixed-decimal"):
    LOGICAL_READERS[_kind] = _limit_decimal_size(LOGICAL_READERS[_kind])


class AvroCodec:
    def __init__(self, schema: AvroType) -> None:
        self._type = schema
        try:
            self._schema = fastavro.parse_schema(avro_tree(schema, resolve=True))
        except FAILURES as wrong:
            raise SchemaProblem(_describe(wrong)) from None

    def encode(self, value: object) -> bytes:
        out = io.BytesIO()
        try:
            fastavro.schemaless_writer(out, self._schema, value)
        except FAILURES as wrong:
            raise DataProblem(f"the value does not fit its Avro schema: {_describe(wrong)}") from None
        return out.getvalue()

    def decode(self, data: bytes, reader: AvroCodec | None = None) -> object:
        """Return the decoded value; with `reader`, resolved to the reader's schema (Avro schema resolution)."""
        source = io.BytesIO(data)
        try:
            value = fastavro.schemaless_reader(source, self._schema, reader._schema if reader else None)
        except FAILURES as wrong:
            raise DataProblem(f"the bytes do not follow their Avro schema: {_describe(wrong)}") from None
        if source.tell() != len(data):
            raise DataProblem(f"{len(data) - source.tell()} bytes are left over after the Avro value")
        return value

    def from_json(self, value: JsonValue) -> bytes:
        """Return the Avro binary of a value in Avro's JSON encoding."""
        return json_to_binary(self._type, value)

    def to_json(self, data: bytes) -> JsonValue:
        """Return the value of Avro binary in Avro's JSON encoding."""
        return binary_to_json(self._type, data)


def _describe(failure: Exception) -> str:
    return str(failure) or type(failure).__name__
