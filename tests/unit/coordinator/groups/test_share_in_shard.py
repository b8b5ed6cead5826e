"""Share groups in a shard with groups of other types: records, timers and metadata changes."""

from __future__ import annotations

import pytest

from pessoa.coordinator.groups.share.share_group_replay import topic_infos
from pessoa.coordinator.groups.share.share_initialisation import SharesInitialised
from pessoa.wire.api.consumer_group_describe import ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse
from pessoa.wire.api.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from pessoa.wire.api.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from pessoa.wire.api.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from pessoa.wire.api.join_group import JoinGroupRequest, JoinGroupResponse
from pessoa.wire.api.list_groups import ListGroupsRequest, ListGroupsResponse
from pessoa.wire.api.offset_commit import OffsetCommitRequest
from pessoa.wire.api.offset_delete import OffsetDeleteRequest
from pessoa.wire.api.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from pessoa.wire.api.share_group_describe import ShareGroupDescribeRequest, ShareGroupDescribeResponse
from pessoa.wire.api.share_group_heartbeat import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse
from pessoa.wire.api.txn_offset_commit import TxnOffsetCommitRequest
from pessoa.wire.errors import ErrorCode
from pessoa.wire.schema import Message
from tests.unit.coordinator.groups.bench import Bench
from tests.unit.coordinator.groups.consumer_client import Member
from tests.unit.coordinator.images import image, topic_id

GROUP = "workers"


def heartbeat(epoch: int, *topics: str, group: str = GROUP) -> ShareGroupHeartbeatRequest:
    return ShareGroupHeartbeatRequest(
        group_id=group, member_id="a", member_epoch=epoch, subscribed_topic_names=list(topics) if topics else None
    )


def initialise(bench: Bench) -> None:
    for asked in bench.asked:
        request = SharesInitialised(group_id=asked.group_id, error_code=0, topics=topic_infos(asked.topics))
        bench.ask(SharesInitialised, request)
    bench.asked.clear()


def join(bench: Bench) -> int:
    """Create a share group with one member that has its partitions; return its epoch."""
    bench.ask(ShareGroupHeartbeatResponse, heartbeat(0, "orders"))
    initialise(bench)
    bench.pass_time(5_000)
    response = bench.ask(ShareGroupHeartbeatResponse, heartbeat(2))
    assert response.assignment is not None
    return response.member_epoch


def describe(bench: Bench) -> dict[str, list[int]]:
    response = bench.ask(
        ShareGroupDescribeResponse, ShareGroupDescribeRequest(group_ids=[GROUP], include_authorized_operations=False)
    )
    (group,) = response.groups
    assert group.error_code == ErrorCode.NONE
    return {
        topic.topic_name: topic.partitions for member in group.members for topic in member.assignment.topic_partitions
    }


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_share_groups_are_listed_with_their_type(bench: Bench) -> None:
    join(bench)
    Member(bench, "m", "orders", group="plain").join()
    groups = bench.ask(ListGroupsResponse, ListGroupsRequest(states_filter=[], types_filter=[])).groups
    assert {(group.group_id, group.group_type, group.protocol_type, group.group_state) for group in groups} == {
        (GROUP, "share", "share", "Stable"),
        ("plain", "consumer", "consumer", "Stable"),
    }
    groups = bench.ask(ListGroupsResponse, ListGroupsRequest(states_filter=["stable"], types_filter=["Share"])).groups
    assert [group.group_id for group in groups] == [GROUP]


@pytest.mark.parametrize(
    "request_",
    [
        OffsetCommitRequest(group_id=GROUP, generation_id_or_member_epoch=-1, member_id="", topics=[]),
        TxnOffsetCommitRequest(transactional_id="t", group_id=GROUP, producer_id=1, producer_epoch=0, topics=[]),
        OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=GROUP, topics=None)], require_stable=False),
        OffsetDeleteRequest(group_id=GROUP, topics=[]),
        ConsumerGroupHeartbeatRequest(group_id=GROUP, member_id="m", member_epoch=0, subscribed_topic_names=["orders"]),
    ],
    ids=lambda request: type(request).__name__,
)
def test_requests_of_other_protocols_do_not_find_a_share_group(bench: Bench, request_: Message) -> None:
    join(bench)
    assert bench.refusal(request_).code is ErrorCode.GROUP_ID_NOT_FOUND
    assert bench.shard.registry.groups == {}


def test_describes_of_other_protocols_do_not_find_a_share_group_and_one_with_members_is_not_deleted(
    bench: Bench,
) -> None:
    join(bench)
    consumer = bench.ask(
        ConsumerGroupDescribeResponse,
        ConsumerGroupDescribeRequest(group_ids=[GROUP], include_authorized_operations=False),
    )
    classic = bench.ask(
        DescribeGroupsResponse, DescribeGroupsRequest(groups=[GROUP], include_authorized_operations=False), 6
    )
    deleted = bench.ask(DeleteGroupsResponse, DeleteGroupsRequest(groups_names=[GROUP]))
    assert {consumer.groups[0].error_code, classic.groups[0].error_code} == {ErrorCode.GROUP_ID_NOT_FOUND}
    assert deleted.results[0].error_code == ErrorCode.NON_EMPTY_GROUP


def test_a_classic_member_cannot_join_a_share_group(bench: Bench) -> None:
    join(bench)
    request = JoinGroupRequest(
        group_id=GROUP, session_timeout_ms=10_000, member_id="", protocol_type="consumer", protocols=[]
    )
    assert bench.ask(JoinGroupResponse, request).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_a_share_heartbeat_does_not_take_over_a_group_of_another_type(bench: Bench) -> None:
    Member(bench, "m", "orders", group="plain").join()
    assert bench.refusal(heartbeat(0, "orders", group="plain")).code is ErrorCode.GROUP_ID_NOT_FOUND
    described = bench.ask(
        ShareGroupDescribeResponse, ShareGroupDescribeRequest(group_ids=["plain"], include_authorized_operations=False)
    )
    assert described.groups[0].error_code == ErrorCode.GROUP_ID_NOT_FOUND


def test_a_new_coordinator_loads_the_share_group_and_expires_its_sessions(bench: Bench) -> None:
    epoch = join(bench)
    bench.reload()
    assert describe(bench) == {"orders": [0, 1, 2]}
    bench.pass_time(40_000)
    assert bench.ask(ShareGroupHeartbeatResponse, heartbeat(epoch)).member_epoch == epoch
    bench.pass_time(45_000)
    assert bench.shard.registry.share_groups[GROUP].is_empty


@pytest.mark.parametrize("keeps_tombstones", [True, False])
def test_a_compacted_log_restores_the_same_share_group(bench: Bench, keeps_tombstones: bool) -> None:
    epoch = join(bench)
    bench.ask(ShareGroupHeartbeatResponse, heartbeat(epoch, "payments"))
    initialise(bench)
    bench.pass_time(5_000)
    bench.ask(ShareGroupHeartbeatResponse, heartbeat(bench.shard.registry.share_groups[GROUP].members["a"].epoch))
    before = bench.shard.registry.share_groups[GROUP]
    for clean_end in range(bench.end_offset + 1):
        after = bench.replayed_compacted(clean_end, keeps_tombstones).registry.share_groups[GROUP]
        assert (after.epoch, after.members, after.targets) == (before.epoch, before.members, before.targets)
        assert (after.shares, after.name_counts) == (before.shares, before.name_counts)


def test_topic_changes_reach_share_groups(bench: Bench) -> None:
    epoch = join(bench)
    bench.publish(image(orders=4, payments=2))
    epoch = bench.ask(ShareGroupHeartbeatResponse, heartbeat(epoch)).member_epoch
    assert [dict(asked.topics) for asked in bench.asked] == [{topic_id("orders"): ("orders", frozenset({3}))}]
    initialise(bench)
    bench.pass_time(5_000)
    epoch = bench.ask(ShareGroupHeartbeatResponse, heartbeat(epoch)).member_epoch
    assert describe(bench) == {"orders": [0, 1, 2, 3]}
    bench.publish(image(payments=2))
    assert bench.shard.registry.share_groups[GROUP].shares.initialised == {}
    bench.pass_time(5_000)
    bench.ask(ShareGroupHeartbeatResponse, heartbeat(epoch))
    assert describe(bench) == {}
