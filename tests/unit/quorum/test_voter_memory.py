"""A voter whose disk has lost records does not vote until it has fetched them again."""

from __future__ import annotations

import pytest

from pessoa.base.ids import Uuid
from pessoa.log.simulated_disk import SimulatedDisk
from pessoa.quorum.durable_offset_file import DurableOffsetFile
from pessoa.quorum.metadata_log import CorruptMetadataLog, MetadataLog
from pessoa.quorum.quorum_settings import DEFAULT_SETTINGS
from pessoa.raft.memory import Memory
from pessoa.raft.voters import VoterSet
from tests.support.quorums import Node, Quorums, topic, topics
from tests.support.virtual_time import run

DIRECTORY = "/meta/__cluster_metadata-0"
LOG = f"{DIRECTORY}/00000000000000000000.log"


def rot(node: Node) -> None:
    """Flip a bit of the first batch, long after it was synced."""
    node.disk.flip_bit(LOG, 70)


async def two_that_agree_and_one_that_lags(nodes: Quorums) -> tuple[Node, Node, Node]:
    """Return the leader, a follower with the same log, and a follower without the last record."""
    leader = await nodes.leader()
    other, late = (one for one in nodes.by_id.values() if one is not leader)
    await leader.quorum.append([topic("a")])
    await nodes.wait_for_all("a")
    late.kill()
    await leader.quorum.append([topic("bb")])
    await nodes.wait_until(lambda: topics(other) == ["a", "bb"])
    return leader, other, late


def test_a_voter_with_a_damaged_log_fetches_it_again_before_it_votes() -> None:
    async def body() -> None:
        async with Quorums(3) as nodes:
            leader = await nodes.leader()
            for name in ("a", "bb"):
                await leader.quorum.append([topic(name)])
            await nodes.wait_for_all("a", "bb")
            victim = next(one for one in nodes.by_id.values() if one is not leader)
            await victim.stop()
            rot(victim)
            await victim.start()
            assert victim.quorum.raft.memory is Memory.DAMAGED
            await nodes.wait_for_all("a", "bb")
            await nodes.wait_until(lambda: victim.quorum.raft.memory is Memory.WHOLE)
            leader.kill()
            assert topics(await nodes.leader()) == ["a", "bb"]

    run(body)


@pytest.mark.parametrize("damage", ["rot", "another disk"])
def test_a_voter_that_has_lost_its_log_does_not_elect_a_candidate_without_the_committed_records(damage: str) -> None:
    async def body() -> None:
        async with Quorums(3) as nodes:
            leader, other, late = await two_that_agree_and_one_that_lags(nodes)
            await other.stop()
            if damage == "rot":
                rot(other)
            else:
                other.disk, other.directory_id = SimulatedDisk(99), Uuid.of(999)
            leader.kill()
            await other.start()
            await late.start()
            assert other.quorum.raft.memory is (Memory.DAMAGED if damage == "rot" else Memory.NEW)
            # They are two of three, and one of them would lose what was acknowledged.
            await late.quorum.wait_ms(30_000)
            assert nodes.leading is None
            await leader.start()
            await nodes.wait_for_all("a", "bb")
            await nodes.wait_until(lambda: other.quorum.raft.memory is Memory.WHOLE)

    run(body)


def test_a_single_voter_does_not_start_without_its_acknowledged_records() -> None:
    async def body() -> None:
        async with Quorums(1) as nodes:
            (node,) = nodes.by_id.values()
            await node.quorum.append([topic("a")])
            await node.stop()
            rot(node)
            with pytest.raises(CorruptMetadataLog, match=r"delete .*/pessoa\.durable-offset"):
                await node.start()
            node.disk.remove(f"{DIRECTORY}/pessoa.durable-offset")
            await node.start()
            assert node.quorum.is_leader
            node.is_up = True

    run(body)


def test_a_voter_with_a_damaged_log_still_knows_it_after_a_power_loss() -> None:
    async def body() -> None:
        async with Quorums(3) as nodes:
            leader, other, late = await two_that_agree_and_one_that_lags(nodes)
            await other.stop()
            rot(other)
            leader.kill()
            for _ in range(2):
                await other.start()
                assert other.quorum.raft.memory is Memory.DAMAGED
                other.kill()
            await late.start()
            await leader.start()
            await other.start()
            await nodes.wait_for_all("a", "bb")

    run(body)


def test_an_unsynced_end_of_the_metadata_log_may_be_truncated() -> None:
    async def body() -> None:
        async with Quorums(3) as nodes:
            leader = await nodes.leader()
            await leader.quorum.append([topic("a")])
            await nodes.wait_for_all("a")
            victim = next(one for one in nodes.by_id.values() if one is not leader)
            await victim.stop()
            file = victim.disk.open(LOG, pooled=False)
            file.append(b"a piece of a batch")
            file.close()
            await victim.start()
            assert victim.quorum.raft.memory is Memory.WHOLE

    run(body)


def test_truncating_a_metadata_log_lowers_its_durable_offset() -> None:
    disk = SimulatedDisk()
    disk.make_directory("/meta")
    log = MetadataLog(disk, DIRECTORY, DEFAULT_SETTINGS, VoterSet.of(1, 2, 3), 0)
    for name in ("a", "b", "c"):
        log.append([topic(name)], 1, 0)
    log.partition.flush()
    log.durable_offset_file.write_on_shutdown(3)
    log.truncate_to(1, 0)
    assert log.durable_offset_file.offset == 1
    disk.lose_power()
    assert not MetadataLog(disk, DIRECTORY, DEFAULT_SETTINGS, VoterSet.of(1, 2, 3), 0).has_forgotten


@pytest.mark.parametrize("content", [b"", b"12", b"x\n", b"-3\n"])
def test_a_durable_offset_file_that_cannot_be_read_counts_as_offset_0(content: bytes) -> None:
    disk = SimulatedDisk()
    disk.make_directory("/m")
    disk.write_file("/m/pessoa.durable-offset", content)
    assert DurableOffsetFile(disk, "/m").offset == 0


def test_a_damaged_snapshot_stops_the_start_with_an_error_message() -> None:
    async def body() -> None:
        async with Quorums(1, metadata_log_max_record_bytes_between_snapshots=1) as nodes:
            (node,) = nodes.by_id.values()
            await node.stop()
            name = f"{DIRECTORY}/00000000000000000000-0000000000.checkpoint"
            node.disk.write_file(name, b"\x00" * 100)
            with pytest.raises(CorruptMetadataLog, match="is damaged"):
                await node.start()

    run(body)
