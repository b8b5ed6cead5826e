"""Coordinators of share and streams groups on real brokers: their features, the configuration of groups, and the state
of a group after a failover of its coordinator."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pessoa.client.client_errors import RequestFailed
from pessoa.client.cluster_client import Cluster as AskedCluster
from pessoa.client.config_admin import Change, ResourceType, alter_configs
from pessoa.client.group_admin import at_coordinator
from pessoa.client.share_group_admin import describe_share_group, share_offsets
from pessoa.client.streams_group_admin import describe_streams_group
from pessoa.testing import Broker, Cluster
from pessoa.wire.api.share_group_heartbeat import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse
from pessoa.wire.errors import ErrorCode
from tests.cluster.conftest import create_topic
from tests.cluster.test_share_partitions import playing
from tests.differential import share_script, streams_script
from tests.differential.session_stage import Player
from tests.support.admin_script import SET, alter, create, feature, topic
from tests.support.clients import until
from tests.tools.streams_member import streams_member
from tests.unit.coordinator.groups.streams_client import subtopology, topology

SETTINGS = {
    "group.streams.initial.rebalance.delay.ms": "0",
    "group.streams.assignment.interval.ms": "0",
    "group.share.assignment.interval.ms": "0",
    "share.coordinator.state.topic.num.partitions": "1",
    "offsets.topic.num.partitions": "1",
}
GROUP_TOPIC = "__consumer_offsets"
TOPOLOGY = topology(subtopology("0", "t"))


@pytest.fixture(scope="module")
def player() -> Iterator[Player]:
    with Broker(SETTINGS) as broker, playing(broker) as player:
        player.look(create(topic("t", 2, 1)))
        player.wait_until_applied()
        yield player


def test_streams_groups_are_switched_off_and_on_again_and_lose_nothing(player: Player) -> None:
    streams_script.wait_for_coordinator(player, "app")
    joined = player.look(streams_script.heartbeat("app", "m", 0, TOPOLOGY))
    assert joined.error_code == ErrorCode.NONE
    player.look(feature("streams.version", 0, upgrade_type=2))
    player.wait_until_applied()
    assert player.look(streams_script.heartbeat("app", "m", joined.member_epoch)).error_code == 35
    assert player.look(streams_script.described("app")).groups[0].error_code == 35
    player.look(feature("streams.version", 1))
    player.wait_until_applied()
    beat = player.look(streams_script.heartbeat("app", "m", joined.member_epoch))
    assert (beat.error_code, beat.member_id) == (ErrorCode.NONE, "m")


def test_configs_of_a_group_hold_from_its_next_heartbeat_on(player: Player) -> None:
    streams_script.wait_for_coordinator(player, "configured")
    member = player.look(streams_script.heartbeat("configured", "m", 0, TOPOLOGY))
    sharer = player.look(share_script.heartbeat("shared", "m", 0, "t"))
    assert (member.heartbeat_interval_ms, sharer.heartbeat_interval_ms) == (5_000, 5_000)
    for group, key in (("configured", "streams.heartbeat.interval.ms"), ("shared", "share.heartbeat.interval.ms")):
        changed = player.look(alter(share_script.GROUP_CONFIG, group, (key, SET, "7000")))
        assert changed.responses[0].error_code == ErrorCode.NONE
        refused = player.look(alter(share_script.GROUP_CONFIG, group, (key, SET, "1")))
        assert refused.responses[0].error_code == ErrorCode.INVALID_CONFIG
    player.wait_until_applied()
    member = player.look(streams_script.heartbeat("configured", "m", member.member_epoch))
    sharer = player.look(share_script.heartbeat("shared", "m", sharer.member_epoch))
    assert (member.heartbeat_interval_ms, sharer.heartbeat_interval_ms) == (7_000, 7_000)


def test_a_streams_group_that_is_full_refuses_new_members_until_one_leaves() -> None:
    with Broker({**SETTINGS, "group.streams.max.size": "2"}) as broker, playing(broker) as player:
        player.look(create(topic("t", 2, 1)))
        player.wait_until_applied()
        streams_script.wait_for_coordinator(player, "full")

        def join(member: str, group: str = "full") -> int:
            return int(player.look(streams_script.heartbeat(group, member, 0, TOPOLOGY)).error_code)

        assert [join("a"), join("b"), join("c")] == [0, 0, ErrorCode.GROUP_MAX_SIZE_REACHED]
        # A member that comes again is none more, though Apache Kafka refuses it as well.
        assert join("b") == ErrorCode.NONE
        members = player.look(streams_script.described("full")).groups[0].members
        assert {one.member_id for one in members} == {"a", "b"}
        # Other groups have room of their own.
        streams_script.wait_for_coordinator(player, "other")
        assert join("c", "other") == ErrorCode.NONE
        assert player.look(streams_script.heartbeat("full", "a", -1)).error_code == ErrorCode.NONE
        assert join("c") == ErrorCode.NONE


def test_share_and_streams_groups_are_the_same_when_their_coordinator_was_killed() -> None:
    with Cluster(3, SETTINGS) as cluster:
        create_topic(cluster, "t", partitions=2)
        with AskedCluster(cluster.bootstrap_servers) as asked:
            alter_configs(asked, (ResourceType.GROUP, "shared"), [Change("share.auto.offset.reset", "earliest")])
        streams_member(cluster.bootstrap_servers, "join", "app", "t")
        epoch = share(cluster, "shared")
        before = described(cluster)
        killed = cluster.leader_of(GROUP_TOPIC, 0)
        cluster.kill(killed)
        until(lambda: cluster.leader_of(GROUP_TOPIC, 0), lambda leader: leader != killed, "another coordinator")
        until(lambda: described(cluster), lambda after: after == before, "the groups at their new coordinator")
        # Its member goes on where it was.
        assert beat(cluster, "shared", epoch).member_epoch == epoch


def share(cluster: Cluster, group: str) -> int:
    """Join a share group; return the member epoch at which the member has its partitions."""
    epoch = 0

    def joins() -> bool:
        nonlocal epoch
        answer = beat(cluster, group, epoch)
        epoch = answer.member_epoch
        return answer.assignment is not None and bool(answer.assignment.topic_partitions)

    until(joins, bool, "the partitions of the share group's member")
    return epoch


def beat(cluster: Cluster, group: str, epoch: int) -> ShareGroupHeartbeatResponse:
    request = ShareGroupHeartbeatRequest(
        group_id=group, member_id="m", member_epoch=epoch, subscribed_topic_names=["t"]
    )
    with AskedCluster(cluster.bootstrap_servers) as asked:

        def attempt(node: int) -> ShareGroupHeartbeatResponse:
            answer = asked.ask(request, ShareGroupHeartbeatResponse, node=node, name="heartbeat")
            if answer.error_code:
                raise RequestFailed(answer.error_code, answer.error_message)
            return answer

        return at_coordinator(asked, group, attempt)


def described(cluster: Cluster) -> tuple[object, ...]:
    """Return the descriptions of both groups, without the address of the coordinator."""
    with AskedCluster(cluster.bootstrap_servers) as asked:
        return (
            describe_streams_group(asked, "app")._replace(coordinator=None),  # type: ignore[arg-type]
            describe_share_group(asked, "shared")._replace(coordinator=None),  # type: ignore[arg-type]
            sorted(share_offsets(asked, "shared")),
        )
