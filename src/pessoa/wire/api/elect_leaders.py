"""Elects the preferred leader of partitions, or any replica if unclean (KIP-460)."""

from __future__ import annotations

from pessoa.wire.schema import ALL, Message, Struct, array, int8, int16, int32, string


class TopicPartitions(Struct):
    topic: str = string()
    partitions: list[int] = array("int32")


class ElectLeadersRequest(Message, versions="0-2", flexible="2+", api_key=43):
    election_type: int = int8("1+", default=0)
    topic_partitions: list[TopicPartitions] | None = array(TopicPartitions, nullable=ALL)
    timeout_ms: int = int32(default=60000)


class PartitionResult(Struct):
    partition_id: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable=ALL)


class ReplicaElectionResult(Struct):
    topic: str = string()
    partition_result: list[PartitionResult] = array(PartitionResult)


class ElectLeadersResponse(Message, versions="0-2", flexible="2+", api_key=43):
    throttle_time_ms: int = int32()
    error_code: int = int16("1+", default=0)
    replica_election_results: list[ReplicaElectionResult] = array(ReplicaElectionResult)
