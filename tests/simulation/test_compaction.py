"""The checker of compaction can fail: what may not be gone, or has changed, is called by its name.

A log is written as producers would, and committed; then a replica is put together that a cleaner might have left.
"""

from __future__ import annotations

import pytest

from pessoa.log.compaction.batch_rewrite import drop_records, keep_records
from pessoa.log.partition_log import PartitionLog
from pessoa.log.simulated_disk import SimulatedDisk
from pessoa.records.batch import RecordBatch
from tests.simulation.compaction import Memory
from tests.simulation.history import Violation
from tests.support.cleaning import NOW_MS, all_batches, append, end_transaction, open_log

RETENTION_S = 10.0
LATER_S = 20.0


@pytest.fixture
def log() -> PartitionLog:
    return open_log(SimulatedDisk())


def memory_of(log: PartitionLog) -> Memory:
    memory = Memory("t-0", RETENTION_S)
    for batch in all_batches(log):
        memory.commit(batch, 0.0, "n1")
    return memory


def check(memory: Memory, batches: list[RecordBatch], now_s: float = LATER_S) -> None:
    replica = open_log(SimulatedDisk())
    for batch in batches:
        replica.append_as_follower(bytes(batch.view), NOW_MS)
    replica.update_high_watermark(replica.log_end_offset)
    memory.check(replica, now_s, "n2")


def test_a_record_may_go_when_a_later_one_with_its_key_is_committed(log: PartitionLog) -> None:
    append(log, [(b"a", b"1")])
    append(log, [(b"b", b"1"), (b"a", b"2")])
    memory, batches = memory_of(log), all_batches(log)
    check(memory, batches)
    check(memory, batches[1:])
    with pytest.raises(Violation, match="compacted away: t-0@1"):
        check(memory, [batches[0], keep_records(batches[1], b"\0\1", None)])


def test_a_record_that_another_has_taken_the_place_of_is_inconsistent(log: PartitionLog) -> None:
    append(log, [(b"a", b"1")])
    memory = memory_of(log)
    other = open_log(SimulatedDisk())
    append(other, [(b"a", b"2")])
    with pytest.raises(Violation, match="inconsistent"):
        check(memory, all_batches(other))


def test_what_was_aborted_may_go_and_what_is_undecided_may_not(log: PartitionLog) -> None:
    append(log, [(b"a", b"1")], producer=(1, 0, 0), transactional=True)
    append(log, [(b"b", b"1")], producer=(2, 0, 0), transactional=True)
    end_transaction(log, 1, 1, commit=False)
    memory, batches = memory_of(log), all_batches(log)
    check(memory, batches[1:])
    with pytest.raises(Violation, match="compacted away: t-0@1"):
        check(memory, [batches[0], batches[2]])


def test_nothing_is_superseded_by_what_was_aborted(log: PartitionLog) -> None:
    append(log, [(b"a", b"1")])
    append(log, [(b"a", b"2")], producer=(1, 0, 0), transactional=True)
    end_transaction(log, 1, 1, commit=False)
    memory, batches = memory_of(log), all_batches(log)
    with pytest.raises(Violation, match="compacted away: t-0@0"):
        check(memory, batches[1:])


def test_a_tombstone_may_go_when_it_is_old_and_nothing_can_come_back(log: PartitionLog) -> None:
    append(log, [(b"a", b"1")])
    append(log, [(b"a", None)])
    append(log, [(b"b", b"1")])
    memory, batches = memory_of(log), all_batches(log)
    check(memory, batches[2:])
    with pytest.raises(Violation, match="compacted away: t-0@1"):
        check(memory, batches[2:], now_s=1.0)
    with pytest.raises(Violation, match="compacted away: t-0@1"):
        check(memory, [batches[0], batches[2]])


def test_a_marker_stays_as_long_as_there_is_something_of_its_transaction(log: PartitionLog) -> None:
    append(log, [(b"a", b"1")], producer=(1, 0, 0), transactional=True)
    end_transaction(log, 1, 0, commit=True)
    append(log, [(b"a", b"2")])
    memory, batches = memory_of(log), all_batches(log)
    check(memory, [drop_records(batches[0]), batches[2]])
    with pytest.raises(Violation, match="the marker at 1"):
        check(memory, [batches[0], batches[2]])


def test_the_last_batch_of_a_producer_stays_if_need_be_without_records(log: PartitionLog) -> None:
    append(log, [(b"a", b"1")], producer=(1, 0, 0))
    append(log, [(b"a", b"2")])
    memory, batches = memory_of(log), all_batches(log)
    check(memory, [drop_records(batches[0]), batches[1]])
    with pytest.raises(Violation, match="sequence numbers"):
        check(memory, batches[1:])


def test_a_batch_that_was_never_committed_is_not_from_a_cleaner(log: PartitionLog) -> None:
    append(log, [(b"a", b"1")])
    memory = memory_of(log)
    append(log, [(b"a", b"2")])
    with pytest.raises(Violation, match="was never committed"):
        check(memory, all_batches(log))
