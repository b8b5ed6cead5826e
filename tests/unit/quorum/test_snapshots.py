"""Snapshots replace the log before them: at a start, for a voter that was down, and on the disk."""

from __future__ import annotations

from contextlib import suppress

import pytest

from pessoa.base.ids import Uuid
from pessoa.log.simulated_disk import Crashed, SimulatedDisk
from pessoa.metadata.delta import MetadataDelta
from pessoa.quorum.metadata_log import CorruptMetadataLog, MetadataLog
from pessoa.quorum.publishing import ImagePublisher
from pessoa.quorum.quorum_settings import QuorumSettings
from pessoa.quorum.snapshot_file import render_snapshot, snapshot_name, snapshots_among, write_snapshot
from pessoa.quorum.snapshotting import SnapshotTaker
from pessoa.raft.messages import OffsetAndEpoch
from pessoa.raft.voters import VoterSet
from pessoa.wire.schema import Message
from pessoa.wire.stored.metadata_records import (
    BeginTransactionRecord,
    ConfigRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from tests.support.quorums import Node, Quorums
from tests.support.virtual_time import run

DIRECTORY = "/meta/__cluster_metadata-0"


class Follower:
    """A node whose image follows its log, and which writes snapshots."""

    def __init__(self, node: Node) -> None:
        self.node = node

    async def start(self) -> None:
        self.publisher = ImagePublisher()
        self.told: list[MetadataDelta] = []
        self.publisher.subscribers.append(self.told.append)
        self.node.before_start = self._attach
        await self.node.start()

    def _attach(self) -> None:
        quorum = self.node.quorum
        self.taker = SnapshotTaker(quorum, self.publisher)
        quorum.listeners += [self.publisher.listen, self.taker.listen]
        quorum.on_snapshot.append(self.publisher.load_snapshot)

    async def stop(self) -> None:
        await self.taker.close()
        await self.node.stop()

    @property
    def topics(self) -> list[str]:
        self.publisher.loader.finish_deferred()
        return sorted(self.publisher.image.topics.by_name)

    @property
    def files(self) -> list[OffsetAndEpoch]:
        return snapshots_among(self.node.disk.list(DIRECTORY))


def topic(number: int) -> list[tuple[Message, int]]:
    return [(TopicRecord(name=f"t{number}", topic_id=Uuid.of(1000 + number)), 0)]


def level() -> list[tuple[Message, int]]:
    return [(FeatureLevelRecord(name="metadata.version", feature_level=30), 0)]


def test_a_snapshot_is_taken_after_so_many_bytes_and_a_restart_begins_with_it() -> None:
    async def body() -> None:
        nodes = Quorums(1, metadata_log_max_record_bytes_between_snapshots=1_000)
        one = Follower(nodes.by_id[1])
        await one.start()
        one.publisher.go_live()
        await one.node.quorum.append(level())
        for number in range(20):
            await one.node.quorum.append(topic(number))
        await one.stop()
        assert one.files, "no snapshot was taken"
        names = one.topics
        await one.start()
        one.publisher.go_live()
        assert one.topics == names
        (reader,) = one.node.snapshots
        assert reader.snapshot == one.files[-1]
        assert one.node.seen[0].last_offset >= reader.snapshot.offset, "what is in the snapshot is not told again"
        await one.stop()

    run(body)


def test_a_snapshot_is_taken_when_the_last_one_is_old_and_records_have_been_appended() -> None:
    async def body() -> None:
        nodes = Quorums(1, metadata_log_max_snapshot_interval_ms=10_000)
        one = Follower(nodes.by_id[1])
        await one.start()
        one.publisher.go_live()
        await one.node.quorum.append(topic(1))
        assert one.files == []
        await one.node.quorum._clock.wait_ms(11_000)
        assert one.files == []
        await one.node.quorum.append(topic(2))
        await one.stop()
        assert [snapshot.offset for snapshot in one.files] == [3]

    run(body)


def test_no_snapshot_is_taken_within_a_transaction() -> None:
    async def body() -> None:
        nodes = Quorums(1, metadata_log_max_record_bytes_between_snapshots=1)
        one = Follower(nodes.by_id[1])
        await one.start()
        await one.taker.close()
        before = one.files
        one.publisher.go_live()
        await one.node.quorum.append([(BeginTransactionRecord(), 0)])
        for number in range(5):
            await one.node.quorum.append(topic(number))
        await one.taker.close()
        assert one.files == before
        await one.node.quorum.append([(EndTransactionRecord(), 0)])
        await one.stop()
        assert len(one.files) == len(before) + 1

    run(body)


def test_a_follower_behind_the_log_start_loads_the_snapshot_and_publishes_the_difference() -> None:
    async def body() -> None:
        nodes = Quorums(
            3,
            metadata_log_max_record_bytes_between_snapshots=1_000,
            metadata_max_retention_bytes=1,
            metadata_log_segment_bytes=1_000,
            fetch_snapshot_max_bytes=100,
        )
        followers = {node_id: Follower(node) for node_id, node in nodes.by_id.items()}
        for one in followers.values():
            await one.start()
            nodes.started.add(one.node.id)
            one.publisher.go_live()
        leader = await nodes.leader()
        await leader.quorum.append(level())
        await leader.quorum.append([(TopicRecord(name="gone", topic_id=Uuid.of(7_000)), 0)])
        away = next(one for one in followers.values() if one.node is not leader)
        await nodes.wait_until(lambda: "gone" in away.topics)
        nodes.cut = {frozenset((away.node.id, other)) for other in nodes.by_id if other != away.node.id}
        await leader.quorum.append([(RemoveTopicRecord(topic_id=Uuid.of(7_000)), 0)])
        number = 0
        while leader.quorum.log.log_start_offset <= away.node.quorum.log_end_offset:
            number += 1
            await leader.quorum.append(topic(number))
            assert number < 500, "the log never gets shorter"
        nodes.cut = set()
        await nodes.wait_until(lambda: len(away.topics) == number)
        assert away.node.snapshots, "it came by the log after all"
        assert any("gone" in delta.deleted_topics.values() for delta in away.told)
        assert away.node.quorum.log.log_start_offset > 0
        await leader.quorum.append(topic(number + 1))
        await nodes.wait_until(lambda: len(away.topics) == number + 1)
        await away.stop()
        await away.start()
        await nodes.wait_until(lambda: len(away.topics) == number + 1)
        for one in followers.values():
            await one.stop()

    run(body)


SETTINGS = QuorumSettings()


def log_with(disk: SimulatedDisk, settings: QuorumSettings, count: int) -> MetadataLog:
    log = MetadataLog(disk, DIRECTORY, settings, VoterSet.of(1), 0)
    for number in range(count):
        log.append(topic(number), 1, 0)
    log.partition.flush()
    log.partition.update_high_watermark(log.log_end_offset)
    return log


def snapshot_at(disk: SimulatedDisk, log: MetadataLog, offset: int, timestamp_ms: int = 0) -> OffsetAndEpoch:
    snapshot = OffsetAndEpoch(offset, 1)
    records = [(ConfigRecord(resource_type=2, resource_name="t", name="k", value="v"), 0)]
    write_snapshot(disk, DIRECTORY, snapshot, render_snapshot(snapshot, records, timestamp_ms, timestamp_ms))
    log.snapshot_taken(snapshot)
    return snapshot


def test_retention_by_size_deletes_up_to_the_next_snapshot_and_never_the_last_one() -> None:
    disk = SimulatedDisk()
    settings = QuorumSettings(metadata_max_retention_bytes=1, metadata_log_segment_bytes=500)
    log = log_with(disk, settings, 40)
    snapshot_at(disk, log, 10)
    log.clean(0)
    assert (log.log_start_offset, len(log.snapshots)) == (0, 1)
    last = snapshot_at(disk, log, 20)
    log.clean(0)
    assert (log.log_start_offset, log.snapshots) == (20, [last])
    assert log.partition.segments[0].base_offset > 0
    log.close()
    again = MetadataLog(disk, DIRECTORY, settings, VoterSet.of(1), 0)
    assert (again.log_start_offset, again.log_end_offset, again.snapshots) == (20, 40, [last])
    assert again.end_of_epoch(1) == OffsetAndEpoch(40, 1)


def test_a_log_that_starts_within_a_segment_starts_there_again() -> None:
    """What stands before it is nothing any more: no checkpoint tells its epochs, so no damage of them is noticed."""
    disk = SimulatedDisk()
    settings = QuorumSettings(metadata_max_retention_bytes=1)
    log = log_with(disk, settings, 40)
    snapshot_at(disk, log, 10)
    last = snapshot_at(disk, log, 20)
    log.clean(0)
    assert (log.log_start_offset, log.partition.segments[0].base_offset) == (20, 0)
    log.close()
    again = MetadataLog(disk, DIRECTORY, settings, VoterSet.of(1), 0)
    assert (again.log_start_offset, again.log_end_offset, again.snapshots) == (20, 40, [last])


def test_retention_by_age_deletes_snapshots_but_the_last() -> None:
    disk = SimulatedDisk()
    settings = QuorumSettings(metadata_max_retention_ms=1_000)
    log = log_with(disk, settings, 40)
    snapshot_at(disk, log, 10, timestamp_ms=0)
    last = snapshot_at(disk, log, 20, timestamp_ms=5_000)
    log.clean(900)
    assert len(log.snapshots) == 2
    log.clean(1_100)
    assert log.snapshots == [last]


def test_a_log_that_ends_before_its_snapshot_continues_at_the_end_of_the_snapshot() -> None:
    disk = SimulatedDisk()
    log = log_with(disk, SETTINGS, 5)
    snapshot = snapshot_at(disk, log, 9)
    log.close()
    again = MetadataLog(disk, DIRECTORY, SETTINGS, VoterSet.of(1), 0)
    assert (again.log_start_offset, again.log_end_offset, again.last_epoch) == (9, 9, 1)
    assert again.end_of_epoch(1) == snapshot


def test_a_log_whose_start_has_moved_detects_divergence_in_an_epoch_before_its_start() -> None:
    """An epoch that began before the log start seems to begin there; a replica with another epoch up to there diverged
    before."""
    disk = SimulatedDisk()
    log = log_with(disk, QuorumSettings(metadata_max_retention_bytes=1), 24)
    for number in range(24, 26):
        log.append(topic(number), 3, 0)
    log.partition.update_high_watermark(26)
    snapshot_at(disk, log, 20)
    last = OffsetAndEpoch(25, 3)
    write_snapshot(disk, DIRECTORY, last, render_snapshot(last, [], 0, 0))
    log.snapshot_taken(last)
    log.clean(0)
    assert log.log_start_offset == 25
    assert log.end_of_epoch(3) == OffsetAndEpoch(26, 3)
    for epoch in (1, 2):
        assert log.end_of_epoch(epoch).offset < 25


def test_a_power_loss_leaves_a_snapshot_whole_or_absent() -> None:
    for seed in range(60):
        disk = SimulatedDisk(seed)
        log = log_with(disk, SETTINGS, 5)
        disk.crash_at("change", nth=1 + seed % 6)
        with suppress(Crashed):
            snapshot_at(disk, log, 5)
        disk.heal()
        disk.lose_power()
        again = MetadataLog(disk, DIRECTORY, SETTINGS, VoterSet.of(1), 0)
        assert again.log_end_offset == 5
        for snapshot in again.snapshots:
            assert again.read_snapshot(snapshot).is_complete
        assert not [name for name in disk.list(DIRECTORY) if name.endswith(".part")]


def test_voters_and_kraft_version_are_read_from_the_snapshot() -> None:
    disk = SimulatedDisk()
    log = log_with(disk, SETTINGS, 3)
    voters = VoterSet.static({1: ("a", 9093), 2: ("b", 9093)}, "CONTROLLER")
    snapshot = OffsetAndEpoch(3, 1)
    write_snapshot(disk, DIRECTORY, snapshot, render_snapshot(snapshot, [], 0, 0, 1, voters))
    log.close()
    again = MetadataLog(disk, DIRECTORY, SETTINGS, VoterSet(), 0)
    assert again.history.voters == voters
    assert again.history.kraft_version == 1


def test_a_flipped_bit_in_a_snapshot_is_detected_before_it_is_replayed() -> None:
    async def body() -> None:
        nodes = Quorums(1, metadata_log_max_record_bytes_between_snapshots=1_000)
        one = Follower(nodes.by_id[1])
        await one.start()
        one.publisher.go_live()
        await one.node.quorum.append(level())
        for number in range(40):
            await one.node.quorum.append(topic(number))
        await one.stop()
        older, *_, latest = [f"{DIRECTORY}/{snapshot_name(one_of)}" for one_of in one.files]
        good = one.node.disk.read_file(latest)
        damaged = bytearray(good)
        damaged[len(good) // 2] ^= 4
        one.node.disk.write_file(latest, damaged)
        with pytest.raises(CorruptMetadataLog, match="checksum"):
            await one.start()
        # An older snapshot is not read: a damaged one stops no node, and is deleted when its time has come.
        one.node.disk.write_file(latest, good)
        one.node.disk.write_file(older, b"\x00")
        await one.start()
        one.node.quorum.log.clean(one.node.quorum.now_ms())
        assert not one.node.disk.exists(older)
        await one.stop()

    run(body)
