"""Floods of requests that are each allowed: the broker's state for them is bounded, or ends with the clients.

The counts are small, for the test suite. PESSOA_FLOOD_SCALE=10 multiplies them.
"""

from __future__ import annotations

import os
import urllib.request
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import islice
from typing import TypeVar

import pytest

from pessoa.wire.api import (
    alter_client_quotas,
    create_delegation_token,
    expire_delegation_token,
    renew_delegation_token,
)
from pessoa.wire.api.create_acls import AclCreation, CreateAclsRequest, CreateAclsResponse
from pessoa.wire.api.delete_acls import DeleteAclsFilter, DeleteAclsRequest, DeleteAclsResponse
from pessoa.wire.api.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from pessoa.wire.api.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from pessoa.wire.api.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from pessoa.wire.api.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from pessoa.wire.api.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from pessoa.wire.errors import ErrorCode
from pessoa.wire.schema import Message
from tests.attacks.attack_stage import (
    ADMIN,
    ALLOW,
    GROUP,
    HIDDEN,
    LITERAL,
    LOGIN,
    MALLORY,
    MIB,
    READ,
    TOPIC,
    TRANSACTIONAL_ID,
    WRITE,
    AttackStage,
    allow,
)
from tests.support.clients import until
from tests.support.crash_wire import Wire

R = TypeVar("R", bound=Message)
SCALE = int(os.environ.get("PESSOA_FLOOD_SCALE", "1"))
PREFIXED = 4
NUMGROUPS = "kafka_coordinator_group_groupmetadatamanager_numgroups"
# The number of requests in flight on one connection.
AHEAD = 50


def ask_many(wire: Wire, requests: Iterable[Message], response: type[R], version: int) -> Iterator[R]:
    left = iter(requests)
    while some := list(islice(left, AHEAD)):
        sent = [wire.write(one, version) for one in some]
        for correlation_id in sent:
            answer = wire.read(response, version, correlation_id)
            assert isinstance(answer, response)
            yield answer


@contextmanager
def allowed(stage: AttackStage, *rights: tuple[int, str, int]) -> Iterator[None]:
    with stage.as_user(ADMIN) as admin:
        allow(admin, MALLORY, *rights)
        try:
            yield
        finally:
            filters = [
                DeleteAclsFilter(
                    resource_type_filter=kind, resource_name_filter=name, pattern_type_filter=LITERAL,
                    principal_filter=f"User:{MALLORY.name}", host_filter=None, operation=operation, permission_type=1,
                )
                for kind, name, operation in rights
            ]  # fmt: skip
            admin.ask(DeleteAclsRequest(filters=filters), DeleteAclsResponse, 3)


def page(stage: AttackStage) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{stage.metrics_port}/metrics", timeout=60) as answer:
        text: str = answer.read().decode()
    return text


def metric(stage: AttackStage, name: str) -> float:
    [line] = [line for line in page(stage).splitlines() if line.startswith(f"{name} ")]
    return float(line.split()[1])


# Groups.

GROUPS, METADATA = 300 * SCALE, b"m" * 50_000


def join(group: str) -> JoinGroupRequest:
    # In version 3 a member gets its id and joins with one request.
    return JoinGroupRequest(
        group_id=group, session_timeout_ms=60_000, rebalance_timeout_ms=60_000, member_id="",
        protocol_type="consumer", protocols=[JoinGroupRequestProtocol(name="range", metadata=METADATA)],
    )  # fmt: skip


def test_groups_with_large_metadata_take_bounded_memory_and_can_be_deleted_when_their_members_leave(
    stage: AttackStage, request: pytest.FixtureRequest
) -> None:
    names = [f"flood-{number}" for number in range(GROUPS)]
    sent_mib = GROUPS * len(METADATA) // MIB
    before = metric(stage, NUMGROUPS)
    with allowed(stage, (GROUP, "*", READ)), stage.as_user(MALLORY, LOGIN) as wire:
        with stage.attack(f"of {GROUPS} groups with {sent_mib} MiB", request, max_mib=3 * sent_mib + 32):
            answers = list(ask_many(wire, map(join, names), JoinGroupResponse, 3))
            assert {one.error_code for one in answers} == {ErrorCode.NONE}
        until(lambda: metric(stage, NUMGROUPS), lambda count: count == before + GROUPS, "the count of the groups")
        leaves = (
            LeaveGroupRequest(group_id=name, members=[MemberIdentity(member_id=one.member_id)])
            for name, one in zip(names, answers, strict=True)
        )
        assert {one.error_code for one in ask_many(wire, leaves, LeaveGroupResponse, 3)} == {ErrorCode.NONE}
    with stage.as_user(ADMIN) as admin:
        gone = ask_many(admin, [DeleteGroupsRequest(groups_names=names)], DeleteGroupsResponse, 2)
        assert len(next(gone).results) == GROUPS
    until(lambda: metric(stage, NUMGROUPS), lambda count: count <= before, "the end of the groups")


# Transactional ids.

IDS = 2_000 * SCALE


def test_a_transactional_id_takes_a_bounded_amount_of_memory(
    stage: AttackStage, request: pytest.FixtureRequest
) -> None:
    """Transactional ids expire `transactional.id.expiration.ms` (a week) after their last use, as in Apache Kafka."""
    asked = (
        InitProducerIdRequest(transactional_id=f"flood-{number}", transaction_timeout_ms=60_000)
        for number in range(IDS)
    )
    with allowed(stage, (TRANSACTIONAL_ID, "*", WRITE)), stage.as_user(MALLORY, LOGIN) as wire:
        with stage.attack(f"of {IDS} transactional ids", request, max_mib=16 + IDS * 1024 // MIB):
            found = {one.error_code for one in ask_many(wire, asked, InitProducerIdResponse, 4)}
        assert found == {ErrorCode.NONE}
        # Without a transactional id the broker keeps no state before the first record.
        plain = (InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=-1) for _ in range(IDS))
        with stage.attack(f"of {IDS} producer ids", request, max_mib=8):
            list(ask_many(wire, plain, InitProducerIdResponse, 4))


# Access control lists.

ENTRIES = 10_000 * SCALE


def entries(names: Iterable[str]) -> Iterator[CreateAclsRequest]:
    left = enumerate(names)
    while some := list(islice(left, 500)):
        yield CreateAclsRequest(
            creations=[
                AclCreation(
                    resource_type=TOPIC, resource_name=name, resource_pattern_type=PREFIXED if number % 2 else LITERAL,
                    principal=f"User:flood-{number // 5_000}", host="*", operation=READ, permission_type=ALLOW,
                )
                for number, name in some
            ]
        )  # fmt: skip


def test_ten_thousand_acls_do_not_slow_down_decisions(stage: AttackStage, request: pytest.FixtureRequest) -> None:
    """Only a super user can add ACLs; measured is their cost for requests of other users about other names."""
    with stage.as_user(ADMIN) as admin, stage.as_user(MALLORY, LOGIN) as wire:
        try:
            made = ask_many(admin, entries(f"acl-{n:07}" for n in range(ENTRIES)), CreateAclsResponse, 3)
            assert {one.error_code for answer in made for one in answer.results} == {ErrorCode.NONE}
            asked = (
                MetadataRequest(
                    topics=[MetadataRequestTopic(name=f"acl-{n:07}{'x' * 200}") for n in range(first, first + 10)],
                    allow_auto_topic_creation=False,
                )
                for first in range(0, 30_000, 10)
            )
            with stage.attack(f"with {ENTRIES} entries", request, max_mib=48):
                answers = ask_many(wire, asked, MetadataResponse, 9)
                codes = {topic.error_code for answer in answers for topic in answer.topics}
                assert codes == {ErrorCode.TOPIC_AUTHORIZATION_FAILED}
            with stage.attack(f"by changes of {ENTRIES} entries", request, max_mib=48):
                for number in range(20):
                    allow(admin, MALLORY, (TOPIC, f"one-more-{number}", READ))
                    stage.serves(5)
        finally:
            for first in range(0, ENTRIES, 5_000):
                theirs = DeleteAclsFilter(
                    resource_type_filter=TOPIC, resource_name_filter=None, pattern_type_filter=1,
                    principal_filter=f"User:flood-{first // 5_000}", host_filter=None, operation=1, permission_type=1,
                )  # fmt: skip
                answer = admin.ask(DeleteAclsRequest(filters=[theirs]), DeleteAclsResponse, 3)
                assert len(answer.filter_results[0].matching_acls) == 5_000


# Delegation tokens and quotas.

TOKENS = 1_000 * SCALE
QUOTAS = 5_000 * SCALE


def test_thousands_of_delegation_tokens_do_not_slow_down_renewals(
    stage: AttackStage, request: pytest.FixtureRequest
) -> None:
    """Every user may create tokens of its own. They expire after `delegation.token.max.lifetime.ms`."""
    asked = (
        create_delegation_token.CreateDelegationTokenRequest(renewers=[], max_lifetime_ms=3_600_000)
        for _ in range(TOKENS)
    )
    with stage.as_user(MALLORY) as wire:
        made: list[bytes] = []
        try:
            with stage.attack(f"of {TOKENS} tokens", request, max_mib=16 + TOKENS * 4096 // MIB):
                for one in ask_many(wire, asked, create_delegation_token.CreateDelegationTokenResponse, 2):
                    assert one.error_code == ErrorCode.NONE
                    made.append(one.hmac)
                forged = (
                    renew_delegation_token.RenewDelegationTokenRequest(hmac=bytes(64), renew_period_ms=1)
                    for _ in range(200)
                )
                answers = ask_many(wire, forged, renew_delegation_token.RenewDelegationTokenResponse, 2)
                assert {one.error_code for one in answers} == {ErrorCode.DELEGATION_TOKEN_NOT_FOUND}
        finally:
            ends = (
                expire_delegation_token.ExpireDelegationTokenRequest(hmac=hmac, expiry_time_period_ms=-1)
                for hmac in made
            )
            for end in ask_many(wire, ends, expire_delegation_token.ExpireDelegationTokenResponse, 2):
                assert end.error_code == ErrorCode.NONE


def test_thousands_of_quotas_take_a_bounded_amount_of_memory(
    stage: AttackStage, request: pytest.FixtureRequest
) -> None:
    def change(first: int, *, remove: bool) -> alter_client_quotas.AlterClientQuotasRequest:
        return alter_client_quotas.AlterClientQuotasRequest(
            entries=[
                alter_client_quotas.EntryData(
                    entity=[alter_client_quotas.EntityData(entity_type="client-id", entity_name=f"flood-{number}")],
                    ops=[alter_client_quotas.OpData(key="producer_byte_rate", value=1e9, remove=remove)],
                )
                for number in range(first, first + 500)
            ],
            validate_only=False,
        )

    with stage.as_user(ADMIN) as admin:
        for remove in (False, True):
            what = f"of {QUOTAS} quotas that {'go' if remove else 'come'}"
            with stage.attack(what, request, max_mib=16 + QUOTAS * 4096 // MIB):
                changes = (change(first, remove=remove) for first in range(0, QUOTAS, 500))
                for answer in ask_many(admin, changes, alter_client_quotas.AlterClientQuotasResponse, 1):
                    assert {one.error_code for one in answer.entries} == {ErrorCode.NONE}


# The page of metrics, and the logs.

CLIENT_IDS = 3_000 * SCALE


def test_client_ids_do_not_lengthen_the_metrics_page(stage: AttackStage, request: pytest.FixtureRequest) -> None:
    def limit(admin: Wire, *, remove: bool) -> None:
        entity = alter_client_quotas.EntityData(entity_type="client-id", entity_name=None)
        keys = ("producer_byte_rate", "consumer_byte_rate", "request_percentage")
        ops = [alter_client_quotas.OpData(key=key, value=1e6, remove=remove) for key in keys]
        asked = alter_client_quotas.AlterClientQuotasRequest(
            entries=[alter_client_quotas.EntryData(entity=[entity], ops=ops)], validate_only=False
        )
        answer = admin.ask(asked, alter_client_quotas.AlterClientQuotasResponse, 1)
        assert answer.entries[0].error_code == ErrorCode.NONE

    with stage.as_user(ADMIN) as admin, stage.as_user(MALLORY, LOGIN) as wire:
        limit(admin, remove=False)
        try:
            before = len(page(stage))
            with stage.attack(f"of {CLIENT_IDS} client ids", request, max_mib=32):
                for number in range(CLIENT_IDS):
                    wire._client_id = f"rotated-{number}-{'x' * 500}"
                    wire.ask(MetadataRequest(topics=[]), MetadataResponse, 12)
                text = page(stage)
            # The page shows at most a hundred quotas, each with two lines.
            assert text.count("rotated-") <= 2 * 100
            assert len(text) < before + 128 * 1024
        finally:
            limit(admin, remove=True)


REFUSALS = 2_000 * SCALE


def test_refused_requests_and_connections_write_a_bounded_number_of_lines(
    stage: AttackStage, request: pytest.FixtureRequest
) -> None:
    said = len(stage.process.said)
    audit = stage.logs / "audit.log"
    audited = audit.stat().st_size
    with stage.attack(f"of {REFUSALS} refusals", request, max_mib=32):
        asked = MetadataRequest(topics=[MetadataRequestTopic(name=HIDDEN)], allow_auto_topic_creation=False)
        with stage.as_user(MALLORY, LOGIN) as wire:
            list(ask_many(wire, (asked for _ in range(REFUSALS)), MetadataResponse, 9))
        for _ in range(REFUSALS // 4):
            with stage.plain(LOGIN) as stranger:
                # The broker accepts no such request before the login.
                stranger.write(asked, 9)
                assert stranger.is_closed()
    written = stage.process.said[said:]
    # At most a hundred lines a minute of each kind, and the flood may take some minutes on a busy machine.
    assert written.count("before authentication") <= 5 * 100
    sizes = {path.name: path.stat().st_size for path in stage.logs.iterdir()}
    # The default of pessoa.logs.max.bytes is 16 MiB, and of max.files 5.
    assert all(size <= 17 * MIB for size in sizes.values()), sizes
    assert audit.stat().st_size - audited < MIB
