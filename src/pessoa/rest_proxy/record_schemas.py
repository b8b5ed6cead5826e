"""Schemas of records: which one a request means, and the bytes that come of it.

A request names a schema by its text, its id, its version, or not at all (the latest), under a subject that it names or
that follows from the topic. A schema is found in the registry once and remembered; only "the latest" is asked
again after a moment. A text that the subject does not have is registered.

    SchemaWanted ──registry──► RegisteredSchema ──serde──► SchemaCodec: JSON value ⇄ magic byte, id, payload
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import NamedTuple, TypeVar

import msgspec

from pessoa.client.registry_client import (
    AsyncRegistryClient,
    RegisteredSchema,
    RegistryFailed,
    RegistryRefused,
    RegistryUnreachable,
    by_id,
    by_version,
    look_up,
    register,
    texts_of,
)
from pessoa.rest_proxy.embedded import NULL, is_null
from pessoa.rest_proxy.media import Format
from pessoa.rest_proxy.proxy_problems import (
    conversion_failed,
    invalid_payload,
    invalid_schema,
    serialisation_failed,
    undecodable,
)
from pessoa.rest_proxy.record_names import record_name
from pessoa.serde.codecs import Codec, codec_for
from pessoa.serde.framing import frame, unframe
from pessoa.serde.schema_problems import DataProblem, SchemaProblem
from pessoa.serde.subjects import record_name_strategy, topic_name_strategy, topic_record_name_strategy
from pessoa.web.problems import HttpProblem

K = TypeVar("K")
V = TypeVar("V")

# How old "the latest version" may be.
LATEST_S = 1.0
# A caller may send a new schema with every request; what is remembered stays bounded.
MAX_REMEMBERED = 10_000
INVALID_SCHEMA_CODE = 42201
SCHEMA_TYPES = {Format.AVRO: "AVRO", Format.JSONSCHEMA: "JSON", Format.PROTOBUF: "PROTOBUF"}
FORMATS = {name: kind for kind, name in SCHEMA_TYPES.items()}


class SchemaWanted(NamedTuple):
    """The schema that a request refers to. `format` is set when the request has the schema's text."""

    topic: str
    is_key: bool
    format: Format | None = None
    subject: str | None = None
    strategy: str | None = None
    schema_id: int | None = None
    version: int | None = None
    text: str | None = None

    @property
    def is_latest(self) -> bool:
        return self.schema_id is None and self.version is None and self.text is None


class SchemaCodec:
    """The codec of one version of one subject, with its schema id."""

    def __init__(self, stored: RegisteredSchema, subject: str, kind: Format, codec: Codec) -> None:
        self.format = kind
        self.schema_id = stored.id
        self.subject = stored.subject or subject
        self.version = stored.version
        self._codec = codec

    def __repr__(self) -> str:
        return f"<SchemaCodec {self.format.value} {self.schema_id}, {self.subject} version {self.version}>"

    def to_bytes(self, value: msgspec.Raw) -> bytes | None:
        if is_null(value):
            return None
        try:
            return frame(self.schema_id, self._codec.from_json(msgspec.json.decode(value)))
        except (DataProblem, msgspec.DecodeError) as wrong:
            raise conversion_failed(str(wrong)) from None
        except SchemaProblem as wrong:
            raise invalid_schema(str(wrong)) from None


class Schemas:
    def __init__(self, settings: Mapping[str, str]) -> None:
        self._registry = AsyncRegistryClient(settings)
        self._found: dict[SchemaWanted, SchemaCodec] = {}
        self._latest: dict[SchemaWanted, tuple[float, SchemaCodec]] = {}
        self._readers: dict[int, tuple[Format, Codec]] = {}

    def __repr__(self) -> str:
        return f"<Schemas of {self._registry!r}>"

    async def close(self) -> None:
        await self._registry.aclose()

    # Writing.

    async def codec(self, wanted: SchemaWanted) -> SchemaCodec:
        """Return the codec of the schema that a request refers to. Raises the problem 422 if there is none."""
        known = self._found.get(wanted)
        if known is not None:
            return known
        if wanted.is_latest:
            fetched_s, latest = self._latest.get(wanted, (0.0, None))
            if latest is not None and time.monotonic() - fetched_s < LATEST_S:
                return latest
        try:
            found = await self._find(wanted)
        except RegistryUnreachable as failure:
            raise HttpProblem(408, f"Error serializing message: {failure}", 40801) from None
        except RegistryRefused as refused:
            if refused.code == INVALID_SCHEMA_CODE:
                raise invalid_schema(str(refused)) from None
            raise serialisation_failed(f"Error when fetching or registering the schema. {refused}") from None
        except SchemaProblem as wrong:
            raise invalid_schema(str(wrong)) from None
        if wanted.is_latest:
            _remember(self._latest, wanted, (time.monotonic(), found))
        else:
            _remember(self._found, wanted, found)
        return found

    async def _find(self, wanted: SchemaWanted) -> SchemaCodec:
        if wanted.text is not None:
            assert wanted.format is not None
            schema = RegisteredSchema(wanted.text, schema_type=SCHEMA_TYPES[wanted.format])
            codec = codec_for(schema.schema_type, wanted.text)
            subject = _subject(wanted, schema, codec)
            stored = await self._look_up_or_register(subject, schema)
        elif wanted.schema_id is not None:
            schema = await self._registry.ask(by_id(wanted.schema_id))
            codec = await self._codec_of(schema)
            subject = _subject(wanted, schema, codec)
            stored = await self._registry.ask(look_up(subject, schema))
            # The same text may have another id in another context; the caller has named this one.
            stored = msgspec.structs.replace(stored, id=wanted.schema_id)
        else:
            subject = _subject(wanted, None, None)
            version = "latest" if wanted.version is None else wanted.version
            stored = await self._registry.ask(by_version(subject, version))
            codec = await self._codec_of(stored)
        return SchemaCodec(stored, subject, _format(stored), codec)

    async def _look_up_or_register(self, subject: str, schema: RegisteredSchema) -> RegisteredSchema:
        try:
            return await self._registry.ask(look_up(subject, schema))
        except RegistryRefused as refused:
            if refused.status != 404:
                raise
        await self._registry.ask(register(subject, schema))
        return await self._registry.ask(look_up(subject, schema))

    # Reading.

    async def to_json(self, kind: Format, data: bytes | None) -> msgspec.Raw:
        """Return a record's key or value as JSON. Raises the problem 408 if it is of another format or its schema
        cannot be fetched."""
        if data is None:
            return NULL
        try:
            schema, payload = unframe(data)
            if not isinstance(schema, int):
                raise undecodable("schemas by guid are not looked up")
            found, codec = await self._reader(schema)
            if found is not kind:
                raise undecodable(f"the record was written in {found.value}")
            return msgspec.Raw(msgspec.json.encode(codec.to_json(payload)))
        except (DataProblem, SchemaProblem, RegistryFailed) as wrong:
            raise undecodable(str(wrong)) from None

    async def _reader(self, schema_id: int) -> tuple[Format, Codec]:
        known = self._readers.get(schema_id)
        if known is None:
            stored = await self._registry.ask(by_id(schema_id))
            known = (_format(stored), await self._codec_of(stored))
            _remember(self._readers, schema_id, known)
        return known

    async def _codec_of(self, stored: RegisteredSchema) -> Codec:
        return codec_for(stored.schema_type, stored.schema, await self._registry.ask(texts_of(stored.references)))


def _format(stored: RegisteredSchema) -> Format:
    kind = FORMATS.get(stored.schema_type)
    if kind is None:
        raise SchemaProblem(f"schemas of type {stored.schema_type} are not known here")
    return kind


def _subject(wanted: SchemaWanted, schema: RegisteredSchema | None, codec: Codec | None) -> str:
    if wanted.subject is not None:
        return wanted.subject
    match wanted.strategy:
        case None | "TOPIC_NAME":
            return topic_name_strategy(wanted.topic, is_key=wanted.is_key)
        case "RECORD_NAME" | "TOPIC_RECORD_NAME":
            if schema is None or codec is None:
                raise invalid_payload("A subject that follows the record's name needs schema or schema_id.")
            name = record_name(schema.schema_type, schema.schema, codec)
            if wanted.strategy == "RECORD_NAME":
                return record_name_strategy(name)
            return topic_record_name_strategy(wanted.topic, name)
    raise invalid_payload(f"{wanted.strategy} is no subject name strategy.")


def _remember(memory: dict[K, V], key: K, value: V) -> None:
    if len(memory) >= MAX_REMEMBERED:
        memory.clear()
    memory[key] = value
