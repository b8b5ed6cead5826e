"""The changes from one image to the next, and the effect of every metadata record on an image.

A delta starts from an image, takes records one by one (`replay`), and ends in a new image (`finish`). It keeps what it
touched, so that a subscriber of the image does work in proportion to the change:

    delta.changed_topics    created, or with partitions that are new or changed
    delta.deleted_topics    with the names they had
    delta.changed_configs   (resource type, name)
    delta.changed_brokers   registered, fenced, unfenced, gone

The records here are committed, and the controller checked them before it wrote them. One that does not fit (a change
to a topic that is not there) is a mistake of the writer that cannot be repaired by guessing: it raises KeyError or
AssertionError, and the broker stops, as Kafka does. A record of a kind that only matters elsewhere changes nothing.

The records of a metadata transaction (BeginTransaction … EndTransaction, KIP-868) count together or not at all; that
is the business of `pessoa.metadata.loader`, which decides which records a delta gets to see.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from pessoa.metadata.cluster_image import ClusterDelta
from pessoa.metadata.image import MetadataImage
from pessoa.metadata.table_images import (
    Acl,
    AclsImage,
    ConfigResource,
    ConfigsImage,
    DelegationToken,
    DelegationTokensImage,
    FeaturesImage,
    ProducerIdsImage,
    QuotaEntity,
    QuotasImage,
    ScramCredential,
    ScramImage,
)
from pessoa.metadata.topics_image import TopicsDelta
from pessoa.wire.stored import metadata_records as log

if TYPE_CHECKING:
    from pessoa.base.ids import Uuid
    from pessoa.wire.schema import Message

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")
Setting = TypeVar("Setting")


class TableDelta(Generic[Key, Value]):
    """The changes of a mapping, which is copied at the first change."""

    def __init__(self, before: Mapping[Key, Value]) -> None:
        self.before = before
        self.changed: dict[Key, None] = {}
        self._after: dict[Key, Value] | None = None

    @property
    def after(self) -> Mapping[Key, Value]:
        return self.before if self._after is None else self._after

    def set(self, key: Key, value: Value) -> None:
        self._begin_change(key)[key] = value

    def remove(self, key: Key) -> None:
        if key in self.after:
            del self._begin_change(key)[key]

    def _begin_change(self, key: Key) -> dict[Key, Value]:
        if self._after is None:
            self._after = dict(self.before)
        self.changed[key] = None
        return self._after


class MetadataDelta:
    def __init__(self, old: MetadataImage) -> None:
        self.old = old
        # The result, once `finish` has been called.
        self.new = old
        self.topics = TopicsDelta(old.topics)
        self.cluster = ClusterDelta(old.cluster)
        self.features: TableDelta[str, int] = TableDelta(old.features.finalized)
        self.configs: TableDelta[tuple[int, str], Mapping[str, str]] = TableDelta(old.configs.by_resource)
        self.quotas: TableDelta[QuotaEntity, Mapping[str, float]] = TableDelta(old.quotas.by_entity)
        self.scram: TableDelta[tuple[str, int], ScramCredential] = TableDelta(old.scram.credentials)
        self.tokens: TableDelta[str, DelegationToken] = TableDelta(old.delegation_tokens.by_id)
        self.acls: TableDelta[Uuid, Acl] = TableDelta(old.acls.by_id)
        self.next_producer_id = old.producer_ids.next_producer_id
        self.kraft_version = old.features.kraft_version

    def __repr__(self) -> str:
        return (
            f"<MetadataDelta {self.old.offset}..{self.new.offset}: {len(self.changed_topics)} topics changed, "
            f"{len(self.deleted_topics)} deleted>"
        )

    # What changed.

    @property
    def changed_topics(self) -> Mapping[Uuid, object]:
        return self.topics.changed

    @property
    def deleted_topics(self) -> Mapping[Uuid, str]:
        return self.topics.deleted

    @property
    def changed_configs(self) -> Mapping[tuple[int, str], None]:
        return self.configs.changed

    @property
    def changed_brokers(self) -> Mapping[int, object]:
        return self.cluster.changed_brokers

    # Making it.

    def replay(self, record: Message) -> None:
        _REPLAY[type(record)](self, record)

    def finish(self, offset: int, epoch: int) -> MetadataImage:
        old = self.old
        features = old.features
        if self.features.changed or self.kraft_version != features.kraft_version:
            features = FeaturesImage(self.features.after, self.kraft_version)
        producer_ids = old.producer_ids
        if self.next_producer_id != producer_ids.next_producer_id:
            producer_ids = ProducerIdsImage(self.next_producer_id)
        self.new = MetadataImage(
            offset=offset,
            epoch=epoch,
            features=features,
            cluster=self.cluster.finish(),
            topics=self.topics.finish(),
            configs=ConfigsImage(self.configs.after) if self.configs.changed else old.configs,
            quotas=QuotasImage(self.quotas.after) if self.quotas.changed else old.quotas,
            scram=ScramImage(self.scram.after) if self.scram.changed else old.scram,
            acls=AclsImage(self.acls.after) if self.acls.changed else old.acls,
            producer_ids=producer_ids,
            delegation_tokens=(
                DelegationTokensImage(self.tokens.after) if self.tokens.changed else old.delegation_tokens
            ),
        )
        return self.new

    # One method for each record that needs more than a line.

    def _replay_config(self, record: log.ConfigRecord) -> None:
        resource = (record.resource_type, record.resource_name)
        values = dict(self.configs.after.get(resource, {}))
        if record.value is None:
            values.pop(record.name, None)
        else:
            values[record.name] = record.value
        _set_or_remove(self.configs, resource, values)

    def _replay_client_quota(self, record: log.ClientQuotaRecord) -> None:
        entity = quota_entity({one.entity_type: one.entity_name for one in record.entity})
        values = dict(self.quotas.after.get(entity, {}))
        if record.remove:
            values.pop(record.key, None)
        else:
            values[record.key] = record.value
        _set_or_remove(self.quotas, entity, values)

    def _replay_feature_level(self, record: log.FeatureLevelRecord) -> None:
        if record.feature_level:
            self.features.set(record.name, record.feature_level)
        else:
            self.features.remove(record.name)

    def _replay_remove_topic(self, record: log.RemoveTopicRecord) -> None:
        # The topic's configuration is removed with it; no record is written for that.
        self.configs.remove((ConfigResource.TOPIC, self.topics.replay_remove(record)))

    def _replay_scram(self, record: log.UserScramCredentialRecord) -> None:
        credential = ScramCredential(record.salt, record.stored_key, record.server_key, record.iterations)
        self.scram.set((record.name, record.mechanism), credential)

    def _replay_token(self, record: log.DelegationTokenRecord) -> None:
        self.tokens.set(
            record.token_id,
            DelegationToken(
                token_id=record.token_id,
                owner=record.owner,
                requester=record.requester,
                renewers=tuple(record.renewers),
                issue_timestamp_ms=record.issue_timestamp,
                max_timestamp_ms=record.max_timestamp,
                expiration_timestamp_ms=record.expiration_timestamp,
            ),
        )

    def _replay_acl(self, record: log.AccessControlEntryRecord) -> None:
        acl = Acl(
            record.resource_type,
            record.resource_name,
            record.pattern_type,
            record.principal,
            record.host,
            record.operation,
            record.permission_type,
        )
        self.acls.set(record.id, acl)

    def _replay_producer_ids(self, record: log.ProducerIdsRecord) -> None:
        self.next_producer_id = record.next_producer_id

    def _ignore(self, record: Message) -> None:
        """Ignore a record that changes nothing in the image."""


def _set_or_remove(table: TableDelta[Key, Mapping[str, Setting]], key: Key, values: Mapping[str, Setting]) -> None:
    if values:
        table.set(key, values)
    else:
        table.remove(key)


def full_delta(image: MetadataImage) -> MetadataDelta:
    """Return the delta from the empty image to this one."""
    delta = MetadataDelta(MetadataImage.EMPTY)
    delta.new = image
    for topic_id, topic in image.topics.by_id.items():
        delta.topics.names[topic_id] = topic.name
        delta.topics.changed[topic_id] = dict(topic.partitions)
    delta.cluster.changed_brokers.update(image.cluster.brokers)
    delta.cluster.changed_controllers.update(image.cluster.controllers)
    delta.features.changed.update(dict.fromkeys(image.features.finalized))
    delta.configs.changed.update(dict.fromkeys(image.configs.by_resource))
    delta.quotas.changed.update(dict.fromkeys(image.quotas.by_entity))
    delta.scram.changed.update(dict.fromkeys(image.scram.credentials))
    delta.tokens.changed.update(dict.fromkeys(image.delegation_tokens.by_id))
    delta.acls.changed.update(dict.fromkeys(image.acls.by_id))
    return delta


def difference(old: MetadataImage, new: MetadataImage) -> MetadataDelta:
    """Return the delta between two images, computed without records: a snapshot was loaded in place of the image."""
    delta = MetadataDelta(old)
    delta.new = new
    for topic_id, topic in new.topics.by_id.items():
        if old.topics.by_id.get(topic_id) != topic:
            delta.topics.names[topic_id] = topic.name
            delta.topics.changed[topic_id] = dict(topic.partitions)
    for topic_id, topic in old.topics.by_id.items():
        if topic_id not in new.topics.by_id:
            delta.topics.deleted[topic_id] = topic.name
    for broker_id in {**old.cluster.brokers, **new.cluster.brokers}:
        if old.cluster.brokers.get(broker_id) != new.cluster.brokers.get(broker_id):
            delta.cluster.changed_brokers[broker_id] = new.cluster.brokers.get(broker_id)
    for controller_id, controller in new.cluster.controllers.items():
        if old.cluster.controllers.get(controller_id) != controller:
            delta.cluster.changed_controllers[controller_id] = controller
    _note_changes(delta.features, new.features.finalized)
    _note_changes(delta.configs, new.configs.by_resource)
    _note_changes(delta.quotas, new.quotas.by_entity)
    _note_changes(delta.scram, new.scram.credentials)
    _note_changes(delta.tokens, new.delegation_tokens.by_id)
    _note_changes(delta.acls, new.acls.by_id)
    return delta


def _note_changes(table: TableDelta[Key, Value], after: Mapping[Key, Value]) -> None:
    for key in {**table.before, **after}:
        if table.before.get(key) != after.get(key):
            table.changed[key] = None


def quota_entity(parts: Mapping[str, str | None]) -> QuotaEntity:
    """Return the key of a quota: its parts sorted by type, so that their order in a request does not matter."""
    return tuple(sorted(parts.items()))


_REPLAY: dict[type[Message], Callable[[MetadataDelta, Any], object]] = {
    log.TopicRecord: lambda delta, record: delta.topics.replay_topic(record),
    log.PartitionRecord: lambda delta, record: delta.topics.replay_partition(record),
    log.PartitionChangeRecord: lambda delta, record: delta.topics.replay_change(record),
    log.ClearElrRecord: lambda delta, record: delta.topics.replay_clear_elr(record),
    log.RemoveTopicRecord: MetadataDelta._replay_remove_topic,
    log.RegisterBrokerRecord: lambda delta, record: delta.cluster.replay_register(record),
    log.UnregisterBrokerRecord: lambda delta, record: delta.cluster.replay_unregister(record),
    log.FenceBrokerRecord: lambda delta, record: delta.cluster.replay_fence(record.id, record.epoch, True),
    log.UnfenceBrokerRecord: lambda delta, record: delta.cluster.replay_fence(record.id, record.epoch, False),
    log.BrokerRegistrationChangeRecord: lambda delta, record: delta.cluster.replay_change(record),
    log.RegisterControllerRecord: lambda delta, record: delta.cluster.replay_register_controller(record),
    log.FeatureLevelRecord: MetadataDelta._replay_feature_level,
    log.ConfigRecord: MetadataDelta._replay_config,
    log.ClientQuotaRecord: MetadataDelta._replay_client_quota,
    log.UserScramCredentialRecord: MetadataDelta._replay_scram,
    log.RemoveUserScramCredentialRecord: lambda delta, record: delta.scram.remove((record.name, record.mechanism)),
    log.DelegationTokenRecord: MetadataDelta._replay_token,
    log.RemoveDelegationTokenRecord: lambda delta, record: delta.tokens.remove(record.token_id),
    log.AccessControlEntryRecord: MetadataDelta._replay_acl,
    log.RemoveAccessControlEntryRecord: lambda delta, record: delta.acls.remove(record.id),
    log.ProducerIdsRecord: MetadataDelta._replay_producer_ids,
    log.NoOpRecord: MetadataDelta._ignore,
    # Kafka 4 left ZooKeeper behind; the records of a cluster that once had it stay readable.
    log.ZkMigrationStateRecord: MetadataDelta._ignore,
}
