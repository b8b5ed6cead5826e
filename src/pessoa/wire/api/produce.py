"""Appends record batches to partitions."""

from __future__ import annotations

from pessoa.base.ids import ZERO_UUID, Uuid
from pessoa.wire.schema import ALL, Message, Struct, array, batches, int16, int32, int64, string, struct, uuid


class PartitionProduceData(Struct):
    index: int = int32()
    records: memoryview | None = batches(nullable=ALL)


class TopicProduceData(Struct):
    name: str = string("0-12", default="", ignorable=True)
    topic_id: Uuid = uuid("13+", default=ZERO_UUID, ignorable=True)
    partition_data: list[PartitionProduceData] = array(PartitionProduceData)


class ProduceRequest(Message, versions="3-13", flexible="9+", api_key=0):
    transactional_id: str | None = string(default=None, nullable=ALL)
    acks: int = int16()
    timeout_ms: int = int32()
    topic_data: list[TopicProduceData] = array(TopicProduceData)


class BatchIndexAndErrorMessage(Struct):
    batch_index: int = int32()
    batch_index_error_message: str | None = string(default=None, nullable=ALL)


class LeaderIdAndEpoch(Struct):
    leader_id: int = int32(default=-1)
    leader_epoch: int = int32(default=-1)


class PartitionProduceResponse(Struct):
    index: int = int32()
    error_code: int = int16()
    base_offset: int = int64()
    log_append_time_ms: int = int64(default=-1)
    log_start_offset: int = int64("5+", default=-1, ignorable=True)
    record_errors: list[BatchIndexAndErrorMessage] = array(BatchIndexAndErrorMessage, "8+", default=(), ignorable=True)
    error_message: str | None = string("8+", default=None, nullable=ALL, ignorable=True)
    current_leader: LeaderIdAndEpoch | None = struct(LeaderIdAndEpoch, "10+", default=None, tag=0)


class TopicProduceResponse(Struct):
    name: str = string("0-12", default="", ignorable=True)
    topic_id: Uuid = uuid("13+", default=ZERO_UUID, ignorable=True)
    partition_responses: list[PartitionProduceResponse] = array(PartitionProduceResponse)


class NodeEndpoint(Struct):
    node_id: int = int32()
    host: str = string()
    port: int = int32()
    rack: str | None = string(default=None, nullable=ALL)


class ProduceResponse(Message, versions="3-13", flexible="9+", api_key=0):
    responses: list[TopicProduceResponse] = array(TopicProduceResponse)
    throttle_time_ms: int = int32(default=0)
    node_endpoints: list[NodeEndpoint] = array(NodeEndpoint, "10+", default=(), tag=0)
