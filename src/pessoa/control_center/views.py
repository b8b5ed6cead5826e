"""What pages and the API show of a cluster: plain values, ready for JSON."""

from __future__ import annotations

import msgspec


class BrokerView(msgspec.Struct, frozen=True):
    id: int
    host: str
    port: int
    rack: str | None
    is_controller: bool
    is_up: bool
    leaders: int
    replicas: int
    # Replicas that are not in sync.
    behind: int
    # None if the broker did not return its log directories.
    disk_bytes: int | None = None
    disk_total: int | None = None
    disk_free: int | None = None
    # From /metrics, where there is one.
    bytes_in: float | None = None
    bytes_out: float | None = None
    away_since_ms: int | None = None


class PartitionView(msgspec.Struct, frozen=True):
    partition: int
    leader: int
    replicas: list[int]
    isr: list[int]
    earliest: int | None = None
    latest: int | None = None
    size: int | None = None


class TopicRow(msgspec.Struct, frozen=True):
    name: str
    is_internal: bool
    partitions: int
    replication: int
    behind: int
    offline: int
    messages: int | None = None
    size: int | None = None
    # Messages per second.
    rate: float | None = None
    lag: int | None = None
    is_favourite: bool = False


class TopicPage(msgspec.Struct, frozen=True):
    total: int
    page: int
    per_page: int
    topics: list[TopicRow]


class TopicView(msgspec.Struct, frozen=True):
    name: str
    id: str
    is_internal: bool
    replication: int
    partitions: list[PartitionView]
    messages: int | None
    size: int | None
    rate: float | None


class ConfigRow(msgspec.Struct, frozen=True):
    name: str
    value: str | None
    default: str | None
    source: str
    is_default: bool
    is_sensitive: bool
    is_read_only: bool
    doc: str = ""


class GroupRow(msgspec.Struct, frozen=True):
    id: str
    state: str
    kind: str
    members: int | None = None
    topics: list[str] = []
    lag: int | None = None


class OffsetRow(msgspec.Struct, frozen=True):
    topic: str
    partition: int
    committed: int | None
    end: int | None
    lag: int | None
    member: str = ""


class MemberView(msgspec.Struct, frozen=True):
    id: str
    client_id: str
    host: str
    instance_id: str | None
    partitions: list[tuple[str, int]]
    # Of streams groups: active, standby and warm-up tasks.
    tasks: list[str] = []


class GroupView(msgspec.Struct, frozen=True):
    id: str
    state: str
    kind: str
    coordinator: int
    assignor: str
    members: list[MemberView]
    offsets: list[OffsetRow]
    lag: int
    # Why its offsets cannot be reset now.
    why_no_reset: str | None = None
    # Of streams groups: topics that the topology writes for itself.
    internal_topics: list[str] = []


class ClusterRow(msgspec.Struct, frozen=True):
    """One of several clusters, and how it is in a sentence."""

    name: str
    servers: str
    health: str
    level: str
    brokers: int = 0
    topics: int = 0
    messages_in: float | None = None
    messages_out: float | None = None
    lag: float | None = None


class ServiceState(msgspec.Struct, frozen=True):
    name: str
    url: str
    is_up: bool
    # Why it cannot be used, or what it says of itself.
    note: str = ""


class Overview(msgspec.Struct, frozen=True):
    cluster_id: str
    controller: int
    health: str
    level: str
    brokers: list[BrokerView]
    topics: int
    partitions: int
    behind: int
    offline: int
    groups: int | None
    messages_in: float | None
    messages_out: float | None
    lag: int | None
    size: int | None
    services: list[ServiceState]
    is_ours: bool
