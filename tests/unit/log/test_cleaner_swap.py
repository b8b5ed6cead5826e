"""A cleaned segment replaces the original ones, also if the log changes meanwhile, or after a crash or power loss."""

from __future__ import annotations

from random import Random

import pytest

from pessoa.log.partition_log import PartitionLog, ReadUpTo
from pessoa.log.simulated_disk import Crashed, SimulatedDisk
from pessoa.records.record import Record
from tests.support.cleaning import (
    DIRECTORY,
    NOW_MS,
    all_records,
    append,
    clean,
    consumed,
    end_transaction,
    open_log,
)


def busy_log(disk: SimulatedDisk) -> PartitionLog:
    """Return a synced log with segments for three groups of a pass, with transactions and tombstones."""
    log = open_log(disk)
    append(log, [(b"a", b"1"), (b"b", b"2"), (b"c", b"3")], producer=(7, 0, 0))
    append(log, [(b"a", b"aborted")], producer=(8, 0, 0), transactional=True)
    log.roll(NOW_MS)
    append(log, [(b"b", b"aborted too")], producer=(8, 0, 1), transactional=True)
    end_transaction(log, 8, 0, commit=False)
    append(log, [(b"d", b"4")], producer=(9, 0, 0), transactional=True)
    end_transaction(log, 9, 0, commit=True)
    log.roll(NOW_MS)
    append(log, [(b"a", b"5"), (b"c", None)])
    append(log, [(b"d", b"6"), (b"a", b"7")])
    log.roll(NOW_MS)
    append(log, [(b"e", b"8")])
    log.flush()
    disk.sync_directory(DIRECTORY)
    return log


def values(found: list[Record]) -> dict[bytes | None, bytes | None]:
    """Return the latest value of each key, as a reader of the log has it; keys with a tombstone are left out."""
    table = {record.key: record.value for record in found}
    return {key: value for key, value in table.items() if value is not None}


def producers(log: PartitionLog) -> dict[int, tuple[int, int, int]]:
    return {
        entry.producer_id: (entry.epoch, entry.last_sequence, entry.next_sequence) for entry in log.producers.entries()
    }


def assert_is_the_same_log(log: PartitionLog, before: PartitionLog, original: list[Record]) -> None:
    table = values([record for record in original if b"aborted" not in (record.value or b"")])
    for up_to in (ReadUpTo.LAST_STABLE_OFFSET, ReadUpTo.HIGH_WATERMARK):
        found = consumed(log, up_to)
        assert [record.offset for record in found] == sorted({record.offset for record in found})
        assert set(found) <= set(original)
        if up_to is ReadUpTo.LAST_STABLE_OFFSET:
            assert values(found) == table
            assert not any(b"aborted" in (record.value or b"") for record in found)
    assert log.log_end_offset == before.log_end_offset
    assert producers(log) == producers(before)
    starts = [segment.base_offset for segment in log.segments]
    assert starts == sorted(set(starts))
    ends = [segment.next_offset() for segment in log.segments]
    assert all(end <= start for end, start in zip(ends, starts[1:], strict=False))


def reopened(disk: SimulatedDisk, before: PartitionLog) -> PartitionLog:
    """Return the log as opened after a crash. Everything was flushed, so only the active segment is checked."""
    return open_log(disk, high_watermark=before.high_watermark, was_clean=False, recovery_point=before.recovery_point)


def changes_of_a_pass() -> int:
    disk = SimulatedDisk()
    log = busy_log(disk)
    disk.record()
    clean(disk, log)
    return len(disk.calls("change"))


@pytest.mark.parametrize("power", [False, True], ids=["kill -9", "power loss"])
def test_a_crash_at_every_change_of_a_pass_leaves_a_log_that_reads_the_same(power: bool) -> None:
    for seed in range(8 if power else 1):
        for nth in range(1, changes_of_a_pass() + 1):
            disk = SimulatedDisk(seed)
            log = busy_log(disk)
            original = all_records(log)
            disk.crash_at("change", nth=nth)
            with pytest.raises(Crashed):
                clean(disk, log)
            if power:
                disk.lose_power(Random(seed * 1000 + nth))
            else:
                disk.crash_process()
            names = disk.list(DIRECTORY)
            found = reopened(disk, log)
            try:
                assert_is_the_same_log(found, log, original)
                left = [name for name in disk.list(DIRECTORY) if name.endswith((".cleaned", ".swap", ".deleted"))]
                assert not left
                # And it can be cleaned as if nothing had happened.
                clean(disk, found)
                assert_is_the_same_log(found, log, original)
                again = open_log(disk, high_watermark=log.high_watermark)
                assert all_records(again) == all_records(found)
            except AssertionError as problem:
                raise AssertionError(f"crash at change {nth}, seed {seed}, found {names}") from problem


def test_a_log_that_crashed_after_a_segment_swap_opens_as_the_cleaned_log() -> None:
    disk = SimulatedDisk()
    log = busy_log(disk)
    clean(disk, log)
    cleaned = all_records(log)
    disk.lose_power(Random(1))
    assert all_records(reopened(disk, log)) == cleaned


def test_a_power_loss_while_recovery_completes_a_swap_leaves_a_log_that_reads_the_same() -> None:
    total = changes_of_a_pass()
    # From the renames to `.swap` on, where a start has something to do.
    for nth in range(total - 30, total + 1, 3):
        for within in range(1, 40):
            disk = SimulatedDisk(within)
            log = busy_log(disk)
            original = all_records(log)
            disk.crash_at("change", nth=nth)
            with pytest.raises(Crashed):
                clean(disk, log)
            disk.lose_power(Random(nth))
            disk.crash_at("change", nth=within)
            try:
                reopened(disk, log)
            except Crashed:
                disk.lose_power(Random(within))
            else:
                disk.heal()
                break
            names = disk.list(DIRECTORY)
            try:
                assert_is_the_same_log(reopened(disk, log), log, original)
            except AssertionError as problem:
                raise AssertionError(f"crash at {nth}, then at {within} of the start, found {names}") from problem
