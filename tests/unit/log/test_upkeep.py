"""The log's background jobs, each called by itself, and all together with a manual clock."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from pessoa.base.clock import ManualClock
from pessoa.base.ids import Uuid
from pessoa.log.checkpoints import RECOVERY_POINT_FILE, parse_offsets
from pessoa.log.directory import LogDirectory
from pessoa.log.flusher import Flusher
from pessoa.log.log_config import UNLIMITED
from pessoa.log.os_disk import OsDisk
from pessoa.log.simulated_disk import SimulatedDisk
from pessoa.log.upkeep import Upkeep, UpkeepSettings
from tests.support.batches import NOW_MS, idempotent, plain
from tests.support.partition_logs import EVERY_BATCH, base_offsets, fill, produce

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from pessoa.log.files import Disk
    from pessoa.log.log_config import LogConfig
    from pessoa.log.partition_log import PartitionLog

KEEP = EVERY_BATCH.but(segment_bytes=1000, retention_ms=UNLIMITED, file_delete_delay_ms=60_000)
ID = Uuid.of(1001)
MINUTE_MS = 60_000


class World:
    """The log directories of a broker, without the broker: two directories on one disk."""

    def __init__(self) -> None:
        self.clock = ManualClock(NOW_MS)
        self.faults = SimulatedDisk(now_ms=self.clock.now_ms)
        self.disk: Disk = self.faults
        self.directories = [LogDirectory(self.disk, path) for path in ("/one", "/two")]
        for directory in self.directories:
            directory.open(lambda _: KEEP, NOW_MS)
        self.flusher = Flusher()
        self.upkeep = Upkeep(self.disk, self.directories, self.clock, self.flusher)

    def create(self, number: int, config: LogConfig = KEEP, topic: str = "orders") -> PartitionLog:
        log = self.directories[number].create(topic, 0, ID, config, NOW_MS)
        self.upkeep.look_after(self.directories[number], log)
        return log

    def names(self, suffix: str, path: str = "/one/orders-0") -> list[str]:
        return [name for name in self.disk.list(path) if name.endswith(suffix)]


def run(scenario: Callable[[World], Awaitable[None]]) -> World:
    async def whole() -> World:
        world = World()
        await scenario(world)
        return world

    return asyncio.run(whole())


async def until(condition: Callable[[], object]) -> None:
    """Wait until a thread has made the condition true, with a deadline."""
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110  a thread brings it about, and signals nothing
            await asyncio.sleep(0.001)


def test_a_truncation_is_synced_before_long_and_the_roll_need_not_wait_for_it() -> None:
    async def scenario(world: World) -> None:
        log = world.create(0)
        fill(log, 4)
        log.truncate_to(3, NOW_MS)
        fill(log, 1, epoch=1)
        assert (log.has_unsynced_truncation, log.durable_high_watermark) == (True, 3)
        await world.upkeep.flush_truncated()
        assert (log.has_unsynced_truncation, log.durable_high_watermark, log.recovery_point) == (False, 4, 4)
        count = world.flusher.flush_count
        await world.upkeep.flush_truncated()
        assert world.flusher.flush_count == count

    run(scenario)


def test_the_upkeep_syncs_logs_that_a_dead_broker_may_have_truncated() -> None:
    async def scenario(world: World) -> None:
        fill(world.create(0), 4)
        world.faults.crash_process()
        directory = LogDirectory(world.disk, "/one")
        directory.open(lambda _: KEEP, NOW_MS)
        [log] = directory.partitions.values()
        upkeep = Upkeep(world.disk, [directory], world.clock, world.flusher)
        assert log.has_unsynced_truncation
        await upkeep.flush_truncated()
        assert (log.has_unsynced_truncation, log.recovery_point) == (False, 4)

    run(scenario)


def test_expired_segments_are_dropped_and_their_files_wait_for_readers() -> None:
    async def scenario(world: World) -> None:
        log = world.create(0, KEEP.but(retention_bytes=2000))
        fill(log, 20, size=200)
        await world.upkeep.apply_retention()
        assert base_offsets(log) == [10, 15]
        assert len(world.names(".log.deleted")) == 2
        world.clock.advance_ms(59_999)
        await world.upkeep.remove_dropped()
        assert len(world.names(".log.deleted")) == 2
        assert repr(world.upkeep) == "<Upkeep of 2 directories, 2 segments to remove>"
        world.clock.advance_ms(1)
        await world.upkeep.remove_dropped()
        assert world.names(".deleted") == []

    run(scenario)


def test_segments_that_a_future_log_dropped_before_its_promotion_are_removed_after_it() -> None:
    async def scenario(world: World) -> None:
        directory = world.directories[1]
        future = directory.create_future("orders", 0, ID, Uuid.of(7), KEEP.but(retention_bytes=2000), NOW_MS)
        world.upkeep.look_after(directory, future.log)
        fill(future.log, 20, size=200)
        future.log.drop_segments(2, NOW_MS)
        directory.promote("orders", future)
        assert len(world.names(".log.deleted", "/two/orders-0")) == 2
        world.clock.advance_ms(60_000)
        await world.upkeep.remove_dropped()
        assert world.names(".deleted", "/two/orders-0") == []
        assert len(world.names(".log", "/two/orders-0")) == len(future.log.segments)

    run(scenario)


def test_a_deleted_partition_is_removed_with_its_directory() -> None:
    async def scenario(world: World) -> None:
        fill(world.create(0), 3)
        world.directories[0].remove("orders", 0, Uuid.of(1))
        (name,) = world.directories[0].unwanted
        assert world.disk.exists(f"/one/{name}")
        await world.upkeep.remove_dropped()
        assert not world.disk.exists(f"/one/{name}")
        assert world.directories[0].unwanted == []

    run(scenario)


def test_a_full_segment_is_synced_in_the_background() -> None:
    async def scenario(world: World) -> None:
        log = world.create(0)
        fill(log, 7, size=200)
        await until(lambda: log.recovery_point == 7)
        assert world.flusher.flush_count == 1

    run(scenario)


def test_expired_producers_are_removed_from_the_producer_state() -> None:
    async def scenario(world: World) -> None:
        log = world.create(0)
        produce(log, idempotent(1, 0, timestamp=NOW_MS))
        produce(log, idempotent(2, 0, timestamp=NOW_MS + 10))
        world.clock.advance_ms(log.config.producer_id_expiration_ms + 5)
        await world.upkeep.expire_producers()
        assert [entry.producer_id for entry in log.producers.entries()] == [2]

    run(scenario)


def test_a_log_with_flush_ms_is_synced_when_that_has_passed() -> None:
    async def scenario(world: World) -> None:
        log, other = world.create(0, KEEP.but(flush_ms=5000)), world.create(1)
        fill(log, 2)
        fill(other, 2)
        await world.upkeep.flush_due()
        world.clock.advance_ms(4999)
        await world.upkeep.flush_due()
        assert log.recovery_point == 0
        world.clock.advance_ms(1)
        await world.upkeep.flush_due()
        assert (log.recovery_point, other.recovery_point) == (2, 0)
        # The next one waits its time from when it was seen.
        fill(log, 1)
        await world.upkeep.flush_due()
        assert log.recovery_point == 2
        world.clock.advance_ms(5000)
        await world.upkeep.flush_due()
        assert log.recovery_point == 3

    run(scenario)


def test_checkpoints_are_written_for_every_directory_that_is_online() -> None:
    async def scenario(world: World) -> None:
        for number in range(2):
            log = world.create(number)
            fill(log, 3)
            log.flush()
        world.faults.fail("any", "/one/*", times=None)
        await world.upkeep.write_checkpoints()
        world.faults.heal()
        assert world.directories[0].offline is not None
        said = [world.disk.read_file(f"{path}/{RECOVERY_POINT_FILE}").decode() for path in ("/one", "/two")]
        assert [parse_offsets(text, "") for text in said] == [{}, {("orders", 0): 3}]

    run(scenario)


@pytest.mark.parametrize("job", ["apply_retention", "flush_due", "remove_dropped"])
def test_a_disk_that_fails_takes_its_directory_offline_and_the_jobs_go_on_with_the_others(job: str) -> None:
    async def scenario(world: World) -> None:
        config = KEEP.but(retention_bytes=1000, flush_ms=1, file_delete_delay_ms=0)
        logs = [world.create(number, config) for number in range(2)]
        for log in logs:
            fill(log, 10, size=200)
            fill(log, 1)
        if job == "remove_dropped":
            await world.upkeep.apply_retention()
        await until(lambda: world.flusher.flush_count >= 2)
        for log in logs:
            fill(log, 1)
        await world.upkeep.flush_due()
        world.clock.advance_ms(MINUTE_MS)
        world.faults.fail("change", "/one/*", times=None)
        await getattr(world.upkeep, job)()
        assert world.directories[0].offline is not None
        assert world.directories[1].offline is None
        done = {
            "apply_retention": lambda: base_offsets(logs[1])[0] == 5,
            "flush_due": lambda: logs[1].recovery_point == logs[1].log_end_offset,
            "remove_dropped": lambda: world.names(".deleted", "/two/orders-0") == [],
        }
        assert done[job]()

    run(scenario)


@pytest.mark.parametrize("job", ["apply_retention", "expire_producers", "flush_due"])
def test_background_jobs_go_on_when_a_partition_is_deleted_meanwhile(job: str) -> None:
    async def scenario(world: World) -> None:
        config = KEEP.but(retention_bytes=1000, flush_ms=0)
        for topic in ("orders", "payments", "returns"):
            fill(world.create(0, config, topic), 20, size=200)
        await until(lambda: world.flusher.flush_count >= 3)
        for log in world.directories[0].partitions.values():
            fill(log, 1)
        await world.upkeep.flush_due()
        running = asyncio.ensure_future(getattr(world.upkeep, job)())
        await asyncio.sleep(0)
        for topic in ("payments", "returns"):
            world.directories[0].remove(topic, 0, Uuid.of(7))
        await running
        assert world.directories[0].offline is None

    run(scenario)


def test_retention_is_checked_soon_after_the_start_and_then_at_its_interval() -> None:
    async def scenario(world: World) -> None:
        settings = UpkeepSettings(log_initial_task_delay_ms=30_000, log_retention_check_interval_ms=5 * MINUTE_MS)
        upkeep = Upkeep(world.disk, world.directories, world.clock, world.flusher, settings)
        looked: list[int] = []

        async def look() -> None:
            looked.append(world.clock.now_ms() - NOW_MS)

        upkeep.apply_retention = look  # type: ignore[method-assign]
        running = asyncio.ensure_future(upkeep.run())
        for _ in range(24):
            for _ in range(5):
                await asyncio.sleep(0)
            world.clock.advance_ms(30_000)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        assert looked[:2] == [30_000, 30_000 + 5 * MINUTE_MS]

    run(scenario)


def test_all_jobs_run_by_the_clock(tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        # Several jobs are in threads at once, which the simulated disk is not made for.
        world.disk = OsDisk()
        world.directories = [LogDirectory(world.disk, f"{tmp_path}")]
        world.directories[0].open(lambda _: KEEP, NOW_MS)
        settings = UpkeepSettings(
            log_retention_check_interval_ms=5 * MINUTE_MS, log_flush_offset_checkpoint_interval_ms=MINUTE_MS
        )
        world.upkeep = Upkeep(world.disk, world.directories, world.clock, world.flusher, settings)
        partition = f"{tmp_path}/orders-0"
        log = world.create(0, KEEP.but(retention_ms=MINUTE_MS, flush_ms=1000))
        fill(log, 1)
        produce(log, plain(timestamp=NOW_MS))
        log.update_high_watermark(2)
        running = asyncio.ensure_future(world.upkeep.run())
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        # The jobs wait for the clock again only after they have run, so time passes in small steps.
        async with asyncio.timeout(60):
            while log.log_start_offset != 2 or world.names(".deleted", partition):
                world.clock.advance_ms(500)
                await asyncio.sleep(0.0005)
        assert log.recovery_point == 2
        assert world.disk.exists(f"{tmp_path}/{RECOVERY_POINT_FILE}")
        assert world.clock.now_ms() >= NOW_MS + 6 * MINUTE_MS
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running

    run(scenario)
