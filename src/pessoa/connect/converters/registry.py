"""The schema registry as a converter asks it: register what is written, look up what is read.

Blocking, because a converter works in the middle of a batch in a process of its own; and seldom, because every answer
is remembered. Settings are the JVM's: `schema.registry.url` (several, with commas), `basic.auth.user.info`,
`auto.register.schemas`, `use.latest.version`, `key.subject.name.strategy` and `value.subject.name.strategy`.
"""

from __future__ import annotations

import base64
import json
import urllib.error
import urllib.request
from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, NamedTuple
from urllib.parse import quote

from pessoa.connect.converters.converter import Converter
from pessoa.connect.data import DataFailure, Schema
from pessoa.connect.definition import BOOLEAN, HIGH, LIST, LOW, MEDIUM, PASSWORD, REQUIRED, STRING, Table, key
from pessoa.serde.framing import frame, unframe
from pessoa.serde.problems import DataProblem, SchemaProblem
from pessoa.serde.subjects import topic_name_strategy, topic_record_name_strategy

TIMEOUT_S = 10.0
MEDIA_TYPE = "application/vnd.schemaregistry.v1+json"


def registry_keys() -> Table:
    return Table(
        key("schema.registry.url", LIST, REQUIRED, HIGH, "Where the schema registry is, or several of them are."),
        key(
            "auto.register.schemas", BOOLEAN, True, MEDIUM, "Whether new schemas are registered by whoever writes them."
        ),
        key("use.latest.version", BOOLEAN, False, LOW, "Whether to write with the subject's latest schema."),
        key("basic.auth.credentials.source", STRING, "URL", MEDIUM, "Where the credentials are: URL or USER_INFO."),
        key("basic.auth.user.info", PASSWORD, None, MEDIUM, "The credentials, as user:password."),
        key("key.subject.name.strategy", STRING, "TopicNameStrategy", MEDIUM, "How the subject of a key is named."),
        key("value.subject.name.strategy", STRING, "TopicNameStrategy", MEDIUM, "How the subject of a value is named."),
    )


class Stored(NamedTuple):
    id: int
    type: str
    text: str
    references: Mapping[str, str]


class RegistryClient:
    def __init__(self, config: Mapping[str, Any]) -> None:
        self._urls = [url.rstrip("/") for url in config["schema.registry.url"]]
        credentials = config.get("basic.auth.user.info")
        self._authorization = f"Basic {base64.b64encode(credentials.encode()).decode()}" if credentials else None
        self._ids: dict[tuple[str, str], int] = {}
        self._by_id: dict[int, Stored] = {}

    def register(self, subject: str, schema_type: str, text: str, *, may_register: bool) -> int:
        """The id of this schema under this subject."""
        known = self._ids.get((subject, text))
        if known is None:
            body: dict[str, Any] = {"schema": text}
            if schema_type != "AVRO":
                body["schemaType"] = schema_type
            path = f"/subjects/{quote(subject, safe='')}"
            known = int(self._ask("POST", f"{path}/versions" if may_register else path, body)["id"])
            self._ids[subject, text] = known
        return known

    def latest(self, subject: str) -> Stored:
        return self._stored(self._ask("GET", f"/subjects/{quote(subject, safe='')}/versions/latest"))

    def by_id(self, schema_id: int) -> Stored:
        known = self._by_id.get(schema_id)
        if known is None:
            answer = self._ask("GET", f"/schemas/ids/{schema_id}")
            known = self._by_id[schema_id] = self._stored({**answer, "id": schema_id})
        return known

    def _stored(self, answer: dict[str, Any]) -> Stored:
        references: dict[str, str] = {}
        self._resolve(answer.get("references") or [], references)
        return Stored(answer["id"], answer.get("schemaType", "AVRO"), answer["schema"], references)

    def _resolve(self, references: list[dict[str, Any]], found: dict[str, str]) -> None:
        for each in references:
            if each["name"] not in found:
                subject = quote(each["subject"], safe="")
                answer = self._ask("GET", f"/subjects/{subject}/versions/{each['version']}")
                self._resolve(answer.get("references") or [], found)
                found[each["name"]] = answer["schema"]

    def _ask(self, method: str, path: str, body: object = None) -> dict[str, Any]:
        failure: Exception | None = None
        headers = {"Content-Type": MEDIA_TYPE, "Accept": MEDIA_TYPE}
        if self._authorization:
            headers["Authorization"] = self._authorization
        data = None if body is None else json.dumps(body).encode()
        for url in self._urls:
            request = urllib.request.Request(url + path, data, headers, method=method)  # noqa: S310
            try:
                with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:  # noqa: S310
                    found: dict[str, Any] = json.load(answer)
                    return found
            except urllib.error.HTTPError as refused:
                text = refused.read().decode(errors="replace")
                raise DataFailure(f"the schema registry refused {method} {path}: {text}") from None
            except (OSError, ValueError) as error:
                failure = error
        raise ConnectionError(f"the schema registry at {', '.join(self._urls)} did not answer: {failure}")


class RegistryConverter(Converter):
    """What the three converters with a registry share: the frame, the subject, and codecs by schema id."""

    CONFIG = registry_keys()
    SCHEMA_TYPE = ""

    def configure(self, config: dict[str, Any]) -> None:
        self._client = RegistryClient(config)
        self._may_register: bool = config["auto.register.schemas"]
        self._use_latest: bool = config["use.latest.version"]
        self._strategy: str = config[f"{'key' if self.is_key else 'value'}.subject.name.strategy"].rpartition(".")[2]
        self._writers: dict[tuple[str, Schema | None], tuple[int, Any]] = {}
        self._readers: dict[int, tuple[Schema | None, Any]] = {}

    # The three below are what a format brings.

    @abstractmethod
    def text_of(self, schema: Schema | None, value: Any) -> str:
        """The schema in the format's language."""

    @abstractmethod
    def writer(self, text: str, schema: Schema | None) -> Any:
        """Something that makes the payload of a value."""

    @abstractmethod
    def reader(self, stored: Stored) -> tuple[Schema | None, Any]:
        """Connect's schema, and something that makes a value of a payload."""

    def name_of(self, schema: Schema | None) -> str:
        return (schema.name if schema is not None else None) or "ConnectDefault"

    def to_bytes(self, topic: str, schema: Schema | None, value: Any) -> bytes | None:
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

    def _make_writer(self, topic: str, schema: Schema | None, value: Any) -> tuple[int, Any]:
        text = self.text_of(schema, value)
        subject = self._subject(topic, schema)
        if self._use_latest and not self._may_register:
            stored = self._client.latest(subject)
            return stored.id, self.writer(stored.text, schema)
        schema_id = self._client.register(subject, self.SCHEMA_TYPE, text, may_register=self._may_register)
        return schema_id, self.writer(text, schema)

    def _subject(self, topic: str, schema: Schema | None) -> str:
        match self._strategy:
            case "RecordNameStrategy":
                return self.name_of(schema)
            case "TopicRecordNameStrategy":
                return topic_record_name_strategy(topic, self.name_of(schema))
        return topic_name_strategy(topic, is_key=self.is_key)

    def from_bytes(self, topic: str, data: bytes | None) -> tuple[Schema | None, Any]:
        if data is None:
            return None, None
        try:
            schema_id, payload = unframe(data)
            if not isinstance(schema_id, int):
                raise DataFailure("schemas by guid are not looked up")
            known = self._readers.get(schema_id)
            if known is None:
                stored = self._client.by_id(schema_id)
                if stored.type != self.SCHEMA_TYPE:
                    raise DataFailure(f"schema {schema_id} is of type {stored.type}, and not {self.SCHEMA_TYPE}")
                known = self._readers[schema_id] = self.reader(stored)
            schema, read = known
            return schema, read(payload)
        except (DataProblem, SchemaProblem) as wrong:
            raise DataFailure(f"Failed to deserialize data for topic {topic} to {self.SCHEMA_TYPE}: {wrong}") from None
