"""What a connector is: one Python file with a class that has a table of keys and a few methods.

    class TicksConnector(SourceConnector):
        CONFIG = Table(key("topic", STRING, REQUIRED, HIGH, "Where the ticks go."))

        def start(self, config, offsets):
            self.topic, self.count = config["topic"], offsets.of({"clock": "wall"}).get("count", 0)

        def poll(self):
            self.count += 1
            return [Record(self.topic, value=f"tick {self.count}", source_partition={"clock": "wall"},
                           source_offset={"count": self.count})]

A source is polled for the records that there are. Each record says where it was found: the partition of the source
(`source_partition`) and the offset there (`source_offset`). After a restart `start` is given the offsets of what had
been read. A sink is handed records, and when `put` returns they must be where they belong: what was put counts as
delivered. After a crash both may be asked for, or handed, the same records again.

Objects are made where the work is done, often in another process than the one that answers requests. So a class keeps
nothing before `start`; `check` and `tasks` are asked of the class itself, by the process that has the configuration.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import ClassVar

from pessoa import __version__
from pessoa.base.json_value import JsonValue
from pessoa.connect.data import Record
from pessoa.connect.definition import Config, Table

# Both go through JSON, into the offset topic.
Partition = Mapping[str, JsonValue]
Offset = Mapping[str, JsonValue]


class RetriableFailure(Exception):
    """An outside system has failed and may work in a moment: a sink is handed the same records again."""


class OffsetRefused(Exception):
    """A request sets a source offset from which this source could not continue."""


class Offsets:
    """The source offsets up to which records were read, by source partition."""

    def __init__(self, known: Mapping[str, Offset] | None = None) -> None:
        self._by_partition = dict(known or {})

    @staticmethod
    def name(partition: Partition) -> str:
        return json.dumps(partition, sort_keys=True, separators=(",", ":"))

    def of(self, partition: Partition) -> Offset:
        """Return the offset of this partition; empty if nothing was read of it."""
        return self._by_partition.get(self.name(partition), {})

    def __repr__(self) -> str:
        return f"<Offsets {self._by_partition}>"


def offset_number(offset: Offset, name: str, default: int = 0) -> int:
    """Return a whole number from a source offset, which a user may have written."""
    found = offset.get(name, default)
    if not isinstance(found, int | float | str):
        raise TypeError(f"the offset's {name} is no number: {found}")
    return int(found)


class Connector(ABC):
    TYPE: ClassVar[str]
    CONFIG: ClassVar[Table] = Table()
    VERSION: ClassVar[str] = __version__
    # The class names under which configurations know the connector, besides that of the Python class.
    NAMES: ClassVar[tuple[str, ...]] = ()
    # Settings of its tasks where the configuration has none, before those of the worker: converters for bytes, say.
    DEFAULTS: ClassVar[Mapping[str, str]] = {}

    @classmethod
    def class_name(cls) -> str:
        return cls.NAMES[0] if cls.NAMES else f"{cls.__module__}.{cls.__qualname__}"

    @classmethod
    def check(cls, settings: Mapping[str, str]) -> Mapping[str, str]:  # noqa: ARG003
        """Return errors that concern several keys, a sentence by key. May query outside systems (does the table
        exist?)."""
        return {}

    @classmethod
    def adapted(cls, settings: Mapping[str, str]) -> Mapping[str, str]:
        """Return the settings under this table's key names; older or foreign names are translated."""
        return settings

    def stop(self) -> None:  # noqa: B027
        """Close what `start` has opened."""


class SourceConnector(Connector):
    TYPE = "source"
    # Whether the timestamps of its records are written. Spark's own sink is faster, and has no place for them.
    KEEPS_TIMESTAMPS: ClassVar[bool] = False

    @classmethod
    def tasks(cls, settings: Mapping[str, str], max_tasks: int) -> Sequence[Mapping[str, str]]:  # noqa: ARG003
        """Return the settings of each task, at most `max_tasks` of them; one task by default."""
        return [settings]

    @classmethod
    def check_offset(cls, partition: Partition, offset: Offset) -> None:
        """Raise OffsetRefused if the source could not continue from this offset."""

    @classmethod
    def is_beyond(cls, offset: Offset, end: Offset) -> bool | None:  # noqa: ARG003
        """Whether a record at `offset` comes after all records up to `end`, in one partition; None if unknown.

        A source that knows returns exactly the same batch after a crash, also if rows were added or deleted meanwhile.
        """
        return None

    def start(self, config: Config, offsets: Offsets) -> None:
        """Open the source with these settings, at these offsets."""

    def has_read_all(self, partition: Partition) -> bool | None:
        """Whether all records that the partition had were polled since the start; None if unknown.

        When a batch is repeated after a crash and a row of it was deleted, True lets the task give the row up soon.
        With None it polls for up to ten minutes while other partitions return records.
        """
        return None

    def commit(self, offsets: Offsets) -> None:
        """Note that all records up to these offsets are written: the source may drop what it kept for them."""

    @abstractmethod
    def poll(self) -> Iterable[Record]:
        """Return the records that are available, without waiting for long."""


class SinkConnector(Connector):
    TYPE = "sink"

    # Whether one of Spark's own writers takes what it makes of records: a `TableSinkConnector`, or one like it.
    IS_WRITTEN_BY_SPARK: ClassVar[bool] = False

    # Set by the sink task: reports that one record cannot be delivered, and why. Returns if that is tolerated (the
    # record goes to the dead-letter topic then), and raises if not.
    report: Callable[[Record, Exception], None]

    def start(self, config: Config) -> None:
        """Open the sink with these settings."""

    @abstractmethod
    def put(self, records: Sequence[Record]) -> None:
        """Deliver all records, in order. Usually they are of one topic partition."""
