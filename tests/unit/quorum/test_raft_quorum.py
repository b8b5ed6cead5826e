"""A quorum of several nodes commits records, elects a new leader, and delivers the same records on every node."""

from __future__ import annotations

import asyncio
from functools import partial

import pytest

from pessoa.log.files import DiskError
from pessoa.log.simulated_disk import SimulatedDisk
from pessoa.quorum.quorum_settings import LeaderAndEpoch
from pessoa.quorum.state_file import CorruptQuorumState
from pessoa.quorum.translation import Introduction, request_of
from pessoa.quorum.uncommitted_appends import NotLeader, QuorumFailed
from pessoa.raft.messages import Fetch, ReplicaKey
from pessoa.wire.api import vote
from pessoa.wire.api.describe_quorum import DescribeQuorumRequest, DescribeQuorumResponse, PartitionData, TopicData
from pessoa.wire.api.fetch import FetchResponse
from pessoa.wire.api.vote import VoteRequest, VoteResponse
from pessoa.wire.errors import ErrorCode
from pessoa.wire.schema import Message
from pessoa.wire.stored.metadata_records import NoOpRecord
from tests.support.quorums import CLUSTER_ID, Node, Quorums, ask_quorum, topic, topics
from tests.support.virtual_time import run

STATE_FILE = "/meta/__cluster_metadata-0/quorum-state"


def alone(disk: SimulatedDisk | None = None) -> Node:
    nodes = Quorums(1)
    if disk is not None:
        nodes.by_id[1].disk = disk
    return nodes.by_id[1]


# One voter.


def test_a_single_voter_leads_and_has_published_all_batches_when_it_has_started() -> None:
    async def body() -> None:
        node = alone()
        quorum = await node.start()
        assert node.leaders[-1] == (1, 1)
        assert quorum.log_end_offset == 1, "the LeaderChange record comes first"
        assert await quorum.append([topic("a"), topic("bb")]) == 2
        assert [(batch.last_offset, batch.epoch, len(batch.records)) for batch in node.seen] == [(0, 1, 0), (2, 1, 2)]
        assert quorum.high_watermark == 3
        await node.stop()

    run(body)


def test_listeners_are_called_for_a_batch_before_its_append_returns() -> None:
    async def body() -> None:
        node = alone()
        quorum = await node.start()
        await quorum.append([topic("a")])
        assert topics(node) == ["a"]
        await node.stop()

    run(body)


def test_a_fetch_is_answered_at_once_with_records_committed_before_it_begins_to_wait() -> None:
    """A wake-up of the waiting fetches may come between the look for records and the start of the waiting."""

    async def body() -> None:
        node = alone()
        quorum = await node.start()
        broker = ReplicaKey(2)
        wanted = Fetch(quorum.epoch, broker, quorum.log_end_offset, quorum.epoch, quorum.high_watermark)
        answer = ask_quorum(quorum, request_of(wanted, Introduction(CLUSTER_ID, {}, 1 << 20, 500)), 18)
        assert not isinstance(answer, Message), "there is nothing to fetch"
        await quorum.append([topic("a")])
        loop = asyncio.get_running_loop()
        began = loop.time()
        response = await answer
        assert loop.time() == began
        assert isinstance(response, FetchResponse)
        assert response.responses[0].partitions[0].records
        await node.stop()

    run(body)


def test_many_writers_share_few_syncs_and_keep_their_order() -> None:
    async def body() -> None:
        node = alone()
        quorum = await node.start()
        futures = [quorum.append([topic("x" * length)]) for length in range(1, 51)]
        assert await asyncio.gather(*futures) == list(range(1, 51))
        assert topics(node) == ["x" * length for length in range(1, 51)]
        assert quorum._sync.flusher.flush_count <= 2
        await node.stop()

    run(body)


def test_a_restart_begins_a_new_epoch_and_replays_everything() -> None:
    async def body() -> None:
        node = alone()
        quorum = await node.start()
        await quorum.append([topic("a")])
        await node.stop()
        quorum = await node.start()
        assert [(batch.last_offset, batch.epoch) for batch in node.seen] == [(0, 1), (1, 1), (2, quorum.epoch)]
        assert quorum.epoch > 1
        assert topics(node) == ["a"]
        await node.stop()

    run(body)


def test_committed_batches_survive_a_power_loss_that_tears_unsynced_ones() -> None:
    async def body() -> None:
        for seed in range(30):
            node = alone(SimulatedDisk(seed))
            quorum = await node.start()
            await quorum.append([topic("a"), topic("bb")])
            quorum.append([topic("ccc"), topic("dddd")])
            node.kill()
            revived = alone(node.disk)
            await revived.start()
            whole = (["a", "bb"], ["a", "bb", "ccc", "dddd"])
            assert topics(revived) in whole, "a batch is there whole or not at all"
            await revived.stop()

    run(body)


def test_the_epoch_is_in_the_quorum_state_file_before_it_is_in_the_log() -> None:
    async def body() -> None:
        node = alone()
        await node.start()
        assert b'"leaderEpoch":1' in node.disk.read_file(STATE_FILE)
        await node.stop()
        # The log is lost, and with it the epoch it was in; the file alone still forbids to use that epoch again.
        node.disk.remove_tree("/meta/__cluster_metadata-0", missing_ok=True)
        node.disk.make_directory("/meta/__cluster_metadata-0")
        node.disk.write_file(
            STATE_FILE,
            b'{"clusterId":"","leaderId":1,"leaderEpoch":7,"votedId":-1,"appliedOffset":0,"currentVoters":[],"data_version":0}',
        )
        assert (await node.start()).epoch > 7
        await node.stop()

    run(body)


def test_a_damaged_quorum_state_stops_the_start() -> None:
    async def body() -> None:
        node = alone()
        await node.start()
        await node.stop()
        node.disk.write_file(STATE_FILE, b'{"leaderId":1')
        with pytest.raises(CorruptQuorumState, match="quorum-state"):
            await node.start()

    run(body)


def test_a_failed_sync_fails_waiting_and_later_appends() -> None:
    async def body() -> None:
        node = alone()
        quorum = await node.start()
        failures: list[BaseException] = []
        quorum.on_failure = failures.append
        node.disk.fail("sync")
        with pytest.raises(QuorumFailed):
            await quorum.append([topic("a")])
        with pytest.raises(QuorumFailed):
            quorum.append([topic("b")])
        assert topics(node) == []
        (failure,) = failures
        assert isinstance(failure.__cause__, DiskError)

    run(body)


def pre_vote() -> VoteRequest:
    part = vote.PartitionData(
        partition_index=0, replica_epoch=1, replica_id=3, last_offset_epoch=1, last_offset=1, pre_vote=True
    )
    topics = [vote.TopicData(topic_name="__cluster_metadata", partitions=[part])]
    return VoteRequest(cluster_id=None, voter_id=2, topics=topics)


def test_an_assertion_error_in_a_timer_or_a_request_ends_the_quorum(monkeypatch: pytest.MonkeyPatch) -> None:
    def impossible(*_: object) -> None:
        raise AssertionError("two leaders")

    async def body() -> None:
        failures: list[BaseException] = []
        async with Quorums(3) as nodes:
            first, second, _ = nodes.by_id.values()
            for node in (first, second):
                node.quorum.on_failure = failures.append
            monkeypatch.setattr(first.quorum.raft, "tick", impossible)
            monkeypatch.setattr(second.quorum.raft, "vote", impossible)
            with pytest.raises(AssertionError, match="two leaders"):
                ask_quorum(second.quorum, pre_vote(), 2)
            await nodes.wait_until(lambda: len(failures) == 2)
            assert [str(one) for one in failures] == ["two leaders", "two leaders"]
            for node in (first, second):
                node.kill()

    run(body)


def test_an_empty_append_raises_an_error() -> None:
    async def body() -> None:
        node = alone()
        quorum = await node.start()
        with pytest.raises(AssertionError):
            quorum.append([])
        await quorum.append([(NoOpRecord(), 0)])
        await node.stop()

    run(body)


# Several.


def test_three_nodes_elect_a_leader_and_all_apply_its_commits() -> None:
    async def body() -> None:
        async with Quorums(3) as nodes:
            leader = await nodes.leader()
            await leader.quorum.append([topic("a")])
            await leader.quorum.append([topic("bb")])
            await nodes.wait_for_all("a", "bb")
            logs = {node.quorum.log.read(0, 1 << 20).tobytes() for node in nodes.by_id.values()}
            assert len(logs) == 1, "the logs are byte for byte the same"

    run(body)


def test_only_the_leader_accepts_appends() -> None:
    async def body() -> None:
        async with Quorums(3) as nodes:
            leader = await nodes.leader()
            for node in nodes.by_id.values():
                if node is not leader:
                    with pytest.raises(NotLeader):
                        node.quorum.append([topic("a")])

    run(body)


def test_when_the_leader_dies_the_next_leader_has_all_committed_records() -> None:
    async def body() -> None:
        async with Quorums(3) as nodes:
            first = await nodes.leader()
            await first.quorum.append([topic("a")])
            first.kill()
            second = await nodes.leader()
            assert second is not first
            assert second.quorum.epoch > first.quorum.epoch
            await second.quorum.append([topic("bb")])
            await nodes.wait_for_all("a", "bb")
            await first.start()
            await nodes.wait_for_all("a", "bb")

    run(body)


def test_a_leader_is_notified_of_its_leadership_after_it_has_applied_all_earlier_records() -> None:
    async def body() -> None:
        async with Quorums(3) as nodes:
            first = await nodes.leader()
            await first.quorum.append([topic("a")])
            known: list[list[str]] = []

            def note(node: Node, told: LeaderAndEpoch) -> None:
                if told.leader_id == node.id:
                    known.append(topics(node))

            for node in nodes.by_id.values():
                node.quorum.on_leadership.append(partial(note, node))
            first.kill()
            await nodes.leader()
            assert known == [["a"]]

    run(body)


def test_appends_that_wait_for_a_commit_fail_when_leadership_is_lost() -> None:
    async def body() -> None:
        async with Quorums(3) as nodes:
            leader = await nodes.leader()
            nodes.cut = {frozenset((leader.id, other)) for other in nodes.by_id if other != leader.id}
            waiting = leader.quorum.append([topic("never")])
            with pytest.raises(NotLeader):
                await waiting
            nodes.cut = set()
            successor = await nodes.leader()
            await successor.quorum.append([topic("later")])
            await nodes.wait_until(lambda: all(topics(one)[-1:] == ["later"] for one in nodes.by_id.values()))
            assert len({tuple(topics(one)) for one in nodes.by_id.values()}) == 1

    run(body)


def test_a_node_that_was_isolated_changes_neither_leader_nor_epoch_when_it_is_back() -> None:
    async def body() -> None:
        async with Quorums(3) as nodes:
            leader = await nodes.leader()
            epoch = leader.quorum.epoch
            away = next(one for one in nodes.by_id.values() if one is not leader)
            await nodes.wait_until(lambda: away.quorum.leader_id == leader.id)
            nodes.cut = {frozenset((away.id, other)) for other in nodes.by_id if other != away.id}
            for number in range(20):
                await leader.quorum.append([topic("x" * (number + 1))])
                await asyncio.sleep(0.5)
            nodes.cut = set()
            await nodes.wait_until(lambda: len(topics(away)) == 20)
            assert (leader.quorum.is_leader, leader.quorum.epoch) == (True, epoch)

    run(body)


def test_a_leader_that_shuts_down_cleanly_hands_over_at_once() -> None:
    async def body() -> None:
        async with Quorums(3) as nodes:
            first = await nodes.leader()
            await first.quorum.append([topic("a")])
            loop = asyncio.get_running_loop()
            began = loop.time()
            await first.stop()
            await nodes.leader()
            assert loop.time() - began < 0.1, "no voter waited for the fetch timeout"

    run(body)


def test_an_observer_follows_the_log_and_does_not_count_for_the_majority() -> None:
    async def body() -> None:
        async with Quorums(1, observers=2) as nodes:
            leader = await nodes.leader()
            await leader.quorum.append([topic("a")])
            await nodes.wait_for_all("a")
            nodes.by_id[2].kill()
            await leader.quorum.append([topic("bb")])
            await nodes.wait_for_all("a", "bb")
            assert leader.quorum.voters == (1,)
            assert nodes.by_id[3].quorum.endpoint_of(1) == ("localhost", 9001)

    run(body)


def test_a_minority_commits_nothing() -> None:
    async def body() -> None:
        async with Quorums(3) as nodes:
            leader = await nodes.leader()
            for node in nodes.by_id.values():
                if node is not leader:
                    node.kill()
            with pytest.raises(NotLeader):
                await leader.quorum.append([topic("a")])
            assert topics(leader) == []

    run(body)


# What tools and strangers ask.


def describe() -> DescribeQuorumRequest:
    return DescribeQuorumRequest(
        topics=[TopicData(topic_name="__cluster_metadata", partitions=[PartitionData(partition_index=0)])]
    )


def test_the_leader_describes_the_log_end_offset_of_every_voter_and_observer() -> None:
    async def body() -> None:
        async with Quorums(3, observers=1) as nodes:
            leader = await nodes.leader()
            await leader.quorum.append([topic("a")])
            await nodes.wait_for_all("a")

            def described() -> DescribeQuorumResponse:
                response = ask_quorum(leader.quorum, describe(), 2)
                assert isinstance(response, DescribeQuorumResponse)
                return response

            end = leader.quorum.log_end_offset
            await nodes.wait_until(
                lambda: all(
                    one.log_end_offset == end
                    for part in (described().topics[0].partitions[0],)
                    for one in [*part.current_voters, *part.observers]
                )
            )
            partition = described().topics[0].partitions[0]
            assert (partition.leader_id, partition.high_watermark) == (leader.id, end)
            assert [one.replica_id for one in partition.current_voters] == [1, 2, 3]
            assert [one.replica_id for one in partition.observers] == [4]
            assert all(one.last_caught_up_timestamp > 0 for one in partition.current_voters)
            assert [node.listeners[0].port for node in described().nodes] == [9001, 9002, 9003]

    run(body)


def test_a_follower_does_not_describe_the_quorum() -> None:
    async def body() -> None:
        async with Quorums(3) as nodes:
            leader = await nodes.leader()
            other = next(one for one in nodes.by_id.values() if one is not leader)
            response = ask_quorum(other.quorum, describe(), 2)
            assert isinstance(response, DescribeQuorumResponse)
            assert response.topics[0].partitions[0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER

    run(body)


def test_a_raft_request_with_another_cluster_id_is_refused() -> None:
    async def body() -> None:
        node = alone()
        await node.start()
        response = ask_quorum(node.quorum, VoteRequest(cluster_id="another", voter_id=1, topics=[]), 2)
        assert isinstance(response, VoteResponse)
        assert response.error_code == ErrorCode.INCONSISTENT_CLUSTER_ID
        await node.stop()

    run(body)
