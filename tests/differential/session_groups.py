"""The part of the session about groups: the classic protocol, the consumer protocol of KIP-848, and offsets.

Two members of a classic group have a connection each, since a JoinGroup waits for the others.
"""

from __future__ import annotations

from struct import pack
from typing import Any

from pessoa.wire.api.consumer_group_describe import ConsumerGroupDescribeRequest
from pessoa.wire.api.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from pessoa.wire.api.delete_groups import DeleteGroupsRequest
from pessoa.wire.api.describe_groups import DescribeGroupsRequest
from pessoa.wire.api.heartbeat import HeartbeatRequest
from pessoa.wire.api.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from pessoa.wire.api.leave_group import LeaveGroupRequest, MemberIdentity
from pessoa.wire.api.list_groups import ListGroupsRequest
from pessoa.wire.api.offset_commit import OffsetCommitRequest, OffsetCommitRequestPartition, OffsetCommitRequestTopic
from pessoa.wire.api.offset_delete import OffsetDeleteRequest, OffsetDeleteRequestPartition, OffsetDeleteRequestTopic
from pessoa.wire.api.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopics
from pessoa.wire.api.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from pessoa.wire.errors import ErrorCode
from tests.differential.session_stage import MINE, Player, neighbour

CLASSIC, MODERN, SIMPLE = "classic", "modern", "simple"
UNUSED_CLASSIC, UNUSED_MODERN = neighbour(CLASSIC), neighbour(MODERN)
COMMIT_BY_NAME = FETCH_BY_NAME = 9


def subscription(*topics: str) -> bytes:
    """Return a ConsumerProtocolSubscription in version 0: the topics, without user data."""
    names = b"".join(pack(">h", len(name)) + name.encode() for name in topics)
    return pack(">hi", 0, len(topics)) + names + pack(">i", -1)


def join(member: str, group: str = CLASSIC, session_ms: int = 120_000, protocol: str = "range") -> JoinGroupRequest:
    return JoinGroupRequest(
        group_id=group,
        session_timeout_ms=session_ms,
        rebalance_timeout_ms=120_000,
        member_id=member,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name=protocol, metadata=subscription("orders"))],
    )


def sync(member: str, generation: int, **assignments: bytes) -> SyncGroupRequest:
    return SyncGroupRequest(
        group_id=CLASSIC,
        generation_id=generation,
        member_id=member,
        protocol_type="consumer",
        protocol_name="range",
        assignments=[
            SyncGroupRequestAssignment(member_id=name, assignment=value) for name, value in assignments.items()
        ],
    )


def beat(member: str, generation: int, group: str = CLASSIC) -> HeartbeatRequest:
    return HeartbeatRequest(group_id=group, generation_id=generation, member_id=member)


def commit(
    group: str,
    offset: int,
    member: str = "",
    epoch: int = -1,
    topic: str = "orders",
    partition: int = 0,
    note: str = "",
) -> OffsetCommitRequest:
    wanted = OffsetCommitRequestPartition(partition_index=partition, committed_offset=offset, committed_metadata=note)
    topics = [OffsetCommitRequestTopic(name=topic, partitions=[wanted])]
    return OffsetCommitRequest(group_id=group, generation_id_or_member_epoch=epoch, member_id=member, topics=topics)


def committed(group: str, *partitions: int, topic: str = "orders") -> OffsetFetchRequest:
    topics = [OffsetFetchRequestTopics(name=topic, partition_indexes=list(partitions))] if partitions else None
    return OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group, topics=topics)])


def forget(group: str, topic: str, partition: int) -> OffsetDeleteRequest:
    wanted = OffsetDeleteRequestTopic(name=topic, partitions=[OffsetDeleteRequestPartition(partition_index=partition)])
    return OffsetDeleteRequest(group_id=group, topics=[wanted])


def modern(member: str, epoch: int, group: str = MODERN, **details: Any) -> ConsumerGroupHeartbeatRequest:
    return ConsumerGroupHeartbeatRequest(group_id=group, member_id=member, member_epoch=epoch, **details)


def ready(player: Player, group: str) -> int:
    """Return the group's coordinator when it has loaded the group."""
    node = player.coordinator(group)
    request = committed(group)
    player.wait_for("a group's coordinator", lambda: player.look(request, to=node).groups[0].error_code == 0)
    return node


def offset_steps(player: Player) -> None:
    node = ready(player, SIMPLE)
    by_name = COMMIT_BY_NAME
    player.ask("a group without members", commit(SIMPLE, 5, note="a note"), by_name, to=node)
    player.ask("an unknown topic", commit(SIMPLE, 5, topic="nothing"), by_name, to=node)
    player.ask("an unknown partition", commit(SIMPLE, 5, partition=77), by_name, to=node)
    player.ask("a long note", commit(SIMPLE, 5, note="x" * 5000), by_name, to=node)
    player.ask("an unknown member", commit(SIMPLE, 5, f"{MINE}ghost", 1), by_name, to=node)
    player.ask("a group without a name", commit("", 5), by_name, to=node)
    player.ask("an older client", commit(SIMPLE, 6), 2, to=node)
    player.ask("some", committed(SIMPLE, 0, 1, 77), FETCH_BY_NAME, to=node)
    player.ask("all", committed(SIMPLE), FETCH_BY_NAME, to=node)
    player.ask("of an unknown topic", committed(SIMPLE, 0, topic="nothing"), FETCH_BY_NAME, to=node)
    player.ask("of a group without a name", committed(""), FETCH_BY_NAME, to=node)
    player.ask("forget", forget(SIMPLE, "orders", 0), to=node)
    player.ask("forget an unknown topic", forget(SIMPLE, "nothing", 0), to=node)
    player.ask("all that is left", committed(SIMPLE), FETCH_BY_NAME, to=node)


def classic_steps(player: Player) -> None:
    node = ready(player, CLASSIC)
    first = player.ask("a new member", join(""), to=node, actor="first").member_id
    player.ask("a group without a name", join("", ""), to=node)
    player.ask("a short session", join("", session_ms=1), to=node)
    player.ask("an unknown member", join(f"{MINE}ghost"), to=node)
    player.ask("the first member", join(first), to=node, actor="first")
    player.ask("another protocol", join("", protocol="mine"), 3, to=node)
    player.ask("the leader assigns", sync(first, 1, **{first: b"all"}), to=node, actor="first")
    player.ask("a wrong generation", sync(first, 9), to=node, actor="first")
    player.ask("an unknown member", sync(f"{MINE}ghost", 1), to=node)
    player.ask("all is well", beat(first, 1), to=node)
    player.ask("a wrong generation", beat(first, 9), to=node)
    player.ask("an unknown member", beat(f"{MINE}ghost", 1), to=node)
    player.ask("an unknown group", beat(first, 1, UNUSED_CLASSIC), to=node)
    player.ask("a member", commit(CLASSIC, 3, first, 1), COMMIT_BY_NAME, to=node)
    player.ask("a wrong generation", commit(CLASSIC, 3, first, 9), COMMIT_BY_NAME, to=node)
    player.ask("no member", commit(CLASSIC, 3), COMMIT_BY_NAME, to=node)
    player.ask("what is in use", forget(CLASSIC, "orders", 0), to=node)
    player.ask("stable", DescribeGroupsRequest(groups=[CLASSIC, UNUSED_CLASSIC]), to=node)
    second = player.ask("a second new member", join(""), to=node, actor="second").member_id
    waiting = player.begin("the second member", join(second), to=node, actor="second")
    is_moving = ErrorCode.REBALANCE_IN_PROGRESS
    player.until("a rebalance", lambda answer: answer.error_code == is_moving, beat(first, 1), to=node, actor="first")
    player.ask("the first member again", join(first), to=node, actor="first")
    player.finish(waiting)
    waiting = player.begin("the second waits", sync(second, 2), to=node, actor="second")
    player.ask("the leader assigns to two", sync(first, 2, **{first: b"a", second: b"b"}), to=node, actor="first")
    player.finish(waiting)
    player.ask("two members", DescribeGroupsRequest(groups=[CLASSIC]), to=node)
    allowed = DescribeGroupsRequest(groups=[CLASSIC, UNUSED_CLASSIC], include_authorized_operations=True)
    player.ask("what is allowed", allowed, to=node)
    player.ask("not empty", DeleteGroupsRequest(groups_names=[CLASSIC]), to=node)
    leaving = [MemberIdentity(member_id=name) for name in (first, second, f"{MINE}ghost")]
    player.ask("two and a ghost", LeaveGroupRequest(group_id=CLASSIC, members=leaving), to=node)
    player.ask("empty", DescribeGroupsRequest(groups=[CLASSIC]), to=node)
    if len(player.nodes) == 1:
        # With several brokers each lists the groups that it coordinates, at random. It must have loaded all of them.
        player.wait_for("every group", lambda: player.look(ListGroupsRequest(), to=node).error_code == 0)
        player.ask("all", ListGroupsRequest(), to=node)
        player.ask("empty ones", ListGroupsRequest(states_filter=["Empty"]), to=node)
        player.ask("in a state that does not exist", ListGroupsRequest(states_filter=["Nonsense"]), to=node)
        player.ask("of a new kind", ListGroupsRequest(types_filter=["consumer"]), to=node)
        player.ask("an older client", ListGroupsRequest(), 0, to=node)
    player.ask("two", DeleteGroupsRequest(groups_names=[CLASSIC, UNUSED_CLASSIC]), to=node)


def modern_steps(player: Player) -> None:
    node = ready(player, MODERN)
    me = f"{MINE}member"
    start: dict[str, Any] = {"rebalance_timeout_ms": 60_000, "topic_partitions": []}
    player.ask("a first member", modern(me, 0, subscribed_topic_names=["orders"], **start), to=node)
    player.ask("all is well", modern(me, 1), to=node)
    player.ask("an epoch to come", modern(me, 9), to=node)
    player.ask("an unknown member", modern(f"{MINE}ghost", 3), to=node)
    player.ask("an unknown group", modern(me, 3, UNUSED_MODERN), to=node)
    player.ask("a group without a name", modern(me, 0, "", subscribed_topic_names=["orders"], **start), to=node)
    player.ask("no subscription", modern(f"{MINE}other", 0, **start), to=node)
    wrong = modern(f"{MINE}other", 0, subscribed_topic_names=["orders"], server_assignor="magic", **start)
    player.ask("an unknown assignor", wrong, to=node)
    player.ask("a wrong pattern", modern(f"{MINE}other", 0, subscribed_topic_regex="(", **start), to=node)
    player.ask("a member of a new kind", commit(MODERN, 4, me, 1), COMMIT_BY_NAME, to=node)
    player.ask("a stale epoch", commit(MODERN, 4, me, 0), COMMIT_BY_NAME, to=node)
    asked = ConsumerGroupDescribeRequest(group_ids=[MODERN, UNUSED_MODERN], include_authorized_operations=True)
    player.ask("one of two", asked, to=node)
    player.ask("of a new kind", DescribeGroupsRequest(groups=[MODERN]), to=node)
    player.ask("leave", modern(me, -1), to=node)
    player.ask("of a new kind", DeleteGroupsRequest(groups_names=[MODERN]), to=node)


ACTS = (offset_steps, classic_steps, modern_steps)
