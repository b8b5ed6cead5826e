"""Voters in the metadata log: they join, leave and change their addresses, one at a time (KIP-853)."""

from __future__ import annotations

import pytest

from pessoa.base.ids import Uuid
from pessoa.log.simulated_disk import SimulatedDisk
from pessoa.quorum.formatting import format_metadata
from pessoa.quorum.metadata_log import METADATA_DIRECTORY
from pessoa.quorum.snapshot_file import render_snapshot, write_snapshot
from pessoa.raft.memory import Memory
from pessoa.raft.messages import OffsetAndEpoch, ReplicaKey
from pessoa.raft.voters import Address, Voter, VoterHistory, VoterSet, parse_dynamic_voter
from pessoa.wire.api.add_raft_voter import AddRaftVoterRequest, AddRaftVoterResponse, Listener
from pessoa.wire.api.remove_raft_voter import RemoveRaftVoterRequest, RemoveRaftVoterResponse
from pessoa.wire.errors import ErrorCode
from pessoa.wire.schema import Message
from tests.support.quorums import CLUSTER_ID, PORT_BASE, Node, Quorums, ask_quorum, topic
from tests.support.virtual_time import run


def voter(node: Node) -> Voter:
    address = Address("localhost", PORT_BASE + node.id)
    return Voter(ReplicaKey(node.id, node.directory_id), {"CONTROLLER": address})


def format_alone(node: Node) -> None:
    """Format the directory as `kafka-storage format --standalone` does."""
    directory = f"/meta/{METADATA_DIRECTORY}"
    node.disk.make_directory(directory)
    beginning = OffsetAndEpoch(0, 0)
    pieces = render_snapshot(beginning, (), 0, 0, 1, VoterSet([voter(node)]))
    write_snapshot(node.disk, directory, beginning, pieces)


async def ask(node: Node, request: Message) -> tuple[ErrorCode, str | None]:
    answer = ask_quorum(node.quorum, request, max(type(request).versions))
    response = answer if isinstance(answer, Message) else await answer
    assert isinstance(response, AddRaftVoterResponse | RemoveRaftVoterResponse)
    return ErrorCode.of(response.error_code), response.error_message


def add_voter_request(node: Node, timeout_ms: int = 5_000) -> AddRaftVoterRequest:
    return AddRaftVoterRequest(
        cluster_id=CLUSTER_ID,
        timeout_ms=timeout_ms,
        voter_id=node.id,
        voter_directory_id=node.directory_id,
        listeners=[Listener(name="CONTROLLER", host="localhost", port=PORT_BASE + node.id)],
    )


def remove_voter_request(node: Node) -> RemoveRaftVoterRequest:
    return RemoveRaftVoterRequest(cluster_id=CLUSTER_ID, voter_id=node.id, voter_directory_id=node.directory_id)


def growing(nodes: int) -> Quorums:
    """Return a quorum with one voter, formatted with --standalone, and other nodes that know its address."""
    quorums = Quorums(0, nodes)
    format_alone(quorums.by_id[1])
    return quorums


def test_a_quorum_grows_from_one_to_three_and_survives_its_first_member() -> None:
    async def body() -> None:
        async with growing(3) as nodes:
            leader = await nodes.leader()
            assert leader.id == 1
            await leader.quorum.append([topic("a")])
            for node_id in (2, 3):
                assert await ask(leader, add_voter_request(nodes.by_id[node_id])) == (ErrorCode.NONE, None)
            assert leader.quorum.voters == (1, 2, 3)
            await nodes.wait_until(lambda: all(one.quorum.voters == (1, 2, 3) for one in nodes.by_id.values()))
            leader.kill()
            second = await nodes.leader()
            await second.quorum.append([topic("bb")])
            await leader.start()
            await nodes.wait_for_all("a", "bb")

    run(body)


def test_a_leader_that_removes_itself_steps_down_when_that_is_committed() -> None:
    async def body() -> None:
        async with growing(3) as nodes:
            leader = await nodes.leader()
            for node_id in (2, 3):
                await ask(leader, add_voter_request(nodes.by_id[node_id]))
            assert await ask(leader, remove_voter_request(leader)) == (ErrorCode.NONE, None)
            await nodes.wait_until(lambda: nodes.leading is not None and nodes.leading is not leader)
            successor = await nodes.leader()
            assert successor.quorum.voters == (2, 3)
            await successor.quorum.append([topic("a")])
            await nodes.wait_for_all("a")

    run(body)


def test_an_uncommitted_removal_that_only_the_removed_leader_has_does_not_prevent_a_new_leader() -> None:
    async def body() -> None:
        async with growing(2) as nodes:
            leader, other = await nodes.leader(), nodes.by_id[2]
            await ask(leader, add_voter_request(other))
            await nodes.wait_until(lambda: other.quorum.high_watermark == leader.quorum.log_end_offset)
            other.kill()
            error, _ = await ask(leader, remove_voter_request(leader))
            assert error in (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_LEADER_OR_FOLLOWER)
            assert leader.quorum.voters == (2,)
            await other.start()
            await nodes.wait_until(lambda: nodes.leading is other)
            assert other.quorum.voters == (2,)
            await other.quorum.append([topic("a")])
            await nodes.wait_for_all("a")

    run(body)


def test_a_voter_whose_log_has_lost_its_voter_record_does_not_vote() -> None:
    async def body() -> None:
        async with growing(3) as nodes:
            leader, other = await nodes.leader(), nodes.by_id[2]
            for node_id in (2, 3):
                await ask(leader, add_voter_request(nodes.by_id[node_id]))
            await nodes.wait_until(lambda: other.quorum.high_watermark == leader.quorum.log_end_offset)
            await other.stop()
            other.disk.flip_bit(f"/meta/{METADATA_DIRECTORY}/00000000000000000000.log", 70)
            await other.start()
            assert not other.quorum.raft.is_voter
            assert other.quorum.raft.memory is Memory.DAMAGED
            await nodes.wait_until(lambda: other.quorum.raft.is_voter and other.quorum.raft.memory is Memory.WHOLE)

    run(body)


def test_voter_changes_that_are_not_possible_are_refused_with_their_error() -> None:
    async def body() -> None:
        async with growing(2) as nodes:
            leader, other = await nodes.leader(), nodes.by_id[2]
            assert (await ask(leader, add_voter_request(leader)))[0] is ErrorCode.DUPLICATE_VOTER
            assert (await ask(leader, remove_voter_request(other)))[0] is ErrorCode.VOTER_NOT_FOUND
            assert (await ask(leader, remove_voter_request(leader)))[0] is ErrorCode.INVALID_REQUEST
            assert (await ask(other, add_voter_request(other)))[0] is ErrorCode.NOT_LEADER_OR_FOLLOWER
            other_cluster = add_voter_request(other)
            other_cluster.cluster_id = "another"
            assert (await ask(leader, other_cluster))[0] is ErrorCode.INCONSISTENT_CLUSTER_ID
            nowhere = add_voter_request(other)
            nowhere.listeners = []
            assert (await ask(leader, nowhere))[0] is ErrorCode.INVALID_REQUEST

    run(body)


def test_a_voter_that_does_not_catch_up_is_not_added() -> None:
    async def body() -> None:
        async with growing(2) as nodes:
            leader, other = await nodes.leader(), nodes.by_id[2]
            await leader.quorum.append([topic("a")])
            stranger = add_voter_request(other, timeout_ms=1_000)
            stranger.voter_directory_id = Uuid.of(99_999)
            error, message = await ask(leader, stranger)
            assert error is ErrorCode.REQUEST_TIMED_OUT
            assert message is not None
            assert "caught up" in message
            assert leader.quorum.voters == (1,)

    run(body)


def test_voters_of_a_static_quorum_cannot_be_changed() -> None:
    async def body() -> None:
        async with Quorums(1, observers=1) as nodes:
            leader = await nodes.leader()
            assert (await ask(leader, add_voter_request(nodes.by_id[2])))[0] is ErrorCode.UNSUPPORTED_VERSION

    run(body)


def test_voters_of_a_static_quorum_move_into_the_log_and_can_be_changed_from_then_on() -> None:
    async def body() -> None:
        async with Quorums(3, observers=1) as nodes:
            leader = await nodes.leader()
            await nodes.wait_until(lambda: leader.quorum.kraft_version_problem() is None)
            await leader.quorum.append_kraft_version(1)
            assert leader.quorum.raft.voters == VoterSet(voter(nodes.by_id[node_id]) for node_id in (1, 2, 3))
            assert leader.seen[-1].kraft_version == 1
            await nodes.wait_until(lambda: all(one.quorum.log.history.kraft_version for one in nodes.by_id.values()))
            assert await ask(leader, add_voter_request(nodes.by_id[4])) == (ErrorCode.NONE, None)
            await nodes.wait_until(lambda: nodes.by_id[4].quorum.raft.is_voter)
            # All of them remember it: the leader after the restart may be any of them.
            for node in nodes.by_id.values():
                node.kill()
            for node in nodes.by_id.values():
                await node.start()
            leader = await nodes.leader()
            assert leader.quorum.voters == (1, 2, 3, 4)

    run(body)


def test_kraft_version_waits_for_voters_whose_directory_id_is_unknown() -> None:
    async def body() -> None:
        async with Quorums(3) as nodes:
            leader = await nodes.leader()
            silent = next(one for one in nodes.by_id.values() if one is not leader)
            silent.kill()
            await leader.quorum.append([topic("a")])
            leader.kill()
            await leader.start()
            leader = await nodes.leader()
            problem = leader.quorum.kraft_version_problem()
            assert problem is not None
            assert f"[{silent.id}]" in problem
            await silent.start()
            await nodes.wait_until(lambda: leader.quorum.kraft_version_problem() is None)

    run(body)


def test_a_controller_joins_automatically_and_again_after_it_has_lost_its_disk() -> None:
    async def body() -> None:
        async with growing(3) as nodes:
            for node_id in (2, 3):
                node = nodes.by_id[node_id]
                await node.stop()
                node.joins = True
                await node.start()
            await nodes.wait_until(lambda: nodes.by_id[1].quorum.voters == (1, 2, 3))
            lost = nodes.by_id[3]
            await nodes.wait_until(lambda: lost.quorum.voters == (1, 2, 3))
            lost.kill()
            lost.disk, lost.directory_id = SimulatedDisk(33), Uuid.of(777)
            await lost.start()
            assert not lost.quorum.raft.is_voter
            await nodes.wait_until(
                lambda: nodes.by_id[1].quorum.raft.voters.has(ReplicaKey(3, Uuid.of(777))) and lost.quorum.raft.is_voter
            )

    run(body)


def test_a_voter_whose_address_has_changed_sends_update_raft_voter() -> None:
    async def body() -> None:
        async with growing(2) as nodes:
            leader, other = await nodes.leader(), nodes.by_id[2]
            elsewhere = add_voter_request(other)
            elsewhere.listeners.append(Listener(name="OLD", host="gone", port=1))
            await ask(leader, elsewhere)
            await nodes.wait_until(lambda: other.quorum.voters == (1, 2))
            await other.stop()
            other.joins = True
            await other.start()
            await nodes.wait_until(lambda: dict(leader.quorum.raft.voters.by_id[2].listeners) == voter(other).listeners)

    run(body)


def test_a_change_of_voters_that_was_never_committed_is_truncated_with_the_log() -> None:
    history = VoterHistory(VoterSet())
    history.restart(0, VoterSet.of(1), 1)
    history.add_voters(5, VoterSet.of(1, 2))
    assert (history.voters.ids, history.voters_offset) == ((1, 2), 5)
    assert history.voters_before(5) == VoterSet.of(1)
    history.truncate_to(5)
    assert (history.voters.ids, history.kraft_version) == ((1,), 1)


def test_a_voter_counts_as_leaving_while_the_change_that_removes_it_may_be_truncated() -> None:
    history, first = VoterHistory(VoterSet()), ReplicaKey(1)
    history.restart(0, VoterSet.of(1, 2), 1)
    assert not history.is_leaving(first, 0)
    history.add_voters(5, VoterSet.of(2))
    assert history.is_leaving(first, 5)
    assert not history.is_leaving(first, 6)
    assert not history.is_leaving(ReplicaKey(2), 5)
    history.add_voters(8, VoterSet.of(2, 3))
    assert not history.is_leaving(first, 0), "there would be no such change before that one was committed"


def test_a_node_that_is_formatted_standalone_is_the_first_voter() -> None:
    disk = SimulatedDisk()
    numbers = iter(range(1 << 100, 1 << 101))
    alone = VoterSet([Voter(ReplicaKey(7, Uuid.of(5)), {"CONTROLLER": Address("h", 9093)})])
    metas = format_metadata(disk, ["/a", "/b"], "/a", 7, lambda: Uuid.of(next(numbers)), 0, "c", initial_voters=alone)
    names = disk.list(f"/a/{METADATA_DIRECTORY}")
    assert names == ["00000000000000000000-0000000000.checkpoint"]
    assert metas["/a"].directory_id == Uuid.of(5)
    assert metas["/b"].directory_id == Uuid.of((1 << 100) + 1)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("127.0.0.1:9093:07R5amHmR32VDA6jHkGbTA", "No @ found"),
        ("one@h:9093:07R5amHmR32VDA6jHkGbTA", "node id"),
        ("1@h", "following hostname"),
        ("1@h:9093", "following port"),
        ("1@[::1:9093:07R5amHmR32VDA6jHkGbTA", "right bracket"),
        ("1@[::1]9093:07R5amHmR32VDA6jHkGbTA", "following hostname"),
        ("1@h:65536:07R5amHmR32VDA6jHkGbTA", "port"),
        ("1@h:9093:07R5", "directory ID"),
    ],
)
def test_an_invalid_initial_controller_is_refused_with_a_reason(text: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        parse_dynamic_voter(text, "C")


def test_an_initial_controller_may_have_a_host_name_or_an_ipv6_address() -> None:
    directory = Uuid.parse("07R5amHmR32VDA6jHkGbTA")
    assert parse_dynamic_voter(f"7@h:1:{directory}", "C") == Voter(ReplicaKey(7, directory), {"C": Address("h", 1)})
    assert parse_dynamic_voter(f"7@[::1]:1:{directory}", "C").address == Address("::1", 1)
