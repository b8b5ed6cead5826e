"""The log compared with its system calls: appends with `os.write` of the same bytes, reads with `os.pread`.

An append validates the batch with its CRC, stamps it, writes it and updates indexes and offsets; a read finds the batch
by its offset and reads the bytes. The plain call is the limit: appends are to reach 70 % of it, reads 80 %.

Rounds of both alternate, and each begins with new files: writing into pages that are in the page cache already would be
faster. The rounds are short and many, so that some of them have the machine to themselves: the best round shows the
cost of the code, the median that on this machine.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from typing import TYPE_CHECKING

from pessoa.log.log_config import LogConfig
from pessoa.log.log_loader import load_partition
from pessoa.log.os_disk import OsDisk
from pessoa.log.partition_log import ReadUpTo
from pessoa.records.builder import build_batch
from pessoa.records.record import Record

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from bench.report import Report
    from pessoa.log.partition_log import PartitionLog

NOW_MS = 1_700_000_000_000
PRODUCE_VERSION = 12
KIB, MIB = 1 << 10, 1 << 20
ROUND_BYTES = 16 * MIB
ROUNDS = 25
# The bytes that a leader stamps: a produced batch has the base offset 0 and the epoch -1 in them.
STAMPED = 16


def run(report: Report) -> None:
    with tempfile.TemporaryDirectory(prefix="pessoa-bench-") as folder:
        for name, size in (("16 KiB", 16 * KIB), ("1 MiB", MIB)):
            count = ROUND_BYTES // size
            appends(report, folder, f"append {name} batches", [batch_of(size)] * count, "MB/s")
        numbered = [batch_of(16 * KIB, producer_id=9, sequence=number) for number in range(ROUND_BYTES // (16 * KIB))]
        appends(report, folder, "append 16 KiB, idempotent", numbered, "MB/s")
        appends(report, folder, "append 200 B batches", [batch_of(200)] * 4000, "ops/s")
        reads(report, folder)


def batch_of(size: int, producer_id: int = -1, sequence: int = -1) -> memoryview:
    """Return a batch of one record that has exactly `size` bytes."""
    for value_size in range(size - 80, size - 60):
        batch = build_batch(
            [Record(0, NOW_MS, None, os.urandom(value_size))],
            producer_id=producer_id,
            producer_epoch=0 if producer_id >= 0 else -1,
            base_sequence=sequence,
        )
        if len(batch) == size:
            return memoryview(batch)
    raise AssertionError(f"no batch has {size} bytes")


def new_log(folder: str) -> PartitionLog:
    return load_partition(OsDisk(), f"{folder}/bench-0", LogConfig(), NOW_MS, was_clean=False)


def appends(report: Report, folder: str, case: str, batches: Sequence[memoryview], unit: str) -> None:
    # The same buffer is appended repeatedly: before each append the bytes that a leader stamps are reset.
    fresh = bytes(batches[0][:STAMPED])

    def ours() -> float:
        log = new_log(folder)
        append = log.append_as_leader
        started = time.perf_counter()
        for batch in batches:
            batch[:STAMPED] = fresh
            append(batch, 0, NOW_MS, PRODUCE_VERSION)
        seconds = time.perf_counter() - started
        assert log.log_end_offset == len(batches)
        log.release()
        OsDisk().remove_tree(log.directory)
        return seconds

    def plain() -> float:
        path = f"{folder}/plain"
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT)
        started = time.perf_counter()
        for batch in batches:
            os.write(descriptor, batch)
        seconds = time.perf_counter() - started
        os.close(descriptor)
        os.unlink(path)  # noqa: PTH108  what is measured here is the system
        return seconds

    work = sum(map(len, batches)) / 1e6 if unit == "MB/s" else len(batches)
    compare(report, case, unit, work, {"pessoa": ours, "os.write": plain})


def reads(report: Report, folder: str) -> None:
    batch = batch_of(16 * KIB)
    log = new_log(folder)
    fresh = bytes(batch[:STAMPED])
    for _ in range(ROUND_BYTES // len(batch)):
        batch[:STAMPED] = fresh
        log.append_as_leader(batch, 0, NOW_MS, PRODUCE_VERSION)
    log.update_high_watermark(log.log_end_offset)
    for name, size in (("64 KiB", 64 * KIB), ("1 MiB", MIB)):
        step = size // len(batch)

        def ours(size: int = size, step: int = step) -> float:
            started = time.perf_counter()
            for offset in range(0, log.log_end_offset, step):
                data = log.read(offset, size, ReadUpTo.HIGH_WATERMARK).data
                assert data is not None
                data.read()
            return time.perf_counter() - started

        def plain(size: int = size) -> float:
            descriptor = os.open(log.active.file.path, os.O_RDONLY)
            started = time.perf_counter()
            for position in range(0, log.size, size):
                os.pread(descriptor, size, position)
            seconds = time.perf_counter() - started
            os.close(descriptor)
            return seconds

        compare(report, f"read in pieces of {name}", "MB/s", log.size / 1e6, {"pessoa": ours, "os.pread": plain})
    log.release()


def compare(report: Report, case: str, unit: str, work: float, subjects: dict[str, Callable[[], float]]) -> None:
    seconds: dict[str, list[float]] = {name: [] for name in subjects}
    for _ in range(ROUNDS):
        for name, subject in subjects.items():
            seconds[name].append(subject())
    for name, found in seconds.items():
        report.add(f"{case}, best round", name, work / min(found), unit)
        report.add(f"{case}, median", name, work / statistics.median(found), unit)
