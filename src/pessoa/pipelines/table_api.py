"""Materialised tables over HTTP: the rows of a topic's table, with how old they are.

    GET /tables                              those that are open
    GET /tables/{topic}/rows                 all, in the order of their keys; at most `limit`, and `next` to go on from
    GET /tables/{topic}/rows?key=ana         one row, or none
    GET /tables/{topic}/rows?from=a&to=b     from a to before b; or ?prefix=a
    GET /tables/{topic}/windows?key=ana      the windows of a key, from `start` to before `end` (milliseconds)

The first question about a topic opens its table, which reads the topic and follows it. `wait_ms` waits until the table
has everything that was written before the question, and answers 503 if that takes longer.

Keys and values are bytes. They are shown as JSON where they are, by their schema where they name one of the registry,
as text where they are UTF-8, else as {"base64": …}.
Keys are asked for as text; `key_format=base64` (or `long`, `integer`, …: Kafka's serialisers) says otherwise.
"""

from __future__ import annotations

import asyncio
import base64
import itertools
import json
import struct
import time
from collections.abc import Iterator
from contextlib import suppress

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from pessoa.base.json_value import JsonValue
from pessoa.pipelines.materialised_table import Entry, MaterialisedTable, Staleness, TableBehind
from pessoa.pipelines.registry_values import RegistryFailed, RegistryValues
from pessoa.pipelines.table_shelf import TableShelf
from pessoa.pipelines.table_store import StoreInUse
from pessoa.serde import primitive_codecs
from pessoa.serde.schema_problems import DataProblem
from pessoa.web.asgi_app import json_response
from pessoa.web.problems import HttpProblem
from pessoa.web.routing import Endpoint, Query

MOST_ROWS = 10_000


class RowAnswer(msgspec.Struct, frozen=True, omit_defaults=True):
    key: object
    value: object
    timestamp: int
    partition: int
    offset: int
    window_start: int | None = None


class RowsAnswer(msgspec.Struct, frozen=True):
    topic: str
    rows: list[RowAnswer]
    # Offsets that the table lacks, and the moment (wall clock, ms) by which everything written is in it.
    lag: int | None
    as_of_ms: int | None
    trouble: str
    # Where the rows go on, as `from` with key_format=base64; null behind the last.
    next: str | None = None


class TableAnswer(msgspec.Struct, frozen=True):
    topic: str
    count: int
    offsets: dict[int, int]
    lag: int | None
    as_of_ms: int | None
    trouble: str


_KEY_FORMAT = Query("key_format", help="How keys are written: string, base64, long, integer, …")
_WAIT = Query("wait_ms", "integer", "Wait so long for what was written before the question.")
_LIMIT = Query("limit", "integer", f"At most so many rows; {MOST_ROWS} is the most.")


def table_endpoints(shelf: TableShelf, registry: RegistryValues | None = None) -> list[Endpoint]:
    api = TableApi(shelf, registry)
    bounds = (Query("key"), Query("from"), Query("to"), Query("prefix"), _KEY_FORMAT, _LIMIT, _WAIT)
    windows = (Query("key"), Query("start", "integer"), Query("end", "integer"), _KEY_FORMAT, _LIMIT, _WAIT)
    return [
        Endpoint("GET", "/tables", api.list, "Tables that are open.", answer=list[TableAnswer]),
        Endpoint("GET", "/tables/{topic}/rows", api.rows, "Rows of a table.", query=bounds, answer=RowsAnswer),
        Endpoint("GET", "/tables/{topic}/windows", api.windows, "Windows of a key.", query=windows, answer=RowsAnswer),
    ]


class TableApi:
    def __init__(self, shelf: TableShelf, registry: RegistryValues | None) -> None:
        self._shelf = shelf
        self._registry = registry

    async def list(self, request: Request) -> Response:
        def describe() -> list[TableAnswer]:
            return [
                TableAnswer(table.topic, table.count(), table.offsets(), *table.staleness())
                for table in self._shelf.tables()
            ]

        return json_response(request, await asyncio.to_thread(describe))

    async def rows(self, request: Request) -> Response:
        asked = request.query_params
        key, start, end, prefix = (_key(request, name) for name in ("key", "from", "to", "prefix"))
        if sum(part is not None for part in (key, prefix, start if start is not None else end)) > 1:
            raise HttpProblem(400, "ask for a key, for a prefix, or from … to …: not for several at once")
        limit = _number(asked.get("limit"), "limit", 100)

        def read(table: MaterialisedTable) -> Iterator[Entry]:
            if key is not None:
                found = table.get(key)
                return iter(() if found is None else (found,))
            return table.prefix(prefix) if prefix is not None else table.range(start, end)

        return json_response(request, await asyncio.to_thread(self._answer, request, read, limit, False))

    async def windows(self, request: Request) -> Response:
        asked = request.query_params
        key = _key(request, "key")
        if key is None:
            raise HttpProblem(400, "the windows of which key? Say ?key=…")
        start = _number(asked.get("start"), "start", 0, most=2**63 - 1)
        end = _number(asked["end"], "end", 0, most=2**63 - 1) if "end" in asked else None
        limit = _number(asked.get("limit"), "limit", 100)

        def read(table: MaterialisedTable) -> Iterator[Entry]:
            return table.windows(key, start, end)

        return json_response(request, await asyncio.to_thread(self._answer, request, read, limit, True))

    def _answer(self, request: Request, read: object, limit: int, is_windowed: bool) -> RowsAnswer:
        assert callable(read)
        try:
            table = self._shelf.open(request.path_params["topic"])
        except StoreInUse as taken:
            raise HttpProblem(409, str(taken)) from None
        wait_ms = _number(request.query_params.get("wait_ms"), "wait_ms", 0, most=600_000)
        if wait_ms:
            deadline = time.monotonic() + wait_ms / 1000
            try:
                table.wait_until_read(table.end_offsets(wait_ms / 1000), deadline)
            except TableBehind as behind:
                raise HttpProblem(503, str(behind)) from None
        # As old as the rows, or older: it is taken before them.
        staleness: Staleness = table.staleness()
        if "does not exist" in staleness.trouble:
            raise HttpProblem(404, staleness.trouble)
        found: list[Entry] = list(itertools.islice(read(table), limit + 1))
        more = found[limit].key if len(found) > limit else None
        return RowsAnswer(
            table.topic,
            [_row(entry, is_windowed, self._registry) for entry in found[:limit]],
            *staleness,
            next=None if more is None else base64.urlsafe_b64encode(more).decode(),
        )


def _row(entry: Entry, is_windowed: bool, registry: RegistryValues | None) -> RowAnswer:
    key, start = entry.key, None
    if is_windowed:
        key, (start,) = key[:-8], struct.unpack(">q", key[-8:])
    shown_key, shown_value = _show(key, registry), _show(entry.value, registry)
    return RowAnswer(shown_key, shown_value, entry.timestamp_ms, entry.partition, entry.offset, start)


def _show(data: bytes, registry: RegistryValues | None = None) -> object:
    if registry is not None and data[:1] == b"\0":
        with suppress(DataProblem, RegistryFailed):
            # Bytes that only look so, or a registry that is away: they are shown as what they are.
            return registry.decode(data)
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.urlsafe_b64encode(data).decode()}
    try:
        found: JsonValue = json.loads(text)
    except ValueError:
        return text
    return found


def _key(request: Request, name: str) -> bytes | None:
    text = request.query_params.get(name)
    if text is None:
        return None
    kind = request.query_params.get("key_format", "string")
    try:
        if kind == "base64":
            return base64.urlsafe_b64decode(text)
        if kind == "string":
            return text.encode()
        if kind not in primitive_codecs.SERDES:
            raise HttpProblem(400, f"there is no key_format {kind}: base64, {', '.join(primitive_codecs.SERDES)}")
        return primitive_codecs.encode(kind, json.loads(text))
    except (ValueError, TypeError, DataProblem) as wrong:
        raise HttpProblem(400, f"{name}={text} is no key of format {kind}: {wrong}") from None


def _number(text: str | None, name: str, default: int, *, most: int = MOST_ROWS) -> int:
    if text is None:
        return default
    if not text.isascii() or not text.isdigit() or int(text) > most:
        raise HttpProblem(400, f"{name} is a number from 0 to {most}, not {text}")
    return int(text)
