"""A source connector inside its query: polled, transformed, converted; its offsets are the query's (`query_offset.py`).

The connector is started when the query first asks for records, at the query's offset. It is started anew if the query
asks for another offset than where the connector is, which happens after a crash. Configurations are resolved here, so a
secret stands in no plan and in no topic.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterable, Iterator, Mapping

from pessoa.connect.clients import Outbox, client_settings
from pessoa.connect.cluster_state import offset_key
from pessoa.connect.config_providers import Providers
from pessoa.connect.connector import Offset, Offsets, SourceConnector
from pessoa.connect.data import Record
from pessoa.connect.error_tolerance import ErrorTolerance, RecordSkipped
from pessoa.connect.plugins import Plugins
from pessoa.connect.query_offset import QueryOffset, advance, count_of, parts_of, query_offset_of, write_query_offset
from pessoa.connect.record_converters import RecordConverters
from pessoa.connect.repeated_batch import Position, RepeatedBatch
from pessoa.connect.topic_tracking import TopicCreation, TopicTracker
from pessoa.connect.transform_chain import TransformChain
from pessoa.connect.worker_config import change_to_worker_folder
from pessoa.pipelines.python_source import SourceRow

log = logging.getLogger("pessoa.connect")

# A batch ends with the first of the two.
BATCH_RECORDS = 20_000
BATCH_S = 1.0
IDLE_S = 0.1


class SourceTask:
    """A `SourceReader` for one task of a source connector."""

    def __init__(
        self, connector: str, task: int, settings: Mapping[str, str], worker: Mapping[str, str], start: QueryOffset
    ) -> None:
        self.connector = connector
        self.task = task
        self._settings = dict(settings)
        self._worker = dict(worker)
        self._start = start
        self._source: SourceConnector | None = None
        self._at: QueryOffset | None = None
        self._noted = parts_of(start)
        self._outbox: Outbox | None = None

    def __repr__(self) -> str:
        return f"<SourceTask {self.connector}-{self.task} at {self._at}>"

    def __getstate__(self) -> dict[str, object]:
        kept = ("connector", "task", "_settings", "_worker", "_start")
        fresh = {"_source": None, "_at": None, "_noted": parts_of(self._start), "_outbox": None}
        return {name: self.__dict__[name] for name in kept} | fresh

    # The reader.

    def initial_offset(self) -> QueryOffset:
        return self._start

    def read(self, offset: QueryOffset) -> tuple[Iterable[SourceRow], QueryOffset]:
        # Spark reads the next batch only after the previous one has been written.
        self._commit_offset(offset)
        if self._source is None or self._at != offset:
            self._open(offset)
        parts = parts_of(offset)
        rows: list[SourceRow] = []
        count = count_of(offset) + self._fill_batch(parts, rows)
        self._at = query_offset_of(parts, count)
        return rows, self._at

    def read_between(self, start: QueryOffset, end: QueryOffset) -> Iterator[SourceRow]:
        """Yield the records between two offsets once more, one by one: a table may have grown without bound meanwhile.

        `repeated_batch.py` says which records a source returns then, and when the rest is given up. Spark calls this in
        another process than `read`: the source is closed at the end, since some sources allow one reading process at a
        time.
        """
        self._open(start)
        try:
            yield from self._read_again(start, end)
        finally:
            self.stop()

    def _read_again(self, start: QueryOffset, end: QueryOffset) -> Iterator[SourceRow]:
        assert self._source is not None
        # Records beyond the end are polled again, from the next offset on.
        self._at = None
        batch = RepeatedBatch(self._source, start, end)
        while not batch.is_complete():
            if batch.is_given_up():
                log.warning("%s-%d no longer has all it had in %s", self.connector, self.task, batch.missing())
                return
            is_silent = True
            batch.begin_poll()
            for record in self._poll():
                is_silent = False
                position = batch.take(record)
                if position is Position.BEHIND:
                    continue
                yield from self._rows_of(record)
                if position is Position.UNKNOWN and batch.is_complete():
                    break
            if is_silent:
                batch.end_silent_poll()
                time.sleep(IDLE_S)

    def commit(self, offset: QueryOffset) -> None:
        self._commit_offset(offset)

    def stop(self) -> None:
        if self._source is not None:
            self._source.stop()
        self._source = None

    def _commit_offset(self, offset: QueryOffset) -> None:
        """Write the source offsets to the offset topic (or a standalone worker's file), and commit them at the
        source."""
        self._write_offset(offset)
        if self._source is not None:
            self._source.commit(Offsets(parts_of(offset)))

    def _write_offset(self, offset: QueryOffset) -> None:
        changed = {name: one for name, one in parts_of(offset).items() if self._noted.get(name) != one}
        if not changed:
            return
        topic = self._worker.get("offset.storage.topic")
        if topic is None:
            write_query_offset(self._worker, self.connector, self.task, offset)
        else:
            if self._outbox is None:
                self._outbox = Outbox(client_settings(self._worker, "producer"))
            for name, one in changed.items():
                key = offset_key(self.connector, json.loads(name))
                self._outbox.send(topic, key.encode(), json.dumps(one, separators=(",", ":")).encode())
            self._outbox.flush()
        self._noted |= changed

    # Polling.

    def _fill_batch(self, parts: dict[str, Offset], rows: list[SourceRow]) -> int:
        """Poll records for one batch into `parts` and `rows`, and return the count of polled records."""
        deadline = time.monotonic() + BATCH_S
        count = 0
        while count < BATCH_RECORDS and time.monotonic() < deadline:
            polled = 0
            for record in self._poll():
                polled += 1
                advance(parts, record)
                rows += self._rows_of(record)
            count += polled
            if not polled:
                break
        return count

    def _poll(self) -> Iterable[Record]:
        assert self._source is not None
        return self._source.poll() or ()

    def _rows_of(self, record: Record) -> list[SourceRow]:
        try:
            changed = self._tolerance.run("TRANSFORMATION", "transforms", lambda: self._chain.apply(record))
            if changed is None:
                return []
            key, value, headers = self._converters.to_bytes(changed)
        except RecordSkipped as skipped:
            self._tolerance.report(self.connector, skipped.failure, record)
            return []
        if self._tracker.track(changed.topic):
            self._creation.ensure(changed.topic)
        return [SourceRow(changed.topic, changed.partition, key, value, headers, changed.timestamp)]

    def _open(self, offset: QueryOffset) -> None:
        self.stop()
        change_to_worker_folder(self._worker)
        settings = Providers(self._worker).resolve(self._settings)
        plugins = Plugins(self._worker.get("plugin.path", ""))
        kind = plugins.connector(settings["connector.class"])
        assert issubclass(kind, SourceConnector)
        settings = {**kind.DEFAULTS, **settings}
        self._chain = TransformChain(settings, plugins)
        self._tolerance = ErrorTolerance(settings)
        self._converters = RecordConverters(settings, self._worker, plugins, self._tolerance)
        self._tracker = TopicTracker(self._worker, self.connector, self.task)
        self._creation = TopicCreation(self._worker, settings)
        self._source = kind()
        self._source.start(kind.CONFIG.parse(kind.adapted(settings)), Offsets(parts_of(offset)))
        self._at = offset
