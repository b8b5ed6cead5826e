"""The table of error codes: what went wrong, as HTTP status, code and sentence.

Callers tell failures apart by `error_code`, so codes and the beginnings of the sentences are the ones that the JVM
proxy sends. A code is a status with two more digits; where nothing more is known, the status stands alone.

Kafka's own errors are mapped by `from_kafka`, in three steps: the errors named in KAFKA, then whatever may go away by
itself (50003), then the rest (50002). The per-record errors of a v2 produce know four codes only: `record_code`.
"""

from __future__ import annotations

from confluent_kafka import KafkaError, KafkaException

from pessoa.web.problems import HttpProblem

KAFKA_BAD_REQUEST = 40002
AUTHENTICATION = 40101
AUTHORIZATION = 40301
KAFKA_ERROR = 50002
KAFKA_RETRIABLE_ERROR = 50003

# The authentication and authorisation errors of a record decide about the status of a whole v2 produce.
_UNAUTHENTICATED = frozenset({KafkaError.SASL_AUTHENTICATION_FAILED, KafkaError._AUTHENTICATION})
_UNAUTHORISED = frozenset(
    {
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.GROUP_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        KafkaError.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
    }
)
_MISSING = frozenset(
    {
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError.UNKNOWN_TOPIC_ID,
        KafkaError._UNKNOWN_TOPIC,
        KafkaError._UNKNOWN_PARTITION,
    }
)
_BAD_REQUESTS = frozenset(
    {
        KafkaError.INVALID_REPLICATION_FACTOR,
        KafkaError.INVALID_REPLICA_ASSIGNMENT,
        KafkaError.SECURITY_DISABLED,
        KafkaError.UNSUPPORTED_VERSION,
        KafkaError.INVALID_PARTITIONS,
        KafkaError.INVALID_REQUEST,
        KafkaError.INVALID_GROUP_ID,
        KafkaError.INVALID_PRINCIPAL_TYPE,
        KafkaError.INVALID_TIMESTAMP,
        KafkaError.INVALID_RECORD,
        KafkaError.UNKNOWN,
        KafkaError.POLICY_VIOLATION,
        KafkaError.TOPIC_ALREADY_EXISTS,
        KafkaError.INVALID_CONFIG,
        KafkaError.TOPIC_DELETION_DISABLED,
        KafkaError.TOPIC_EXCEPTION,
        KafkaError._INVALID_ARG,
        KafkaError._UNSUPPORTED_FEATURE,
    }
)
_UNREACHABLE = frozenset({KafkaError._ALL_BROKERS_DOWN, KafkaError._TRANSPORT, KafkaError._RESOLVE})
# librdkafka's own time-outs are what Kafka calls a retriable TimeoutException, but it does not mark them so.
_RETRIABLE = frozenset(
    {
        KafkaError._TIMED_OUT,
        KafkaError._MSG_TIMED_OUT,
        KafkaError._TIMED_OUT_QUEUE,
        KafkaError._QUEUE_FULL,
        KafkaError.REQUEST_TIMED_OUT,
        KafkaError.NOT_ENOUGH_REPLICAS,
        KafkaError.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.NOT_COORDINATOR,
    }
)

# Kafka's error → status, code.
KAFKA: dict[int, tuple[int, int]] = {
    **dict.fromkeys(_UNAUTHENTICATED, (401, AUTHENTICATION)),
    **dict.fromkeys(_UNAUTHORISED, (403, AUTHORIZATION)),
    **dict.fromkeys(_MISSING, (404, 40403)),
    **dict.fromkeys(_BAD_REQUESTS, (400, KAFKA_BAD_REQUEST)),
    **dict.fromkeys(_UNREACHABLE, (503, 50302)),
    KafkaError.LEADER_NOT_AVAILABLE: (404, 40404),
    KafkaError.GROUP_ID_NOT_FOUND: (404, 40405),
    KafkaError.MSG_SIZE_TOO_LARGE: (413, 413),
    KafkaError.RECORD_LIST_TOO_LARGE: (413, 413),
    KafkaError.THROTTLING_QUOTA_EXCEEDED: (429, 42901),
    KafkaError.BROKER_NOT_AVAILABLE: (503, 50302),
}


def kafka_error(failure: KafkaException) -> KafkaError:
    error = failure.args[0]
    assert isinstance(error, KafkaError)
    return error


def from_kafka(error: KafkaError) -> HttpProblem:
    """What a caller is told when the cluster, or the way to it, refused."""
    message = error.str()
    row = KAFKA.get(error.code())
    if row is not None:
        return HttpProblem(row[0], message, row[1])
    if is_retriable(error):
        return HttpProblem(500, message, KAFKA_RETRIABLE_ERROR)
    return HttpProblem(500, message, KAFKA_ERROR)


def from_wire(code: int, message: str | None) -> HttpProblem:
    """The same for an error code that came in an answer to our own client; librdkafka numbers Kafka's errors alike."""
    error = KafkaError(code)
    return from_kafka(error if message is None else KafkaError(code, message))


def is_retriable(error: KafkaError) -> bool:
    return error.retriable() or error.code() in _RETRIABLE or error.code() in _UNREACHABLE or error.code() in _MISSING


def record_code(error: KafkaError) -> int:
    """The code of one record that a v2 produce could not write."""
    if error.code() in _UNAUTHENTICATED:
        return AUTHENTICATION
    if error.code() in _UNAUTHORISED:
        return AUTHORIZATION
    return KAFKA_RETRIABLE_ERROR if is_retriable(error) else KAFKA_ERROR


def topic_not_found() -> HttpProblem:
    return HttpProblem(404, "Topic not found.", 40401)


def partition_not_found() -> HttpProblem:
    return HttpProblem(404, "Partition not found.", 40402)


def instance_not_found() -> HttpProblem:
    return HttpProblem(404, "Consumer instance not found.", 40403)


def unknown_topic() -> HttpProblem:
    """v3 says it as Kafka does."""
    return HttpProblem(404, "This server does not host this topic-partition.", 40403)


def leader_not_available() -> HttpProblem:
    return HttpProblem(404, "Leader not available.", 40404)


def unknown_in_cluster(what: str) -> HttpProblem:
    """A v3 resource that is not there: a broker, a config, a replica, a consumer."""
    return HttpProblem(404, what)


def group_not_found(group: str) -> HttpProblem:
    return HttpProblem(404, f"Consumer group {group} not found.", 40405)


def format_mismatch() -> HttpProblem:
    return HttpProblem(
        406,
        "The requested embedded data format does not match the deserializer for this consumer instance",
        40601,
    )


def undecodable(detail: str) -> HttpProblem:
    """A record that is not what its consumer's format says, or whose schema cannot be had."""
    return HttpProblem(408, f"Error deserializing message: {detail}", 40801)


def instance_exists() -> HttpProblem:
    return HttpProblem(
        409, "Consumer with specified consumer ID already exists in the specified consumer group.", 40902
    )


def illegal_state(detail: str) -> HttpProblem:
    return HttpProblem(409, f"Illegal state: {detail}", 40903)


def unprocessable(detail: str) -> HttpProblem:
    return HttpProblem(422, detail, 422)


def bad_request(detail: str) -> HttpProblem:
    return HttpProblem(400, f"Bad Request: {detail}", 400)


def config_out_of_bounds(detail: str) -> HttpProblem:
    return HttpProblem(422, detail, 40001)


def key_schema_missing() -> HttpProblem:
    return HttpProblem(422, "Request includes keys but does not include key schema", 42201)


def value_schema_missing() -> HttpProblem:
    return HttpProblem(422, "Request includes values but does not include value schema", 42202)


def conversion_failed(detail: str) -> HttpProblem:
    return HttpProblem(422, f"Conversion of JSON to Object failed: {detail}", 42203)


def invalid_consumer_config(detail: str) -> HttpProblem:
    return HttpProblem(422, f"Invalid consumer configuration: {detail}", 42204)


def invalid_schema(detail: str) -> HttpProblem:
    return HttpProblem(422, f"Invalid schema: {detail}", 42205)


def invalid_payload(detail: str) -> HttpProblem:
    return HttpProblem(422, f"Payload error. {detail}", 42206)


def serialisation_failed(detail: str) -> HttpProblem:
    return HttpProblem(422, f"Error serializing message. {detail}", 42207)


def invalid_batch(detail: str) -> HttpProblem:
    return HttpProblem(422, detail, 42208)
