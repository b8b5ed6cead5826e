"""A script of requests of streams group members and administrators (KIP-1071), for Apache's broker and ours."""

from __future__ import annotations

from typing import Any

from pessoa.wire.api.consumer_group_describe import ConsumerGroupDescribeRequest
from pessoa.wire.api.delete_groups import DeleteGroupsRequest
from pessoa.wire.api.describe_groups import DescribeGroupsRequest
from pessoa.wire.api.list_groups import ListGroupsRequest
from pessoa.wire.api.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from pessoa.wire.api.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from pessoa.wire.api.streams_group_describe import StreamsGroupDescribeRequest
from pessoa.wire.api.streams_group_heartbeat import (
    Endpoint,
    StreamsGroupHeartbeatRequest,
    TaskIds,
    TaskOffset,
    Topology,
)
from tests.differential.session_stage import Player
from tests.support.admin_script import create, topic
from tests.unit.coordinator.groups.streams_client import copartition, subtopology, topic_info, topology

LOADING = (14, 15, 16)
OFFSET = TaskOffset(subtopology_id="0", partition=0, offset=1)
PLAIN = topology(subtopology("0", "t"))
COUNTING = topology(
    subtopology("0", "t", writes=("mine-r",)),
    subtopology(
        "1",
        changelogs=(topic_info("mine-c", configs={"cleanup.policy": "compact"}),),
        repartition=(topic_info("mine-r"),),
    ),
)


def heartbeat(group: str, member: str, epoch: int, shape: Topology | None = None, **fields: Any) -> Any:
    joins = epoch == 0
    request = StreamsGroupHeartbeatRequest(
        group_id=group,
        member_id=member,
        member_epoch=epoch,
        endpoint_information_epoch=-1,
        rebalance_timeout_ms=60_000 if joins else -1,
        topology=(shape or PLAIN) if joins else None,
        active_tasks=[] if joins else None,
        standby_tasks=[] if joins else None,
        warmup_tasks=[] if joins else None,
        process_id="process" if joins else None,
        client_tags=[] if joins else None,
    )
    for name, value in fields.items():
        setattr(request, name, value)
    return request


def described(*groups: str) -> StreamsGroupDescribeRequest:
    return StreamsGroupDescribeRequest(group_ids=list(groups), include_authorized_operations=True)


def commit(group: str, member: str, epoch: int, partition: int) -> OffsetCommitRequest:
    part = OffsetCommitRequestPartition(partition_index=partition, committed_offset=1, committed_metadata="")
    return OffsetCommitRequest(
        group_id=group,
        member_id=member,
        generation_id_or_member_epoch=epoch,
        topics=[OffsetCommitRequestTopic(name="t", partitions=[part])],
    )


def wait_for_coordinator(player: Player, group: str) -> None:
    player.coordinator(group)
    player.wait_for(
        f"the coordinator of {group}", lambda: player.look(described(group)).groups[0].error_code not in LOADING
    )


def play(player: Player) -> None:
    player.look(create(topic("t", 2, 1), topic("u", 3, 1)))
    player.wait_until_applied()
    for group in ("g", "counting", "absent", "lost", "uneven", "classic", "waiting"):
        wait_for_coordinator(player, group)
    malformed_steps(player)
    topology_steps(player)
    member_steps(player)
    counting_steps(player)
    other_types_steps(player)


def malformed_steps(player: Player) -> None:
    for what, request in (
        ("no group id", heartbeat("", "mine-a", 0)),
        ("no member id", heartbeat("g", "", 0)),
        ("a static member", heartbeat("g", "mine-a", 0, instance_id="i")),
        ("no topology", heartbeat("g", "mine-a", 0, topology=None)),
        ("no rebalance timeout", heartbeat("g", "mine-a", 0, rebalance_timeout_ms=-1)),
        ("no active tasks", heartbeat("g", "mine-a", 0, active_tasks=None)),
        ("joins with tasks", heartbeat("g", "mine-a", 0, active_tasks=[TaskIds(subtopology_id="0", partitions=[0])])),
        ("warm-up tasks", heartbeat("g", "mine-a", 0, warmup_tasks=[TaskIds(subtopology_id="0", partitions=[0])])),
        ("task offsets", heartbeat("g", "mine-a", 0, task_offsets=[OFFSET])),
        ("an epoch that no member has", heartbeat("g", "mine-a", -3)),
        ("of no group", heartbeat("absent", "mine-a", 3)),
        ("leaves no group", heartbeat("absent", "mine-a", -1)),
    ):  # fmt: skip
        player.ask(what, request)
    player.ask("no group", described("absent"))


def topology_steps(player: Player) -> None:
    for what, shape in (
        ("a name that is none", topology(subtopology("0", "a b"))),
        ("an internal topic", topology(subtopology("0", "__consumer_offsets"))),
        ("a changelog with a count", topology(subtopology("0", "t", changelogs=(topic_info("mine-c", 3),)))),
    ):
        player.ask(what, heartbeat("g", "mine-a", 0, shape))
    player.ask("a missing source", heartbeat("lost", "mine-a", 0, topology(subtopology("0", "nowhere"))))
    player.ask("a group that is not ready", described("lost"))
    uneven = topology(subtopology("0", "t", "u", joined=(copartition((0, 1)),)))
    player.ask("joined topics of different counts", heartbeat("uneven", "mine-a", 0, uneven))


def member_steps(player: Player) -> None:
    player.ask("joins", heartbeat("g", "mine-a", 0, user_endpoint=Endpoint(host="h", port=1)))
    epoch = int(player.look(heartbeat("g", "mine-a", 0)).member_epoch)
    player.ask("a heartbeat that is up to date", heartbeat("g", "mine-a", epoch))
    player.ask("the same with its tasks", heartbeat("g", "mine-a", epoch, active_tasks=tasks(0, 1), standby_tasks=[], warmup_tasks=[]))  # noqa: E501  # fmt: skip
    player.ask("some task lists only", heartbeat("g", "mine-a", epoch, active_tasks=tasks(0, 1)))
    player.ask("brings a topology later", heartbeat("g", "mine-a", epoch, topology=PLAIN))
    player.ask("of a stranger", heartbeat("g", "mine-y", 3))
    player.ask("of a wrong epoch", heartbeat("g", "mine-a", 77))
    player.ask("another topology", heartbeat("g", "mine-b", 0, topology(subtopology("0", "u"))))
    player.ask("a group with a member", described("g", "g"))
    player.ask("of streams groups", ListGroupsRequest(states_filter=[], types_filter=["streams"]))
    player.ask("of a streams group", DescribeGroupsRequest(groups=["g"], include_authorized_operations=False))
    player.ask("of a streams group", ConsumerGroupDescribeRequest(group_ids=["g"], include_authorized_operations=False))
    player.ask("by its member", commit("g", "mine-a", epoch, 0), 9)
    player.ask("by its member, before epochs", commit("g", "mine-a", epoch, 0), 8)
    player.ask("by its member, at a later epoch", commit("g", "mine-a", epoch + 1, 0), 9)
    player.ask("by a stranger", commit("g", "mine-y", epoch, 0), 9)
    player.ask("of a streams group", OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=None)]), 9)
    player.ask("a group with members", DeleteGroupsRequest(groups_names=["g"]))
    player.ask("a second member joins", heartbeat("g", "mine-b", 0, process_id="other"))
    player.ask("the first must give up", heartbeat("g", "mine-a", epoch))
    kept = tasks(*kept_by(player, "g", "mine-a"))
    player.ask("it has given up", heartbeat("g", "mine-a", epoch, active_tasks=kept, standby_tasks=[], warmup_tasks=[]))
    player.ask("two members", described("g"))
    player.ask("leaves", heartbeat("g", "mine-b", -1))
    player.ask("leaves twice", heartbeat("g", "mine-b", -1))
    player.ask("the last member leaves", heartbeat("g", "mine-a", -1))
    player.ask("a group without members", described("g"))
    player.ask("a group without members", DeleteGroupsRequest(groups_names=["g"]))
    player.ask("a group that is deleted", described("g"))


def tasks(*partitions: int) -> list[TaskIds]:
    return [TaskIds(subtopology_id="0", partitions=list(partitions))]


def kept_by(player: Player, group: str, member: str) -> list[int]:
    """Return the partitions of the active tasks in the member's target assignment."""
    (found,) = player.look(described(group)).groups
    (one,) = [each for each in found.members if each.member_id == member]
    return [partition for ids in one.target_assignment.active_tasks for partition in ids.partitions]


def counting_steps(player: Player) -> None:
    """Send heartbeats until the broker has created the internal topics and the topology is ready."""
    player.ask("internal topics are missing", heartbeat("counting", "mine-a", 0, COUNTING))
    player.wait_for("the internal topics", lambda: all(exists(player, name) for name in ("mine-r", "mine-c")))
    player.wait_until_applied()
    epoch = 0

    def is_ready() -> bool:
        nonlocal epoch
        response = player.look(heartbeat("counting", "mine-a", epoch, COUNTING))
        assert response.error_code == 0, response
        epoch = int(response.member_epoch)
        return not response.status

    player.wait_for("a topology that is ready", is_ready)
    player.ask("joins again when all is there", heartbeat("counting", "mine-a", 0, COUNTING))
    player.ask("a group with internal topics", described("counting"))


def exists(player: Player, name: str) -> bool:
    return not player._metadata(name).error_code


def other_types_steps(player: Player) -> None:
    player.look(commit("classic", "", -1, 0), 9)
    player.ask("takes the place of a group without members", heartbeat("classic", "mine-a", 0))
    player.ask("which keeps its offsets", OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="classic", topics=None)]), 9)  # noqa: E501  # fmt: skip
    player.ask("a classic group that became a streams group", described("classic"))
