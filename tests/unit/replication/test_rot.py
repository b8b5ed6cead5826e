"""A bit flips in the header of a batch while its broker is down. The replica becomes equal to its leader again,
although the leader has appended meanwhile; a replica in the ISR keeps its records.
"""

from __future__ import annotations

from random import Random

import pytest

from pessoa.records.batch import MAGIC_POSITION
from pessoa.records.invalid_batch import InvalidBatch
from pessoa.wire.errors import ErrorCode
from tests.support.partition_logs import read_bytes
from tests.support.replication_stage import DIRECTORY, TOPIC, Node, Stage

SEED = 1
LOG = f"{DIRECTORY}/{TOPIC}-0/00000000000000000000.log"
BATCHES = 4
# Byte and bit: the length, the epoch far up and up, the magic, the CRC, and something that it covers.
DAMAGES = [(11, 3), (12, 6), (14, 0), (16, 0), (19, 4), (40, 1)]


def log_of(node: Node) -> bytes:
    assert node.partition is not None
    return read_bytes(node.partition.log)


def flip(node: Node, number: int, byte: int, bit: int) -> None:
    assert node.partition is None
    node.disk.flip_bit(LOG, number * (node.disk.size(LOG) // BATCHES) + byte, bit)


@pytest.mark.parametrize("number", [1, BATCHES - 1])
@pytest.mark.parametrize(("byte", "bit"), DAMAGES)
def test_a_follower_whose_disk_has_flipped_a_bit_becomes_equal_to_its_leader_again(
    number: int, byte: int, bit: int
) -> None:
    async def scene(stage: Stage) -> None:
        await stage.start()
        for _ in range(BATCHES):
            assert (await stage.produce(stage.nodes[1]))[0] == ErrorCode.NONE
        await stage.until(stage.is_quiet)
        stage.nodes[3].crash()
        stage.controller.fence(3)
        flip(stage.nodes[3], number, byte, bit)
        for _ in range(BATCHES):
            assert (await stage.produce(stage.nodes[1], 3))[0] == ErrorCode.NONE
        stage.nodes[3].start()
        await stage.until(stage.is_quiet)
        assert log_of(stage.nodes[3]) == log_of(stage.nodes[1])

    with Stage(Random(SEED)) as stage:
        stage.run(scene(stage))


def test_a_follower_fetches_a_synced_batch_again_whose_epoch_was_changed_also_below_later_batches() -> None:
    async def scene(stage: Stage) -> None:
        await stage.start()
        for number in range(BATCHES):
            assert (await stage.produce(stage.nodes[1]))[0] == ErrorCode.NONE
            await stage.until(stage.is_quiet)
            partition = stage.nodes[3].partition
            assert partition is not None
            if number == BATCHES - 2:
                partition.log.flush()
                partition.directory.write_checkpoints()
        stage.nodes[3].crash()
        stage.controller.fence(3)
        flip(stage.nodes[3], 1, 12, 6)
        stage.nodes[3].start()
        await stage.until(stage.is_quiet)
        assert log_of(stage.nodes[3]) == log_of(stage.nodes[1])

    with Stage(Random(SEED)) as stage:
        stage.run(scene(stage))


def test_a_replica_that_may_be_elected_keeps_records_of_impossible_epochs_and_another_truncates_them() -> None:
    async def scene(stage: Stage) -> None:
        await stage.start()
        for _ in range(BATCHES):
            assert (await stage.produce(stage.nodes[1]))[0] == ErrorCode.NONE
        await stage.until(stage.is_quiet)
        partition = stage.nodes[3].partition
        assert partition is not None
        partition.log.epochs.assign(1 << 20, 2)
        wanted = stage.controller.partition
        partition.follow(wanted._replace(isr=(1, 2, 3)))
        assert not partition.resolve_impossible_epochs(0)
        partition.follow(wanted._replace(isr=(1, 2), elr=(3,)))
        assert partition.resolve_impossible_epochs(0)
        # It asks in an epoch that its leader knows.
        assert partition.log.epochs.latest_epoch == partition.leader_epoch
        assert partition.log.log_end_offset == BATCHES
        partition.log.epochs.assign(1 << 20, 2)
        partition.follow(wanted._replace(isr=(1, 2)))
        assert partition.resolve_impossible_epochs(0)
        assert partition.log.log_end_offset == 2

    with Stage(Random(SEED)) as stage:
        stage.run(scene(stage))


def test_the_last_replica_keeps_and_serves_records_of_impossible_epochs() -> None:
    async def scene(stage: Stage) -> None:
        await stage.start()
        for _ in range(BATCHES):
            assert (await stage.produce(stage.nodes[1]))[0] == ErrorCode.NONE
        await stage.until(stage.is_quiet)
        for number in (2, 3):
            stage.nodes[number].crash()
            stage.controller.fence(number)
        assert (await stage.produce(stage.nodes[1]))[0] == ErrorCode.NONE
        whole = log_of(stage.nodes[1])
        stage.nodes[1].crash()
        stage.nodes[1].disk.flip_bit(LOG, len(whole) // (BATCHES + 1) * BATCHES + 13, 0)
        stage.nodes[1].start()
        await stage.until(lambda: stage.leader() is stage.nodes[1])
        assert len(log_of(stage.nodes[1])) == len(whole)
        assert (await stage.produce(stage.nodes[1]))[1] == BATCHES + 1

    with Stage(Random(SEED)) as stage:
        stage.run(scene(stage))


def test_a_damaged_follower_that_must_truncate_keeps_its_records_while_in_sync_and_fetches_them_again_later() -> None:
    """The header in front of where it should be truncated is damaged while it runs."""

    async def scene(stage: Stage) -> None:
        await stage.start()
        for _ in range(BATCHES):
            assert (await stage.produce(stage.nodes[1]))[0] == ErrorCode.NONE
        await stage.until(stage.is_quiet)
        partition = stage.nodes[3].partition
        assert partition is not None
        stage.nodes[3].disk.flip_bit(LOG, 1 * (stage.nodes[3].disk.size(LOG) // BATCHES) + MAGIC_POSITION, 3)
        wanted = stage.controller.partition
        partition.follow(wanted._replace(isr=(1, 2, 3)))
        with pytest.raises(InvalidBatch):
            partition.truncate_to(3, 0)
        assert partition.log.log_end_offset == BATCHES
        partition.follow(wanted._replace(isr=(1, 2)))
        partition.truncate_to(3, 0)
        assert partition.log.log_end_offset == 1
        await stage.until(lambda: partition.log.log_end_offset == BATCHES)
        assert log_of(stage.nodes[3]) == log_of(stage.nodes[1])

    with Stage(Random(SEED)) as stage:
        stage.run(scene(stage))
