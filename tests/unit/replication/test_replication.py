"""Leader and followers together: replication, acknowledgements, and failover."""

from __future__ import annotations

from random import Random

import pytest

from pessoa.log.checkpoints import REPLICATION_OFFSET_FILE
from pessoa.log.log_config import LogConfig
from pessoa.records.batch import LOG_OVERHEAD
from pessoa.wire.errors import ErrorCode
from tests.support.partition_logs import read_bytes, read_offsets
from tests.support.replication_stage import DIRECTORY, TOPIC, Node, Stage

SEED = 1
FIRST_SEGMENT = f"{DIRECTORY}/{TOPIC}-0/00000000000000000000.log"


def log_of(node: Node) -> bytes:
    assert node.partition is not None
    return read_bytes(node.partition.log)


def test_a_record_acknowledged_with_acks_all_is_on_every_in_sync_replica() -> None:
    async def scene(stage: Stage) -> None:
        await stage.start()
        leader = stage.leader()
        assert leader is not None
        assert await stage.produce(leader, 3) == (ErrorCode.NONE, 0)
        for node in stage.running():
            assert node.partition is not None
            assert read_offsets(node.partition.log) == [(0, 2)]
        await stage.until(stage.is_quiet)

    with Stage(Random(SEED)) as stage:
        stage.run(scene(stage))


def test_an_isolated_follower_leaves_the_isr_and_rejoins_when_it_has_caught_up() -> None:
    async def scene(stage: Stage) -> None:
        await stage.start()
        leader = stage.leader()
        assert leader is not None
        stage.isolate(3)
        error, _ = await stage.produce(leader, timeout_ms=500)
        assert error == ErrorCode.REQUEST_TIMED_OUT
        await stage.until(lambda: stage.controller.partition.isr == (1, 2), within_s=3)
        assert (await stage.produce(leader))[0] == ErrorCode.NONE
        stage.heal()
        await stage.until(stage.is_quiet)
        assert log_of(stage.nodes[3]) == log_of(leader)

    with Stage(Random(SEED)) as stage:
        stage.run(scene(stage))


def test_nothing_is_appended_and_the_high_watermark_does_not_move_below_min_insync_replicas() -> None:
    async def scene(stage: Stage) -> None:
        await stage.start()
        leader = stage.leader()
        assert leader is not None
        stage.isolate(2)
        stage.isolate(3)
        error, _ = await stage.produce(leader, timeout_ms=4000)
        assert error in (ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, ErrorCode.REQUEST_TIMED_OUT)
        await stage.until(lambda: stage.controller.partition.isr == (1,), within_s=5)
        partition = leader.partition
        assert partition is not None
        await stage.until(lambda: partition.isr == (1,))
        end = partition.log.log_end_offset
        assert await stage.produce(leader) == (ErrorCode.NOT_ENOUGH_REPLICAS, -1)
        assert partition.log.log_end_offset == end
        # A produce with acks=1 is answered, but consumers do not read it until enough replicas have it.
        assert (await stage.produce(leader, acks=1))[0] == ErrorCode.NONE
        assert partition.log.high_watermark == 0
        stage.heal()
        await stage.until(stage.is_quiet)
        assert partition.log.high_watermark == end + 1

    with Stage(Random(SEED), min_insync_replicas=2) as stage:
        stage.run(scene(stage))


def test_a_deposed_leader_truncates_unreplicated_records_and_becomes_equal_to_the_new_leader() -> None:
    async def scene(stage: Stage) -> None:
        await stage.start()
        assert (await stage.produce(stage.nodes[1], 2))[0] == ErrorCode.NONE
        await stage.until(stage.is_quiet)
        stage.isolate(1)
        for _ in range(3):
            assert (await stage.produce(stage.nodes[1], acks=1))[0] == ErrorCode.NONE
        stage.controller.fence(1)
        await stage.until(lambda: stage.leader() is stage.nodes[2])
        assert await stage.produce(stage.nodes[2], 4) == (ErrorCode.NONE, 2)
        stage.heal()
        stage.controller.register(stage.nodes[1])
        await stage.until(stage.is_quiet)
        partition = stage.nodes[1].partition
        assert partition is not None
        assert read_offsets(partition.log) == [(0, 1), (2, 5)]
        assert log_of(stage.nodes[1]) == log_of(stage.nodes[2]) == log_of(stage.nodes[3])

    with Stage(Random(SEED)) as stage:
        stage.run(scene(stage))


def test_a_follower_that_truncated_its_log_gets_the_high_watermark_without_new_records() -> None:
    async def scene(stage: Stage) -> None:
        await stage.start()
        assert (await stage.produce(stage.nodes[1], 2))[0] == ErrorCode.NONE
        stage.isolate(1)
        assert (await stage.produce(stage.nodes[1], 3, acks=1))[0] == ErrorCode.NONE
        stage.controller.fence(1)
        await stage.until(lambda: stage.leader() is stage.nodes[2])
        stage.nodes[1].crash()
        stage.heal()
        # It forgets its high watermark, and has a tail that no other replica has.
        stage.nodes[1].disk.remove(f"{DIRECTORY}/{REPLICATION_OFFSET_FILE}", missing_ok=True)
        stage.nodes[1].start()
        await stage.until(stage.is_quiet)
        assert log_of(stage.nodes[1]) == log_of(stage.nodes[2])

    with Stage(Random(SEED)) as stage:
        stage.run(scene(stage))


def test_the_successor_of_a_killed_leader_has_every_acknowledged_record() -> None:
    async def scene(stage: Stage) -> None:
        await stage.start()
        acknowledged = 0
        for victim in (1, 2, 1):
            leader = stage.leader()
            assert leader is not None
            for _ in range(5):
                error, offset = await stage.produce(leader)
                assert (error, offset) == (ErrorCode.NONE, acknowledged)
                acknowledged += 1
            stage.controller.elect(victim)
            await stage.until(lambda victim=victim: stage.leader() is stage.nodes[victim])  # type: ignore[misc]
            stage.nodes[victim].crash()
            stage.controller.fence(victim)
            await stage.until(lambda: stage.leader() is not None)
            stage.nodes[victim].start()
            await stage.until(stage.is_quiet)
        assert log_of(stage.nodes[1]) == log_of(stage.nodes[2]) == log_of(stage.nodes[3])

    with Stage(Random(SEED)) as stage:
        stage.run(scene(stage))


@pytest.mark.parametrize("number", [0, 1, 2])
def test_a_follower_fetches_a_batch_again_whose_epoch_its_disk_has_changed(number: int) -> None:
    async def scene(stage: Stage) -> None:
        await stage.start()
        for _ in range(3):
            assert (await stage.produce(stage.nodes[1]))[0] == ErrorCode.NONE
        await stage.until(stage.is_quiet)
        stage.nodes[3].crash()
        make_up_an_epoch(stage.nodes[3], number)
        stage.nodes[3].start()
        await stage.until(stage.is_quiet)
        assert log_of(stage.nodes[3]) == log_of(stage.nodes[1])

    with Stage(Random(SEED)) as stage:
        stage.run(scene(stage))


def test_followers_keep_their_records_when_the_leaders_disk_has_changed_an_epoch() -> None:
    async def scene(stage: Stage) -> None:
        await stage.start()
        for _ in range(3):
            assert (await stage.produce(stage.nodes[1]))[0] == ErrorCode.NONE
        await stage.until(stage.is_quiet)
        whole = log_of(stage.nodes[2])
        for node in stage.nodes.values():
            node.crash()
        make_up_an_epoch(stage.nodes[1], 2)
        stage.has_begun = False
        for node in stage.nodes.values():
            node.start()
        stage.controller.elect(1)
        await stage.until(lambda: stage.leader() is stage.nodes[1])
        assert (await stage.produce(stage.nodes[1]))[0] == ErrorCode.NONE
        await stage.until(stage.is_quiet)
        assert log_of(stage.nodes[2])[: len(whole)] == log_of(stage.nodes[3])[: len(whole)] == whole

    with Stage(Random(SEED)) as stage:
        stage.run(scene(stage))


def make_up_an_epoch(node: Node, number: int) -> None:
    """Flip a bit in the leader epoch of that batch, which no CRC covers."""
    assert node.partition is None
    size = node.disk.size(FIRST_SEGMENT) // 3
    node.disk.flip_bit(FIRST_SEGMENT, number * size + LOG_OVERHEAD + 3, bit=6)


def test_with_flush_messages_every_acknowledged_record_survives_when_all_lose_power_at_once() -> None:
    async def scene(stage: Stage) -> None:
        await stage.start()
        for number in range(10):
            leader = stage.leader()
            assert leader is not None
            assert await stage.produce(leader) == (ErrorCode.NONE, number)
            if number % 3 == 2:
                for node in stage.nodes.values():
                    node.crash(loses_power=True)
                stage.has_begun = False
                for node in stage.nodes.values():
                    node.start()
                stage.has_begun = True
                await stage.until(stage.is_quiet)
        partition = stage.nodes[3].partition
        assert partition is not None
        assert len(read_offsets(partition.log)) == 10

    for seed in range(20):
        with Stage(Random(seed), config=LogConfig(flush_messages=1)) as stage:
            stage.run(scene(stage))
