"""Named state that can be queried: the rows of a table of the app, as Python values.

    app.store("totais").get("ana")                    {"count": 3}, or None
    app.store("totais").range("a", "c")               pairs of key and value, from "a" to before "c"
    app.store("por-minuto").windows("ana")            WindowedRow(key, start, end, value), the oldest first
    app.store("totais").get("ana", fresh=True)        waits for everything that was written before the call

A store is called like the topic that the table is written to or read from, or as `stored` named it. It is a copy of
that topic beside this process (`pipelines.materialised_table`), so it can be queried while the app runs, from another
program, and when nothing runs; `staleness()` returns how old it is. Keys are in the order of their bytes.

Avro and Protobuf are read by the schemas that wrote them (`pipelines.registry_values`); a key to look up is encoded
with the latest schema of its subject.
"""

from __future__ import annotations

import datetime
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from pessoa.pipelines.materialised_table import Entry, MaterialisedTable, Staleness
from pessoa.pipelines.plan import NOTHING, Format, PlanRefused, Window
from pessoa.pipelines.registry_values import RegistryFailed, RegistryValues
from pessoa.pipelines.stages import REGISTRY_FORMATS
from pessoa.serde.schema_problems import DataProblem
from pessoa.streams.trial import from_bytes, to_bytes

FRESH_S = 30.0


class StoredTable(NamedTuple):
    """The topic of a table, and the formats of its records."""

    topic: str
    key: Format
    value: Format
    window: Window | None


class WindowedRow(NamedTuple):
    key: Any
    start: datetime.datetime
    end: datetime.datetime
    value: Any


class Store:
    def __init__(self, stored: StoredTable, table: MaterialisedTable, registry: RegistryValues | None = None) -> None:
        if stored.key.kind == NOTHING:
            raise PlanRefused(f"the records of {stored.topic} have no key to ask for")
        self._registry = registry
        for format_ in (stored.key, stored.value):
            if format_.kind in REGISTRY_FORMATS and registry is None:
                raise PlanRefused(
                    f"the records of {stored.topic} are {format_.kind}, which is read with a schema registry: name it"
                    ' with App(…, schema_registry="http://localhost:8081")'
                )
        self._stored = stored
        self._table = table

    def __repr__(self) -> str:
        return f"<Store of {self._stored.topic}: {self._table.staleness()}>"

    def get(self, key: object, *, fresh: bool = False) -> Any:
        """Return the value of a key; None if the table has no such key."""
        self._refuse_windows("get", "windows")
        self._wait_if_fresh(fresh)
        found = self._table.get(self._key(key))
        return None if found is None else self._value(found)

    def range(self, start: object = None, end: object = None, *, fresh: bool = False) -> Iterator[tuple[Any, Any]]:
        """Yield keys and values from `start` to before `end`; None means no bound."""
        self._refuse_windows("range", "windows")
        self._wait_if_fresh(fresh)
        first, last = (None if key is None else self._key(key) for key in (start, end))
        for entry in self._table.range(first, last):
            yield self._read(self._stored.key, entry.key), self._value(entry)

    def all(self, *, fresh: bool = False) -> Iterator[tuple[Any, Any]]:
        return self.range(fresh=fresh)

    def windows(
        self,
        key: object = None,
        start: datetime.datetime | None = None,
        end: datetime.datetime | None = None,
        *,
        fresh: bool = False,
    ) -> Iterator[WindowedRow]:
        """Yield the windows of a key that begin from `start` to before `end`, the oldest first; without a key, those
        of all keys, one key after the other."""
        window = self._stored.window
        if window is None:
            raise PlanRefused(f"{self._stored.topic} has no windows: ask for get({key!r})")
        self._wait_if_fresh(fresh)
        first, last = _milliseconds(start) or 0, _milliseconds(end)
        if key is None:
            found: Iterator[WindowedRow] = map(self._windowed_row, self._table.scan())
        elif window.kind == "session":
            inner = self._key(key)
            entries = (entry for entry in self._table.prefix(inner) if len(entry.key) == len(inner) + 16)
            # Their keys are in the order of their ends.
            found = iter(sorted(map(self._windowed_row, entries), key=lambda row: row.start))
        else:
            found = map(self._windowed_row, self._table.windows(self._key(key), first, last))
        for row in found:
            start_ms = round(row.start.timestamp() * 1000)
            if first <= start_ms and (last is None or start_ms < last):
                yield row

    def count(self) -> int:
        """Return the number of rows."""
        return self._table.count()

    def staleness(self) -> Staleness:
        """Return how many offsets the store is behind its topic, and the time up to which it has everything written."""
        return self._table.staleness()

    def _windowed_row(self, entry: Entry) -> WindowedRow:
        window = self._stored.window
        assert window is not None, "asked for by windows() alone"
        if window.kind == "session":
            # Kafka's SessionWindowedSerializer writes the end before the start.
            inner, (end_ms, start_ms) = entry.key[:-16], struct.unpack(">qq", entry.key[-16:])
        else:
            inner, (start_ms,) = entry.key[:-8], struct.unpack(">q", entry.key[-8:])
            end_ms = start_ms + window.size_ms
        key = self._read(self._stored.key, inner)
        return WindowedRow(key, _datetime_of(start_ms), _datetime_of(end_ms), self._value(entry))

    def _refuse_windows(self, method: str, instead: str) -> None:
        if self._stored.window is not None:
            raise PlanRefused(f"{self._stored.topic} has a row for each window of a key: {instead}(…), not {method}(…)")

    def _wait_if_fresh(self, fresh: bool) -> None:
        if fresh:
            self._table.wait_until_read(self._table.end_offsets(), time.monotonic() + FRESH_S)

    def _key(self, key: object) -> bytes:
        data = self._key_bytes(key)
        if data is None:
            raise PlanRefused("a table has no row without a key")
        return data

    def _value(self, entry: Entry) -> Any:
        return self._read(self._stored.value, entry.value)

    def _key_bytes(self, key: object) -> bytes | None:
        format_ = self._stored.key
        if key is None or isinstance(key, bytes) or format_.kind not in REGISTRY_FORMATS:
            return to_bytes(format_, key)
        assert self._registry is not None, "a store of such records is refused without one"
        with _convert_errors(self._stored.topic):
            return self._registry.encode(key, format_.subject or f"{self._stored.topic}-key")

    def _read(self, format_: Format, data: bytes) -> Any:
        if format_.kind not in REGISTRY_FORMATS:
            return from_bytes(format_, data)
        assert self._registry is not None, "a store of such records is refused without one"
        with _convert_errors(self._stored.topic):
            return self._registry.decode(data)


@contextmanager
def _convert_errors(topic: str) -> Iterator[None]:
    try:
        yield
    except RegistryFailed as failed:
        raise PlanRefused(f"the schemas of {topic} are not to be had: {failed}") from None
    except DataProblem as wrong:
        raise PlanRefused(f"a key or value of {topic} does not fit its schema: {wrong}") from None


def _milliseconds(moment: datetime.datetime | None) -> int | None:
    return None if moment is None else round(moment.timestamp() * 1000)


def _datetime_of(milliseconds: int) -> datetime.datetime:
    return datetime.datetime.fromtimestamp(milliseconds / 1000, datetime.UTC)
