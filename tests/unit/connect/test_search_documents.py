"""Documents and bulk requests of the Elasticsearch sink; its retries, with a server whose responses the test gives."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, date, datetime
from decimal import Decimal
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from pessoa.connect.connector import RetriableFailure
from pessoa.connect.connectors.elasticsearch_sink import ElasticsearchSinkConnector, Refused
from pessoa.connect.connectors.search_documents import DocumentRules, body_of, id_of, lines_of, mapping_of
from pessoa.connect.data import (
    BYTES,
    DATE_SCHEMA,
    INT32,
    STRING,
    TIMESTAMP_SCHEMA,
    DataFailure,
    Record,
    Schema,
    Type,
    decimal_schema,
    struct,
)
from tests.unit.connect.test_connectors import opened

MAP = Schema(Type.MAP, keys=STRING, values=INT32)
SCHEMA = struct(
    {"d": DATE_SCHEMA, "t": TIMESTAMP_SCHEMA, "n": decimal_schema(2), "b": BYTES, "m": MAP, "x": INT32.as_optional}
)
VALUE: dict[str, Any] = {
    "d": date(1970, 1, 2), "t": datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC), "n": Decimal("1.50"), "b": b"\0",
    "m": {"a": 1},
}  # fmt: skip

VERSIONED = {"_index": "i", "_id": "k", "version": 42, "version_type": "external"}


def record(**changes: Any) -> Record:
    return Record("Pedidos", 0, STRING, "k", None, {"a": 1}, offset=42).but(**changes)


def test_connect_values_become_json_documents() -> None:
    body = body_of(SCHEMA, VALUE, DocumentRules())
    assert body == {"d": 86_400_000, "t": 1000, "n": 1.5, "b": "AA==", "m": {"a": 1}, "x": None}
    listed = body_of(SCHEMA, VALUE, DocumentRules(compacts_maps=False))
    assert isinstance(listed, dict)
    assert listed["m"] == [{"key": "a", "value": 1}]
    with pytest.raises(DataFailure, match="no number"):
        body_of(None, float("nan"), DocumentRules())


def test_a_search_mapping_is_derived_from_the_schema() -> None:
    types = mapping_of(SCHEMA, DocumentRules())["properties"]
    assert isinstance(types, dict)
    assert {name: each["type"] for name, each in types.items()} == {  # type: ignore[index, call-overload]
        "d": "date", "t": "date", "n": "double", "b": "binary", "m": "object", "x": "integer",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("rules", "changes", "expected"),
    [
        (DocumentRules(), {}, [{"index": VERSIONED}, {"a": 1}]),
        (DocumentRules(), {"value": None}, [{"delete": VERSIONED}]),
        (DocumentRules(ignores_keys=True), {}, [{"create": {"_index": "i", "_id": "Pedidos+0+42"}}, {"a": 1}]),
        (
            DocumentRules(upserts=True),
            {},
            [{"update": {"_index": "i", "_id": "k", "retry_on_conflict": 5}}, {"doc": {"a": 1}, "doc_as_upsert": True}],
        ),
        (
            DocumentRules(ignores_keys=True, is_data_stream=True, timestamp_fields=("a",)),
            {},
            [{"create": {"_index": "i", "_id": "Pedidos+0+42"}}, {"a": 1, "@timestamp": 1}],
        ),
    ],
)  # fmt: skip
def test_a_record_becomes_lines_of_a_bulk_request(rules: DocumentRules, changes: Any, expected: list[Any]) -> None:
    lines = lines_of(record(**changes), "i", rules)
    assert [json.loads(line) for line in lines.splitlines()] == expected


@pytest.mark.parametrize(
    ("key", "why"), [(None, "key.ignore"), ({"a": 1}, "ExtractField"), ("", "1 to 512"), (True, "bool")]
)
def test_a_key_that_cannot_be_a_document_id_is_refused_with_advice(key: Any, why: str) -> None:
    with pytest.raises(DataFailure, match=why):
        id_of(record(key=key), DocumentRules())


def test_a_value_that_is_no_document_is_refused() -> None:
    with pytest.raises(DataFailure, match="HoistField"):
        lines_of(record(value="text"), "i", DocumentRules())


class Scripted(ThreadingHTTPServer):
    """An HTTP server that answers bulk requests with the statuses of a script."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        # For each bulk request: a status for all of it, or one for each item.
        self.script: list[int | list[int]] = []
        self.bulks: list[list[Any]] = []


class _Handler(BaseHTTPRequestHandler):
    server: Scripted
    protocol_version = "HTTP/1.1"

    def _answer(self, status: int, body: object) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def do_HEAD(self) -> None:
        self._answer(200, {})

    def do_POST(self) -> None:
        lines = [json.loads(line) for line in self.rfile.read(int(self.headers["Content-Length"])).splitlines()]
        self.server.bulks.append(lines)
        said = self.server.script.pop(0)
        if isinstance(said, int):
            self._answer(said, {"error": "no"})
            return
        assert len(lines) == 2 * len(said)
        items = [{"index": {"status": each, "error": {"type": "t", "reason": "r"}}} for each in said]
        self._answer(200, {"errors": True, "items": items})

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def scripted(*script: int | list[int]) -> Iterator[tuple[Scripted, Any]]:
    with Scripted() as server:
        server.script = list(script)
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        thread.start()
        url = f"http://127.0.0.1:{server.server_address[1]}"
        sink = opened(ElasticsearchSinkConnector, {"connection.url": url, "retry.backoff.ms": "1", "max.retries": "2"})
        try:
            yield server, sink
        finally:
            sink.stop()
            server.shutdown()
            thread.join()


def test_only_documents_that_were_rejected_for_overload_are_retried() -> None:
    with scripted([201, 429, 409, 503], 503, [201, 201]) as (server, sink):
        sink.put([record(key=str(number), offset=number) for number in range(4)])
        assert [[line["index"]["_id"] for line in lines[::2]] for lines in server.bulks] == [
            ["0", "1", "2", "3"], ["1", "3"], ["1", "3"],
        ]  # fmt: skip
        assert sink.refused == []


def test_a_bulk_request_that_is_too_large_is_split() -> None:
    with scripted(413, [201], [201, 201]) as (server, sink):
        sink.put([record(key=str(number)) for number in range(3)])
        assert [len(lines) // 2 for lines in server.bulks] == [3, 1, 2]


def test_a_document_that_is_refused_is_reported_and_the_others_are_written() -> None:
    with scripted([201, 400]) as (_, sink):
        sink.put([record(key="a"), record(key="b")])
        ((refused, why),) = sink.refused
        assert refused.key == "b"
        assert "t: r" in str(why)


def test_an_overloaded_server_is_retried_by_the_task_and_a_wrong_login_is_not() -> None:
    with scripted([429], [429], [429]) as (_, sink), pytest.raises(RetriableFailure):
        sink.put([record()])
    with scripted(401) as (_, sink), pytest.raises(Refused, match=r"connection\.username"):
        sink.put([record()])
