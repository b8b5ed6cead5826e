"""The codecs of sources, made once for each; and the schemas that the formats with a registry write."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import NamedTuple

from pessoa.ksql.analysis.source_catalogue import Source
from pessoa.ksql.operators.format_codecs import Codec, CodecFailure, KeyCodec, Side, key_side, side_codec, value_side
from pessoa.ksql.operators.schema_source import AVRO, JSON, PROTOBUF, SchemaSource
from pessoa.ksql.server.ksql_problems import BAD_STATEMENT, KsqlProblem
from pessoa.ksql.types.sql_types import Value

_MOST_SOURCES = 1000


class SourceCodec(NamedTuple):
    source: Source
    key: KeyCodec
    value: Codec

    def encode_key(self, values: Sequence[Value]) -> bytes | None:
        try:
            return self.key.encode(values if any(one is not None for one in values) else None, None).key
        except CodecFailure as failure:
            message = f"Could not serialize the row for '{self.source.name}': {failure}"
            raise KsqlProblem(BAD_STATEMENT, message) from None


class SourceCodecs:
    def __init__(self, schemas: SchemaSource) -> None:
        self._schemas = schemas
        self._lock = threading.Lock()
        self._known: dict[str, SourceCodec] = {}

    def of(self, source: Source) -> SourceCodec:
        with self._lock:
            found = self._known.get(source.name)
            # A source that was altered or made anew is another value.
            if found is None or found.source is not source:
                key = KeyCodec(side_codec(key_side(source), self._schemas), source.window)
                found = SourceCodec(source, key, side_codec(value_side(source), self._schemas))
                if len(self._known) >= _MOST_SOURCES:
                    self._known.clear()
                self._known[source.name] = found
            return found


def written_schema(side: Side) -> tuple[str, str]:
    """Return the type and the text of the schema with which a side is written."""
    if side.format == "AVRO":
        from pessoa.ksql.operators.avro_format import avro_schema_text

        return AVRO, avro_schema_text(side)
    if side.format == "JSON_SR":
        from pessoa.ksql.operators.json_format import json_schema_text

        return JSON, json_schema_text(side)
    from pessoa.ksql.operators.protobuf_format import proto_text

    return PROTOBUF, proto_text(side)
