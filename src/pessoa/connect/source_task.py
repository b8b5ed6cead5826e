"""A source connector inside its query: polled, transformed, converted; its offsets are the query's.

The query's offset is how far the source has come in each of its parts:

    {"parts": {"{\\"filename\\":\\"/var/log/x\\"}": {"position": 6}}, "count": 1}

It also counts records, so that a source which knows no offsets (a whole table, again and again) moves on. Whoever
reads is started when it is first asked, with that offset. It is started anew if it is asked for another place than
where it is, which happens after a crash. Configurations are resolved here, so a secret stands in no plan and in no
topic.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

from pessoa.connect.chain import Chain
from pessoa.connect.clients import Outbox, client_settings
from pessoa.connect.connector import Offset, Offsets, SourceConnector
from pessoa.connect.data import Record
from pessoa.connect.failures import Skipped, Tolerance
from pessoa.connect.plugins import Plugins
from pessoa.connect.providers import Providers
from pessoa.connect.record_forms import Forms
from pessoa.connect.state import offset_key
from pessoa.connect.topic_tracking import TopicCreation, TopicTracker
from pessoa.connect.worker_config import stand_where_the_worker_does
from pessoa.pipelines.python_source import SourceRow

log = logging.getLogger("pessoa.connect")

# A batch ends with whatever comes first.
BATCH_RECORDS = 20_000
BATCH_S = 1.0
# A source that is read again after a crash, and has less than it had, is asked this often before it is believed.
PATIENCE = 20
# One that gives nothing but records from behind the end may have more of the batch in a part that waits for its turn.
# So many polls are turns enough for all. A part that nothing has come of may stand behind the backlog of another, and
# is waited for so long as well.
MOST_POLLS_BEHIND = 1000
MOST_BACKLOG_S = 600.0
IDLE_S = 0.1
# Where a record stands, seen from the end of a batch.
WITHIN, BEHIND, UNKNOWN = "within", "behind", "unknown"

Place = dict[str, Any]


def place_of(parts: Mapping[str, Offset], count: int = 0) -> Place:
    return {"parts": {name: dict(offset) for name, offset in parts.items()}, "count": count}


def _place_path(worker: Mapping[str, str], connector: str, task: int) -> Path:
    return Path(worker["pessoa.home"]) / "places" / f"{quote(connector, safe='')}-{task}.json"


def write_place(worker: Mapping[str, str], connector: str, task: int, place: Place) -> None:
    """For a worker without topics, which reads it here: whole or not at all."""
    path = _place_path(worker, connector, task)
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(".partial")
    partial.write_text(json.dumps(place), encoding="utf-8")
    partial.rename(path)


def read_place(worker: Mapping[str, str], connector: str, task: int) -> Place | None:
    path = _place_path(worker, connector, task)
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None


def _advance(parts: dict[str, Offset], record: Record) -> None:
    if record.source_partition is not None and record.source_offset is not None:
        parts[Offsets.name(record.source_partition)] = dict(record.source_offset)


def _part_of(record: Record) -> str:
    assert record.source_partition is not None
    return Offsets.name(record.source_partition)


def _is_whole(parts: Mapping[str, Offset], passed: Collection[str], left: int, end: Place) -> bool:
    """Whether a batch that is read again is complete: every part has passed its end, or is there with enough read."""
    if not end["parts"]:
        return left <= 0
    return all(name in passed or (left <= 0 and parts.get(name) == offset) for name, offset in end["parts"].items())


def _is_untouched(parts: Mapping[str, Offset], passed: Collection[str], start: Place, end: Place) -> bool:
    """Whether there is a part that a batch had something of, and that nothing has come of this time."""
    return any(
        name not in passed and parts.get(name) == start["parts"].get(name) != offset
        for name, offset in end["parts"].items()
    )


class SourceTask:
    """A `SourceReader` for one task of a source connector."""

    def __init__(
        self, connector: str, task: int, settings: Mapping[str, str], worker: Mapping[str, str], start: Place
    ) -> None:
        self.connector = connector
        self.task = task
        self._settings = dict(settings)
        self._worker = dict(worker)
        self._start = start
        self._source: SourceConnector | None = None
        self._at: Place | None = None
        self._noted: dict[str, Offset] = dict(start["parts"])
        self._outbox: Outbox | None = None

    def __repr__(self) -> str:
        return f"<SourceTask {self.connector}-{self.task} at {self._at}>"

    def __getstate__(self) -> dict[str, Any]:
        kept = ("connector", "task", "_settings", "_worker", "_start")
        made = {"_source": None, "_at": None, "_noted": dict(self._start["parts"]), "_outbox": None}
        return {name: self.__dict__[name] for name in kept} | made

    # The reader.

    def initial_offset(self) -> Place:
        return self._start

    def read(self, offset: Place) -> tuple[Iterable[SourceRow], Place]:
        # Spark asks for what comes next when what came before has been written.
        self._note(offset)
        if self._source is None or self._at != offset:
            self._open(offset)
        parts: dict[str, Offset] = dict(offset["parts"])
        rows: list[SourceRow] = []
        count = offset["count"] + self._fill(parts, rows)
        self._at = place_of(parts, count)
        return rows, self._at

    def read_between(self, start: Place, end: Place) -> Iterator[SourceRow]:
        """The records between two places once more, one by one: a table may have grown without measure meanwhile.

        A source that can tell which of two offsets comes first gives what lies between the two, whatever came or went
        since. Another gives as many records as there were, and goes on until it meets the end: a record may have come
        in between, and what lies before the end is never asked for again. If the end itself has gone, that is
        everything there is, and what lies behind it is written twice.

        Patience is for a source that has nothing. One that gives records from behind the end is asked for longer: a
        part that has grown may be given page after page before another part has its turn. But one that never falls
        silent does not keep the batch open for ever for a row that is gone.
        """
        self._open(start)
        # Whatever is polled beyond the end is asked for again, with the next offset.
        self._at = None
        parts: dict[str, Offset] = dict(start["parts"])
        passed: set[str] = set()
        left, patience = end["count"] - start["count"], PATIENCE
        # Polls since the batch last had something of one, and when that was.
        in_vain, since_s = 0, time.monotonic()
        while not _is_whole(parts, passed, left, end):
            is_over = in_vain >= MOST_POLLS_BEHIND and (
                time.monotonic() - since_s >= MOST_BACKLOG_S or not _is_untouched(parts, passed, start, end)
            )
            if is_over or not patience:
                short = [name for name in end["parts"] if name not in passed and parts.get(name) != end["parts"][name]]
                log.warning("%s-%d no longer has all it had, or where, in %s", self.connector, self.task, short)
                return
            is_silent, in_vain = True, in_vain + 1
            for record in self._polled():
                is_silent = False
                place = self._against(record, end)
                if place == BEHIND:
                    passed.add(_part_of(record))
                    continue
                if place == WITHIN or left > 0:
                    in_vain, since_s = 0, time.monotonic()
                left -= 1
                _advance(parts, record)
                yield from self._rows_of(record)
                if place == UNKNOWN and _is_whole(parts, passed, left, end):
                    break
            if is_silent:
                patience -= 1
                time.sleep(IDLE_S)

    def _against(self, record: Record, end: Place) -> str:
        """Where a record stands, seen from the end of a batch."""
        assert self._source is not None
        if record.source_partition is None or record.source_offset is None:
            return UNKNOWN
        last = end["parts"].get(_part_of(record))
        if last is None:
            # Nothing of this part was in the batch: the next one begins it.
            return BEHIND
        is_beyond = self._source.is_beyond(record.source_offset, last)
        return UNKNOWN if is_beyond is None else BEHIND if is_beyond else WITHIN

    def commit(self, offset: Place) -> None:
        self._note(offset)

    def stop(self) -> None:
        if self._source is not None:
            self._source.stop()
        self._source = None

    def _note(self, offset: Place) -> None:
        """Write down how far the source has come, where the worker finds it."""
        changed = {name: one for name, one in offset["parts"].items() if self._noted.get(name) != one}
        if not changed:
            return
        topic = self._worker.get("offset.storage.topic")
        if topic is None:
            write_place(self._worker, self.connector, self.task, offset)
        else:
            if self._outbox is None:
                self._outbox = Outbox(client_settings(self._worker, "producer"))
            for name, one in changed.items():
                key = offset_key(self.connector, json.loads(name))
                self._outbox.send(topic, key.encode(), json.dumps(one, separators=(",", ":")).encode())
            self._outbox.flush()
        self._noted |= changed

    # Polling.

    def _fill(self, parts: dict[str, Offset], rows: list[SourceRow]) -> int:
        """One batch; the number of records that were polled for it."""
        deadline = time.monotonic() + BATCH_S
        count = 0
        while count < BATCH_RECORDS and time.monotonic() < deadline:
            polled = 0
            for record in self._polled():
                polled += 1
                _advance(parts, record)
                rows += self._rows_of(record)
            count += polled
            if not polled:
                break
        return count

    def _polled(self) -> Iterable[Record]:
        assert self._source is not None
        return self._source.poll() or ()

    def _rows_of(self, record: Record) -> list[SourceRow]:
        try:
            changed = self._tolerance.run("TRANSFORMATION", "transforms", lambda: self._chain.apply(record))
            if changed is None:
                return []
            key, value, headers = self._forms.to_bytes(changed)
        except Skipped as skipped:
            self._tolerance.report(self.connector, skipped.mishap, record)
            return []
        if self._tracker.saw(changed.topic):
            self._creation.before(changed.topic)
        return [SourceRow(changed.topic, changed.partition, key, value, headers, changed.timestamp)]

    def _open(self, offset: Place) -> None:
        self.stop()
        stand_where_the_worker_does(self._worker)
        settings = Providers(self._worker).resolve(self._settings)
        plugins = Plugins(self._worker.get("plugin.path", ""))
        kind = plugins.connector(settings["connector.class"])
        assert issubclass(kind, SourceConnector)
        self._chain = Chain(settings, plugins)
        self._tolerance = Tolerance(settings)
        self._forms = Forms(settings, self._worker, plugins, self._tolerance)
        self._tracker = TopicTracker(self._worker, self.connector, self.task)
        self._creation = TopicCreation(self._worker, settings)
        self._source = kind()
        self._source.start(kind.CONFIG.parse(kind.adapted(settings)), Offsets(offset["parts"]))
        self._at = offset
