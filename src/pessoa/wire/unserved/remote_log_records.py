"""The records of `__remote_log_metadata`, the tiered-storage log of Apache Kafka."""

from __future__ import annotations

from pessoa.base.ids import Uuid
from pessoa.wire.schema import ALL, Message, Struct, array, binary, boolean, int8, int32, int64, string, struct, uuid


class TopicIdPartitionEntry(Struct):
    name: str = string()
    id: Uuid = uuid()
    partition: int = int32()


class RemoteLogSegmentIdEntry(Struct):
    topic_id_partition: TopicIdPartitionEntry = struct(TopicIdPartitionEntry)
    id: Uuid = uuid()


class SegmentLeaderEpochEntry(Struct):
    leader_epoch: int = int32()
    offset: int = int64()


class RemoteLogSegmentMetadataRecord(Message, versions="0", flexible="0+", api_key=0):
    remote_log_segment_id: RemoteLogSegmentIdEntry = struct(RemoteLogSegmentIdEntry)
    start_offset: int = int64()
    end_offset: int = int64()
    broker_id: int = int32()
    max_timestamp_ms: int = int64()
    event_timestamp_ms: int = int64()
    segment_leader_epochs: list[SegmentLeaderEpochEntry] = array(SegmentLeaderEpochEntry)
    segment_size_in_bytes: int = int32()
    custom_metadata: bytes | None = binary(default=None, nullable=ALL)
    remote_log_segment_state: int = int8()
    txn_index_empty: bool = boolean(default=False, tag=0)


class RemoteLogSegmentMetadataSnapshotRecordSegmentLeaderEpochEntry(Struct):
    leader_epoch: int = int32()
    offset: int = int64()


class RemoteLogSegmentMetadataSnapshotRecord(Message, versions="0", flexible="0+", api_key=3):
    segment_id: Uuid = uuid()
    start_offset: int = int64()
    end_offset: int = int64()
    broker_id: int = int32()
    max_timestamp_ms: int = int64()
    event_timestamp_ms: int = int64()
    segment_leader_epochs: list[RemoteLogSegmentMetadataSnapshotRecordSegmentLeaderEpochEntry] = array(
        RemoteLogSegmentMetadataSnapshotRecordSegmentLeaderEpochEntry
    )
    segment_size_in_bytes: int = int32()
    custom_metadata: bytes | None = binary(default=None, nullable=ALL)
    remote_log_segment_state: int = int8()
    txn_index_empty: bool = boolean(default=False, tag=0)


class RemoteLogSegmentMetadataUpdateRecordTopicIdPartitionEntry(Struct):
    name: str = string()
    id: Uuid = uuid()
    partition: int = int32()


class RemoteLogSegmentMetadataUpdateRecordRemoteLogSegmentIdEntry(Struct):
    topic_id_partition: RemoteLogSegmentMetadataUpdateRecordTopicIdPartitionEntry = struct(
        RemoteLogSegmentMetadataUpdateRecordTopicIdPartitionEntry
    )
    id: Uuid = uuid()


class RemoteLogSegmentMetadataUpdateRecord(Message, versions="0", flexible="0+", api_key=1):
    remote_log_segment_id: RemoteLogSegmentMetadataUpdateRecordRemoteLogSegmentIdEntry = struct(
        RemoteLogSegmentMetadataUpdateRecordRemoteLogSegmentIdEntry
    )
    broker_id: int = int32()
    event_timestamp_ms: int = int64()
    custom_metadata: bytes | None = binary(default=None, nullable=ALL)
    remote_log_segment_state: int = int8()


class RemotePartitionDeleteMetadataRecordTopicIdPartitionEntry(Struct):
    name: str = string()
    id: Uuid = uuid()
    partition: int = int32()


class RemotePartitionDeleteMetadataRecord(Message, versions="0", flexible="0+", api_key=2):
    topic_id_partition: RemotePartitionDeleteMetadataRecordTopicIdPartitionEntry = struct(
        RemotePartitionDeleteMetadataRecordTopicIdPartitionEntry
    )
    broker_id: int = int32()
    event_timestamp_ms: int = int64()
    remote_partition_delete_state: int = int8()
