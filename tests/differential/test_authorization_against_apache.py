"""Apache Kafka and Pessoa with the same users and the same access control lists deny the same requests in the same way.

Clients log in with PLAIN. For each API and each right that it needs (`tests/property/test_authorization_table.py` has
the table) there is a user with all rights before that one. It names resources that exist and others that do not, in
every version, and both responses must have the same error codes at the same names. The lists and authorized operations
that a user with some rights gets are compared as well.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from random import Random
from typing import Any
from zlib import crc32

import pytest

from pessoa.base.ids import ZERO_UUID, Uuid
from pessoa.broker.api_table import broker_rows, controller_rows
from pessoa.metadata.image import ConfigResource
from pessoa.security.acl import (
    ALLOW,
    CLUSTER,
    CLUSTER_NAME,
    CREATE,
    DELETE,
    DENY,
    DESCRIBE,
    GROUP,
    LITERAL,
    PREFIXED,
    READ,
    TOPIC,
    TRANSACTIONAL_ID,
    WRITE,
)
from pessoa.testing import Broker
from pessoa.wire.api.alter_configs import AlterConfigsRequest
from pessoa.wire.api.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from pessoa.wire.api.create_acls import AclCreation, CreateAclsRequest, CreateAclsResponse
from pessoa.wire.api.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from pessoa.wire.api.delete_acls import DeleteAclsRequest
from pessoa.wire.api.delete_topics import DeleteTopicsRequest, DeleteTopicState
from pessoa.wire.api.describe_acls import DescribeAclsRequest, DescribeAclsResponse
from pessoa.wire.api.describe_cluster import DescribeClusterRequest
from pessoa.wire.api.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from pessoa.wire.api.describe_groups import DescribeGroupsRequest
from pessoa.wire.api.describe_topic_partitions import DescribeTopicPartitionsRequest, TopicRequest
from pessoa.wire.api.fetch import FetchPartition, FetchRequest, FetchTopic
from pessoa.wire.api.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from pessoa.wire.api.incremental_alter_configs import IncrementalAlterConfigsRequest
from pessoa.wire.api.init_producer_id import InitProducerIdRequest
from pessoa.wire.api.list_groups import ListGroupsRequest
from pessoa.wire.api.list_transactions import ListTransactionsRequest
from pessoa.wire.api.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from pessoa.wire.api.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from pessoa.wire.api.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from pessoa.wire.api.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from pessoa.wire.api.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from pessoa.wire.api.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from pessoa.wire.catalogue import ApiKey
from pessoa.wire.codec_compiler import Layout
from pessoa.wire.errors import ErrorCode
from pessoa.wire.schema import Message, Struct
from tests.apache.broker import HOST, ApacheKafka, reserve_port
from tests.property.test_authorization_table import Case, made_sensible, steps_of
from tests.property.test_every_api import BROKER, CONTROLLER, Known, PlausibleRequests
from tests.support.batches import plain, transactional
from tests.support.crash_wire import Closed, Wire

pytestmark = pytest.mark.apache

TIMEOUT_S = 60
SEEDS = range(3)
LOGIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
# Apache advertises these on controllers, and closes connections that send them.
UNHANDLED = {ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, ApiKey.DESCRIBE_DELEGATION_TOKEN}
ADMIN, STRANGER, READER = "admin", "stranger", "reader"
TOPICS = ("t", "hidden")
# Fields with error messages, and fields that differ between any two clusters.
UNCOMPARED = {
    "error_message",
    "throttle_time_ms",
    "host",
    "port",
    "cluster_id",
    "rack",
    "controller_id",
    "leader_epoch",
}
COMPARED = {"name", "topic", "topic_name", "group_id", "transactional_id", "resource_name", "resource_type", "key"}
OPERATIONS = {"topic_authorized_operations", "cluster_authorized_operations", "authorized_operations"}


def cases() -> list[Case]:
    # Which coordinator Apache finds depends on its internal topics: `SHOWN` has the denials.
    rows = [(BROKER, row) for row in broker_rows() if row.key is not ApiKey.FIND_COORDINATOR]
    rows += [(CONTROLLER, row) for row in controller_rows() if row.key not in UNHANDLED]
    found = [
        Case(where, row, version, steps_of(where, row.key, version))
        for where, row in rows
        for version in row.versions.each()
    ]
    return [case for case in found if case.steps]


def user(case: Case, number: int) -> str:
    """Return the name of the user of an API and step; versions that need the same rights share a user."""
    rights = crc32(repr(case.rights(number)).encode())
    return f"{case.where}_{case.row.key.name.lower()}_{number}_{rights}"


def users() -> dict[str, list[tuple[int, int]]]:
    """Return all users with their rights to all resources of a type."""
    found: dict[str, list[tuple[int, int]]] = {STRANGER: []}
    for case in cases():
        for number in range(len(case.steps)):
            found[user(case, number)] = [(int(operation), int(kind)) for operation, kind in case.rights(number)]
    return found


def entry(name: str, operation: int, kind: int, resource: str, pattern: int = LITERAL, how: int = ALLOW) -> AclCreation:
    return AclCreation(
        resource_type=kind,
        resource_name=resource,
        resource_pattern_type=pattern,
        principal=f"User:{name}",
        host="*",
        operation=operation,
        permission_type=how,
    )


def entries() -> list[AclCreation]:
    of_users = [
        entry(name, operation, kind, CLUSTER_NAME if kind == CLUSTER else "*")
        for name, rights in users().items()
        for operation, kind in rights
    ]
    return [
        *of_users,
        entry(READER, READ, TOPIC, "t"),
        entry(READER, WRITE, TOPIC, "pre", PREFIXED),
        entry(READER, DELETE, TOPIC, "deletable"),
        entry(READER, CREATE, TOPIC, "new", PREFIXED),
        entry(READER, READ, TOPIC, "pre-denied", how=DENY),
        entry(READER, DESCRIBE, TOPIC, "pre-hidden", how=DENY),
        entry(READER, READ, GROUP, "own"),
        entry(READER, WRITE, TRANSACTIONAL_ID, "own"),
    ]


class Side:
    """A cluster with one client for each user."""

    def __init__(self, ports: dict[str, int]) -> None:
        self._ports = {BROKER: ports["SASL_PLAINTEXT"], CONTROLLER: ports["CONTROLLER"]}
        self._wires: dict[tuple[str, str], Wire] = {}
        self.ids: dict[str, Uuid] = {}

    def ask(self, name: str, request: Message, version: int, where: str = BROKER) -> Any:
        """Return the response, or None if the connection was closed instead."""
        response = ApiKey(request.api_key).response
        wire = self._wires.get((where, name))
        if wire is None:
            wire = self._wires[where, name] = self._log_in(name, where)
        try:
            return wire.ask(request, response, version)
        except Closed:
            del self._wires[where, name]
            return None

    def _log_in(self, name: str, where: str) -> Wire:
        wire = Wire(self._ports[where])
        assert wire.ask(SaslHandshakeRequest(mechanism="PLAIN"), SaslHandshakeResponse, 1).error_code == 0
        token = f"\0{name}\0{name}-secret".encode()
        answer = wire.ask(SaslAuthenticateRequest(auth_bytes=token), SaslAuthenticateResponse, 2)
        assert answer.error_code == 0, answer
        return wire

    def prepare(self) -> None:
        names = [*TOPICS, "pre-fix", "pre-denied", "pre-hidden", "deletable"]
        topics = [
            CreatableTopic(name=name, num_partitions=2, replication_factor=1, assignments=[], configs=[])
            for name in names
        ]
        created = self.ask(ADMIN, CreateTopicsRequest(topics=topics, timeout_ms=30_000), 7)
        assert isinstance(created, CreateTopicsResponse)
        self.ids = {one.name: one.topic_id for one in created.topics}
        for kind in (0, 1):
            self._until_done(FindCoordinatorRequest(key_type=kind, coordinator_keys=["g"]), FindCoordinatorResponse, 4)
        for group in ("g", "own", "foreign"):
            partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=0, committed_metadata="")
            topics_of = [OffsetCommitRequestTopic(name=name, partitions=[partition]) for name in TOPICS]
            commit = OffsetCommitRequest(group_id=group, member_id="", topics=topics_of)
            self._until_done(commit, OffsetCommitResponse, 8)
        for name in ("own", "foreign"):
            request = InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=60_000)
            self._until_done(request, ApiKey.INIT_PRODUCER_ID.response, 4)
        made = self.ask(ADMIN, CreateAclsRequest(creations=entries()), 3)
        assert isinstance(made, CreateAclsResponse)
        assert {one.error_code for one in made.results} == {0}
        wanted = DescribeAclsRequest(
            resource_type_filter=1,
            resource_name_filter=None,
            pattern_type_filter=1,
            principal_filter=None,
            host_filter=None,
            operation=1,
            permission_type=1,
        )
        deadline = time.monotonic() + TIMEOUT_S
        while True:
            told = self.ask(ADMIN, wanted, 3)
            assert isinstance(told, DescribeAclsResponse)
            if sum(len(one.acls) for one in told.resources) == len(set(map(repr, entries()))):
                return
            assert time.monotonic() < deadline

    def _until_done(self, request: Message, kind: type[Message], version: int) -> None:
        deadline = time.monotonic() + TIMEOUT_S
        while True:
            answer = self.ask(ADMIN, request, version)
            assert isinstance(answer, kind)
            if "error_code=0" in repr(answer) and not any(
                f"error_code={code}" in repr(answer) for code in range(1, 99)
            ):
                return
            assert time.monotonic() < deadline, answer

    @property
    def known(self) -> Known:
        return Known("unknown", self.ids["t"], Uuid.of(7))

    def normal(self, value: object) -> object:
        """Return what both sides must agree on in a response: codes, names and operations, sorted."""
        if isinstance(value, list | tuple):
            return sorted((self.normal(one) for one in value), key=repr)
        if isinstance(value, Uuid):
            names = {topic_id: name for name, topic_id in self.ids.items()}
            return names.get(value, "zero" if value == ZERO_UUID else "other")
        if not isinstance(value, Struct):
            return value
        found = {}
        for one in value.fields:
            part = getattr(value, one.name)
            is_compared = one.name in COMPARED | OPERATIONS or one.name.endswith("error_code") or one.name == "topic_id"
            if one.name not in UNCOMPARED and (is_compared or isinstance(part, list | Struct)):
                found[one.name] = self.normal(part)
        return found

    def close(self) -> None:
        for wire in self._wires.values():
            wire.close()


def settings(ports: dict[str, int]) -> dict[str, str]:
    listeners = ",".join(f"{name}://{HOST}:{port}" for name, port in ports.items())
    logins = " ".join(f'user_{name}="{name}-secret"' for name in (ADMIN, READER, *users()))
    return {
        "listeners": listeners,
        "advertised.listeners": listeners,
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:SASL_PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT",
        "sasl.mechanism.controller.protocol": "PLAIN",
        "inter.broker.listener.name": "PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": f"{LOGIN} required {logins};",
        "listener.name.controller.plain.sasl.jaas.config": (
            f'{LOGIN} required username="{ADMIN}" password="{ADMIN}-secret" {logins};'
        ),
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": f"User:ANONYMOUS;User:{ADMIN}",
        "offsets.topic.num.partitions": "1",
        "transaction.state.log.num.partitions": "1",
        "offsets.topic.replication.factor": "1",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
    }


def new_ports() -> dict[str, int]:
    return {name: reserve_port() for name in ("PLAINTEXT", "CONTROLLER", "SASL_PLAINTEXT")}


@pytest.fixture(scope="module")
def apache() -> Iterator[Side]:
    ports = new_ports()
    kafka = ApacheKafka(properties=settings(ports))
    kafka.nodes[0].port, kafka.nodes[0].controller_port = ports["PLAINTEXT"], ports["CONTROLLER"]
    with kafka:
        side = Side(ports)
        side.prepare()
        yield side
        side.close()


@pytest.fixture(scope="module")
def ours() -> Iterator[Side]:
    ports = new_ports()
    with Broker(settings(ports)):
        side = Side(ports)
        side.prepare()
        yield side
        side.close()


KEYS = sorted({(case.where, case.row.key) for case in cases()}, key=str)


@pytest.mark.parametrize(("where", "key"), KEYS, ids=lambda one: one if isinstance(one, str) else one.title)
def test_a_client_without_a_right_is_refused_as_by_apache(apache: Side, ours: Side, where: str, key: ApiKey) -> None:
    differences = []
    for case in cases():
        for number in range(len(case.steps)) if (case.where, case.row.key) == (where, key) else ():
            for seed in SEEDS:
                answers = [ask_plausibly(side, case, number, seed) for side in (apache, ours)]
                if answers[0] != answers[1]:
                    differences.append(f"{case} {number} {seed}:\n  Apache {answers[0]}\n  ours   {answers[1]}")
    assert not differences, "\n".join(differences)


def ask_plausibly(side: Side, case: Case, number: int, seed: int) -> object:
    key, version = case.row.key, case.version
    rng = Random(crc32(f"{case} {seed}".encode()))
    requests = PlausibleRequests(Layout(key.request, version), rng, side.known, is_strange=False)
    request = made_sensible(requests.struct(key.request), version, seed)
    answer: Any = side.normal(side.ask(user(case, number), made_readable(request), version, case.where))
    if key is ApiKey.ALTER_SHARE_GROUP_OFFSETS:
        # Apache returns the id of a topic that the client may not read; we do not (docs/DEVIATIONS.md).
        for topic in answer["responses"]:
            del topic["topic_id"]
    return answer


def made_readable(request: Message) -> Message:
    """Return the request with valid parts where Apache parses it before it checks the client's rights."""
    if isinstance(request, ProduceRequest):
        for topic in request.topic_data:
            for data in topic.partition_data:
                data.records = plain()
    elif isinstance(request, FetchRequest):
        request.forgotten_topics_data = []
    elif isinstance(request, CreateAclsRequest):
        request.creations = [entry("some", READ, TOPIC, "t")]
    elif isinstance(request, DeleteAclsRequest):
        for one in request.filters:
            one.resource_type_filter, one.pattern_type_filter, one.operation, one.permission_type = 2, 3, 3, 3
    elif isinstance(request, DescribeAclsRequest):
        request.resource_type_filter, request.pattern_type_filter = TOPIC, LITERAL
        request.operation, request.permission_type = READ, ALLOW
    elif isinstance(request, DescribeTopicPartitionsRequest):
        request.cursor = None
    elif isinstance(request, AlterConfigsRequest | IncrementalAlterConfigsRequest):
        # For brokers and loggers Apache validates the change before it checks the rights; we do not.
        for resource in request.resources:
            if resource.resource_type in (ConfigResource.BROKER, ConfigResource.BROKER_LOGGER):
                resource.resource_type, resource.resource_name = ConfigResource.CLIENT_METRICS, "metrics"
    return request


SHOWN: list[tuple[Message, range]] = [
    (MetadataRequest(topics=None, include_topic_authorized_operations=True), range(8, 11)),
    (MetadataRequest(topics=None, include_cluster_authorized_operations=True), range(8, 11)),
    (
        MetadataRequest(
            topics=[MetadataRequestTopic(name=name) for name in ("t", "hidden", "absent", "pre-absent", "bad name")],
            allow_auto_topic_creation=False,
            include_topic_authorized_operations=True,
        ),
        range(8, 13),
    ),
    (ListGroupsRequest(), range(6)),
    (ListTransactionsRequest(state_filters=[], producer_id_filters=[]), range(3)),
    (DescribeGroupsRequest(groups=["own", "foreign", "absent"], include_authorized_operations=True), range(3, 7)),
    (DescribeClusterRequest(include_cluster_authorized_operations=True), range(1)),
    (DescribeTopicPartitionsRequest(topics=[]), range(1)),
    (DescribeTopicPartitionsRequest(topics=[TopicRequest(name=name) for name in ("absent", "hidden", "t")]), range(1)),
    (
        OffsetFetchRequest(
            groups=[OffsetFetchRequestGroup(group_id=name, topics=None) for name in ("own", "foreign", "absent")]
        ),
        range(8, 10),
    ),
    (FindCoordinatorRequest(key_type=0, coordinator_keys=["own", "foreign"]), range(4, 7)),
    (FindCoordinatorRequest(key_type=1, coordinator_keys=["own", "foreign"]), range(4, 7)),
    (FindCoordinatorRequest(key_type=0, key="foreign"), range(1, 4)),
    (
        DeleteTopicsRequest(
            topics=[
                DeleteTopicState(name=name, topic_id=ZERO_UUID)
                for name in ("t", "hidden", "absent", "pre-absent", "pre-denied", "pre-hidden")
            ],
            timeout_ms=10_000,
        ),
        range(6, 7),
    ),
]


NAMES = ("t", "hidden", "absent", "pre-fix", "pre-absent", "pre-denied", "pre-hidden", "bad name")


def produce(*names: str, records: memoryview, transactional_id: str | None = None) -> ProduceRequest:
    topics = [
        TopicProduceData(name=name, partition_data=[PartitionProduceData(index=0, records=records)]) for name in names
    ]
    return ProduceRequest(transactional_id=transactional_id, acks=1, timeout_ms=5_000, topic_data=topics)


def fetch(*names: str) -> FetchRequest:
    partition = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20, current_leader_epoch=-1)
    topics = [FetchTopic(topic=name, partitions=[partition]) for name in names]
    return FetchRequest(max_wait_ms=0, min_bytes=1, topics=topics, session_epoch=-1)


def commit(group: str, *names: str) -> OffsetCommitRequest:
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=0, committed_metadata="")
    topics = [OffsetCommitRequestTopic(name=name, partitions=[partition]) for name in names]
    return OffsetCommitRequest(group_id=group, member_id="", topics=topics)


def heartbeat(*names: str) -> ConsumerGroupHeartbeatRequest:
    return ConsumerGroupHeartbeatRequest(
        group_id="own",
        member_id="m",
        member_epoch=0,
        rebalance_timeout_ms=1_000,
        subscribed_topic_names=list(names),
        topic_partitions=[],
    )


SHOWN += [
    (produce(*NAMES, records=plain()), range(3, 13)),
    (produce("pre-fix", "hidden", records=transactional(7, 0)), range(3, 12)),
    (produce("pre-fix", "hidden", records=transactional(7, 0), transactional_id="foreign"), range(3, 12)),
    (produce("hidden", records=plain(), transactional_id="foreign"), range(3, 12)),
    (fetch(*NAMES), range(4, 13)),
    (commit("own", *NAMES), range(2, 10)),
    (commit("foreign", *NAMES), range(2, 10)),
    (heartbeat("t", "hidden"), range(2)),
    (heartbeat("t", "absent"), range(2)),
    (InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0), range(6)),
    (InitProducerIdRequest(transactional_id="foreign", transaction_timeout_ms=60_000), range(6)),
    (
        DescribeConfigsRequest(
            resources=[
                DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=["retention.ms"])
                for kind, name in ((2, "t"), (2, "absent"), (4, "1"), (4, ""), (8, "1"), (32, "own"), (16, "metrics"))
            ]
        ),
        range(1, 5),
    ),
]


@pytest.mark.parametrize("name", [STRANGER, READER])
@pytest.mark.parametrize("number", range(len(SHOWN)), ids=lambda number: type(SHOWN[number][0]).__name__)
def test_lists_and_authorized_operations_of_a_client_are_those_of_apache(
    apache: Side, ours: Side, name: str, number: int
) -> None:
    request, versions = SHOWN[number]
    for version in versions:
        theirs, answer = (side.normal(side.ask(name, request, version)) for side in (apache, ours))
        assert answer == theirs, f"version {version}"


def test_requests_with_ids_of_hidden_topics_are_answered_as_by_apache(apache: Side, ours: Side) -> None:
    def ask(side: Side, key: ApiKey) -> object:
        hidden, shown = side.ids["hidden"], side.ids["t"]
        if key is ApiKey.METADATA:
            wanted = [MetadataRequestTopic(name=None, topic_id=one) for one in (hidden, shown, Uuid.of(99))]
            return side.normal(side.ask(READER, MetadataRequest(topics=wanted), 12))
        states = [DeleteTopicState(name=None, topic_id=one) for one in (hidden, shown, Uuid.of(99))]
        return side.normal(side.ask(READER, DeleteTopicsRequest(topics=states, timeout_ms=10_000), 6))

    for key in (ApiKey.METADATA, ApiKey.DELETE_TOPICS):
        assert ask(ours, key) == ask(apache, key)


def test_create_topics_needs_the_same_rights_as_on_apache(apache: Side, ours: Side) -> None:
    topics = [
        CreatableTopic(name=name, num_partitions=1, replication_factor=1, assignments=[], configs=[])
        for name in ("new-1", "other", "t", "__cluster_metadata")
    ]
    request = CreateTopicsRequest(topics=topics, timeout_ms=30_000, validate_only=True)
    for version in range(2, 8):
        theirs, answer = (side.normal(side.ask(READER, request, version)) for side in (apache, ours))
        assert answer == theirs, f"version {version}"
    seen = ours.ask(READER, request, 7)
    assert {one.name: one.error_code for one in seen.topics}["other"] == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert isinstance(ours.ask(ADMIN, MetadataRequest(topics=None), 9), MetadataResponse)
