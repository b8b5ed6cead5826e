"""A partition leader asks the controller to change the in-sync replicas (KIP-497)."""

from __future__ import annotations

from pessoa.base.ids import Uuid
from pessoa.wire.schema import Message, Struct, array, int8, int16, int32, int64, uuid


class BrokerState(Struct):
    broker_id: int = int32()
    broker_epoch: int = int64(default=-1)


class PartitionData(Struct):
    partition_index: int = int32()
    leader_epoch: int = int32()
    new_isr: list[int] = array("int32", "0-2", default=())
    new_isr_with_epochs: list[BrokerState] = array(BrokerState, "3+", default=())
    leader_recovery_state: int = int8(default=0)
    partition_epoch: int = int32()


class TopicData(Struct):
    topic_id: Uuid = uuid()
    partitions: list[PartitionData] = array(PartitionData)


class AlterPartitionRequest(Message, versions="2-3", flexible="0+", api_key=56):
    broker_id: int = int32()
    broker_epoch: int = int64(default=-1)
    topics: list[TopicData] = array(TopicData)


class AlterPartitionResponsePartitionData(Struct):
    partition_index: int = int32()
    error_code: int = int16()
    leader_id: int = int32()
    leader_epoch: int = int32()
    isr: list[int] = array("int32")
    leader_recovery_state: int = int8(default=0)
    partition_epoch: int = int32()


class AlterPartitionResponseTopicData(Struct):
    topic_id: Uuid = uuid()
    partitions: list[AlterPartitionResponsePartitionData] = array(AlterPartitionResponsePartitionData)


class AlterPartitionResponse(Message, versions="2-3", flexible="0+", api_key=56):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    topics: list[AlterPartitionResponseTopicData] = array(AlterPartitionResponseTopicData)
