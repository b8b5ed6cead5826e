"""Reads a piece of a snapshot of the metadata log (KIP-630)."""

from __future__ import annotations

from pessoa.base.ids import ZERO_UUID, Uuid
from pessoa.wire.primitives import MAX_INT32
from pessoa.wire.schema import ALL, Message, Struct, array, batches, int16, int32, int64, string, struct, uint16, uuid


class SnapshotId(Struct):
    end_offset: int = int64()
    epoch: int = int32()


class PartitionSnapshot(Struct):
    partition: int = int32()
    current_leader_epoch: int = int32()
    snapshot_id: SnapshotId = struct(SnapshotId)
    position: int = int64()
    replica_directory_id: Uuid = uuid("1+", default=ZERO_UUID, tag=0, ignorable=True)


class TopicSnapshot(Struct):
    name: str = string()
    partitions: list[PartitionSnapshot] = array(PartitionSnapshot)


class FetchSnapshotRequest(Message, versions="0-1", flexible="0+", api_key=59):
    cluster_id: str | None = string(default=None, nullable=ALL, tag=0)
    replica_id: int = int32(default=-1)
    max_bytes: int = int32(default=MAX_INT32)
    topics: list[TopicSnapshot] = array(TopicSnapshot)


class FetchSnapshotResponseSnapshotId(Struct):
    end_offset: int = int64()
    epoch: int = int32()


class LeaderIdAndEpoch(Struct):
    leader_id: int = int32()
    leader_epoch: int = int32()


class FetchSnapshotResponsePartitionSnapshot(Struct):
    index: int = int32()
    error_code: int = int16()
    snapshot_id: FetchSnapshotResponseSnapshotId = struct(FetchSnapshotResponseSnapshotId)
    current_leader: LeaderIdAndEpoch | None = struct(LeaderIdAndEpoch, default=None, tag=0)
    size: int = int64()
    position: int = int64()
    unaligned_records: memoryview = batches()


class FetchSnapshotResponseTopicSnapshot(Struct):
    name: str = string()
    partitions: list[FetchSnapshotResponsePartitionSnapshot] = array(FetchSnapshotResponsePartitionSnapshot)


class NodeEndpoint(Struct):
    node_id: int = int32()
    host: str = string()
    port: int = uint16()


class FetchSnapshotResponse(Message, versions="0-1", flexible="0+", api_key=59):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    topics: list[FetchSnapshotResponseTopicSnapshot] = array(FetchSnapshotResponseTopicSnapshot)
    node_endpoints: list[NodeEndpoint] = array(NodeEndpoint, "1+", default=(), tag=0)
