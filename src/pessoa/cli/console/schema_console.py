"""The console tools that know schemas: kafka-{avro,json-schema,protobuf}-console-{producer,consumer}.

They are the plain console tools with a codec in the middle. A producer's lines are JSON; each becomes the bytes of its
schema, behind the schema's id in the registry. A consumer looks the id up and prints JSON again, one line a record.

    producer   value.schema | value.schema.file | value.schema.id, the same for key; value.refs, key.refs,
               auto.register, key.serializer for keys that are plain text, and the properties of the plain tool
    consumer   print.schema.ids, schema.id.separator, key.deserializer, and the properties of the plain tool
    both       schema.registry.url (http://localhost:8081), and what else client/registry_client.py knows:
               basic.auth.user.info, bearer.auth.token, schema.registry.ssl.*. They may stand in the file of
               --command-config as well, as the files of `pessoa users` have them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from pessoa.cli import command_line as line
from pessoa.cli import renamed_options
from pessoa.cli.command_line import UsageError
from pessoa.cli.console.formatters import BadData, DefaultFormatter
from pessoa.cli.console.line_reader import BadLine, Line, LineReader
from pessoa.cli.tool_run import Tool, read_properties, warn
from pessoa.client.librdkafka import serialiser_settings
from pessoa.client.registry_client import (
    URL,
    Question,
    Reference,
    RegisteredSchema,
    RegistryClient,
    RegistryRefused,
    RegistryUnreachable,
    T,
    by_id,
    look_up,
    register,
    resolved,
)

if TYPE_CHECKING:
    from pessoa.cli.command_line import Given, Options
    from pessoa.serde.codecs import Codec

_REGISTRY = "http://localhost:8081"


class Registry:
    """The client of the schema registry for the console tools: it registers schemas and returns codecs by id."""

    def __init__(self, properties: Mapping[str, str]) -> None:
        self._client = RegistryClient({**properties, URL: properties.get(URL, _REGISTRY)})
        self._codecs: dict[int, Codec] = {}

    def register(
        self, subject: str, schema_type: str, text: str, references: tuple[Reference, ...], *, is_new: bool
    ) -> int:
        schema = RegisteredSchema(text, schema_type=schema_type, references=references)
        return self._ask(register(subject, schema)) if is_new else self._ask(look_up(subject, schema)).id

    def codec(self, schema_id: int) -> Codec:
        if schema_id not in self._codecs:
            from pessoa.serde.codecs import codec_for

            found = self._ask(resolved(by_id(schema_id)))
            self._codecs[schema_id] = codec_for(found.type, found.text, found.references)
        return self._codecs[schema_id]

    def _ask(self, question: Question[T]) -> T:
        try:
            return self._client.ask(question)
        except RegistryRefused as refused:
            raise BadData(f"the schema registry says: {refused}; error code: {refused.code}") from refused
        except RegistryUnreachable as failure:
            raise BadData(str(failure)) from failure


def _of_file(given: Given, old: str) -> dict[str, str]:
    """Return the registry's settings in the client's file. The plain tool has printed the warning about the option's
    old name."""
    path = given.maybe("command-config") or given.maybe(old)
    return {} if path is None else serialiser_settings(read_properties(path))


# The producer.


class SchemaReader:
    """A reader that turns lines of JSON into records, encoded with registered schemas."""

    def __init__(self, schema_type: str, topic: str, properties: Mapping[str, str]) -> None:
        self._lines = LineReader(properties)
        self._registry = Registry(properties)
        self._value_id = self._schema(schema_type, topic, "value", properties)
        self._key_id: int | None = None
        # With a serializer of their own, keys stay the text they are.
        if properties.get("parse.key", "false").lower() == "true" and "key.serializer" not in properties:
            self._key_id = self._schema(schema_type, topic, "key", properties)

    def _schema(self, schema_type: str, topic: str, part: str, properties: Mapping[str, str]) -> int:
        if f"{part}.schema.id" in properties:
            return int(properties[f"{part}.schema.id"])
        text = properties.get(f"{part}.schema")
        if text is None and (path := properties.get(f"{part}.schema.file")):
            try:
                text = Path(path).read_text(encoding="utf-8")
            except OSError as error:
                raise BadLine(f"{path}: {error.strerror}") from error
        if text is None:
            raise BadLine(f"Must provide the {part} schema string, file or id: {part}.schema, {part}.schema.file or "
                          f"{part}.schema.id")  # fmt: skip
        try:
            references = msgspec.json.decode(properties.get(f"{part}.refs") or "[]", type=tuple[Reference, ...])
        except msgspec.DecodeError as wrong:
            raise BadLine(f"{part}.refs: {wrong}") from wrong
        is_new = properties.get("auto.register", "true").lower() == "true"
        return self._registry.register(f"{topic}-{part}", schema_type, text, references, is_new=is_new)

    def parse(self, text: str, number: int) -> Line:
        found = self._lines.parse(text, number)
        key = found.key if self._key_id is None else self._encode(found.key, self._key_id, number)
        return Line(found.headers, key, self._encode(found.value, self._value_id, number))

    def _encode(self, data: bytes | None, schema_id: int, number: int) -> bytes | None:
        if data is None:
            return None
        from pessoa.serde.framing import frame

        try:
            # SchemaProblem and DataProblem are kinds of ValueError, as is text that is no JSON.
            return frame(schema_id, self._registry.codec(schema_id).from_json(json.loads(data)))
        except ValueError as error:
            raise BadLine(f"Error serializing line number {number}: {error}") from error


def _producer(command: str, schema_type: str) -> Tool:
    def make_options() -> Options:
        from pessoa.cli.console.console_producer import make_options

        return make_options(command)

    def act(given: Given) -> int:
        from pessoa.cli.console.console_producer import produce

        line.require(given, "topic", "bootstrap-server")
        properties = _of_file(given, "producer.config") | renamed_options.properties(
            given, "reader-property", "property"
        )
        try:
            return produce(given, SchemaReader(schema_type, given.value("topic"), properties).parse)
        except (BadLine, BadData) as error:
            warn(f"org.apache.kafka.common.errors.SerializationException: {error}")
            return 1

    return Tool(make_options, act)


avro_producer = _producer("kafka-avro-console-producer", "AVRO")
json_schema_producer = _producer("kafka-json-schema-console-producer", "JSON")
protobuf_producer = _producer("kafka-protobuf-console-producer", "PROTOBUF")


# The consumer.


class SchemaFormatter(DefaultFormatter):
    def __init__(self, properties: Mapping[str, str]) -> None:
        super().__init__(properties)
        self._registry = Registry(properties)
        self._shows_ids = properties.get("print.schema.ids", "false").lower() == "true"
        self._id_separator = properties.get("schema.id.separator", "\t").encode()
        self.read_value = self._decode
        if self.read_key is None:
            self.read_key = self._decode

    def _decode(self, data: bytes) -> bytes:
        from pessoa.serde.framing import unframe

        try:
            schema_id, payload = unframe(data)
            if not isinstance(schema_id, int):
                raise BadData(f"the schema is named by the guid {schema_id} and not by an id")
            value = self._registry.codec(schema_id).to_json(payload)
        except ValueError as error:
            raise BadData(f"Error deserializing message: {error}") from error
        text = json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()
        return text + self._id_separator + str(schema_id).encode() if self._shows_ids else text


def _make_consumer_tool(command: str) -> Tool:
    def make_options() -> Options:
        from pessoa.cli.console.console_consumer import make_options

        return make_options(command)

    def act(given: Given) -> int:
        from pessoa.cli.console.console_consumer import check, consume, formatter_properties

        check(given)
        try:
            form = SchemaFormatter(_of_file(given, "consumer.config") | formatter_properties(given))
        except BadData as error:
            raise UsageError(str(error)) from None
        return consume(given, form.format)

    return Tool(make_options, act)


avro_consumer = _make_consumer_tool("kafka-avro-console-consumer")
json_schema_consumer = _make_consumer_tool("kafka-json-schema-console-consumer")
protobuf_consumer = _make_consumer_tool("kafka-protobuf-console-consumer")
