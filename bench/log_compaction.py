"""Compaction: how fast a dirty topic is cleaned, and whether the event loop notices.

A topic of PESSOA_BENCH_COMPACTION_MB megabytes (1000 if nothing is said; a fifth of it for small records) in batches of
16 KiB, in which every key comes several times, is cleaned by a `LogCleaner` on a real disk, beside an event loop that
asks itself every millisecond how late it is. MB/s are those of the topic's size. A plain copy reads and writes the same
bytes with the same calls and syncs them: the limit that no cleaner passes.

Lateness is what a client would see, and has everything in it that else happens on the machine; so "loop alone" stands
beside it. "Busy" is the processor time that the loop's thread spent between two appointments: what the cleaner itself
does on the loop, wherever the pass runs. The pass is also run in a thread that gives the interpreter away after every
step, to see what a process of its own is good for.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
import time
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, NamedTuple

from pessoa.base.clock import SystemClock
from pessoa.base.ids import Uuid
from pessoa.log.compaction.cleaning_pass import CleaningPass
from pessoa.log.compaction.cleaning_plan import CleaningPlan, Finished, Pause, SwapReady
from pessoa.log.compaction.cleaning_process import CleanerDied, CleaningProcess
from pessoa.log.compaction.log_cleaner import LogCleaner
from pessoa.log.directory import LogDirectory
from pessoa.log.log_config import COMPACT, LogConfig
from pessoa.log.os_disk import OsDisk
from pessoa.records.builder import build_batch
from pessoa.records.compression import Codec
from pessoa.records.record import Record

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from bench.report import Report
    from pessoa.log.compaction.log_cleaner import RunningPass

MEGABYTES = int(os.environ.get("PESSOA_BENCH_COMPACTION_MB", "1000"))
CONFIG = LogConfig(cleanup_policy=frozenset({COMPACT}), segment_bytes=128 << 20, flush_messages=1 << 62)
BATCH_BYTES = 16 << 10
# How often a key comes in the topic.
REPETITION = 4
# More than a pass of the default buffer takes would measure several passes.
MAX_KEYS = 500_000
TICK_SECONDS = 0.001


class PassInThread:
    """For comparison: works in the thread that asks, and sleeps for a moment after every step."""

    def __init__(self, plan: CleaningPlan) -> None:
        self._steps = CleaningPass(OsDisk(), plan, time.monotonic).steps()
        self._is_stopped = False

    def next_step(self) -> SwapReady | Finished:
        for step in self._steps:
            if self._is_stopped:
                raise CleanerDied("it was stopped")
            if not isinstance(step, Pause):
                return step
            # Long enough for a waiting thread to be woken; 0 would take the interpreter back at once.
            time.sleep(0.00005)
        raise AssertionError("a pass ends with Finished")

    def stop(self) -> None:
        self._is_stopped = True

    def close(self) -> None:
        self._steps.close()


def run(report: Report) -> None:
    for value_bytes, codec, megabytes in (
        (1000, Codec.NONE, MEGABYTES),
        (100, Codec.NONE, MEGABYTES // 5),
        (100, Codec.LZ4, MEGABYTES // 5),
    ):
        case = f"{megabytes} MB of {value_bytes}-byte records{', ' + codec.name.lower() if codec else ''}"
        with tempfile.TemporaryDirectory(prefix="pessoa-bench-") as home:
            original = Path(home) / "original"
            fill(original, megabytes * 1_000_000, value_bytes, codec)
            measure(report, case, original)


def measure(report: Report, case: str, original: Path) -> None:
    size = sum(path.stat().st_size for path in original.rglob("*.log"))
    work = original.parent / "work"
    report.add(case, "plain copy", size / copy_seconds(original, work) / 1e6, "MB/s")
    shutil.rmtree(work)
    starts: dict[str, Callable[[CleaningPlan], RunningPass]] = {"pessoa": CleaningProcess, "in a thread": PassInThread}
    for name, start in starts.items():
        shutil.copytree(original, work)
        seconds, loop = asyncio.run(clean(work, start))
        shutil.rmtree(work)
        report.add(case, name, size / seconds / 1e6, "MB/s")
        add_loop(report, case, name, loop)
    add_loop(report, case, "loop alone", asyncio.run(watched(asyncio.sleep(3))))


def add_loop(report: Report, case: str, name: str, loop: Watch) -> None:
    report.add(f"{case}: loop late, p99", name, percentile(loop.late, 0.99) * 1e3, "ms")
    report.add(f"{case}: loop late, at worst", name, loop.late[-1] * 1e3, "ms")
    report.add(f"{case}: loop busy, at worst", name, loop.busy[-1] * 1e3, "ms")


def fill(path: Path, size: int, value_bytes: int, codec: Codec) -> None:
    """A topic of which a pass keeps about one record in REPETITION."""
    chance = Random(1)
    disk = OsDisk()
    directory = LogDirectory(disk, str(path))
    path.mkdir()
    directory.open(lambda _: CONFIG, 0)
    log = directory.create("orders", 0, Uuid(b"compaction bench"), CONFIG, 0)
    count = BATCH_BYTES // (value_bytes + 20)
    key_count = min(size // (value_bytes + 20) // REPETITION, MAX_KEYS)
    # Text that compresses to about a half; every record has another piece of it.
    text = chance.randbytes(1 << 20).hex().encode()
    now_ms = 1_700_000_000_000
    while log.size < size:
        now_ms += 5
        made = [
            Record(
                number, now_ms + number // 50, b"customer-%d" % chance.randrange(key_count), text[at : at + value_bytes]
            )
            for number, at in enumerate(chance.sample(range(1 << 20), count))
        ]
        log.append_as_leader(memoryview(build_batch(made, codec=codec)), 0, now_ms, 12)
    log.roll(now_ms)
    log.update_high_watermark(log.log_end_offset)
    directory.close()


def copy_seconds(source: Path, target: Path) -> float:
    """Every byte of the logs read and written once, a megabyte at a time, and synced."""
    target.mkdir()
    started = time.perf_counter()
    for path in sorted(source.rglob("*.log")):
        with path.open("rb", buffering=0) as reader, (target / path.name).open("wb", buffering=0) as writer:
            while piece := reader.read(1 << 20):
                writer.write(piece)
            os.fdatasync(writer.fileno())
    return time.perf_counter() - started


async def clean(path: Path, start: Callable[[CleaningPlan], RunningPass]) -> tuple[float, Watch]:
    """How long a pass took, and what the loop was like meanwhile."""
    disk = OsDisk()
    directory = LogDirectory(disk, str(path))
    directory.open(lambda _: CONFIG, 0)
    for log in directory.partitions.values():
        log.update_high_watermark(log.log_end_offset)
        log.on_segments_dropped = lambda _log, _segments: None
    cleaner = LogCleaner(disk, [directory], SystemClock(), start_pass=start)
    # Choosing the log is a glance at every partition; what is measured is the pass.
    started = time.perf_counter()
    loop = await watched(cleaner.clean_filthiest())
    seconds = time.perf_counter() - started
    assert cleaner.last_stats is not None, "the topic was not cleaned"
    print(f"    {cleaner.last_stats!r}", flush=True)
    directory.close()
    return seconds, loop


class Watch(NamedTuple):
    """In seconds, rising, one number for each appointment of the loop: how late it was, how busy it had been."""

    late: list[float]
    busy: list[float]


async def watched(work: Coroutine[object, object, object]) -> Watch:
    """The loop while `work` runs on it."""
    late: list[float] = []
    busy: list[float] = []
    task = asyncio.create_task(work)
    while not task.done():
        due, spent = time.perf_counter() + TICK_SECONDS, time.thread_time()
        await asyncio.sleep(TICK_SECONDS)
        late.append(max(0.0, time.perf_counter() - due))
        busy.append(time.thread_time() - spent)
    await task
    return Watch(sorted(late), sorted(busy))


def percentile(rising: list[float], share: float) -> float:
    return rising[min(len(rising) - 1, int(len(rising) * share))]
