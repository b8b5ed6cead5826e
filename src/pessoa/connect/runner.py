"""What runs tasks, seen from the herder: start, ask, stop. `running.py` is the one on Spark."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

RUNNING, FAILED = "RUNNING", "FAILED"
# Known, and about to run: Spark may have to be started first.
UNASSIGNED = "UNASSIGNED"


@dataclass(frozen=True, slots=True)
class TaskSpec:
    """One task of a connector. `run_id` changes with the configuration: a checkpoint belongs to one of them."""

    connector: str
    number: int
    # source or sink
    kind: str
    run_id: str
    settings: Mapping[str, str]
    # Of a source: how far it had come, by partition as JSON.
    offsets: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    @property
    def query_id(self) -> str:
        return f"connect-{self.connector}-{self.number}-{self.run_id}"


@dataclass(frozen=True, slots=True)
class TaskReport:
    state: str
    trace: str | None = None
    # Of a source: how far it is, as in `TaskSpec.offsets`; None if nothing is known.
    offsets: Mapping[str, Mapping[str, Any]] | None = None


class Runner(Protocol):
    def start(self, spec: TaskSpec) -> None:
        """Begin; what goes wrong later is in the reports."""

    def report(self, spec: TaskSpec) -> TaskReport: ...

    def stop(self, spec: TaskSpec) -> None:
        """End it, and keep where it is."""

    def forget(self, spec: TaskSpec) -> None:
        """End it, and forget where it is."""

    def close(self) -> None: ...
