"""A quorum of one keeps what it has acknowledged, in order, over restarts, crashes and losses of power."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from pessoa.base.clock import ManualClock
from pessoa.base.ids import Uuid
from pessoa.log.simulated_disk import SimulatedDisk
from pessoa.quorum.batches import CommittedBatch
from pessoa.quorum.single_voter import QuorumFailed, SingleVoterQuorum
from pessoa.quorum.state_file import CorruptQuorumState
from pessoa.wire.schema import Message
from pessoa.wire.stored.metadata_log import NoOpRecord, TopicRecord

STATE_FILE = "/meta/__cluster_metadata-0/quorum-state"


def started(disk: SimulatedDisk) -> tuple[SingleVoterQuorum, list[CommittedBatch]]:
    quorum = SingleVoterQuorum(disk, "/meta", 1, ManualClock(1_000))
    seen: list[CommittedBatch] = []
    quorum.listeners.append(seen.append)
    quorum.start()
    return quorum, seen


def topic(name: str) -> tuple[Message, int]:
    return TopicRecord(name=name, topic_id=Uuid.of(1000 + len(name))), 0


def run(body: Callable[[], Awaitable[None]]) -> None:
    async def main() -> None:
        await body()

    asyncio.run(main())


def names(batches: list[CommittedBatch]) -> list[str]:
    return [record.name for batch in batches for record in batch.records if isinstance(record, TopicRecord)]


def test_an_append_is_committed_at_the_offset_it_promises() -> None:
    async def body() -> None:
        quorum, seen = started(SimulatedDisk())
        assert quorum.log_end_offset == 1, "the LeaderChange record comes first"
        assert await quorum.append([topic("a"), topic("bb")]) == 2
        assert [(batch.last_offset, batch.epoch, len(batch.records)) for batch in seen] == [(0, 1, 0), (2, 1, 2)]
        assert quorum.high_watermark == 3

    run(body)


def test_listeners_have_seen_a_batch_before_its_writer_goes_on() -> None:
    async def body() -> None:
        quorum, seen = started(SimulatedDisk())
        await quorum.append([topic("a")])
        assert names(seen) == ["a"]

    run(body)


def test_many_writers_share_few_syncs_and_keep_their_order() -> None:
    async def body() -> None:
        quorum, seen = started(SimulatedDisk())
        futures = [quorum.append([topic("x" * length)]) for length in range(1, 51)]
        assert await asyncio.gather(*futures) == list(range(1, 51))
        assert names(seen) == ["x" * length for length in range(1, 51)]
        assert quorum._flusher.flush_count <= 2

    run(body)


def test_a_restart_begins_a_new_epoch_and_replays_everything() -> None:
    disk = SimulatedDisk()

    async def first() -> None:
        quorum, _ = started(disk)
        await quorum.append([topic("a")])
        await quorum.close()

    async def second() -> None:
        quorum, seen = started(disk)
        assert quorum.epoch == 2
        assert [(batch.last_offset, batch.epoch) for batch in seen] == [(0, 1), (1, 1), (2, 2)]
        assert names(seen) == ["a"]

    run(first)
    run(second)


def test_what_was_committed_survives_a_loss_of_power_whatever_the_disk_makes_of_the_rest() -> None:
    for seed in range(30):
        disk = SimulatedDisk(seed)

        async def first(disk: SimulatedDisk = disk) -> None:
            quorum, _ = started(disk)
            await quorum.append([topic("a"), topic("bb")])
            quorum.append([topic("ccc"), topic("dddd")]).cancel()

        async def second(disk: SimulatedDisk = disk) -> None:
            quorum, seen = started(disk)
            assert names(seen) in (["a", "bb"], ["a", "bb", "ccc", "dddd"]), "a batch is there whole or not at all"
            assert quorum.epoch == 2

        run(first)
        disk.lose_power()
        run(second)


def test_the_epoch_is_on_the_disk_before_the_log_speaks_of_it() -> None:
    disk = SimulatedDisk()
    started(disk)
    assert b'"leaderEpoch":1' in disk.read_file(STATE_FILE)
    # The log is lost, and with it the epoch it was in; the file alone still forbids to use that epoch again.
    disk.remove_tree("/meta/__cluster_metadata-0", missing_ok=True)
    disk.make_directory("/meta/__cluster_metadata-0")
    disk.write_file(
        STATE_FILE,
        b'{"clusterId":"","leaderId":1,"leaderEpoch":7,"votedId":-1,"appliedOffset":0,"currentVoters":[],"data_version":0}',
    )
    assert started(disk)[0].epoch == 8


def test_a_damaged_quorum_state_stops_the_start() -> None:
    disk = SimulatedDisk()
    started(disk)
    disk.write_file(STATE_FILE, b'{"leaderId":1')
    with pytest.raises(CorruptQuorumState, match="quorum-state"):
        started(disk)


def test_a_disk_that_cannot_sync_fails_what_waits_and_all_that_comes() -> None:
    async def body() -> None:
        disk = SimulatedDisk()
        quorum, seen = started(disk)
        failures: list[BaseException] = []
        quorum.on_failure = failures.append
        disk.fail("sync")
        with pytest.raises(QuorumFailed):
            await quorum.append([topic("a")])
        with pytest.raises(QuorumFailed):
            quorum.append([topic("b")])
        assert names(seen) == []
        assert len(failures) == 1

    run(body)


def test_an_empty_append_is_a_mistake() -> None:
    async def body() -> None:
        quorum, _ = started(SimulatedDisk())
        with pytest.raises(AssertionError):
            quorum.append([])
        await quorum.append([(NoOpRecord(), 0)])

    run(body)
