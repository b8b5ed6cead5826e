"""Attacks 4, 5, 7 to 13 and 19: requests of a logged-in client that no access control list allows."""

from __future__ import annotations

import re
from struct import pack
from typing import Any

import pytest

from pessoa.base.ids import Uuid
from pessoa.broker.api_table import broker_rows
from pessoa.broker.envelope_format import seal
from pessoa.wire.api import (
    add_partitions_to_txn,
    consumer_group_heartbeat,
    delete_groups,
    delete_topics,
    describe_groups,
    describe_topic_partitions,
    end_txn,
    heartbeat,
    init_producer_id,
    join_group,
    leave_group,
    list_groups,
    list_offsets,
    list_transactions,
    offset_commit,
    offset_fetch,
    sync_group,
)
from pessoa.wire.api.create_topics import CreatableTopic, CreateTopicsRequest
from pessoa.wire.api.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from pessoa.wire.api.envelope import EnvelopeResponse
from pessoa.wire.api.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, ReplicaState
from pessoa.wire.api.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from pessoa.wire.api.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from pessoa.wire.api.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from pessoa.wire.catalogue import ApiKey
from pessoa.wire.errors import ErrorCode
from pessoa.wire.schema import Message
from tests.attacks.attack_stage import (
    ADMIN,
    ANA,
    BESIDE,
    CONTROLLER,
    HIDDEN,
    LOGIN,
    MALLORY,
    MINE,
    AttackStage,
    raw_answer,
)  # fmt: skip
from tests.support.batches import plain, transactional
from tests.support.clients import until
from tests.support.crash_wire import Closed, Wire, fetch, framed, now_ms, produce_request

ABSENT = "absent-topic"
assert len(ABSENT) == len(HIDDEN)
TXN, GROUP = "anas", "anas"
BROKER = 4


def topic_id(wire: Wire, name: str) -> Uuid:
    asked = MetadataRequest(topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=False)
    [topic] = wire.ask(asked, MetadataResponse, 12).topics
    assert topic.error_code == ErrorCode.NONE
    found: Uuid = topic.topic_id
    return found


# Attacks 4 and 5: APIs and versions.


def test_attack_4_removed_versions_close_the_connection_and_broker_requests_of_clients_are_denied(
    stage: AttackStage, request: pytest.FixtureRequest
) -> None:
    with stage.attack(4, request, max_mib=16):
        for row in broker_rows():
            if row.key is ApiKey.API_VERSIONS:
                continue
            for version in (row.versions.first - 1, row.versions.last + 1, 0x7FFF, -1):
                with stage.as_user(MALLORY, LOGIN) as wire:
                    wire.send(framed(pack(">hhih", row.key, version, 7, -1) + bytes(64)))
                    with pytest.raises(Closed):
                        wire.frame()
        with stage.as_user(MALLORY) as wire:
            topic = add_partitions_to_txn.AddPartitionsToTxnTopic(name=HIDDEN, partitions=[0])
            one = add_partitions_to_txn.AddPartitionsToTxnTransaction(
                transactional_id=TXN, producer_id=0, producer_epoch=0, topics=[topic]
            )
            asked = add_partitions_to_txn.AddPartitionsToTxnRequest(transactions=[one])
            answer = wire.ask(asked, add_partitions_to_txn.AddPartitionsToTxnResponse, 4)
            assert answer.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED


def test_attack_5_an_envelope_is_accepted_from_nodes_only_and_not_nested(
    stage: AttackStage, request: pytest.FixtureRequest
) -> None:
    topic = CreatableTopic(name="by-envelope", num_partitions=1, replication_factor=1, assignments=[], configs=[])
    create = CreateTopicsRequest(topics=[topic], timeout_ms=1000)
    honest = seal(create, 7, None, "User:admin", "127.0.0.1")
    with stage.attack(5, request, max_mib=16):
        with stage.as_user(ADMIN, LOGIN) as wire:
            wire.write(honest, 0)
            assert wire.is_closed(), "it is none of the APIs for clients"
        with stage.as_user(MALLORY, CONTROLLER) as wire:
            answer = wire.ask(honest, EnvelopeResponse, 0)
            assert answer.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        with stage.as_user(ADMIN, CONTROLLER) as wire:
            nested = seal(honest, 0, None, "User:admin", "127.0.0.1")
            not_forwarded = seal(
                produce_request(HIDDEN, plain(timestamp=now_ms())), 12, None, "User:admin", "127.0.0.1"
            )
            for envelope in (nested, not_forwarded):
                assert wire.ask(envelope, EnvelopeResponse, 0).error_code == ErrorCode.INVALID_REQUEST
            broken = seal(create, 7, None, "User:admin", "127.0.0.1")
            broken.request_principal = b"\xff" * 40
            assert wire.ask(broken, EnvelopeResponse, 0).error_code == ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE
        assert not exists(stage, "by-envelope")


def exists(stage: AttackStage, name: str) -> bool:
    with stage.as_user(ADMIN) as admin:
        asked = MetadataRequest(topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=False)
        [topic] = admin.ask(asked, MetadataResponse, 12).topics
        return bool(topic.error_code == ErrorCode.NONE)


# Attack 7: a client that pretends to be a replica.


def test_attack_7_a_fetch_as_a_replica_is_denied_and_changes_neither_isr_nor_high_watermark(
    stage: AttackStage, request: pytest.FixtureRequest
) -> None:
    def state() -> tuple[list[int], int]:
        with stage.as_user(ADMIN) as admin:
            asked = MetadataRequest(topics=[MetadataRequestTopic(name=BESIDE)], allow_auto_topic_creation=False)
            [topic] = admin.ask(asked, MetadataResponse, 12).topics
            return topic.partitions[0].isr_nodes, fetch(admin, BESIDE, 0).high_watermark

    before = state()
    with stage.attack(7, request, max_mib=16), stage.as_user(MALLORY) as wire:
        known = topic_id(wire, BESIDE)
        for replica_id in (0, 1, 2, 1 << 30):
            wanted = FetchPartition(partition=0, fetch_offset=1 << 40, partition_max_bytes=1)
            old = FetchRequest(
                replica_id=replica_id, max_wait_ms=0, min_bytes=0, session_epoch=-1,
                topics=[FetchTopic(topic=BESIDE, partitions=[wanted])],
            )  # fmt: skip
            new = FetchRequest(
                replica_state=ReplicaState(replica_id=replica_id, replica_epoch=-1), max_wait_ms=0, min_bytes=0,
                session_epoch=-1, topics=[FetchTopic(topic_id=known, partitions=[wanted])],
            )  # fmt: skip
            for asked, version in ((old, 12), (new, 17)):
                answer = wire.ask(asked, FetchResponse, version)
                codes = {one.error_code for topic in answer.responses for one in topic.partitions}
                assert codes == {ErrorCode.TOPIC_AUTHORIZATION_FAILED}
    assert state() == before


# Attacks 8 and 9: transactions of others.


def test_attack_8_a_transactional_batch_needs_rights_whatever_transactional_id_the_request_names(
    stage: AttackStage, request: pytest.FixtureRequest
) -> None:
    with stage.attack(8, request, max_mib=16), stage.as_user(MALLORY) as wire:
        before = fetch(wire, MINE, 0).high_watermark
        for name in (None, TXN, "", "mallorys"):
            data = PartitionProduceData(index=0, records=transactional(1, 0, timestamp=now_ms()))
            asked = ProduceRequest(
                transactional_id=name, acks=-1, timeout_ms=1000,
                topic_data=[TopicProduceData(name=MINE, partition_data=[data])],
            )  # fmt: skip
            answer = wire.ask(asked, ProduceResponse, 12).responses[0].partition_responses[0]
            assert answer.error_code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, name
        assert fetch(wire, MINE, 0).high_watermark == before


def test_attack_9_the_producer_of_another_principal_is_not_fenced(
    stage: AttackStage, request: pytest.FixtureRequest
) -> None:
    begin = init_producer_id.InitProducerIdRequest(transactional_id=TXN, transaction_timeout_ms=60_000)

    def begun(wire: Wire) -> Any:
        return wire.ask(begin, init_producer_id.InitProducerIdResponse, 4)

    with stage.as_user(ANA) as ana:
        mine = until(lambda: begun(ana), lambda answer: answer.error_code == ErrorCode.NONE, "ana has a producer")
        with stage.attack(9, request, max_mib=16), stage.as_user(MALLORY) as wire:
            assert begun(wire).error_code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
            for committed in (True, False):
                end = end_txn.EndTxnRequest(
                    transactional_id=TXN,
                    producer_id=mine.producer_id,
                    producer_epoch=mine.producer_epoch,
                    committed=committed,
                )
                answer = wire.ask(end, end_txn.EndTxnResponse, 3)
                assert answer.error_code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        after = until(lambda: begun(ana), lambda answer: answer.error_code == ErrorCode.NONE, "ana goes on")
        assert (after.producer_id, after.producer_epoch) == (mine.producer_id, mine.producer_epoch + 1)


# Attack 10: groups of others.


def group_requests() -> list[tuple[Message, type[Message], int]]:
    protocol = join_group.JoinGroupRequestProtocol(name="range", metadata=b"")
    join = join_group.JoinGroupRequest(
        group_id=GROUP, session_timeout_ms=10_000, rebalance_timeout_ms=10_000, member_id="",
        protocol_type="consumer", protocols=[protocol],
    )  # fmt: skip
    sync = sync_group.SyncGroupRequest(group_id=GROUP, generation_id=1, member_id="m", assignments=[])
    beat = heartbeat.HeartbeatRequest(group_id=GROUP, generation_id=1, member_id="m")
    leave = leave_group.LeaveGroupRequest(group_id=GROUP, members=[leave_group.MemberIdentity(member_id="m")])
    new_beat = consumer_group_heartbeat.ConsumerGroupHeartbeatRequest(
        group_id=GROUP, member_id="m", member_epoch=0, rebalance_timeout_ms=1000, subscribed_topic_names=[MINE],
        topic_partitions=[],
    )  # fmt: skip
    partition = offset_commit.OffsetCommitRequestPartition(
        partition_index=0, committed_offset=99, committed_metadata=None
    )
    commit = offset_commit.OffsetCommitRequest(
        group_id=GROUP, member_id="",
        topics=[offset_commit.OffsetCommitRequestTopic(name=MINE, partitions=[partition])],
    )  # fmt: skip
    asked = offset_fetch.OffsetFetchRequestGroup(group_id=GROUP, topics=None)
    delete = delete_groups.DeleteGroupsRequest(groups_names=[GROUP])
    return [
        (join, join_group.JoinGroupResponse, 9),
        (sync, sync_group.SyncGroupResponse, 3),
        (beat, heartbeat.HeartbeatResponse, 4),
        (leave, leave_group.LeaveGroupResponse, 5),
        (new_beat, consumer_group_heartbeat.ConsumerGroupHeartbeatResponse, 1),
        (commit, offset_commit.OffsetCommitResponse, 8),
        (offset_fetch.OffsetFetchRequest(groups=[asked]), offset_fetch.OffsetFetchResponse, 8),
        (delete, delete_groups.DeleteGroupsResponse, 2),
        (describe_groups.DescribeGroupsRequest(groups=[GROUP]), describe_groups.DescribeGroupsResponse, 5),
    ]


def test_attack_10_a_group_of_another_principal_is_neither_joined_nor_changed_nor_deleted(
    stage: AttackStage, request: pytest.FixtureRequest
) -> None:
    def committed(wire: Wire) -> int:
        asked = offset_fetch.OffsetFetchRequestGroup(group_id=GROUP, topics=None)
        answer = wire.ask(offset_fetch.OffsetFetchRequest(groups=[asked]), offset_fetch.OffsetFetchResponse, 8)
        found: list[int] = [
            one.committed_offset for topic in answer.groups[0].topics for one in topic.partitions if not one.error_code
        ]
        return found[0] if found else -1

    with stage.as_user(ANA) as ana:
        partition = offset_commit.OffsetCommitRequestPartition(
            partition_index=0, committed_offset=7, committed_metadata=None
        )
        topic = offset_commit.OffsetCommitRequestTopic(name=BESIDE, partitions=[partition])
        own = offset_commit.OffsetCommitRequest(group_id=GROUP, member_id="", topics=[topic])

        def commit() -> int:
            answer = ana.ask(own, offset_commit.OffsetCommitResponse, 8)
            return int(answer.topics[0].partitions[0].error_code)

        until(commit, lambda code: code == ErrorCode.NONE, "the coordinator is there")
        with stage.attack(10, request, max_mib=16), stage.as_user(MALLORY) as wire:
            for asked, response, version in group_requests():
                answer = repr(wire.ask(asked, response, version))
                assert f"error_code={int(ErrorCode.GROUP_AUTHORIZATION_FAILED)}" in _plain_codes(answer), answer
        assert committed(ana) == 7


def _plain_codes(text: str) -> str:
    """Return the repr with error codes as numbers."""
    return re.sub(r"error_code=<ErrorCode\.\w+: (-?\d+)>", r"error_code=\1", text)


# Attacks 11 to 13: finding out which topics exist.


def requests_about(name: str) -> list[tuple[Message, int]]:
    wanted = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1)
    fetching = FetchRequest(
        max_wait_ms=0, min_bytes=0, session_epoch=-1, topics=[FetchTopic(topic=name, partitions=[wanted])]
    )
    offsets = list_offsets.ListOffsetsTopic(
        name=name, partitions=[list_offsets.ListOffsetsPartition(partition_index=0, timestamp=-1)]
    )
    described = describe_topic_partitions.TopicRequest(name=name)
    configs = DescribeConfigsResource(resource_type=2, resource_name=name, configuration_keys=None)
    change = AlterConfigsResource(
        resource_type=2,
        resource_name=name,
        configs=[AlterableConfig(name="retention.ms", config_operation=0, value="1")],
    )
    create = CreatableTopic(name=name, num_partitions=1, replication_factor=1, assignments=[], configs=[])
    return [
        (MetadataRequest(topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=True), 12),
        (produce_request(name, plain(timestamp=0)), 12),
        (fetching, 12),
        (list_offsets.ListOffsetsRequest(replica_id=-1, topics=[offsets]), 7),
        (describe_topic_partitions.DescribeTopicPartitionsRequest(topics=[described], cursor=None), 0),
        (delete_topics.DeleteTopicsRequest(topic_names=[name], timeout_ms=1000), 5),
        (DescribeConfigsRequest(resources=[configs]), 4),
        (IncrementalAlterConfigsRequest(resources=[change], validate_only=False), 1),
        (CreateTopicsRequest(topics=[create], timeout_ms=1000), 7),
    ]


def test_attack_11_a_hidden_topic_looks_like_one_that_does_not_exist(
    stage: AttackStage, request: pytest.FixtureRequest
) -> None:
    """The responses are equal byte for byte, except for the name itself and the correlation id."""
    with stage.attack(11, request, max_mib=16), stage.as_user(MALLORY) as wire:
        for (absent, version), (hidden, _) in zip(requests_about(ABSENT), requests_about(HIDDEN), strict=True):
            answers = [raw_answer(wire, one, version)[4:] for one in (absent, hidden, absent)]
            assert answers[0].replace(ABSENT.encode(), HIDDEN.encode()) == answers[1], absent
            assert answers[2] == answers[0]


def test_attack_12_ids_of_hidden_topics_reveal_no_names(stage: AttackStage, request: pytest.FixtureRequest) -> None:
    with stage.as_user(ADMIN) as admin:
        hidden = topic_id(admin, HIDDEN)
    with stage.attack(12, request, max_mib=16), stage.as_user(MALLORY) as wire:
        for one in (hidden, *(Uuid.of(number) for number in range(200))):
            wanted = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1)
            fetching = FetchRequest(
                max_wait_ms=0, min_bytes=0, session_epoch=-1, topics=[FetchTopic(topic_id=one, partitions=[wanted])]
            )
            data = PartitionProduceData(index=0, records=memoryview(plain(timestamp=now_ms())))
            producing = ProduceRequest(
                acks=-1, timeout_ms=1000, topic_data=[TopicProduceData(topic_id=one, partition_data=[data])]
            )
            metadata = MetadataRequest(topics=[MetadataRequestTopic(name=None, topic_id=one)])
            deleting = delete_topics.DeleteTopicsRequest(
                topics=[delete_topics.DeleteTopicState(name=None, topic_id=one)], timeout_ms=1000
            )
            for asked, version in ((fetching, 13), (producing, 13), (metadata, 12), (deleting, 6)):
                assert HIDDEN.encode() not in raw_answer(wire, asked, version), asked
    assert exists(stage, HIDDEN)


def test_attack_13_lists_and_regexes_show_only_topics_that_may_be_described(
    stage: AttackStage, request: pytest.FixtureRequest
) -> None:
    regex = consumer_group_heartbeat.ConsumerGroupHeartbeatRequest(
        group_id="mallorys", member_id="m", member_epoch=0, rebalance_timeout_ms=10_000,
        subscribed_topic_regex=".*", topic_partitions=[],
    )  # fmt: skip
    everything: list[tuple[Message, int]] = [
        (MetadataRequest(topics=None), 12),
        (describe_topic_partitions.DescribeTopicPartitionsRequest(topics=[], cursor=None), 0),
        (list_groups.ListGroupsRequest(), 5),
        (list_transactions.ListTransactionsRequest(state_filters=[], producer_id_filters=[]), 1),
    ]
    with stage.as_user(ADMIN) as admin:
        hidden = topic_id(admin, HIDDEN)
    secret = (HIDDEN.encode(), TXN.encode(), bytes(hidden))
    with stage.attack(13, request, max_mib=16), stage.as_user(MALLORY) as wire:
        for asked, version in everything:
            answer = raw_answer(wire, asked, version)
            assert not [one for one in secret if one in answer], asked
        until(
            lambda: wire.ask(regex, consumer_group_heartbeat.ConsumerGroupHeartbeatResponse, 1).error_code,
            lambda code: code == ErrorCode.NONE,
            "the group is there",
        )
        for epoch in (1, 2, 3):
            beat = consumer_group_heartbeat.ConsumerGroupHeartbeatRequest(
                group_id="mallorys", member_id="m", member_epoch=epoch
            )
            assert bytes(hidden) not in raw_answer(wire, beat, 1)


# Attack 19: configs that name classes, addresses and files.


SETTINGS = {
    "listener.name.login.plain.sasl.jaas.config": (
        'com.sun.security.auth.module.JndiLoginModule required user.provider.url="ldap://127.0.0.1:1/x";'
    ),
    "listener.name.login.oauthbearer.sasl.oauthbearer.jwks.endpoint.url": "http://169.254.169.254/latest/meta-data",
    "listener.name.secured.ssl.keystore.location": "/etc/passwd",
    "listener.name.mutual.ssl.truststore.location": "/proc/self/environ",
    "listener.name.secured.ssl.keystore.type": "LDAP",
}


def test_attack_19_settings_load_no_class_and_read_no_file_for_unauthorized_clients(
    stage: AttackStage, request: pytest.FixtureRequest
) -> None:
    def altered(wire: Wire, key: str, value: str) -> tuple[int, str]:
        config = AlterableConfig(name=key, config_operation=0, value=value)
        resource = AlterConfigsResource(resource_type=BROKER, resource_name="1", configs=[config])
        asked = IncrementalAlterConfigsRequest(resources=[resource], validate_only=False)
        [answer] = wire.ask(asked, IncrementalAlterConfigsResponse, 1).responses
        return answer.error_code, answer.error_message or ""

    with stage.attack(19, request, max_mib=16):
        with stage.as_user(MALLORY) as wire:
            said = {altered(wire, key, value) for key, value in SETTINGS.items()}
            # The same response for all of them, so that the client learns nothing about any.
            assert [code for code, _ in said] == [ErrorCode.CLUSTER_AUTHORIZATION_FAILED], said
        with stage.as_user(ADMIN) as admin:
            for key, value in SETTINGS.items():
                code, message = altered(admin, key, value)
                assert code in (ErrorCode.INVALID_REQUEST, ErrorCode.INVALID_CONFIG), (key, message)
                assert "root:" not in message
