"""Comparison of a partition log with its model (`log_model`): content, results of methods, and state after a crash.

Nothing here writes to the disk of the log, so that a comparison can be made between any two steps. The bytes are read
from the `.log` files and split only by the headers; results of the log's methods are compared with those of the list.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from pessoa.log.partition_log import OffsetOutOfRange, PartitionLog, ReadUpTo
from pessoa.log.producer_snapshot_format import CorruptSnapshot, decode_snapshot
from pessoa.log.simulated_disk import SimulatedDisk
from pessoa.records.batch import batches as walk_batches
from tests.property.log_model import Ghost, LogModel, Stored, describes, learnt

# How the log was stopped: in order, by the death of the process, or by a loss of power.
Stop = Literal["in order", "process died", "power lost"]

ALL_SIZES = 1 << 30


def found_batches(log: PartitionLog) -> list[Stored]:
    """Return every batch in the files, after checking that the files have only complete, valid batches in order."""
    found: list[Stored] = []
    previous_base = -1
    for segment in log.segments:
        assert segment.base_offset > previous_base, f"{segment!r} is out of order"
        previous_base = segment.base_offset
        data = segment.file.read(0, segment.size)
        assert len(data) == segment.size, f"{segment!r} has {len(data)} bytes"
        walk = walk_batches(data)
        least = max(segment.base_offset, found[-1].next_offset if found else 0)
        for header in walk:
            assert header.is_valid(), f"{header!r} in {segment!r} is damaged"
            assert header.base_offset >= least, f"{header!r} in {segment!r} should start at {least} or later"
            least = header.next_offset
            found.append(Stored(bytes(header.view)))
        assert not walk.has_partial_tail, f"{segment!r} ends with a piece of a batch"
    return found


# ---- while it runs ----


def check_offsets(log: PartitionLog, model: LogModel) -> None:
    real = (log.log_start_offset, log.high_watermark, log.log_end_offset)
    assert real == (model.log_start, model.high_watermark, model.log_end), f"{log!r} and not {model}"
    assert log.log_start_offset <= log.high_watermark <= log.log_end_offset, log
    assert log.segments[0].base_offset <= log.log_start_offset, log
    assert log.recovery_point <= log.log_end_offset, f"{log!r}: recovery point {log.recovery_point}"
    least, greatest = model.last_stable_offsets()
    assert least <= log.last_stable_offset <= greatest, f"{log!r}: {log.last_stable_offset} not in {least}..{greatest}"


def check_producers(log: PartitionLog, model: LogModel) -> None:
    expected = model.producers()
    entries = {entry.producer_id: entry for entry in log.producers.entries()}
    assert entries.keys() == expected.keys(), f"{entries} instead of {expected}"
    for producer_id, producer in expected.items():
        entry = entries[producer_id]
        assert describes(producer, producer_id, entry), f"{entry} instead of {producer}"
        assert len(entry.batches) == len(producer.batches), f"{entry} instead of {producer}"


def check_epochs(log: PartitionLog, model: LogModel) -> None:
    entries = log.epochs.entries()
    assert entries == sorted(entries), entries
    assert len({epoch for epoch, _ in entries}) == len({start for _, start in entries}) == len(entries), entries
    log_start = max(model.log_start, model.epochs_from)
    known = [batch for batch in model.visible() if batch.epoch >= 0 and batch.last_offset >= log_start]
    for batch in known:
        offset = max(batch.base_offset, log_start)
        assert log.epochs.epoch_for_offset(offset) == batch.epoch, f"{batch} and {log.epochs}"
    if model.is_compacted:
        return
    starts = {batch.epoch: batch.base_offset for batch in reversed(known)}
    for epoch, start in entries:
        assert start <= max(log_start, starts.get(epoch, -1)), f"nothing of epoch {epoch} is at {start}: {known}"
    for epoch in starts:
        later = [start for other, start in starts.items() if other > epoch]
        expected = (epoch, min(later, default=log.log_end_offset))
        assert log.epochs.end_offset_for(epoch, log.log_end_offset) == expected, f"{log.epochs} and {starts}"


def check_indexes(log: PartitionLog) -> None:
    for segment in log.segments:
        position = 0
        places: dict[int, int] = {}
        # last offset → the largest timestamp up to there
        newest: dict[int, int] = {}
        timestamp = -1
        for header in walk_batches(segment.file.read(0, segment.size)):
            places[header.last_offset] = position
            position += header.size
            timestamp = max(timestamp, header.max_timestamp)
            newest[header.last_offset] = timestamp
        offset_index, time_index = segment.offset_index, segment.time_index
        entries = [offset_index.entry(number) for number in range(offset_index.entry_count)]
        assert entries == sorted(set(entries)), f"{offset_index!r} does not rise: {entries}"
        for relative_offset, place in entries:
            assert places.get(segment.base_offset + relative_offset) == place, f"{offset_index!r}: {entries}, {places}"
        entries = [time_index.entry(number) for number in range(time_index.entry_count)]
        assert entries == sorted(set(entries)), f"{time_index!r} does not rise: {entries}"
        for indexed, relative_offset in entries:
            assert newest.get(segment.base_offset + relative_offset) == indexed, f"{time_index!r}: {entries}, {newest}"
        assert segment.max_timestamp == timestamp, f"{segment!r}: {segment.max_timestamp} instead of {timestamp}"


def check_snapshots(log: PartitionLog, model: LogModel, disk: SimulatedDisk) -> None:
    """Check that each producer snapshot agrees with the batches below its offset, unless it is detected as damaged."""
    contents = disk.contents()
    for offset in log.snapshots.offsets:
        try:
            entries = decode_snapshot(contents[log.snapshots.path(offset)])
        except CorruptSnapshot:
            continue
        producers, _ = learnt(batch for batch in model.memory if batch.base_offset < offset)
        assert {entry.producer_id for entry in entries} == producers.keys(), f"the snapshot at {offset}: {entries}"
        for entry in entries:
            producer = producers[entry.producer_id]
            assert describes(producer, entry.producer_id, entry), f"at {offset}: {entry} instead of {producer}"


def check_read(
    log: PartitionLog, model: LogModel, offset: int, max_bytes: int, up_to: ReadUpTo, at_least_one_batch: bool
) -> int:
    """Read from the log, compare with the model, and return the offset of the next read."""
    try:
        fetched = log.read(offset, max_bytes, up_to, at_least_one_batch=at_least_one_batch)
    except OffsetOutOfRange:
        assert not model.log_start <= offset <= model.log_end, f"{log!r} refuses {offset}"
        return offset
    assert model.log_start <= offset <= model.log_end, f"{log!r} serves {offset}"
    bounds = {
        ReadUpTo.LOG_END: model.log_end,
        ReadUpTo.HIGH_WATERMARK: model.high_watermark,
        ReadUpTo.LAST_STABLE_OFFSET: log.last_stable_offset,
    }
    expected: list[Stored] = []
    for batch in model.batches:
        if batch.last_offset >= bounds[up_to] or offset >= bounds[up_to]:
            break
        if batch.last_offset >= offset:
            expected.append(batch)
    data = fetched.data.read() if fetched.data is not None else b""
    limit = max(max_bytes, len(expected[0].data)) if expected and at_least_one_batch else max_bytes
    whole = b"".join(batch.data for batch in expected)
    assert data == whole[: len(data)], f"{log!r} read at {offset} up to {up_to} is not what was appended: {expected}"
    assert len(data) <= limit, f"{log!r} gives {len(data)} bytes of {limit}"
    came, size = [], 0
    for batch in expected:
        size += len(batch.data)
        if size <= len(data):
            came.append(batch)
    if len(data) < min(limit, len(whole)):
        bases = [segment.base_offset for segment in log.segments]
        following = expected[len(came)].base_offset
        assert came, f"{log!r} read at {offset} gives nothing of {expected}"
        assert sum(len(batch.data) for batch in came) == len(data), f"{log!r} stops within {following}"
        assert any(came[-1].base_offset < base <= following for base in bases), f"{log!r} stops at {following}: {bases}"
    if up_to is ReadUpTo.LAST_STABLE_OFFSET:
        dropped = [(one.producer_id, one.first_offset) for one in fetched.aborted]
        assert read_committed(came, dropped) == model.committed(came), f"{came} with {fetched.aborted}"
    return came[-1].next_offset if came else offset


def read_committed(batches: Sequence[Stored], aborted: list[tuple[int, int]]) -> list[object]:
    """Return what a read_committed consumer sees of fetched batches, with the list of aborted transactions."""
    waiting = sorted(aborted, key=lambda one: one[1])
    dropped: set[int] = set()
    found: list[object] = []
    for batch in batches:
        while waiting and waiting[0][1] <= batch.last_offset:
            dropped.add(waiting.pop(0)[0])
        if batch.marker is not None:
            if batch.marker.is_abort:
                dropped.discard(batch.producer_id)
        elif not (batch.header.is_transactional and batch.producer_id in dropped):
            found += batch.records
    return found


def check_time(log: PartitionLog, model: LogModel, timestamp: int) -> None:
    found = log.find_by_timestamp(timestamp)
    expected = model.first_at_or_after(timestamp)
    assert (found and (found.timestamp, found.offset)) == (expected and (expected.timestamp, expected.offset)), (
        f"{log!r} has {found} at or after {timestamp}, and not {expected}"
    )


def check_newest(log: PartitionLog) -> None:
    """Check the offset of the newest timestamp of all records in the files; as in Kafka it may be below the log
    start."""
    found = log.find_max_timestamp()
    there = [record for batch in found_batches(log) for record in batch.records]
    expected = max(there, key=lambda record: (record.timestamp, -record.offset), default=None)
    assert (found and (found.timestamp, found.offset)) == (expected and (expected.timestamp, expected.offset)), (
        f"the newest in {log!r} is {found}, and not {expected}"
    )


def check_whole(log: PartitionLog, model: LogModel, disk: SimulatedDisk) -> None:
    check_offsets(log, model)
    check_producers(log, model)
    check_epochs(log, model)
    check_indexes(log)
    check_snapshots(log, model, disk)
    found = [batch for batch in found_batches(log) if batch.last_offset >= model.log_start]
    assert found == model.visible(), f"{log!r} has {found} and not {model.visible()}"
    for up_to in ReadUpTo:
        offset, previous = model.log_start, -1
        while offset > previous:
            previous, offset = offset, check_read(log, model, offset, 700, up_to, at_least_one_batch=True)
    check_newest(log)
    for batch in model.visible():
        check_time(log, model, batch.header.max_timestamp)


# ---- after it was stopped ----


def adopt(
    log: PartitionLog, model: LogModel, stop: Stop, *, lost_start: bool = False, lost_state: bool = False
) -> None:
    """Check that a reopened log has all that it must and nothing that it may not have, and set the model to that.

    `lost_start`: the checkpoints of the directory were damaged. `lost_state`: snapshots were.
    """
    found = found_batches(log)
    possible = model.possible_logs() if stop == "power lost" else model.possible_logs()[:1]
    chosen = next((one for one in possible if could_be(found, one, model, stop)), None)
    assert chosen is not None, (
        f"after {stop}: {found} is none of {[one.batches for one in possible]}, synced up to {model.durable_end}"
    )
    end = max([log.segments[-1].base_offset, *(batch.next_offset for batch in found)])
    assert log.log_end_offset == end, f"{log!r} has {found}"
    highest_start = max(one.log_start for one in possible)
    if stop == "power lost" or lost_start:
        lowest_start = 0 if lost_start else min(model.durable_start, chosen.log_start)
        assert lowest_start <= log.log_start_offset <= highest_start, f"{log!r}, {model}"
    else:
        assert log.log_start_offset == model.log_start, f"{log!r} should start at {model.log_start}"
        assert end <= max(model.log_end, model.log_start), f"{log!r} should end at {model.log_end}"
    highest_watermark = max(model.highest_watermark, log.log_start_offset)
    assert log.log_start_offset <= log.high_watermark <= highest_watermark, f"{log!r}, once {highest_watermark}"
    if stop == "in order" and not lost_start:
        assert log.high_watermark == max(model.log_start, min(model.high_watermark, end)), log
    if lost_start:
        model.epochs_from = max(model.epochs_from, model.log_start)
    model.batches = found
    model.log_start, model.log_end, model.high_watermark = log.log_start_offset, end, log.high_watermark
    model.reloaded_at = end
    if stop == "power lost":
        # What is there has come from the platter, and stays on it.
        model.durable_end, model.durable_start = max([0, *(batch.next_offset for batch in found)]), model.log_start
        model.ghosts.clear()
    adopt_producers(log, model, chosen, lost_state=lost_state or stop == "power lost")


def could_be(found: list[Stored], log: Ghost, model: LogModel, stop: Stop) -> bool:
    must = [batch for batch in log.batches if batch.last_offset >= log.log_start]
    upper = [batch for batch in found if batch.last_offset >= log.log_start]
    lower = [batch for batch in found if batch.last_offset < log.log_start]
    if any(batch not in log.batches for batch in lower) or upper != must[: len(upper)]:
        return False
    lost = must[len(upper) :]
    return not lost or (stop == "power lost" and lost[0].last_offset >= model.durable_end)


def adopt_producers(log: PartitionLog, model: LogModel, chosen: Ghost, *, lost_state: bool) -> None:
    """Check the producers of a reopened log: they follow from all batches or, if snapshots may be lost, from those
    left."""
    memories = [[batch for batch in chosen.memory if batch.next_offset <= model.log_end]]
    if lost_state or not model.batches:
        memories.append(model.batches)
    entries = {entry.producer_id: entry for entry in log.producers.entries()}
    for memory in memories:
        producers, _ = learnt(memory)
        if producers.keys() == entries.keys() and all(
            describes(producers[producer_id], producer_id, entry) for producer_id, entry in entries.items()
        ):
            model.memory = list(memory)
            break
    else:
        raise AssertionError(f"{log!r} knows {entries}, and not what one of {memories} says")
    forget_older_batches(log, model)


def forget_older_batches(log: PartitionLog, model: LogModel) -> None:
    """Remove from the model the batches of producers that a reload forgot: a snapshot has only the last of each."""
    producers, _ = learnt(model.memory)
    entries = list(log.producers.entries())
    assert {entry.producer_id for entry in entries} == producers.keys(), f"{entries}, {producers}"
    for entry in entries:
        assert describes(producers[entry.producer_id], entry.producer_id, entry), f"{entry}, {producers}"
    model.recognised = {batch.last_offset for entry in entries for batch in entry.batches}


def fingerprint(log: PartitionLog) -> dict[str, object]:
    """Return everything that must be equal after opening the log a second time.

    The last stable offset is left out: a snapshot does not have which markers are unreplicated, but a scan finds out.
    So is an epoch without remaining batches: whether it is known depends on whether its deleted batches were scanned.
    """
    return {
        "offsets": (log.log_start_offset, log.high_watermark, log.log_end_offset),
        "bytes": {segment.base_offset: segment.file.read(0, segment.size) for segment in log.segments},
        "aborted": {segment.base_offset: segment.aborted_transactions() for segment in log.segments},
        "epochs": {
            batch: log.epochs.epoch_for_offset(max(batch.base_offset, log.log_start_offset))
            for batch in found_batches(log)
            if batch.last_offset >= log.log_start_offset
        },
        "producers": {
            entry.producer_id: (
                entry.epoch,
                entry.coordinator_epoch,
                entry.current_txn_first_offset,
                [batch[:3] for batch in entry.batches[-1:]],
            )
            for entry in log.producers.entries()
        },
    }


def assert_same(found: dict[str, object], before: dict[str, object]) -> None:
    for what, value in found.items():
        assert value == before[what], f"a second opening found other {what}: {value} instead of {before[what]}"
