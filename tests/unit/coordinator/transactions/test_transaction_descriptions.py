"""DescribeTransactions and ListTransactions of one shard."""

from __future__ import annotations

import pytest

from pessoa.wire.api.describe_transactions import DescribeTransactionsRequest, DescribeTransactionsResponse
from pessoa.wire.api.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from pessoa.wire.errors import ErrorCode, Refusal
from tests.unit.coordinator.transactions.driver import START_MS, TIMEOUT_MS, Driver


def three() -> Driver:
    """Return a driver with the transactional ids `empty`, `open-1` (open from the start) and `open-2` (a second
    later)."""
    driver = Driver()
    driver.begin_surely(name="empty")
    driver.add(driver.begin_surely(name="open-1"), ("b", 1), ("a", 2), ("a", 0), name="open-1")
    driver.advance_ms(1000)
    driver.add(driver.begin_surely(name="open-2"), ("a", 0), name="open-2")
    driver.advance_ms(500)
    return driver


def listed(driver: Driver, **filters: object) -> list[str]:
    response = driver.ask(_request(**filters), 2)
    assert isinstance(response, ListTransactionsResponse)
    return sorted(state.transactional_id for state in response.transaction_states)


def _request(**filters: object) -> ListTransactionsRequest:
    return ListTransactionsRequest(**({"state_filters": [], "producer_id_filters": []} | filters))  # type: ignore[arg-type]


def test_a_transaction_description_has_all_fields_and_partitions_in_apaches_order() -> None:
    driver = three()
    response = driver.ask(DescribeTransactionsRequest(transactional_ids=["open-1", "unknown", "empty"]))
    assert isinstance(response, DescribeTransactionsResponse)
    one, unknown, empty = response.transaction_states
    assert (one.transactional_id, one.transaction_state, one.error_code) == ("open-1", "Ongoing", 0)
    assert (one.producer_id, one.producer_epoch) == (1001, 0)
    assert (one.transaction_timeout_ms, one.transaction_start_time_ms) == (TIMEOUT_MS, START_MS)
    assert [(topic.topic, topic.partitions) for topic in one.topics] == [("a", [2, 0]), ("b", [1])]
    assert unknown.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    assert (empty.transaction_state, empty.transaction_start_time_ms, empty.topics) == ("Empty", -1, [])


def test_list_transactions_without_filters_lists_all() -> None:
    assert listed(three()) == ["empty", "open-1", "open-2"]


@pytest.mark.parametrize(
    ("filters", "names"),
    [
        ({"state_filters": ["Ongoing"]}, ["open-1", "open-2"]),
        ({"state_filters": ["Ongoing", "Empty"]}, ["empty", "open-1", "open-2"]),
        ({"state_filters": ["CompleteCommit"]}, []),
        ({"state_filters": ["Nonsense"]}, []),
        ({"state_filters": ["ongoing"]}, []),
        ({"producer_id_filters": [1000, 1002]}, ["empty", "open-2"]),
        ({"duration_filter": 0}, ["empty", "open-1", "open-2"]),
        ({"duration_filter": 500}, ["empty", "open-1"]),
        ({"duration_filter": 499, "state_filters": ["Ongoing"]}, ["open-1", "open-2"]),
        ({"transactional_id_pattern": "open-.*"}, ["open-1", "open-2"]),
        ({"transactional_id_pattern": "open"}, []),
        ({"transactional_id_pattern": ""}, ["empty", "open-1", "open-2"]),
    ],
)
def test_list_transactions_filters_by_state_producer_duration_and_pattern(
    filters: dict[str, object], names: list[str]
) -> None:
    assert listed(three(), **filters) == names


def test_unknown_state_filters_are_returned_in_the_response() -> None:
    response = three().ask(_request(state_filters=["Ongoing", "Nonsense"]), 2)
    assert isinstance(response, ListTransactionsResponse)
    assert response.unknown_state_filters == ["Nonsense"]


def test_an_invalid_pattern_of_list_transactions_is_refused() -> None:
    reply = three().ask(_request(transactional_id_pattern="("), 2)
    assert isinstance(reply, Refusal)
    assert reply.code is ErrorCode.INVALID_REGULAR_EXPRESSION
