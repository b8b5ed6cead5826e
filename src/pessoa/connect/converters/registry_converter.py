"""The schema registry as converters use it: register what is written, look up what is read.

Blocking, because a converter works in the middle of a batch in a process of its own; and seldom, because every answer
is remembered. Settings are the JVM's: `schema.registry.url` (several, with commas), `basic.auth.user.info`,
`auto.register.schemas`, `use.latest.version`, `key.subject.name.strategy` and `value.subject.name.strategy`.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import TypeAlias

from pessoa.client.registry_client import (
    Question,
    RegisteredSchema,
    RegistryClient,
    RegistryRefused,
    RegistryUnreachable,
    ResolvedSchema,
    T,
    by_id,
    by_version,
    look_up,
    register,
    resolved,
)
from pessoa.connect.converters.converter import Converter
from pessoa.connect.data import ConnectValue, DataFailure, Schema
from pessoa.connect.definition import BOOLEAN, HIGH, LIST, LOW, MEDIUM, PASSWORD, REQUIRED, STRING, Config, Table, key
from pessoa.serde.framing import frame, unframe
from pessoa.serde.schema_problems import DataProblem, SchemaProblem
from pessoa.serde.subjects import topic_name_strategy, topic_record_name_strategy

# The payload of a value, and the value of a payload.
Writer: TypeAlias = Callable[[ConnectValue], bytes]
Reader: TypeAlias = Callable[[bytes], ConnectValue]

# Settings of the client, which it takes as they are.
_CLIENT_KEYS = (
    "basic.auth.user.info",
    "bearer.auth.token",
    "schema.registry.ssl.truststore.location",
    "schema.registry.ssl.keystore.location",
    "schema.registry.ssl.key.password",
)


def registry_keys() -> Table:
    return Table(
        key("schema.registry.url", LIST, REQUIRED, HIGH, "Where the schema registry is, or several of them are."),
        key("auto.register.schemas", BOOLEAN, True, MEDIUM, "Whether new schemas are registered by the writer."),
        key("use.latest.version", BOOLEAN, False, LOW, "Whether to write with the subject's latest schema."),
        key("basic.auth.credentials.source", STRING, "URL", MEDIUM, "Where the credentials are: URL or USER_INFO."),
        key("basic.auth.user.info", PASSWORD, None, MEDIUM, "The credentials, as user:password."),
        key("bearer.auth.token", PASSWORD, None, MEDIUM, "A token, instead of user and password."),
        key("schema.registry.ssl.truststore.location", STRING, None, MEDIUM, "Whom to trust: a PEM file."),
        key("schema.registry.ssl.keystore.location", STRING, None, MEDIUM, "What to show: a PEM file with the key."),
        key("schema.registry.ssl.key.password", PASSWORD, None, MEDIUM, "The password of that key."),
        key("key.subject.name.strategy", STRING, "TopicNameStrategy", MEDIUM, "How the subject of a key is named."),
        key("value.subject.name.strategy", STRING, "TopicNameStrategy", MEDIUM, "How the subject of a value is named."),
    )


class RegistryConverter(Converter):
    """The common part of the three converters with a registry: the frame, the subject, and codecs by schema id."""

    CONFIG = registry_keys()
    SCHEMA_TYPE = ""

    def configure(self, config: Config) -> None:
        settings = {name: config.string(name) for name in _CLIENT_KEYS if config[name]}
        self._client = RegistryClient({"url": ",".join(config.entries("schema.registry.url")), **settings})
        self._may_register = config.boolean("auto.register.schemas")
        self._use_latest = config.boolean("use.latest.version")
        side = "key" if self.is_key else "value"
        self._strategy = config.string(f"{side}.subject.name.strategy").rpartition(".")[2]
        self._writers: dict[tuple[str, Schema | None], tuple[int, Writer]] = {}
        self._readers: dict[int, tuple[Schema | None, Reader]] = {}

    # Each format implements these three.

    @abstractmethod
    def schema_text_of(self, schema: Schema | None, value: ConnectValue) -> str:
        """Return the schema in the format's language."""

    @abstractmethod
    def writer(self, text: str, schema: Schema | None) -> Writer:
        """Return the function that encodes values by this schema."""

    @abstractmethod
    def reader(self, stored: ResolvedSchema) -> tuple[Schema | None, Reader]:
        """Return Connect's schema for a registered schema, and the function that decodes payloads by it."""

    def name_of(self, schema: Schema | None) -> str:
        return (schema.name if schema is not None else None) or "ConnectDefault"

    def to_bytes(self, topic: str, schema: Schema | None, value: ConnectValue) -> bytes | None:
        if value is None:
            return None
        try:
            known = self._writers.get((topic, schema)) if schema is not None else None
            if known is None:
                known = self._make_writer(topic, schema, value)
                if schema is not None:
                    self._writers[topic, schema] = known
            schema_id, write = known
            return frame(schema_id, write(value))
        except (DataProblem, SchemaProblem) as wrong:
            raise DataFailure(f"Failed to serialize {self.SCHEMA_TYPE} data from topic {topic}: {wrong}") from None

    def _make_writer(self, topic: str, schema: Schema | None, value: ConnectValue) -> tuple[int, Writer]:
        text = self.schema_text_of(schema, value)
        subject = self._subject(topic, schema)
        if self._use_latest and not self._may_register:
            stored = self._ask_registry(resolved(by_version(subject)))
            return stored.id, self.writer(stored.text, schema)
        wanted = RegisteredSchema(text, schema_type=self.SCHEMA_TYPE)
        if self._may_register:
            schema_id = self._ask_registry(register(subject, wanted, is_final=True))
        else:
            schema_id = self._ask_registry(look_up(subject, wanted, is_final=True)).id
        return schema_id, self.writer(text, schema)

    def _ask_registry(self, question: Question[T]) -> T:
        try:
            return self._client.ask(question)
        except RegistryRefused as refused:
            raise DataFailure(f"the schema registry refused: {refused}; error code: {refused.code}") from None
        except RegistryUnreachable as failure:
            raise ConnectionError(str(failure)) from None

    def _subject(self, topic: str, schema: Schema | None) -> str:
        match self._strategy:
            case "RecordNameStrategy":
                return self.name_of(schema)
            case "TopicRecordNameStrategy":
                return topic_record_name_strategy(topic, self.name_of(schema))
        return topic_name_strategy(topic, is_key=self.is_key)

    def from_bytes(self, topic: str, data: bytes | None) -> tuple[Schema | None, ConnectValue]:
        if data is None:
            return None, None
        try:
            schema_id, payload = unframe(data)
            if not isinstance(schema_id, int):
                raise DataFailure("schemas by guid are not looked up")
            known = self._readers.get(schema_id)
            if known is None:
                stored = self._ask_registry(resolved(by_id(schema_id)))
                if stored.type != self.SCHEMA_TYPE:
                    raise DataFailure(f"schema {schema_id} is of type {stored.type}, and not {self.SCHEMA_TYPE}")
                known = self._readers[schema_id] = self.reader(stored)
            schema, read = known
            return schema, read(payload)
        except (DataProblem, SchemaProblem) as wrong:
            raise DataFailure(f"Failed to deserialize data for topic {topic} to {self.SCHEMA_TYPE}: {wrong}") from None
