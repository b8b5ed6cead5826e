"""Metadata images with only what coordinators use, and the deltas between them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from pessoa.base.ids import Uuid


@dataclass(frozen=True)
class FakePartition:
    replicas: tuple[int, ...] = (1,)


@dataclass(frozen=True)
class FakeTopic:
    name: str
    id: Uuid
    partitions: Mapping[int, FakePartition]


@dataclass(frozen=True)
class FakeTopics:
    by_name: Mapping[str, FakeTopic] = field(default_factory=dict)
    by_id: Mapping[Uuid, FakeTopic] = field(default_factory=dict)


@dataclass(frozen=True)
class FakeBroker:
    rack: str | None = None


@dataclass(frozen=True)
class FakeCluster:
    brokers: Mapping[int, FakeBroker] = field(default_factory=dict)


@dataclass(frozen=True)
class FakeConfigs:
    configs: Mapping[tuple[int, str], Mapping[str, str]] = field(default_factory=dict)

    def of(self, resource_type: int, name: str) -> Mapping[str, str]:
        return self.configs.get((resource_type, name), {})


@dataclass(frozen=True)
class FakeImage:
    offset: int = 0
    topics: FakeTopics = field(default_factory=FakeTopics)
    cluster: FakeCluster = field(default_factory=lambda: FakeCluster({1: FakeBroker()}))
    configs: FakeConfigs = field(default_factory=FakeConfigs)


@dataclass(frozen=True)
class FakeDelta:
    old: FakeImage
    changed_topics: frozenset[Uuid] = frozenset()
    deleted_topics: frozenset[Uuid] = frozenset()


def topic_id(name: str, incarnation: int = 0) -> Uuid:
    return Uuid((name.encode()[:15].ljust(15, b".")) + bytes([incarnation]))


def image(incarnation: int = 0, /, **partition_counts: int) -> FakeImage:
    """Return an image with topics by name and partition count; underscores in names become dashes."""
    named = [
        FakeTopic(name, topic_id(name, incarnation), {index: FakePartition() for index in range(count)})
        for name, count in ((key.replace("_", "-"), count) for key, count in partition_counts.items())
    ]
    return FakeImage(1, FakeTopics({each.name: each for each in named}, {each.id: each for each in named}))


def change(old: FakeImage, new: FakeImage) -> tuple[FakeImage, FakeDelta]:
    """Return the new image with the next offset, and the delta from the old one."""
    new = replace(new, offset=old.offset + 1)
    changed = {key for key, topic in new.topics.by_id.items() if old.topics.by_id.get(key) != topic}
    deleted = set(old.topics.by_id) - set(new.topics.by_id)
    return new, FakeDelta(old, frozenset(changed), frozenset(deleted))
