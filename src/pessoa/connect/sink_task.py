"""A sink connector inside its query: rows of a topic converted, transformed, put; what fails goes to the dead letters.

    KafkaRow ──converters──► Record ──transforms──► Record ──► put
        └── what fails, and is tolerated ──► the dead-letter topic

A batch is done when `put` has returned for all of its partitions and the dead letters are written. After a crash the
same batch comes again, row by row the same.

A process that runs Python for Spark is used for many batches, so what a connector has opened (a connection to a
database) is kept there and not opened for every batch.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Mapping
from itertools import islice
from typing import TYPE_CHECKING

from pessoa.connect.clients import Outbox, TopicMaker, client_settings
from pessoa.connect.config_providers import Providers
from pessoa.connect.connector import RetriableFailure, SinkConnector
from pessoa.connect.data import Record
from pessoa.connect.error_tolerance import ErrorTolerance, RecordFailure, RecordSkipped, TaskFailed, error_headers
from pessoa.connect.plugins import Plugins
from pessoa.connect.record_converters import RecordConverters
from pessoa.connect.topic_tracking import TopicTracker
from pessoa.connect.transform_chain import TransformChain
from pessoa.connect.worker_config import change_to_worker_folder

if TYPE_CHECKING:
    from pessoa.pipelines.python_sink import KafkaRow
    from pessoa.pipelines.tasks import Task

log = logging.getLogger("pessoa.connect")

# The most rows that are in memory at once: enough for one statement, or one request.
CHUNK = 5000
FIRST_PAUSE_S = 0.5
LONGEST_PAUSE_S = 30.0

# The sinks that are open in this process, by connector and start id.
_OPEN: dict[str, OpenSink] = {}


class SinkTask:
    """A `SinkWriter` for the records of one connector. `start_id` differs for each start of the connector."""

    def __init__(self, connector: str, settings: Mapping[str, str], worker: Mapping[str, str], start_id: str) -> None:
        self.connector = connector
        self._settings = dict(settings)
        self._worker = dict(worker)
        self._start_id = start_id

    def __repr__(self) -> str:
        return f"<SinkTask {self.connector}, start {self._start_id}>"

    def open(self, task: Task) -> None:
        change_to_worker_folder(self._worker)
        for name, other in list(_OPEN.items()):
            if other.connector == self.connector and name != self._name:
                del _OPEN[name]
                other.close()
        if self._name not in _OPEN:
            _OPEN[self._name] = OpenSink(self.connector, self._settings, self._worker)

    @property
    def _name(self) -> str:
        return f"{self.connector}/{self._start_id}"

    def put(self, rows: Iterable[KafkaRow], batch_id: int) -> None:
        sink = _OPEN[self._name]
        try:
            sink.put(rows)
        except BaseException:
            # The next attempt begins with a new sink.
            self.end()
            raise

    def opened(self) -> OpenSink:
        """Return the sink that is open in this process."""
        return _OPEN[self._name]

    def close(self) -> None:
        """Do nothing: the sink stays open for the next batch."""

    def end(self) -> None:
        """Close the sink that is open in this process."""
        sink = _OPEN.pop(self._name, None)
        if sink is not None:
            sink.close()


class OpenSink:
    def __init__(self, connector: str, settings: Mapping[str, str], worker: Mapping[str, str]) -> None:
        self.connector = connector
        self._settings = settings = Providers(worker).resolve(settings)
        self._worker = worker
        plugins = Plugins(worker.get("plugin.path", ""))
        kind = plugins.connector(settings["connector.class"])
        assert issubclass(kind, SinkConnector)
        settings = {**kind.DEFAULTS, **settings}
        self._tolerance = ErrorTolerance(settings)
        self._converters = RecordConverters(settings, worker, plugins, self._tolerance)
        self._chain = TransformChain(settings, plugins)
        self._tracker = TopicTracker(worker, connector, 0)
        self._letters = settings.get("errors.deadletterqueue.topic.name", "")
        self._outbox: Outbox | None = None
        self._sink = kind()
        self._class = kind.class_name()
        self._sink.report = self.report
        self._sink.start(kind.CONFIG.parse(kind.adapted(settings)))

    def put(self, rows: Iterable[KafkaRow]) -> None:
        remaining = iter(rows)
        while chunk := list(islice(remaining, CHUNK)):
            records = [record for row in chunk for record in self._records_of(row)]
            if records:
                self._deliver(records)
        self.flush()

    def flush(self) -> None:
        """Wait until the dead letters are written."""
        if self._outbox is not None:
            self._outbox.flush()

    @property
    def connector_object(self) -> SinkConnector:
        return self._sink

    def _records_of(self, row: KafkaRow) -> list[Record]:
        self._tracker.track(row.topic)
        try:
            record = self._converters.from_row(row)
            changed = self._tolerance.run("TRANSFORMATION", "transforms", lambda: self._chain.apply(record))
        except RecordSkipped as skipped:
            self._send_dead_letter(row, skipped.failure)
            return []
        return [] if changed is None else [changed]

    def _deliver(self, records: list[Record]) -> None:
        pause = FIRST_PAUSE_S
        while True:
            try:
                self._sink.put(records)
            except RetriableFailure as failure:
                log.warning("%s: tried again in %.1f s: %s", self.connector, pause, failure)
                time.sleep(pause)
                pause = min(2 * pause, LONGEST_PAUSE_S)
            else:
                return

    def report(self, record: Record, error: Exception) -> None:
        """Put a record that the sink cannot deliver into the dead-letter topic, or fail the task."""
        if not self._tolerance.is_tolerant:
            raise TaskFailed(f"{self._class} could not deliver a record: {error}") from error
        self._send_dead_letter(record.origin, RecordFailure("TASK_PUT", self._class, error))

    def _send_dead_letter(self, row: KafkaRow | None, failure: RecordFailure) -> None:
        self._tolerance.report(self.connector, failure, row)
        if not self._letters or row is None:
            return
        if self._outbox is None:
            self._open_letters()
        assert self._outbox is not None
        headers: list[tuple[str, bytes | None]] = list(row.headers)
        if self._settings.get("errors.deadletterqueue.context.headers.enable", "false").lower() == "true":
            headers += error_headers(failure, connector=self.connector, task=0, row=row)
        self._outbox.send(self._letters, row.key, row.value, headers=headers)

    def _open_letters(self) -> None:
        replicas = int(self._settings.get("errors.deadletterqueue.topic.replication.factor", "3"))
        maker = TopicMaker(client_settings(self._worker, "admin", self._settings))
        maker.ensure(self._letters, partitions=1, replicas=replicas)
        self._outbox = Outbox(client_settings(self._worker, "producer", self._settings))

    def close(self) -> None:
        self._chain.close()
        self._sink.stop()
