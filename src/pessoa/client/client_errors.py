"""How a request can fail, with the messages of Kafka's Java client.

Scripts match on what the tools print, and that is often the name of a Java exception, or the sentence that the Java
client has for an error to which the broker added none. Both are part of the tools' interface: the names follow from
the error table but for the exceptions listed here, and the sentences are listed where a tool shows them.

`RequestFailed` is a broker's refusal. `TimedOut` says that no broker gave a usable answer before the deadline.
`BadSettings` is the user's: an address or a property that makes no sense.
"""

from __future__ import annotations

from pessoa.wire.errors import ErrorCode

PACKAGE = "org.apache.kafka.common.errors"

_NAMES = {
    "UNKNOWN_SERVER_ERROR": "UnknownServerException",
    "CORRUPT_MESSAGE": "CorruptRecordException",
    "REQUEST_TIMED_OUT": "TimeoutException",
    "MESSAGE_TOO_LARGE": "RecordTooLargeException",
    "STALE_CONTROLLER_EPOCH": "ControllerMovedException",
    "RECORD_LIST_TOO_LARGE": "RecordBatchTooLargeException",
    "TOPIC_AUTHORIZATION_FAILED": "TopicAuthorizationException",
    "GROUP_AUTHORIZATION_FAILED": "GroupAuthorizationException",
    "CLUSTER_AUTHORIZATION_FAILED": "ClusterAuthorizationException",
    "TOPIC_ALREADY_EXISTS": "TopicExistsException",
    "INVALID_CONFIG": "InvalidConfigurationException",
    "OUT_OF_ORDER_SEQUENCE_NUMBER": "OutOfOrderSequenceException",
    "DUPLICATE_SEQUENCE_NUMBER": "DuplicateSequenceException",
    "INVALID_PRODUCER_ID_MAPPING": "InvalidPidMappingException",
    "INVALID_TRANSACTION_TIMEOUT": "InvalidTxnTimeoutException",
    "TRANSACTIONAL_ID_AUTHORIZATION_FAILED": "TransactionalIdAuthorizationException",
    "KAFKA_STORAGE_ERROR": "KafkaStorageException",
    "SASL_AUTHENTICATION_FAILED": "SaslAuthenticationException",
    "DELEGATION_TOKEN_AUTH_DISABLED": "DelegationTokenDisabledException",
    "DELEGATION_TOKEN_REQUEST_NOT_ALLOWED": "UnsupportedByAuthenticationException",
    "DELEGATION_TOKEN_AUTHORIZATION_FAILED": "DelegationTokenAuthorizationException",
    "NON_EMPTY_GROUP": "GroupNotEmptyException",
    "PRINCIPAL_DESERIALIZATION_FAILURE": "PrincipalDeserializationException",
    "FETCH_SESSION_TOPIC_ID_ERROR": "FetchSessionTopicIdException",
}

# Output that scripts look for.
_SENTENCES = {
    "OFFSET_OUT_OF_RANGE": "The requested offset is not within the range of offsets maintained by the server.",
    "UNKNOWN_TOPIC_OR_PARTITION": "This server does not host this topic-partition.",
    "LEADER_NOT_AVAILABLE": "There is no leader for this topic-partition as we are in the middle of a leadership "
    "election.",
    "REQUEST_TIMED_OUT": "The request timed out.",
    "COORDINATOR_NOT_AVAILABLE": "The coordinator is not available.",
    "INVALID_TOPIC_EXCEPTION": "The request attempted to perform an operation on an invalid topic.",
    "INVALID_GROUP_ID": "The group id is invalid.",
    "UNKNOWN_MEMBER_ID": "The coordinator is not aware of this member.",
    "TOPIC_AUTHORIZATION_FAILED": "Topic authorization failed.",
    "GROUP_AUTHORIZATION_FAILED": "Group authorization failed.",
    "CLUSTER_AUTHORIZATION_FAILED": "Cluster authorization failed.",
    "UNSUPPORTED_VERSION": "The version of API is not supported.",
    "TOPIC_ALREADY_EXISTS": "Topic with this name already exists.",
    "INVALID_PARTITIONS": "Number of partitions is below 1.",
    "INVALID_REPLICATION_FACTOR": "Replication factor is below 1 or larger than the number of available brokers.",
    "INVALID_REPLICA_ASSIGNMENT": "Replica assignment is invalid.",
    "SECURITY_DISABLED": "Security features are disabled.",
    "LOG_DIR_NOT_FOUND": "The user-specified log directory is not found in the broker config.",
    "DELEGATION_TOKEN_AUTH_DISABLED": "Delegation Token feature is not enabled.",
    "DELEGATION_TOKEN_NOT_FOUND": "Delegation Token is not found on server.",
    "DELEGATION_TOKEN_REQUEST_NOT_ALLOWED": "Delegation Token requests are not allowed on PLAINTEXT/1-way SSL channels "
    "and on delegation token authenticated channels.",
    "NON_EMPTY_GROUP": "The group is not empty.",
    "GROUP_ID_NOT_FOUND": "The group id does not exist.",
    "PREFERRED_LEADER_NOT_AVAILABLE": "The preferred leader was not available.",
    "ELIGIBLE_LEADERS_NOT_AVAILABLE": "Eligible topic partition leaders are not available.",
    "ELECTION_NOT_NEEDED": "Leader election not needed for topic partition.",
    "NO_REASSIGNMENT_IN_PROGRESS": "No partition reassignment is in progress.",
    "GROUP_SUBSCRIBED_TO_TOPIC": "Deleting offsets of a topic is forbidden while the consumer group is actively "
    "subscribed to it.",
    "RESOURCE_NOT_FOUND": "A request illegally referred to a resource that does not exist.",
    "BROKER_ID_NOT_REGISTERED": "The given broker ID was not registered.",
    "UNKNOWN_TOPIC_ID": "This server does not host this topic ID.",
    "TRANSACTIONAL_ID_NOT_FOUND": "The transactionalId could not be found.",
    "DUPLICATE_VOTER": "The voter is already part of the set of voters.",
    "VOTER_NOT_FOUND": "The voter is not part of the set of voters.",
}


def java_name(code: ErrorCode) -> str:
    """Return the full name of the exception that the Java client throws for this error."""
    name = _NAMES.get(code.name)
    if name is None:
        name = "".join(word.capitalize() for word in code.name.split("_")).removesuffix("Exception") + "Exception"
    return f"{PACKAGE}.{name}"


def sentence(code: ErrorCode) -> str:
    """Return the Java client's message for an error to which the broker added none."""
    return _SENTENCES.get(code.name, code.text)


class KafkaFailure(Exception):
    """A request to the cluster failed. `str()` is the sentence, `java_name` the exception's name."""

    java_name = "org.apache.kafka.common.KafkaException"

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else ""

    @property
    def java_text(self) -> str:
        """Return the text of Java's `Throwable.toString()`."""
        return f"{self.java_name}: {self}"


class RequestFailed(KafkaFailure):
    """A broker answered with an error code."""

    def __init__(self, code: int, message: str | None = None) -> None:
        self.code = ErrorCode.of(code)
        super().__init__(sentence(self.code) if message is None else message)
        self.java_name = java_name(self.code)


class TimedOut(KafkaFailure):
    java_name = f"{PACKAGE}.TimeoutException"


class Unsupported(KafkaFailure):
    """The broker does not support this API, or no version of it that we support."""

    java_name = f"{PACKAGE}.UnsupportedVersionException"


class BadSettings(KafkaFailure):
    java_name = "org.apache.kafka.common.config.ConfigException"


class CannotConstruct(KafkaFailure):
    """A client could not be constructed; the cause says which setting is wrong."""

    def __init__(self, client: str, reason: KafkaFailure) -> None:
        super().__init__(f"Failed to construct kafka {client}\nCaused by: {reason.java_text}")

    @property
    def java_text(self) -> str:
        # Java's tools let this one through.
        return f'Exception in thread "main" {super().java_text}'


class HandshakeFailed(KafkaFailure):
    java_name = f"{PACKAGE}.SslAuthenticationException"


class AuthenticationFailed(KafkaFailure):
    java_name = f"{PACKAGE}.SaslAuthenticationException"


def check(code: int, message: str | None = None) -> None:
    if code:
        raise RequestFailed(code, message)
