"""The shell of the cleaner: which log is cleaned first, the checkpoint written afterwards, and failures."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from uuid import UUID

import pytest

from pessoa.base.clock import ManualClock
from pessoa.base.ids import Uuid
from pessoa.log.checkpoints import parse_offsets
from pessoa.log.compaction.cleaning_pass import CleaningPass
from pessoa.log.compaction.cleaning_plan import CleaningPlan, Finished, Pause, SwapReady
from pessoa.log.compaction.cleaning_process import CleanerDied, CleaningProcess, run_child
from pessoa.log.compaction.log_cleaner import LogCleaner
from pessoa.log.compaction.log_to_clean import CleanerSettings, assess, make_plan
from pessoa.log.directory import LogDirectory
from pessoa.log.files import Disk, DiskError
from pessoa.log.os_disk import OsDisk
from pessoa.log.partition_log import PartitionLog
from pessoa.log.simulated_disk import SimulatedDisk
from pessoa.records.invalid_batch import InvalidBatch
from tests.support.cleaning import CONFIG, NOW_MS, ManualSeconds, all_records, append

PATH = "/data"
TOPIC_ID = Uuid(UUID(int=7).bytes)


class PassInPlace:
    """A pass that runs in the thread that asks for its next step."""

    def __init__(self, disk: Disk, plan: CleaningPlan) -> None:
        self.steps = CleaningPass(disk, plan, ManualSeconds()).steps()
        self.is_stopped = False
        self.before_step: Callable[[], None] = lambda: None

    def next_step(self) -> SwapReady | Finished:
        self.before_step()
        if self.is_stopped:
            raise CleanerDied("it was stopped")
        for step in self.steps:
            if not isinstance(step, Pause):
                return step
        raise AssertionError("a pass ends with Finished")

    def stop(self) -> None:
        self.is_stopped = True

    def close(self) -> None:
        self.steps.close()


def open_directory(disk: Disk, path: str = PATH) -> LogDirectory:
    directory = LogDirectory(disk, path)
    directory.open(lambda _: CONFIG, NOW_MS)
    return directory


def topic(directory: LogDirectory, name: str) -> PartitionLog:
    return directory.create(name, 0, TOPIC_ID, CONFIG, NOW_MS)


def fill(log: PartitionLog, *values: bytes, size: int = 0) -> None:
    for value in values:
        append(log, [(b"key", value + b" " * size)])
    log.roll(NOW_MS)
    log.flush()


def values(log: PartitionLog) -> list[bytes]:
    return [(record.value or b"").strip() for record in all_records(log)]


def checkpoint(directory: LogDirectory, name: str) -> int | None:
    """Return the cleaner's checkpoint of the log as its directory has it in memory; `in_file` reads the file."""
    found = directory.partitions.get((name, 0))
    return None if found is None else found.cleaned_to


def in_file(disk: Disk) -> dict[tuple[str, int], int]:
    return parse_offsets(disk.read_file(f"{PATH}/cleaner-offset-checkpoint").decode(), "")


def test_the_dirtiest_log_is_cleaned_first_and_the_checkpoint_moves() -> None:
    disk = SimulatedDisk()
    directory = open_directory(disk)
    tidy, messy = topic(directory, "tidy"), topic(directory, "messy")
    for log in (tidy, messy):
        fill(log, b"1", b"2")
    cleaner = LogCleaner(disk, [directory], ManualClock(NOW_MS), start_pass=lambda plan: PassInPlace(disk, plan))

    async def run() -> None:
        assert await cleaner.clean_filthiest()
        assert await cleaner.clean_filthiest()
        assert not await cleaner.clean_filthiest()
        assert (values(tidy), values(messy)) == ([b"2"], [b"2"])
        fill(tidy, b"3", size=200)
        fill(messy, b"3", b"4", size=2000)
        assert await cleaner.clean_filthiest()
        assert (values(tidy), values(messy)) == ([b"2", b"3"], [b"4"])

    asyncio.run(run())
    assert checkpoint(directory, "messy") == 4
    text = disk.read_file(f"{PATH}/cleaner-offset-checkpoint").decode()
    assert sorted(text.splitlines()) == ["0", "2", "messy 0 4", "tidy 0 2"]
    disk.crash_process()
    assert checkpoint(open_directory(disk), "tidy") == 2


def test_a_topic_that_was_created_again_does_not_inherit_the_cleaner_checkpoint_of_the_old_one() -> None:
    disk = SimulatedDisk()
    directory = open_directory(disk)
    fill(topic(directory, "orders"), b"1", b"2", b"3")
    cleaner = LogCleaner(disk, [directory], ManualClock(NOW_MS), start_pass=lambda plan: PassInPlace(disk, plan))
    assert asyncio.run(cleaner.clean_filthiest())
    assert checkpoint(directory, "orders") == 3
    directory.remove("orders", 0, TOPIC_ID)
    again = topic(directory, "orders")
    # As many as the checkpoint of the old one says are clean.
    fill(again, b"4", b"5", b"6")
    fill(again, b"7")
    assert asyncio.run(cleaner.clean_filthiest())
    assert values(again) == [b"7"]


def cleaned(disk: Disk) -> tuple[LogDirectory, LogCleaner]:
    """Return a directory with a log of which one of three records of a key is left, and the cleaner that cleaned it."""
    directory = open_directory(disk)
    fill(topic(directory, "orders"), b"1", b"2", b"3")
    cleaner = LogCleaner(disk, [directory], ManualClock(NOW_MS), start_pass=lambda plan: PassInPlace(disk, plan))
    assert asyncio.run(cleaner.clean_filthiest())
    assert checkpoint(directory, "orders") == 3
    assert in_file(disk) == {("orders", 0): 3}
    return directory, cleaner


@pytest.mark.parametrize("how", ["remove", "set_aside"])
def test_a_topic_that_was_created_again_does_not_inherit_the_cleaner_checkpoint_after_a_restart(how: str) -> None:
    disk = SimulatedDisk()
    directory, _ = cleaned(disk)
    getattr(directory, how)("orders", 0, TOPIC_ID)
    assert in_file(disk) == {}
    fill(topic(directory, "orders"), b"4", b"5", b"6", b"7")
    disk.crash_process()
    assert checkpoint(open_directory(disk), "orders") is None


def test_a_checkpoint_that_is_written_late_does_not_bring_back_a_topic_that_was_deleted() -> None:
    disk = SimulatedDisk()
    directory, _ = cleaned(disk)
    # As the cleaner does it after its next pass: rendered now, written by a thread that comes to it later.
    directory.partitions["orders", 0].cleaned_to = 2
    rendered = directory.render_checkpoints("cleaner-offset-checkpoint")
    directory.remove("orders", 0, TOPIC_ID)
    topic(directory, "orders")
    directory.write_rendered(rendered)
    assert in_file(disk) == {}


def test_a_checkpoint_of_a_topic_that_is_gone_is_dropped_at_the_start() -> None:
    disk = SimulatedDisk()
    disk.make_directory(PATH)
    disk.write_file(f"{PATH}/cleaner-offset-checkpoint", b"0\n1\norders 0 2\n")
    directory = open_directory(disk)
    assert in_file(disk) == {}
    cleaner = LogCleaner(disk, [directory], ManualClock(NOW_MS), start_pass=lambda plan: PassInPlace(disk, plan))
    assert not asyncio.run(cleaner.clean_filthiest())
    log = topic(directory, "orders")
    fill(log, b"1", b"2", b"3")
    assert asyncio.run(cleaner.clean_filthiest())
    assert values(log) == [b"3"]


def test_a_truncation_lowers_the_cleaner_checkpoint_before_more_is_appended() -> None:
    disk = SimulatedDisk()
    directory, cleaner = cleaned(disk)
    log = directory.partitions["orders", 0]
    log.truncate_to(1, NOW_MS)
    end_offset = log.log_end_offset
    assert end_offset < 3
    fill(log, b"4", b"5", b"6", b"7")
    assert checkpoint(directory, "orders") == end_offset
    assert in_file(disk) == {("orders", 0): end_offset}
    assert asyncio.run(cleaner.clean_filthiest())
    assert values(log) == [b"7"]


def test_the_cleaner_checkpoint_does_not_move_if_the_log_is_truncated_at_the_end_of_a_pass() -> None:
    disk = SimulatedDisk()
    directory = open_directory(disk)
    log = topic(directory, "orders")
    fill(log, b"1", b"2", b"3")

    class CutAtTheEnd(PassInPlace):
        def close(self) -> None:
            log.truncate_to(1, NOW_MS)
            super().close()

    cleaner = LogCleaner(disk, [directory], ManualClock(NOW_MS), start_pass=lambda plan: CutAtTheEnd(disk, plan))
    assert not asyncio.run(cleaner.clean_filthiest())
    assert checkpoint(directory, "orders") is None


def test_the_cleaner_checkpoint_is_at_most_the_log_end_after_recovery_has_truncated_the_log() -> None:
    disk = SimulatedDisk()
    directory, _ = cleaned(disk)
    directory.close()
    disk.write_file(f"{PATH}/cleaner-offset-checkpoint", b"0\n1\norders 0 9\n")
    assert checkpoint(open_directory(disk), "orders") == 3
    assert in_file(disk) == {("orders", 0): 3}


def test_a_checkpoint_moves_with_its_log_to_another_directory() -> None:
    disk = SimulatedDisk()
    first, second = open_directory(disk), open_directory(disk, "/other")
    original = topic(first, "orders")
    fill(original, b"1", b"2", b"3")
    neighbour = topic(first, "payments")
    plans: list[CleaningPlan] = []

    def start(plan: CleaningPlan) -> PassInPlace:
        plans.append(plan)
        return PassInPlace(disk, plan)

    cleaner = LogCleaner(disk, [first, second], ManualClock(NOW_MS), start_pass=start)
    assert asyncio.run(cleaner.clean_filthiest())
    future = second.create_future("orders", 0, TOPIC_ID, TOPIC_ID, CONFIG, NOW_MS)
    future.resume(original, NOW_MS)
    fill(original, b"3")
    # Not while it is copied: the copy would be less clean than the checkpoint says.
    assert not asyncio.run(cleaner.clean_filthiest())
    while future.copy_from(original, 1 << 20, NOW_MS):
        pass
    future.log.take_over(original)
    original.successor = future.log
    first.retire("orders", 0, future.retired_name)
    second.promote("orders", future)
    # Its file is written in between, without what has moved.
    fill(neighbour, b"1", b"2")
    assert asyncio.run(cleaner.clean_filthiest())
    assert in_file(disk) == {("payments", 0): 2}
    moved = second.partitions["orders", 0]
    moved.roll(NOW_MS)
    fill(moved, b"4", b"5", b"6", b"7")
    assert asyncio.run(cleaner.clean_filthiest())
    assert (plans[-1].directory, plans[-1].first_dirty_offset) == ("/other/orders-0", 3)
    assert checkpoint(first, "orders") is None
    assert checkpoint(second, "orders") == 8


def test_a_pass_is_thrown_away_when_its_log_begins_to_move() -> None:
    disk = SimulatedDisk()
    first, second = open_directory(disk), open_directory(disk, "/other")
    log = topic(first, "orders")
    fill(log, b"1", b"2")

    def move() -> None:
        if not second.futures:
            second.create_future("orders", 0, TOPIC_ID, TOPIC_ID, CONFIG, NOW_MS)

    def start(plan: CleaningPlan) -> PassInPlace:
        running = PassInPlace(disk, plan)
        running.before_step = move
        return running

    cleaner = LogCleaner(disk, [first, second], ManualClock(NOW_MS), start_pass=start)
    assert not asyncio.run(cleaner.clean_filthiest())
    assert values(log) == [b"1", b"2"]
    assert checkpoint(first, "orders") is None
    second.remove_future(second.futures[0])


def test_a_log_that_is_not_compacted_is_left_alone() -> None:
    disk = SimulatedDisk()
    directory = open_directory(disk)
    log = topic(directory, "events")
    fill(log, b"1", b"2")
    log.configure(CONFIG.but(cleanup_policy=frozenset({"delete"})))
    cleaner = LogCleaner(disk, [directory], ManualClock(NOW_MS), start_pass=lambda plan: PassInPlace(disk, plan))
    assert not asyncio.run(cleaner.clean_filthiest())
    assert values(log) == [b"1", b"2"]


def test_the_cleaner_does_not_retry_a_log_with_a_damaged_batch() -> None:
    disk = SimulatedDisk()
    directory = open_directory(disk)
    log = topic(directory, "orders")
    fill(log, b"1", b"2")
    disk.flip_bit(log.segments[0].file.path, 65)
    plans: list[CleaningPlan] = []

    def start(plan: CleaningPlan) -> PassInPlace:
        plans.append(plan)
        return PassInPlace(disk, plan)

    cleaner = LogCleaner(disk, [directory], ManualClock(NOW_MS), start_pass=start)
    assert not asyncio.run(cleaner.clean_filthiest())
    assert not asyncio.run(cleaner.clean_filthiest())
    assert len(plans) == 1
    assert directory.offline is None


def test_a_write_error_in_a_cleaning_pass_takes_the_log_directory_offline() -> None:
    disk = SimulatedDisk()
    directory = open_directory(disk)
    fill(topic(directory, "orders"), b"1", b"2")
    disk.fail("write", "*.log.cleaned")
    cleaner = LogCleaner(disk, [directory], ManualClock(NOW_MS), start_pass=lambda plan: PassInPlace(disk, plan))
    assert not asyncio.run(cleaner.clean_filthiest())
    assert directory.offline is not None


@pytest.mark.parametrize("how", ["deleted", "truncated", "dropped", "killed"])
def test_a_log_that_changes_during_its_cleaning_pass_is_cleaned_in_a_later_pass(how: str) -> None:
    disk = SimulatedDisk()
    directory = open_directory(disk)
    log = topic(directory, "orders")
    fill(log, b"1", b"2")

    def meanwhile() -> None:
        if how == "deleted":
            directory.remove("orders", 0, TOPIC_ID)
        elif how == "truncated":
            log.truncate_to(1, NOW_MS)
        elif how == "dropped":
            log.drop_segments(1, NOW_MS)

    def start(plan: CleaningPlan) -> PassInPlace:
        started = PassInPlace(disk, plan)
        started.before_step = started.stop if how == "killed" else meanwhile
        return started

    cleaner = LogCleaner(disk, [directory], ManualClock(NOW_MS), start_pass=start)
    assert not asyncio.run(cleaner.clean_filthiest())
    assert directory.offline is None
    assert checkpoint(directory, "orders") is None
    if how != "deleted":
        assert not [name for name in disk.contents() if name.endswith((".cleaned", ".swap"))]
        assert values(log) == {"truncated": [b"1"], "dropped": [], "killed": [b"1", b"2"]}[how]


class WatchedClock(ManualClock):
    """A clock that signals when a wait begins."""

    def __init__(self, now_ms: int) -> None:
        super().__init__(now_ms)
        self.is_awaited = asyncio.Event()

    async def wait_ms(self, duration_ms: int) -> None:
        self.is_awaited.set()
        await super().wait_ms(duration_ms)


def test_run_waits_for_the_backoff_when_nothing_is_due() -> None:
    disk = SimulatedDisk()
    directory = open_directory(disk)
    log = topic(directory, "orders")
    clock = WatchedClock(NOW_MS)
    cleaner = LogCleaner(disk, [directory], clock, start_pass=lambda plan: PassInPlace(disk, plan))

    async def run() -> None:
        task = asyncio.create_task(cleaner.run())
        async with asyncio.timeout(60):
            await clock.is_awaited.wait()
            fill(log, b"1", b"2")
            clock.advance_ms(14_999)
            await asyncio.sleep(0)
            assert values(log) == [b"1", b"2"]
            clock.is_awaited.clear()
            clock.advance_ms(1)
            await clock.is_awaited.wait()
        assert values(log) == [b"2"]
        task.cancel()

    asyncio.run(run())


# A process of its own.


def real_log(tmp_path: Path) -> tuple[OsDisk, LogDirectory, PartitionLog]:
    disk = OsDisk()
    directory = open_directory(disk, str(tmp_path))
    log = topic(directory, "orders")
    return disk, directory, log


def plan_for(log: PartitionLog) -> CleaningPlan:
    return make_plan(log, assess(log, None, NOW_MS), CleanerSettings(), NOW_MS)


def test_a_process_cleans_a_log_on_a_real_disk(tmp_path: Path) -> None:
    disk, directory, log = real_log(tmp_path)
    for number in range(300):
        append(log, [(b"%d" % (number % 7), b"%d" % number)])
    log.roll(NOW_MS)
    log.flush()
    cleaner = LogCleaner(disk, [directory], ManualClock(NOW_MS))
    assert asyncio.run(cleaner.clean_filthiest())
    assert [record.offset for record in all_records(log)] == list(range(293, 300))
    assert cleaner.last_stats is not None
    assert (cleaner.last_stats.records_read, cleaner.last_stats.records_kept) == (300, 7)
    assert not [name for name in disk.list(log.directory) if name.endswith((".cleaned", ".swap"))]


def test_an_error_in_the_cleaning_process_is_raised_again_with_its_class(tmp_path: Path) -> None:
    _, _, log = real_log(tmp_path)
    fill(log, b"1", b"2")
    plan = plan_for(log)
    path = Path(log.segments[0].file.path)
    sound = path.read_bytes()
    path.write_bytes(sound[:65] + b"\xff" + sound[66:])
    process = CleaningProcess(plan)
    with pytest.raises(InvalidBatch, match="the CRC of a batch is wrong"):
        process.next_step()
    process.close()
    path.unlink()
    process = CleaningProcess(plan)
    with pytest.raises(DiskError, match="No such file") as caught:
        process.next_step()
    assert caught.value.is_missing
    process.close()


def drain(process: CleaningProcess) -> None:
    """Ask for steps until there are none: the signal may come later than the first steps."""
    while True:
        process.next_step()


def test_a_pass_whose_cleaner_is_cancelled_while_it_starts_is_stopped_and_closed() -> None:
    disk = SimulatedDisk()
    directory = open_directory(disk)
    fill(topic(directory, "orders"), b"1", b"2")
    is_starting, may_start, events = threading.Event(), threading.Event(), list[str]()

    class SlowStart(PassInPlace):
        def stop(self) -> None:
            events.append("stop")
            super().stop()

        def close(self) -> None:
            events.append("close")
            super().close()

    def start(plan: CleaningPlan) -> SlowStart:
        is_starting.set()
        assert may_start.wait(60)
        return SlowStart(disk, plan)

    cleaner = LogCleaner(disk, [directory], ManualClock(NOW_MS), start_pass=start)

    async def run() -> None:
        task = asyncio.create_task(cleaner.clean_filthiest())
        await asyncio.to_thread(is_starting.wait, 60)
        task.cancel()
        await asyncio.sleep(0)
        may_start.set()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert events == ["stop", "close"]

    asyncio.run(run())


def test_reading_from_a_cleaning_process_that_was_stopped_raises_cleaner_died(tmp_path: Path) -> None:
    _, _, log = real_log(tmp_path)
    fill(log, b"1", b"2")
    process = CleaningProcess(plan_for(log))
    process.stop()
    with pytest.raises(CleanerDied, match="exit code -9"):
        drain(process)
    process.close()


def test_a_log_whose_cleaner_cannot_be_started_is_cleaned_another_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk, directory, log = real_log(tmp_path)
    fill(log, b"1", b"2")
    cleaner = LogCleaner(disk, [directory], ManualClock(NOW_MS))
    with monkeypatch.context() as patched:
        # There is nothing to start: the same class of error as when there are too few descriptors.
        patched.setattr(sys, "executable", f"{tmp_path}/nothing")
        assert not asyncio.run(cleaner.clean_filthiest())
    assert directory.offline is None
    assert values(log) == [b"1", b"2"]
    assert asyncio.run(cleaner.clean_filthiest())
    assert values(log) == [b"2"]


def test_a_cleaning_process_whose_parent_has_ended_renames_no_file(tmp_path: Path) -> None:
    disk, _, log = real_log(tmp_path)
    fill(log, b"1", b"2")
    names = disk.list(log.directory)
    sent: list[object] = []
    run_child(plan_for(log), sent.append, lambda: True)
    assert sent == []
    assert disk.list(log.directory) == names


def test_as_many_passes_run_at_once_as_are_configured_each_over_another_log_and_settings_hold_at_once(
    tmp_path: Path,
) -> None:
    """With one, the second pass waits for the first; when there may be two, it begins."""
    disk = OsDisk()
    directory = open_directory(disk, str(tmp_path))
    for name in ("orders", "payments"):
        fill(topic(directory, name), b"1", b"2")
    held = threading.Event()
    begun: list[str] = []

    def start(plan: CleaningPlan) -> PassInPlace:
        running = PassInPlace(disk, plan)
        begun.append(plan.directory)
        running.before_step = wait_for_release
        return running

    def wait_for_release() -> None:
        assert held.wait(60)

    async def scenario() -> None:
        cleaner = LogCleaner(disk, [directory], ManualClock(NOW_MS), CleanerSettings(threads=0), start)
        running = asyncio.ensure_future(cleaner.run())
        await asyncio.sleep(0)
        assert begun == []
        cleaner.configure(CleanerSettings(threads=1))
        await until(lambda: len(begun) == 1)
        assert len(cleaner._busy) == 1
        cleaner.configure(CleanerSettings(threads=2))
        await until(lambda: len(begun) == 2)
        assert len(set(begun)) == 2
        held.set()
        await until(lambda: not cleaner._busy)
        assert {key[0]: log.cleaned_to for key, log in directory.partitions.items()} == {"orders": 2, "payments": 2}
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    async def until(condition: Callable[[], object]) -> None:
        async with asyncio.timeout(60):
            while not condition():  # noqa: ASYNC110  # threads have to come so far
                await asyncio.sleep(0.001)

    try:
        asyncio.run(scenario())
    finally:
        held.set()


def test_passes_share_the_buffer_and_the_rate_that_are_configured() -> None:
    settings = CleanerSettings(dedupe_buffer_size=1000, io_buffer_load_factor=1.0, threads=4)
    assert settings.map_bytes == 250
