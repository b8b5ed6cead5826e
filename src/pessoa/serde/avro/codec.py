"""Avro data: binary, and the JSON that Avro defines for it (a union's member is wrapped: `{"string": "x"}`).

fastavro does the work; here it is given whole schemas, with references resolved, and its many exceptions become one.
"""

from __future__ import annotations

import io
import json
import struct
from typing import Any

import fastavro
from fastavro.read import SchemaResolutionError
from fastavro.schema import SchemaParseException

from pessoa.serde.avro.printing import avro_tree
from pessoa.serde.avro.schema import AvroType
from pessoa.serde.problems import DataProblem, SchemaProblem

# fastavro lets whatever went wrong inside come out: a missing key, a short read, a number too large.
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


class AvroCodec:
    def __init__(self, schema: AvroType) -> None:
        try:
            self._schema = fastavro.parse_schema(avro_tree(schema, resolve=True))
        except FAILURES as wrong:
            raise SchemaProblem(_said(wrong)) from None

    def encode(self, value: Any) -> bytes:
        out = io.BytesIO()
        try:
            fastavro.schemaless_writer(out, self._schema, value)
        except FAILURES as wrong:
            raise DataProblem(f"the value does not fit its Avro schema: {_said(wrong)}") from None
        return out.getvalue()

    def decode(self, data: bytes, reader: AvroCodec | None = None) -> Any:
        """The value; seen through another schema if a reader's is given."""
        source = io.BytesIO(data)
        try:
            value = fastavro.schemaless_reader(source, self._schema, reader._schema if reader else None)
        except FAILURES as wrong:
            raise DataProblem(f"the bytes do not follow their Avro schema: {_said(wrong)}") from None
        if source.tell() != len(data):
            raise DataProblem(f"{len(data) - source.tell()} bytes are left over after the Avro value")
        return value

    def from_json(self, value: Any) -> bytes:
        """Binary from a value in Avro's JSON encoding."""
        try:
            (parsed,) = fastavro.json_reader(io.StringIO(json.dumps(value)), self._schema)
        except FAILURES as wrong:
            raise DataProblem(f"the JSON does not fit its Avro schema: {_said(wrong)}") from None
        return self.encode(parsed)

    def to_json(self, data: bytes) -> Any:
        """A value in Avro's JSON encoding from binary."""
        value = self.decode(data)
        out = io.StringIO()
        try:
            fastavro.json_writer(out, self._schema, [value])
        except FAILURES as wrong:
            raise DataProblem(f"the value has no JSON form: {_said(wrong)}") from None
        return json.loads(out.getvalue())


def _said(failure: Exception) -> str:
    return str(failure) or type(failure).__name__
