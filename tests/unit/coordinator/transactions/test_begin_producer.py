"""InitProducerId: ids, epochs, fencing (KIP-360), and the abort of an open transaction."""

from __future__ import annotations

import pytest

from pessoa.coordinator.transactions.transaction import (
    HIGHEST_CLIENT_EPOCH,
    LAST_EPOCH,
    NO_PRODUCER_ID,
    ProducerIdentity,
    State,
)
from pessoa.wire.errors import ErrorCode
from tests.unit.coordinator.transactions.driver import (
    NAME,
    OLD_END_VERSION,
    START_MS,
    TIMEOUT_MS,
    Driver,
    init_request,
)

P0, P1 = ("t", 0), ("t", 1)


def driver_at_epoch(epoch: int, transaction_version: int = 2) -> tuple[Driver, ProducerIdentity]:
    """Return a driver and a producer with that epoch, which is set by overwriting its record."""
    driver = Driver(transaction_version)
    producer = driver.begin_surely()
    value = driver.last_value()
    value.producer_epoch = epoch
    driver.log.append(driver.log[-1]._replace(value=b"\x00\x01" + value.encode(1)))
    driver.committed = len(driver.log)
    driver.crash()
    return driver, ProducerIdentity(producer.id, epoch)


def test_a_new_transactional_id_gets_a_producer_id_and_epoch_0() -> None:
    driver = Driver()
    assert driver.begin() == ProducerIdentity(1000, 0)
    value = driver.last_value()
    assert value.producer_id == value.previous_producer_id == 1000
    assert value.next_producer_id == NO_PRODUCER_ID
    assert value.transaction_status == State.EMPTY.value
    assert value.transaction_partitions is None
    assert value.transaction_start_timestamp_ms == -1
    assert value.transaction_last_update_timestamp_ms == START_MS
    assert value.transaction_timeout_ms == TIMEOUT_MS
    assert driver.log[-1].value is not None
    assert driver.log[-1].value[:2] == b"\x00\x01"


def test_transaction_records_have_version_0_in_a_cluster_of_transaction_version_0() -> None:
    driver = Driver(transaction_version=0)
    driver.begin_surely()
    assert driver.log[-1].value is not None
    assert driver.log[-1].value[:2] == b"\x00\x00"


def test_every_init_producer_id_returns_the_next_epoch_and_may_change_the_timeout() -> None:
    driver = Driver()
    first = driver.begin_surely()
    assert driver.begin(timeout_ms=1) == ProducerIdentity(first.id, 1)
    assert driver.transaction().timeout_ms == 1


def test_a_producer_that_continues_after_an_error_gets_the_next_epoch() -> None:
    driver = Driver()
    producer = driver.begin_surely()
    assert driver.begin(producer) == ProducerIdentity(producer.id, 1)


def test_a_retried_init_producer_id_whose_response_was_lost_gets_the_same_epoch() -> None:
    driver = Driver()
    producer = driver.begin_surely()
    expected = ProducerIdentity(producer.id, 1)
    assert driver.begin(producer) == expected
    assert driver.begin(producer) == expected
    assert driver.begin(expected) == ProducerIdentity(producer.id, 2)


def test_a_retry_is_fenced_when_another_producer_has_begun_in_between() -> None:
    driver = Driver()
    producer = driver.begin_surely()
    driver.begin(producer)
    driver.begin_surely()
    assert driver.begin(producer) is ErrorCode.PRODUCER_FENCED


def test_a_retry_after_a_failover_is_fenced_since_the_last_epoch_is_not_stored() -> None:
    driver = Driver()
    producer = driver.begin_surely()
    driver.begin(producer)
    driver.crash()
    assert driver.begin(producer) is ErrorCode.PRODUCER_FENCED


@pytest.mark.parametrize("expected", [ProducerIdentity(1000, 5), ProducerIdentity(7, 0), ProducerIdentity(7, 32766)])
def test_init_producer_id_with_an_epoch_or_id_that_never_existed_is_fenced(expected: ProducerIdentity) -> None:
    driver = Driver()
    driver.begin_surely()
    assert driver.begin(expected) is ErrorCode.PRODUCER_FENCED


def test_a_producer_whose_id_has_expired_gets_a_new_one() -> None:
    driver = Driver()
    assert driver.begin(ProducerIdentity(7, 3)) == ProducerIdentity(1000, 0)


def test_init_producer_id_changes_nothing_when_no_producer_id_is_available() -> None:
    driver = Driver()
    driver.has_ids = False
    assert driver.begin() is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert driver.log == []


def test_a_producer_with_exhausted_epochs_gets_another_producer_id() -> None:
    driver, _ = driver_at_epoch(HIGHEST_CLIENT_EPOCH - 1)
    assert driver.begin() == ProducerIdentity(1000, HIGHEST_CLIENT_EPOCH)
    assert driver.begin() == ProducerIdentity(1001, 0)
    assert driver.last_value().previous_producer_id == 1000


def test_a_producer_that_continues_from_the_last_epoch_gets_another_id_and_may_retry() -> None:
    driver, producer = driver_at_epoch(HIGHEST_CLIENT_EPOCH)
    assert driver.begin(producer) == ProducerIdentity(1001, 0)
    assert driver.begin(producer) == ProducerIdentity(1001, 0)


def test_a_retry_of_the_init_producer_id_that_returned_the_last_epoch_gets_the_same_epoch() -> None:
    driver, producer = driver_at_epoch(HIGHEST_CLIENT_EPOCH - 1)
    last = ProducerIdentity(producer.id, HIGHEST_CLIENT_EPOCH)
    assert driver.begin(producer) == last
    assert driver.begin(producer) == last


def test_init_producer_id_first_aborts_an_open_transaction_and_is_answered_concurrent_transactions() -> None:
    driver = Driver()
    zombie = driver.begin_surely()
    driver.add(zombie, P0, P1)
    assert driver.begin() is ErrorCode.CONCURRENT_TRANSACTIONS
    assert driver.transaction().state is State.PREPARE_ABORT
    assert driver.begin() is ErrorCode.CONCURRENT_TRANSACTIONS
    (wanted,) = driver.write_markers()
    assert not wanted.commits
    assert wanted.producer == ProducerIdentity(zombie.id, 1)
    assert wanted.partitions == (P0, P1)
    assert wanted.transaction_version == 2
    assert driver.begin() == ProducerIdentity(zombie.id, 2)
    assert driver.add(zombie, P0) is ErrorCode.PRODUCER_FENCED
    assert driver.end(zombie, commits=True) is ErrorCode.PRODUCER_FENCED


@pytest.mark.parametrize("version", [0, 1])
def test_below_transaction_version_2_the_abort_by_init_producer_id_has_a_raised_epoch_as_well(version: int) -> None:
    driver = Driver(transaction_version=version)
    zombie = driver.begin_surely()
    driver.add(zombie, P0, version=3)
    assert driver.begin() is ErrorCode.CONCURRENT_TRANSACTIONS
    (wanted,) = driver.write_markers()
    assert wanted.producer == ProducerIdentity(zombie.id, 1)
    assert wanted.transaction_version == 0
    assert driver.end(zombie, commits=False, version=OLD_END_VERSION) is ErrorCode.PRODUCER_FENCED
    assert driver.begin() == ProducerIdentity(zombie.id, 2)


def test_init_producer_id_of_a_fenced_producer_does_not_abort_the_open_transaction() -> None:
    driver = Driver()
    zombie = driver.begin_surely()
    producer = driver.begin_surely()
    driver.add(producer, P0)
    assert driver.begin(ProducerIdentity(7, 0)) is ErrorCode.PRODUCER_FENCED
    assert driver.transaction().state is State.ONGOING
    assert driver.transaction().producer == producer
    assert zombie.epoch < producer.epoch


def test_the_abort_of_a_producer_at_its_last_client_epoch_uses_the_reserved_epoch() -> None:
    driver, producer = driver_at_epoch(HIGHEST_CLIENT_EPOCH)
    driver.add(producer, P0)
    assert driver.begin() is ErrorCode.CONCURRENT_TRANSACTIONS
    (wanted,) = driver.write_markers()
    assert wanted.producer == ProducerIdentity(1000, LAST_EPOCH)
    assert driver.transaction().producer == ProducerIdentity(1001, 0)
    assert driver.begin() == ProducerIdentity(1001, 1)


def test_below_transaction_version_2_the_producer_id_changes_after_an_abort_at_the_last_epoch() -> None:
    driver, producer = driver_at_epoch(HIGHEST_CLIENT_EPOCH, transaction_version=1)
    driver.add(producer, P0, version=3)
    driver.begin()
    driver.write_markers()
    assert driver.transaction().producer == ProducerIdentity(1000, LAST_EPOCH)
    assert driver.begin() == ProducerIdentity(1001, 0)


def test_a_second_init_producer_id_before_the_first_is_committed_gets_concurrent_transactions() -> None:
    driver = Driver()
    driver.holds_back = True
    first, second = (driver.send(init_request(), 5) for _ in range(2))
    assert driver.replies == {}
    driver.commit()
    assert "Response" in type(driver.replies[first]).__name__
    assert "CONCURRENT_TRANSACTIONS" in repr(driver.replies[second])
    assert len(driver.log) == 1


def test_an_init_producer_id_that_cannot_be_written_changes_nothing() -> None:
    driver = Driver()
    driver.refuses_with = ErrorCode.NOT_ENOUGH_REPLICAS
    assert driver.begin() is ErrorCode.NOT_ENOUGH_REPLICAS
    assert driver.shard.transaction(NAME) is None
    driver.refuses_with = None
    assert driver.begin_surely().epoch == 0
