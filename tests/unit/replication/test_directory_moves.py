"""Replicas that move between the log directories of their broker, on simulated disks and time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from pessoa.base.entropy import SeededEntropy, new_uuid
from pessoa.base.ids import Uuid
from pessoa.log.checkpoints import LOG_START_OFFSET_FILE, RECOVERY_POINT_FILE, parse_offsets
from pessoa.log.directory import LogDirectory
from pessoa.log.flusher import Flusher
from pessoa.log.future_log import FutureLog
from pessoa.log.log_config import LogConfig
from pessoa.log.simulated_disk import SimulatedDisk
from pessoa.log.upkeep import Upkeep
from pessoa.metadata.image import MetadataImage
from pessoa.metadata.topics_image import DIRECTORY_UNASSIGNED, PartitionImage, TopicImage, TopicsImage
from pessoa.replication.local_replicas import LocalReplicas
from pessoa.replication.replication_settings import ReplicationSettings
from pessoa.wire.errors import ErrorCode
from tests.simulation.loop import new_loop
from tests.support.batches import NOW_MS, idempotent, plain
from tests.support.partition_logs import PRODUCE_VERSION, read_bytes
from tests.support.replication_stage import StageClock

if TYPE_CHECKING:
    from pessoa.replication.partition import Partition

TOPIC, TOPIC_ID = "orders", Uuid.of(1000)
PATHS = ("/a", "/b", "/c")
SMALL = LogConfig(segment_bytes=2_000, index_interval_bytes=100)
Scene = Callable[["Rig"], Coroutine[Any, Any, None]]


class Rig:
    """One broker, the only replica of its partitions, with three directories on one disk, over several restarts."""

    def __init__(
        self, *, config: LogConfig = SMALL, topic: str = TOPIC, rate: int | None = None, partitions: int = 1
    ) -> None:
        self.loop = new_loop()
        self.loop.worker_delay = lambda: 0.001
        self.clock = StageClock(self.loop)
        self.disk = SimulatedDisk(now_ms=lambda: NOW_MS)
        self.config, self.topic, self.incarnations, self._partitions = config, topic, 0, partitions
        self.settings = ReplicationSettings(replica_alter_log_dirs_io_max_bytes_per_second=rate)
        self.moved: list[str] = []

    def start(self) -> None:
        self.incarnations += 1
        self.directories = [LogDirectory(self.disk, path) for path in PATHS]
        for directory in self.directories:
            directory.open(lambda _: self.config, self.clock.now_ms())
        self.flusher = Flusher()
        upkeep = self.upkeep = Upkeep(self.disk, self.directories, self.clock, self.flusher)
        self.replicas = LocalReplicas(
            1, self.directories, upkeep, lambda _: self.config, partial(new_uuid, SeededEntropy(self.incarnations)),
            clock=self.clock, flusher=self.flusher, settings=self.settings,
        )  # fmt: skip
        self.replicas.moves.on_moved.append(lambda partition: self.moved.append(partition.directory.path))
        state = PartitionImage(
            replicas=(1,), directories=(DIRECTORY_UNASSIGNED,), isr=(1,), removing_replicas=(), adding_replicas=(),
            elr=(), last_known_elr=(), leader=1, leader_epoch=self.incarnations, partition_epoch=self.incarnations,
            leader_recovery_state=0,
        )  # fmt: skip
        topic = TopicImage(self.topic, TOPIC_ID, dict.fromkeys(range(self._partitions), state))
        self.image = replace(
            MetadataImage.EMPTY, offset=self.incarnations, topics=TopicsImage({self.topic: topic}, {TOPIC_ID: topic})
        )
        self.replicas.apply(self.image, [TOPIC_ID], ())
        self.replicas.remove_strays(self.image)

    @property
    def partition(self) -> Partition:
        found = self.replicas.ensure(self.topic, 0)
        assert found is not None
        return found

    def directory(self, path: str) -> LogDirectory:
        return next(one for one in self.directories if one.path == path)

    def start_anew(self) -> None:
        """Start the broker again, as after kill -9."""
        self.disk.crash_process()
        self.start()

    def move(self, path: str) -> ErrorCode:
        return self.replicas.moves.move(self.partition, self.directory(path))

    def fill(self, batches: int, size: int = 200) -> None:
        for _ in range(batches):
            self.partition.append(plain(2, size=size), self.clock.now_ms(), PRODUCE_VERSION)

    async def until(self, holds: Callable[[], object]) -> None:
        deadline = self.loop.now_s + 3_600
        while not holds():
            assert self.loop.now_s < deadline, self.partition
            await asyncio.sleep(0.001)

    async def until_moved(self, path: str) -> None:
        await self.until(lambda: self.partition.directory.path == path)

    def names(self) -> dict[str, list[str]]:
        """Return the names of the partitions and future replicas in each directory."""
        return {
            path: [name for name in self.disk.list(path) if name.startswith(self.topic[:5])]
            for path in PATHS
            if self.disk.exists(path)
        }

    def where(self) -> list[str]:
        """Return the directories that have the partition, after checking that none has a future replica of it."""
        assert not any("-future" in name for names in self.names().values() for name in names)
        return [path for path, names in self.names().items() if f"{self.topic}-0" in names]


def play(scene: Scene, **settings: Any) -> None:
    rig = Rig(**settings)
    try:
        rig.loop.run_until_complete(scene(rig), max_steps=2_000_000)
        assert not rig.loop.problems, rig.loop.problems
    finally:
        rig.loop.bury()


# Moving.


def test_a_replica_moves_while_it_is_written_to_and_keeps_everything() -> None:
    async def scene(rig: Rig) -> None:
        rig.start()
        rig.fill(30)
        source = rig.partition.log
        assert rig.move("/b") is ErrorCode.NONE
        assert rig.partition.directory.path == "/a"
        while rig.partition.directory.path == "/a":
            rig.fill(1)
            await asyncio.sleep(0.0001)
        log = rig.partition.log
        assert log is not source
        assert (log.log_end_offset, log.high_watermark) == (source.log_end_offset, source.high_watermark)
        assert len(read_bytes(log)) == log.size
        assert log.segments[0].base_offset == 0
        rig.fill(3)
        assert rig.partition.log.log_end_offset == source.log_end_offset + 6
        assert rig.where() == ["/b"]
        assert rig.moved == ["/b"]
        assert rig.replicas.directories[0].partitions == {}
        assert list(rig.directory("/b").partitions) == [(TOPIC, 0)]
        # And back, where the old one waits to be removed.
        assert rig.move("/a") is ErrorCode.NONE
        await rig.until_moved("/a")
        assert rig.where() == ["/a"]

    play(scene)


def test_the_bytes_of_a_moved_log_are_those_of_the_original() -> None:
    async def scene(rig: Rig) -> None:
        rig.start()
        rig.fill(40)
        before = read_bytes(rig.partition.log)
        epochs = rig.partition.log.epochs.entries()
        rig.move("/c")
        await rig.until_moved("/c")
        assert read_bytes(rig.partition.log) == before
        assert rig.partition.log.epochs.entries() == epochs
        rig.start_anew()
        assert (rig.partition.directory.path, read_bytes(rig.partition.log)) == ("/c", before)

    play(scene)


def test_a_moved_log_keeps_its_log_start_offset_and_producers() -> None:
    async def scene(rig: Rig) -> None:
        rig.start()
        now_ms = rig.clock.now_ms()
        rig.partition.append(idempotent(7, 0), now_ms, PRODUCE_VERSION)
        rig.fill(40)
        log = rig.partition.log
        log.delete_records_before(30)
        log.drop_segments(1, now_ms)
        assert log.segments[0].base_offset > 1
        before, entry = log.log_start_offset, log.producers.entry(7)
        assert before == 30
        assert entry is not None
        rig.move("/b")
        await rig.until_moved("/b")
        moved = rig.partition.log
        # Its first batch begins before the start.
        assert (moved.segments[0].base_offset, moved.log_start_offset) == (29, 30)
        assert moved.producers.entry(7) == entry
        named = parse_offsets(rig.disk.read_file(f"/b/{LOG_START_OFFSET_FILE}").decode(), "")
        assert named == {(TOPIC, 0): 30}
        assert parse_offsets(rig.disk.read_file(f"/a/{RECOVERY_POINT_FILE}").decode(), "") == {}

    play(scene)


def test_a_move_between_log_directories_keeps_to_its_throttle() -> None:
    async def scene(rig: Rig) -> None:
        rig.start()
        rig.fill(100, size=1_000)
        size = rig.partition.log.size
        begun = rig.loop.now_s
        rig.move("/b")
        await rig.until_moved("/b")
        # One second's worth is there at the beginning.
        assert rig.loop.now_s - begun > size / 10_000 - 2

    play(scene, rate=10_000, config=LogConfig(segment_bytes=20_000))


def test_a_move_to_another_or_to_its_own_directory_cancels_the_move_under_way() -> None:
    async def scene(rig: Rig) -> None:
        rig.start()
        rig.fill(10)
        rig.move("/b")
        await asyncio.sleep(0.1)
        assert [one.key for one in rig.directory("/b").futures] == [(TOPIC, 0)]
        assert rig.move("/b") is ErrorCode.NONE
        assert len(rig.directory("/b").futures) == 1
        assert rig.move("/c") is ErrorCode.NONE
        assert (rig.directory("/b").futures, len(rig.directory("/c").futures)) == ([], 1)
        assert rig.move("/a") is ErrorCode.NONE
        assert rig.directory("/c").futures == []
        await asyncio.sleep(60)
        assert rig.where() == ["/a"]
        assert rig.moved == []

    # Nothing ever comes.
    play(scene, rate=0)


def test_deleting_a_topic_removes_the_copies_of_its_moves() -> None:
    async def scene(rig: Rig) -> None:
        rig.start()
        rig.fill(10)
        rig.move("/b")
        rig.replicas.apply(MetadataImage.EMPTY, (), [TOPIC_ID])
        await asyncio.sleep(1)
        assert rig.where() == []
        assert all(name.endswith("-delete") for names in rig.names().values() for name in names)

    play(scene)


@pytest.mark.parametrize("end_offset", [0, 5, 31])
def test_truncating_the_original_truncates_the_copy(end_offset: int) -> None:
    async def scene(rig: Rig) -> None:
        rig.start()
        rig.fill(20)
        rig.move("/b")
        future = rig.partition.future
        assert future is not None
        await rig.until(lambda: future.log.log_end_offset > 30)
        rig.partition.truncate_to(end_offset, rig.clock.now_ms())
        assert future.log.log_end_offset <= end_offset
        rig.partition.leader_epoch += 1
        rig.fill(20, size=150)
        expected = read_bytes(rig.partition.log)
        await rig.until_moved("/b")
        assert read_bytes(rig.partition.log) == expected

    play(scene, rate=100_000)


def test_a_log_that_restarts_at_another_offset_is_copied_from_its_start() -> None:
    async def scene(rig: Rig) -> None:
        rig.start()
        rig.fill(20)
        rig.move("/b")
        future = rig.partition.future
        assert future is not None
        await rig.until(lambda: future.log.log_end_offset > 30)
        rig.partition.restart_at(1_000, rig.clock.now_ms())
        rig.fill(5)
        await rig.until_moved("/b")
        log = rig.partition.log
        assert (log.log_start_offset, log.log_end_offset, log.segments[0].base_offset) == (1_000, 1_010, 1_000)

    play(scene, rate=100_000)


def test_a_move_copies_all_remaining_records_if_retention_overtakes_the_copy() -> None:
    async def scene(rig: Rig) -> None:
        rig.start()
        rig.fill(40)
        rig.move("/b")
        await asyncio.sleep(0.01)
        rig.partition.log.drop_segments(len(rig.partition.log.segments) - 1, rig.clock.now_ms())
        rig.fill(10)
        expected = read_bytes(rig.partition.log)
        rig.settings = rig.settings._replace(replica_alter_log_dirs_io_max_bytes_per_second=None)
        rig.replicas.configure(rig.settings)
        await rig.until_moved("/b")
        assert read_bytes(rig.partition.log) == expected

    play(scene, rate=0)


def test_a_replica_with_flush_messages_is_synced_before_the_move_ends() -> None:
    async def scene(rig: Rig) -> None:
        rig.start()
        rig.move("/b")
        promised = 0
        while rig.partition.directory.path == "/a" or promised < 60:
            rig.fill(1)
            end = rig.partition.log.log_end_offset
            assert await rig.flusher.wait_until_durable(rig.partition.log, end)
            rig.partition.maybe_advance_high_watermark()
            promised = rig.partition.log.high_watermark
            assert promised == end
        rig.disk.lose_power()
        rig.start()
        assert rig.partition.log.log_end_offset >= promised

    play(scene, config=LogConfig(segment_bytes=2_000, flush_messages=1))


def test_a_topic_with_the_longest_name_moves_and_survives() -> None:
    async def scene(rig: Rig) -> None:
        rig.start()
        rig.fill(10)
        expected = read_bytes(rig.partition.log)
        rig.move("/b")
        await asyncio.sleep(0.01)
        assert all(len(name) <= 255 for name in rig.disk.list("/b"))
        rig.settings = ReplicationSettings()
        rig.start_anew()
        await rig.until_moved("/b")
        assert read_bytes(rig.partition.log) == expected

    play(scene, topic="t" * 249, rate=0)


# Failing disks.


@pytest.mark.parametrize("kind", ["write", "sync", "sync_directory"])
def test_an_error_of_the_target_disk_during_the_copy_does_not_affect_the_original(kind: Any) -> None:
    async def scene(rig: Rig) -> None:
        rig.start()
        rig.fill(20)
        rig.disk.fail(kind, "/b*")
        rig.move("/b")
        await rig.until(lambda: rig.directory("/b").offline is not None)
        assert not rig.partition.is_offline
        rig.fill(5)
        assert rig.move("/c") is ErrorCode.NONE
        assert rig.move("/b") is ErrorCode.KAFKA_STORAGE_ERROR
        await rig.until_moved("/c")
        assert rig.partition.log.log_end_offset == 50

    play(scene)


def test_an_error_of_the_source_disk_of_a_move_takes_the_replica_offline() -> None:
    async def scene(rig: Rig) -> None:
        rig.start()
        rig.fill(20)
        rig.disk.fail("rename", "/a/*")
        rig.move("/b")
        await rig.until(lambda: rig.directory("/a").offline is not None)
        assert rig.partition.is_offline
        assert rig.directory("/b").offline is None

    play(scene)


def test_an_error_of_the_target_disk_during_the_swap_takes_the_replica_offline_and_reports_its_directory() -> None:
    async def scene(rig: Rig) -> None:
        rig.start()
        rig.fill(20)
        rig.disk.fail("rename", f"/b/{TOPIC}-0.*-future")
        rig.move("/b")
        await rig.until(lambda: rig.directory("/b").offline is not None)
        assert rig.partition.is_offline
        assert not rig.partition.is_leader
        assert rig.moved == ["/b"]
        # After a restart the disk works, and the copy has everything.
        rig.start_anew()
        assert (rig.partition.directory.path, rig.partition.log.log_end_offset) == ("/b", 40)

    play(scene)


def test_no_empty_replica_is_created_while_a_disk_error_prevents_the_end_of_an_interrupted_swap() -> None:
    async def scene(rig: Rig) -> None:
        rig.start()
        rig.fill(20)
        rig.disk.fail("rename", f"/b/{TOPIC}-0.*-future", times=2)
        rig.move("/b")
        await rig.until(lambda: rig.directory("/b").offline is not None)
        rig.start_anew()
        assert rig.directory("/b").offline is not None
        rig.replicas.apply(rig.image, [TOPIC_ID], ())
        assert rig.replicas.ensure(TOPIC, 0) is None
        await rig.upkeep.remove_dropped()
        rig.start_anew()
        assert (rig.partition.directory.path, rig.partition.log.log_end_offset) == ("/b", 40)

    play(scene)


# What cannot happen.


def test_an_unexpected_error_ends_the_moves_to_that_directory_and_they_can_be_requested_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*_: object) -> int:
        raise AssertionError("impossible")

    async def scene(rig: Rig) -> None:
        rig.start()
        parts = [part for part in rig.replicas.by_name[TOPIC].values() if part.directory.path != "/c"]
        assert len(parts) > 1
        with monkeypatch.context() as patched:
            patched.setattr(FutureLog, "copy_from", fail)
            for part in parts:
                assert rig.replicas.moves.move(part, rig.directory("/c")) is ErrorCode.NONE
            await rig.until(lambda: rig.loop.problems)
        assert [str(one["exception"]) for one in rig.loop.problems] == ["impossible"]
        rig.loop.problems.clear()
        assert [part.future for part in parts] == [None] * len(parts)
        assert rig.directory("/c").futures == []
        for part in parts:
            assert rig.replicas.moves.move(part, rig.directory("/c")) is ErrorCode.NONE
        await rig.until(lambda: all(part.directory.path == "/c" for part in parts))

    play(scene, partitions=6)


def test_a_broker_that_stops_keeps_the_copies_of_unfinished_moves() -> None:
    async def scene(rig: Rig) -> None:
        rig.start()
        rig.fill(10)
        rig.move("/b")
        await asyncio.sleep(0.1)
        await rig.replicas.moves.close()
        assert rig.partition.future is not None
        assert len(rig.directory("/b").futures) == 1

    # Nothing ever comes.
    play(scene, rate=0)


# Dying.


@pytest.mark.parametrize("how", ["process", "power"])
def test_a_move_continues_without_loss_after_a_crash_of_the_broker_at_any_step(how: str) -> None:
    """Within every fourth call that changes something on the disks, from the request to the end of the move."""
    nth = 1
    while _dies_at(nth, how):
        nth += 4
    assert nth > 100, "a move is made of many calls"


def _dies_at(nth: int, how: str) -> bool:
    """Return whether the broker died before the move had ended."""

    async def first_life(rig: Rig) -> None:
        rig.start()
        rig.fill(25)
        rig.partition.log.flush()
        rig.partition.log.delete_records_before(21)
        rig.directories[0].write_checkpoints()
        await asyncio.sleep(1)
        expected.append(read_bytes(rig.partition.log))
        rig.disk.crash_at("change", nth=nth)
        rig.move("/b")

    async def scene(rig: Rig) -> None:
        process = rig.loop.new_process("broker")
        await asyncio.wait([rig.loop.spawn(process, first_life(rig))])
        await asyncio.sleep(10)
        ended.extend(rig.moved)
        rig.loop.kill(process)
        rig.disk.heal()
        if how == "power":
            rig.disk.lose_power()
        else:
            rig.disk.crash_process()
        rig.start()
        is_moving = rig.partition.future is not None
        assert rig.partition.log.log_start_offset == 21
        assert [read_bytes(rig.partition.log)] == expected
        await asyncio.sleep(10)
        assert rig.partition.directory.path == ("/b" if is_moving or ended else rig.partition.directory.path)
        assert [read_bytes(rig.partition.log)] == expected
        assert rig.where() == [rig.partition.directory.path]

    expected: list[bytes] = []
    ended: list[str] = []
    play(scene)
    return not ended
