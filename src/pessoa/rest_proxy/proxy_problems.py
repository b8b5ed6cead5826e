"""The table of error codes: what went wrong, as HTTP status, code and sentence.

Callers tell failures apart by `error_code`, so codes and the beginnings of the sentences are the ones that the JVM
proxy sends. A code is a status with two more digits; where nothing more is known, the status stands alone.

Kafka's own errors are mapped by `from_kafka`, in three steps: the errors named in KAFKA, then those that Kafka calls
retriable (50003), then the rest (50002). The per-record errors of a v2 produce know four codes only: `record_code`.
"""

from __future__ import annotations

from confluent_kafka import KafkaError, KafkaException

from pessoa.client.librdkafka import is_passing
from pessoa.web.problems import HttpProblem, Problem

KAFKA_BAD_REQUEST = 40002
AUTHENTICATION = 40101
AUTHORIZATION = 40301
KAFKA_ERROR = 50002
KAFKA_RETRIABLE_ERROR = 50003
UNREACHABLE = 50302

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
# A record that waited too long, or found no room: a Java producer has a TimeoutException for both, which is retriable.
_WAITED_IN_VAIN = frozenset({KafkaError._MSG_TIMED_OUT, KafkaError._QUEUE_FULL})

# Kafka's error → status, code.
KAFKA: dict[int, tuple[int, int]] = {
    **dict.fromkeys(_UNAUTHENTICATED, (401, AUTHENTICATION)),
    **dict.fromkeys(_UNAUTHORISED, (403, AUTHORIZATION)),
    **dict.fromkeys(_MISSING, (404, 40403)),
    **dict.fromkeys(_BAD_REQUESTS, (400, KAFKA_BAD_REQUEST)),
    **dict.fromkeys(_UNREACHABLE, (503, UNREACHABLE)),
    KafkaError.LEADER_NOT_AVAILABLE: (404, 40404),
    KafkaError.GROUP_ID_NOT_FOUND: (404, 40405),
    KafkaError.MSG_SIZE_TOO_LARGE: (413, 413),
    KafkaError.RECORD_LIST_TOO_LARGE: (413, 413),
    KafkaError.THROTTLING_QUOTA_EXCEEDED: (429, 42901),
    KafkaError.BROKER_NOT_AVAILABLE: (503, UNREACHABLE),
}


def kafka_error(failure: KafkaException) -> KafkaError:
    error = failure.args[0]
    assert isinstance(error, KafkaError)
    return error


def from_kafka(error: KafkaError) -> HttpProblem:
    """Return the HttpProblem for an error of the cluster or of the connection to it."""
    message = error.str()
    row = KAFKA.get(error.code())
    if row is not None:
        return HttpProblem(row[0], message, row[1])
    if is_retriable(error):
        return HttpProblem(500, message, KAFKA_RETRIABLE_ERROR)
    return HttpProblem(500, message, KAFKA_ERROR)


def from_wire(code: int, message: str | None) -> HttpProblem:
    """Return the HttpProblem for an error code in a response to our own client; librdkafka numbers Kafka's errors
    alike."""
    error = KafkaError(code)
    return from_kafka(error if message is None else KafkaError(code, message))


def is_retriable(error: KafkaError) -> bool:
    return is_passing(error) or error.code() in _WAITED_IN_VAIN


def record_code(error: KafkaError) -> int:
    """Return the error code of one record that a v2 produce could not write."""
    if error.code() in _UNAUTHENTICATED:
        return AUTHENTICATION
    if error.code() in _UNAUTHORISED:
        return AUTHORIZATION
    return KAFKA_RETRIABLE_ERROR if is_retriable(error) else KAFKA_ERROR


topic_not_found = Problem(404, 40401, "Topic not found.")
partition_not_found = Problem(404, 40402, "Partition not found.")
instance_not_found = Problem(404, 40403, "Consumer instance not found.")
# v3 says it as Kafka does.
unknown_topic = Problem(404, 40403, "This server does not host this topic-partition.")
leader_not_available = Problem(404, 40404, "Leader not available.")
# A v3 resource that is not there: a broker, a config, a replica, a consumer.
unknown_in_cluster = Problem(404, 404, "{}")
group_not_found = Problem(404, 40405, "Consumer group {} not found.")
format_mismatch = Problem(
    406, 40601, "The requested embedded data format does not match the deserializer for this consumer instance"
)
# A record that is not of its consumer's format, or whose schema cannot be fetched.
undecodable = Problem(408, 40801, "Error deserializing message: {}")
instance_exists = Problem(
    409, 40902, "Consumer with specified consumer ID already exists in the specified consumer group."
)
group_has_members = Problem(409, 409, "Group {} has members: stop them, then delete it.")
illegal_state = Problem(409, 40903, "Illegal state: {}")
bad_request = Problem(400, 400, "Bad Request: {}")
unprocessable = Problem(422, 422, "{}")
config_out_of_bounds = Problem(422, 40001, "{}")
key_schema_missing = Problem(422, 42201, "Request includes keys but does not include key schema")
value_schema_missing = Problem(422, 42202, "Request includes values but does not include value schema")
conversion_failed = Problem(422, 42203, "Conversion of JSON to Object failed: {}")
invalid_consumer_config = Problem(422, 42204, "Invalid consumer configuration: {}")
invalid_schema = Problem(422, 42205, "Invalid schema: {}")
invalid_payload = Problem(422, 42206, "Payload error. {}")
serialisation_failed = Problem(422, 42207, "Error serializing message. {}")
invalid_batch = Problem(422, 42208, "{}")
