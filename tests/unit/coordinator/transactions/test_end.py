"""EndTxn with an epoch for every transaction (transactions version 2, KIP-890) and without."""

from __future__ import annotations

import pytest

from pessoa.coordinator.transactions.transaction import (
    HIGHEST_CLIENT_EPOCH,
    LAST_EPOCH,
    ProducerIdentity,
    State,
)
from pessoa.wire.errors import ErrorCode
from tests.unit.coordinator.transactions.driver import (
    END_VERSION,
    OLD_ADD_VERSION,
    OLD_END_VERSION,
    START_MS,
    Driver,
    end_request,
    ended,
)
from tests.unit.coordinator.transactions.test_begin_producer import driver_at_epoch

P0, P1 = ("t", 0), ("t", 1)
NO_PRODUCER = ProducerIdentity(-1, -1)
FENCED, INVALID = ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_TXN_STATE


def driver_in(state: State, end_version: int = END_VERSION) -> tuple[Driver, ProducerIdentity]:
    """Return a driver whose transaction is in that state, and the id and epoch of its producer."""
    driver = Driver()
    producer = driver.begin_surely()
    if state is State.EMPTY:
        return driver, producer
    driver.add(producer, P0, version=OLD_ADD_VERSION if end_version == OLD_END_VERSION else 5)
    if state is not State.ONGOING:
        driver.end(producer, state in (State.PREPARE_COMMIT, State.COMPLETE_COMMIT), end_version)
    if state in (State.COMPLETE_COMMIT, State.COMPLETE_ABORT):
        driver.write_markers()
    assert driver.transaction().state is state
    return driver, driver.transaction().producer


# ── version 2 ──


@pytest.mark.parametrize("commits", [True, False])
def test_end_txn_writes_the_prepare_record_then_the_markers_then_the_completion(commits: bool) -> None:
    driver = Driver()
    producer = driver.begin_surely()
    driver.add(producer, P0, P1)
    driver.advance_ms(7)
    after = ProducerIdentity(producer.id, 1)
    assert driver.end(producer, commits) == after
    prepared = driver.last_value()
    assert prepared.transaction_status == (State.PREPARE_COMMIT if commits else State.PREPARE_ABORT).value
    assert (prepared.producer_epoch, prepared.transaction_start_timestamp_ms) == (1, START_MS)
    assert prepared.transaction_last_update_timestamp_ms == START_MS + 7
    (wanted,) = driver.write_markers()
    assert (wanted.producer, wanted.commits, wanted.partitions) == (after, commits, (P0, P1))
    assert wanted.transaction_version == 2
    complete = driver.last_value()
    assert complete.transaction_status == (State.COMPLETE_COMMIT if commits else State.COMPLETE_ABORT).value
    assert complete.transaction_partitions == []
    assert (complete.producer_epoch, complete.transaction_start_timestamp_ms) == (1, START_MS)


def test_no_marker_is_requested_before_the_prepare_record_is_committed() -> None:
    driver = Driver()
    producer = driver.begin_surely()
    driver.add(producer, P0)
    driver.holds_back = True
    token = driver.send(end_request(producer, True), END_VERSION)
    assert driver.markers == []
    assert token not in driver.replies
    driver.commit()
    assert len(driver.markers) == 1
    assert ended(driver.replies[token]) == ProducerIdentity(producer.id, 1)


def test_an_end_txn_whose_commit_takes_too_long_gets_an_error_and_continues() -> None:
    driver = Driver()
    producer = driver.begin_surely()
    driver.add(producer, P0)
    driver.holds_back = True
    token = driver.send(end_request(producer, True), END_VERSION)
    driver.time_out_commits()
    assert "REQUEST_TIMED_OUT" in repr(driver.replies[token])
    assert driver.markers == []
    driver.holds_back = False
    driver.commit()
    assert len(driver.markers) == 1
    driver.write_markers()
    assert driver.end(producer, commits=True) == ProducerIdentity(producer.id, 1)


def test_an_end_txn_that_cannot_be_written_leaves_the_transaction_open() -> None:
    driver = Driver()
    producer = driver.begin_surely()
    driver.add(producer, P0)
    driver.refuses_with = ErrorCode.NOT_ENOUGH_REPLICAS
    assert driver.end(producer, commits=True) is ErrorCode.NOT_ENOUGH_REPLICAS
    assert driver.markers == []
    assert driver.transaction().state is State.ONGOING
    driver.refuses_with = None
    assert driver.end(producer, commits=False) == ProducerIdentity(producer.id, 1)


@pytest.mark.parametrize(
    ("state", "commits", "retries", "answer"),
    [
        (State.EMPTY, False, True, FENCED),
        (State.EMPTY, False, False, None),
        (State.EMPTY, True, True, FENCED),
        (State.EMPTY, True, False, INVALID),
        (State.COMPLETE_ABORT, False, True, "again"),
        (State.COMPLETE_ABORT, False, False, None),
        (State.COMPLETE_ABORT, True, True, INVALID),
        (State.COMPLETE_ABORT, True, False, INVALID),
        (State.COMPLETE_COMMIT, False, True, INVALID),
        (State.COMPLETE_COMMIT, False, False, None),
        (State.COMPLETE_COMMIT, True, True, "again"),
        (State.COMPLETE_COMMIT, True, False, INVALID),
    ],
)
@pytest.mark.parametrize("is_another", [False, True], ids=["same coordinator", "another coordinator"])
def test_end_txn_without_an_open_transaction_is_answered_by_state_and_epoch(
    state: State, commits: bool, retries: bool, answer: ErrorCode | str | None, is_another: bool
) -> None:
    driver, producer = driver_in(state)
    if is_another:
        driver.crash()
    size = len(driver.log)
    asked = ProducerIdentity(producer.id, producer.epoch - 1) if retries else producer
    got = driver.end(asked, commits)
    if answer is None:
        assert got == ProducerIdentity(producer.id, producer.epoch + 1)
        assert driver.transaction().state is State.PREPARE_ABORT
        (wanted,) = driver.write_markers()
        assert wanted.partitions == ()
        assert driver.transaction().state is State.COMPLETE_ABORT
        assert driver.transaction().start_ms == START_MS
    else:
        assert got == (producer if answer == "again" else answer)
        assert len(driver.log) == size


@pytest.mark.parametrize("state", [State.PREPARE_COMMIT, State.PREPARE_ABORT])
@pytest.mark.parametrize("commits", [True, False])
def test_a_retried_end_txn_while_markers_are_written_gets_concurrent_transactions(state: State, commits: bool) -> None:
    driver, producer = driver_in(state)
    before = ProducerIdentity(producer.id, producer.epoch - 1)
    assert driver.end(before, commits) is ErrorCode.CONCURRENT_TRANSACTIONS


def test_an_unknown_id_and_a_fenced_producer_cannot_add_partitions() -> None:
    driver = Driver()
    assert driver.end(ProducerIdentity(1, 0), commits=True) is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    driver, producer = driver_in(State.ONGOING)
    assert driver.end(ProducerIdentity(1, 0), commits=True) is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert driver.end(ProducerIdentity(producer.id, producer.epoch + 1), commits=True) is FENCED
    assert driver.end(ProducerIdentity(producer.id, producer.epoch - 1), commits=True) is FENCED


def test_a_request_that_was_delayed_into_the_next_transaction_is_fenced() -> None:
    driver = Driver()
    producer = driver.begin_surely()
    driver.add(producer, P0)
    after = driver.end(producer, commits=False)
    driver.write_markers()
    assert isinstance(after, ProducerIdentity)
    driver.add(after, P1)
    assert driver.end(producer, commits=False) is FENCED
    assert driver.transaction().state is State.ONGOING


def test_end_txn_at_the_last_epoch_returns_another_producer_id() -> None:
    driver, producer = driver_at_epoch(HIGHEST_CLIENT_EPOCH)
    driver.add(producer, P0)
    after = ProducerIdentity(1001, 0)
    assert driver.end(producer, commits=True) == after
    prepared = driver.last_value()
    assert (prepared.producer_id, prepared.producer_epoch, prepared.next_producer_id) == (1000, LAST_EPOCH, 1001)
    (wanted,) = driver.write_markers()
    assert wanted.producer == ProducerIdentity(1000, LAST_EPOCH)
    complete = driver.last_value()
    assert (complete.producer_id, complete.producer_epoch) == (1001, 0)
    assert (complete.previous_producer_id, complete.next_producer_id) == (1000, -1)
    assert driver.end(producer, commits=True) == after, "a retry"
    assert driver.end(producer, commits=False) is INVALID
    driver.crash()
    assert driver.end(producer, commits=True) == after, "a retry after a fail-over"
    assert driver.add(after, P0) is ErrorCode.NONE


def test_end_txn_at_the_last_epoch_fails_when_no_producer_id_is_available() -> None:
    driver, producer = driver_at_epoch(HIGHEST_CLIENT_EPOCH)
    driver.add(producer, P0)
    driver.has_ids = False
    assert driver.end(producer, commits=True) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert driver.transaction().state is State.ONGOING


# ── below version 2 ──


@pytest.mark.parametrize("commits", [True, False])
def test_old_clients_keep_their_epoch_after_end_txn_and_get_none_in_the_response(commits: bool) -> None:
    driver = Driver()
    producer = driver.begin_surely()
    driver.add(producer, P0, version=OLD_ADD_VERSION)
    assert driver.end(producer, commits, OLD_END_VERSION) == NO_PRODUCER
    (wanted,) = driver.write_markers()
    assert (wanted.producer, wanted.transaction_version) == (producer, 0)
    assert driver.transaction().producer == producer
    assert driver.add(producer, P0, version=OLD_ADD_VERSION) is ErrorCode.NONE


@pytest.mark.parametrize(
    ("state", "commits", "answer"),
    [
        (State.EMPTY, True, INVALID),
        (State.EMPTY, False, INVALID),
        (State.COMPLETE_COMMIT, True, NO_PRODUCER),
        (State.COMPLETE_COMMIT, False, INVALID),
        (State.COMPLETE_ABORT, False, NO_PRODUCER),
        (State.COMPLETE_ABORT, True, INVALID),
        (State.PREPARE_COMMIT, True, ErrorCode.CONCURRENT_TRANSACTIONS),
        (State.PREPARE_COMMIT, False, ErrorCode.CONCURRENT_TRANSACTIONS),
        (State.PREPARE_ABORT, False, ErrorCode.CONCURRENT_TRANSACTIONS),
    ],
)
@pytest.mark.parametrize("is_another", [False, True], ids=["same coordinator", "another coordinator"])
def test_end_txn_of_old_clients_without_an_open_transaction_is_answered_by_state(
    state: State, commits: bool, answer: ErrorCode | ProducerIdentity, is_another: bool
) -> None:
    driver, producer = driver_in(state, OLD_END_VERSION)
    if is_another:
        driver.crash()
    assert driver.end(producer, commits, OLD_END_VERSION) == answer


def test_an_old_abort_after_a_failover_does_not_count_as_a_retry_of_the_committed_transaction() -> None:
    driver, producer = driver_in(State.COMPLETE_COMMIT, OLD_END_VERSION)
    driver.crash()  # with it went the AddPartitionsToTxn of the next transaction
    assert driver.end(producer, commits=False, version=OLD_END_VERSION) is INVALID
    assert driver.begin_surely() == ProducerIdentity(producer.id, producer.epoch + 1), (
        "a new producer gets the next epoch"
    )


def test_end_txn_of_old_clients_checks_the_producer_before_the_state() -> None:
    driver, producer = driver_in(State.PREPARE_COMMIT, OLD_END_VERSION)
    stranger, zombie = ProducerIdentity(1, 0), ProducerIdentity(producer.id, producer.epoch - 1)
    assert driver.end(stranger, True, OLD_END_VERSION) is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert driver.end(zombie, True, OLD_END_VERSION) is FENCED
    assert driver.end(stranger, True, END_VERSION) is ErrorCode.CONCURRENT_TRANSACTIONS
