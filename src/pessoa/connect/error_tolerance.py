"""What happens to a record that cannot be handled: it is tried again, skipped, put into the dead-letter topic, or the
task fails.

    errors.retry.timeout       how long something outside that fails (a registry, say) is tried again
    errors.tolerance=all       skip what is wrong with a record; `none` fails the task
    errors.deadletterqueue.*   where a sink puts the records that it skips, with headers that say why

A stage is one of Kafka's names for the place: KEY_CONVERTER, VALUE_CONVERTER, HEADER_CONVERTER, TRANSFORMATION,
TASK_PUT.
"""

from __future__ import annotations

import logging
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from pessoa.connect.connector import RetriableFailure
from pessoa.connect.data import MISFITS, DataFailure, Record

if TYPE_CHECKING:
    from pessoa.pipelines.python_sink import KafkaRow

log = logging.getLogger("pessoa.connect")

T = TypeVar("T")

HEADER_PREFIX = "__connect.errors."
FIRST_PAUSE_S = 0.3
# Failures of outside systems, which are tried again.
PASSING = (RetriableFailure, ConnectionError, TimeoutError)


class TaskFailed(Exception):
    """A record could not be handled, and `errors.tolerance` is none."""


@dataclass(frozen=True, slots=True)
class RecordFailure:
    stage: str
    # The class that failed, by the name that the configuration has for it.
    where: str
    error: Exception


class RecordSkipped(Exception):
    """The record failed and is skipped, since that is tolerated; `failure` has the error."""

    def __init__(self, failure: RecordFailure) -> None:
        super().__init__(str(failure.error))
        self.failure = failure


class ErrorTolerance:
    def __init__(self, settings: Mapping[str, str]) -> None:
        self.is_tolerant = settings.get("errors.tolerance", "none").lower() == "all"
        self._retry_s = int(settings.get("errors.retry.timeout", "0")) / 1000
        self._pause_s = int(settings.get("errors.retry.delay.max.ms", "60000")) / 1000
        self._logs = settings.get("errors.log.enable", "false").lower() == "true"
        self._shows = settings.get("errors.log.include.messages", "false").lower() == "true"

    def run(self, stage: str, where: str, work: Callable[[], T]) -> T:
        """Return the result of `work`. RecordSkipped if it fails and that is tolerated, TaskFailed if it is not."""
        deadline = time.monotonic() + self._retry_s
        pause = FIRST_PAUSE_S
        while True:
            try:
                return work()
            except PASSING as error:
                left = deadline - time.monotonic()
                if self._retry_s >= 0 and left <= 0:
                    raise self._outcome(RecordFailure(stage, where, error)) from error
                time.sleep(min(pause, self._pause_s, left if self._retry_s >= 0 else pause))
                pause *= 2
            except MISFITS as error:
                raise self._outcome(RecordFailure(stage, where, error)) from error

    def _outcome(self, failure: RecordFailure) -> Exception:
        if self.is_tolerant:
            return RecordSkipped(failure)
        return TaskFailed(f"Tolerance exceeded in error handler: {failure.stage} by {failure.where}: {failure.error}")

    def report(self, connector: str, failure: RecordFailure, record: Record | KafkaRow | None) -> None:
        if self._logs:
            shown = f": {record!r}" if self._shows else ""
            log.error("%s: %s by %s failed: %s%s", connector, failure.stage, failure.where, failure.error, shown)


def error_headers(failure: RecordFailure, *, connector: str, task: int, row: KafkaRow) -> list[tuple[str, bytes]]:
    """Return the headers of a dead letter, under Kafka's names."""
    trace = "".join(traceback.format_exception(failure.error))
    facts = {
        "topic": row.topic,
        "partition": str(row.partition),
        "offset": str(row.offset),
        "connector.name": connector,
        "task.id": str(task),
        "stage": failure.stage,
        "class.name": failure.where,
        "exception.class.name": _java_name(failure.error),
        "exception.message": str(failure.error),
        "exception.stacktrace": trace,
    }
    return [(HEADER_PREFIX + name, text.encode()) for name, text in facts.items()]


def _java_name(error: Exception) -> str:
    """Return the name of Connect's exception for an error: tools sort dead letters by it."""
    if isinstance(error, DataFailure):
        return "org.apache.kafka.connect.errors.DataException"
    if isinstance(error, PASSING):
        return "org.apache.kafka.connect.errors.RetriableException"
    return f"{type(error).__module__}.{type(error).__qualname__}"
