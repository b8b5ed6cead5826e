"""A query as the engine knows it: what it should do, what it is doing, and how that is kept and shown.

                  start                         fails, or Spark is gone
    (nothing) ──────────► STARTING ──► RUNNING ─────────────────────────► RESTARTING ──► STARTING …
                              ▲         │    │                                │ too often
                       resume │   pause │    │ stop                           ▼
                              └── PAUSED ◄   └──► STOPPED                  FAILED ──restart──► STARTING

A paused and a stopped query are both at rest with their checkpoint in place, and go on where they were; they have
two names so that a status tells them apart. `delete` forgets the query and its checkpoint.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import ModuleType
from typing import TYPE_CHECKING, Any, Literal, get_args

import msgspec

from pessoa.base.json_value import JsonObject
from pessoa.pipelines.plan import KafkaSettings, Node, from_json, to_json
from pessoa.pipelines.python_functions import NamedFunctions
from pessoa.pipelines.python_sink import SinkWriter
from pessoa.pipelines.query_progress import Progress
from pessoa.pipelines.table_target import TableTarget
from pessoa.pipelines.topic_writer import DEFAULT_SLOTS, MOST_SLOTS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Delivery = Literal["at-least-once", "exactly-once"]
Speed = Literal["real-time", "micro-batch"]
State = Literal["STARTING", "RUNNING", "RESTARTING", "PAUSED", "STOPPED", "FAILED"]
# The state that was asked for.
Target = Literal["RUNNING", "PAUSED", "STOPPED"]
StartFunction = Callable[["SparkSession", KafkaSettings], "DataFrame"]

# It becomes a folder, a transactional id and a part of a group's name.
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}\Z")


class SpecRefused(ValueError):
    """A specification that cannot run; the message says what to write instead."""


@dataclass(frozen=True)
class QuerySpec:
    """A query to run: a `plan`, or a `start_function`: (session, Kafka's settings) → a streaming DataFrame of records
    (key, value, …).

    A start function is a function, or its location: "module:name" or "path/to/file.py:name". Only a location can be
    kept in a state topic, and only plans whose functions can be imported.
    """

    id: str
    plan: Node | None = None
    start_function: StartFunction | str | None = None
    # Where records without a column `topic` go.
    topic: str | None = None
    # Functions that the plan names.
    functions: NamedFunctions = field(default_factory=dict)
    # The records are Kafka's, with their offsets, and this takes them.
    writer: SinkWriter | None = None
    # The records are rows, and one of Spark's own writers keeps them.
    table: TableTarget | None = None
    delivery: Delivery = "at-least-once"
    # None: real-time if the plan allows it.
    speed: Speed | None = None
    output_mode: Literal["append", "update"] | None = None
    # Micro-batches at this pace, or as fast as they come; the length of a batch in real-time mode.
    trigger_ms: int | None = None
    # Records are written with the timestamps in their column, which Spark's own writer ignores.
    keep_timestamps: bool = False
    slots: int = DEFAULT_SLOTS
    # How often in a row a query that made no progress is started again.
    max_restarts: int = 10
    # The group that shows its offsets; pessoa-<id> if None.
    group_id: str | None = None
    # Settings of the producers of its records that add to those of the engine, or override them (Java's names).
    producer_options: Mapping[str, str] = field(default_factory=dict)
    # Settings of the Spark session that its expressions are written for. All queries of an engine share the session.
    spark_settings: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not _ID.match(self.id):
            raise SpecRefused(
                f"{self.id!r} cannot be the name of a query: it takes letters, digits, dots, dashes and underscores,"
                " 100 at most, and begins with a letter or a digit"
            )
        if (self.plan is None) == (self.start_function is None):
            raise SpecRefused(f"the query {self.id} needs a plan or a start function, and not both")
        for name, words in (("delivery", get_args(Delivery)), ("speed", (*get_args(Speed), None))):
            if getattr(self, name) not in words:
                raise SpecRefused(f"{name} is {' or '.join(word for word in words if word)}, not {getattr(self, name)}")
        if not 1 <= self.slots <= MOST_SLOTS:
            raise SpecRefused(f"a query has between 1 and {MOST_SLOTS} slots, not {self.slots}")
        if self.delivery == "exactly-once":
            if self.writer is not None:
                raise SpecRefused(f"the query {self.id} writes with Python, and only topics are written exactly once")
            if self.speed == "real-time":
                raise SpecRefused(
                    f"the query {self.id} cannot be exactly-once in real-time mode: there are no batches to commit."
                    " Take micro-batch, or at-least-once"
                )

    @property
    def group(self) -> str:
        return self.group_id or f"pessoa-{self.id}"


_KEPT = (
    "topic",
    "delivery",
    "speed",
    "output_mode",
    "trigger_ms",
    "keep_timestamps",
    "slots",
    "max_restarts",
    "group_id",
)


def to_value(spec: QuerySpec) -> JsonObject:
    """Return the specification for the state topic. Raises SpecRefused if it refers to objects of this process."""
    if spec.writer is not None or spec.functions or callable(spec.start_function):
        raise SpecRefused(
            f"the query {spec.id} is made of Python objects of this process, and could not be started without it:"
            ' name its function as "module:function", or give the engine no state topic'
        )
    if spec.producer_options or spec.spark_settings:
        raise SpecRefused(
            f"the query {spec.id} has settings of its own for Kafka or Spark, which may be secrets, and cannot be kept"
        )
    value: JsonObject = {name: getattr(spec, name) for name in _KEPT}
    if spec.plan is not None:
        value["plan"] = msgspec.json.decode(to_json(spec.plan))
    else:
        value["start_function"] = spec.start_function
    return value


def from_value(query_id: str, value: Mapping[str, Any]) -> QuerySpec:
    known = {name: value[name] for name in _KEPT if name in value}
    plan = value.get("plan")
    return QuerySpec(
        query_id,
        plan=from_json(msgspec.json.encode(plan)) if plan is not None else None,
        start_function=value.get("start_function"),
        **known,
    )


def find_function(where: str) -> StartFunction:
    """Return the function that "module:name" or "path/to/file.py:name" names. Raises SpecRefused."""
    place, _, name = where.rpartition(":")
    if not place or not name:
        raise SpecRefused(f'{where!r} names no function: write "module:function" or "path/to/file.py:function"')
    try:
        module = _load_file(place) if place.endswith(".py") else _load_module(place)
        found = getattr(module, name)
    except (ImportError, OSError, AttributeError, SyntaxError) as wrong:
        raise SpecRefused(f"{where} cannot be loaded: {wrong}") from wrong
    if not callable(found):
        raise SpecRefused(f"{where} is not a function")
    return found  # type: ignore[no-any-return]


def _load_module(name: str) -> ModuleType:
    from importlib import import_module

    return import_module(name)


def _load_file(path: str) -> ModuleType:
    import importlib.util
    import sys

    # Not kept in sys.modules while it runs: its functions are then shipped to Spark by value, which has no such file.
    spec = importlib.util.spec_from_file_location("__pipeline__", path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is no Python file")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    sys.modules.pop("__pipeline__", None)
    return module


class QueryStatus(msgspec.Struct, frozen=True):
    """The state and progress of a query, as the API shows it."""

    id: str
    state: State
    delivery: str
    speed: str
    restarts: int
    # Why it is not running, or the last time it was not; empty if it always was.
    error: str
    group: str
    progress: Progress
    # Spark's task slots that it holds for as long as it runs, in real-time mode.
    task_slots: int = 0
    # What the query reads before it is up to date, and its progress with that.
    doing: str = ""
    # Topics, as far as its plan names them or its progress tells.
    sources: tuple[str, ...] = ()
    sinks: tuple[str, ...] = ()
