"""A script of requests of share group members, administrators and leaders (KIP-932), for Apache's broker and ours."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from pessoa.base.ids import ZERO_UUID, Uuid
from pessoa.wire.api import alter_share_group_offsets as alter_offsets
from pessoa.wire.api import delete_share_group_offsets as delete_offsets
from pessoa.wire.api import delete_share_group_state as delete_state
from pessoa.wire.api import describe_share_group_offsets as describe_offsets
from pessoa.wire.api import initialize_share_group_state as initialize_state
from pessoa.wire.api import read_share_group_state as read_state
from pessoa.wire.api import read_share_group_state_summary as read_summary
from pessoa.wire.api import share_acknowledge, share_fetch
from pessoa.wire.api import write_share_group_state as write_state
from pessoa.wire.api.consumer_group_describe import ConsumerGroupDescribeRequest
from pessoa.wire.api.delete_groups import DeleteGroupsRequest
from pessoa.wire.api.describe_groups import DescribeGroupsRequest
from pessoa.wire.api.list_groups import ListGroupsRequest
from pessoa.wire.api.share_group_describe import ShareGroupDescribeRequest
from pessoa.wire.api.share_group_heartbeat import ShareGroupHeartbeatRequest
from tests.differential.session_data import produce
from tests.differential.session_stage import Player
from tests.support.admin_script import SET, alter, create, feature, topic
from tests.support.batches import plain

GROUP_CONFIG = 32
PATIENCE_S = 60.0
ACCEPT, RELEASE, REJECT, RENEW = 1, 2, 3, 4
GAP = 0
LOADING = (14, 15, 16)
ABSENT = Uuid(bytes(range(16)))
Acks = Sequence[tuple[int, int, list[int]]]


def heartbeat(group: str, member: str, epoch: int, *topics: str, rack: str | None = None) -> ShareGroupHeartbeatRequest:
    return ShareGroupHeartbeatRequest(
        group_id=group,
        member_id=member,
        member_epoch=epoch,
        rack_id=rack,
        subscribed_topic_names=list(topics) if topics else None,
    )


def fetch(
    group: str | None,
    member: str | None,
    epoch: int,
    partitions: Sequence[tuple[Uuid, int]] = (),
    acks: dict[tuple[Uuid, int], Acks] | None = None,
    forgotten: Sequence[tuple[Uuid, int]] = (),
    **settings: Any,
) -> share_fetch.ShareFetchRequest:
    acks = acks or {}
    limits: dict[str, Any] = {
        "max_wait_ms": 300,
        "min_bytes": 1,
        "max_bytes": 1 << 20,
        "max_records": 500,
        "batch_size": 500,
    }
    return share_fetch.ShareFetchRequest(
        group_id=group,
        member_id=member,
        share_session_epoch=epoch,
        **(limits | settings),
        topics=[
            share_fetch.FetchTopic(
                topic_id=topic_id,
                partitions=[
                    share_fetch.FetchPartition(
                        partition_index=index,
                        acknowledgement_batches=[
                            share_fetch.AcknowledgementBatch(first_offset=a, last_offset=b, acknowledge_types=types)
                            for a, b, types in acks.get((topic_id, index), ())
                        ],
                    )
                ],
            )
            for topic_id, index in dict.fromkeys((*partitions, *acks))
        ],
        forgotten_topics_data=[
            share_fetch.ForgottenTopic(topic_id=topic_id, partitions=[index]) for topic_id, index in forgotten
        ],
    )


def acknowledge(
    group: str, member: str, epoch: int, acks: dict[tuple[Uuid, int], Acks], *, renews: bool = False
) -> share_acknowledge.ShareAcknowledgeRequest:
    return share_acknowledge.ShareAcknowledgeRequest(
        group_id=group,
        member_id=member,
        share_session_epoch=epoch,
        is_renew_ack=renews,
        topics=[
            share_acknowledge.AcknowledgeTopic(
                topic_id=topic_id,
                partitions=[
                    share_acknowledge.AcknowledgePartition(
                        partition_index=index,
                        acknowledgement_batches=[
                            share_acknowledge.AcknowledgementBatch(
                                first_offset=a, last_offset=b, acknowledge_types=types
                            )
                            for a, b, types in batches
                        ],
                    )
                ],
            )
            for (topic_id, index), batches in acks.items()
        ],
    )


def offsets_of(group: str, topics: dict[str, list[int]] | None) -> describe_offsets.DescribeShareGroupOffsetsRequest:
    wanted = (
        None
        if topics is None
        else [
            describe_offsets.DescribeShareGroupOffsetsRequestTopic(topic_name=name, partitions=indexes)
            for name, indexes in topics.items()
        ]
    )
    return describe_offsets.DescribeShareGroupOffsetsRequest(
        groups=[describe_offsets.DescribeShareGroupOffsetsRequestGroup(group_id=group, topics=wanted)]
    )


def altered(group: str, topics: dict[str, dict[int, int]]) -> alter_offsets.AlterShareGroupOffsetsRequest:
    return alter_offsets.AlterShareGroupOffsetsRequest(
        group_id=group,
        topics=[
            alter_offsets.AlterShareGroupOffsetsRequestTopic(
                topic_name=name,
                partitions=[
                    alter_offsets.AlterShareGroupOffsetsRequestPartition(partition_index=index, start_offset=offset)
                    for index, offset in offsets.items()
                ],
            )
            for name, offsets in topics.items()
        ],
    )


def deleted(group: str, *names: str) -> delete_offsets.DeleteShareGroupOffsetsRequest:
    return delete_offsets.DeleteShareGroupOffsetsRequest(
        group_id=group,
        topics=[delete_offsets.DeleteShareGroupOffsetsRequestTopic(topic_name=name) for name in names],
    )


def described(group: str) -> ShareGroupDescribeRequest:
    return ShareGroupDescribeRequest(group_ids=[group], include_authorized_operations=True)


def wait_for_coordinator(player: Player, group: str) -> None:
    """Wait until the group's coordinator has loaded."""
    player.coordinator(group)
    player.wait_for(
        f"the coordinator of {group}", lambda: player.look(described(group)).groups[0].error_code not in LOADING
    )


def join(player: Player, group: str, member: str, *topics: str) -> int:
    """Send heartbeats until the member has partitions, and return its epoch."""
    wait_for_coordinator(player, group)
    epoch = 0
    deadline = time.monotonic() + PATIENCE_S
    while True:
        response = player.look(heartbeat(group, member, epoch, *topics), actor=member)
        assert response.error_code == 0, response
        epoch = int(response.member_epoch)
        if response.assignment is not None and response.assignment.topic_partitions:
            return epoch
        assert time.monotonic() < deadline, "the member gets no partitions"
        time.sleep(0.2)


def prepare(player: Player) -> dict[str, Uuid]:
    player.look(create(topic("t", 2, 1), topic("u", 1, 1)))
    player.wait_until_applied()
    for count in (10, 1, 1, 1, 1, 1):
        player.look(produce("t", plain(count)), 12)
    player.look(produce("t", plain(3), 1), 12)
    for group in ("g", "limited", "closing", "renewing", "locks", "altered"):
        player.look(alter(GROUP_CONFIG, group, ("share.auto.offset.reset", SET, "earliest")))
    player.wait_until_applied()
    return {name: player.topic_id(name) for name in ("t", "u")}


def say(player: Player, title: str, request: Any, version: int | None = None) -> Any:
    """Send a member's request on its own connection: Apache's brokers have one share session for each connection."""
    return player.ask(title, request, version, actor=str(request.member_id))


def play(player: Player) -> None:
    ids = prepare(player)
    t = ids["t"]
    heartbeat_steps(player)
    epoch = join(player, "g", "mine-a", "t")
    player.ask("a heartbeat that is up to date", heartbeat("g", "mine-a", epoch), actor="mine-a")
    player.ask("a group with a member", described("g"))
    player.ask("of share groups", ListGroupsRequest(states_filter=[], types_filter=["share"]))
    player.ask("of a share group", DescribeGroupsRequest(groups=["g"], include_authorized_operations=False))
    player.ask("of a share group", ConsumerGroupDescribeRequest(group_ids=["g"], include_authorized_operations=False))
    player.ask("a group with members", DeleteGroupsRequest(groups_names=["g"]))
    player.ask("a group with members", altered("g", {"t": {0: 5}}))
    player.ask("a group with members", deleted("g", "t"))
    session_steps(player, t)
    fetch_steps(player, t)
    bad_acknowledgement_steps(player, t)
    limit_steps(player, t)
    renewal_steps(player, t)
    closing_steps(player, t)
    offset_steps(player)
    state_steps(player, t)
    off_steps(player, t)


def heartbeat_steps(player: Player) -> None:
    for group in ("g", "h", "absent"):
        wait_for_coordinator(player, group)
    for what, request in (
        ("no group id", heartbeat("", "mine-a", 0, "t")),
        ("no member id", heartbeat("g", "", 0, "t")),
        ("no topics", heartbeat("g", "mine-a", 0)),
        ("an empty rack", heartbeat("g", "mine-a", 0, "t", rack="")),
        ("an epoch that no member has", heartbeat("g", "mine-a", -2, "t")),
        ("of no group", heartbeat("absent", "mine-a", 3)),
        ("leaves no group", heartbeat("absent", "mine-a", -1)),
        ("joins", heartbeat("h", "mine-z", 0, "t")),
        ("joins again", heartbeat("h", "mine-z", 0, "t")),
        ("of a stranger", heartbeat("h", "mine-y", 3)),
        ("of a wrong epoch", heartbeat("h", "mine-z", 77)),
        ("leaves", heartbeat("h", "mine-z", -1)),
        ("leaves twice", heartbeat("h", "mine-z", -1)),
    ):
        player.ask(what, request)
    player.ask("a group without members", described("h"))
    player.ask("no group", described("absent"))


def session_steps(player: Player, t: Uuid) -> None:
    for what, request in (
        ("no group id", fetch(None, "mine-a", 0, [(t, 0)])),
        ("no member id", fetch("g", None, 0, [(t, 0)])),
        ("a long member id", fetch("g", "m" * 37, 0, [(t, 0)])),
        ("acknowledges at the beginning", fetch("g", "mine-a", 0, [], {(t, 0): [(0, 0, [ACCEPT])]})),
        ("no session", fetch("g", "mine-a", 4, [(t, 0)])),
        ("closes no session", fetch("g", "mine-a", -1)),
        ("unknown topic", fetch("g", "mine-a", 0, [(ABSENT, 0)])),
        ("unknown partition", fetch("g", "mine-b", 0, [(t, 7)])),
        ("of a group without state", fetch("stateless", "mine-s", 0, [(t, 0)], max_wait_ms=5_000)),
        ("nothing at all", fetch("g", "mine-c", 0)),
        ("wrong epoch", fetch("g", "mine-c", 9)),
    ):
        say(player, what, request)
    say(player, "begins with an acknowledgement", acknowledge("g", "mine-c", 0, {(t, 0): [(0, 0, [ACCEPT])]}))
    say(player, "without a session", acknowledge("g", "mine-d", 3, {(t, 0): [(0, 0, [ACCEPT])]}))
    for member in ("mine-a", "mine-b", "mine-c"):
        player.look(fetch("g", member, -1), actor=member)


def fetch_steps(player: Player, t: Uuid) -> None:
    """Fetch from a partition with one batch of ten records and five batches of one."""
    take_all(player, "everything from the beginning", "g", "mine-a", 0, [(t, 0)])
    say(player, "nothing more", fetch("g", "mine-a", 1))
    say(player, "what others have", fetch("g", "mine-b", 0, [(t, 0)]))
    say(
        player,
        "all kinds",
        acknowledge("g", "mine-a", 2, {(t, 0): [(0, 3, [ACCEPT]), (4, 6, [RELEASE]), (7, 7, [REJECT]), (8, 8, [GAP])]}),
    )
    say(player, "what was released", fetch("g", "mine-b", 1))
    say(player, "another partition", fetch("g", "mine-b", 2, [(t, 1)]))
    say(
        player,
        "with acknowledgements, of both partitions",
        fetch("g", "mine-b", 3, [], {(t, 0): [(4, 6, [ACCEPT, RELEASE, ACCEPT])], (t, 1): [(0, 2, [ACCEPT])]}),
    )
    say(player, "the third time", fetch("g", "mine-b", 4, [], {(t, 0): [(5, 5, [RELEASE])]}))
    say(player, "a forgotten partition", fetch("g", "mine-b", 5, forgotten=[(t, 1)]))
    player.ask("where the group is", offsets_of("g", {"t": [0, 1]}))
    player.ask("where the group is, in all topics", offsets_of("g", None))
    player.ask("where the group is, without lag", offsets_of("g", {"t": [0, 1]}), 0)


def take_all(player: Player, title: str, group: str, member: str, epoch: int, partitions: Any, **settings: Any) -> None:
    """Fetch with a long wait: the first fetch of a group waits until its state is loaded."""
    say(player, title, fetch(group, member, epoch, partitions, max_wait_ms=30_000, **settings))


def bad_acknowledgement_steps(player: Player, t: Uuid) -> None:
    """Send invalid acknowledgements; member a has acquired offsets 9 to 14."""
    epoch = 3
    for what, batches in (
        ("first behind last", [(10, 9, [ACCEPT])]),
        ("backwards", [(12, 12, [ACCEPT]), (10, 10, [ACCEPT])]),
        ("too few types", [(9, 11, [ACCEPT, ACCEPT])]),
        ("an unknown type", [(9, 9, [9])]),
        ("a negative type", [(9, 9, [-1])]),
        ("a renewal that is none", [(9, 9, [RENEW])]),
        ("no types", [(9, 9, [])]),
        ("of what was done", [(8, 8, [ACCEPT])]),
        ("of what lies below the start", [(0, 3, [ACCEPT])]),
        ("of what was never acquired", [(100, 101, [ACCEPT])]),
        ("partly of what was never acquired", [(9, 9, [ACCEPT]), (100, 101, [ACCEPT])]),
        ("twice the same", [(9, 9, [ACCEPT]), (9, 9, [ACCEPT])]),
    ):
        say(player, what, acknowledge("g", "mine-a", epoch, {(t, 0): batches}))
        epoch += 1
    say(player, "of another member", acknowledge("g", "mine-b", 6, {(t, 0): [(9, 9, [ACCEPT])]}))
    say(player, "of a partition without state", acknowledge("g", "mine-b", 7, {(t, 5): [(9, 9, [ACCEPT])]}))
    say(player, "of an unknown topic", acknowledge("g", "mine-b", 8, {(ABSENT, 0): [(9, 9, [ACCEPT])]}))
    say(player, "an unknown type, in the first version", acknowledge("g", "mine-b", 9, {(t, 0): [(9, 9, [4])]}), 1)
    say(player, "of everything", acknowledge("g", "mine-a", epoch, {(t, 0): [(9, 14, [ACCEPT])]}))


def limit_steps(player: Player, t: Uuid) -> None:
    join(player, "limited", "mine-l", "t")
    take_all(player, "whole batches", "limited", "mine-l", 0, [(t, 0)], max_records=3, batch_size=3)
    say(player, "the next batches", fetch("limited", "mine-l", 1, max_records=2, batch_size=1))
    say(player, "no records wanted", fetch("limited", "mine-l", 2, max_records=0))
    say(player, "no bytes wanted", fetch("limited", "mine-l", 3, max_bytes=0))
    join(player, "locks", "mine-k", "t")
    take_all(
        player, "exactly so many", "locks", "mine-k", 0, [(t, 0)], max_records=3, batch_size=3, share_acquire_mode=1
    )
    say(player, "exactly so many more", fetch("locks", "mine-k", 1, max_records=4, batch_size=2, share_acquire_mode=1))
    say(player, "the rest, by batches", fetch("locks", "mine-k", 2))


def renewal_steps(player: Player, t: Uuid) -> None:
    join(player, "renewing", "mine-r", "t")
    take_all(player, "to be renewed", "renewing", "mine-r", 0, [(t, 0)])
    say(player, "renews", acknowledge("renewing", "mine-r", 1, {(t, 0): [(0, 9, [RENEW])]}, renews=True))
    none: dict[str, Any] = {"max_wait_ms": 0, "min_bytes": 0, "max_bytes": 0, "max_records": 0, "batch_size": 0}
    say(
        player,
        "renews and fetches",
        fetch("renewing", "mine-r", 2, [], {(t, 0): [(0, 9, [RENEW])]}, is_renew_ack=True),
    )
    say(
        player,
        "renews with a fetch",
        fetch("renewing", "mine-r", 2, [], {(t, 0): [(0, 9, [RENEW])]}, is_renew_ack=True, **none),
    )
    say(player, "accepts what was renewed", acknowledge("renewing", "mine-r", 3, {(t, 0): [(0, 14, [ACCEPT])]}))


def closing_steps(player: Player, t: Uuid) -> None:
    """Close share sessions, without fetching the released records: Apache's broker does not always release them."""
    join(player, "closing", "mine-c", "t")
    take_all(player, "to be kept by a new session", "closing", "mine-c", 0, [(t, 0)])
    say(player, "a new session", fetch("closing", "mine-c", 0, [(t, 0)]))
    say(player, "accepts of the old session", acknowledge("closing", "mine-c", 1, {(t, 0): [(0, 1, [ACCEPT])]}))
    say(player, "closes", fetch("closing", "mine-c", -1))
    take_all(player, "of a member that never joined", "closing", "mine-d", 0, [(t, 1)])
    say(player, "closes", acknowledge("closing", "mine-d", -1, {}))
    say(player, "goes on after the end", fetch("closing", "mine-d", 2))


def offset_steps(player: Player) -> None:
    player.ask("of no group", offsets_of("absent", None))
    player.ask("of no group, in a topic", offsets_of("absent", {"t": [0]}))
    player.ask("in no topic", offsets_of("g", {"absent": [0]}))
    player.ask("of no group", deleted("absent", "t"))
    wait_for_coordinator(player, "altered")
    player.ask("makes a group", altered("altered", {"t": {0: 5, 9: 1}, "absent": {0: 1}}))
    player.ask("a group that was made", described("altered"))
    player.ask("of a group that was made", offsets_of("altered", {"t": [0, 1], "u": [0]}))
    player.ask("of a group that was made, in all topics", offsets_of("altered", None))
    player.ask("again", altered("altered", {"t": {0: 7}}))
    player.ask("after the second time", offsets_of("altered", None))
    player.ask("of topics that it has and has not", deleted("altered", "t", "u", "absent"))
    player.ask("after the deletion", offsets_of("altered", None))
    player.ask("twice", deleted("altered", "t"))
    player.ask("a share group and none", DeleteGroupsRequest(groups_names=["altered", "absent"]))
    player.ask("a group that was deleted", described("altered"))


def state_steps(player: Player, t: Uuid) -> None:
    """Send the requests of leaders and group coordinators to the share coordinator."""
    player.coordinator(f"state:{t}:0", 2)

    def read(partition: int, leader_epoch: int, topic_id: Uuid = t) -> read_state.ReadShareGroupStateRequest:
        one = read_state.PartitionData(partition=partition, leader_epoch=leader_epoch)
        return read_state.ReadShareGroupStateRequest(
            group_id="state", topics=[read_state.ReadStateData(topic_id=topic_id, partitions=[one])]
        )

    def initialize(partition: int, state_epoch: int, offset: int, topic_id: Uuid = t) -> Any:
        one = initialize_state.PartitionData(partition=partition, state_epoch=state_epoch, start_offset=offset)
        return initialize_state.InitializeShareGroupStateRequest(
            group_id="state", topics=[initialize_state.InitializeStateData(topic_id=topic_id, partitions=[one])]
        )

    def write(leader_epoch: int, state_epoch: int, start: int, *batches: tuple[int, int, int, int]) -> Any:
        one = write_state.PartitionData(
            partition=0,
            state_epoch=state_epoch,
            leader_epoch=leader_epoch,
            start_offset=start,
            delivery_complete_count=1,
            state_batches=[
                write_state.StateBatch(first_offset=a, last_offset=b, delivery_state=state, delivery_count=count)
                for a, b, state, count in batches
            ],
        )
        return write_state.WriteShareGroupStateRequest(
            group_id="state", topics=[write_state.WriteStateData(topic_id=t, partitions=[one])]
        )

    def summary(partition: int, topic_id: Uuid = t) -> read_summary.ReadShareGroupStateSummaryRequest:
        one = read_summary.PartitionData(partition=partition, leader_epoch=0)
        return read_summary.ReadShareGroupStateSummaryRequest(
            group_id="state", topics=[read_summary.ReadStateSummaryData(topic_id=topic_id, partitions=[one])]
        )

    def delete(partition: int) -> delete_state.DeleteShareGroupStateRequest:
        one = delete_state.PartitionData(partition=partition)
        return delete_state.DeleteShareGroupStateRequest(
            group_id="state", topics=[delete_state.DeleteStateData(topic_id=t, partitions=[one])]
        )

    steps = (
        ("not initialised", read(0, 1)),
        ("not initialised", write(0, 0, 0)),
        ("not initialised", summary(0)),
        ("of nothing", delete(0)),
        ("begins", initialize(0, 2, 10)),
        ("an older epoch", initialize(0, 1, 3)),
        ("an unknown topic", initialize(0, 1, 3, ABSENT)),
        ("no topic", initialize(0, 1, 3, ZERO_UUID)),
        ("an unknown partition", initialize(17, 1, 3)),
        ("begins", read(0, 3)),
        ("an older leader", read(0, 2)),
        ("an unknown topic", read(0, 3, ABSENT)),
        ("of an older leader", write(2, 2, 10, (10, 12, 2, 1))),
        ("of an older state", write(3, 1, 10, (10, 12, 2, 1))),
        ("some batches", write(3, 2, 10, (10, 12, 2, 1), (13, 14, 0, 1))),
        ("some more", write(3, 2, 11, (13, 13, 4, 2))),
        ("after the writes", read(0, 3)),
        ("after the writes", summary(0)),
        ("an unknown topic", summary(0, ABSENT)),
        ("what there is", delete(0)),
        ("after the deletion", summary(0)),
    )
    player.wait_for(
        "the share coordinator",
        lambda: player.look(summary(0)).results[0].partitions[0].error_code not in LOADING,
    )
    for what, request in steps:
        player.ask(what, request)


def off_steps(player: Player, t: Uuid) -> None:
    player.look(feature("share.version", 0, upgrade_type=2))
    player.wait_until_applied()
    player.ask("switched off", heartbeat("g", "mine-a", 0, "t"))
    player.ask("switched off", described("g"))
    player.ask("switched off", fetch("g", "mine-a", 0, [(t, 0)]))
    player.ask("switched off", acknowledge("g", "mine-a", 1, {(t, 0): [(0, 0, [ACCEPT])]}))
    player.ask("switched off", offsets_of("g", None))
    player.ask("switched off", altered("g", {"t": {0: 0}}))
    player.ask("switched off", deleted("g", "t"))
