"""Codecs for every type of schema behind one interface, for the REST proxy and the console tools.

    codec = codec_for("AVRO", text, {"other.Name": text_of_it})
    payload = codec.from_json(value)      what follows magic byte and id, Protobuf's message indexes included
    value = codec.to_json(payload)

References are given by the name that the schema uses them with, those that other references need among them, and what
is needed before what needs it. The texts are those of the registry.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from pessoa.base.json_value import JsonValue
from pessoa.serde.schema_problems import SchemaProblem

AVRO = "AVRO"
JSON = "JSON"
PROTOBUF = "PROTOBUF"


class Codec(Protocol):
    def from_json(self, value: JsonValue) -> bytes:
        """Return the payload for a value; DataProblem if the value does not fit the schema."""

    def to_json(self, payload: bytes) -> JsonValue:
        """Return the value of a payload; DataProblem if the payload does not follow the schema."""


class _Json:
    def __init__(self, text: str, references: Mapping[str, str]) -> None:
        from pessoa.serde.json_schema import JsonSchema, parse_json

        self._schema = JsonSchema(parse_json(text), {name: parse_json(each) for name, each in references.items()})

    def from_json(self, value: JsonValue) -> bytes:
        return self._schema.encode(value)

    def to_json(self, payload: bytes) -> JsonValue:
        # Readers do not check, as in the JVM (json.fail.invalid.schema is false): what is written is there to be read.
        return self._schema.decode(payload, validate=False)


def codec_for(schema_type: str, text: str, references: Mapping[str, str] | None = None) -> Codec:
    references = references or {}
    if schema_type == AVRO:
        return _avro(text, references)
    if schema_type == JSON:
        return _Json(text, references)
    if schema_type == PROTOBUF:
        from pessoa.serde.protobuf.codec import ProtobufCodec
        from pessoa.serde.protobuf.linking import link, read_proto

        imports = {name: read_proto(each, name) for name, each in references.items()}
        return ProtobufCodec(link(read_proto(text), imports))
    raise SchemaProblem(f"unknown schema type {schema_type}: there are {AVRO}, {JSON} and {PROTOBUF}")


def _avro(text: str, references: Mapping[str, str]) -> Codec:
    from pessoa.serde.avro.avro_schema import NamedType
    from pessoa.serde.avro.codec import AvroCodec
    from pessoa.serde.avro.parsing import parse_avro

    known: dict[str, NamedType] = {}
    for each in references.values():
        known.update(parse_avro(each, known)[1])
    return AvroCodec(parse_avro(text, known)[0])
