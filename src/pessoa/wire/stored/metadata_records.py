"""The records of `__cluster_metadata`: everything that the controllers agree on."""

from __future__ import annotations

from pessoa.base.ids import Uuid
from pessoa.wire.schema import (
    ALL,
    Message,
    Struct,
    array,
    binary,
    boolean,
    float64,
    int8,
    int16,
    int32,
    int64,
    string,
    uint16,
    uuid,
)


class BrokerEndpoint(Struct):
    name: str = string()
    host: str = string()
    port: int = uint16()
    security_protocol: int = int16()


class BrokerFeature(Struct):
    name: str = string()
    min_supported_version: int = int16()
    max_supported_version: int = int16()


class RegisterBrokerRecord(Message, versions="0-4", flexible="0+", api_key=0):
    broker_id: int = int32()
    is_migrating_zk_broker: bool = boolean("2+", default=False)
    incarnation_id: Uuid = uuid()
    broker_epoch: int = int64()
    end_points: list[BrokerEndpoint] = array(BrokerEndpoint)
    features: list[BrokerFeature] = array(BrokerFeature)
    rack: str | None = string(nullable=ALL)
    fenced: bool = boolean(default=True)
    in_controlled_shutdown: bool = boolean("1+", default=False)
    log_dirs: list[Uuid] = array("uuid", "3+", default=(), tag=0)
    cordoned_log_dirs: list[Uuid] | None = array("uuid", "4+", default=None, nullable=ALL, tag=1)


class UnregisterBrokerRecord(Message, versions="0", flexible="0+", api_key=1):
    broker_id: int = int32()
    broker_epoch: int = int64()


class TopicRecord(Message, versions="0", flexible="0+", api_key=2):
    name: str = string()
    topic_id: Uuid = uuid()


class PartitionRecord(Message, versions="0-2", flexible="0+", api_key=3):
    partition_id: int = int32(default=-1)
    topic_id: Uuid = uuid()
    replicas: list[int] = array("int32")
    isr: list[int] = array("int32")
    removing_replicas: list[int] = array("int32")
    adding_replicas: list[int] = array("int32")
    leader: int = int32(default=-1)
    leader_recovery_state: int = int8(default=0, tag=0)
    leader_epoch: int = int32(default=-1)
    partition_epoch: int = int32(default=-1)
    directories: list[Uuid] = array("uuid", "1+", default=())
    eligible_leader_replicas: list[int] | None = array("int32", "2+", default=None, nullable=ALL, tag=1)
    last_known_elr: list[int] | None = array("int32", "2+", default=None, nullable=ALL, tag=2)


class ConfigRecord(Message, versions="0", flexible="0+", api_key=4):
    resource_type: int = int8()
    resource_name: str = string()
    name: str = string()
    value: str | None = string(nullable=ALL)


class PartitionChangeRecord(Message, versions="0-2", flexible="0+", api_key=5):
    partition_id: int = int32(default=-1)
    topic_id: Uuid = uuid()
    isr: list[int] | None = array("int32", default=None, nullable=ALL, tag=0)
    leader: int = int32(default=-2, tag=1)
    replicas: list[int] | None = array("int32", default=None, nullable=ALL, tag=2)
    removing_replicas: list[int] | None = array("int32", default=None, nullable=ALL, tag=3)
    adding_replicas: list[int] | None = array("int32", default=None, nullable=ALL, tag=4)
    leader_recovery_state: int = int8(default=-1, tag=5)
    directories: list[Uuid] | None = array("uuid", "1+", default=None, nullable=ALL, tag=8)
    eligible_leader_replicas: list[int] | None = array("int32", "2+", default=None, nullable=ALL, tag=6)
    last_known_elr: list[int] | None = array("int32", "2+", default=None, nullable=ALL, tag=7)


class FenceBrokerRecord(Message, versions="0", flexible="0+", api_key=7):
    id: int = int32()
    epoch: int = int64()


class UnfenceBrokerRecord(Message, versions="0", flexible="0+", api_key=8):
    id: int = int32()
    epoch: int = int64()


class RemoveTopicRecord(Message, versions="0", flexible="0+", api_key=9):
    topic_id: Uuid = uuid()


class DelegationTokenRecord(Message, versions="0", flexible="0+", api_key=10):
    owner: str = string()
    requester: str = string()
    renewers: list[str] = array("string")
    issue_timestamp: int = int64()
    max_timestamp: int = int64()
    expiration_timestamp: int = int64()
    token_id: str = string()


class UserScramCredentialRecord(Message, versions="0", flexible="0+", api_key=11):
    name: str = string()
    mechanism: int = int8()
    salt: bytes = binary()
    stored_key: bytes = binary()
    server_key: bytes = binary()
    iterations: int = int32()


class FeatureLevelRecord(Message, versions="0", flexible="0+", api_key=12):
    name: str = string()
    feature_level: int = int16()


class EntityData(Struct):
    entity_type: str = string()
    entity_name: str | None = string(nullable=ALL)


class ClientQuotaRecord(Message, versions="0", flexible="0+", api_key=14):
    entity: list[EntityData] = array(EntityData)
    key: str = string()
    value: float = float64()
    remove: bool = boolean()


class ProducerIdsRecord(Message, versions="0", flexible="0+", api_key=15):
    broker_id: int = int32()
    broker_epoch: int = int64(default=-1)
    next_producer_id: int = int64()


class BrokerRegistrationChangeRecord(Message, versions="0-3", flexible="0+", api_key=17):
    broker_id: int = int32()
    broker_epoch: int = int64()
    fenced: int = int8(default=0, tag=0)
    in_controlled_shutdown: int = int8("1+", default=0, tag=1)
    log_dirs: list[Uuid] = array("uuid", "2+", default=(), tag=2)
    cordoned_log_dirs: list[Uuid] | None = array("uuid", "3+", default=None, nullable=ALL, tag=3)


class AccessControlEntryRecord(Message, versions="0", flexible="0+", api_key=18):
    id: Uuid = uuid()
    resource_type: int = int8()
    resource_name: str = string()
    pattern_type: int = int8()
    principal: str = string()
    host: str = string()
    operation: int = int8()
    permission_type: int = int8()


class RemoveAccessControlEntryRecord(Message, versions="0", flexible="0+", api_key=19):
    id: Uuid = uuid()


class NoOpRecord(Message, versions="0", flexible="0+", api_key=20):
    pass


class ZkMigrationStateRecord(Message, versions="0", flexible="0+", api_key=21):
    zk_migration_state: int = int8()


class RemoveUserScramCredentialRecord(Message, versions="0", flexible="0+", api_key=22):
    name: str = string()
    mechanism: int = int8()


class BeginTransactionRecord(Message, versions="0", flexible="0+", api_key=23):
    name: str | None = string(default=None, nullable=ALL, tag=0)


class EndTransactionRecord(Message, versions="0", flexible="0+", api_key=24):
    pass


class AbortTransactionRecord(Message, versions="0", flexible="0+", api_key=25):
    reason: str | None = string(default=None, nullable=ALL, tag=0)


class RemoveDelegationTokenRecord(Message, versions="0", flexible="0+", api_key=26):
    token_id: str = string()


class ControllerEndpoint(Struct):
    name: str = string()
    host: str = string()
    port: int = uint16()
    security_protocol: int = int16()


class ControllerFeature(Struct):
    name: str = string()
    min_supported_version: int = int16()
    max_supported_version: int = int16()


class RegisterControllerRecord(Message, versions="0", flexible="0+", api_key=27):
    controller_id: int = int32()
    incarnation_id: Uuid = uuid()
    zk_migration_ready: bool = boolean()
    end_points: list[ControllerEndpoint] = array(ControllerEndpoint)
    features: list[ControllerFeature] = array(ControllerFeature)


class ClearElrRecord(Message, versions="0", flexible="0+", api_key=28):
    topic_name: str = string()
