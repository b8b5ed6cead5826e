"""The disk door: its cost on top of its system calls.

Both sides work on files of the same temporary directory, in turns, and the best turn of each counts. An append of
16 KiB may take 0.4 µs more than a plain `os.write`. The time of writing to a file system varies by more than that, so
it is measured on /dev/null as well, where only the interpreter costs time.
"""

from __future__ import annotations

import os
import tempfile
import time
from typing import TYPE_CHECKING

from pessoa.log.os_disk import OsDisk
from pessoa.log.simulated_disk import SimulatedDisk

if TYPE_CHECKING:
    from collections.abc import Callable

    from bench.report import Report

ROUNDS = 9
# A file is truncated at this size: enough for a round, and little enough to stay in the page cache.
FILE_BYTES = 32 << 20


def in_turns(work: dict[str, Callable[[], None]], number: int) -> dict[str, float]:
    """Return the best time of a call of each in microseconds; they run in turns, so that none has better conditions."""
    best = dict.fromkeys(work, float("inf"))
    for _ in range(ROUNDS):
        for name, call in work.items():
            start = time.perf_counter()
            call()
            best[name] = min(best[name], (time.perf_counter() - start) / number * 1e6)
    return best


def run(report: Report) -> None:
    with tempfile.TemporaryDirectory() as folder:
        for label, size in (("16 KiB", 16 << 10), ("1 MiB", 1 << 20)):
            appends(report, folder, label, size)
            reads(report, folder, label, size)
        overhead(report)
        pool(report, folder)
        report.add("open and close a file", "pessoa", *opening(folder))
    simulated(report)


def appends(report: Report, folder: str, label: str, size: int) -> None:
    data = memoryview(bytearray(os.urandom(size)))
    number = FILE_BYTES // size
    file = OsDisk().open(f"{folder}/ours", create=True)
    descriptor = os.open(f"{folder}/plain", os.O_RDWR | os.O_CREAT | os.O_APPEND)

    def ours() -> None:
        file.truncate(0)
        for _ in range(number):
            file.append(data)

    def plain() -> None:
        os.ftruncate(descriptor, 0)
        for _ in range(number):
            os.write(descriptor, data)

    best = in_turns({"pessoa": ours, "os": plain}, number)
    report.add(f"append {label}", "pessoa", best["pessoa"], "µs")
    report.add(f"append {label}", "os", best["os"], "µs")
    os.close(descriptor)
    file.close()


def reads(report: Report, folder: str, label: str, size: int) -> None:
    """Measure reads from the file that `appends` has left."""
    number = FILE_BYTES // size
    file = OsDisk().open(f"{folder}/ours")
    descriptor = os.open(f"{folder}/ours", os.O_RDONLY)

    def ours() -> None:
        for position in range(0, FILE_BYTES, size):
            file.read(position, size)

    def plain() -> None:
        for position in range(0, FILE_BYTES, size):
            os.pread(descriptor, size, position)

    for name, microseconds in in_turns({"pessoa": ours, "os": plain}, number).items():
        report.add(f"read {label}", name, microseconds, "µs")
    os.close(descriptor)
    file.close()


def overhead(report: Report) -> None:
    data = memoryview(bytearray(16 << 10))
    number = 20_000
    file = OsDisk().open("/dev/null")
    descriptor = os.open("/dev/null", os.O_RDWR)

    def ours() -> None:
        for _ in range(number):
            file.append(data)

    def plain() -> None:
        for _ in range(number):
            os.write(descriptor, data)

    for name, microseconds in in_turns({"pessoa": ours, "os": plain}, number).items():
        report.add("append 16 KiB to /dev/null", name, microseconds, "µs")
    os.close(descriptor)
    file.close()


def pool(report: Report, folder: str) -> None:
    """Measure the descriptor pool with twice as many files as descriptors, used in turn: every use reopens its file."""
    count = 200
    disk = OsDisk(max_open_files=count // 2)
    files = [disk.open(f"{folder}/pooled-{number}", create=True) for number in range(count)]
    for file in files:
        file.append(b"x" * 100)

    def evicted() -> None:
        for file in files:
            file.read(0, 100)

    def at_hand() -> None:
        for _ in range(count):
            files[0].read(0, 100)

    best = in_turns({"evicted": evicted, "at hand": at_hand}, count)
    report.add("read 100 B of a file at hand", "pessoa", best["at hand"], "µs")
    report.add("read 100 B of an evicted file", "pessoa", best["evicted"], "µs")
    for file in files:
        file.close()


def opening(folder: str) -> tuple[float, str]:
    disk = OsDisk()
    number = 500

    def work() -> None:
        for _ in range(number):
            disk.open(f"{folder}/pooled-0").close()

    return in_turns({"pessoa": work}, number)["pessoa"], "µs"


def simulated(report: Report) -> None:
    number = 20_000
    disk = SimulatedDisk()
    file = disk.open("/file", create=True)
    data = b"x" * 100

    def append() -> None:
        file.truncate(0)
        for _ in range(number):
            file.append(data)

    def read() -> None:
        for _ in range(number):
            file.read(50, 100)

    best = in_turns({"append": append, "read": read}, number)
    report.add("append 100 B, simulated", "pessoa", best["append"], "µs")
    report.add("read 100 B, simulated", "pessoa", best["read"], "µs")
    disk.record()
    report.add("append 100 B, simulated, recorded", "pessoa", in_turns({"append": append}, number)["append"], "µs")
