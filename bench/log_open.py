"""Opening a log directory: seconds, memory and descriptors.

1,000 partitions of one segment each are to open after a clean shutdown in less than a second and 40 MB. 10,000
partitions have 30,000 files and more; however many they are, open descriptors stay within the limit of the disk door.
Each is measured in a process of its own, since memory that was once allocated would not be counted a second time.

For comparison, the same files are opened, read and closed with plain system calls.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from pessoa.base.ids import Uuid
from pessoa.log.directory import LogDirectory
from pessoa.log.log_config import LogConfig
from pessoa.log.os_disk import OsDisk
from pessoa.records.builder import build_batch
from pessoa.records.record import Record

if TYPE_CHECKING:
    from bench.report import Report

NOW_MS = 1_700_000_000_000
PRODUCE_VERSION = 12
SMALL_POOL = 64


def run(report: Report) -> None:
    for count in (1000, 10_000):
        with tempfile.TemporaryDirectory(prefix="pessoa-bench-") as folder:
            prepare(folder, count)
            for max_open_files in (None, SMALL_POOL):
                pool = "" if max_open_files is None else f", {max_open_files} files at most"
                seconds, plain_seconds, memory_mb, descriptors = measured_apart(folder, max_open_files)
                case = f"open {count:,} partitions{pool}"
                report.add(case, "pessoa", seconds, "s")
                report.add(case, "plain calls", plain_seconds, "s")
                report.add(f"{case}: memory", "pessoa", memory_mb, "MB")
                report.add(f"{case}: descriptors", "pessoa", descriptors, "files")


def prepare(folder: str, count: int) -> None:
    """Create partitions of a few batches each, closed cleanly. The log's own code writes one, the others are copies."""
    directory = LogDirectory(OsDisk(), folder)
    directory.open(lambda _: LogConfig(), NOW_MS)
    log = directory.create("bench", 0, Uuid.of(1000), LogConfig(index_interval_bytes=0), NOW_MS)
    for sequence in range(10):
        batch = build_batch(
            [Record(0, NOW_MS, None, b"x" * 1000)], producer_id=9, producer_epoch=0, base_sequence=sequence
        )
        log.append_as_leader(memoryview(batch), 0, NOW_MS, PRODUCE_VERSION)
    log.update_high_watermark(log.log_end_offset)
    directory.close()
    first = Path(folder, "bench-0")
    files = {path.name: path.read_bytes() for path in first.iterdir()}
    for number in range(1, count):
        copy = Path(folder, f"bench-{number}")
        copy.mkdir()
        for name, data in files.items():
            (copy / name).write_bytes(data)
    entries = "".join(f"bench {number} 10\n" for number in range(count))
    for name in ("recovery-point-offset-checkpoint", "replication-offset-checkpoint"):
        Path(folder, name).write_text(f"0\n{count}\n{entries}")


def measured_apart(folder: str, max_open_files: int | None) -> tuple[float, float, float, int]:
    command = [sys.executable, "-m", "bench.log_open", folder, str(max_open_files or 0)]
    done = subprocess.run(command, check=True, capture_output=True, text=True, cwd=Path(__file__).parent.parent)
    seconds, plain_seconds, memory_mb, descriptors = done.stdout.split()
    return float(seconds), float(plain_seconds), float(memory_mb), int(descriptors)


def measure(folder: str, max_open_files: int | None) -> None:
    """Open the directory, in the child process, print the figures, and leave the directory as it was."""
    plain_seconds = plain_calls(folder)
    disk = OsDisk(max_open_files)
    config = LogConfig()
    directory = LogDirectory(disk, folder)
    memory, descriptors = resident_bytes(), open_descriptors()
    started = time.perf_counter()
    directory.open(lambda _: config, NOW_MS)
    seconds = time.perf_counter() - started
    memory, descriptors = resident_bytes() - memory, open_descriptors() - descriptors
    assert directory.was_clean
    assert all(log.log_end_offset == 10 for log in directory.partitions.values())
    directory.close()
    print(seconds, plain_seconds, memory / 1e6, descriptors)


def plain_calls(folder: str) -> float:
    started = time.perf_counter()
    for name in os.listdir(folder):  # noqa: PTH208  what is measured here is the system
        path = f"{folder}/{name}"
        if "-" in name and os.path.isdir(path):  # noqa: PTH112
            for file in os.listdir(path):  # noqa: PTH208
                descriptor = os.open(f"{path}/{file}", os.O_RDWR)
                os.fstat(descriptor)
                os.pread(descriptor, 61, 0)
                os.close(descriptor)
    return time.perf_counter() - started


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def open_descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


if __name__ == "__main__":
    measure(sys.argv[1], int(sys.argv[2]) or None)
