"""Creates topics, by counts or by an explicit replica assignment."""

from __future__ import annotations

from pessoa.base.ids import ZERO_UUID, Uuid
from pessoa.wire.schema import ALL, Message, Struct, array, boolean, int8, int16, int32, string, uuid


class CreatableReplicaAssignment(Struct):
    partition_index: int = int32()
    broker_ids: list[int] = array("int32")


class CreatableTopicConfig(Struct):
    name: str = string()
    value: str | None = string(nullable=ALL)


class CreatableTopic(Struct):
    name: str = string()
    num_partitions: int = int32()
    replication_factor: int = int16()
    assignments: list[CreatableReplicaAssignment] = array(CreatableReplicaAssignment)
    configs: list[CreatableTopicConfig] = array(CreatableTopicConfig)


class CreateTopicsRequest(Message, versions="2-7", flexible="5+", api_key=19):
    topics: list[CreatableTopic] = array(CreatableTopic)
    timeout_ms: int = int32(default=60000)
    validate_only: bool = boolean(default=False)


class CreatableTopicConfigs(Struct):
    name: str = string()
    value: str | None = string(nullable=ALL)
    read_only: bool = boolean()
    config_source: int = int8(default=-1)
    is_sensitive: bool = boolean()


class CreatableTopicResult(Struct):
    name: str = string()
    topic_id: Uuid = uuid("7+", default=ZERO_UUID, ignorable=True)
    error_code: int = int16()
    error_message: str | None = string(nullable=ALL)
    topic_config_error_code: int = int16("5+", default=0, tag=0, ignorable=True)
    num_partitions: int = int32("5+", default=-1, ignorable=True)
    replication_factor: int = int16("5+", default=-1, ignorable=True)
    configs: list[CreatableTopicConfigs] | None = array(
        CreatableTopicConfigs, "5+", default=(), nullable=ALL, ignorable=True
    )


class CreateTopicsResponse(Message, versions="2-7", flexible="5+", api_key=19):
    throttle_time_ms: int = int32()
    topics: list[CreatableTopicResult] = array(CreatableTopicResult)
