"""A schema's text and its references, as something that turns JSON into payloads and back.

One shape for the three types of schema, so that schemas.py need not know them apart. `record_name` is what the subject
name strategies by record go by.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

from pessoa.rest_proxy.media import Format
from pessoa.serde.problems import SchemaProblem

SCHEMA_TYPES = {Format.AVRO: "AVRO", Format.JSONSCHEMA: "JSON", Format.PROTOBUF: "PROTOBUF"}
FORMATS = {name: kind for kind, name in SCHEMA_TYPES.items()}


class ResolvedReference(NamedTuple):
    """A schema that another one refers to by `name`; those that it refers to itself stand before it."""

    name: str
    text: str


class Codec(Protocol):
    @property
    def record_name(self) -> str:
        """The full name of the record, or of the message, that the schema is about."""

    def from_json(self, value: Any) -> bytes:
        """DataProblem if the value does not fit."""

    def to_json(self, payload: bytes) -> Any:
        """DataProblem if the bytes do not fit."""


def make_codec(kind: Format, text: str, references: Sequence[ResolvedReference]) -> Codec:
    """SchemaProblem if the text is no schema."""
    match kind:
        case Format.AVRO:
            return _Avro(text, references)
        case Format.JSONSCHEMA:
            return _Json(text, references)
        case _:
            raise SchemaProblem(f"{kind.value} has no schemas")


class _Avro:
    def __init__(self, text: str, references: Sequence[ResolvedReference]) -> None:
        from pessoa.serde.avro.codec import AvroCodec
        from pessoa.serde.avro.parsing import parse_avro
        from pessoa.serde.avro.schema import NamedType

        known: dict[str, NamedType] = {}
        for reference in references:
            known.update(parse_avro(reference.text, known)[1])
        schema, _ = parse_avro(text, known)
        self.record_name: str = getattr(schema, "name", schema.kind)
        codec = AvroCodec(schema)
        self.from_json = codec.from_json
        self.to_json = codec.to_json


class _Json:
    def __init__(self, text: str, references: Sequence[ResolvedReference]) -> None:
        from pessoa.serde.json_schema import JsonSchema, parse_json

        tree = parse_json(text)
        self._schema = JsonSchema(tree, {each.name: parse_json(each.text) for each in references})
        self.record_name = str(tree.get("title", "")) if isinstance(tree, dict) else ""

    def from_json(self, value: Any) -> bytes:
        return self._schema.encode(value)

    def to_json(self, payload: bytes) -> Any:
        # What is in a topic is shown, whether or not it follows the schema that it names.
        return self._schema.decode(payload, validate=False)
