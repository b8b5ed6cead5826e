"""The error table: some rows that clients depend on, and rules for all rows."""

from __future__ import annotations

import pickle
from struct import pack

import pytest

from pessoa.wire.errors import EncodeError, ErrorCode, UnsupportedFieldError

ROWS = [
    (-1, "UNKNOWN_SERVER_ERROR", False),
    (0, "NONE", False),
    (1, "OFFSET_OUT_OF_RANGE", False),
    (2, "CORRUPT_MESSAGE", True),
    (3, "UNKNOWN_TOPIC_OR_PARTITION", True),
    (6, "NOT_LEADER_OR_FOLLOWER", True),
    (7, "REQUEST_TIMED_OUT", True),
    (10, "MESSAGE_TOO_LARGE", False),
    (19, "NOT_ENOUGH_REPLICAS", True),
    (20, "NOT_ENOUGH_REPLICAS_AFTER_APPEND", True),
    (22, "ILLEGAL_GENERATION", False),
    (27, "REBALANCE_IN_PROGRESS", False),
    (35, "UNSUPPORTED_VERSION", False),
    (45, "OUT_OF_ORDER_SEQUENCE_NUMBER", False),
    (47, "INVALID_PRODUCER_EPOCH", False),
    (74, "FENCED_LEADER_EPOCH", True),
    (75, "UNKNOWN_LEADER_EPOCH", True),
    (100, "UNKNOWN_TOPIC_ID", True),
    (133, "SHARE_SESSION_LIMIT_REACHED", True),
]


@pytest.mark.parametrize(("code", "name", "retriable"), ROWS)
def test_an_error_has_kafkas_code_name_and_retriability(code: int, name: str, retriable: bool) -> None:
    error = ErrorCode[name]
    assert (error.value, error.retriable) == (code, retriable)


def test_the_codes_run_from_minus_one_without_a_gap() -> None:
    assert [error.value for error in ErrorCode] == list(range(-1, 134))


def test_every_error_code_has_its_own_message() -> None:
    texts = [error.text for error in ErrorCode]
    assert all(len(text) > 5 and text.endswith(".") for text in texts)
    assert len(set(texts)) == len(texts)


def test_only_none_is_not_an_error() -> None:
    assert [error for error in ErrorCode if not error.is_error] == [ErrorCode.NONE]


def test_an_error_code_is_packed_as_its_number() -> None:
    assert pack(">h", ErrorCode.UNSUPPORTED_VERSION) == b"\x00\x23"
    assert int(ErrorCode.UNSUPPORTED_VERSION) == 35
    assert pickle.loads(pickle.dumps(ErrorCode.UNKNOWN_TOPIC_ID)) is ErrorCode.UNKNOWN_TOPIC_ID


def test_an_unsupported_field_is_an_encode_error() -> None:
    assert issubclass(UnsupportedFieldError, EncodeError)
