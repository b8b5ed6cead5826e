"""The messages between members of a classic consumer group inside JoinGroup and SyncGroup: opaque to brokers."""

from __future__ import annotations

from pessoa.wire.schema import ALL, Message, Struct, array, binary, int32, string


class TopicPartition(Struct):
    topic: str = string()
    partitions: list[int] = array("int32")


class ConsumerProtocolSubscription(Message, versions="0-3", flexible="none"):
    topics: list[str] = array("string")
    user_data: bytes | None = binary(default=None, nullable=ALL)
    owned_partitions: list[TopicPartition] = array(TopicPartition, "1+", default=(), ignorable=True)
    generation_id: int = int32("2+", default=-1, ignorable=True)
    rack_id: str | None = string("3+", default=None, nullable=ALL, ignorable=True)


class ConsumerProtocolAssignmentTopicPartition(Struct):
    topic: str = string()
    partitions: list[int] = array("int32")


class ConsumerProtocolAssignment(Message, versions="0-3", flexible="none"):
    assigned_partitions: list[ConsumerProtocolAssignmentTopicPartition] = array(
        ConsumerProtocolAssignmentTopicPartition
    )
    user_data: bytes | None = binary(default=None, nullable=ALL)
