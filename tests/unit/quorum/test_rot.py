"""A bit flips in a batch of the metadata log, covered by a CRC or not: in the first batch, in one in the middle and in
the last, after a clean shutdown and after a kill.

A voter that starts with such a log detects the damage, or has the same log as before. So its vote requests and its
votes never claim records that it does not have, and it fetches all records from its leader again.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import pytest

from pessoa.log.simulated_disk import SimulatedDisk
from pessoa.quorum.metadata_log import CorruptMetadataLog, MetadataLog
from pessoa.quorum.quorum_settings import DEFAULT_SETTINGS
from pessoa.quorum.state_file import parse_quorum_state
from pessoa.quorum.voter_memory import memory_of
from pessoa.raft.memory import Memory
from pessoa.raft.messages import ReplicaKey
from pessoa.raft.voters import VoterSet
from pessoa.records.batch import ATTRIBUTES_POSITION, HEADER_SIZE, batches
from tests.support.quorums import Node, Quorums, topic, topics
from tests.support.virtual_time import run

DIRECTORY = "/meta/__cluster_metadata-0"
LOG = f"{DIRECTORY}/00000000000000000000.log"
STATE = f"{DIRECTORY}/quorum-state"
EPOCHS = f"{DIRECTORY}/leader-epoch-checkpoint"
EPOCH_POSITION = 12
NAMES = ["a", "bb", "ccc", "dddd"]


class Shape(NamedTuple):
    """The log end offset and last epoch that a voter sends in vote requests, and all bytes of its log."""

    end_offset: int
    last_epoch: int
    content: tuple[bytes, ...]


class DiskImage(NamedTuple):
    """The disk of a voter that was stopped or killed."""

    files: dict[str, bytes]
    shape: Shape
    positions: dict[str, int]


async def some_epochs(nodes: Quorums) -> Node:
    """Let several leaders append records, one after another; return a follower that has all of them."""
    for name in NAMES:
        leader = await nodes.leader()
        await leader.quorum.append([topic(name)])
        await nodes.wait_for_all(*NAMES[: NAMES.index(name) + 1])
        if name != NAMES[-1]:
            leader.quorum.resign(leader.quorum.epoch)
            await nodes.wait_until(lambda old=leader: nodes.leading not in (None, old))  # type: ignore[misc]
    # The file of the durable offset follows within a second.
    await leader.quorum.wait_ms(1_500)
    await leader.quorum.append([topic("eeeee")])
    await nodes.wait_for_all(*NAMES, "eeeee")
    return next(one for one in nodes.by_id.values() if one is not leader)


@cache
def disk_image(how: str) -> DiskImage:
    found: list[dict[str, bytes]] = []

    async def body() -> None:
        async with Quorums(3) as nodes:
            voter = await some_epochs(nodes)
            if how == "stopped":
                await voter.stop()
            else:
                voter.is_up = False
                voter.quorum.abandon()
                voter.disk.crash_process()
            found.append(voter.disk.contents())

    run(body)
    files = found[0]
    starts = [0]
    for batch in batches(files[LOG]):
        starts.append(starts[-1] + batch.size)
    positions = {"first": starts[0], "middle": starts[len(starts) // 2], "last": starts[-2]}
    whole = opened(disk_with(files))
    assert whole.damaged_from is None
    assert not whole.has_forgotten
    return DiskImage(files, shape_of(whole), positions)


def disk_with(files: dict[str, bytes]) -> SimulatedDisk:
    disk = SimulatedDisk()
    disk.make_directory("/meta")
    disk.make_directory(DIRECTORY)
    for path, content in files.items():
        disk.write_file(path, content)
    return disk


def epoch_in(disk: SimulatedDisk) -> int:
    return parse_quorum_state(disk.read_file(STATE))[0].leader_epoch


def opened(disk: SimulatedDisk, voters: tuple[int, ...] = (1, 2, 3)) -> MetadataLog:
    return MetadataLog(disk, DIRECTORY, DEFAULT_SETTINGS, VoterSet.of(*voters), 0, epoch_in(disk))


def memory_in(disk: SimulatedDisk, log: MetadataLog) -> Memory:
    return memory_of(log, ReplicaKey(1), epoch_in(disk), 0)


def shape_of(log: MetadataLog) -> Shape:
    content = tuple(bytes(batch.view) for one in log.partition.segments for _, batch in one.batches())
    return Shape(log.log_end_offset, log.last_epoch, content)


@pytest.mark.parametrize("how", ["stopped", "killed"])
@pytest.mark.parametrize("which", ["first", "middle", "last"])
def test_a_voter_detects_a_flipped_bit_in_its_log_or_has_the_same_log(how: str, which: str) -> None:
    files, whole, positions = disk_image(how)
    durable_offset = int(files[f"{DIRECTORY}/pessoa.durable-offset"])
    for byte in (*range(ATTRIBUTES_POSITION), ATTRIBUTES_POSITION, HEADER_SIZE):
        # The lowest byte of an offset and of an epoch is where the next ones are.
        for bit in range(8) if byte in (7, EPOCH_POSITION + 3) else (byte % 7, 7):
            disk = disk_with(files)
            disk.flip_bit(LOG, positions[which] + byte, bit)
            log = opened(disk)
            memory, shape = memory_in(disk, log), shape_of(log)
            # Nothing that is left is damaged: what was truncated comes from the leader, behind what is left.
            assert shape.content == whole.content[: len(shape.content)], (byte, bit)
            # What was written within a second before a kill may be truncated without notice, like a torn tail.
            is_noticeable = how == "stopped" or whole.end_offset <= durable_offset or which != "last"
            if is_noticeable:
                assert memory is Memory.DAMAGED, (byte, bit)
                again = opened(disk)
                assert memory_in(disk, again) is Memory.DAMAGED, f"forgotten with the next start: {(byte, bit)}"


def test_a_batch_with_an_epoch_above_the_persisted_epoch_is_detected_as_damage() -> None:
    files, _, positions = disk_image("killed")
    for bit in range(3, 31):
        disk = disk_with(files)
        disk.flip_bit(LOG, positions["last"] + EPOCH_POSITION + 3 - bit // 8, bit % 8)
        log = opened(disk)
        assert memory_in(disk, log) is Memory.DAMAGED
        assert log.last_epoch <= epoch_in(disk)


@pytest.mark.parametrize("digit", range(1, 10))
def test_an_epoch_in_the_quorum_state_below_that_of_the_log_is_detected_as_damage(digit: int) -> None:
    files, whole, _ = disk_image("stopped")
    epoch = epoch_in(disk_with(files))
    state = files[STATE].replace(b'"leaderEpoch":%d' % epoch, b'"leaderEpoch":%d' % digit)
    disk = disk_with(files | {STATE: state})
    log = opened(disk)
    assert memory_in(disk, log) is (Memory.DAMAGED if digit < whole.last_epoch else Memory.WHOLE)
    assert log.last_epoch <= max(digit, whole.last_epoch - 1) or log.last_epoch == whole.last_epoch <= digit


@pytest.mark.parametrize("position", [EPOCH_POSITION + 3, 7])
def test_a_single_voter_keeps_a_batch_with_a_changed_epoch_and_refuses_to_start_with_a_changed_offset(
    position: int,
) -> None:
    """Another epoch harms no node; with another offset every follower would have another record there."""
    files, whole, positions = disk_image("stopped")
    disk = disk_with(files)
    disk.flip_bit(LOG, positions["last"] + position, 6)
    log = opened(disk, voters=(1,))
    if position == EPOCH_POSITION + 3:
        assert memory_in(disk, log) is Memory.WHOLE
        assert log.log_end_offset == whole.end_offset
    else:
        with pytest.raises(CorruptMetadataLog, match="Restore the directory from a copy"):
            memory_in(disk, log)
        # Its records are all there.
        assert len(disk.read_file(LOG)) == len(files[LOG])


@pytest.mark.parametrize(("byte", "bit"), [(7, 6), (7, 0), (11, 3), (HEADER_SIZE, 0)])
@pytest.mark.parametrize("which", ["first", "middle"])
def test_a_single_voter_that_refuses_to_start_has_changed_no_byte_of_its_log(which: str, byte: int, bit: int) -> None:
    """What stands behind a displaced or damaged batch may be all there is to repair the log with."""
    files, _, positions = disk_image("stopped")
    disk = disk_with(files)
    disk.flip_bit(LOG, positions[which] + byte, bit)
    damaged = disk.read_file(LOG)
    for _ in range(2):
        with pytest.raises(CorruptMetadataLog, match=r"Restore .* kept as 0{20}\.log\.damaged"):
            memory_in(disk, opened(disk, voters=(1,)))
        assert disk.read_file(f"{LOG}.damaged") == damaged


def test_a_voter_that_can_fetch_again_keeps_no_copy_of_its_damaged_segment() -> None:
    files, _, positions = disk_image("stopped")
    disk = disk_with(files)
    disk.flip_bit(LOG, positions["middle"] + HEADER_SIZE, 0)
    assert memory_in(disk, opened(disk)) is Memory.DAMAGED
    assert not disk.exists(f"{LOG}.damaged")


def test_a_single_voter_does_not_continue_in_an_epoch_that_no_follower_would_accept() -> None:
    files, _, positions = disk_image("stopped")
    disk = disk_with(files)
    disk.flip_bit(LOG, positions["last"] + EPOCH_POSITION, 6)
    log = opened(disk, voters=(1,))
    with pytest.raises(CorruptMetadataLog, match="Restore the directory from a copy"):
        memory_in(disk, log)


def test_a_damaged_or_missing_epoch_checkpoint_does_not_count_as_damage_of_the_log() -> None:
    files, whole, _ = disk_image("stopped")
    for content in (b"", b"0\n", b"0\n1\n1", b"\x00" * 20, None):
        damaged = {path: one for path, one in files.items() if path != EPOCHS}
        if content is not None:
            damaged[EPOCHS] = content
        disk = disk_with(damaged)
        log = opened(disk)
        assert memory_in(disk, log) is Memory.WHOLE
        assert shape_of(log) == whole


# Where in the header, and which bit: offset up and down, length, epoch far up, a little up, down and below zero, magic.
DAMAGES = [(7, 0), (6, 3), (11, 2), (12, 6), (15, 5), (15, 0), (12, 7), (16, 1), (20, 0)]


@pytest.mark.parametrize(
    ("which", "byte", "bit"), [*(("last", *one) for one in DAMAGES), ("middle", 7, 0), ("middle", 15, 5)]
)
def test_a_voter_with_a_shorter_log_is_not_elected_by_one_whose_log_is_damaged_and_all_logs_become_equal(
    which: str, byte: int, bit: int
) -> None:
    """Two have a record that the third has never seen. Of the two one is away, and the log of the other is damaged."""

    async def body() -> None:
        async with Quorums(3) as nodes:
            leader = await nodes.leader()
            other, late = (one for one in nodes.by_id.values() if one is not leader)
            for name in NAMES:
                await leader.quorum.append([topic(name)])
            await nodes.wait_for_all(*NAMES)
            late.kill()
            await leader.quorum.append([topic("eeeee")])
            await nodes.wait_until(lambda: topics(other) == [*NAMES, "eeeee"])
            await other.stop()
            starts = [0]
            for batch in batches(other.disk.read_file(LOG)):
                starts.append(starts[-1] + batch.size)
            position = starts[len(starts) // 2] if which == "middle" else starts[-2]
            other.disk.flip_bit(LOG, position + byte, bit)
            leader.kill()
            await other.start()
            await late.start()
            await late.quorum.wait_ms(6_000)
            assert nodes.leading is None
            await leader.start()
            await nodes.wait_for_all(*NAMES, "eeeee")
            await nodes.wait_until(lambda: other.quorum.raft.memory is Memory.WHOLE)
            await nodes.wait_until(lambda: len({one.disk.read_file(LOG) for one in nodes.by_id.values()}) == 1)

    run(body)
