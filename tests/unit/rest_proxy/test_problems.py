"""HTTP responses for Kafka's errors."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError

from pessoa.rest_proxy.proxy_problems import from_kafka, from_wire, record_code
from pessoa.wire.errors import ErrorCode

TABLE = {
    "SASL_AUTHENTICATION_FAILED": (401, 40101),
    "TOPIC_AUTHORIZATION_FAILED": (403, 40301),
    "CLUSTER_AUTHORIZATION_FAILED": (403, 40301),
    "UNKNOWN_TOPIC_OR_PARTITION": (404, 40403),
    "UNKNOWN_TOPIC_ID": (404, 40403),
    "LEADER_NOT_AVAILABLE": (404, 40404),
    "GROUP_ID_NOT_FOUND": (404, 40405),
    "MESSAGE_TOO_LARGE": (413, 413),
    "THROTTLING_QUOTA_EXCEEDED": (429, 42901),
    "BROKER_NOT_AVAILABLE": (503, 50302),
    "INVALID_REPLICATION_FACTOR": (400, 40002),
    "SECURITY_DISABLED": (400, 40002),
    "UNSUPPORTED_VERSION": (400, 40002),
    "INVALID_PARTITIONS": (400, 40002),
    "INVALID_REQUEST": (400, 40002),
    "UNKNOWN_SERVER_ERROR": (400, 40002),
    "POLICY_VIOLATION": (400, 40002),
    "TOPIC_ALREADY_EXISTS": (400, 40002),
    "INVALID_CONFIG": (400, 40002),
    "TOPIC_DELETION_DISABLED": (400, 40002),
    "INVALID_TOPIC_EXCEPTION": (400, 40002),
    "NOT_ENOUGH_REPLICAS": (500, 50003),
    "COORDINATOR_NOT_AVAILABLE": (500, 50003),
    "KAFKA_STORAGE_ERROR": (500, 50003),
    "NOT_CONTROLLER": (500, 50003),
    "OFFSET_OUT_OF_RANGE": (500, 50002),
    "ILLEGAL_GENERATION": (500, 50002),
}


@pytest.mark.parametrize("name", TABLE)
def test_a_kafka_error_is_mapped_to_http_status_and_error_code(name: str) -> None:
    problem = from_wire(ErrorCode[name], "what the broker said")
    assert (problem.status, problem.code) == TABLE[name]
    assert problem.message == "what the broker said"
    assert from_kafka(KafkaError(int(ErrorCode[name]))).code == problem.code


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (KafkaError._AUTHENTICATION, 40101),
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, 40301),
        (KafkaError._MSG_TIMED_OUT, 50003),
        (KafkaError._QUEUE_FULL, 50003),
        (KafkaError.UNKNOWN_TOPIC_OR_PART, 50003),
        (KafkaError.MSG_SIZE_TOO_LARGE, 50002),
    ],
)
def test_a_record_of_v2_has_one_of_four_codes(code: int, expected: int) -> None:
    assert record_code(KafkaError(code)) == expected
