"""Three replicas of a partition with failovers, crashes, network partitions and lost messages, from a seed.

During a run records below a high watermark never change on any replica, and the high watermark of a leader never goes
back within its epoch. At the end, when everything has healed, every record that was acknowledged with acks=all is at
its acknowledged offset, and the replicas are equal byte by byte.
"""

from __future__ import annotations

import asyncio
from functools import partial
from random import Random
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

from pessoa.log.log_config import LogConfig
from pessoa.log.partition_log import ReadUpTo
from pessoa.records.builder import build_batch
from pessoa.records.record import Record
from pessoa.wire.errors import ErrorCode
from tests.support.batches import NOW_MS, values
from tests.support.partition_logs import read_bytes
from tests.support.replication_stage import Node, Stage

if TYPE_CHECKING:
    from pessoa.replication.partition import Partition

TROUBLE_S = 6.0
SEEDS = range(settings().max_examples // 5)


class Witness:
    """Records which batches were acknowledged and which were seen as committed, and checks them."""

    def __init__(self) -> None:
        self.acknowledged: dict[int, bytes] = {}
        self.committed: dict[int, bytes | None] = {}
        self._seen: dict[Partition, int] = {}
        self._watermarks: dict[tuple[Partition, int], int] = {}

    def look_at(self, node: Node) -> None:
        partition = node.partition
        if partition is None:
            return
        log = partition.log
        if partition.is_leader:
            key = (partition, partition.leader_epoch)
            assert log.high_watermark >= self._watermarks.get(key, 0), f"{node} went back"
            self._watermarks[key] = log.high_watermark
        seen = min(self._seen.get(partition, 0), log.high_watermark)
        if log.high_watermark > seen:
            for offset, value in values(read_bytes(log, seen, ReadUpTo.HIGH_WATERMARK)):
                if seen <= offset < log.high_watermark:
                    known = self.committed.setdefault(offset, value)
                    assert known == value, f"{node}: offset {offset} was {known!r} and is {value!r}"
            self._seen[partition] = log.high_watermark


async def produce_all_the_time(stage: Stage, witness: Witness) -> None:
    rng, number = stage.rng, 0
    while True:
        await asyncio.sleep(rng.uniform(0, 0.02))
        # A client may follow any broker that takes itself for the leader.
        leaders = [node for node in stage.running() if node.partition is not None and node.partition.is_leader]
        if not leaders:
            continue
        count = rng.randint(1, 4)
        records = [b"%d" % (number + index) for index in range(count)]
        number += count
        batch = build_batch([Record(index, NOW_MS, None, value) for index, value in enumerate(records)])
        acks = -1 if rng.random() < 0.8 else 1
        error, offset = await stage.produce(
            rng.choice(leaders), acks=acks, timeout_ms=rng.choice((50, 1500)), batch=memoryview(batch)
        )
        if acks == -1 and error == ErrorCode.NONE:
            for index, value in enumerate(records):
                known = witness.acknowledged.setdefault(offset + index, value)
                assert known == value, f"offset {offset + index} was given to {known!r} and to {value!r}"


async def make_trouble(stage: Stage, *, may_lose_power: bool) -> None:
    rng = stage.rng
    end = stage.loop.now_s + TROUBLE_S
    while stage.loop.now_s < end:
        # Now and then the next fault comes before the brokers have recovered from the last.
        await asyncio.sleep(rng.uniform(0.0, rng.choice((0.4, 0.4, 0.02, 0.005))))
        node = rng.choice(list(stage.nodes.values()))
        kind = rng.choice(("crash", "crash", "elect", "elect", "isolate", "deafen", "fence", "lose", "heal", "heal"))
        if kind == "crash" and node.is_running:
            node.crash(loses_power=may_lose_power and rng.random() < 0.5)
            stage.later(rng.choice((0, 0.001, 0.2)), partial(fence_if_down, stage, node))
        elif kind == "elect":
            stage.controller.elect(node.id)
        elif kind == "isolate":
            stage.isolate(node.id)
        elif kind == "deafen":
            stage.deaf.add(node.id)
        elif kind == "fence":
            stage.controller.fence(node.id)
        elif kind == "lose":
            stage.message_loss = rng.choice((0.0, 0.05, 0.3))
        elif kind == "heal":
            recover(stage)


def fence_if_down(stage: Stage, node: Node) -> None:
    if not node.is_running:
        stage.controller.fence(node.id)


def recover(stage: Stage) -> None:
    stage.heal()
    for node in stage.nodes.values():
        if not node.is_running:
            node.start()
        elif not stage.controller.is_live(node.id):
            stage.controller.register(node)


async def story(stage: Stage, *, may_lose_power: bool) -> None:
    witness = Witness()

    def look(_: object) -> None:
        for node in stage.running():
            witness.look_at(node)

    stage.loop.after_step = look
    await stage.start()
    producer = stage.loop.create_task(produce_all_the_time(stage, witness))
    await make_trouble(stage, may_lose_power=may_lose_power)
    recover(stage)
    producer.cancel()
    await asyncio.wait([producer])
    if not producer.cancelled():
        producer.result()
    await stage.until(stage.is_quiet)
    contents = [read_bytes(node.partition.log) for node in stage.running() if node.partition is not None]
    assert contents[0] == contents[1] == contents[2]
    found = dict(values(contents[0]))
    lost = {offset: value for offset, value in witness.acknowledged.items() if found.get(offset) != value}
    assert not lost, f"acknowledged, and not there: {lost}"


@pytest.mark.parametrize("seed", SEEDS)
def test_acknowledged_records_survive_failovers_and_replicas_become_equal(seed: int) -> None:
    rng = Random(seed)
    with Stage(rng, min_insync_replicas=rng.choice((1, 2)), wire_ms=(0.1, rng.choice((1.0, 5.0, 40.0)))) as stage:
        stage.run(story(stage, may_lose_power=False))


@pytest.mark.parametrize("seed", SEEDS)
def test_with_flush_messages_acknowledged_records_survive_power_losses_of_any_number_of_brokers(seed: int) -> None:
    rng = Random(seed)
    config = LogConfig(flush_messages=1, segment_bytes=rng.choice((400, 1 << 20)))
    with Stage(rng, min_insync_replicas=rng.choice((1, 2)), config=config) as stage:
        stage.loop.worker_delay = lambda: rng.uniform(0, 0.01)
        stage.run(story(stage, may_lose_power=True))
