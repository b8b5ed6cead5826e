"""Logs for tests of compaction, on a disk in memory, and what a consumer reads from them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pessoa.log.compaction.cleaning_pass import CleaningPass
from pessoa.log.compaction.cleaning_plan import CleanerStats, Finished, Pause, SwapReady
from pessoa.log.compaction.log_to_clean import CleanerSettings, assess, make_plan
from pessoa.log.compaction.segment_swap import Cleaning
from pessoa.log.files import Disk
from pessoa.log.log_config import COMPACT, LogConfig
from pessoa.log.log_loader import load_partition
from pessoa.log.partition_log import PartitionLog, ReadUpTo
from pessoa.records.batch import RecordBatch, batches
from pessoa.records.builder import build_batch
from pessoa.records.compression import Codec
from pessoa.records.control_records import ControlRecordType, build_transaction_marker, control_records
from pessoa.records.record import Record, records

DIRECTORY = "/data/orders-0"
NOW_MS = 1_700_000_000_000
PRODUCE_VERSION = 12

CONFIG = LogConfig(
    cleanup_policy=frozenset({COMPACT}), segment_bytes=1 << 20, index_interval_bytes=64, delete_retention_ms=1000
)

Pair = tuple[bytes | None, bytes | None]


def open_log(
    disk: Disk,
    config: LogConfig = CONFIG,
    *,
    high_watermark: int = 0,
    was_clean: bool = True,
    recovery_point: int = 0,
) -> PartitionLog:
    loaded = load_partition(
        disk,
        DIRECTORY,
        config,
        NOW_MS,
        was_clean=was_clean,
        recovery_point=recovery_point,
        high_watermark=high_watermark,
    )
    loaded.producers.verification_enabled = False
    # As the broker's upkeep does later: rolled segments are synced, and only synced segments may be cleaned.
    loaded.on_rolled = lambda rolled: rolled.flush()
    return loaded


def append(
    log: PartitionLog,
    pairs: Iterable[Pair],
    *,
    timestamps: Sequence[int] | None = None,
    producer: tuple[int, int, int] | None = None,
    transactional: bool = False,
    codec: Codec = Codec.NONE,
    now_ms: int = NOW_MS,
) -> int:
    """Append one batch, raise the high watermark over it, and return its base offset. `producer` is id, epoch and first
    sequence."""
    made = [
        Record(number, timestamps[number] if timestamps else now_ms + number, key, value)
        for number, (key, value) in enumerate(pairs)
    ]
    producer_id, epoch, sequence = producer or (-1, -1, -1)
    data = build_batch(
        made,
        codec=codec,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        transactional=transactional,
    )
    # A topic that was not compacted from its creation on may hold records without a key.
    appended = log.append_own(memoryview(data), 0, now_ms) if None in {key for key, _ in pairs} else None
    if appended is None:
        appended = log.append_as_leader(memoryview(data), 0, now_ms, PRODUCE_VERSION)
    log.update_high_watermark(log.log_end_offset)
    return appended.base_offset


def end_transaction(log: PartitionLog, producer_id: int, epoch: int, *, commit: bool, now_ms: int = NOW_MS) -> int:
    marker = build_transaction_marker(
        ControlRecordType.COMMIT if commit else ControlRecordType.ABORT,
        producer_id=producer_id,
        producer_epoch=epoch,
        coordinator_epoch=0,
        timestamp=now_ms,
    )
    appended = log.append_own(memoryview(marker), 0, now_ms)
    log.update_high_watermark(log.log_end_offset)
    return appended.base_offset


class ManualSeconds:
    """A clock that advances by `tick` every time it is read."""

    def __init__(self, tick: float = 0.0001) -> None:
        self.now = 0.0
        self.tick = tick

    def __call__(self) -> float:
        self.now += self.tick
        return self.now


@dataclass
class Cleaned:
    end_offset: int
    stats: CleanerStats
    swaps: int
    pauses: list[float]


def clean(
    disk: Disk,
    log: PartitionLog,
    checkpoint: int | None = None,
    *,
    now_ms: int = NOW_MS,
    settings: CleanerSettings | None = None,
) -> Cleaned:
    """Run one whole compaction pass, whether it is due or not."""
    cleanable = assess(log, checkpoint, now_ms)
    plan = make_plan(log, cleanable, settings or CleanerSettings(), now_ms)
    cleaning = Cleaning(disk, log, plan)
    swaps, pauses = 0, []
    for step in CleaningPass(disk, plan, ManualSeconds()).steps():
        if isinstance(step, Pause):
            pauses.append(step.seconds)
        elif isinstance(step, SwapReady):
            swap = cleaning.begin_swap(step, now_ms)
            assert swap is not None
            swap.finish()
            swaps += 1
        else:
            assert isinstance(step, Finished)
            return Cleaned(step.end_offset, step.stats, swaps, pauses)
    raise AssertionError("a pass ends with Finished")


def all_batches(log: PartitionLog) -> list[RecordBatch]:
    return [batch for segment in log.segments for _, batch in segment.batches()]


def all_records(log: PartitionLog) -> list[Record]:
    """Return every record of the data batches, also of aborted transactions."""
    return [record for batch in all_batches(log) if not batch.is_control for record in records(batch)]


def consumed(log: PartitionLog, up_to: ReadUpTo = ReadUpTo.HIGH_WATERMARK, max_bytes: int = 1 << 20) -> list[Record]:
    """Return the records that a consumer reads from beginning to end, filtered as by Kafka's clients."""
    found: list[Record] = []
    offset = log.log_start_offset
    while True:
        fetched = log.read(offset, max_bytes, up_to)
        if fetched.data is None:
            return found
        pending = sorted(fetched.aborted, key=lambda transaction: transaction.first_offset)
        aborted: set[int] = set()
        next_offset = offset
        for batch in batches(fetched.data.read()):
            next_offset = batch.next_offset
            while pending and pending[0].first_offset <= batch.last_offset:
                aborted.add(pending.pop(0).producer_id)
            if batch.is_control:
                marker = next(control_records(batch), None)
                if marker is not None and marker.type is ControlRecordType.ABORT:
                    aborted.discard(batch.producer_id)
            elif not (batch.is_transactional and batch.producer_id in aborted):
                found += [record for record in records(batch) if record.offset >= offset]
        if next_offset == offset:
            return found
        offset = next_offset
