"""One script of a partition log, which fails or crashes at every single call of the disk.

The script below does everything that changes files: appends of every kind, rolls, an aborted transaction, truncation,
deletion, flushes, checkpoints, compaction, and a clean shutdown. It runs once to count the calls, and then again for
every call, which fails, or in which the process dies, with or without a power loss. The log that is opened afterwards
must be as before the step, as after it, or in a state between them: the comparison is that of the state machine
(`log_model`, `log_comparison`).

A failure names the call and the seed: `run(Ending(…))` repeats it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random
from typing import Literal, NamedTuple

import pytest

from pessoa.base.ids import Uuid
from pessoa.log.directory import DirectoryOffline, LogDirectory
from pessoa.log.files import DiskError
from pessoa.log.log_config import LogConfig
from pessoa.log.partition_log import PartitionLog, ReadUpTo
from pessoa.log.retention import expired_segments
from pessoa.log.simulated_disk import Crashed, SimulatedDisk
from pessoa.records.builder import build_batch
from pessoa.records.control_records import ControlRecordType, build_transaction_marker
from pessoa.records.record import Record
from tests.property.log_compaction import check_compaction, clean
from tests.property.log_comparison import (
    adopt,
    assert_same,
    check_read,
    check_whole,
    fingerprint,
    forget_older_batches,
    found_batches,
)
from tests.property.log_model import LogModel

ROOT = "/data"
KEY = ("orders", 0)
NOW_MS = 1_700_000_000_000
PRODUCE_VERSION = 12
# A topic that was compacted once and is no longer: what compaction has left must survive without being expected.
CONFIG = LogConfig(segment_bytes=1 << 16, index_interval_bytes=100, delete_retention_ms=0)


class Ending(NamedTuple):
    """How a run ends: which disk call fails or crashes, and whether the process is killed or the power lost then."""

    how: Literal["dies", "fails", "tears"]
    nth: int
    loses_power: bool
    seed: int = 0


class Step(NamedTuple):
    """An operation on the log, and the same on the model."""

    name: str
    do: Callable[[], object]
    change: Callable[[LogModel], object]


class Story:
    """The script, on one disk. `model` is the expected state before the present step."""

    def __init__(self, disk: SimulatedDisk) -> None:
        self.disk = disk
        self.epoch = 0
        self.model = LogModel()
        self.directory = LogDirectory(disk, ROOT)
        self.directory.open(lambda _: CONFIG, NOW_MS)
        self.log = self.directory.create(*KEY, Uuid.of(1000), CONFIG, NOW_MS)
        self.log.producers.verification_enabled = False

    def tell(self) -> Iterator[Step]:
        """Yield the steps, each created when the one before it is done."""
        yield self.append(b"a", b"b")
        yield self.append(b"a", producer=(1, 0))
        yield self.append(b"c", producer=(2, 0), is_transactional=True)
        yield self.roll()
        yield self.append(b"c" * 300, producer=(1, 1))
        yield self.marker(2, ControlRecordType.ABORT)
        yield self.flush()
        yield self.append(b"d", producer=(3, 0), is_transactional=True)
        yield self.roll()
        yield self.replicate()
        yield self.checkpoint()
        yield self.append(b"e", b"f")
        yield self.append(b"g", producer=(1, 2))
        yield self.roll()
        yield self.append(b"h")
        # Across a segment, and within the part that a flush has made durable.
        yield self.flush()
        yield self.truncate_to(self.model.high_watermark + 1)
        self.epoch += 1
        yield self.append(b"i", producer=(1, 2))
        yield self.marker(3, ControlRecordType.COMMIT)
        yield self.roll()
        yield self.append(b"a", b"c")
        yield self.replicate()
        yield self.delete_before(3)
        yield self.flush()
        yield self.compact()
        yield self.append(b"k", producer=(3, 1))
        yield self.replicate()
        yield self.delete_before(self.log.segments[1].base_offset)
        yield self.drop_expired()
        yield self.append(b"l")
        yield self.stop()
        yield self.open()
        yield self.append(b"m", producer=(3, 2))
        yield self.flush()

    # What the steps are.

    def append(self, *keys: bytes, producer: tuple[int, int] = (-1, -1), is_transactional: bool = False) -> Step:
        value = b"offset %d in epoch %d" % (self.model.log_end, self.epoch)
        data = build_batch(
            [Record(number, NOW_MS + number, key, value) for number, key in enumerate(keys)],
            producer_id=producer[0],
            producer_epoch=0 if producer[0] >= 0 else -1,
            base_sequence=producer[1],
            transactional=is_transactional,
        )
        return Step(
            f"append {keys!r}",
            lambda: self.log.append_as_leader(memoryview(bytearray(data)), self.epoch, NOW_MS, PRODUCE_VERSION),
            lambda model: model.lead(data, self.epoch, NOW_MS),
        )

    def marker(self, producer_id: int, kind: ControlRecordType) -> Step:
        data = build_transaction_marker(
            kind, producer_id=producer_id, producer_epoch=0, coordinator_epoch=1, timestamp=NOW_MS
        )
        return Step(
            f"append {kind.name}",
            lambda: self.log.append_own(memoryview(bytearray(data)), self.epoch, NOW_MS),
            lambda model: model.lead(data, self.epoch, NOW_MS),
        )

    def roll(self) -> Step:
        return Step("roll", lambda: self.log.roll(NOW_MS), lambda _: None)

    def replicate(self) -> Step:
        end = self.model.log_end
        return Step("replicate", lambda: self.log.update_high_watermark(end), lambda model: model.replicate(end))

    def flush(self) -> Step:
        return Step("flush", self.log.flush, lambda model: model.synced(model.log_end, model.truncations))

    def checkpoint(self) -> Step:
        return Step("checkpoint", self.directory.write_checkpoints, lambda _: None)

    def truncate_to(self, offset: int) -> Step:
        def change(model: LogModel) -> None:
            model.truncate(offset)
            model.shorten_to(max(model.last_batch_end(), self.log.segments[-1].base_offset))

        return Step("truncate", lambda: self.log.truncate_to(offset, NOW_MS), change)

    def delete_before(self, offset: int) -> Step:
        return Step(
            "delete records", lambda: self.log.delete_records_before(offset), lambda model: model.delete_before(offset)
        )

    def drop_expired(self) -> Step:
        count = expired_segments(self.log, NOW_MS).segments
        assert count == 1
        start = self.log.segments[count].base_offset
        return Step(
            "drop segments",
            lambda: self.log.drop_segments(count, NOW_MS),
            lambda model: model.delete_before(start),
        )

    def compact(self) -> Step:
        """Return the step of a compaction pass, whose result the cleaner decides; it is checked at the end of the
        pass."""
        before = found_batches(self.log)

        def change(model: LogModel) -> None:
            check_compaction(self.log, model, before, self.log.active.base_offset, NOW_MS)
            assert sum(len(batch.records) for batch in model.batches) < sum(len(batch.records) for batch in before)

        return Step("compact", lambda: clean(self.disk, self.directory, self.log, NOW_MS), change)

    def stop(self) -> Step:
        return Step("stop", self.directory.close, lambda model: model.stopped_in_order())

    def open(self) -> Step:
        def do() -> None:
            self.directory = LogDirectory(self.disk, ROOT)
            self.directory.open(lambda _: CONFIG, NOW_MS)
            self.log = self.directory.partitions[KEY]
            self.log.producers.verification_enabled = False

        def change(model: LogModel) -> None:
            assert self.directory.was_clean
            model.reloaded_at = model.log_end
            forget_older_batches(self.log, model)

        return Step("open", do, change)

    def chapters_without_faults(self) -> list[Chapter]:
        """Run without any fault; return the states before and after each step."""
        chapters = []
        for step in self.tell():
            before = self.model.copy()
            step.do()
            step.change(self.model)
            if step.name == "truncate":
                forget_older_batches(self.log, self.model)
            if step.name != "stop":
                check_whole(self.log, self.model, self.disk)
            chapters.append(Chapter(step.name, before, self.model.copy()))
        return chapters

    def run_until_it_stops(self, chapters: list[Chapter]) -> Chapter:
        """Return the chapter in which an error or a crash stops the story; the last one if none does."""
        for step, chapter in zip(self.tell(), chapters, strict=True):
            try:
                step.do()
            except (Crashed, DiskError, DirectoryOffline):
                return chapter
            self.model = chapter.after.copy()
        return chapters[-1]


class Chapter(NamedTuple):
    step: str
    before: LogModel
    after: LogModel


def begun(seed: int) -> Story:
    return Story(SimulatedDisk(seed))


def in_doubt(chapter: Chapter, loses_power: bool) -> LogModel:
    """Return a model for a step that was done, not done, or done in part: what both states have must be present, after
    a power loss as far as it was synced."""
    before, after = chapter.before, chapter.after
    model = after.copy()
    model.highest_watermark = max(before.highest_watermark, after.highest_watermark)
    if loses_power:
        model.durable_end = min(before.durable_end, after.durable_end)
        model.durable_start = min(before.durable_start, after.durable_start)
        model.ghosts = [*before.possible_logs(), *after.ghosts]
    else:
        model.durable_end = min(before.log_end, after.log_end)
        model.durable_start = min(before.log_start, after.log_start)
        model.ghosts = before.possible_logs()[:1]
    return model


def opened(disk: SimulatedDisk) -> PartitionLog:
    directory = LogDirectory(disk, ROOT)
    directory.open(lambda _: CONFIG, NOW_MS)
    # A loss of power may take a log that was never flushed; the broker then creates it anew.
    log = directory.partitions.get(KEY) or directory.create(*KEY, Uuid.of(1000), CONFIG, NOW_MS)
    log.producers.verification_enabled = False
    return log


def run(ending: Ending, chapters: list[Chapter]) -> Chapter:
    """Run the script with that ending, check the log that is left, and return the chapter in which it ended."""
    story = begun(ending.seed)
    disk = story.disk
    if ending.how == "dies":
        disk.crash_at("change", nth=ending.nth)
    elif ending.how == "fails":
        disk.fail("change", nth=ending.nth)
    else:
        disk.tear(nth=ending.nth)
    chapter = story.run_until_it_stops(chapters)
    disk.heal()
    if ending.how != "dies" and chapter.step.startswith("append"):
        assert_append_was_done_or_not(story.log, chapter)
    if ending.loses_power:
        disk.lose_power(Random(ending.seed * 10_000 + ending.nth))
    else:
        disk.crash_process()
    log, model = opened(disk), in_doubt(chapter, ending.loses_power)
    adopt(log, model, "power lost")
    check_whole(log, model, disk)
    seen = fingerprint(log)
    disk.crash_process()
    log = opened(disk)
    assert_same(fingerprint(log), seen)
    adopt(log, model, "process died")
    # And life goes on.
    data = build_batch([Record(0, NOW_MS, b"n", b"after the crash")], producer_id=9, producer_epoch=0, base_sequence=0)
    log.append_as_leader(memoryview(bytearray(data)), 7, NOW_MS, PRODUCE_VERSION)
    model.lead(data, 7, NOW_MS)
    log.flush()
    model.synced(model.log_end, model.truncations)
    if ending.how == "fails" and not ending.loses_power:
        # A failed sync makes pages look clean that the disk never got, and only a loss of power would show which: a
        # restart on such a disk cannot know, so nothing is promised for the next loss of power.
        disk.crash_process()
        adopt(log := opened(disk), model, "process died")
    else:
        disk.lose_power(Random(ending.nth))
        adopt(log := opened(disk), model, "power lost")
    check_whole(log, model, disk)
    return chapter


def assert_append_was_done_or_not(log: PartitionLog, chapter: Chapter) -> None:
    """Check that a log whose directory goes offline has the whole append or none of it, above the high watermark."""
    assert log.high_watermark == chapter.before.high_watermark
    assert log.log_end_offset in (chapter.before.log_end, chapter.after.log_end)
    offset = chapter.before.log_start
    while offset < chapter.before.log_end:
        offset = check_read(log, chapter.before, offset, 1, ReadUpTo.LOG_END, at_least_one_batch=True)


@pytest.mark.parametrize(
    ("how", "loses_power", "seeds"),
    [
        ("dies", False, 1),
        ("dies", True, 3),
        ("fails", False, 1),
        ("fails", True, 1),
        ("tears", False, 1),
        ("tears", True, 1),
    ],
)
def test_after_a_crash_at_any_disk_call_the_log_opens_with_all_synced_records(
    how: Literal["dies", "fails", "tears"], loses_power: bool, seeds: int
) -> None:
    story = begun(0)
    story.disk.record()
    chapters = story.chapters_without_faults()
    calls = len(story.disk.calls("write" if how == "tears" else "change"))
    stopped = set()
    for seed in range(seeds):
        for nth in range(1, calls + 1):
            ending = Ending(how, nth, loses_power, seed)
            try:
                stopped.add(run(ending, chapters).step)
            except Exception as problem:
                raise AssertionError(f"the story ends badly with {ending}") from problem
    if how != "tears":
        # Every step that changes files was interrupted somewhere.
        assert stopped >= {chapter.step for chapter in chapters} - {"replicate"}
