"""Committed offsets in a shard: commit, fetch, delete, transactions, expiry, and their records."""

from __future__ import annotations

import pytest

from pessoa.base.ids import ZERO_UUID, Uuid
from pessoa.coordinator.groups.classic.classic_group import ClassicGroup
from pessoa.coordinator.groups.group_config import GroupCoordinatorConfig
from pessoa.wire.api.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from pessoa.wire.api.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from pessoa.wire.api.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)
from pessoa.wire.api.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponsePartitions,
)
from pessoa.wire.api.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)
from pessoa.wire.errors import ErrorCode, Refusal
from pessoa.wire.stored.group_records import LegacyOffsetCommitKey, LegacyOffsetCommitValue, OffsetCommitValue
from tests.unit.coordinator.groups.bench import START_MS, Bench
from tests.unit.coordinator.groups.classic_client import GROUP, ClassicClient, subscription
from tests.unit.coordinator.images import image, topic_id

DAY_MS = 24 * 60 * 60 * 1000
WEEK_MS = 7 * DAY_MS
EXPIRY_CHECK_MS = 10 * 60 * 1000
PRODUCER = 77


class OffsetClient:
    def __init__(self, bench: Bench, group: str = GROUP) -> None:
        self.bench = bench
        self.group = group

    def commit_request(
        self,
        offset: int,
        *,
        partition: int = 0,
        topic: str = "orders",
        of: Uuid | None = None,
        member: str = "",
        generation: int = -1,
        instance: str | None = None,
        metadata: str | None = "",
        retention_ms: int = -1,
    ) -> OffsetCommitRequest:
        return OffsetCommitRequest(
            group_id=self.group,
            generation_id_or_member_epoch=generation,
            member_id=member,
            group_instance_id=instance,
            retention_time_ms=retention_ms,
            topics=[
                OffsetCommitRequestTopic(
                    name=topic,
                    topic_id=topic_id(topic) if of is None else of,
                    partitions=[
                        OffsetCommitRequestPartition(
                            partition_index=partition,
                            committed_offset=offset,
                            committed_leader_epoch=4,
                            committed_metadata=metadata,
                        )
                    ],
                )
            ],
        )

    def commit(self, offset: int, **details: object) -> int:
        request = self.commit_request(offset, **details)  # type: ignore[arg-type]
        response = self.bench.ask(OffsetCommitResponse, request)
        return response.topics[0].partitions[0].error_code

    def commit_error(self, offset: int, version: int = 9, **details: object) -> ErrorCode:
        return self.bench.refusal(self.commit_request(offset, **details), version).code  # type: ignore[arg-type]

    def commit_in_transaction(
        self,
        offset: int,
        *,
        producer: int = PRODUCER,
        partition: int = 0,
        member: str = "",
        generation: int = -1,
        instance: str | None = None,
        metadata: str = "",
    ) -> int:
        """The token of the request."""
        request = TxnOffsetCommitRequest(
            transactional_id="txn",
            group_id=self.group,
            producer_id=producer,
            producer_epoch=0,
            generation_id=generation,
            member_id=member,
            group_instance_id=instance,
            topics=[
                TxnOffsetCommitRequestTopic(
                    name="orders",
                    partitions=[
                        TxnOffsetCommitRequestPartition(
                            partition_index=partition, committed_offset=offset, committed_metadata=metadata
                        )
                    ],
                )
            ],
        )
        return self.bench.send(request, 5)

    def fetch(
        self, partition: int = 0, *, topic: str = "orders", of: Uuid = ZERO_UUID, stable: bool = False
    ) -> OffsetFetchResponsePartitions:
        wanted = OffsetFetchRequestTopics(name=topic, topic_id=of, partition_indexes=[partition])
        group = OffsetFetchRequestGroup(group_id=self.group, topics=[wanted])
        request = OffsetFetchRequest(groups=[group], require_stable=stable)
        return self.bench.ask(OffsetFetchResponse, request).groups[0].topics[0].partitions[0]

    def send_fetch(self, *partitions: int, stable: bool) -> int:
        """The token of the request."""
        wanted = OffsetFetchRequestTopics(name="orders", partition_indexes=list(partitions))
        group = OffsetFetchRequestGroup(group_id=self.group, topics=[wanted])
        return self.bench.send(OffsetFetchRequest(groups=[group], require_stable=stable))

    def fetch_all(self, stable: bool = False) -> dict[tuple[str, int], tuple[int, int]]:
        """Fetch all offsets of the group: (topic, partition) → (offset, error)."""
        group = OffsetFetchRequestGroup(group_id=self.group, topics=None)
        request = OffsetFetchRequest(groups=[group], require_stable=stable)
        (answered,) = self.bench.ask(OffsetFetchResponse, request).groups
        return {
            (topic.name, partition.partition_index): (partition.committed_offset, partition.error_code)
            for topic in answered.topics
            for partition in topic.partitions
        }

    def offset(self, partition: int = 0) -> int:
        return self.fetch(partition).committed_offset

    def delete(self, *partitions: int, topic: str = "orders") -> OffsetDeleteRequest:
        return OffsetDeleteRequest(
            group_id=self.group,
            topics=[
                OffsetDeleteRequestTopic(
                    name=topic,
                    partitions=[OffsetDeleteRequestPartition(partition_index=index) for index in partitions],
                )
            ],
        )


@pytest.fixture
def bench() -> Bench:
    return Bench()


@pytest.fixture
def client(bench: Bench) -> OffsetClient:
    return OffsetClient(bench)


# ── commit and fetch ──


def test_a_committed_offset_is_fetched_with_its_metadata_and_leader_epoch(client: OffsetClient) -> None:
    assert client.commit(42, metadata="note") == ErrorCode.NONE
    assert client.fetch() == OffsetFetchResponsePartitions(
        partition_index=0, committed_offset=42, committed_leader_epoch=4, metadata="note", error_code=0
    )


def test_an_offset_commit_record_has_the_same_bytes_as_apache_kafkas(bench: Bench, client: OffsetClient) -> None:
    client.commit(42, metadata=None)
    (record,) = bench.written
    assert record.value_version == 4
    assert record.value == OffsetCommitValue(
        offset=42, leader_epoch=4, metadata="", commit_timestamp=START_MS, topic_id=topic_id("orders")
    )


def test_a_commit_with_its_own_retention_is_written_in_version_1_with_an_expire_timestamp(
    bench: Bench, client: OffsetClient
) -> None:
    client.commit(42, retention_ms=60_000)
    (record,) = bench.written
    assert record.value_version == 1
    assert isinstance(record.value, OffsetCommitValue)
    assert record.value.expire_timestamp == START_MS + 60_000


def test_offset_fetch_of_a_partition_without_a_commit_returns_no_offset(client: OffsetClient) -> None:
    missing = OffsetFetchResponsePartitions(
        partition_index=0, committed_offset=-1, committed_leader_epoch=-1, metadata="", error_code=0
    )
    assert client.fetch() == missing
    client.commit(1, partition=1)
    assert client.fetch() == missing
    assert client.fetch_all() == {("orders", 1): (1, 0)}
    assert OffsetClient(client.bench, "unknown").fetch_all() == {}


def test_a_new_coordinator_has_the_committed_offsets(bench: Bench, client: OffsetClient) -> None:
    client.commit(1)
    client.commit(2)
    client.commit(3, partition=1, topic="payments")
    bench.reload()
    assert client.fetch_all() == {("orders", 0): (2, 0), ("payments", 1): (3, 0)}


def test_an_offset_of_a_deleted_topic_is_not_returned_for_a_new_topic_of_the_same_name(client: OffsetClient) -> None:
    client.commit(42, of=topic_id("orders"))
    assert client.fetch(of=topic_id("orders")).committed_offset == 42
    assert client.fetch(of=topic_id("orders", 1)).committed_offset == -1
    assert client.fetch().committed_offset == 42, "who asks by name is not asked for an id"


def test_a_commit_with_too_long_metadata_is_refused_and_the_rest_of_the_request_is_committed(
    bench: Bench, client: OffsetClient
) -> None:
    request = client.commit_request(1, metadata="x" * 4097)
    request.topics += client.commit_request(2, topic="payments", metadata="y" * 4096).topics
    response = bench.ask(OffsetCommitResponse, request)
    assert [topic.partitions[0].error_code for topic in response.topics] == [
        ErrorCode.OFFSET_METADATA_TOO_LARGE,
        ErrorCode.NONE,
    ]
    assert client.fetch_all() == {("payments", 0): (2, 0)}


def test_a_commit_that_cannot_be_written_is_not_visible(bench: Bench, client: OffsetClient) -> None:
    client.commit(1)
    bench.refuses_with = ErrorCode.MESSAGE_TOO_LARGE
    assert client.commit_error(2) is ErrorCode.MESSAGE_TOO_LARGE
    assert client.offset() == 1


# ── who may commit ──


def test_classic_members_commit_with_their_generation(bench: Bench, client: OffsetClient) -> None:
    first, _ = ClassicClient(bench).stable_group(2)
    assert client.commit(7, member=first, generation=1) == ErrorCode.NONE
    assert client.commit_error(8, member=first, generation=0) is ErrorCode.ILLEGAL_GENERATION
    assert client.commit_error(8, member=first, generation=2) is ErrorCode.ILLEGAL_GENERATION
    assert client.commit_error(8, member="ghost", generation=1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert client.commit_error(8) is ErrorCode.UNKNOWN_MEMBER_ID, (
        "an admin client cannot commit while there are members"
    )
    assert client.offset() == 7


def test_a_fenced_static_member_cannot_commit(bench: Bench, client: OffsetClient) -> None:
    classic = ClassicClient(bench)
    token = classic.join(instance="a")
    bench.pass_time(6_000)
    old = classic.joined(token).member_id
    classic.sync(old, 1, {}, instance="a")
    new = classic.joined(classic.join(instance="a")).member_id
    error = client.commit_error(1, member=old, generation=1, instance="a")
    assert error is ErrorCode.FENCED_INSTANCE_ID
    assert client.commit(1, member=new, generation=1, instance="a") == ErrorCode.NONE


def test_members_of_the_previous_generation_may_commit_until_the_next_is_being_assigned(
    bench: Bench, client: OffsetClient
) -> None:
    classic = ClassicClient(bench)
    first, second = classic.stable_group(2)
    newcomer = classic.join(classic.member_id())
    assert client.commit(5, member=first, generation=1) == ErrorCode.NONE
    classic.join(first)
    classic.join(second)
    assert classic.joined(newcomer).generation_id == 2
    assert client.commit_error(6, member=first, generation=2) is ErrorCode.REBALANCE_IN_PROGRESS


def test_a_commit_renews_the_session_of_its_member(bench: Bench, client: OffsetClient) -> None:
    classic = ClassicClient(bench)
    (member,) = classic.stable_group(1)
    for offset in range(5):
        bench.pass_time(8_000)
        client.commit(offset, member=member, generation=1)
    assert classic.heartbeat(member, 1) == ErrorCode.NONE


@pytest.mark.parametrize(
    ("version", "expected"), [(8, ErrorCode.ILLEGAL_GENERATION), (9, ErrorCode.GROUP_ID_NOT_FOUND)]
)
def test_a_member_of_a_deleted_group_cannot_commit(client: OffsetClient, version: int, expected: ErrorCode) -> None:
    assert client.commit_error(1, version, member="m", generation=3) is expected


# ── transactions ──


def test_a_transactional_offset_is_visible_when_its_transaction_is_committed(
    bench: Bench, client: OffsetClient
) -> None:
    client.commit(1)
    token = client.commit_in_transaction(10)
    assert bench.answer(TxnOffsetCommitResponse, token).topics[0].partitions[0].error_code == 0
    assert client.offset() == 1
    assert client.fetch(stable=True).error_code == ErrorCode.UNSTABLE_OFFSET_COMMIT
    assert client.fetch_all(stable=True) == {("orders", 0): (-1, ErrorCode.UNSTABLE_OFFSET_COMMIT)}
    assert client.fetch(1, stable=True).error_code == ErrorCode.NONE
    bench.end_transaction(PRODUCER, committed=True)
    assert client.fetch(stable=True).committed_offset == 10


def test_only_stable_offsets_of_a_require_stable_fetch_are_confirmed_by_the_replicas(
    bench: Bench, client: OffsetClient
) -> None:
    client.commit(1)
    client.commit_in_transaction(10, partition=1)
    bench.holds_back = True
    client.send_fetch(0, stable=False)
    client.send_fetch(0, stable=True)
    client.send_fetch(0, 1, stable=True)
    assert [output.is_confirmed for output in bench.held] == [False, True, False], "what is unstable is asked for again"


def test_an_offset_of_an_aborted_transaction_is_never_visible(bench: Bench, client: OffsetClient) -> None:
    client.commit(1)
    client.commit_in_transaction(10)
    bench.end_transaction(PRODUCER, committed=False)
    assert client.fetch(stable=True).committed_offset == 1


def test_a_transactional_commit_is_written_in_a_batch_with_its_producer_and_without_a_topic_id(
    bench: Bench, client: OffsetClient
) -> None:
    client.commit_in_transaction(10)
    value = bench.written[0].value
    assert isinstance(value, OffsetCommitValue)
    assert value.topic_id == ZERO_UUID
    bench.reload()
    assert client.fetch(stable=True).error_code == ErrorCode.UNSTABLE_OFFSET_COMMIT


def test_a_later_commit_overrides_the_offset_of_a_transaction_that_ends_after_it(
    bench: Bench, client: OffsetClient
) -> None:
    client.commit_in_transaction(10)
    client.commit(20)
    bench.end_transaction(PRODUCER, committed=True)
    assert client.offset() == 20


def test_two_producers_keep_an_offset_unstable_until_both_have_ended(bench: Bench, client: OffsetClient) -> None:
    client.commit_in_transaction(10, producer=1)
    client.commit_in_transaction(20, producer=2)
    bench.end_transaction(2, committed=True)
    assert client.fetch(stable=True).error_code == ErrorCode.UNSTABLE_OFFSET_COMMIT
    bench.end_transaction(1, committed=True)
    assert client.fetch(stable=True).committed_offset == 20


def test_a_transactional_commit_checks_the_member_if_it_names_one(bench: Bench, client: OffsetClient) -> None:
    first, _ = ClassicClient(bench).stable_group(2)

    def error(token: int) -> ErrorCode:
        reply = bench.replies[token]
        assert isinstance(reply, Refusal)
        return reply.code

    assert error(client.commit_in_transaction(1, member=first, generation=0)) is ErrorCode.ILLEGAL_GENERATION
    assert error(client.commit_in_transaction(1, member="ghost", generation=1)) is ErrorCode.UNKNOWN_MEMBER_ID
    bench.answer(TxnOffsetCommitResponse, client.commit_in_transaction(1, member=first, generation=1))
    bench.answer(TxnOffsetCommitResponse, client.commit_in_transaction(1))


def test_a_transactional_commit_with_a_generation_needs_an_existing_group(bench: Bench, client: OffsetClient) -> None:
    reply = bench.replies[client.commit_in_transaction(1, member="m", generation=1)]
    assert isinstance(reply, Refusal)
    assert reply.code is ErrorCode.ILLEGAL_GENERATION


# ── deletion ──


def test_offset_delete_removes_committed_and_pending_transactional_offsets(bench: Bench, client: OffsetClient) -> None:
    client.commit(1)
    client.commit(2, partition=1)
    client.commit_in_transaction(3, partition=2)
    before = bench.written_count
    response = bench.ask(OffsetDeleteResponse, client.delete(0, 2, 5))
    assert [each.error_code for each in response.topics[0].partitions] == [0, 0, 0]
    assert len(bench.records_since(before)) == 2, "what is not there needs no tombstone"
    bench.end_transaction(PRODUCER, committed=True)
    assert client.fetch_all() == {("orders", 1): (2, 0)}


def test_offsets_of_a_subscribed_topic_are_not_deleted(bench: Bench, client: OffsetClient) -> None:
    (member,) = ClassicClient(bench).stable_group(1)
    client.commit(1, member=member, generation=1)
    client.commit(2, topic="payments", member=member, generation=1)
    response = bench.ask(OffsetDeleteResponse, client.delete(0))
    assert response.topics[0].partitions[0].error_code == ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
    response = bench.ask(OffsetDeleteResponse, client.delete(0, topic="payments"))
    assert response.topics[0].partitions[0].error_code == ErrorCode.NONE
    assert client.fetch_all() == {("orders", 0): (1, 0)}


def test_offsets_of_a_non_consumer_group_are_not_deleted_while_it_has_members(
    bench: Bench, client: OffsetClient
) -> None:
    classic = ClassicClient(bench)
    token = classic.join(protocol_type="connect", protocols=[("eager", b"")], version=3)
    bench.pass_time(3_000)
    assert classic.joined(token).generation_id == 1
    assert bench.refusal(client.delete(0)).code is ErrorCode.NON_EMPTY_GROUP
    assert bench.refusal(OffsetClient(bench, "unknown").delete(0)).code is ErrorCode.GROUP_ID_NOT_FOUND


def test_the_offsets_of_a_deleted_group_are_deleted(bench: Bench, client: OffsetClient) -> None:
    client.commit(1)
    client.commit_in_transaction(2, partition=1)
    ClassicClient(bench, "other").stable_group(1)
    request = DeleteGroupsRequest(groups_names=[GROUP, "other", "unknown"])
    response = bench.ask(DeleteGroupsResponse, request)
    assert [result.error_code for result in response.results] == [
        ErrorCode.NONE,
        ErrorCode.NON_EMPTY_GROUP,
        ErrorCode.GROUP_ID_NOT_FOUND,
    ]
    bench.end_transaction(PRODUCER, committed=True)
    assert client.fetch_all() == {}
    assert GROUP not in bench.shard.registry.groups
    bench.reload()
    assert list(bench.shard.registry.groups) == ["other"]


def test_the_offsets_of_a_deleted_topic_are_deleted_but_not_those_of_a_new_topic_of_the_same_name(
    bench: Bench, client: OffsetClient
) -> None:
    client.commit(1)
    client.commit(2, partition=1, of=topic_id("orders", 1))
    client.commit_in_transaction(3, partition=2)
    client.commit(4, topic="payments")
    bench.publish(image(payments=2))
    bench.end_transaction(PRODUCER, committed=True)
    assert client.fetch_all() == {("orders", 1): (2, 0), ("payments", 0): (4, 0)}


# ── expiry ──


def test_offsets_of_a_simple_group_expire_a_week_after_their_commit_and_the_group_with_the_last_one(
    bench: Bench, client: OffsetClient
) -> None:
    client.commit(1)
    bench.pass_time(DAY_MS)
    client.commit(2, partition=1)
    bench.pass_time(WEEK_MS - DAY_MS + EXPIRY_CHECK_MS)
    assert client.fetch_all() == {("orders", 1): (2, 0)}
    assert GROUP in bench.shard.registry.groups
    bench.pass_time(DAY_MS)
    assert GROUP not in bench.shard.registry.groups
    bench.reload()
    assert bench.shard.registry.groups == {}
    assert client.fetch_all() == {}


def test_offsets_of_a_group_with_members_do_not_expire(bench: Bench, client: OffsetClient) -> None:
    classic = ClassicClient(bench)
    (member,) = classic.stable_group(1)
    group = bench.shard.registry.groups[GROUP]
    assert isinstance(group, ClassicGroup)
    group.members[member].session_timeout_ms = 2 * WEEK_MS
    classic.heartbeat(member, 1)
    client.commit(1, member=member, generation=1)
    client.commit(2, topic="payments", member=member, generation=1)
    bench.pass_time(WEEK_MS + EXPIRY_CHECK_MS)
    assert client.fetch_all() == {("orders", 0): (1, 0)}, "no member is subscribed to payments (KIP-211)"


def test_offsets_of_an_empty_group_expire_a_week_after_the_last_member_left(bench: Bench, client: OffsetClient) -> None:
    classic = ClassicClient(bench)
    (member,) = classic.stable_group(1)
    client.commit(1, member=member, generation=1)
    for _ in range(4 * 24 * 60):
        bench.pass_time(5_000)
        classic.heartbeat(member, 1)
    classic.leave((member, None))
    bench.pass_time(WEEK_MS - EXPIRY_CHECK_MS)
    assert client.offset() == 1
    bench.pass_time(2 * EXPIRY_CHECK_MS)
    assert client.offset() == -1
    assert GROUP not in bench.shard.registry.groups


def test_a_group_with_an_unreadable_subscription_keeps_all_offsets(bench: Bench, client: OffsetClient) -> None:
    classic = ClassicClient(bench)
    token = classic.join(classic.member_id(), protocols=[("range", b"\x00")], session_ms=2 * WEEK_MS)
    bench.pass_time(6_000)
    member = classic.joined(token).member_id
    classic.sync(member, 1, {})
    client.commit(1, topic="payments", member=member, generation=1)
    bench.pass_time(WEEK_MS + EXPIRY_CHECK_MS)
    assert client.fetch_all() == {("payments", 0): (1, 0)}


def test_an_offset_with_its_own_expire_timestamp_expires_then(bench: Bench, client: OffsetClient) -> None:
    client.commit(1, retention_ms=DAY_MS)
    bench.pass_time(DAY_MS + EXPIRY_CHECK_MS)
    assert client.offset() == -1


def test_an_offset_with_a_pending_transactional_commit_does_not_expire(bench: Bench, client: OffsetClient) -> None:
    client.commit(1)
    client.commit_in_transaction(2)
    bench.pass_time(WEEK_MS + EXPIRY_CHECK_MS)
    assert client.offset() == 1


def test_the_offset_retention_can_be_configured(bench: Bench) -> None:
    bench = Bench(GroupCoordinatorConfig(offsets_retention_ms=1_000, offsets_retention_check_interval_ms=100))
    client = OffsetClient(bench)
    client.commit(1)
    bench.pass_time(999)
    assert client.offset() == 1
    bench.pass_time(101)
    assert client.offset() == -1


# ── old records ──


def test_offsets_from_before_kafka_0_9_are_read(bench: Bench, client: OffsetClient) -> None:
    key = LegacyOffsetCommitKey(group=GROUP, topic="orders", partition=0)
    value = LegacyOffsetCommitValue(offset=9, metadata="old", commit_timestamp=1)
    bench.shard.replay(key, value, 0, -1, -1)
    assert client.fetch().metadata == "old"
    bench.shard.replay(key, None, 1, -1, -1)
    assert client.offset() == -1


def test_subscriptions_of_any_version_are_read(bench: Bench) -> None:
    for version in range(5):
        data = subscription("orders", version=min(version, 3))
        data = version.to_bytes(2, "big") + data[2:] + b"from the future" * (version > 3)
        classic = ClassicClient(bench, f"group-{version}")
        token = classic.join(classic.member_id(), protocols=[("range", data)])
        bench.pass_time(6_000)
        assert classic.joined(token).generation_id == 1
        group = bench.shard.registry.groups[f"group-{version}"]
        assert isinstance(group, ClassicGroup)
        assert group.subscribed_topics == frozenset({"orders"})
