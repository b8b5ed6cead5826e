"""An image as records: the shortest log that makes it (KIP-630).

What comes out, replayed onto nothing, is the image again, but for `offset` and `epoch`, which a snapshot has in its
name, and `kraft.version`, which the quorum writes itself. The order is Kafka's: features first, since they say in which
versions the rest is written; then brokers and controllers, topics with their partitions, and the flat tables.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pessoa.metadata.supported_features import METADATA_4_3_IV0, record_version
from pessoa.metadata.table_images import METADATA_VERSION
from pessoa.wire.stored import metadata_records as log

if TYPE_CHECKING:
    from pessoa.base.ids import Uuid
    from pessoa.metadata.cluster_image import BrokerImage, ControllerImage
    from pessoa.metadata.image import MetadataImage
    from pessoa.metadata.topics_image import PartitionImage
    from pessoa.wire.schema import Message

_FIRST_BROKER_VERSION_WITH_DIRECTORIES = 3
_FIRST_BROKER_VERSION_WITH_CORDONS = 4
_FIRST_PARTITION_VERSION_WITH_DIRECTORIES = 1
_FIRST_PARTITION_VERSION_WITH_ELR = 2


def snapshot_records(image: MetadataImage) -> Iterator[tuple[Message, int]]:
    """Yield the records of a snapshot of the image, each with the version in which it is written."""
    level = image.features.metadata_version or METADATA_4_3_IV0
    for record in _records(image, level):
        yield record, record_version(record, level)


def _records(image: MetadataImage, level: int) -> Iterator[Message]:
    finalized = image.features.finalized
    if METADATA_VERSION in finalized:
        yield log.FeatureLevelRecord(name=METADATA_VERSION, feature_level=finalized[METADATA_VERSION])
    for name in sorted(finalized):
        if name != METADATA_VERSION:
            yield log.FeatureLevelRecord(name=name, feature_level=finalized[name])
    for broker in image.cluster.brokers.values():
        yield _broker(broker, level)
    for controller in image.cluster.controllers.values():
        yield _controller(controller)
    for topic in image.topics.by_name.values():
        yield log.TopicRecord(name=topic.name, topic_id=topic.id)
        for index, partition in topic.partitions.items():
            yield _partition(topic.id, index, partition, level)
    for (kind, resource), values in image.configs.by_resource.items():
        for key, value in values.items():
            yield log.ConfigRecord(resource_type=kind, resource_name=resource, name=key, value=value)
    yield from _tables(image)


def _tables(image: MetadataImage) -> Iterator[Message]:
    for entity, quotas in image.quotas.by_entity.items():
        for key, quota in quotas.items():
            yield log.ClientQuotaRecord(
                entity=[log.EntityData(entity_type=kind, entity_name=name) for kind, name in entity],
                key=key,
                value=quota,
                remove=False,
            )
    if image.producer_ids.next_producer_id > 0:
        # The broker that got the last block is not stored, and nothing reads it.
        yield log.ProducerIdsRecord(broker_id=-1, broker_epoch=-1, next_producer_id=image.producer_ids.next_producer_id)
    for acl_id, acl in image.acls.by_id.items():
        yield log.AccessControlEntryRecord(id=acl_id, **acl._asdict())
    for (user, mechanism), credential in image.scram.credentials.items():
        yield log.UserScramCredentialRecord(name=user, mechanism=mechanism, **credential._asdict())
    for token in image.delegation_tokens.by_id.values():
        yield log.DelegationTokenRecord(
            owner=token.owner,
            requester=token.requester,
            renewers=list(token.renewers),
            issue_timestamp=token.issue_timestamp_ms,
            max_timestamp=token.max_timestamp_ms,
            expiration_timestamp=token.expiration_timestamp_ms,
            token_id=token.token_id,
        )


def _broker(broker: BrokerImage, level: int) -> log.RegisterBrokerRecord:
    record = log.RegisterBrokerRecord(
        broker_id=broker.id,
        incarnation_id=broker.incarnation_id,
        broker_epoch=broker.epoch,
        end_points=[
            log.BrokerEndpoint(name=name, host=one.host, port=one.port, security_protocol=one.security_protocol)
            for name, one in broker.listeners.items()
        ],
        features=[
            log.BrokerFeature(name=name, min_supported_version=one.min, max_supported_version=one.max)
            for name, one in broker.supported_features.items()
        ],
        rack=broker.rack,
        fenced=broker.fenced,
        in_controlled_shutdown=broker.in_controlled_shutdown,
    )
    version = record_version(record, level)
    if version >= _FIRST_BROKER_VERSION_WITH_DIRECTORIES:
        record.log_dirs = list(broker.directories)
    if version >= _FIRST_BROKER_VERSION_WITH_CORDONS and broker.cordoned_directories is not None:
        record.cordoned_log_dirs = list(broker.cordoned_directories)
    return record


def _controller(controller: ControllerImage) -> log.RegisterControllerRecord:
    return log.RegisterControllerRecord(
        controller_id=controller.id,
        incarnation_id=controller.incarnation_id,
        zk_migration_ready=controller.zk_migration_ready,
        end_points=[
            log.ControllerEndpoint(name=name, host=one.host, port=one.port, security_protocol=one.security_protocol)
            for name, one in controller.listeners.items()
        ],
        features=[
            log.ControllerFeature(name=name, min_supported_version=one.min, max_supported_version=one.max)
            for name, one in controller.supported_features.items()
        ],
    )


def _partition(topic_id: Uuid, index: int, partition: PartitionImage, level: int) -> log.PartitionRecord:
    record = log.PartitionRecord(
        partition_id=index,
        topic_id=topic_id,
        replicas=list(partition.replicas),
        isr=list(partition.isr),
        removing_replicas=list(partition.removing_replicas),
        adding_replicas=list(partition.adding_replicas),
        leader=partition.leader,
        leader_recovery_state=partition.leader_recovery_state,
        leader_epoch=partition.leader_epoch,
        partition_epoch=partition.partition_epoch,
    )
    version = record_version(record, level)
    if version >= _FIRST_PARTITION_VERSION_WITH_DIRECTORIES:
        record.directories = list(partition.directories)
    if version >= _FIRST_PARTITION_VERSION_WITH_ELR:
        record.eligible_leader_replicas = list(partition.elr) or None
        record.last_known_elr = list(partition.last_known_elr) or None
    return record
