"""Markers, failover, timeouts and the expiry of transactional ids."""

from __future__ import annotations

import pytest

from pessoa.coordinator.transactions.marker_messages import MarkersWritten
from pessoa.coordinator.transactions.transaction import NO_TIMEOUT_MS, ProducerIdentity, State
from pessoa.coordinator.transactions.transaction_config import TransactionConfig
from pessoa.wire.api.describe_transactions import DescribeTransactionsRequest, DescribeTransactionsResponse
from pessoa.wire.errors import ErrorCode, Refusal
from tests.unit.coordinator.transactions.driver import (
    NAME,
    TIMEOUT_MS,
    Driver,
    add_request,
    end_request,
    init_request,
    marked,
)

P0, P1 = ("t", 0), ("t", 1)
DAY_MS = 24 * 60 * 60 * 1000
HOUR_MS = 60 * 60 * 1000


def prepared() -> tuple[Driver, ProducerIdentity]:
    driver = Driver()
    producer = driver.begin_surely()
    driver.add(producer, P0, P1)
    after = driver.end(producer, commits=True)
    assert isinstance(after, ProducerIdentity)
    return driver, after


def test_a_transaction_is_complete_when_its_last_marker_is_written() -> None:
    driver, _ = prepared()
    (wanted,) = driver.markers
    driver.report(wanted, (P1,))
    assert driver.transaction().state is State.PREPARE_COMMIT
    described = driver.ask(DescribeTransactionsRequest(transactional_ids=[NAME]))
    assert isinstance(described, DescribeTransactionsResponse)
    (state,) = described.transaction_states
    assert [(topic.topic, topic.partitions) for topic in state.topics] == [("t", [0])]
    driver.report(wanted, (P0,))
    assert driver.transaction().state is State.COMPLETE_COMMIT


def test_a_completion_that_cannot_be_written_can_be_reported_again() -> None:
    driver, _ = prepared()
    (wanted,) = driver.markers
    driver.refuses_with = ErrorCode.NOT_ENOUGH_REPLICAS
    assert isinstance(driver.report(wanted, (P0, P1)), Refusal)
    assert driver.transaction().state is State.PREPARE_COMMIT
    driver.refuses_with = None
    assert isinstance(driver.report(wanted, ()), MarkersWritten)
    assert driver.transaction().state is State.COMPLETE_COMMIT


def test_a_second_report_of_written_markers_changes_nothing() -> None:
    driver, after = prepared()
    (wanted,) = driver.write_markers()
    size = len(driver.log)
    assert isinstance(driver.report(wanted, (P0, P1)), MarkersWritten)
    driver.add(after, P0)
    driver.end(after, commits=False)
    driver.report(wanted, (P0, P1))
    assert driver.transaction().state is State.PREPARE_ABORT, "the report speaks of another epoch"
    assert len(driver.log) == size + 2


def test_the_marker_report_and_the_next_transaction_wait_until_the_completion_is_committed() -> None:
    driver, after = prepared()
    (wanted,) = driver.markers
    driver.holds_back = True
    token = driver.send(marked(wanted, (P0, P1)))
    assert token not in driver.replies
    refused = driver.send(add_request(after, (P0,)), 5)
    driver.commit()
    assert isinstance(driver.replies[token], MarkersWritten)
    assert "CONCURRENT_TRANSACTIONS" in repr(driver.replies[refused])


def test_a_new_coordinator_requests_the_markers_of_prepared_transactions_again() -> None:
    driver, after = prepared()
    before = driver.markers[:]
    driver.crash()
    assert driver.markers == before
    assert driver.add(after, P0) is ErrorCode.CONCURRENT_TRANSACTIONS
    driver.write_markers()
    assert driver.transaction().state is State.COMPLETE_COMMIT
    driver.crash()
    assert driver.markers == []


def test_a_new_coordinator_requests_no_markers_before_the_prepare_record_is_committed() -> None:
    driver = Driver()
    producer = driver.begin_surely()
    driver.add(producer, P0)
    driver.holds_back = True
    driver.send(end_request(producer, True), 5)
    driver.crash()
    assert driver.markers == []
    driver.time_out_commits()
    assert driver.markers == []
    driver.commit()
    assert len(driver.markers) == 1


@pytest.mark.parametrize("version", [0, 2])
def test_a_transaction_that_exceeds_its_timeout_is_aborted_with_a_raised_epoch(version: int) -> None:
    driver = Driver(transaction_version=version)
    producer = driver.begin_surely()
    driver.add(producer, P0, version=5 if version else 3)
    driver.advance_ms(TIMEOUT_MS)
    assert driver.transaction().state is State.ONGOING
    driver.advance_ms(1)
    assert driver.transaction().state is State.PREPARE_ABORT
    (wanted,) = driver.write_markers()
    assert wanted.producer == ProducerIdentity(producer.id, 1)
    assert driver.add(producer, P0) is ErrorCode.PRODUCER_FENCED
    late_commit = driver.end(producer, commits=True, version=5 if version else 4)
    assert late_commit is (ErrorCode.INVALID_TXN_STATE if version else ErrorCode.PRODUCER_FENCED)
    assert driver.transaction().state is State.COMPLETE_ABORT


def test_a_version_2_producer_may_end_a_transaction_that_timed_out_and_continue() -> None:
    driver = Driver()
    producer = driver.begin_surely()
    driver.add(producer, P0)
    driver.advance_ms(TIMEOUT_MS + 1)
    driver.write_markers()
    after = driver.end(producer, commits=False)
    assert after == ProducerIdentity(producer.id, 1)
    assert isinstance(after, ProducerIdentity)
    assert driver.add(after, P0) is ErrorCode.NONE


def test_the_transaction_timeout_counts_from_the_first_partition_also_after_a_failover() -> None:
    driver = Driver()
    producer = driver.begin_surely()
    driver.advance_ms(10 * TIMEOUT_MS)
    driver.add(producer, P0)
    driver.advance_ms(TIMEOUT_MS - 1)
    driver.add(producer, P1)
    driver.crash()
    driver.advance_ms(1)
    assert driver.transaction().state is State.ONGOING
    driver.advance_ms(1)
    assert driver.transaction().state is State.PREPARE_ABORT


def test_the_timeout_of_the_next_transaction_counts_from_its_own_start() -> None:
    driver = Driver()
    producer = driver.begin_surely()
    driver.add(producer, P0)
    driver.advance_ms(TIMEOUT_MS - 1)
    after = driver.end(producer, commits=True)
    driver.write_markers()
    assert isinstance(after, ProducerIdentity)
    driver.add(after, P0)
    driver.advance_ms(TIMEOUT_MS)
    assert driver.transaction().state is State.ONGOING
    driver.advance_ms(1)
    assert driver.transaction().state is State.PREPARE_ABORT


def test_a_timeout_abort_that_cannot_be_written_is_retried() -> None:
    driver = Driver()
    producer = driver.begin_surely()
    driver.add(producer, P0)
    driver.refuses_with = ErrorCode.NOT_ENOUGH_REPLICAS
    driver.advance_ms(TIMEOUT_MS + 1)
    driver.refuses_with = None
    assert driver.transaction().state is State.ONGOING
    driver.advance_ms(10_000)
    assert driver.transaction().state is State.PREPARE_ABORT
    assert driver.transaction().producer_epoch == 1


def test_a_transaction_with_a_pending_change_at_its_timeout_is_checked_again_later() -> None:
    driver = Driver()
    producer = driver.begin_surely()
    driver.add(producer, P0)
    driver.holds_back = True
    driver.send(add_request(producer, (P1,)), 5)
    driver.advance_ms(TIMEOUT_MS + 1)
    driver.holds_back = False
    driver.commit()
    assert driver.transaction().state is State.ONGOING
    driver.advance_ms(10_000)
    assert driver.transaction().state is State.PREPARE_ABORT


def test_a_transaction_of_a_two_phase_commit_has_no_timeout() -> None:
    driver = Driver()
    producer = driver.begin(timeout_ms=NO_TIMEOUT_MS)
    assert isinstance(producer, ProducerIdentity)
    driver.add(producer, P0)
    driver.advance_ms(100 * DAY_MS)
    assert driver.transaction().state is State.ONGOING


def test_when_the_clock_jumps_an_open_transaction_keeps_the_rest_of_its_timeout() -> None:
    driver = Driver()
    producer = driver.begin_surely()
    driver.add(producer, P0)
    driver.now_ms += DAY_MS
    driver.shard.shift_deadlines(DAY_MS)
    driver.add(producer, P1)
    driver.advance_ms(TIMEOUT_MS)
    assert driver.transaction().state is State.ONGOING
    driver.advance_ms(1)
    assert driver.transaction().state is State.PREPARE_ABORT


def test_an_unused_transactional_id_expires_with_a_tombstone() -> None:
    driver = Driver()
    driver.begin_surely()
    driver.advance_ms(7 * DAY_MS - HOUR_MS)
    assert driver.shard.transaction(NAME) is not None
    driver.advance_ms(HOUR_MS)
    assert driver.shard.transaction(NAME) is None
    assert driver.log[-1].value is None
    driver.crash()
    assert driver.shard.transaction(NAME) is None
    assert driver.begin() == ProducerIdentity(1001, 0)


def test_an_open_or_prepared_transaction_does_not_expire() -> None:
    driver = Driver(config=TransactionConfig(transactional_id_expiration_ms=1))
    producer = driver.begin(timeout_ms=NO_TIMEOUT_MS)
    assert isinstance(producer, ProducerIdentity)
    driver.add(producer, P0)
    driver.advance_ms(DAY_MS)
    assert driver.transaction().state is State.ONGOING
    driver.end(producer, commits=True)
    driver.advance_ms(DAY_MS)
    assert driver.transaction().state is State.PREPARE_COMMIT
    driver.write_markers()
    driver.advance_ms(HOUR_MS)
    assert driver.shard.transaction(NAME) is None


def test_very_many_ids_expire_in_several_batches() -> None:
    driver = Driver()
    for number in range(450):
        driver.begin_surely(name=f"id-{number}")
    driver.advance_ms(7 * DAY_MS)
    assert sum(stored.value is None for stored in driver.log) == 450


def test_a_transactional_id_that_expires_can_be_initialised_after_its_tombstone_is_committed() -> None:
    driver = Driver()
    driver.begin_surely()
    driver.holds_back = True
    driver.advance_ms(7 * DAY_MS)
    token = driver.send(init_request(), 5)
    assert token not in driver.replies
    driver.commit()
    assert "CONCURRENT_TRANSACTIONS" in repr(driver.replies[token])
    driver.holds_back = False
    assert driver.begin() == ProducerIdentity(1001, 0)
