"""Events, which operators pass to each other: a record of a stream, or a change of a table's row."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias, cast

from pessoa.ksql.operators.format_codecs import TimeWindow
from pessoa.ksql.operators.query_settings import QuerySettings
from pessoa.ksql.operators.records import FailureKind, Headers, ProcessingFailure
from pessoa.ksql.operators.row_packing import Keys, Row, RowShape, key_packer, pack, plain, unpack
from pessoa.ksql.operators.state_store import StateStore
from pessoa.ksql.types.sql_types import SqlType


@dataclass(slots=True)
class Event:
    """A record of a stream or a change of a table's row. `row` None is a stream's record without a value, or the
    deletion of a table's row. `old` is the row before the change.

    `old` is only set where an operator above needs it. Rows contain the columns of the key, too.
    """

    key: Keys | None
    row: Row | None
    timestamp_ms: int
    window: TimeWindow | None = None
    old: Row | None = None
    headers: Headers = ()


Emit: TypeAlias = Callable[[Event], None]


@dataclass(frozen=True)
class FlowShape:
    """The columns and the key of a flow's events, and whether they are a table's changes."""

    is_table: bool
    # For each column of the key, the names that rows have for it; the first is the one that is written.
    key_names: tuple[tuple[str, ...], ...]
    key_types: tuple[SqlType, ...]
    columns: tuple[tuple[str, SqlType], ...]
    windowed: bool = False

    def key_row(self, event: Event) -> Row:
        """Return a row with the columns of the key alone: for the deletion of a row."""
        row: Row = {}
        if event.key is not None:
            for names, value in zip(self.key_names, event.key, strict=True):
                for name in names:
                    row[name] = value
        if event.window is not None:
            row["WINDOWSTART"], row["WINDOWEND"] = event.window
        return row


class StateKeys:
    """Makes the bytes under which the state of an event's key is kept; a window is part of the key."""

    def __init__(self, kinds: tuple[SqlType, ...]) -> None:
        self._pack = key_packer(kinds)

    def of(self, key: Keys, window: TimeWindow | None = None) -> bytes:
        return self._pack(key if window is None else (*key, *window))


class EventPacker:
    """Events as bytes: for task rows, and for internal topics."""

    def __init__(self, shape: FlowShape) -> None:
        self._rows = RowShape(shape.columns)

    def pack(self, event: Event) -> bytes:
        window = None if event.window is None else tuple(event.window)
        rows = self._rows
        parts = [plain(event.key), rows.to_list(event.row), event.timestamp_ms, window, rows.to_list(event.old)]
        return pack([*parts, event.headers])

    def unpack(self, data: bytes) -> Event:
        key, row, timestamp, window, old, headers = cast("list[object]", unpack(data))
        return Event(
            None if key is None else tuple(cast("list[None]", key)),
            self._rows.to_row(row),
            cast("int", timestamp),
            None if window is None else TimeWindow(*cast("tuple[int, int]", window)),
            self._rows.to_row(old),
            tuple((name, data) for name, data in cast("list[tuple[str, bytes]]", headers)),
        )


class Place:
    """The position of the record that is being processed, for the processing log."""

    def __init__(self, settings: QuerySettings) -> None:
        self._settings = settings
        self.topic, self.partition, self.offset = "", -1, -1

    def set(self, topic: str, partition: int, offset: int) -> None:
        self.topic, self.partition, self.offset = topic, partition, offset

    def log(self, message: str, kind: FailureKind = FailureKind.PROCESSING) -> None:
        self._settings.log(ProcessingFailure(kind, message, self.topic, self.partition, self.offset))


@dataclass(frozen=True)
class TaskContext:
    """The state store and the record position that operators of one task share."""

    state: StateStore
    place: Place
