"""What a connector is: one Python file with a class that has a table of keys and a few methods.

    class TicksConnector(SourceConnector):
        CONFIG = Table(key("topic", STRING, REQUIRED, HIGH, "Where the ticks go."))

        def start(self, config, offsets):
            self.topic, self.count = config["topic"], offsets.of({"clock": "wall"}).get("count", 0)

        def poll(self):
            self.count += 1
            return [Record(self.topic, value=f"tick {self.count}", source_partition={"clock": "wall"},
                           source_offset={"count": self.count})]

A source is polled: it gives what there is and comes back when asked again. Each record says where it was found: the
part of the source (`source_partition`) and how far it is there (`source_offset`). After a restart `start` is told how
far everything had come. A sink is handed records, and when `put` returns they must be where they belong: what was put
counts as delivered. Both may be asked again for, or handed again, what they had before a crash.

Objects are made where the work is done, often in another process than the one that answers requests. So a class keeps
nothing before `start`; `check` and `tasks` are asked of the class itself, by the process that has the configuration.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar

from pessoa import __version__
from pessoa.connect.data import Record
from pessoa.connect.definition import Table

Partition = Mapping[str, Any]
Offset = Mapping[str, Any]


class RetriableFailure(Exception):
    """Something outside has failed and may work in a moment: a sink is handed the same records again."""


class OffsetRefused(Exception):
    """An offset that somebody wants to set, and that this source could not go on from."""


class Offsets:
    """How far a source had come, by its parts."""

    def __init__(self, known: Mapping[str, Offset] | None = None) -> None:
        self._known = dict(known or {})

    @staticmethod
    def name(partition: Partition) -> str:
        return json.dumps(partition, sort_keys=True, separators=(",", ":"))

    def of(self, partition: Partition) -> Offset:
        """The offset of this part; empty if nothing was read of it."""
        return self._known.get(self.name(partition), {})

    def __repr__(self) -> str:
        return f"<Offsets {self._known}>"


class Connector(ABC):
    TYPE: ClassVar[str]
    CONFIG: ClassVar[Table] = Table()
    VERSION: ClassVar[str] = __version__
    # The class names under which configurations ask for it; the Python one always works.
    NAMES: ClassVar[tuple[str, ...]] = ()

    @classmethod
    def class_name(cls) -> str:
        return cls.NAMES[0] if cls.NAMES else f"{cls.__module__}.{cls.__qualname__}"

    @classmethod
    def check(cls, settings: Mapping[str, str]) -> Mapping[str, str]:  # noqa: ARG003
        """What is wrong beyond single keys: sentences by key. May look at the world (is the table there?)."""
        return {}

    @classmethod
    def adapted(cls, settings: Mapping[str, str]) -> Mapping[str, str]:
        """The settings under the names of this table, where older or foreign names mean the same."""
        return settings

    def stop(self) -> None:  # noqa: B027
        """Give back what `start` took."""


class SourceConnector(Connector):
    TYPE = "source"

    @classmethod
    def tasks(cls, settings: Mapping[str, str], max_tasks: int) -> Sequence[Mapping[str, str]]:  # noqa: ARG003
        """The settings of each task, at most so many; one by default."""
        return [settings]

    @classmethod
    def check_offset(cls, partition: Partition, offset: Offset) -> None:
        """OffsetRefused if the source could not go on from here."""

    @classmethod
    def is_beyond(cls, offset: Offset, end: Offset) -> bool | None:  # noqa: ARG003
        """Whether a record at the first offset comes after all those at the second, in one part; None if unknown.

        A source that knows is read exactly when a batch is repeated after a crash, also where rows came or went since.
        """
        return None

    def start(self, config: dict[str, Any], offsets: Offsets) -> None:
        """Typed settings, and how far it had come."""

    @abstractmethod
    def poll(self) -> Iterable[Record]:
        """What there is, without waiting for long; nothing if there is nothing."""


class SinkConnector(Connector):
    TYPE = "sink"

    # Set by whoever runs it: says that one record cannot be delivered, and why. Returns if that is tolerated (the
    # record is then put aside), and raises if not.
    report: Callable[[Record, Exception], None]

    def start(self, config: dict[str, Any]) -> None:
        """Typed settings."""

    @abstractmethod
    def put(self, records: Sequence[Record]) -> None:
        """Deliver all of them, in order; they are of one partition of one topic, mostly."""
