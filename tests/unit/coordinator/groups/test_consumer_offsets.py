"""Offsets of groups of the consumer protocol: which epochs may commit what."""

from __future__ import annotations

import pytest

from pessoa.base.ids import ZERO_UUID
from pessoa.wire.api.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from pessoa.wire.api.offset_delete import OffsetDeleteResponse
from pessoa.wire.api.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchResponse
from pessoa.wire.api.txn_offset_commit import TxnOffsetCommitResponse
from pessoa.wire.errors import ErrorCode, Refusal
from tests.unit.coordinator.groups.bench import Bench
from tests.unit.coordinator.groups.consumer_client import GROUP, Member, reconcile
from tests.unit.coordinator.groups.test_offsets import EXPIRY_CHECK_MS, WEEK_MS, OffsetClient


@pytest.fixture
def bench() -> Bench:
    return Bench()


@pytest.fixture
def client(bench: Bench) -> OffsetClient:
    return OffsetClient(bench)


def fetch_error(bench: Bench, member: str | None, epoch: int) -> ErrorCode:
    group = OffsetFetchRequestGroup(group_id=GROUP, member_id=member, member_epoch=epoch, topics=[])
    reply = bench.replies[bench.send(OffsetFetchRequest(groups=[group]))]
    return reply.code if isinstance(reply, Refusal) else ErrorCode.NONE


def test_a_consumer_group_member_commits_offsets_with_its_member_epoch(bench: Bench, client: OffsetClient) -> None:
    member = Member(bench, "a", "orders")
    member.join()
    assert client.commit(5, member="a", generation=2) == ErrorCode.NONE
    assert client.commit_error(6, member="a", generation=3) is ErrorCode.STALE_MEMBER_EPOCH
    assert client.commit_error(6, member="ghost", generation=2) is ErrorCode.UNKNOWN_MEMBER_ID
    assert client.commit_error(6) is ErrorCode.UNKNOWN_MEMBER_ID, (
        "an admin client cannot commit while there are members"
    )
    assert client.offset() == 5


def test_offset_commits_of_consumer_group_members_need_a_version_with_member_epochs(
    bench: Bench, client: OffsetClient
) -> None:
    Member(bench, "a", "orders").join()
    assert client.commit_error(1, 8, member="a", generation=2) is ErrorCode.UNSUPPORTED_VERSION


def test_a_commit_with_an_older_member_epoch_is_accepted_for_partitions_that_the_member_had_then_and_has_now(
    bench: Bench, client: OffsetClient
) -> None:
    first, second = Member(bench, "a", "orders"), Member(bench, "b", "orders")
    first.join()
    bench.pass_time(1_000)
    second.join()
    reconcile(first, second)
    assert first.names == {"orders": [0, 1]}
    assert (first.epoch, second.epoch) == (3, 3)
    assert client.commit(1, partition=0, member="a", generation=2) == ErrorCode.NONE
    stale = client.commit_error(1, partition=2, member="a", generation=2)
    assert stale is ErrorCode.STALE_MEMBER_EPOCH, "it is the second's by now"
    early = client.commit_error(1, partition=2, member="b", generation=2)
    assert early is ErrorCode.STALE_MEMBER_EPOCH, "the second got it at epoch 3"


def test_offsets_of_partitions_that_are_being_revoked_may_be_committed(bench: Bench, client: OffsetClient) -> None:
    first, second = Member(bench, "a", "orders"), Member(bench, "b", "orders")
    first.join()
    bench.pass_time(1_000)
    second.join()
    first.ping()
    assert client.commit(9, partition=2, member="a", generation=2) == ErrorCode.NONE


def test_offset_fetch_checks_the_epoch_of_a_member_and_accepts_requests_without_one(bench: Bench) -> None:
    Member(bench, "a", "orders").join()
    assert fetch_error(bench, "a", 2) is ErrorCode.NONE
    assert fetch_error(bench, "a", 1) is ErrorCode.STALE_MEMBER_EPOCH
    assert fetch_error(bench, "ghost", 2) is ErrorCode.UNKNOWN_MEMBER_ID
    assert fetch_error(bench, None, -1) is ErrorCode.NONE


def test_an_empty_consumer_group_accepts_commits_without_a_member(bench: Bench, client: OffsetClient) -> None:
    member = Member(bench, "a", "orders")
    member.join()
    member.leave()
    assert client.commit(3) == ErrorCode.NONE
    assert client.offset() == 3


def test_transactional_commits_of_consumer_groups_check_the_epoch_as_a_generation(
    bench: Bench, client: OffsetClient
) -> None:
    first, second = Member(bench, "a", "orders"), Member(bench, "b", "orders")
    first.join()
    bench.pass_time(1_000)
    second.join()
    reconcile(first, second)

    def error(**details: object) -> ErrorCode:
        reply = bench.replies[client.commit_in_transaction(1, **details)]  # type: ignore[arg-type]
        return reply.code if isinstance(reply, Refusal) else ErrorCode.NONE

    assert error(member="a", generation=3) is ErrorCode.NONE
    assert error(member="a", generation=2) is ErrorCode.NONE
    assert error(member="a", generation=4) is ErrorCode.ILLEGAL_GENERATION
    assert error(member="a", generation=2, partition=2) is ErrorCode.ILLEGAL_GENERATION
    assert error(member="ghost", generation=3) is ErrorCode.UNKNOWN_MEMBER_ID
    token = client.commit_in_transaction(1)
    bench.answer(TxnOffsetCommitResponse, token)


def test_offsets_of_subscribed_topics_cannot_be_deleted_and_others_can(bench: Bench, client: OffsetClient) -> None:
    Member(bench, "a", "orders").join()
    client.commit(1, member="a", generation=2)
    client.commit(1, topic="payments", member="a", generation=2)
    subscribed = bench.ask(OffsetDeleteResponse, client.delete(0))
    assert subscribed.topics[0].partitions[0].error_code == ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
    other = bench.ask(OffsetDeleteResponse, client.delete(0, topic="payments"))
    assert other.topics[0].partitions[0].error_code == ErrorCode.NONE
    assert client.fetch_all() == {("orders", 0): (1, 0)}


def test_offsets_expire_when_no_member_is_subscribed_and_the_group_is_deleted_with_the_last(
    bench: Bench, client: OffsetClient
) -> None:
    member = Member(bench, "a", "orders")
    member.join()
    client.commit(1, member="a", generation=2)
    member.leave()
    bench.pass_time(WEEK_MS + EXPIRY_CHECK_MS)
    assert GROUP not in bench.shard.registry.groups
    bench.reload()
    assert bench.shard.registry.groups == {}


def test_a_consumer_group_with_members_cannot_be_deleted_and_an_empty_one_leaves_no_records(
    bench: Bench, client: OffsetClient
) -> None:
    member = Member(bench, "a", "orders")
    member.join()
    client.commit(1, member="a", generation=2)
    request = DeleteGroupsRequest(groups_names=[GROUP])
    assert bench.ask(DeleteGroupsResponse, request).results[0].error_code == ErrorCode.NON_EMPTY_GROUP
    member.leave()
    assert bench.ask(DeleteGroupsResponse, request).results[0].error_code == ErrorCode.NONE
    bench.reload()
    assert bench.shard.registry.groups == {}
    assert client.fetch_all() == {}


def test_a_consumer_group_is_loaded_correctly_if_its_offsets_precede_it_in_the_log(
    bench: Bench, client: OffsetClient
) -> None:
    client.commit(7)
    member = Member(bench, "a", "orders")
    member.join()
    bench.reload()
    assert client.fetch_all() == {("orders", 0): (7, 0)}
    assert member.beat() == {"orders": [0, 1, 2]}
    group = OffsetFetchRequestGroup(group_id=GROUP, topics=None)
    answer = bench.ask(OffsetFetchResponse, OffsetFetchRequest(groups=[group]))
    assert answer.groups[0].topics[0].topic_id == ZERO_UUID
