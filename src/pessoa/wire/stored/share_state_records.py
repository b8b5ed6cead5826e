"""The records of `__share_group_state`."""

from __future__ import annotations

from pessoa.base.ids import Uuid
from pessoa.wire.schema import Message, Struct, array, int8, int16, int32, int64, string, uuid


class ShareSnapshotKey(Message, versions="0", flexible="none", api_key=0):
    group_id: str = string()
    topic_id: Uuid = uuid()
    partition: int = int32()


class StateBatch(Struct):
    first_offset: int = int64()
    last_offset: int = int64()
    delivery_state: int = int8()
    delivery_count: int = int16()


class ShareSnapshotValue(Message, versions="0", flexible="0+", api_key=0):
    snapshot_epoch: int = int32()
    state_epoch: int = int32()
    leader_epoch: int = int32()
    start_offset: int = int64()
    delivery_complete_count: int = int32(default=-1, tag=0)
    create_timestamp: int = int64()
    write_timestamp: int = int64()
    state_batches: list[StateBatch] = array(StateBatch)


class ShareUpdateKey(Message, versions="0", flexible="none", api_key=1):
    group_id: str = string()
    topic_id: Uuid = uuid()
    partition: int = int32()


class ShareUpdateValueStateBatch(Struct):
    first_offset: int = int64()
    last_offset: int = int64()
    delivery_state: int = int8()
    delivery_count: int = int16()


class ShareUpdateValue(Message, versions="0", flexible="0+", api_key=1):
    snapshot_epoch: int = int32()
    leader_epoch: int = int32()
    start_offset: int = int64()
    delivery_complete_count: int = int32(default=-1, tag=0)
    state_batches: list[ShareUpdateValueStateBatch] = array(ShareUpdateValueStateBatch)
