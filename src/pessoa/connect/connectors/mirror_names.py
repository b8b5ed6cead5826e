"""Conventions of mirrored clusters: names of topics, formats of records, and how offsets are translated. Pure.

    DefaultReplicationPolicy     orders of the cluster `porto` is `porto.orders` elsewhere
    IdentityReplicationPolicy    orders is orders everywhere; only heartbeats are renamed

Records of MirrorMaker 2's own topics, in Kafka's types (a string has its length in two bytes before it):

    mm2-offset-syncs.<target>.internal   topic, partition           ──► upstream offset, offset here
    <source>.checkpoints.internal        group, topic, partition    ──► version 0, upstream offset, offset here, text
    heartbeats                           source alias, target alias ──► version 0, time in milliseconds

An offset sync says that the record at an offset there is, or will be, at that offset here. A consumer group's offset
between two syncs is translated to the place behind the earlier one: nothing is skipped, some records are read again.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass, field

from pessoa.connect.java_regex import JavaPattern

HEARTBEATS = "heartbeats"
# The most syncs that are kept for a partition; the older they are, the further apart.
MOST_SYNCS = 64


@dataclass(frozen=True, slots=True)
class ReplicationPolicy:
    separator: str = "."
    is_identity: bool = False
    # The alias of the source cluster; an identity policy cannot derive it from topic names.
    source: str = ""

    def remote_topic(self, alias: str, topic: str) -> str:
        """Return the name that a topic of the cluster `alias` has on other clusters."""
        if self.is_identity and not self.is_heartbeats(topic):
            return topic
        return f"{alias}{self.separator}{topic}"

    def source_of(self, topic: str) -> str | None:
        """Return the alias of the cluster that a topic was mirrored from; None for a topic of the cluster itself."""
        if self.is_identity and not self.is_heartbeats(topic):
            return self.source or None
        alias, separator, rest = topic.partition(self.separator)
        return alias if separator and rest else None

    def is_heartbeats(self, topic: str) -> bool:
        return topic == HEARTBEATS or topic.endswith(self.separator + HEARTBEATS)

    def goes_through(self, alias: str, topic: str) -> bool:
        """Whether a topic was mirrored from, or through, the cluster `alias`: mirroring it back would be a cycle."""
        if self.is_identity and not self.is_heartbeats(topic):
            return False
        return alias in topic.split(self.separator)[:-1]


@dataclass(frozen=True, slots=True)
class NameFilter:
    """Regular expressions for whole names, `included` and `excluded`; an excluded name is never taken."""

    included: tuple[str, ...]
    excluded: tuple[str, ...]

    def takes(self, name: str) -> bool:
        return _any_matches(self.included, name) and not _any_matches(self.excluded, name)


def _any_matches(patterns: Iterable[str], name: str) -> bool:
    return any(JavaPattern(each).compiled.fullmatch(name) for each in patterns)


def offset_syncs_topic(other: str, separator: str = ".") -> str:
    """Return the name of the offset-syncs topic; `other` is the alias of the cluster that does not hold it."""
    return f"mm2-offset-syncs{separator}{other}{separator}internal"


def checkpoints_topic(source: str, separator: str = ".") -> str:
    return f"{source}{separator}checkpoints{separator}internal"


# Records.


@dataclass(frozen=True, slots=True)
class OffsetSync:
    topic: str
    partition: int
    upstream: int
    downstream: int

    def key(self) -> bytes:
        return _string(self.topic) + struct.pack(">i", self.partition)

    def value(self) -> bytes:
        return struct.pack(">qq", self.upstream, self.downstream)

    @classmethod
    def read(cls, key: bytes, value: bytes) -> OffsetSync:
        topic, at = _read_string(key, 0)
        (partition,) = struct.unpack_from(">i", key, at)
        return cls(topic, partition, *struct.unpack_from(">qq", value))


@dataclass(frozen=True, slots=True)
class Checkpoint:
    group: str
    # The topic as it is called here.
    topic: str
    partition: int
    upstream: int
    downstream: int
    metadata: str = ""

    def key(self) -> bytes:
        return _string(self.group) + _string(self.topic) + struct.pack(">i", self.partition)

    def value(self) -> bytes:
        return struct.pack(">hqq", 0, self.upstream, self.downstream) + _string(self.metadata)

    @classmethod
    def read(cls, key: bytes, value: bytes) -> Checkpoint:
        group, at = _read_string(key, 0)
        topic, at = _read_string(key, at)
        (partition,) = struct.unpack_from(">i", key, at)
        _, upstream, downstream = struct.unpack_from(">hqq", value)
        return cls(group, topic, partition, upstream, downstream, _read_string(value, 18)[0])


@dataclass(frozen=True, slots=True)
class Heartbeat:
    source: str
    target: str
    time_ms: int

    def key(self) -> bytes:
        return _string(self.source) + _string(self.target)

    def value(self) -> bytes:
        return struct.pack(">hq", 0, self.time_ms)

    @classmethod
    def read(cls, key: bytes, value: bytes) -> Heartbeat:
        source, at = _read_string(key, 0)
        target, _ = _read_string(key, at)
        return cls(source, target, struct.unpack_from(">hq", value)[1])


def _string(text: str) -> bytes:
    data = text.encode()
    return struct.pack(">h", len(data)) + data


def _read_string(data: bytes, at: int) -> tuple[str, int]:
    (size,) = struct.unpack_from(">h", data, at)
    end = at + 2 + size
    if size < 0 or end > len(data):
        raise ValueError(f"a string of {size} bytes in {len(data)}")
    return data[at + 2 : end].decode(), end


# Translation.


@dataclass(slots=True)
class SyncedPartition:
    """The offset syncs of a partition, by upstream offset."""

    syncs: list[tuple[int, int]] = field(default_factory=list)

    def add(self, upstream: int, downstream: int) -> None:
        """Add the newest sync. If it goes backwards the topic was recreated, and all earlier syncs are dropped."""
        if self.syncs and (upstream < self.syncs[-1][0] or downstream < self.syncs[-1][1]):
            self.syncs.clear()
        if self.syncs and self.syncs[-1][0] == upstream:
            self.syncs[-1] = (upstream, downstream)
            return
        self.syncs.append((upstream, downstream))
        if len(self.syncs) > MOST_SYNCS:
            # Every second of the older half goes, so distances double with age.
            older = MOST_SYNCS // 2
            self.syncs = self.syncs[:older:2] + self.syncs[older:]

    def translate(self, upstream: int) -> int | None:
        """Return the downstream offset from which no record is skipped; None before the first sync."""
        for known, downstream in reversed(self.syncs):
            if known == upstream:
                return downstream
            if known < upstream:
                return downstream + 1
        return None
