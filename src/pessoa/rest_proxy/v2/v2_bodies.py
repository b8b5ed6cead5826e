"""The bodies of API v2.

Keys and values of records stay raw: only their format knows what to make of them (embedded.py).
"""

from __future__ import annotations

import msgspec


class ProduceRecord(msgspec.Struct, forbid_unknown_fields=True):
    key: msgspec.Raw = msgspec.field(default_factory=msgspec.Raw)
    value: msgspec.Raw = msgspec.field(default_factory=msgspec.Raw)
    partition: int | None = None


class Produce(msgspec.Struct, forbid_unknown_fields=True):
    records: list[ProduceRecord]
    key_schema: str | None = None
    key_schema_id: int | None = None
    value_schema: str | None = None
    value_schema_id: int | None = None


class RecordOffset(msgspec.Struct):
    """Where a record was written, or why it was not."""

    partition: int | None
    offset: int | None
    error_code: int | None = None
    error: str | None = None


class Produced(msgspec.Struct):
    offsets: list[RecordOffset]
    key_schema_id: int | None = None
    value_schema_id: int | None = None


class CreateConsumer(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    id: str | None = None
    name: str | None = None
    format: str | None = None
    auto_offset_reset: str | None = msgspec.field(name="auto.offset.reset", default=None)
    # A string by tradition; people write booleans all the same.
    auto_commit_enable: str | bool | None = msgspec.field(name="auto.commit.enable", default=None)
    fetch_min_bytes: int | str | None = msgspec.field(name="fetch.min.bytes", default=None)
    response_min_bytes: int | str | None = msgspec.field(name="responseMinBytes", default=None)
    request_timeout_ms: int | str | None = msgspec.field(name="consumer.request.timeout.ms", default=None)
    request_wait_ms: int | str | None = msgspec.field(name="requestWaitMs", default=None)


class CreatedConsumer(msgspec.Struct):
    instance_id: str
    base_uri: str


class Subscription(msgspec.Struct, forbid_unknown_fields=True):
    topics: list[str] | None = None
    topic_pattern: str | None = None


class Subscribed(msgspec.Struct):
    topics: list[str]


class TopicAndPartition(msgspec.Struct, forbid_unknown_fields=True):
    topic: str
    partition: int


class Partitions(msgspec.Struct, forbid_unknown_fields=True):
    partitions: list[TopicAndPartition] | None = None


class OffsetOfPartition(msgspec.Struct, forbid_unknown_fields=True):
    topic: str
    partition: int
    offset: int
    metadata: str | None = None


class TimeOfPartition(msgspec.Struct, forbid_unknown_fields=True):
    topic: str
    partition: int
    timestamp: str | int
    metadata: str | None = None


class Positions(msgspec.Struct, forbid_unknown_fields=True):
    offsets: list[OffsetOfPartition] | None = None
    timestamps: list[TimeOfPartition] | None = None


class Offsets(msgspec.Struct, forbid_unknown_fields=True):
    offsets: list[OffsetOfPartition] | None = None


class ReadRecord(msgspec.Struct):
    topic: str
    key: msgspec.Raw
    value: msgspec.Raw
    partition: int
    offset: int


class ReplicaOfPartition(msgspec.Struct):
    broker: int
    leader: bool
    in_sync: bool


class PartitionOfTopic(msgspec.Struct):
    partition: int
    leader: int
    replicas: list[ReplicaOfPartition]


class Topic(msgspec.Struct):
    name: str
    configs: dict[str, str | None]
    partitions: list[PartitionOfTopic]


class Bounds(msgspec.Struct):
    beginning_offset: int
    end_offset: int


class Brokers(msgspec.Struct):
    brokers: list[int]
