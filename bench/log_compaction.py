"""Compaction: how fast a dirty topic is cleaned, and how much that delays the event loop.

A topic of PESSOA_BENCH_COMPACTION_MB megabytes (default 1000; a fifth of it for small records) in batches of 16 KiB, in
which every key comes several times, is cleaned by a `LogCleaner` on a real disk, beside an event loop that measures
every millisecond how late its timer is. MB/s refer to the topic's size before. A plain copy reads and writes the same
bytes with the same calls and syncs them: no cleaner can be faster.

Lateness is what a client would see, and includes everything else that happens on the machine; so "loop alone" is
reported as well. "Busy" is the CPU time of the loop's thread between two timers: the work of the cleaner on the loop,
wherever the pass runs. The pass is also run in a thread that releases the interpreter lock after every step, to show
the advantage of a process of its own.
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
# How many records of the topic have the same key.
REPETITION = 4
# More keys than fit into the default buffer would need several passes.
MAX_KEYS = 500_000
TICK_SECONDS = 0.001


class PassInThread:
    """A pass for comparison, which runs in the thread that asks for its next step, and sleeps a moment after each
    step."""

    def __init__(self, plan: CleaningPlan) -> None:
        self._steps = CleaningPass(OsDisk(), plan, time.monotonic).steps()
        self._is_stopped = False

    def next_step(self) -> SwapReady | Finished:
        for step in self._steps:
            if self._is_stopped:
                raise CleanerDied("it was stopped")
            if not isinstance(step, Pause):
                return step
            # Long enough for a waiting thread to wake up; with 0 this thread would get the interpreter lock back at
            # once.
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
    """Write a log of which a pass keeps about one record in REPETITION."""
    chance = Random(1)
    disk = OsDisk()
    directory = LogDirectory(disk, str(path))
    path.mkdir()
    directory.open(lambda _: CONFIG, 0)
    log = directory.create("orders", 0, Uuid(b"compaction bench"), CONFIG, 0)
    count = BATCH_BYTES // (value_bytes + 20)
    key_count = min(size // (value_bytes + 20) // REPETITION, MAX_KEYS)
    # Text that compresses to about one half; every record has another part of it.
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
    """Copy every byte of the log, a megabyte at a time, sync the copy, and return the seconds."""
    target.mkdir()
    started = time.perf_counter()
    for path in sorted(source.rglob("*.log")):
        with path.open("rb", buffering=0) as reader, (target / path.name).open("wb", buffering=0) as writer:
            while piece := reader.read(1 << 20):
                writer.write(piece)
            os.fdatasync(writer.fileno())
    return time.perf_counter() - started


async def clean(path: Path, start: Callable[[CleaningPlan], RunningPass]) -> tuple[float, Watch]:
    """Run a pass; return its seconds, and lateness and CPU time of the loop meanwhile."""
    disk = OsDisk()
    directory = LogDirectory(disk, str(path))
    directory.open(lambda _: CONFIG, 0)
    for log in directory.partitions.values():
        log.update_high_watermark(log.log_end_offset)
        log.on_segments_dropped = lambda _log, _segments: None
    cleaner = LogCleaner(disk, [directory], SystemClock(), start_pass=start)
    # The pass is measured without the choice of the log, which looks at every partition.
    started = time.perf_counter()
    loop = await watched(cleaner.clean_filthiest())
    seconds = time.perf_counter() - started
    assert cleaner.last_stats is not None, "the topic was not cleaned"
    print(f"    {cleaner.last_stats!r}", flush=True)
    directory.close()
    return seconds, loop


class Watch(NamedTuple):
    """Lateness and CPU time of the loop at each of its timers: sorted lists, in seconds."""

    late: list[float]
    busy: list[float]


async def watched(work: Coroutine[object, object, object]) -> Watch:
    """Run `work` on a loop that also has a timer every millisecond; return the lateness and CPU time of the loop."""
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
