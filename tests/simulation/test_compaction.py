"""The checker of compaction reports records that must not be missing, or have changed, by key and offset.

A log is written as by producers, and committed; then a replica is made as compaction might have left it.
"""

from __future__ import annotations

import pytest

from pessoa.log.compaction.batch_rewrite import drop_records, keep_records
from pessoa.log.partition_log import PartitionLog
from pessoa.log.simulated_disk import SimulatedDisk
from pessoa.records.batch import RecordBatch
from tests.simulation.compaction import CommittedBatches
from tests.simulation.history import Violation
from tests.support.cleaning import NOW_MS, all_batches, append, end_transaction, open_log

RETENTION_S = 10.0
LATER_S = 20.0


@pytest.fixture
def log() -> PartitionLog:
    return open_log(SimulatedDisk())


def committed_batches_of(log: PartitionLog) -> CommittedBatches:
    memory = CommittedBatches("t-0", RETENTION_S)
    for batch in all_batches(log):
        memory.commit(batch, 0.0, "n1")
    return memory


def check(memory: CommittedBatches, batches: list[RecordBatch], now_s: float = LATER_S) -> None:
    replica = open_log(SimulatedDisk())
    for batch in batches:
        replica.append_as_follower(bytes(batch.view), NOW_MS)
    replica.update_high_watermark(replica.log_end_offset)
    memory.check(replica, now_s, "n2")


def test_the_checker_allows_compaction_of_a_record_when_a_later_one_with_its_key_is_committed(
    log: PartitionLog,
) -> None:
    append(log, [(b"a", b"1")])
    append(log, [(b"b", b"1"), (b"a", b"2")])
    memory, batches = committed_batches_of(log), all_batches(log)
    check(memory, batches)
    check(memory, batches[1:])
    with pytest.raises(Violation, match="compacted away: t-0@1"):
        check(memory, [batches[0], keep_records(batches[1], b"\0\1", None)])


def test_the_checker_reports_a_record_that_was_replaced_by_another(log: PartitionLog) -> None:
    append(log, [(b"a", b"1")])
    memory = committed_batches_of(log)
    other = open_log(SimulatedDisk())
    append(other, [(b"a", b"2")])
    with pytest.raises(Violation, match="inconsistent"):
        check(memory, all_batches(other))


def test_the_checker_allows_compaction_of_aborted_and_not_of_undecided_records(log: PartitionLog) -> None:
    append(log, [(b"a", b"1")], producer=(1, 0, 0), transactional=True)
    append(log, [(b"b", b"1")], producer=(2, 0, 0), transactional=True)
    end_transaction(log, 1, 1, commit=False)
    memory, batches = committed_batches_of(log), all_batches(log)
    check(memory, batches[1:])
    with pytest.raises(Violation, match="compacted away: t-0@1"):
        check(memory, [batches[0], batches[2]])


def test_the_checker_does_not_let_aborted_records_supersede_others(log: PartitionLog) -> None:
    append(log, [(b"a", b"1")])
    append(log, [(b"a", b"2")], producer=(1, 0, 0), transactional=True)
    end_transaction(log, 1, 1, commit=False)
    memory, batches = committed_batches_of(log), all_batches(log)
    with pytest.raises(Violation, match="compacted away: t-0@0"):
        check(memory, batches[1:])


def test_the_checker_allows_removal_of_an_old_tombstone_if_no_older_value_can_reappear(log: PartitionLog) -> None:
    append(log, [(b"a", b"1")])
    append(log, [(b"a", None)])
    append(log, [(b"b", b"1")])
    memory, batches = committed_batches_of(log), all_batches(log)
    check(memory, batches[2:])
    with pytest.raises(Violation, match="compacted away: t-0@1"):
        check(memory, batches[2:], now_s=1.0)
    with pytest.raises(Violation, match="compacted away: t-0@1"):
        check(memory, [batches[0], batches[2]])


def test_the_checker_requires_a_marker_while_records_of_its_transaction_exist(log: PartitionLog) -> None:
    append(log, [(b"a", b"1")], producer=(1, 0, 0), transactional=True)
    end_transaction(log, 1, 0, commit=True)
    append(log, [(b"a", b"2")])
    memory, batches = committed_batches_of(log), all_batches(log)
    check(memory, [drop_records(batches[0]), batches[2]])
    with pytest.raises(Violation, match="the marker at 1"):
        check(memory, [batches[0], batches[2]])


def test_the_checker_requires_the_last_batch_of_a_producer_at_least_without_records(log: PartitionLog) -> None:
    append(log, [(b"a", b"1")], producer=(1, 0, 0))
    append(log, [(b"a", b"2")])
    memory, batches = committed_batches_of(log), all_batches(log)
    check(memory, [drop_records(batches[0]), batches[1]])
    with pytest.raises(Violation, match="sequence numbers"):
        check(memory, batches[1:])


def test_the_checker_reports_a_batch_that_was_never_committed(log: PartitionLog) -> None:
    append(log, [(b"a", b"1")])
    memory = committed_batches_of(log)
    append(log, [(b"a", b"2")])
    with pytest.raises(Violation, match="was never committed"):
        check(memory, all_batches(log))
