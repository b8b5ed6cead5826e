"""The runner of tasks, as the herder uses it: start, report, stop. `spark_runner.py` is the one on Spark."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from pessoa.connect.connector import Offset

RUNNING, FAILED = "RUNNING", "FAILED"
# The task is about to run: Spark may have to be started first.
UNASSIGNED = "UNASSIGNED"


@dataclass(frozen=True, slots=True)
class TaskSpec:
    """One task of a connector. `run_id` changes with the configuration: a checkpoint belongs to one configuration."""

    connector: str
    number: int
    # source or sink
    kind: str
    run_id: str
    settings: Mapping[str, str]
    # The offsets at which a source goes on, by partition as JSON.
    offsets: Mapping[str, Offset] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TaskReport:
    state: str
    trace: str | None = None
    # The offsets that a source has reached, as in `TaskSpec.offsets`; None if nothing is known.
    offsets: Mapping[str, Offset] | None = None


class Runner(Protocol):
    def start(self, spec: TaskSpec) -> None:
        """Start a task; later failures are in its reports."""

    def report(self, spec: TaskSpec) -> TaskReport: ...

    def stop(self, spec: TaskSpec) -> None:
        """Stop a task, and keep its checkpoint."""

    def forget(self, spec: TaskSpec) -> None:
        """Stop a task, and delete its checkpoint."""

    def close(self) -> None: ...
