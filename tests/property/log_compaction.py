"""What compaction may do to a list of batches, as rules for the result: the model of a compaction pass.

Below the first uncleanable offset a batch may be missing or have fewer records, if every missing record was one of
these: superseded by a later record of its key that is present and below that offset; part of an aborted transaction;
a tombstone whose delete horizon has passed. Other records and their offsets are unchanged, and all above that offset.
"""

from __future__ import annotations

from collections.abc import Sequence

from pessoa.log.checkpoints import RECOVERY_POINT_FILE
from pessoa.log.compaction.cleaning_pass import CleaningPass
from pessoa.log.compaction.cleaning_plan import SwapReady
from pessoa.log.compaction.log_to_clean import CleanerSettings, assess, make_plan
from pessoa.log.compaction.segment_swap import Cleaning
from pessoa.log.directory import LogDirectory
from pessoa.log.partition_log import PartitionLog
from pessoa.log.simulated_disk import SimulatedDisk
from pessoa.records.record import Record
from tests.property.log_comparison import found_batches
from tests.property.log_model import Ghost, LogModel, Stored


def clean(disk: SimulatedDisk, directory: LogDirectory, log: PartitionLog, now_ms: int) -> int:
    """Run one pass if there is anything to clean; return the first offset that it does not change."""
    cleanable = assess(log, None, now_ms)
    if not cleanable.cleanable_bytes:
        return 0
    # As the shell does it.
    directory.write_rendered(directory.render_checkpoints(RECOVERY_POINT_FILE))
    plan = make_plan(log, cleanable, CleanerSettings(), now_ms)
    cleaning = Cleaning(disk, log, plan)
    for step in CleaningPass(disk, plan, lambda: 0.0).steps():
        if isinstance(step, SwapReady):
            swap = cleaning.begin_swap(step, now_ms)
            assert swap is not None, "nothing has changed meanwhile"
            swap.finish()
    return plan.first_uncleanable_offset


def check_compaction(log: PartitionLog, model: LogModel, before: Sequence[Stored], end: int, now_ms: int) -> None:
    """Check the batches after a pass against those before, and put the new ones into the model."""
    after = found_batches(log)
    assert [batch for batch in after if batch.base_offset >= end] == [
        batch for batch in before if batch.base_offset >= end
    ], f"compaction has changed what lies above {end}"
    by_offset = {batch.base_offset: batch for batch in before}
    for batch in after:
        old = by_offset[batch.base_offset]
        assert identity_of(batch) == identity_of(old), f"{batch.header!r} was {old.header!r}"
        assert set(batch.records) <= set(old.records), f"{batch.records} were {old.records}"
    left = {record.offset for batch in after for record in batch.records}
    latest = {record.key: record.offset for record in model.committed([b for b in before if b.base_offset < end])}
    for batch in before:
        gone = [record for record in batch.records if record.offset not in left]
        for record in gone:
            assert batch.base_offset < end
            assert may_go(model, batch, record, latest, now_ms), f"compaction has lost {record} of {batch}"
    replace_below(model, [batch for batch in after if batch.base_offset < end], end)


def may_go(model: LogModel, batch: Stored, record: Record, latest: dict[bytes | None, int], now_ms: int) -> bool:
    horizon_ms = batch.header.delete_horizon_ms
    is_due = horizon_ms is not None and horizon_ms <= now_ms
    if batch.header.is_control:
        return is_due
    if batch.header.is_transactional and model.is_aborted(batch):
        return True
    return record.offset < latest.get(record.key, -1) or (record.value is None and is_due)


def identity_of(batch: Stored) -> tuple[object, ...]:
    """Return the header fields of a batch that compaction does not change when it removes records."""
    header = batch.header
    return (
        (header.base_offset, header.last_offset, header.partition_leader_epoch),
        (header.producer_id, header.producer_epoch, header.base_sequence),
        (header.is_transactional, header.is_control, header.timestamp_type),
    )


def replace_below(model: LogModel, cleaned: list[Stored], end: int) -> None:
    """Make the cleaned batches durable in the model, also in the ghost lists that a power loss may restore."""

    def merged(batches: Sequence[Stored]) -> list[Stored]:
        return [*cleaned, *(batch for batch in batches if batch.base_offset >= end)]

    model.batches = merged(model.batches)
    model.ghosts = [Ghost(merged(ghost.batches), ghost.memory, ghost.log_start) for ghost in model.ghosts]
    model.is_compacted = True
