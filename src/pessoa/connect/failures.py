"""What becomes of a record that cannot be handled: tried again, skipped, put aside, or the end of the task.

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
from typing import Any, TypeVar

from pessoa.connect.connector import RetriableFailure
from pessoa.connect.data import DataFailure

log = logging.getLogger("pessoa.connect")

T = TypeVar("T")

HEADER_PREFIX = "__connect.errors."
FIRST_PAUSE_S = 0.3
# What may be over in a moment.
PASSING = (RetriableFailure, ConnectionError, TimeoutError)


class TaskFailed(Exception):
    """A record that was not to be tolerated."""


@dataclass(frozen=True, slots=True)
class Mishap:
    stage: str
    # The class that failed, by the name that the configuration has for it.
    where: str
    error: Exception


class Skipped(Exception):
    """The record is left out; the mishap says why."""

    def __init__(self, mishap: Mishap) -> None:
        super().__init__(str(mishap.error))
        self.mishap = mishap


class Tolerance:
    def __init__(self, settings: Mapping[str, str]) -> None:
        self.is_tolerant = settings.get("errors.tolerance", "none").lower() == "all"
        self._retry_s = int(settings.get("errors.retry.timeout", "0")) / 1000
        self._pause_s = int(settings.get("errors.retry.delay.max.ms", "60000")) / 1000
        self._logs = settings.get("errors.log.enable", "false").lower() == "true"
        self._shows = settings.get("errors.log.include.messages", "false").lower() == "true"

    def run(self, stage: str, where: str, work: Callable[[], T]) -> T:
        """What the work gives. Skipped if it fails and that is tolerated, TaskFailed if it is not."""
        deadline = time.monotonic() + self._retry_s
        pause = FIRST_PAUSE_S
        while True:
            try:
                return work()
            except PASSING as error:
                left = deadline - time.monotonic()
                if self._retry_s >= 0 and left <= 0:
                    raise self._outcome(Mishap(stage, where, error)) from error
                time.sleep(min(pause, self._pause_s, left if self._retry_s >= 0 else pause))
                pause *= 2
            except (DataFailure, ArithmeticError, LookupError, TypeError, ValueError) as error:
                raise self._outcome(Mishap(stage, where, error)) from error

    def _outcome(self, mishap: Mishap) -> Exception:
        if self.is_tolerant:
            return Skipped(mishap)
        return TaskFailed(f"Tolerance exceeded in error handler: {mishap.stage} by {mishap.where}: {mishap.error}")

    def report(self, connector: str, mishap: Mishap, record: Any) -> None:
        if self._logs:
            shown = f": {record!r}" if self._shows else ""
            log.error("%s: %s by %s failed: %s%s", connector, mishap.stage, mishap.where, mishap.error, shown)


def error_headers(mishap: Mishap, *, connector: str, task: int, row: Any) -> list[tuple[str, bytes]]:
    """What a dead letter says about itself, in Kafka's words."""
    trace = "".join(traceback.format_exception(mishap.error))
    facts = {
        "topic": row.topic,
        "partition": str(row.partition),
        "offset": str(row.offset),
        "connector.name": connector,
        "task.id": str(task),
        "stage": mishap.stage,
        "class.name": mishap.where,
        "exception.class.name": _java_name(mishap.error),
        "exception.message": str(mishap.error),
        "exception.stacktrace": trace,
    }
    return [(HEADER_PREFIX + name, text.encode()) for name, text in facts.items()]


def _java_name(error: Exception) -> str:
    """Tools that sort dead letters know Connect's exceptions."""
    if isinstance(error, DataFailure):
        return "org.apache.kafka.connect.errors.DataException"
    if isinstance(error, PASSING):
        return "org.apache.kafka.connect.errors.RetriableException"
    return f"{type(error).__module__}.{type(error).__qualname__}"
