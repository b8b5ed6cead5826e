"""Which errors of librdkafka are transient."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError

from pessoa.client.librdkafka import is_passing
from pessoa.wire.errors import ErrorCode


@pytest.mark.parametrize("code", [code for code in ErrorCode if code.retriable], ids=lambda code: code.name)
def test_errors_that_kafka_calls_retriable_are_transient(code: ErrorCode) -> None:
    assert is_passing(KafkaError(int(code)))
    assert not is_passing(KafkaError(int(code), fatal=True))


@pytest.mark.parametrize("code", [KafkaError._TRANSPORT, KafkaError._TIMED_OUT, KafkaError._WAIT_COORD])
def test_an_unreachable_broker_is_a_transient_error(code: int) -> None:
    assert is_passing(KafkaError(code))


@pytest.mark.parametrize(
    "code", [ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.INVALID_CONFIG, ErrorCode.UNKNOWN_SERVER_ERROR]
)
def test_a_refusal_is_not_a_transient_error(code: ErrorCode) -> None:
    assert not is_passing(KafkaError(int(code)))
    assert not is_passing(KafkaError(KafkaError._AUTHENTICATION))
