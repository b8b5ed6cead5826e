"""The effect of single records on an image, and the changes that a delta has."""

from __future__ import annotations

import pytest

from pessoa.base.ids import Uuid
from pessoa.metadata.delta import _REPLAY, MetadataDelta, full_delta
from pessoa.metadata.image import ConfigResource, MetadataImage
from pessoa.metadata.loader import MetadataLoader
from pessoa.metadata.table_images import Acl, DelegationToken, ScramCredential
from pessoa.metadata.topics_image import DIRECTORY_MIGRATING
from pessoa.wire.schema import Message
from pessoa.wire.stored import metadata_records as log

TOPIC_ID, OTHER_ID = Uuid.of(1001), Uuid.of(1002)
HERE, THERE = Uuid.of(2001), Uuid.of(2002)


def applied(*records: Message, to: MetadataImage = MetadataImage.EMPTY) -> MetadataImage:
    return to.apply(records, to.offset + len(records), 1)


def partition(index: int = 0, topic_id: Uuid = TOPIC_ID) -> log.PartitionRecord:
    return log.PartitionRecord(
        partition_id=index, topic_id=topic_id, replicas=[1, 2], isr=[1, 2], removing_replicas=[], adding_replicas=[],
        leader=1, leader_epoch=4, partition_epoch=7, directories=[HERE, THERE],
    )  # fmt: skip


def broker(broker_id: int = 1, **changes: object) -> log.RegisterBrokerRecord:
    record = log.RegisterBrokerRecord(
        broker_id=broker_id, incarnation_id=Uuid.of(99), broker_epoch=5, rack="r", log_dirs=[HERE],
        end_points=[log.BrokerEndpoint(name="PLAINTEXT", host="h", port=9092, security_protocol=0)],
        features=[log.BrokerFeature(name="metadata.version", min_supported_version=7, max_supported_version=30)],
    )  # fmt: skip
    for name, value in changes.items():
        setattr(record, name, value)
    return record


@pytest.fixture
def image() -> MetadataImage:
    return applied(log.TopicRecord(name="t", topic_id=TOPIC_ID), partition(), broker())


def test_every_metadata_record_type_has_a_replay_function() -> None:
    kinds = [kind for kind in vars(log).values() if isinstance(kind, type) and issubclass(kind, Message)]
    of_transactions = (log.BeginTransactionRecord, log.EndTransactionRecord, log.AbortTransactionRecord)
    assert {kind for kind in kinds if kind not in (Message, *of_transactions)} == set(_REPLAY)


# ---- Partitions ----


def test_a_partition_change_keeps_the_fields_that_it_does_not_name(image: MetadataImage) -> None:
    before = image.topics.by_name["t"].partitions[0]
    changed = applied(log.PartitionChangeRecord(partition_id=0, topic_id=TOPIC_ID, isr=[2]), to=image)
    after = changed.topics.by_name["t"].partitions[0]
    assert after == before._replace(isr=(2,), partition_epoch=8)


def test_a_partition_change_that_names_the_leader_raises_the_leader_epoch_even_if_it_is_the_same(
    image: MetadataImage,
) -> None:
    changed = applied(log.PartitionChangeRecord(partition_id=0, topic_id=TOPIC_ID, leader=1), to=image)
    assert changed.topics.by_name["t"].partitions[0].leader_epoch == 5


def test_new_replicas_without_directories_get_the_migrating_directory_id(image: MetadataImage) -> None:
    changed = applied(log.PartitionChangeRecord(partition_id=0, topic_id=TOPIC_ID, replicas=[1, 2, 3]), to=image)
    assert changed.topics.by_name["t"].partitions[0].directories == (DIRECTORY_MIGRATING,) * 3


def test_older_partition_records_have_no_directories_and_no_elr() -> None:
    record = partition()
    record.directories = []
    made = applied(log.TopicRecord(name="t", topic_id=TOPIC_ID), record).topics.by_name["t"].partitions[0]
    assert made.directories == (DIRECTORY_MIGRATING, DIRECTORY_MIGRATING)
    assert (made.elr, made.last_known_elr) == ((), ())


def test_a_record_for_an_unknown_topic_raises_an_error(image: MetadataImage) -> None:
    with pytest.raises(KeyError):
        applied(log.PartitionChangeRecord(partition_id=0, topic_id=OTHER_ID, leader=1), to=image)
    with pytest.raises(AssertionError, match="has the partitions"):
        applied(partition(2), to=image)


def test_a_topic_may_be_deleted_and_created_again_in_one_batch(image: MetadataImage) -> None:
    delta = MetadataDelta(image)
    for record in (
        log.RemoveTopicRecord(topic_id=TOPIC_ID),
        log.TopicRecord(name="t", topic_id=OTHER_ID),
        partition(0, OTHER_ID),
    ):
        delta.replay(record)
    new = delta.finish(9, 1)
    assert new.topics.by_name["t"].id == OTHER_ID
    assert list(delta.changed_topics) == [OTHER_ID]
    assert delta.deleted_topics == {TOPIC_ID: "t"}


def test_a_topic_that_is_created_and_deleted_in_one_batch_is_not_in_the_delta(image: MetadataImage) -> None:
    delta = MetadataDelta(image)
    for record in (
        log.TopicRecord(name="u", topic_id=OTHER_ID),
        partition(0, OTHER_ID),
        log.RemoveTopicRecord(topic_id=OTHER_ID),
    ):
        delta.replay(record)
    assert delta.finish(9, 1).topics == image.topics
    assert not delta.changed_topics
    assert not delta.deleted_topics


def test_a_clear_elr_record_clears_the_elr_of_one_topic_or_of_all(image: MetadataImage) -> None:
    eligible = applied(
        log.TopicRecord(name="u", topic_id=OTHER_ID),
        partition(0, OTHER_ID),
        log.PartitionChangeRecord(partition_id=0, topic_id=TOPIC_ID, eligible_leader_replicas=[2], last_known_elr=[1]),
        log.PartitionChangeRecord(partition_id=0, topic_id=OTHER_ID, eligible_leader_replicas=[2]),
        to=image,
    )

    def elr(image: MetadataImage) -> list[tuple[int, ...]]:
        return [image.topics.by_name[name].partitions[0].elr for name in ("t", "u")]

    assert elr(eligible) == [(2,), (2,)]
    assert elr(applied(log.ClearElrRecord(topic_name="u"), to=eligible)) == [(2,), ()]
    cleared = applied(log.ClearElrRecord(topic_name=""), to=eligible)
    assert elr(cleared) == [(), ()]
    assert cleared.topics.by_name["t"].partitions[0].last_known_elr == ()


# ---- Brokers ----


def test_a_broker_is_fenced_and_unfenced_by_either_record_type(image: MetadataImage) -> None:
    def fenced(*records: Message) -> bool:
        return applied(*records, to=image).cluster.brokers[1].fenced

    assert fenced(log.FenceBrokerRecord(id=1, epoch=5))
    assert not fenced(log.UnfenceBrokerRecord(id=1, epoch=5))
    assert fenced(log.BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=5, fenced=1))
    assert not fenced(log.BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=5, fenced=-1))


def test_a_registration_change_keeps_the_fields_that_it_does_not_name(image: MetadataImage) -> None:
    before = image.cluster.brokers[1]
    same = log.BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=5)
    assert applied(same, to=image).cluster.brokers[1] == before
    change = log.BrokerRegistrationChangeRecord(
        broker_id=1, broker_epoch=5, in_controlled_shutdown=1, log_dirs=[THERE], cordoned_log_dirs=[]
    )
    after = applied(change, to=image).cluster.brokers[1]
    assert (after.in_controlled_shutdown, after.directories, after.cordoned_directories) == (True, (THERE,), ())
    assert (after.fenced, after.listeners, after.rack) == (before.fenced, before.listeners, "r")


def test_a_record_with_another_broker_epoch_than_the_registered_one_raises_an_error(image: MetadataImage) -> None:
    for record in (
        log.FenceBrokerRecord(id=1, epoch=4),
        log.UnregisterBrokerRecord(broker_id=1, broker_epoch=4),
        log.BrokerRegistrationChangeRecord(broker_id=2, broker_epoch=5),
    ):
        with pytest.raises(AssertionError, match="registered"):
            applied(record, to=image)


def test_an_unregistered_broker_is_removed_from_the_image(image: MetadataImage) -> None:
    assert not applied(log.UnregisterBrokerRecord(broker_id=1, broker_epoch=5), to=image).cluster.brokers


# ---- The flat tables ----


def test_configs_quotas_acls_credentials_and_tokens_are_added_and_removed() -> None:
    credential = log.UserScramCredentialRecord(
        name="u", mechanism=1, salt=b"s", stored_key=b"k", server_key=b"v", iterations=4096
    )
    token = log.DelegationTokenRecord(
        owner="User:o", requester="User:r", renewers=["User:n"], issue_timestamp=1, max_timestamp=3,
        expiration_timestamp=2, token_id="id",
    )  # fmt: skip
    acl = log.AccessControlEntryRecord(
        id=Uuid.of(7777), resource_type=2, resource_name="t", pattern_type=3, principal="User:a", host="*", operation=3,
        permission_type=3,
    )  # fmt: skip
    level = log.FeatureLevelRecord(name="group.version", feature_level=1)
    made = applied(credential, token, acl, level, log.ProducerIdsRecord(broker_id=1, next_producer_id=1000))
    assert made.scram.credentials == {("u", 1): ScramCredential(b"s", b"k", b"v", 4096)}
    assert made.delegation_tokens.by_id == {"id": DelegationToken("id", "User:o", "User:r", ("User:n",), 1, 3, 2)}
    assert made.acls.by_id == {Uuid.of(7777): Acl(2, "t", 3, "User:a", "*", 3, 3)}
    assert made.features.finalized == {"group.version": 1}
    assert made.producer_ids.next_producer_id == 1000
    gone = applied(
        log.RemoveUserScramCredentialRecord(name="u", mechanism=1),
        log.RemoveDelegationTokenRecord(token_id="id"),
        log.RemoveAccessControlEntryRecord(id=Uuid.of(7777)),
        log.FeatureLevelRecord(name="group.version", feature_level=0),
        to=made,
    )
    assert not gone.scram.credentials
    assert not gone.delegation_tokens.by_id
    assert not gone.acls.by_id
    assert not gone.features.finalized


def test_unchanged_parts_of_an_image_are_shared_with_the_previous_image(image: MetadataImage) -> None:
    setting = log.ConfigRecord(resource_type=2, resource_name="t", name="k", value="v")
    after = applied(setting, log.NoOpRecord(), to=image)
    assert after.topics is image.topics
    assert after.cluster is image.cluster
    assert after.acls is image.acls
    assert after.configs is not image.configs
    assert after.configs.of(ConfigResource.TOPIC, "t") == {"k": "v"}
    assert after.configs.names(ConfigResource.TOPIC) == ["t"]


# ---- Deltas ----


def test_a_full_delta_names_everything_in_the_image(image: MetadataImage) -> None:
    setting = log.ConfigRecord(resource_type=2, resource_name="t", name="k", value="v")
    delta = full_delta(applied(setting, to=image))
    assert list(delta.changed_topics) == [TOPIC_ID]
    assert list(delta.changed_configs) == [(2, "t")]
    assert list(delta.changed_brokers) == [1]
    assert delta.old is MetadataImage.EMPTY


def test_kraft_version_is_set_without_a_metadata_record() -> None:
    loader = MetadataLoader()
    loader.set_kraft_version(1)
    loader.load([log.NoOpRecord()], 0, 1)
    assert loader.image.features.kraft_version == 1


def test_metadata_transactions_cannot_be_nested_nor_end_without_a_beginning() -> None:
    for records in (
        [log.BeginTransactionRecord(), log.BeginTransactionRecord()],
        [log.EndTransactionRecord()],
        [log.AbortTransactionRecord()],
    ):
        with pytest.raises(AssertionError, match="transaction"):
            MetadataLoader().load(records, 0, 1)
