"""Opening a log: after a clean shutdown, after a crash, with damaged, missing and left-over files."""

from __future__ import annotations

from functools import partial
from itertools import product
from typing import TYPE_CHECKING

import pytest

from pessoa.log.files import DiskError
from pessoa.log.segment import Segment
from pessoa.records.batch import batches
from tests.support.batches import NOW_MS, abort, commit, idempotent, offsets, plain, transactional
from tests.support.partition_logs import EVERY_BATCH, Home, base_offsets, fill, produce, read_bytes, read_offsets

if TYPE_CHECKING:
    from collections.abc import Callable

    from pessoa.log.partition_log import PartitionLog
    from pessoa.log.simulated_disk import SimulatedDisk

# Five batches of 200 bytes.
SMALL = EVERY_BATCH.but(segment_bytes=1000)
FIRST = "00000000000000000000"
LAST = "00000000000000000015"


def busy(home: Home) -> PartitionLog:
    """Return a log with producers, transactions and epochs in segments at 0, 5, 10 and 15, all below the high
    watermark."""
    log = home.open(SMALL)
    sent = [
        idempotent(1, 0, at=0, epoch=1),
        transactional(2, 0, at=1, epoch=1),
        transactional(3, 0, at=2, epoch=1),
        abort(2, at=3, epoch=1),
        plain(at=4, epoch=1, size=200),
        *(plain(at=at, epoch=2, size=200) for at in range(5, 9)),
        idempotent(1, 1, at=9, epoch=2),
        *(plain(at=at, epoch=4, size=200) for at in range(10, 14)),
        commit(3, at=14, epoch=4),
        transactional(5, 0, at=15, epoch=4),
        plain(at=16, epoch=4),
        idempotent(1, 2, at=17, epoch=4),
    ]
    for batch in sent:
        if offsets(bytes(batch))[0][0] in (5, 10, 15):
            log.roll(NOW_MS)
        log.append_as_follower(batch, NOW_MS)
    log.update_high_watermark(18)
    return log


def knowledge(log: PartitionLog) -> dict[str, object]:
    """Return the state that must be the same however the log is opened."""
    return {
        "bytes": read_bytes(log),
        "segments": base_offsets(log),
        "offsets": (log.log_start_offset, log.high_watermark, log.last_stable_offset, log.log_end_offset),
        "epochs": log.epochs.entries(),
        "producers": sorted(
            (one.producer_id, one.epoch, one.next_sequence, one.last_data_offset, one.current_txn_first_offset)
            for one in log.producers.entries()
        ),
        "aborted": [segment.aborted_transactions() for segment in log.segments],
        "indexes": [(segment.offset_index.entries(), segment.time_index.entries()) for segment in log.segments[:-1]],
    }


def test_a_new_log_is_empty(home: Home) -> None:
    log = home.open()
    assert (log.log_start_offset, log.high_watermark, log.log_end_offset, log.size) == (0, 0, 0, 0)
    assert home.names() == [f"{FIRST}.index", f"{FIRST}.log", f"{FIRST}.timeindex", "leader-epoch-checkpoint"]
    assert home.disk.read_file(home.path("leader-epoch-checkpoint")) == b"0\n0\n"


def test_a_new_log_may_begin_at_an_offset_above_zero(home: Home) -> None:
    log = home.open(log_start_offset=77)
    assert (log.log_start_offset, log.high_watermark, log.log_end_offset) == (77, 77, 77)


@pytest.mark.parametrize("recovery_point", [0, 3, 5, 9, 15, 18, 99])
def test_a_log_is_the_same_after_a_crash_wherever_recovery_begins(home: Home, recovery_point: int) -> None:
    log = busy(home)
    before = knowledge(log)
    log.recovery_point = recovery_point
    again = home.reopen_after_crash(log)
    assert knowledge(again) == before
    assert again.recovery_point == min(recovery_point, 18)
    assert knowledge(home.reopen_after_crash(again)) == before


def test_a_log_is_the_same_after_a_clean_shutdown(home: Home) -> None:
    log = busy(home)
    before = knowledge(log)
    again = home.reopen_clean(log)
    assert knowledge(again) == before
    assert again.recovery_point == 18
    assert knowledge(home.reopen_clean(again)) == before


def test_after_a_clean_shutdown_the_loader_does_not_scan_the_segments(shaky: Home, simulated: SimulatedDisk) -> None:
    log = shaky.open(SMALL.but(segment_bytes=100_000))
    fill(log, 400, size=1000)
    log.close()
    simulated.record()
    again = shaky.open(log.config, was_clean=True, high_watermark=400)
    reads = simulated.calls("read")
    # The last entries of the indexes of four segments, and the header behind the last entry; no batch below it.
    assert len(again.segments) == 4
    assert [call.path for call in reads if call.path.endswith(".log")] == [again.active.file.path]
    assert len(reads) < 30
    assert simulated.calls("write", "*.log") == []


def test_after_a_crash_the_loader_scans_only_above_the_recovery_point(shaky: Home, simulated: SimulatedDisk) -> None:
    log = busy(shaky)
    log.recovery_point = 16
    simulated.record()
    shaky.reopen_after_crash(log)
    scanned = {call.path.rpartition("/")[2] for call in simulated.calls("read", "*.log")}
    assert scanned == {f"{LAST}.log"}


# Damage to the log itself.


def tear(disk: SimulatedDisk, path: str) -> None:
    disk.cut(path, disk.size(path) - 37)


def zero_pages(disk: SimulatedDisk, path: str) -> None:
    disk.open(path, pooled=False).append(bytes(8192))


def rubbish(disk: SimulatedDisk, path: str) -> None:
    disk.open(path, pooled=False).append(b"\x13\x37" * 100)


def half_a_batch(disk: SimulatedDisk, path: str) -> None:
    disk.open(path, pooled=False).append(bytes(plain(3, at=18, epoch=4))[:70])


def flip(disk: SimulatedDisk, path: str) -> None:
    disk.flip_bit(path, disk.size(path) - 1)


def renumber(offset: int, disk: SimulatedDisk, path: str) -> None:
    """Change the base offset of the last batch, which no CRC covers."""
    file = disk.open(path, pooled=False)
    *others, _ = batches(file.read(0, file.size))
    file.write_at(sum(one.size for one in others), offset.to_bytes(8, "big", signed=True))


@pytest.mark.parametrize("was_clean", [False, True])
@pytest.mark.parametrize(
    ("damage", "end"),
    [
        (tear, 17), (zero_pages, 18), (rubbish, 18), (half_a_batch, 18),
        (partial(renumber, -348373387313116), 17), (partial(renumber, 1 << 40), 17),
    ],
)  # fmt: skip
def test_the_loader_truncates_a_damaged_end_and_keeps_the_rest(
    shaky: Home, simulated: SimulatedDisk, damage: Callable[[SimulatedDisk, str], None], end: int, was_clean: bool
) -> None:
    log = busy(shaky)
    data = read_bytes(log)
    log.close()
    damage(simulated, shaky.path(f"{LAST}.log"))
    again = shaky.open(SMALL, was_clean=was_clean, recovery_point=18, high_watermark=18)
    assert (again.log_end_offset, again.high_watermark) == (end, end)
    assert read_bytes(again) == data[: len(read_bytes(again))]
    assert again.active.size == sum(batch.size for batch in batches(again.active.file.read(0, again.active.size)))
    produce(again, plain(), epoch=5)
    assert read_offsets(again)[-1] == (end, end)
    assert read_offsets(shaky.reopen_after_crash(again))[-1] == (end, end)


def test_recovery_truncates_the_log_at_a_flipped_bit_and_drops_what_follows(
    shaky: Home, simulated: SimulatedDisk
) -> None:
    log = busy(shaky)
    log.recovery_point = 0
    simulated.flip_bit(shaky.path("00000000000000000005.log"), 450)
    again = shaky.reopen_after_crash(log)
    assert read_offsets(again)[-1] == (6, 6)
    assert (base_offsets(again), again.epochs.entries()) == ([0, 5], [(1, 0), (2, 5)])
    assert shaky.names(".log") == [f"{FIRST}.log", "00000000000000000005.log"]
    assert again.last_stable_offset == 2
    assert again.snapshots.offsets == [5]


def test_recovery_truncates_nothing_below_the_recovery_point(shaky: Home, simulated: SimulatedDisk) -> None:
    log = busy(shaky)
    log.recovery_point = 16
    simulated.flip_bit(shaky.path("00000000000000000005.log"), 450)
    assert shaky.reopen_after_crash(log).log_end_offset == 18


def test_recovery_drops_what_follows_a_hole_above_the_recovery_point(shaky: Home, simulated: SimulatedDisk) -> None:
    log = busy(shaky)
    log.recovery_point = 3
    for kind in (".log", ".index", ".timeindex"):
        simulated.remove(shaky.path(f"00000000000000000010{kind}"))
    again = shaky.reopen_after_crash(log)
    assert (again.log_end_offset, base_offsets(again)) == (10, [0, 5])


@pytest.mark.parametrize("policy", ["delete", "compact"])
def test_the_loader_drops_a_segment_that_came_back_beside_newer_ones(shaky: Home, policy: str) -> None:
    config = EVERY_BATCH.but(cleanup_policy=frozenset({policy}))
    log = shaky.open(config)
    log.append_as_follower(b"".join(plain(2, at=at, epoch=3) for at in range(0, 10, 2)), NOW_MS)
    Segment(shaky.disk, shaky.directory, 6, config, NOW_MS, create=True).append(
        next(iter(batches(plain(2, at=6, epoch=3))))
    )
    again = shaky.reopen_after_crash(log)
    assert read_offsets(again) == [(at, at + 1) for at in range(0, 10, 2)]
    assert base_offsets(again) == [0]


def test_a_log_that_ends_below_its_log_start_after_a_crash_restarts_at_the_log_start(
    shaky: Home, simulated: SimulatedDisk
) -> None:
    log = shaky.open(SMALL)
    fill(log, 4)
    log.delete_records_before(4)
    simulated.cut(shaky.path(f"{FIRST}.log"), 0)
    again = shaky.reopen_after_crash(log)
    assert (again.log_start_offset, again.log_end_offset, again.high_watermark) == (4, 4, 4)
    assert produce(again, plain()).base_offset == 4


# Damage to what can be made again.


def remove(disk: SimulatedDisk, path: str) -> None:
    disk.remove(path)


def empty(disk: SimulatedDisk, path: str) -> None:
    disk.cut(path, 0)


def shorten(disk: SimulatedDisk, path: str) -> None:
    disk.cut(path, disk.size(path) - 3)


def zero(disk: SimulatedDisk, path: str) -> None:
    size = disk.size(path)
    disk.cut(path, 0)
    disk.open(path, pooled=False).append(bytes(size))


@pytest.mark.parametrize("was_clean", [False, True])
@pytest.mark.parametrize("damage", [remove, shorten, zero])
@pytest.mark.parametrize(
    "name",
    [
        f"{FIRST}.index",
        f"{FIRST}.timeindex",
        f"{LAST}.index",
        f"{LAST}.timeindex",
        f"{LAST}.snapshot",
        "00000000000000000005.snapshot",
        "00000000000000000018.snapshot",
        "leader-epoch-checkpoint",
    ],
)
def test_the_loader_rebuilds_a_damaged_or_missing_file(
    shaky: Home, simulated: SimulatedDisk, name: str, damage: Callable[[SimulatedDisk, str], None], was_clean: bool
) -> None:
    log = busy(shaky)
    before = knowledge(log)
    log.close()
    damage(simulated, shaky.path(name))
    again = shaky.open(SMALL, was_clean=was_clean, recovery_point=16, high_watermark=18)
    assert knowledge(again) == before


@pytest.mark.parametrize("was_clean", [False, True])
@pytest.mark.parametrize("damage", [shorten, zero])
def test_the_loader_rebuilds_a_damaged_transaction_index(
    shaky: Home, simulated: SimulatedDisk, damage: Callable[[SimulatedDisk, str], None], was_clean: bool
) -> None:
    log = busy(shaky)
    before = knowledge(log)
    log.close()
    damage(simulated, shaky.path(f"{FIRST}.txnindex"))
    again = shaky.open(SMALL, was_clean=was_clean, recovery_point=18, high_watermark=18)
    assert knowledge(again) == before


def test_the_loader_rebuilds_all_files_of_a_log_from_its_segments_alone(shaky: Home, simulated: SimulatedDisk) -> None:
    log = busy(shaky)
    before = knowledge(log)
    for name in shaky.names():
        if not name.endswith(".log"):
            simulated.remove(shaky.path(name))
    assert knowledge(shaky.open(SMALL, high_watermark=18)) == before


def test_an_epoch_checkpoint_that_lost_its_last_digits_is_not_used(shaky: Home, simulated: SimulatedDisk) -> None:
    log = busy(shaky)
    before = log.epochs.entries()
    log.close()
    path = shaky.path("leader-epoch-checkpoint")
    for kept in range(simulated.size(path)):
        text = simulated.read_file(path)
        simulated.cut(path, kept)
        again = shaky.open(SMALL, was_clean=True, high_watermark=18)
        assert again.epochs.entries() == before
        simulated.write_file(path, text)


def test_a_producer_snapshot_of_another_log_is_not_used_after_a_crash(shaky: Home, simulated: SimulatedDisk) -> None:
    log = busy(shaky)
    log.recovery_point = 0
    # A snapshot that a truncation had removed, and that came back.
    stranger = Home(simulated, "/data/stranger-0").open()
    produce(stranger, idempotent(77, 0))
    stranger.close()
    simulated.write_file(
        shaky.path("00000000000000000010.snapshot"),
        simulated.read_file("/data/stranger-0/00000000000000000001.snapshot"),
    )
    again = shaky.reopen_after_crash(log)
    assert again.producers.entry(77) is None
    again.close()
    assert shaky.open(SMALL, was_clean=True).producers.entry(77) is None


def test_producer_snapshots_are_kept_at_segment_starts_and_at_the_last_clean_shutdown(home: Home) -> None:
    log = busy(home)
    for _ in range(3):
        produce(log, plain(), epoch=4)
        log = home.reopen_clean(log)
    assert log.snapshots.offsets == [5, 10, 15, 21]
    assert home.names(".snapshot") == [f"{offset:020d}.snapshot" for offset in (5, 10, 15, 21)]


def test_the_loader_removes_an_index_without_a_log_file_and_keeps_unknown_files(home: Home) -> None:
    log = busy(home)
    before = knowledge(log)
    log.close()
    home.disk.write_file(home.path("00000000000000000099.index"), b"12345678")
    home.disk.write_file(home.path("partition.metadata"), b"version: 0")
    home.disk.write_file(home.path("notes.log"), b"mine")
    assert knowledge(home.open(SMALL, was_clean=True, high_watermark=18)) == before
    assert "00000000000000000099.index" not in home.names()
    assert {"partition.metadata", "notes.log"} <= set(home.names())


# What the cleaner and the remover were at.

KINDS = (".log", ".index", ".timeindex")


def cleaned_copy(home: Home, suffix: str) -> None:
    """Write the segments 0 and 5 as one cleaned segment, with the offsets 1, 4 and 8."""
    segment = Segment(home.disk, home.directory, 0, SMALL, NOW_MS, create=True, suffix=suffix)
    for at in (1, 4, 8):
        segment.append(next(iter(batches(plain(at=at, epoch=1, size=200)))))
    segment.close()


def plain_log(home: Home) -> PartitionLog:
    log = home.open(SMALL)
    fill(log, 13, size=200)
    return log


def test_the_loader_removes_deleted_cleaned_and_temporary_files(home: Home) -> None:
    log = plain_log(home)
    before = knowledge(log)
    log.close()
    cleaned_copy(home, ".cleaned")
    for name in ("00000000000000000003.log.deleted", "00000000000000000003.index.deleted", "x.snapshot.tmp"):
        home.disk.write_file(home.path(name), b"old")
    assert knowledge(home.open(SMALL, was_clean=True, high_watermark=13)) == before
    assert all(name.endswith((*KINDS, ".snapshot", "leader-epoch-checkpoint")) for name in home.names())


def test_a_complete_swap_takes_the_place_of_what_it_was_made_from(home: Home) -> None:
    plain_log(home).close()
    cleaned_copy(home, ".swap")
    log = home.open(SMALL, was_clean=True, high_watermark=13)
    assert base_offsets(log) == [0, 10]
    assert read_offsets(log) == [(1, 1), (4, 4), (8, 8), (10, 10), (11, 11), (12, 12)]
    assert home.names(".swap") == []


# Where each file of a cleaned segment may be, and whether the old segments have lost their names: these go after every
# file is complete, and no file takes its last name before they are gone.
STAGES = [
    (stage, old_are_gone)
    for stage in product(("swap", "final", "cleaned"), repeat=3)
    for old_are_gone in (False, True)
    if ("final" not in stage or old_are_gone)
    and ("cleaned" not in stage or not ({"final"} & set(stage) or old_are_gone))
]


@pytest.mark.parametrize(("stage", "old_are_gone"), STAGES)
def test_the_loader_completes_or_undoes_a_segment_swap_from_every_mixture_of_file_names(
    home: Home, stage: tuple[str, str, str], old_are_gone: bool
) -> None:
    """Renames go `.cleaned` → `.swap`, then the old segments to `.deleted`, then `.swap` → final."""
    names = dict(zip(KINDS, stage, strict=True))
    plain_log(home).close()
    cleaned_copy(home, ".x")
    for offset, kind in product((0, 5), KINDS):
        if old_are_gone:
            home.disk.rename(home.path(f"{offset:020d}{kind}"), home.path(f"{offset:020d}{kind}.deleted"))
    for kind, name in names.items():
        suffix = "" if name == "final" else f".{name}"
        home.disk.rename(home.path(f"{FIRST}{kind}.x"), home.path(f"{FIRST}{kind}{suffix}"))
    log = home.open(SMALL, was_clean=False, recovery_point=13, high_watermark=13)
    is_new = "cleaned" not in stage
    assert [first for first, _ in read_offsets(log)] == ([1, 4, 8, 10, 11, 12] if is_new else list(range(13)))
    assert home.names(".swap") + home.names(".cleaned") + home.names(".deleted") + home.names(".x") == []
    data = read_bytes(log)
    again = home.reopen_clean(log)
    assert read_bytes(again) == data
    for segment in again.segments:
        before = segment.offset_index.entries(), segment.time_index.entries()
        segment.rebuild_indexes()
        assert (segment.offset_index.entries(), segment.time_index.entries()) == before


@pytest.mark.parametrize("flushed_before", [0, 3, 7])
def test_after_a_failed_sync_and_a_restart_the_next_flush_writes_the_cached_pages_to_the_disk(
    shaky: Home, simulated: SimulatedDisk, flushed_before: int
) -> None:
    """The kernel takes pages for clean that it could not write, so a later sync says yes and writes nothing of them."""
    log = shaky.open(SMALL)
    fill(log, flushed_before, size=200)
    log.flush()
    fill(log, 2, size=200)
    simulated.fail("sync", "*.log")
    with pytest.raises(DiskError):
        log.flush()
    simulated.crash_process()
    log = shaky.reopen_after_crash(log)
    assert log.log_end_offset == flushed_before + 2
    fill(log, 1, size=200)
    log.flush()
    simulated.lose_power()
    assert len(read_offsets(shaky.reopen_after_crash(log))) == flushed_before + 3
