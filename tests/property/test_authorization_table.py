"""The authorization of each API: in every version, on the listeners of brokers and of controllers, denied and allowed.

`TABLE` has for every API the rights that it needs, in the order in which it checks them, and the error for a client
that has only the rights before. Each case has a principal of its own: one with none of the rights, one with the first,
…, one with all. Requests are those of `test_every_api`. While rights are missing nothing may change; with all rights no
response may have an authorization error.

Lists that are filtered, and what exactly a hidden topic looks like, are in `tests/cluster/test_authorization.py`.
"""

from __future__ import annotations

import asyncio
import contextlib
from random import Random
from typing import Any, NamedTuple
from zlib import crc32

import pytest

from pessoa.base.ids import ZERO_UUID, Uuid
from pessoa.broker.api_row import ApiRow
from pessoa.broker.api_table import broker_rows, controller_rows
from pessoa.broker.lifecycle import Broker
from pessoa.net.channel import Channel
from pessoa.net.network import SystemNetwork
from pessoa.security.acl import (
    ALLOW,
    ALTER,
    ALTER_CONFIGS,
    CLUSTER,
    CLUSTER_ACTION,
    CLUSTER_NAME,
    CREATE,
    DELETE,
    DESCRIBE,
    DESCRIBE_CONFIGS,
    GROUP,
    IDEMPOTENT_WRITE,
    LITERAL,
    READ,
    TOPIC,
    TRANSACTIONAL_ID,
    WRITE,
    Operation,
    ResourceType,
)
from pessoa.wire.api.alter_share_group_offsets import AlterShareGroupOffsetsRequest
from pessoa.wire.api.create_acls import AclCreation, CreateAclsRequest, CreateAclsResponse
from pessoa.wire.api.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from pessoa.wire.api.delete_topics import DeleteTopicsRequest
from pessoa.wire.api.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from pessoa.wire.api.metadata import MetadataRequest, MetadataRequestTopic
from pessoa.wire.api.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from pessoa.wire.api.share_fetch import ShareFetchRequest
from pessoa.wire.catalogue import ApiKey
from pessoa.wire.codec_compiler import Layout
from pessoa.wire.errors import ErrorCode
from pessoa.wire.frames import request_frame
from pessoa.wire.message_headers import ResponseHeader, response_header_version
from pessoa.wire.schema import Message, Struct
from tests.cluster.test_roles import node
from tests.property.test_every_api import BROKER, CONTROLLER, ONE_REPLICA, Known, PlausibleRequests
from tests.support.controller_listeners import bootstrap_controllers
from tests.support.identities import believe_client_ids

TIMEOUT_S = 300.0
PATIENCE_S = 0.5
# An answer to a denied request does not wait for anything.
DENIED_PATIENCE_S = 30.0
SEEDS = range(12)
AT_A_TIME = 24
SIZE_BYTES = 4
ADMIN = "User:admin"
SECURED = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": f"User:ANONYMOUS;{ADMIN}",
}

TAF = ErrorCode.TOPIC_AUTHORIZATION_FAILED
GAF = ErrorCode.GROUP_AUTHORIZATION_FAILED
CAF = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
XAF = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
DENIED = {TAF, GAF, CAF, XAF}

Right = tuple[Operation, ResourceType]


class Step(NamedTuple):
    """Rights, and the error codes of which a client without them must get one."""

    rights: tuple[Right, ...]
    heard: frozenset[ErrorCode]


def step(heard: ErrorCode | set[ErrorCode], *rights: Right) -> Step:
    return Step(rights, frozenset(heard if isinstance(heard, set) else {heard}))


def cluster(operation: Operation) -> list[Step]:
    return [step(CAF, (operation, CLUSTER))]


def topic(operation: Operation) -> list[Step]:
    return [step(TAF, (operation, TOPIC))]


def group(operation: Operation) -> list[Step]:
    return [step(GAF, (operation, GROUP))]


def transaction(operation: Operation) -> list[Step]:
    return [step(XAF, (operation, TRANSACTIONAL_ID))]


def configs(operation: Operation) -> list[Step]:
    return [step({TAF, GAF, CAF}, (operation, TOPIC), (operation, GROUP), (operation, CLUSTER))]


BETWEEN_NODES = cluster(CLUSTER_ACTION)

TABLE: dict[ApiKey, list[Step]] = {
    ApiKey.PRODUCE: topic(WRITE),
    ApiKey.FETCH: [step(TAF, (READ, TOPIC), (CLUSTER_ACTION, CLUSTER))],
    ApiKey.LIST_OFFSETS: topic(DESCRIBE),
    ApiKey.METADATA: topic(DESCRIBE),
    ApiKey.OFFSET_COMMIT: group(READ) + topic(READ),
    ApiKey.OFFSET_FETCH: group(DESCRIBE) + topic(DESCRIBE),
    ApiKey.FIND_COORDINATOR: [
        step({GAF, XAF, CAF}, (DESCRIBE, GROUP), (DESCRIBE, TRANSACTIONAL_ID), (CLUSTER_ACTION, CLUSTER))
    ],
    ApiKey.JOIN_GROUP: group(READ),
    ApiKey.HEARTBEAT: group(READ),
    ApiKey.LEAVE_GROUP: group(READ),
    ApiKey.SYNC_GROUP: group(READ),
    ApiKey.DESCRIBE_GROUPS: group(DESCRIBE),
    ApiKey.CREATE_TOPICS: [step(TAF, (CREATE, TOPIC)), step(TAF, (DESCRIBE_CONFIGS, TOPIC))],
    ApiKey.DELETE_TOPICS: topic(DELETE),
    ApiKey.DELETE_RECORDS: topic(DELETE),
    ApiKey.INIT_PRODUCER_ID: [step({XAF, CAF}, (WRITE, TRANSACTIONAL_ID), (IDEMPOTENT_WRITE, CLUSTER))],
    ApiKey.OFFSET_FOR_LEADER_EPOCH: topic(DESCRIBE),
    ApiKey.ADD_OFFSETS_TO_TXN: transaction(WRITE) + group(READ),
    ApiKey.END_TXN: transaction(WRITE),
    ApiKey.WRITE_TXN_MARKERS: cluster(ALTER),
    ApiKey.TXN_OFFSET_COMMIT: transaction(WRITE) + group(READ) + topic(READ),
    ApiKey.DESCRIBE_ACLS: cluster(DESCRIBE),
    ApiKey.CREATE_ACLS: cluster(ALTER),
    ApiKey.DELETE_ACLS: cluster(ALTER),
    ApiKey.DESCRIBE_CONFIGS: configs(DESCRIBE_CONFIGS),
    ApiKey.ALTER_CONFIGS: configs(ALTER_CONFIGS),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: [
        step(
            {TAF, GAF, CAF},
            (ALTER_CONFIGS, TOPIC),
            (ALTER_CONFIGS, GROUP),
            (ALTER_CONFIGS, CLUSTER),
            (CLUSTER_ACTION, CLUSTER),
        )
    ],
    ApiKey.ALTER_REPLICA_LOG_DIRS: cluster(ALTER),
    ApiKey.DESCRIBE_LOG_DIRS: cluster(DESCRIBE),
    ApiKey.CREATE_PARTITIONS: topic(ALTER),
    ApiKey.DELETE_GROUPS: group(DELETE),
    ApiKey.ELECT_LEADERS: cluster(ALTER),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: cluster(ALTER),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: cluster(DESCRIBE),
    ApiKey.OFFSET_DELETE: group(DELETE) + topic(READ),
    ApiKey.DESCRIBE_CLIENT_QUOTAS: cluster(DESCRIBE_CONFIGS),
    ApiKey.ALTER_CLIENT_QUOTAS: cluster(ALTER_CONFIGS),
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: cluster(DESCRIBE),
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: cluster(ALTER),
    ApiKey.DESCRIBE_QUORUM: cluster(DESCRIBE),
    ApiKey.UPDATE_FEATURES: cluster(ALTER),
    ApiKey.DESCRIBE_PRODUCERS: topic(READ),
    ApiKey.UNREGISTER_BROKER: cluster(ALTER),
    ApiKey.DESCRIBE_TRANSACTIONS: transaction(DESCRIBE),
    ApiKey.CONSUMER_GROUP_HEARTBEAT: group(READ) + topic(DESCRIBE),
    ApiKey.CONSUMER_GROUP_DESCRIBE: group(DESCRIBE),
    ApiKey.SHARE_GROUP_HEARTBEAT: group(READ) + topic(DESCRIBE),
    ApiKey.SHARE_GROUP_DESCRIBE: group(DESCRIBE),
    ApiKey.STREAMS_GROUP_HEARTBEAT: group(READ) + topic(DESCRIBE),
    ApiKey.STREAMS_GROUP_DESCRIBE: group(DESCRIBE),
    ApiKey.SHARE_FETCH: group(READ) + topic(READ),
    ApiKey.SHARE_ACKNOWLEDGE: group(READ),
    ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: group(DESCRIBE) + topic(DESCRIBE),
    ApiKey.ALTER_SHARE_GROUP_OFFSETS: group(READ) + topic(READ),
    ApiKey.DELETE_SHARE_GROUP_OFFSETS: group(DELETE),
    ApiKey.LIST_CONFIG_RESOURCES: cluster(DESCRIBE_CONFIGS),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: topic(DESCRIBE),
    ApiKey.ADD_RAFT_VOTER: cluster(ALTER),
    ApiKey.REMOVE_RAFT_VOTER: cluster(ALTER),
    **dict.fromkeys(
        (
            ApiKey.VOTE,
            ApiKey.BEGIN_QUORUM_EPOCH,
            ApiKey.END_QUORUM_EPOCH,
            ApiKey.ALTER_PARTITION,
            ApiKey.ENVELOPE,
            ApiKey.FETCH_SNAPSHOT,
            ApiKey.BROKER_REGISTRATION,
            ApiKey.BROKER_HEARTBEAT,
            ApiKey.ALLOCATE_PRODUCER_IDS,
            ApiKey.CONTROLLER_REGISTRATION,
            ApiKey.ASSIGN_REPLICAS_TO_DIRS,
            ApiKey.UPDATE_RAFT_VOTER,
            ApiKey.INITIALIZE_SHARE_GROUP_STATE,
            ApiKey.READ_SHARE_GROUP_STATE,
            ApiKey.WRITE_SHARE_GROUP_STATE,
            ApiKey.DELETE_SHARE_GROUP_STATE,
            ApiKey.READ_SHARE_GROUP_STATE_SUMMARY,
        ),
        BETWEEN_NODES,
    ),
}
# Answered to every client; filtered lists; tokens, which a client without a login cannot have; a client's own metrics.
UNCHECKED = {
    ApiKey.API_VERSIONS,
    ApiKey.SASL_HANDSHAKE,
    ApiKey.SASL_AUTHENTICATE,
    ApiKey.LIST_GROUPS,
    ApiKey.LIST_TRANSACTIONS,
    ApiKey.CREATE_DELEGATION_TOKEN,
    ApiKey.RENEW_DELEGATION_TOKEN,
    ApiKey.EXPIRE_DELEGATION_TOKEN,
    ApiKey.DESCRIBE_DELEGATION_TOKEN,
    ApiKey.GET_TELEMETRY_SUBSCRIPTIONS,
    ApiKey.PUSH_TELEMETRY,
}
# DescribeLogDirs has no place for an error before version 3.
SILENT = {(ApiKey.DESCRIBE_LOG_DIRS, 1), (ApiKey.DESCRIBE_LOG_DIRS, 2)}


class Case(NamedTuple):
    where: str
    row: ApiRow[Any]
    version: int
    steps: list[Step]

    def principal(self, step_count: int) -> str:
        return f"User:{self.where}-{self.row.key.name}-{self.version}-{step_count}"

    def rights(self, step_count: int) -> list[Right]:
        return [right for one in self.steps[:step_count] for right in one.rights]

    def __str__(self) -> str:
        return f"{self.where} {self.row.key.title} {self.version}"


def steps_of(where: str, key: ApiKey, version: int) -> list[Step]:
    if where == CONTROLLER and key is ApiKey.FETCH:
        return BETWEEN_NODES
    if where == CONTROLLER and key is ApiKey.DESCRIBE_CLUSTER:
        return cluster(ALTER)
    if key is ApiKey.ADD_PARTITIONS_TO_TXN:
        return BETWEEN_NODES if version >= 4 else transaction(WRITE) + topic(WRITE)
    if key is ApiKey.CREATE_TOPICS and version < 5:
        return topic(CREATE)
    return TABLE.get(key, [])


def every_case() -> list[Case]:
    rows = [(BROKER, row) for row in broker_rows()] + [(CONTROLLER, row) for row in controller_rows()]
    cases = [
        Case(where, row, version, steps_of(where, row.key, version))
        for where, row in rows
        for version in row.versions.each()
    ]
    return [case for case in cases if case.steps]


def test_every_api_is_in_the_table_or_needs_no_right() -> None:
    for row in (*broker_rows(), *controller_rows()):
        is_special = row.key in (ApiKey.DESCRIBE_CLUSTER, ApiKey.ADD_PARTITIONS_TO_TXN)
        assert (row.key in TABLE) + (row.key in UNCHECKED) + is_special == 1, row


def test_what_the_row_of_an_api_declares_is_in_the_table() -> None:
    for row in (*broker_rows(), *controller_rows()):
        declared = [(one.operation, one.resource) for one in row.authorised]
        known = [right for one in TABLE.get(row.key, []) for right in one.rights]
        assert set(declared) <= set(known), row


def codes_of(value: object) -> set[int]:
    """Return every error code in a response, in any of its fields."""
    if isinstance(value, list):
        return {code for one in value for code in codes_of(one)}
    if not isinstance(value, Struct):
        return set()
    found: set[int] = set()
    for one in value.fields:
        part = getattr(value, one.name)
        found |= {part} if one.name.endswith("error_code") else codes_of(part)
    return found


@pytest.fixture
def identities(monkeypatch: pytest.MonkeyPatch) -> None:
    believe_client_ids(monkeypatch)


@pytest.mark.usefixtures("identities")
def test_every_api_denies_without_each_right_and_serves_with_all_of_them() -> None:
    async def main() -> None:
        async with asyncio.timeout(TIMEOUT_S):
            await scenario()

    asyncio.run(main())


async def scenario() -> None:
    bugs: list[str] = []
    controller = node(100, CONTROLLER, "100@127.0.0.1:0", more=SECURED)
    controller.on_bug = lambda bug: bugs.append(repr(bug))
    await controller.start()
    voters = f"100@{bootstrap_controllers(controller)}"
    broker = node(1, BROKER, voters, more=ONE_REPLICA | SECURED | {"group.initial.rebalance.delay.ms": "0"})
    broker.on_bug = lambda bug: bugs.append(repr(bug))
    await broker.start()
    asker = Asker(broker, controller)
    await asker.prepare()
    cases = every_case()

    # Without the rights no request changes anything.
    before = controller.image.offset
    missing_errors = await asker.missing_errors([(case, number) for case in cases for number in range(len(case.steps))])
    assert not missing_errors, "\n".join(missing_errors)
    assert controller.image.offset == before, "a request that was denied has changed something"

    # The quorum's own requests may take the lead from the controller; others should find it in place.
    quorum = [case for case in cases if case.where == CONTROLLER and case.row.serve_in_quorum is not None]
    for some in ([case for case in cases if case not in quorum], quorum):
        denied = await asker.denied(some)
        assert not denied, "\n".join(denied)
    assert not bugs
    broker.abandon()
    controller.abandon()


def made_sensible(request: Message, version: int, seed: int) -> Message:
    """Return the request with valid values in fields in which random ones are refused before authorization."""
    if isinstance(request, MetadataRequest) and version < 12:
        request.topics = [MetadataRequestTopic(name="t")]
    elif isinstance(request, CreateTopicsRequest):
        new = CreatableTopic(name=f"new-{seed}", num_partitions=1, replication_factor=1, assignments=[], configs=[])
        request.topics, request.validate_only = [new], True
    elif isinstance(request, DeleteTopicsRequest):
        for state in request.topics:
            if seed % 2:
                state.name = None
            else:
                state.topic_id = ZERO_UUID
    elif isinstance(request, ShareFetchRequest):
        request.group_id, request.member_id, request.share_session_epoch, request.is_renew_ack = "g", "m", 0, False
        request.max_bytes, request.max_records, request.max_wait_ms, request.share_acquire_mode = 1000, 10, 0, 0
        for wanted in request.topics:
            for one in wanted.partitions:
                one.acknowledgement_batches = []
    elif isinstance(request, AlterShareGroupOffsetsRequest):
        # "g" is a group of another type.
        request.group_id = "shared"
    return request


class Asker:
    def __init__(self, broker: Broker, controller: Broker) -> None:
        self._broker = broker
        self._controller = controller
        self._servers = {BROKER: broker.bootstrap_servers, CONTROLLER: bootstrap_controllers(controller)}
        self._gate = asyncio.Semaphore(AT_A_TIME)
        self._known: Known

    async def prepare(self) -> None:
        """Create a topic, a group with an offset, and the ACLs of all principals."""
        host, _, port = self._servers[BROKER].partition(":")
        channel = Channel(SystemNetwork(), host, int(port), ADMIN)
        one = CreatableTopic(name="t", num_partitions=2, replication_factor=1, assignments=[], configs=[])
        created = await channel.send(CreateTopicsRequest(topics=[one], timeout_ms=60_000), 7, 60_000)
        assert isinstance(created, CreateTopicsResponse)
        assert codes_of(created) == {0}, created
        self._known = Known(self._controller.cluster_id, created.topics[0].topic_id, Uuid.of(7))
        for kind in (0, 1):
            while True:
                request = FindCoordinatorRequest(key_type=kind, coordinator_keys=["g"])
                found = await channel.send(request, 4, 60_000)
                assert isinstance(found, FindCoordinatorResponse)
                if codes_of(found) == {0}:
                    break
        while True:
            partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=0, committed_metadata="")
            commit = OffsetCommitRequest(
                group_id="g", member_id="", topics=[OffsetCommitRequestTopic(name="t", partitions=[partition])]
            )
            committed = await channel.send(commit, 8, 60_000)
            assert isinstance(committed, OffsetCommitResponse)
            if codes_of(committed) == {0}:
                break
        entries = [
            AclCreation(
                resource_type=kind,
                resource_name=CLUSTER_NAME if kind == CLUSTER else "*",
                resource_pattern_type=LITERAL,
                principal=case.principal(number),
                host="*",
                operation=operation,
                permission_type=ALLOW,
            )
            for case in every_case()
            for number in range(len(case.steps) + 1)
            for operation, kind in case.rights(number)
        ]
        response = await channel.send(CreateAclsRequest(creations=entries), 3, 60_000)
        assert isinstance(response, CreateAclsResponse)
        assert codes_of(response) == {0}
        for one_node in (self._broker, self._controller):
            while len(one_node.image.acls.by_id) < len(set(map(repr, entries))):  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        channel.close()

    async def missing_errors(self, asked: list[tuple[Case, int]]) -> list[str]:
        """Return the cases in which a client with too few rights did not get the expected error."""

        async def ask(case: Case, number: int) -> str | None:
            heard: set[int] = set()
            for seed in SEEDS:
                response = await self._ask(case, number, seed, DENIED_PATIENCE_S)
                heard |= codes_of(response)
                if heard & case.steps[number].heard or (case.row.key, case.version) in SILENT:
                    return None
            return f"{case} with {number} steps: heard {heard}"

        return [one for one in await asyncio.gather(*(ask(*each) for each in asked)) if one is not None]

    async def denied(self, cases: list[Case]) -> list[str]:
        """Return the cases in which a client with all rights got an authorization error."""

        async def ask(case: Case, seed: int) -> str | None:
            response = await self._ask(case, len(case.steps), seed, PATIENCE_S)
            found = codes_of(response) & DENIED
            return f"{case}: {response!r}" if found else None

        answers = await asyncio.gather(*(ask(case, seed) for case in cases for seed in SEEDS[:4]))
        return [one for one in answers if one is not None]

    async def _ask(self, case: Case, step_count: int, seed: int, patience_s: float) -> Message | None:
        key, version = case.row.key, case.version
        rng = Random(crc32(f"{case} {seed}".encode()))
        requests = PlausibleRequests(Layout(key.request, version), rng, self._known, is_strange=False)
        request = made_sensible(requests.struct(key.request), version, seed)
        async with self._gate:
            data = await _answer(self._servers[case.where], request, version, case.principal(step_count), patience_s)
        if data is None:
            return None
        _, position = ResponseHeader.decoder(response_header_version(key.request, version))(data, 0, len(data))
        response, _ = key.response.decoder(version)(data, position, len(data))
        return response  # type: ignore[no-any-return]


async def _answer(servers: str, request: Message, version: int, principal: str, patience_s: float) -> bytes | None:
    """Return the response frame without its size, or None if none came."""
    host, _, port = servers.partition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        writer.write(b"".join(request_frame(request, version, 7, principal)))
        async with asyncio.timeout(patience_s):
            size = int.from_bytes(await reader.readexactly(SIZE_BYTES), "big")
            return await reader.readexactly(size)
    except (TimeoutError, asyncio.IncompleteReadError, ConnectionError):
        return None
    finally:
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()
