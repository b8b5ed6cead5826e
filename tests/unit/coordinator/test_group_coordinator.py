"""The group coordinator as handlers call it: its own checks, splitting of requests by shard, and errors."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

import pytest

from pessoa.base.clock import ManualClock
from pessoa.base.ids import ZERO_UUID
from pessoa.coordinator.group_coordinator import GroupConfigs
from pessoa.coordinator.groups.group_config import GroupCoordinatorConfig
from pessoa.coordinator.groups.share.share_group_config import DEFAULT_SHARE_CONFIG
from pessoa.coordinator.groups.streams.streams_group_config import DEFAULT_STREAMS_CONFIG
from pessoa.wire.api.consumer_group_describe import ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse
from pessoa.wire.api.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from pessoa.wire.api.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from pessoa.wire.api.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from pessoa.wire.api.heartbeat import HeartbeatRequest, HeartbeatResponse
from pessoa.wire.api.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from pessoa.wire.api.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from pessoa.wire.api.list_groups import ListGroupsRequest, ListGroupsResponse
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
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from pessoa.wire.api.sync_group import SyncGroupRequest, SyncGroupResponse
from pessoa.wire.api.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)
from pessoa.wire.errors import ErrorCode
from pessoa.wire.schema import Message
from tests.support.coordinators import group_coordinator, submit
from tests.support.memory_coordinator_log import MemoryLog
from tests.unit.coordinator.groups.bench import Context
from tests.unit.coordinator.images import image, topic_id

M = TypeVar("M", bound=Message)
PARTITIONS = 4


class Fixture:
    def __init__(self, config: GroupCoordinatorConfig | None = None) -> None:
        self.clock = ManualClock(1_000_000)
        self.log = MemoryLog(PARTITIONS)
        self.groups = group_coordinator(
            config or GroupCoordinatorConfig(), self.log, self.clock, image(orders=3, payments=2)
        )

    async def elect(self, *partitions: int) -> None:
        for partition in partitions or range(PARTITIONS):
            task = self.groups.elect(partition, 1)
            assert task is not None
            await task

    def ask(self, kind: type[M], request: Message, version: int) -> M:
        answer = submit(self.groups, request, Context(version))
        assert isinstance(answer, kind), answer
        # Every response can be encoded in the version of its request.
        answer.encode(version)
        return answer


def looped(test: Callable[[Fixture], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    async def run() -> None:
        fixture = Fixture()
        await test(fixture)
        fixture.groups.close()

    def synchronous() -> None:
        asyncio.run(run())

    synchronous.__name__ = test.__name__
    return synchronous


def join_request(group: str = "g", member: str = "", session_ms: int = 10_000) -> JoinGroupRequest:
    return JoinGroupRequest(
        group_id=group,
        session_timeout_ms=session_ms,
        rebalance_timeout_ms=60_000,
        member_id=member,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
    )


def consumer_join(**changes: Any) -> ConsumerGroupHeartbeatRequest:
    request = ConsumerGroupHeartbeatRequest(
        group_id="c",
        member_id="m",
        member_epoch=0,
        rebalance_timeout_ms=1_000,
        subscribed_topic_names=["orders"],
        topic_partitions=[],
    )
    for name, value in changes.items():
        setattr(request, name, value)
    return request


def commit_request(group: str, *topics: tuple[str, int, int], by_id: bool = False) -> OffsetCommitRequest:
    """Return an OffsetCommit request; `topics` are (name, partition, offset)."""
    return OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=-1,
        member_id="",
        topics=[
            OffsetCommitRequestTopic(
                name="" if by_id else name,
                topic_id=topic_id(name) if by_id else ZERO_UUID,
                partitions=[
                    OffsetCommitRequestPartition(
                        partition_index=partition, committed_offset=offset, committed_metadata=None
                    )
                ],
            )
            for name, partition, offset in topics
        ],
    )


# ── before a shard is asked ──


@looped
async def test_empty_group_ids_are_refused_by_every_api(fixture: Fixture) -> None:
    await fixture.elect()
    code = ErrorCode.INVALID_GROUP_ID
    assert fixture.ask(JoinGroupResponse, join_request(""), 9).error_code == code
    sync = SyncGroupRequest(
        group_id="", generation_id=0, member_id="m", protocol_type="t", protocol_name="n", assignments=[]
    )
    assert fixture.ask(SyncGroupResponse, sync, 5).error_code == code
    heartbeat = HeartbeatRequest(group_id="", generation_id=0, member_id="m")
    assert fixture.ask(HeartbeatResponse, heartbeat, 4).error_code == code
    assert fixture.ask(LeaveGroupResponse, LeaveGroupRequest(group_id=""), 5).error_code == code
    assert fixture.ask(OffsetDeleteResponse, OffsetDeleteRequest(group_id="", topics=[]), 0).error_code == code
    describe = ConsumerGroupDescribeRequest(group_ids=[""], include_authorized_operations=False)
    assert fixture.ask(ConsumerGroupDescribeResponse, describe, 1).groups[0].error_code == code


@looped
async def test_session_timeouts_outside_the_configured_bounds_are_refused(fixture: Fixture) -> None:
    await fixture.elect()
    for session_ms in (5_999, 1_800_001):
        response = fixture.ask(JoinGroupResponse, join_request(session_ms=session_ms), 9)
        assert response.error_code == ErrorCode.INVALID_SESSION_TIMEOUT
    for session_ms in (6_000, 1_800_000):
        response = fixture.ask(JoinGroupResponse, join_request(session_ms=session_ms), 9)
        assert response.error_code == ErrorCode.MEMBER_ID_REQUIRED


@looped
async def test_the_protocol_name_of_a_failed_join_is_null_from_version_7_on_and_empty_before(fixture: Fixture) -> None:
    await fixture.elect()
    assert fixture.ask(JoinGroupResponse, join_request(), 7).protocol_name is None
    assert fixture.ask(JoinGroupResponse, join_request(), 6).protocol_name == ""


@looped
async def test_from_version_5_on_a_sync_names_its_protocol(fixture: Fixture) -> None:
    await fixture.elect()
    request = SyncGroupRequest(group_id="g", generation_id=0, member_id="m", assignments=[])
    assert fixture.ask(SyncGroupResponse, request, 5).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert fixture.ask(SyncGroupResponse, request, 4).error_code == ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize(
    "changes",
    [
        {"member_id": ""},
        {"group_id": " "},
        {"instance_id": ""},
        {"rack_id": ""},
        {"rebalance_timeout_ms": -1},
        {"topic_partitions": None},
        {"topic_partitions": [TopicPartitions(topic_id=ZERO_UUID, partitions=[0])]},
        {"subscribed_topic_names": None},
        {"member_epoch": -3},
        {"member_epoch": -2},
    ],
)
def test_a_malformed_consumer_heartbeat_is_refused_with_a_reason(changes: dict[str, Any]) -> None:
    @looped
    async def run(fixture: Fixture) -> None:
        await fixture.elect()
        response = fixture.ask(ConsumerGroupHeartbeatResponse, consumer_join(**changes), 1)
        assert response.error_code == ErrorCode.INVALID_REQUEST
        assert response.error_message

    run()


@looped
async def test_unknown_server_assignors_are_refused(fixture: Fixture) -> None:
    await fixture.elect()
    response = fixture.ask(ConsumerGroupHeartbeatResponse, consumer_join(server_assignor="exotic"), 1)
    assert response.error_code == ErrorCode.UNSUPPORTED_ASSIGNOR
    assert "uniform" in (response.error_message or "")
    response = fixture.ask(ConsumerGroupHeartbeatResponse, consumer_join(server_assignor="range"), 1)
    assert response.error_code == ErrorCode.NONE


@looped
async def test_in_consumer_heartbeat_version_0_a_member_may_omit_its_id(fixture: Fixture) -> None:
    await fixture.elect()
    response = fixture.ask(ConsumerGroupHeartbeatResponse, consumer_join(member_id=""), 0)
    assert response.member_id


# ── errors ──


@looped
async def test_requests_for_a_group_of_another_coordinator_are_answered_not_coordinator_by_each_api(
    fixture: Fixture,
) -> None:
    code = ErrorCode.NOT_COORDINATOR
    response = fixture.ask(JoinGroupResponse, join_request(member="m"), 9)
    assert (response.error_code, response.member_id) == (code, "")
    heartbeat = HeartbeatRequest(group_id="g", generation_id=0, member_id="m")
    assert fixture.ask(HeartbeatResponse, heartbeat, 4).error_code == code
    leave = LeaveGroupRequest(group_id="g", members=[MemberIdentity(member_id="m")])
    assert fixture.ask(LeaveGroupResponse, leave, 5).error_code == code
    commit = fixture.ask(OffsetCommitResponse, commit_request("g", ("orders", 0, 1)), 9)
    assert commit.topics[0].partitions[0].error_code == code
    describe = fixture.ask(DescribeGroupsResponse, DescribeGroupsRequest(groups=["g"]), 6)
    assert describe.groups[0].error_code == code
    deleted = fixture.ask(DeleteGroupsResponse, DeleteGroupsRequest(groups_names=["g"]), 2)
    assert deleted.results[0].error_code == code
    consumer = fixture.ask(ConsumerGroupHeartbeatResponse, consumer_join(), 1)
    assert consumer.error_code == code
    listed = fixture.ask(ListGroupsResponse, ListGroupsRequest(), 5)
    assert (listed.error_code, listed.groups) == (ErrorCode.NONE, [])


@looped
async def test_a_heartbeat_to_a_loading_coordinator_is_answered_without_an_error(fixture: Fixture) -> None:
    task = fixture.groups.elect(fixture.groups.partition_for("g"), 1)
    assert task is not None
    heartbeat = HeartbeatRequest(group_id="g", generation_id=0, member_id="m")
    assert fixture.ask(HeartbeatResponse, heartbeat, 4).error_code == ErrorCode.NONE
    listed = fixture.ask(ListGroupsResponse, ListGroupsRequest(), 5)
    assert listed.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    await task
    assert fixture.ask(HeartbeatResponse, heartbeat, 4).error_code == ErrorCode.UNKNOWN_MEMBER_ID


@looped
async def test_append_errors_of_group_requests_are_mapped_to_coordinator_errors(fixture: Fixture) -> None:
    await fixture.elect()
    for code, told in (
        (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.UNKNOWN_SERVER_ERROR),
    ):
        fixture.log.refuses_with = code
        response = fixture.ask(OffsetCommitResponse, commit_request("g", ("orders", 0, 1)), 9)
        assert response.topics[0].partitions[0].error_code == told


# ── LeaveGroup ──


@looped
async def test_before_leave_group_version_3_one_member_leaves_with_a_top_level_error(fixture: Fixture) -> None:
    await fixture.elect()
    member = fixture.ask(JoinGroupResponse, join_request(), 9).member_id
    gone = LeaveGroupRequest(group_id="g", member_id=member)
    assert fixture.ask(LeaveGroupResponse, gone, 2) == LeaveGroupResponse(error_code=ErrorCode.NONE)
    assert fixture.ask(LeaveGroupResponse, gone, 2).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    nowhere = LeaveGroupRequest(group_id="absent", member_id="m")
    assert fixture.ask(LeaveGroupResponse, nowhere, 0).error_code == ErrorCode.UNKNOWN_MEMBER_ID


@looped
async def test_leaving_an_unknown_group_is_answered_with_an_error_for_each_member(fixture: Fixture) -> None:
    await fixture.elect()
    request = LeaveGroupRequest(group_id="absent", members=[MemberIdentity(member_id="m", group_instance_id="i")])
    response = fixture.ask(LeaveGroupResponse, request, 5)
    assert response.error_code == ErrorCode.NONE
    (member,) = response.members
    assert (member.member_id, member.group_instance_id) == ("m", "i")
    assert member.error_code == ErrorCode.UNKNOWN_MEMBER_ID


# ── offsets ──


@looped
async def test_offsets_are_committed_for_existing_partitions_only(fixture: Fixture) -> None:
    await fixture.elect()
    request = commit_request("g", ("nothing", 0, 1), ("orders", 7, 1), ("orders", 0, 5), ("payments", 1, 6))
    response = fixture.ask(OffsetCommitResponse, request, 9)
    codes = {
        (topic.name, partition.partition_index): partition.error_code
        for topic in response.topics
        for partition in topic.partitions
    }
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert codes == {("nothing", 0): unknown, ("orders", 7): unknown, ("orders", 0): 0, ("payments", 1): 0}
    assert len(response.topics) == 3, "a topic stands in the answer once"


@looped
async def test_a_commit_without_any_existing_partition_creates_no_group(fixture: Fixture) -> None:
    await fixture.elect()
    fixture.ask(OffsetCommitResponse, commit_request("g", ("nothing", 0, 1)), 9)
    assert fixture.ask(ListGroupsResponse, ListGroupsRequest(), 5).groups == []


@looped
async def test_from_version_10_on_offset_requests_use_topic_ids(fixture: Fixture) -> None:
    await fixture.elect()
    request = commit_request("g", ("orders", 0, 5), ("nothing", 0, 1), by_id=True)
    response = fixture.ask(OffsetCommitResponse, request, 10)
    codes = {topic.topic_id: topic.partitions[0].error_code for topic in response.topics}
    assert codes == {topic_id("orders"): ErrorCode.NONE, topic_id("nothing"): ErrorCode.UNKNOWN_TOPIC_ID}
    wanted = [
        OffsetFetchRequestTopics(topic_id=topic_id(name), partition_indexes=[0, 1]) for name in ("orders", "nothing")
    ]
    fetch = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=wanted)])
    orders, nothing = fixture.ask(OffsetFetchResponse, fetch, 10).groups[0].topics
    assert [partition.committed_offset for partition in orders.partitions] == [5, -1]
    assert {partition.error_code for partition in nothing.partitions} == {ErrorCode.UNKNOWN_TOPIC_ID}


@looped
async def test_offset_fetch_of_all_topics_by_id_omits_deleted_topics(fixture: Fixture) -> None:
    await fixture.elect()
    fixture.ask(OffsetCommitResponse, commit_request("g", ("orders", 0, 5), ("payments", 0, 6)), 9)
    fetch = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=None)])
    topics = fixture.ask(OffsetFetchResponse, fetch, 10).groups[0].topics
    assert {topic.topic_id for topic in topics} == {topic_id("orders"), topic_id("payments")}
    # As it is for a moment between the deletion of a topic and that of its offsets.
    fixture.groups._image = image(orders=3)
    topics = fixture.ask(OffsetFetchResponse, fetch, 10).groups[0].topics
    assert {topic.topic_id for topic in topics} == {topic_id("orders")}


@looped
async def test_an_offset_fetch_may_name_several_groups(fixture: Fixture) -> None:
    await fixture.elect(fixture.groups.partition_for("ours"))
    theirs = next(
        name
        for name in map(str, range(100))
        if fixture.groups.runtime.led_partition(fixture.groups.partition_for(name)) is None
    )
    fixture.ask(OffsetCommitResponse, commit_request("ours", ("orders", 0, 5)), 9)
    fetch = OffsetFetchRequest(
        groups=[OffsetFetchRequestGroup(group_id=name, topics=None) for name in ("ours", theirs)]
    )
    ours, other = fixture.ask(OffsetFetchResponse, fetch, 9).groups
    assert ours.topics[0].partitions[0].committed_offset == 5
    assert (other.error_code, other.topics) == (ErrorCode.NOT_COORDINATOR, [])


@looped
async def test_an_offset_fetch_before_version_8_names_one_group(fixture: Fixture) -> None:
    wanted = [OffsetFetchRequestTopic(name="orders", partition_indexes=[0])]
    request = OffsetFetchRequest(group_id="g", topics=wanted)
    assert fixture.ask(OffsetFetchResponse, request, 7).error_code == ErrorCode.NOT_COORDINATOR
    oldest = fixture.ask(OffsetFetchResponse, request, 1)
    assert oldest.topics[0].partitions[0].error_code == ErrorCode.NOT_COORDINATOR
    await fixture.elect()
    fixture.ask(OffsetCommitResponse, commit_request("g", ("orders", 0, 5)), 9)
    for version in (1, 5, 7):
        response = fixture.ask(OffsetFetchResponse, request, version)
        assert response.topics[0].partitions[0].committed_offset == 5
    everything = OffsetFetchRequest(group_id="g", topics=None)
    assert fixture.ask(OffsetFetchResponse, everything, 2).topics[0].name == "orders"


@looped
async def test_offsets_are_deleted_for_existing_partitions_only(fixture: Fixture) -> None:
    await fixture.elect()
    fixture.ask(OffsetCommitResponse, commit_request("g", ("orders", 0, 5)), 9)
    request = OffsetDeleteRequest(
        group_id="g",
        topics=[
            OffsetDeleteRequestTopic(
                name=name, partitions=[OffsetDeleteRequestPartition(partition_index=index) for index in (0, 9)]
            )
            for name in ("orders", "nothing")
        ],
    )
    response = fixture.ask(OffsetDeleteResponse, request, 0)
    codes = {
        (topic.name, partition.partition_index): partition.error_code
        for topic in response.topics
        for partition in topic.partitions
    }
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert codes == {("orders", 0): 0, ("orders", 9): unknown, ("nothing", 0): unknown, ("nothing", 9): unknown}
    request = OffsetDeleteRequest(group_id="absent", topics=request.topics)
    assert fixture.ask(OffsetDeleteResponse, request, 0).error_code == ErrorCode.GROUP_ID_NOT_FOUND


def txn_commit(group: str = "g", partition: int = 0) -> TxnOffsetCommitRequest:
    return TxnOffsetCommitRequest(
        transactional_id="txn",
        group_id=group,
        producer_id=7,
        producer_epoch=0,
        topics=[
            TxnOffsetCommitRequestTopic(
                name="orders",
                partitions=[
                    TxnOffsetCommitRequestPartition(partition_index=index, committed_offset=5, committed_metadata=None)
                    for index in (partition, 9)
                ],
            )
        ],
    )


def txn_codes(answer: TxnOffsetCommitResponse | Awaitable[TxnOffsetCommitResponse]) -> list[int]:
    assert isinstance(answer, TxnOffsetCommitResponse)
    return [partition.error_code for topic in answer.topics for partition in topic.partitions]


@looped
async def test_transactional_offsets_are_committed_for_existing_partitions_with_their_verification_guard(
    fixture: Fixture,
) -> None:
    await fixture.elect()
    guard = object()
    answer = fixture.groups.offsets.commit_in_transaction(txn_commit(), Context(5), guard)
    assert txn_codes(answer) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NONE]
    assert fixture.log.guards == [guard]
    fetch = OffsetFetchRequest(
        group_id="g", topics=[OffsetFetchRequestTopic(name="orders", partition_indexes=[0])], require_stable=True
    )
    response = fixture.ask(OffsetFetchResponse, fetch, 7)
    assert response.topics[0].partitions[0].error_code == ErrorCode.UNSTABLE_OFFSET_COMMIT
    await fixture.groups.complete_transaction(fixture.groups.partition_for("g"), 7, 0, 1, committed=True)
    response = fixture.ask(OffsetFetchResponse, fetch, 7)
    assert response.topics[0].partitions[0].committed_offset == 5


@looped
async def test_txn_offset_commit_before_version_2_gets_coordinator_not_available_while_the_coordinator_loads(
    fixture: Fixture,
) -> None:
    task = fixture.groups.elect(fixture.groups.partition_for("g"), 1)
    assert task is not None
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    old = txn_codes(fixture.groups.offsets.commit_in_transaction(txn_commit(), Context(1)))
    assert old == [unknown, ErrorCode.COORDINATOR_NOT_AVAILABLE]
    new = txn_codes(fixture.groups.offsets.commit_in_transaction(txn_commit(), Context(2)))
    assert new == [unknown, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS]
    assert txn_codes(fixture.groups.offsets.commit_in_transaction(txn_commit(""), Context(5))) == [
        ErrorCode.INVALID_GROUP_ID,
        ErrorCode.INVALID_GROUP_ID,
    ]
    await task


# ── administration ──


async def two_groups(fixture: Fixture) -> None:
    """Create a consumer group `c` with a member, and a group `simple` that has only an offset."""
    await fixture.elect()
    fixture.ask(ConsumerGroupHeartbeatResponse, consumer_join(), 1)
    fixture.ask(OffsetCommitResponse, commit_request("simple", ("orders", 0, 5)), 9)


@looped
async def test_groups_of_all_partitions_are_listed_by_state_and_type(fixture: Fixture) -> None:
    await two_groups(fixture)

    def listed(states: list[str], types: list[str]) -> list[tuple[str, str, str, str]]:
        request = ListGroupsRequest(states_filter=states, types_filter=types)
        groups = fixture.ask(ListGroupsResponse, request, 5).groups
        return sorted((each.group_id, each.protocol_type, each.group_state, each.group_type) for each in groups)

    consumer, simple = ("c", "consumer", "Stable", "consumer"), ("simple", "", "Empty", "classic")
    assert listed([], []) == [consumer, simple]
    assert listed([" stable "], []) == [consumer]
    assert listed(["Empty", "STABLE"], []) == [consumer, simple]
    assert listed([], ["Classic"]) == [simple]
    assert listed(["Stable"], ["classic"]) == []
    assert listed([], ["share"]) == []


@looped
async def test_describe_groups_describes_classic_groups_and_reports_others_as_dead_or_not_found(
    fixture: Fixture,
) -> None:
    await two_groups(fixture)
    request = DescribeGroupsRequest(groups=["simple", "c", "absent"])
    old = fixture.ask(DescribeGroupsResponse, request, 5).groups
    assert [(group.group_state, group.error_code) for group in old] == [("Dead", 0), ("Dead", 0), ("Empty", 0)]
    new = fixture.ask(DescribeGroupsResponse, request, 6).groups
    missing = ErrorCode.GROUP_ID_NOT_FOUND
    assert [(group.group_state, group.error_code) for group in new] == [
        ("Dead", missing),
        ("Dead", missing),
        ("Empty", 0),
    ]
    assert "c is not a classic group" in [group.error_message for group in new]


@looped
async def test_a_classic_group_is_described_with_its_members(fixture: Fixture) -> None:
    await fixture.elect()
    member = fixture.ask(JoinGroupResponse, join_request(), 9).member_id
    joining = submit(fixture.groups, join_request(member=member), Context(9))
    assert isinstance(joining, Awaitable)
    task = asyncio.ensure_future(joining)
    (group,) = fixture.ask(DescribeGroupsResponse, DescribeGroupsRequest(groups=["g"]), 6).groups
    assert (group.group_state, group.protocol_type, group.protocol_data) == ("PreparingRebalance", "consumer", "")
    await asyncio.sleep(0)
    fixture.clock.advance_ms(3_000)
    joined = await task
    assert isinstance(joined, JoinGroupResponse)
    assert joined.error_code == ErrorCode.NONE
    (group,) = fixture.ask(DescribeGroupsResponse, DescribeGroupsRequest(groups=["g"]), 6).groups
    assert group.group_state == "CompletingRebalance"
    (described,) = group.members
    assert (described.member_id, described.client_host) == (member, "/10.0.0.1")


@looped
async def test_consumer_groups_are_described_with_assignments(fixture: Fixture) -> None:
    await two_groups(fixture)
    request = ConsumerGroupDescribeRequest(group_ids=["c", "simple", "absent"], include_authorized_operations=False)
    found, simple, missing = fixture.ask(ConsumerGroupDescribeResponse, request, 1).groups
    assert (found.group_state, found.group_epoch, found.assignment_epoch) == ("Stable", 2, 2)
    assert found.assignor_name == "uniform"
    (member,) = found.members
    assert (member.member_id, member.member_epoch, member.member_type) == ("m", 2, 1)
    assert member.subscribed_topic_names == ["orders"]
    (assigned,) = member.assignment.topic_partitions
    assert (assigned.topic_name, assigned.topic_id, assigned.partitions) == ("orders", topic_id("orders"), [0, 1, 2])
    assert member.target_assignment == member.assignment
    assert simple.error_code == missing.error_code == ErrorCode.GROUP_ID_NOT_FOUND


@looped
async def test_groups_of_several_partitions_are_deleted_and_a_repeated_group_once(fixture: Fixture) -> None:
    await two_groups(fixture)
    request = DeleteGroupsRequest(groups_names=["c", "simple", "simple", "absent"])
    results = fixture.ask(DeleteGroupsResponse, request, 2).results
    assert [(result.group_id, result.error_code) for result in results] == [
        ("c", ErrorCode.NON_EMPTY_GROUP),
        ("absent", ErrorCode.GROUP_ID_NOT_FOUND),
        ("simple", ErrorCode.NONE),
    ]


@looped
async def test_changed_settings_apply_to_existing_groups(fixture: Fixture) -> None:
    await two_groups(fixture)
    fixture.groups.configure(
        GroupConfigs(
            GroupCoordinatorConfig(group_consumer_heartbeat_interval_ms=9_000),
            DEFAULT_SHARE_CONFIG,
            DEFAULT_STREAMS_CONFIG,
        )
    )
    beat = ConsumerGroupHeartbeatRequest(group_id="c", member_id="m", member_epoch=2)
    assert fixture.ask(ConsumerGroupHeartbeatResponse, beat, 1).heartbeat_interval_ms == 9_000
