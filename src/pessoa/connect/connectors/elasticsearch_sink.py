"""ElasticsearchSink: records as documents of an index, in Elasticsearch or OpenSearch.

An index is named after its topic, in lower case, and made with a mapping that follows from the first record's schema.
The key is the document's id, and the offset its version (`search_documents.py`), so a batch that comes again changes
nothing. A tombstone deletes (`behavior.on.null.values=delete`).

The server answers a bulk request item by item:

    2xx, 409 for a version that is known, 404 for a delete    done
    429, 503, a server that does not answer                   the items in question again, `max.retries` times
    400: it does not fit the mapping                          `behavior.on.malformed.documents`; `fail`: a dead letter
    413: the request is too large                             two smaller ones
"""

from __future__ import annotations

import logging
import random
import time as clock
from collections.abc import Mapping, Sequence
from itertools import cycle
from typing import TYPE_CHECKING

from pessoa.base.config_values import Value, at_least, one_of_ignoring_case
from pessoa.base.json_value import JsonObject
from pessoa.connect.connector import RetriableFailure, SinkConnector
from pessoa.connect.connectors.search_documents import DocumentRules, lines_of, mapping_of
from pessoa.connect.data import MISFITS, DataFailure, Record, Type
from pessoa.connect.definition import (
    BOOLEAN,
    HIGH,
    INT,
    LIST,
    LONG,
    LOW,
    MEDIUM,
    PASSWORD,
    REQUIRED,
    STRING,
    Config,
    Settings,
    Table,
    key,
)

if TYPE_CHECKING:
    import ssl

    import httpx

log = logging.getLogger("pessoa.connect")

LONGEST_PAUSE_S = 30.0
# The errors of a document that will never fit.
MALFORMED = frozenset(
    """
    mapper_parsing_exception document_parsing_exception illegal_argument_exception parse_exception
    strict_dynamic_mapping_exception action_request_validation_exception x_content_parse_exception
    """.split()
)


class Refused(Exception):
    """The server has refused the request itself (login, index); a retry would not help."""


def _urls_complaint(value: Value, _: Settings) -> str | None:
    from urllib.parse import urlsplit

    assert isinstance(value, tuple)
    for each in value:
        parts = urlsplit(each)
        if parts.scheme not in ("http", "https") or not parts.netloc:
            return f"{each} is no http or https URL"
    return None if value else "at least one URL is needed"


class ElasticsearchSinkConnector(SinkConnector):
    NAMES = ("io.confluent.connect.elasticsearch.ElasticsearchSinkConnector",)
    CONFIG = Table(
        key("connection.url", LIST, REQUIRED, _urls_complaint, HIGH, "Where the server is; several for one cluster.",
            group="Connector"),
        key("connection.username", STRING, None, MEDIUM, "A user for HTTP Basic.", group="Connector"),
        key("connection.password", PASSWORD, None, MEDIUM, "The user's password.", group="Connector"),
        key("connection.timeout.ms", INT, 1000, at_least(1), LOW, "How long a connection may take.", group="Connector"),
        key("read.timeout.ms", INT, 30000, at_least(1), LOW, "How long an answer may take.", group="Connector"),
        key("elastic.https.ssl.ca", STRING, None, LOW, "The file of the authority to trust, for https.",
            group="Connector"),
        key("batch.size", INT, 2000, at_least(1), MEDIUM, "The most records of one request.", group="Connector"),
        key("bulk.size.bytes", LONG, 5242880, at_least(1), LOW, "The most bytes of one request.", group="Connector"),
        key("max.retries", INT, 5, at_least(0), LOW, "How often what failed is tried again.", group="Connector"),
        key("retry.backoff.ms", LONG, 100, at_least(0), LOW, "The pause before the first time; it doubles.",
            group="Connector"),
        key("key.ignore", BOOLEAN, False, HIGH, "Whether ids are topic+partition+offset instead of keys.",
            group="Data Conversion"),
        key("schema.ignore", BOOLEAN, False, LOW, "Whether the server finds out the types of fields itself.",
            group="Data Conversion"),
        key("compact.map.entries", BOOLEAN, True, LOW, "Whether maps are objects rather than lists of entries.",
            group="Data Conversion"),
        key("write.method", STRING, "insert", one_of_ignoring_case("insert", "upsert"), LOW,
            "Whether a document is replaced, or its fields are changed.", group="Data Conversion"),
        key("behavior.on.null.values", STRING, "fail", one_of_ignoring_case("ignore", "delete", "fail"), LOW,
            "What a tombstone does.", group="Data Conversion"),
        key("behavior.on.malformed.documents", STRING, "fail", one_of_ignoring_case("ignore", "warn", "fail"), LOW,
            "What becomes of a document that the server refuses.", group="Data Conversion"),
        key("drop.invalid.message", BOOLEAN, False, LOW, "Whether a record that can be no document is left out.",
            group="Data Conversion"),
        key("data.stream.type", STRING, "none", one_of_ignoring_case("logs", "metrics", "none"), LOW,
            "The kind of data stream to add to.", group="Data Stream"),
        key("data.stream.dataset", STRING, "", LOW, "Its dataset; ${topic} is filled in.", group="Data Stream"),
        key("data.stream.namespace", STRING, "${topic}", LOW, "Its namespace; ${topic} is filled in.",
            group="Data Stream"),
        key("data.stream.timestamp.field", LIST, (), LOW, "Fields to take @timestamp from.", group="Data Stream"),
        *(
            key(name, STRING, None, LOW, "Taken for compatibility: it means nothing here.", group="Older")
            for name in ("type.name", "linger.ms", "flush.timeout.ms", "max.in.flight.requests", "max.buffered.records")
        ),
    )  # fmt: skip

    @classmethod
    def check(cls, settings: Mapping[str, str]) -> Mapping[str, str]:
        if settings.get("data.stream.type", "none").lower() != "none" and not settings.get("data.stream.dataset"):
            return {"data.stream.dataset": "it is needed with data.stream.type"}
        if bool(settings.get("connection.username")) != bool(settings.get("connection.password")):
            return {"connection.password": "connection.username and connection.password go together"}
        return {}

    def start(self, config: Config) -> None:
        import httpx

        self._config = config
        is_stream = config.string("data.stream.type").lower() != "none"
        self._rules = DocumentRules(
            ignores_keys=config.boolean("key.ignore") or is_stream,
            upserts=config.string("write.method").lower() == "upsert",
            compacts_maps=config.boolean("compact.map.entries"),
            is_data_stream=is_stream,
            timestamp_fields=config.entries("data.stream.timestamp.field"),
        )
        user = config.optional_string("connection.username")
        auth = (user, config.optional_string("connection.password") or "") if user else None
        timeout = httpx.Timeout(
            config.integer("read.timeout.ms") / 1000, connect=config.integer("connection.timeout.ms") / 1000
        )
        trusted = config.optional_string("elastic.https.ssl.ca")
        verify = _trust(trusted) if trusted else True
        self._http = httpx.Client(auth=auth, timeout=timeout, verify=verify)
        self._urls = cycle([each.rstrip("/") for each in config.entries("connection.url")])
        self._url = next(self._urls)
        self._known_indexes: set[str] = set()

    def stop(self) -> None:
        self._http.close()

    def put(self, records: Sequence[Record]) -> None:
        config = self._config
        size, most = config.integer("batch.size"), config.integer("bulk.size.bytes")
        batch: list[tuple[Record, bytes]] = []
        held = 0
        for record in records:
            lines = self._lines(record)
            if lines is None:
                continue
            if batch and (len(batch) >= size or held + len(lines) > most):
                self._write(batch)
                batch, held = [], 0
            batch.append((record, lines))
            held += len(lines)
        if batch:
            self._write(batch)

    def _lines(self, record: Record) -> bytes | None:
        if record.value is None:
            behavior = self._config.string("behavior.on.null.values").lower()
            if behavior == "ignore" or (behavior == "delete" and self._rules.ignores_keys):
                return None
            if behavior == "fail":
                self.report(record, DataFailure("a record has no value, and behavior.on.null.values is fail"))
                return None
        try:
            index = self._index(record)
            lines = lines_of(record, index, self._rules)
        except MISFITS as wrong:
            if not self._config.boolean("drop.invalid.message"):
                self.report(record, wrong)
            return None
        if record.value is not None:
            self._ensure_index(index, record)
        return lines

    def _index(self, record: Record) -> str:
        topic = record.topic.lower()
        if not self._rules.is_data_stream:
            return topic
        words = (self._config.string(f"data.stream.{name}") for name in ("type", "dataset", "namespace"))
        return "-".join(each.replace("${topic}", topic) for each in words).lower()

    def _ensure_index(self, index: str, record: Record) -> None:
        if index in self._known_indexes or self._rules.is_data_stream:
            return
        body: JsonObject = {}
        schema = record.value_schema
        if schema is not None and schema.type is Type.STRUCT and not self._config.boolean("schema.ignore"):
            body = {"mappings": mapping_of(schema, self._rules)}
        if self._request("HEAD", f"/{index}").status_code == 404:
            answer = self._request("PUT", f"/{index}", json=body)
            if answer.status_code >= 300 and "resource_already_exists" not in answer.text:
                raise Refused(f"the index {index} cannot be made: {answer.status_code} {answer.text[:500]}")
        self._known_indexes.add(index)

    # Requests.

    def _write(self, batch: list[tuple[Record, bytes]]) -> None:
        """Write a whole batch; items that the server was too busy for are sent again."""
        pause_s = self._config.integer("retry.backoff.ms") / 1000
        for _ in range(self._config.integer("max.retries") + 1):
            answer = self._request(
                "POST", "/_bulk", content=b"".join(lines for _, lines in batch),
                headers={"Content-Type": "application/x-ndjson"},
            )  # fmt: skip
            if answer.status_code == 413 and len(batch) > 1:
                middle = len(batch) // 2
                self._write(batch[:middle])
                self._write(batch[middle:])
                return
            if answer.status_code >= 300:
                raise Refused(f"POST /_bulk: {answer.status_code} {answer.text[:500]}")
            items = answer.json()["items"]
            batch = [each for each, item in zip(batch, items, strict=True) if self._is_to_be_repeated(each[0], item)]
            if not batch:
                return
            clock.sleep(pause_s * random.uniform(0.5, 1))
            pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
        raise RetriableFailure(f"the server had no time for {len(batch)} documents")

    def _is_to_be_repeated(self, record: Record, item: Mapping[str, Mapping[str, object]]) -> bool:
        ((action, result),) = item.items()
        status = int(str(result["status"]))
        if status < 300 or (status == 404 and action == "delete") or (status == 409 and action != "update"):
            return False
        if status in (409, 429, 503):
            return True
        error = result.get("error")
        kind = str(error.get("type")) if isinstance(error, dict) else str(error)
        reason = f"{kind}: {error.get('reason')}" if isinstance(error, dict) else kind
        cause = error.get("caused_by") if isinstance(error, dict) else None
        if isinstance(cause, dict):
            reason += f" ({cause.get('reason')})"
        behavior = self._config.string("behavior.on.malformed.documents").lower()
        if kind in MALFORMED and behavior != "fail":
            if behavior == "warn":
                log.warning("%s-%s@%s is no document: %s", record.topic, record.partition, record.offset, reason)
            return False
        self.report(record, DataFailure(f"the server has refused a document ({status}): {reason}"))
        return False

    def _request(
        self, method: str, path: str, *, json: JsonObject | None = None, content: bytes | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> httpx.Response:  # fmt: skip
        """Return the response of the first server of the cluster that answers."""
        import httpx

        retries = self._config.integer("max.retries")
        pause_s = self._config.integer("retry.backoff.ms") / 1000
        while True:
            try:
                answer = self._http.request(method, self._url + path, json=json, content=content, headers=headers)
                failure = f"{answer.status_code} {answer.text[:200]}"
            except httpx.TransportError as gone:
                answer, failure = None, f"{type(gone).__name__}: {gone}"
            if answer is not None and answer.status_code in (401, 403):
                raise Refused(f"{method} {self._url}{path}: {failure}: check connection.username and its rights")
            if answer is not None and answer.status_code not in (429, 502, 503, 504):
                return answer
            if not retries:
                raise RetriableFailure(f"{method} {self._url}{path}: {failure}")
            retries -= 1
            self._url = next(self._urls)
            clock.sleep(pause_s * random.uniform(0.5, 1))
            pause_s = min(2 * pause_s, LONGEST_PAUSE_S)


def _trust(path: str) -> ssl.SSLContext:
    import ssl

    return ssl.create_default_context(cafile=path)
