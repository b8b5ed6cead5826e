"""What principals see of a broker with an authorizer, and attacks on it.

alice has her own topic, group and transactional id; the topic `hidden` and the group `foreign` are bob's. A client is
the principal that its client id names (`tests/support/identities.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from pessoa.base.ids import ZERO_UUID, Uuid
from pessoa.broker.envelope_format import render_principal, seal
from pessoa.security.acl import (
    ALLOW,
    ALTER,
    ALTER_CONFIGS,
    CLUSTER,
    CLUSTER_ACTION,
    CLUSTER_NAME,
    CREATE,
    DELETE,
    DENY,
    DESCRIBE,
    DESCRIBE_CONFIGS,
    GROUP,
    LITERAL,
    PREFIXED,
    READ,
    TOPIC,
    TRANSACTIONAL_ID,
    WRITE,
)
from pessoa.testing import Broker
from pessoa.wire.api.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from pessoa.wire.api.consumer_group_describe import ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse
from pessoa.wire.api.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse
from pessoa.wire.api.create_acls import AclCreation, CreateAclsRequest, CreateAclsResponse
from pessoa.wire.api.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from pessoa.wire.api.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from pessoa.wire.api.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from pessoa.wire.api.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from pessoa.wire.api.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState
from pessoa.wire.api.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from pessoa.wire.api.describe_configs import DescribeConfigsRequest, DescribeConfigsResource, DescribeConfigsResponse
from pessoa.wire.api.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from pessoa.wire.api.describe_producers import DescribeProducersRequest, DescribeProducersResponse, TopicRequest
from pessoa.wire.api.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
)
from pessoa.wire.api.describe_topic_partitions import TopicRequest as PartitionsOf
from pessoa.wire.api.end_txn import EndTxnRequest, EndTxnResponse
from pessoa.wire.api.envelope import EnvelopeRequest, EnvelopeResponse
from pessoa.wire.api.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, ReplicaState
from pessoa.wire.api.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from pessoa.wire.api.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from pessoa.wire.api.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from pessoa.wire.api.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from pessoa.wire.api.list_groups import ListGroupsRequest, ListGroupsResponse
from pessoa.wire.api.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from pessoa.wire.api.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from pessoa.wire.api.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from pessoa.wire.api.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from pessoa.wire.api.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from pessoa.wire.api.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from pessoa.wire.api.vote import VoteRequest
from pessoa.wire.errors import ErrorCode
from pessoa.wire.frames import SIZE_BYTES, request_frame
from pessoa.wire.primitives import MIN_INT32
from pessoa.wire.schema import Message
from tests.support.batches import plain, transactional
from tests.support.controller_listeners import bootstrap_controllers
from tests.support.crash_wire import Wire
from tests.support.identities import believe_client_ids

ALICE, BOB, ADMIN = "User:alice", "User:bob", "User:admin"
MINE, HIDDEN, ABSENT = "mine", "hidden", "absent"
TAF = ErrorCode.TOPIC_AUTHORIZATION_FAILED
GAF = ErrorCode.GROUP_AUTHORIZATION_FAILED
CAF = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
XAF = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
SETTINGS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": ADMIN,
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "offsets.topic.replication.factor": "1",
}
Ask = Callable[[Message, type[Message], int], Any]


class Stage:
    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.ids: dict[str, Uuid] = {}

    @property
    def controller_port(self) -> int:
        inner: Any = vars(self.broker)["_broker"]
        return int(bootstrap_controllers(inner).rpartition(":")[2])

    def wire(self, principal: str, *, of_controller: bool = False) -> Wire:
        return Wire(self.controller_port if of_controller else self.broker.port, client_id=principal)

    def ask(
        self, principal: str, request: Message, response: type[Message], version: int, *, of_controller: bool = False
    ) -> Any:
        with self.wire(principal, of_controller=of_controller) as wire:
            return wire.ask(request, response, version)

    def allow(self, principal: str, *rights: tuple[int, int, str], pattern: int = LITERAL, how: int = ALLOW) -> None:
        entries = [
            AclCreation(
                resource_type=kind,
                resource_name=name,
                resource_pattern_type=pattern,
                principal=principal,
                host="*",
                operation=operation,
                permission_type=how,
            )
            for operation, kind, name in rights
        ]
        answer = self.ask(ADMIN, CreateAclsRequest(creations=entries), CreateAclsResponse, 3)
        assert [one.error_code for one in answer.results] == [0] * len(entries)

    def create(self, *names: str) -> None:
        topics = [
            CreatableTopic(name=name, num_partitions=1, replication_factor=1, assignments=[], configs=[])
            for name in names
        ]
        answer = self.ask(ADMIN, CreateTopicsRequest(topics=topics, timeout_ms=30_000), CreateTopicsResponse, 7)
        self.ids |= {one.name: one.topic_id for one in answer.topics}

    def find_coordinator(self, kind: int) -> None:
        request = FindCoordinatorRequest(key_type=kind, coordinator_keys=["x"])
        while self.ask(ADMIN, request, FindCoordinatorResponse, 4).coordinators[0].error_code:
            pass

    def log_end(self, topic: str) -> int:
        request = ListOffsetsRequest(
            replica_id=-1,
            topics=[ListOffsetsTopic(name=topic, partitions=[ListOffsetsPartition(partition_index=0, timestamp=-1)])],
        )
        answer = self.ask(ADMIN, request, ListOffsetsResponse, 7)
        return int(answer.topics[0].partitions[0].offset)


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    with pytest.MonkeyPatch.context() as monkeypatch:
        believe_client_ids(monkeypatch)
        with Broker(SETTINGS) as running:
            made = Stage(running)
            made.create(MINE, HIDDEN)
            made.find_coordinator(0)
            made.find_coordinator(1)
            made.allow(
                ALICE,
                (READ, TOPIC, MINE),
                (WRITE, TOPIC, MINE),
                (READ, GROUP, "own"),
                (WRITE, TRANSACTIONAL_ID, "alices"),
            )
            made.allow(
                BOB,
                (READ, TOPIC, HIDDEN),
                (READ, GROUP, "foreign"),
                (DELETE, GROUP, "foreign"),
                (WRITE, TRANSACTIONAL_ID, "bobs"),
            )
            yield made


def produce(topic: str, records: memoryview, *, transactional_id: str | None = None, acks: int = 1) -> ProduceRequest:
    data = TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=0, records=records)])
    return ProduceRequest(transactional_id=transactional_id, acks=acks, timeout_ms=5_000, topic_data=[data])


def error_of_produce(answer: Any) -> int:
    return int(answer.responses[0].partition_responses[0].error_code)


# What is allowed works.


def test_a_principal_writes_and_reads_its_own_topic(stage: Stage) -> None:
    end = stage.log_end(MINE)
    assert error_of_produce(stage.ask(ALICE, produce(MINE, plain()), ProduceResponse, 12)) == 0
    assert stage.log_end(MINE) == end + 1
    fetched = stage.ask(ALICE, fetch(MINE, version=12), FetchResponse, 12)
    assert fetched.responses[0].partitions[0].error_code == 0
    assert fetched.responses[0].partitions[0].records


def test_a_new_acl_applies_at_once_and_a_deleted_one_no_longer(stage: Stage) -> None:
    from pessoa.wire.api.delete_acls import DeleteAclsFilter, DeleteAclsRequest, DeleteAclsResponse

    request = produce(MINE, plain())
    assert error_of_produce(stage.ask("User:new", request, ProduceResponse, 12)) == TAF
    stage.allow("User:new", (WRITE, TOPIC, "mi"), pattern=PREFIXED)
    assert error_of_produce(stage.ask("User:new", request, ProduceResponse, 12)) == 0
    wanted = DeleteAclsFilter(
        resource_type_filter=TOPIC,
        resource_name_filter="mi",
        pattern_type_filter=PREFIXED,
        principal_filter="User:new",
        host_filter=None,
        operation=1,
        permission_type=1,
    )
    assert stage.ask(ADMIN, DeleteAclsRequest(filters=[wanted]), DeleteAclsResponse, 3).filter_results[0].matching_acls
    assert error_of_produce(stage.ask("User:new", request, ProduceResponse, 12)) == TAF


def test_authorized_operations_are_those_that_the_acls_allow(stage: Stage) -> None:
    request = MetadataRequest(
        topics=[MetadataRequestTopic(name=MINE)],
        include_topic_authorized_operations=True,
        include_cluster_authorized_operations=True,
    )
    answer = stage.ask(ALICE, request, MetadataResponse, 8)
    assert answer.topics[0].topic_authorized_operations == 1 << READ | 1 << WRITE | 1 << DESCRIBE
    assert answer.cluster_authorized_operations == 0
    stage.allow("User:watcher", (DESCRIBE, CLUSTER, CLUSTER_NAME))
    cluster = DescribeClusterRequest(include_cluster_authorized_operations=True)
    assert stage.ask("User:watcher", cluster, DescribeClusterResponse, 1).cluster_authorized_operations == 1 << DESCRIBE
    silent = DescribeClusterRequest(include_cluster_authorized_operations=False)
    assert stage.ask(ALICE, silent, DescribeClusterResponse, 1).cluster_authorized_operations == MIN_INT32
    groups = DescribeGroupsRequest(groups=["own"], include_authorized_operations=True)
    described = stage.ask(ALICE, groups, DescribeGroupsResponse, 5).groups[0]
    assert described.authorized_operations == 1 << READ | 1 << DESCRIBE


def test_a_topic_can_be_created_with_create_on_the_topic_or_on_the_cluster(stage: Stage) -> None:
    stage.allow("User:maker", (CREATE, TOPIC, "made"), pattern=PREFIXED)
    topics = [
        CreatableTopic(name=name, num_partitions=1, replication_factor=1, assignments=[], configs=[])
        for name in ("made-1", "other")
    ]
    answer = stage.ask("User:maker", CreateTopicsRequest(topics=topics, timeout_ms=30_000), CreateTopicsResponse, 7)
    made, other = sorted(answer.topics, key=lambda one: str(one.name))
    assert (made.error_code, made.topic_config_error_code, made.num_partitions, made.configs) == (0, TAF, -1, [])
    assert (other.error_code, other.topic_id) == (TAF, ZERO_UUID)
    stage.allow("User:cluster-maker", (CREATE, CLUSTER, CLUSTER_NAME))
    request = CreateTopicsRequest(topics=topics[1:], timeout_ms=30_000, validate_only=True)
    assert stage.ask("User:cluster-maker", request, CreateTopicsResponse, 7).topics[0].error_code == 0


def test_metadata_auto_creates_only_topics_that_the_client_may_describe_and_create(stage: Stage) -> None:
    stage.allow("User:auto", (DESCRIBE, TOPIC, "auto"), pattern=PREFIXED)
    stage.allow("User:auto", (CREATE, TOPIC, "auto-yes"))
    names = ["auto-no", "auto-yes", "else"]
    request = MetadataRequest(
        topics=[MetadataRequestTopic(name=name) for name in names], allow_auto_topic_creation=True
    )
    answer = stage.ask("User:auto", request, MetadataResponse, 9)
    assert {one.name: one.error_code for one in answer.topics} == {"auto-no": TAF, "auto-yes": 0, "else": TAF}
    everything = stage.ask(ADMIN, MetadataRequest(topics=None), MetadataResponse, 9)
    assert {"auto-no", "else"}.isdisjoint(one.name for one in everything.topics)


# 4, 5, 7: what nodes alone may ask.


def test_a_client_cannot_use_the_add_partitions_version_of_brokers(stage: Stage) -> None:
    wanted = AddPartitionsToTxnTransaction(
        transactional_id="alices",
        producer_id=1,
        producer_epoch=0,
        topics=[AddPartitionsToTxnTopic(name=MINE, partitions=[0])],
    )
    request = AddPartitionsToTxnRequest(transactions=[wanted])
    assert stage.ask(ALICE, request, AddPartitionsToTxnResponse, 4).error_code == CAF


def test_a_client_listener_serves_neither_envelopes_nor_votes(stage: Stage) -> None:
    envelope = seal(DeleteTopicsRequest(topic_names=[HIDDEN], timeout_ms=1), 4, "c", ADMIN, "127.0.0.1")
    for request in (envelope, VoteRequest(cluster_id=None, topics=[])):
        with stage.wire(ADMIN) as wire:
            wire.write(request, 0)
            assert wire.is_closed()


def test_an_envelope_is_accepted_from_nodes_only_and_authorised_as_its_client(stage: Stage) -> None:
    deletion = DeleteTopicsRequest(topic_names=[HIDDEN], timeout_ms=1)

    def send(principal: str, envelope: EnvelopeRequest) -> Any:
        return stage.ask(principal, envelope, EnvelopeResponse, 0, of_controller=True)

    assert send(ALICE, seal(deletion, 4, "c", ADMIN, "127.0.0.1")).error_code == CAF
    answer = send(ADMIN, seal(deletion, 4, "c", ALICE, "127.0.0.1"))
    assert answer.error_code == 0
    # The header of version 4 is flexible: correlation id and a byte for tags.
    inner = DeleteTopicsResponse.decode(answer.response_data[5:], 4)
    assert [one.error_code for one in inner.responses] == [TAF]


def test_malformed_envelopes_are_refused(stage: Stage) -> None:
    good = seal(DeleteTopicsRequest(topic_names=["t"], timeout_ms=1), 4, "c", ALICE, "127.0.0.1")

    def send(**changes: Any) -> int:
        parts = {
            "request_data": good.request_data,
            "request_principal": good.request_principal,
            "client_host_address": good.client_host_address,
        }
        request = EnvelopeRequest(**(parts | changes))
        return int(stage.ask(ADMIN, request, EnvelopeResponse, 0, of_controller=True).error_code)

    def framed(request: Message, version: int) -> bytes:
        return b"".join(request_frame(request, version, 1, "c"))[SIZE_BYTES:]

    assert send(request_data=framed(good, 0)) == ErrorCode.INVALID_REQUEST
    assert send(request_data=framed(MetadataRequest(topics=None), 9)) == ErrorCode.INVALID_REQUEST
    assert send(request_data=framed(DeleteTopicsRequest(topic_names=["t"], timeout_ms=1), 4)[:-3]) == (
        ErrorCode.UNSUPPORTED_VERSION
    )
    assert send(client_host_address=b"abc") == ErrorCode.INVALID_REQUEST
    assert send(request_principal=b"\x00\x09") == ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE
    assert render_principal(ALICE) == good.request_principal


def fetch(topic: str, *, version: int, topic_id: Uuid = ZERO_UUID, replica_id: int = -1) -> FetchRequest:
    wanted = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20, current_leader_epoch=-1)
    state = ReplicaState(replica_id=replica_id, replica_epoch=-1) if version >= 15 else None
    return FetchRequest(
        replica_id=replica_id if version < 15 else -1,
        replica_state=state,
        max_wait_ms=0,
        min_bytes=1,
        topics=[FetchTopic(topic=topic, topic_id=topic_id, partitions=[wanted])],
        session_epoch=-1,
    )


@pytest.mark.parametrize("version", [4, 12, 13, 16])
def test_a_client_does_not_fetch_as_a_replica(stage: Stage, version: int) -> None:
    request = fetch(MINE, version=version, topic_id=stage.ids[MINE], replica_id=1)
    answer = stage.ask(ALICE, request, FetchResponse, version)
    assert [one.error_code for topic in answer.responses for one in topic.partitions] == [TAF]


# 8, 9: transactions of others.


@pytest.mark.parametrize("name", [None, "bobs"])
def test_a_transactional_batch_needs_a_right_to_the_transactional_id(stage: Stage, name: str | None) -> None:
    end = stage.log_end(MINE)
    batch = transactional(7, 0)
    assert error_of_produce(stage.ask(ALICE, produce(MINE, batch, transactional_id=name), ProduceResponse, 11)) == XAF
    assert stage.log_end(MINE) == end


def test_no_client_produces_to_internal_topics(stage: Stage) -> None:
    before = stage.log_end("__consumer_offsets")
    for client in (ADMIN, "__admin_client"):
        stage.allow("User:ANONYMOUS", (WRITE, TOPIC, "__consumer_offsets"))
        answer = stage.ask(client, produce("__consumer_offsets", plain()), ProduceResponse, 12)
        assert error_of_produce(answer) == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert stage.log_end("__consumer_offsets") == before


def test_an_unauthorised_produce_with_acks_0_is_refused_by_closing_the_connection(stage: Stage) -> None:
    for request in (
        produce(HIDDEN, plain(), acks=0),
        produce(MINE, transactional(7, 0), acks=0),
    ):
        with stage.wire(ALICE) as wire:
            wire.write(request, 11)
            assert wire.is_closed()


def test_the_producer_of_another_principal_is_neither_fenced_nor_ended(stage: Stage) -> None:
    request = InitProducerIdRequest(transactional_id="bobs", transaction_timeout_ms=60_000)
    while (first := stage.ask(BOB, request, InitProducerIdResponse, 4)).error_code:
        pass
    assert stage.ask(ALICE, request, InitProducerIdResponse, 4).error_code == XAF
    end = EndTxnRequest(
        transactional_id="bobs", producer_id=first.producer_id, producer_epoch=first.producer_epoch, committed=False
    )
    assert stage.ask(ALICE, end, EndTxnResponse, 3).error_code == XAF
    again = stage.ask(BOB, request, InitProducerIdResponse, 4)
    assert (again.producer_id, again.producer_epoch) == (first.producer_id, first.producer_epoch + 1)


# 10: groups of others.


def test_a_group_of_another_principal_is_neither_joined_nor_written_nor_deleted(stage: Stage) -> None:
    def commit(principal: str, topic: str, offset: int) -> int:
        partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset, committed_metadata="")
        request = OffsetCommitRequest(
            group_id="foreign",
            member_id="",
            topics=[OffsetCommitRequestTopic(name=topic, partitions=[partition])],
        )
        return int(stage.ask(principal, request, OffsetCommitResponse, 8).topics[0].partitions[0].error_code)

    assert commit(BOB, HIDDEN, 5) == 0
    assert commit(ALICE, MINE, 6) == GAF
    join = JoinGroupRequest(
        group_id="foreign",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        member_id="",
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
    )
    assert stage.ask(ALICE, join, JoinGroupResponse, 5).error_code == GAF
    deletion = DeleteGroupsRequest(groups_names=["foreign"])
    assert stage.ask(ALICE, deletion, DeleteGroupsResponse, 2).results[0].error_code == GAF
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="foreign", topics=None)])
    (group,) = stage.ask(BOB, request, OffsetFetchResponse, 8).groups
    assert [(one.name, one.partitions[0].committed_offset) for one in group.topics] == [(HIDDEN, 5)]


# 11: absent and forbidden look the same.


def _list_offsets(name: str) -> tuple[Message, type[Message], int]:
    partition = ListOffsetsPartition(partition_index=0, timestamp=-1)
    return (
        ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=name, partitions=[partition])]),
        ListOffsetsResponse,
        7,
    )


def _epochs(name: str) -> tuple[Message, type[Message], int]:
    partition = OffsetForLeaderPartition(partition=0, current_leader_epoch=-1, leader_epoch=0)
    topics = [OffsetForLeaderTopic(topic=name, partitions=[partition])]
    return OffsetForLeaderEpochRequest(replica_id=-1, topics=topics), OffsetForLeaderEpochResponse, 4


def _configs(name: str) -> tuple[Message, type[Message], int]:
    resource = DescribeConfigsResource(resource_type=2, resource_name=name, configuration_keys=None)
    return DescribeConfigsRequest(resources=[resource]), DescribeConfigsResponse, 4


def _alter(name: str) -> tuple[Message, type[Message], int]:
    config = AlterableConfig(name="retention.ms", config_operation=0, value="nonsense")
    resource = AlterConfigsResource(resource_type=2, resource_name=name, configs=[config])
    request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=False)
    return request, IncrementalAlterConfigsResponse, 1


def _commit(name: str) -> tuple[Message, type[Message], int]:
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=1, committed_metadata="")
    topics = [OffsetCommitRequestTopic(name=name, partitions=[partition])]
    return OffsetCommitRequest(group_id="own", member_id="", topics=topics), OffsetCommitResponse, 8


def _committed(name: str) -> tuple[Message, type[Message], int]:
    topics = [OffsetFetchRequestTopics(name=name, partition_indexes=[0])]
    return (
        OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="own", topics=topics)]),
        OffsetFetchResponse,
        8,
    )


def _records(name: str) -> tuple[Message, type[Message], int]:
    topics = [DeleteRecordsTopic(name=name, partitions=[DeleteRecordsPartition(partition_index=0, offset=0)])]
    return DeleteRecordsRequest(topics=topics, timeout_ms=1), DeleteRecordsResponse, 2


def _partitions(name: str) -> tuple[Message, type[Message], int]:
    topics = [CreatePartitionsTopic(name=name, count=5, assignments=None)]
    return CreatePartitionsRequest(topics=topics, timeout_ms=1, validate_only=False), CreatePartitionsResponse, 3


def _metadata(name: str) -> tuple[Message, type[Message], int]:
    topics = [MetadataRequestTopic(name=name)]
    return MetadataRequest(topics=topics, include_topic_authorized_operations=True), MetadataResponse, 12


def _described(name: str) -> tuple[Message, type[Message], int]:
    request = DescribeTopicPartitionsRequest(topics=[PartitionsOf(name=name)])
    return request, DescribeTopicPartitionsResponse, 0


def _subscription(name: str) -> tuple[Message, type[Message], int]:
    request = ConsumerGroupHeartbeatRequest(
        group_id="own",
        member_id="m",
        member_epoch=0,
        rebalance_timeout_ms=1_000,
        subscribed_topic_names=[MINE, name],
        topic_partitions=[],
    )
    return request, ConsumerGroupHeartbeatResponse, 1


LOOKS: dict[str, Callable[[str], tuple[Message, type[Message], int]]] = {
    "Produce": lambda name: (produce(name, plain()), ProduceResponse, 12),
    "Fetch": lambda name: (fetch(name, version=12), FetchResponse, 12),
    "ListOffsets": _list_offsets,
    "OffsetForLeaderEpoch": _epochs,
    "Metadata": _metadata,
    "DescribeTopicPartitions": _described,
    "DescribeConfigs": _configs,
    "IncrementalAlterConfigs": _alter,
    "OffsetCommit": _commit,
    "OffsetFetch": _committed,
    "DeleteRecords": _records,
    "CreatePartitions": _partitions,
    "DeleteTopics": lambda name: (
        DeleteTopicsRequest(topics=[DeleteTopicState(name=name, topic_id=ZERO_UUID)], timeout_ms=1),
        DeleteTopicsResponse,
        6,
    ),
    "DescribeProducers": lambda name: (
        DescribeProducersRequest(topics=[TopicRequest(name=name, partition_indexes=[0])]),
        DescribeProducersResponse,
        0,
    ),
    "ConsumerGroupHeartbeat": _subscription,
}


@pytest.mark.parametrize("api", LOOKS)
def test_an_absent_topic_and_a_hidden_one_look_the_same(stage: Stage, api: str) -> None:
    hidden, absent = (repr(stage.ask(ALICE, *LOOKS[api](name))) for name in (HIDDEN, ABSENT))
    assert f"error_code={int(TAF)}" in hidden
    assert hidden.replace(HIDDEN, ABSENT) == absent


# 12: ids are no way to names.


def test_a_topic_id_does_not_reveal_the_name_of_a_hidden_topic(stage: Stage) -> None:
    hidden = stage.ids[HIDDEN]
    data = TopicProduceData(topic_id=hidden, partition_data=[PartitionProduceData(index=0, records=plain())])
    asked: list[tuple[Message, type[Message], int]] = [
        (ProduceRequest(acks=1, timeout_ms=5_000, topic_data=[data]), ProduceResponse, 13),
        (fetch("", version=13, topic_id=hidden), FetchResponse, 13),
        (MetadataRequest(topics=[MetadataRequestTopic(name=None, topic_id=hidden)]), MetadataResponse, 12),
        (
            DeleteTopicsRequest(topics=[DeleteTopicState(name=None, topic_id=hidden)], timeout_ms=1),
            DeleteTopicsResponse,
            6,
        ),
        # Twice, and once more by a name that may be it.
        (
            DeleteTopicsRequest(
                topics=[
                    DeleteTopicState(name=None, topic_id=hidden),
                    DeleteTopicState(name=None, topic_id=hidden),
                    DeleteTopicState(name="guess", topic_id=ZERO_UUID),
                ],
                timeout_ms=1,
            ),
            DeleteTopicsResponse,
            6,
        ),
    ]
    for request, response, version in asked:
        with stage.wire(ALICE) as wire:
            wire.write(request, version)
            answer = wire.frame()
        assert int(TAF).to_bytes(2, "big") in answer, response
        assert HIDDEN.encode() not in answer, response


def test_a_topic_id_does_not_confirm_a_guessed_name(stage: Stage) -> None:
    """Asked to delete both, one that may delete neither does not hear that they are the same topic."""
    states = [
        DeleteTopicState(name=HIDDEN, topic_id=ZERO_UUID),
        DeleteTopicState(name=None, topic_id=stage.ids[HIDDEN]),
    ]
    answer = stage.ask(ALICE, DeleteTopicsRequest(topics=states, timeout_ms=1), DeleteTopicsResponse, 6)
    assert sorted((one.name or "", one.error_code) for one in answer.responses) == [("", TAF), (HIDDEN, TAF)]


# 13: lists, expressions and descriptions.


def test_lists_omit_hidden_resources(stage: Stage) -> None:
    listed = stage.ask(ALICE, MetadataRequest(topics=None), MetadataResponse, 9)
    assert [one.name for one in listed.topics] == [MINE]
    pages = stage.ask(ALICE, DescribeTopicPartitionsRequest(topics=[]), DescribeTopicPartitionsResponse, 0)
    assert [one.name for one in pages.topics] == [MINE]
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=1, committed_metadata="")
    for group, topic in (("own", MINE), ("own", HIDDEN), ("foreign", HIDDEN)):
        topics = [OffsetCommitRequestTopic(name=topic, partitions=[partition])]
        request = OffsetCommitRequest(group_id=group, member_id="", topics=topics)
        assert stage.ask(ADMIN, request, OffsetCommitResponse, 8).topics[0].partitions[0].error_code == 0
    groups = stage.ask(ALICE, ListGroupsRequest(), ListGroupsResponse, 4)
    assert [one.group_id for one in groups.groups] == ["own"]
    offsets = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="own", topics=None)])
    assert [one.name for one in stage.ask(ALICE, offsets, OffsetFetchResponse, 8).groups[0].topics] == [MINE]
    stage.allow("User:lister", (DESCRIBE, CLUSTER, CLUSTER_NAME))
    everything = stage.ask("User:lister", ListGroupsRequest(), ListGroupsResponse, 4)
    assert {"own", "foreign"} <= {one.group_id for one in everything.groups}


def test_a_regex_matches_no_hidden_topic_and_a_group_with_hidden_topics_is_not_described(stage: Stage) -> None:
    stage.allow("User:regex", (READ, GROUP, "regex"), (DESCRIBE, TOPIC, MINE))

    def heartbeat(principal: str, epoch: int, **more: Any) -> Any:
        request = ConsumerGroupHeartbeatRequest(
            group_id="regex", member_id="m", member_epoch=epoch, rebalance_timeout_ms=1_000, **more
        )
        return stage.ask(principal, request, ConsumerGroupHeartbeatResponse, 1)

    answer = heartbeat("User:regex", 0, subscribed_topic_regex="mine|hidden", topic_partitions=[])
    while answer.assignment is None or not answer.assignment.topic_partitions:
        assert answer.error_code == 0
        answer = heartbeat("User:regex", answer.member_epoch)
    assert [one.topic_id for one in answer.assignment.topic_partitions] == [stage.ids[MINE]]

    wanted = ConsumerGroupDescribeRequest(group_ids=["regex"], include_authorized_operations=True)
    (mine,) = stage.ask("User:regex", wanted, ConsumerGroupDescribeResponse, 0).groups
    assert (mine.error_code, len(mine.members)) == (0, 1)
    assert mine.authorized_operations == 1 << READ | 1 << DESCRIBE
    stage.allow("User:blind", (DESCRIBE, GROUP, "regex"))
    (blind,) = stage.ask("User:blind", wanted, ConsumerGroupDescribeResponse, 0).groups
    assert (blind.error_code, blind.members) == (TAF, [])
    (stranger,) = stage.ask(ALICE, wanted, ConsumerGroupDescribeResponse, 0).groups
    assert (stranger.error_code, stranger.members) == (GAF, [])


# 19: a client that may not change settings learns nothing about them.


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("listener.name.plaintext.plain.sasl.jaas.config", "com.sun.security.auth.module.JndiLoginModule required;"),
        ("sasl.oauthbearer.jwks.endpoint.url", "file:///etc/passwd"),
        ("listener.name.plaintext.ssl.keystore.location", "/etc/shadow"),
        ("log.cleaner.threads", "nonsense"),
        ("log.cleaner.threads", "2"),
    ],
)
@pytest.mark.parametrize("broker_id", ["1", "2", "none", ""])
def test_changes_of_broker_configs_are_authorised_before_they_are_validated(
    stage: Stage, broker_id: str, name: str, value: str
) -> None:
    config = AlterableConfig(name=name, config_operation=0, value=value)
    for of_controller in (False, True):
        resource = AlterConfigsResource(resource_type=4, resource_name=broker_id, configs=[config])
        request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=False)
        answer = stage.ask(ALICE, request, IncrementalAlterConfigsResponse, 1, of_controller=of_controller)
        (one,) = answer.responses
        assert (one.error_code, one.error_message) == (CAF, CAF.text)


def test_loggers_of_a_controller_need_cluster_action(stage: Stage) -> None:
    stage.allow("User:tuner", (ALTER_CONFIGS, CLUSTER, CLUSTER_NAME))
    config = AlterableConfig(name="pessoa", config_operation=0, value="INFO")
    resource = AlterConfigsResource(resource_type=8, resource_name="1", configs=[config])
    request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=True)

    def ask(*, of_controller: bool) -> int:
        answer = stage.ask("User:tuner", request, IncrementalAlterConfigsResponse, 1, of_controller=of_controller)
        return int(answer.responses[0].error_code)

    assert ask(of_controller=True) == CAF
    assert ask(of_controller=False) != CAF
    stage.allow("User:tuner", (CLUSTER_ACTION, CLUSTER, CLUSTER_NAME))
    assert ask(of_controller=True) != CAF


def test_an_unauthorised_client_does_not_create_internal_topics() -> None:
    with pytest.MonkeyPatch.context() as monkeypatch:
        believe_client_ids(monkeypatch)
        with Broker(SETTINGS) as running:
            fresh = Stage(running)
            for kind, error in ((0, GAF), (1, XAF)):
                request = FindCoordinatorRequest(key_type=kind, coordinator_keys=["g", "h"])
                answer = fresh.ask(ALICE, request, FindCoordinatorResponse, 4)
                assert [one.error_code for one in answer.coordinators] == [error, error]
            assert fresh.ask(ADMIN, MetadataRequest(topics=None), MetadataResponse, 9).topics == []


# Combinations that the table of rights does not have.


def test_deny_overrides_allow_and_hides_the_resource(stage: Stage) -> None:
    stage.allow("User:denied", (READ, TOPIC, "*"))
    stage.allow("User:denied", (DESCRIBE, TOPIC, HIDDEN), how=DENY)
    listed = stage.ask("User:denied", MetadataRequest(topics=None), MetadataResponse, 9)
    names = {one.name for one in listed.topics}
    assert MINE in names
    assert HIDDEN not in names
    assert stage.ask("User:denied", *_list_offsets(HIDDEN)).topics[0].partitions[0].error_code == TAF


def test_a_right_to_write_a_topic_is_enough_for_an_idempotent_producer(stage: Stage) -> None:
    request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0)
    assert stage.ask(ALICE, request, InitProducerIdResponse, 4).error_code == 0
    assert stage.ask(BOB, request, InitProducerIdResponse, 4).error_code == CAF


def test_a_topic_that_may_be_described_but_not_deleted_is_shown_by_its_name(stage: Stage) -> None:
    by_id = DeleteTopicsRequest(topics=[DeleteTopicState(name=None, topic_id=stage.ids[MINE])], timeout_ms=1)
    (answer,) = stage.ask(ALICE, by_id, DeleteTopicsResponse, 6).responses
    assert (answer.error_code, answer.name, answer.topic_id) == (TAF, MINE, stage.ids[MINE])
    stage.allow("User:alter", (ALTER, TOPIC, MINE), (DESCRIBE_CONFIGS, TOPIC, MINE))
    (configs,) = stage.ask("User:alter", *_configs(MINE)).results
    assert configs.error_code == 0
