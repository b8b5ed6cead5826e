"""Whole quorum nodes on disks that lose power, with a network that fails and heals: no acknowledged record is lost.

The machine is tested by `test_raft`; here it has its shell: torn writes, syncs that take time, snapshots, encoded
messages. `QUORUM_SEEDS` sets how many seeds are run.
"""

from __future__ import annotations

import asyncio
import os
from contextlib import suppress
from random import Random

from pessoa.log.simulated_disk import SimulatedDisk
from pessoa.quorum.publishing import ImagePublisher
from pessoa.quorum.raft_quorum import RaftQuorum
from pessoa.quorum.snapshotting import SnapshotTaker
from pessoa.quorum.uncommitted_appends import NotLeader
from pessoa.wire.stored.metadata_records import ConfigRecord, FeatureLevelRecord
from tests.support.quorums import Node, Quorums, topic, topics
from tests.support.virtual_time import run

SEEDS = int(os.environ.get("QUORUM_SEEDS", "12"))
ROUNDS = 25


class Watched:
    """A node with a metadata image, which must be equal to that of every other node at the same offset."""

    def __init__(self, node: Node, images: dict[int, object]) -> None:
        self.node = node
        self.images = images
        node.before_start = self._attach

    def _attach(self) -> None:
        quorum = self.node.quorum
        self.publisher = publisher = ImagePublisher()
        quorum.listeners.append(publisher.listen)
        quorum.listeners.append(lambda batch: self._check(batch.last_offset))
        quorum.listeners.append(SnapshotTaker(quorum, publisher).listen)
        quorum.on_snapshot.append(publisher.load_snapshot)
        quorum.on_snapshot.append(lambda reader: self._check(reader.snapshot.offset - 1))
        publisher.go_live()

    def _check(self, offset: int) -> None:
        seen = {key: dict(values) for key, values in self.publisher.image.configs.by_resource.items()}
        assert self.images.setdefault(offset, seen) == seen, f"node {self.node.id} sees another offset {offset}"

    @property
    def values(self) -> dict[str, str]:
        return dict(self.publisher.image.configs.of(2, "t"))


async def write(quorum: RaftQuorum, number: int, acknowledged: dict[str, str]) -> None:
    record = ConfigRecord(resource_type=2, resource_name="t", name=f"k{number}", value=f"v{number}")
    try:
        await asyncio.wait_for(quorum.append([(record, 0)]), 20)
    except (NotLeader, TimeoutError):
        return
    acknowledged[f"k{number}"] = f"v{number}"


async def play(seed: int) -> None:
    random = Random(seed)
    nodes = Quorums(
        random.choice((1, 3, 3, 5)),
        metadata_log_max_record_bytes_between_snapshots=random.choice((500, 3_000, 1 << 30)),
        metadata_max_retention_bytes=random.choice((1, 1 << 30)),
        metadata_log_segment_bytes=random.choice((600, 1 << 20)),
        fetch_snapshot_max_bytes=200,
    )
    images: dict[int, object] = {}
    watched = [Watched(node, images) for node in nodes.by_id.values()]
    acknowledged: dict[str, str] = {}
    writing: list[asyncio.Task[None]] = []
    number = 0
    async with nodes:
        first = await nodes.leader()
        await first.quorum.append([(FeatureLevelRecord(name="metadata.version", feature_level=30), 0)])
        for _ in range(ROUNDS):
            node = random.choice(list(nodes.by_id.values()))
            if random.random() < 0.4 and node.is_up:
                node.kill()
            for one in nodes.by_id.values():
                if not one.is_up and random.random() < 0.5:
                    await one.start()
            ids = list(nodes.by_id)
            nodes.cut = (
                {frozenset(random.sample(ids, 2)) for _ in range(random.randrange(3))} if len(ids) > 1 else set()
            )
            for one in nodes.by_id.values():
                if one.is_up and one.quorum.is_leader:
                    for _ in range(random.randrange(5)):
                        number += 1
                        writing.append(asyncio.ensure_future(write(one.quorum, number, acknowledged)))
            await asyncio.sleep(random.choice((0.001, 0.01, 0.1, 1.0, 5.0)))
        nodes.cut = set()
        for one in nodes.by_id.values():
            if not one.is_up:
                await one.start()
        await asyncio.gather(*writing)
        last = await nodes.leader()
        await nodes.wait_until(
            lambda: all(
                one.is_up and one.quorum.applied_offset == last.quorum.log_end_offset for one in nodes.by_id.values()
            )
        )
        for it in watched:
            missing = acknowledged.items() - it.values.items()
            assert not missing, f"node {it.node.id} has lost {sorted(missing)}"
        assert len({tuple(sorted(one.values.items())) for one in watched}) == 1


def test_acknowledged_records_are_on_every_node_in_the_end() -> None:
    for seed in range(SEEDS):
        try:
            run(lambda seed=seed: play(seed))  # type: ignore[misc]
        except (AssertionError, TimeoutError) as error:
            raise AssertionError(f"seed {seed}: {error}") from error


def test_the_test_detects_disks_that_lie_about_their_syncs() -> None:
    """So that the test above means something: with syncs that do nothing, an acknowledged record is lost."""

    async def loses(seed: int) -> None:
        nodes = Quorums(3)
        for node in nodes.by_id.values():
            node.disk = SimulatedDisk(10 * seed + node.id)
            node.disk.lie_about_sync("*.log")
        async with nodes:
            leader = await nodes.leader()
            await leader.quorum.append([topic("acknowledged")])
            for node in nodes.by_id.values():
                node.kill()
            for node in nodes.by_id.values():
                node.disk.heal()
                await node.start()
            leader = await nodes.leader()
            lost.append(topics(leader) == [])

    lost: list[bool] = []
    for seed in range(40):
        # Voters that see that they have forgotten something may keep their votes for good, and then there is no leader.
        with suppress(TimeoutError):
            run(lambda seed=seed: loses(seed))  # type: ignore[misc]
    assert any(lost)
