"""AddPartitionsToTxn, AddOffsetsToTxn, and the verification requests of leaders."""

from __future__ import annotations

import pytest

from pessoa.coordinator.transactions.transaction import ProducerIdentity, State
from pessoa.wire.errors import ErrorCode
from tests.unit.coordinator.transactions.driver import START_MS, Driver, add_request, end_request

P0, P1 = ("t", 0), ("t", 1)
OTHER_TOPIC = ("s", 7)


def test_adding_the_first_partition_starts_the_transaction() -> None:
    driver = Driver()
    producer = driver.begin_surely()
    driver.advance_ms(5)
    assert driver.add(producer, P1, P0, OTHER_TOPIC) is ErrorCode.NONE
    value = driver.last_value()
    assert value.transaction_status == State.ONGOING.value
    assert value.transaction_start_timestamp_ms == value.transaction_last_update_timestamp_ms == START_MS + 5
    assert value.client_transaction_version == 2
    assert value.transaction_partitions is not None
    assert [(of.topic, of.partition_ids) for of in value.transaction_partitions] == [("s", [7]), ("t", [0, 1])]


def test_adding_more_partitions_keeps_the_start_time_of_the_transaction() -> None:
    driver = Driver()
    producer = driver.begin_surely()
    driver.add(producer, P0)
    driver.advance_ms(5)
    driver.add(producer, P1)
    transaction = driver.transaction()
    assert transaction.partitions == {P0, P1}
    assert (transaction.start_ms, transaction.last_update_ms) == (START_MS, START_MS + 5)


def test_adding_partitions_that_the_transaction_has_writes_nothing() -> None:
    driver = Driver()
    producer = driver.begin_surely()
    driver.add(producer, P0, P1)
    size = len(driver.log)
    assert driver.add(producer, P1) is ErrorCode.NONE
    assert len(driver.log) == size


def test_adding_partitions_that_the_transaction_has_is_confirmed_by_the_replicas() -> None:
    """A coordinator that was deposed without hearing of it may take a transaction that has ended for the next one."""
    driver = Driver()
    producer = driver.begin_surely()
    driver.add(producer, P0)
    assert driver.confirmations == 0
    assert driver.add(producer, P0) is ErrorCode.NONE
    assert driver.confirmations == 1
    assert driver.verify(producer, P0) == [ErrorCode.NONE]
    assert driver.confirmations == 2


def test_the_client_version_of_a_producer_below_transaction_version_2_is_stored() -> None:
    driver = Driver()
    producer = driver.begin_surely()
    assert driver.add(producer, P0, version=3) is ErrorCode.NONE
    assert driver.last_value().client_transaction_version == 0


def test_adding_offsets_of_a_group_adds_its_partition_of_the_offsets_topic() -> None:
    driver = Driver()
    producer = driver.begin_surely()
    assert driver.add_offsets(producer, "four") is ErrorCode.NONE
    assert driver.transaction().partitions == {("__consumer_offsets", 4)}
    assert driver.last_value().client_transaction_version == 0


def test_an_unknown_id_and_a_fenced_producer_cannot_add_partitions() -> None:
    driver = Driver()
    stranger = ProducerIdentity(1, 0)
    assert driver.add(stranger, P0) is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert driver.verify(stranger, P0) is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert driver.add_offsets(stranger, "g") is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    zombie = driver.begin_surely()
    driver.begin_surely()
    for producer, code in [
        (stranger, ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        (zombie, ErrorCode.PRODUCER_FENCED),
        (ProducerIdentity(zombie.id, 9), ErrorCode.PRODUCER_FENCED),
    ]:
        assert driver.add(producer, P0) is code
        assert driver.add_offsets(producer, "g") is code
        assert driver.verify(producer, P0) is code


@pytest.mark.parametrize("commits", [True, False])
def test_partitions_cannot_be_added_while_the_transaction_is_being_committed_or_aborted(commits: bool) -> None:
    driver = Driver()
    producer = driver.begin_surely()
    driver.add(producer, P0)
    driver.end(producer, commits)
    after = ProducerIdentity(producer.id, 1)
    assert driver.add(after, P1) is ErrorCode.CONCURRENT_TRANSACTIONS
    assert driver.add(producer, P1) is ErrorCode.CONCURRENT_TRANSACTIONS, "this is asked before the epoch"
    assert driver.verify(after, P0) is ErrorCode.CONCURRENT_TRANSACTIONS
    driver.write_markers()
    driver.advance_ms(3)
    assert driver.add(after, P1) is ErrorCode.NONE
    assert driver.transaction().partitions == {P1}
    assert driver.transaction().start_ms == START_MS + 3


def test_verification_returns_for_each_partition_whether_the_transaction_has_it() -> None:
    driver = Driver()
    producer = driver.begin_surely()
    assert driver.verify(producer, P0) == [ErrorCode.TRANSACTION_ABORTABLE]
    driver.add(producer, P0)
    size = len(driver.log)
    assert driver.verify(producer, P0, P1) == [ErrorCode.NONE, ErrorCode.TRANSACTION_ABORTABLE]
    assert len(driver.log) == size


def test_a_verification_waits_until_the_addition_of_its_partitions_is_committed() -> None:
    driver = Driver()
    producer = driver.begin_surely()
    driver.holds_back = True
    driver.send(add_request(producer, (P0,)), 5)
    token = driver.send(add_request(producer, (P0,), verify_only=True), 5)
    assert token not in driver.replies
    driver.commit()
    assert token in driver.replies


def test_partitions_are_not_added_nor_the_transaction_ended_before_the_last_addition_is_committed() -> None:
    driver = Driver()
    producer = driver.begin_surely()
    driver.holds_back = True
    driver.send(add_request(producer, (P0,)), 5)
    tokens = [driver.send(add_request(producer, (P1,)), 5), driver.send(end_request(producer, True), 5)]
    driver.commit()
    for token in tokens:
        assert "CONCURRENT_TRANSACTIONS" in repr(driver.replies[token])
