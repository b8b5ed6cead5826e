"""The console tools that know schemas: kafka-{avro,json-schema,protobuf}-console-{producer,consumer}.

They are the plain console tools with a codec in the middle. A producer's lines are JSON; each becomes the bytes of its
schema, behind the schema's id in the registry. A consumer looks the id up and prints JSON again, one line a record.

    producer   value.schema | value.schema.file | value.schema.id, the same for key; value.refs, key.refs,
               auto.register, key.serializer for keys that are plain text, and the properties of the plain tool
    consumer   print.schema.ids, schema.id.separator, key.deserializer, and the properties of the plain tool
    both       schema.registry.url (http://localhost:8081)
"""

from __future__ import annotations

import json
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pessoa.cli import options as line
from pessoa.cli import renamed
from pessoa.cli.formatters import BadData, DefaultFormatter
from pessoa.cli.line_reader import BadLine, Line, LineReader
from pessoa.cli.options import UsageError
from pessoa.cli.running import run, warn

if TYPE_CHECKING:
    from pessoa.cli.options import Options
    from pessoa.serde.codecs import Codec

_REGISTRY = "http://localhost:8081"
_TIMEOUT_S = 30.0
_TYPE = "application/vnd.schemaregistry.v1+json"


class Registry:
    """What the tools need of a schema registry: register, and look up by id."""

    def __init__(self, url: str) -> None:
        self._url = url.partition(",")[0].rstrip("/")
        self._codecs: dict[int, Codec] = {}

    def register(self, subject: str, schema_type: str, text: str, references: Any, *, is_new: bool) -> int:
        body = {"schema": text, "schemaType": schema_type, **({"references": references} if references else {})}
        path = f"/subjects/{urllib.parse.quote(subject, safe='')}" + ("/versions" if is_new else "")
        return int(self._ask(path, body)["id"])

    def codec(self, schema_id: int) -> Codec:
        if schema_id not in self._codecs:
            from pessoa.serde.codecs import codec_for

            found = self._ask(f"/schemas/ids/{schema_id}")
            references = self._references(found.get("references") or ())
            self._codecs[schema_id] = codec_for(found.get("schemaType", "AVRO"), found["schema"], references)
        return self._codecs[schema_id]

    def _references(self, listed: Sequence[Mapping[str, Any]]) -> dict[str, str]:
        """The texts by the names that the schema uses, what is needed before what needs it."""
        texts: dict[str, str] = {}
        for one in listed:
            subject = urllib.parse.quote(one["subject"], safe="")
            found = self._ask(f"/subjects/{subject}/versions/{one['version']}")
            texts |= self._references(found.get("references") or ())
            texts[one["name"]] = found["schema"]
        return texts

    def _ask(self, path: str, body: object = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self._url + path, data, {"Content-Type": _TYPE})  # noqa: S310
        try:
            with urllib.request.urlopen(request, timeout=_TIMEOUT_S) as answer:  # noqa: S310
                return json.load(answer)
        except urllib.error.HTTPError as error:
            try:
                problem = json.loads(error.read())
                said = f"{problem['message']}; error code: {problem['error_code']}"
            except (ValueError, KeyError):
                said = f"HTTP {error.code}"
            raise BadData(f"the schema registry says: {said}") from error
        except OSError as error:
            raise BadData(f"the schema registry at {self._url} cannot be reached: {error}") from error


# The producer.


class SchemaReader:
    """Lines of JSON to records."""

    def __init__(self, schema_type: str, topic: str, properties: Mapping[str, str]) -> None:
        self._lines = LineReader(properties)
        self._registry = Registry(properties.get("schema.registry.url", _REGISTRY))
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
        references = json.loads(properties.get(f"{part}.refs") or "[]")
        is_new = properties.get("auto.register", "true").lower() == "true"
        return self._registry.register(f"{topic}-{part}", schema_type, text, references, is_new=is_new)

    def parse(self, text: str, number: int) -> Line:
        found = self._lines.parse(text, number)
        key = found.key if self._key_id is None else self._encoded(found.key, self._key_id, number)
        return Line(found.headers, key, self._encoded(found.value, self._value_id, number))

    def _encoded(self, data: bytes | None, schema_id: int, number: int) -> bytes | None:
        if data is None:
            return None
        from pessoa.serde.framing import frame

        try:
            # SchemaProblem and DataProblem are kinds of ValueError, as is text that is no JSON.
            return frame(schema_id, self._registry.codec(schema_id).from_json(json.loads(data)))
        except ValueError as error:
            raise BadLine(f"Error serializing line number {number}: {error}") from error


def producer(schema_type: str, options: Options, words: Sequence[str] | None) -> int:
    from pessoa.cli.console_producer import produce

    def act(given_words: Sequence[str]) -> int:
        if not given_words:
            raise UsageError(_purpose(options))
        given = line.begin(options, given_words)
        line.require(given, "topic", "bootstrap-server")
        properties = renamed.properties(given, "reader-property", "property")
        try:
            return produce(given, SchemaReader(schema_type, given.value("topic"), properties).parse)
        except (BadLine, BadData) as error:
            warn(f"org.apache.kafka.common.errors.SerializationException: {error}")
            return 1

    return run(act, options, words)


def _purpose(options: Options) -> str:
    return f"This tool helps to {options.purpose[0].lower()}{options.purpose[1:]}"


# The consumer.


class SchemaFormatter(DefaultFormatter):
    def __init__(self, properties: Mapping[str, str]) -> None:
        super().__init__(properties)
        self._registry = Registry(properties.get("schema.registry.url", _REGISTRY))
        self._shows_ids = properties.get("print.schema.ids", "false").lower() == "true"
        self._id_separator = properties.get("schema.id.separator", "\t").encode()
        self.read_value = self._decoded
        if self.read_key is None:
            self.read_key = self._decoded

    def _decoded(self, data: bytes) -> bytes:
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


def consumer(options: Options, words: Sequence[str] | None) -> int:
    from pessoa.cli.console_consumer import check, consume, formatter_properties

    def act(given_words: Sequence[str]) -> int:
        if not given_words:
            raise UsageError(_purpose(options))
        given = line.begin(options, given_words)
        check(given)
        try:
            form = SchemaFormatter(formatter_properties(given))
        except BadData as error:
            raise UsageError(str(error)) from None
        return consume(given, form.format)

    return run(act, options, words)
