"""Kafka's error table, and the exceptions of encoding, decoding and refusing.

A response carries errors as int16 codes. `ErrorCode` is the whole table of Apache Kafka 4.3: the code, the name,
whether a client may simply try again (`retriable`) and a sentence for people (`text`). A member is an int, so it
packs as one.

Apart from that table stand three exceptions. `ProtocolViolation`: the peer sent bytes that are not Kafka's protocol;
the connection is logged and closed. `EncodeError`: we were asked to send a value that the chosen version cannot
carry; that is our own mistake, never the peer's. `Refusal`: a request, or a part of one, is answered with an error
code; controllers and coordinators raise it.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Self


class ProtocolViolation(Exception):
    """The peer broke the protocol. The bytes that it sent after this point cannot be interpreted."""


class EncodeError(ValueError):
    """A message cannot be written in this version: a value out of range, a null that is not allowed."""


class UnsupportedFieldError(EncodeError):
    """A field that this version does not have, and that may not be left out silently, is set."""


class ErrorCode(IntEnum):
    retriable: bool
    text: str

    def __new__(cls, code: int, retriable: bool, text: str) -> Self:
        member = int.__new__(cls, code)
        member._value_ = code
        member.retriable = retriable
        member.text = text
        return member

    @classmethod
    def of(cls, code: int) -> ErrorCode:
        """Return the member for a code that came over the wire; UNKNOWN_SERVER_ERROR for a code that is not in the
        table, as every client does."""
        return _by_code.get(code, cls.UNKNOWN_SERVER_ERROR)

    @property
    def is_error(self) -> bool:
        return self._value_ != 0

    UNKNOWN_SERVER_ERROR = -1, False, "The server met an error it has no code for."
    NONE = 0, False, "No error."
    OFFSET_OUT_OF_RANGE = 1, False, "The offset lies outside what the partition holds."
    CORRUPT_MESSAGE = 2, True, "The checksum is wrong, the size is impossible, or a compacted topic got a null key."
    UNKNOWN_TOPIC_OR_PARTITION = 3, True, "This server does not have that topic or partition."
    INVALID_FETCH_SIZE = 4, False, "The fetch size is not valid."
    LEADER_NOT_AVAILABLE = 5, True, "The partition has no leader at this moment; one is being elected."
    NOT_LEADER_OR_FOLLOWER = 6, True, "This broker is not the leader, or not a replica, of the partition."
    REQUEST_TIMED_OUT = 7, True, "The request was not done in time."
    BROKER_NOT_AVAILABLE = 8, False, "The broker is not available."
    REPLICA_NOT_AVAILABLE = 9, True, "The replica of the partition is not available."
    MESSAGE_TOO_LARGE = 10, False, "The record batch is larger than the topic accepts (max.message.bytes)."
    STALE_CONTROLLER_EPOCH = 11, False, "Another controller has taken over."
    OFFSET_METADATA_TOO_LARGE = 12, False, "The text beside the committed offset is too long."
    NETWORK_EXCEPTION = 13, True, "The connection ended before the answer came."
    COORDINATOR_LOAD_IN_PROGRESS = 14, True, "The coordinator is still loading its state."
    COORDINATOR_NOT_AVAILABLE = 15, True, "No coordinator is available."
    NOT_COORDINATOR = 16, True, "This broker is not the coordinator."
    INVALID_TOPIC_EXCEPTION = 17, False, "That is not a topic on which this can be done."
    RECORD_LIST_TOO_LARGE = 18, False, "The record batch is larger than a segment of the topic (segment.bytes)."
    NOT_ENOUGH_REPLICAS = 19, True, "Fewer replicas are in sync than min.insync.replicas asks for; nothing was written."
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = 20, True, "Written, but to fewer in-sync replicas than were asked for."
    INVALID_REQUIRED_ACKS = 21, False, "acks must be 0, 1 or -1 (all)."
    ILLEGAL_GENERATION = 22, False, "The group has moved on to another generation."
    INCONSISTENT_GROUP_PROTOCOL = 23, False, "The member shares no protocol with the rest of the group."
    INVALID_GROUP_ID = 24, False, "The group id is not valid."
    UNKNOWN_MEMBER_ID = 25, False, "The coordinator does not know this member."
    INVALID_SESSION_TIMEOUT = 26, False, "The session timeout is outside what the broker allows."
    REBALANCE_IN_PROGRESS = 27, False, "The group is rebalancing: join again."
    INVALID_COMMIT_OFFSET_SIZE = 28, False, "The offset commit is too large to store."
    TOPIC_AUTHORIZATION_FAILED = 29, False, "Not authorised for the topic."
    GROUP_AUTHORIZATION_FAILED = 30, False, "Not authorised for the group."
    CLUSTER_AUTHORIZATION_FAILED = 31, False, "Not authorised for the cluster."
    INVALID_TIMESTAMP = 32, False, "A record's timestamp is outside what the topic accepts."
    UNSUPPORTED_SASL_MECHANISM = 33, False, "The broker does not offer this SASL mechanism."
    ILLEGAL_SASL_STATE = 34, False, "This request is not valid at this point of the SASL exchange."
    UNSUPPORTED_VERSION = 35, False, "This version of the API is not supported."
    TOPIC_ALREADY_EXISTS = 36, False, "A topic of this name exists."
    INVALID_PARTITIONS = 37, False, "The number of partitions must be at least 1."
    INVALID_REPLICATION_FACTOR = 38, False, "The replication factor is below 1 or above the number of usable brokers."
    INVALID_REPLICA_ASSIGNMENT = 39, False, "The replica assignment is not valid."
    INVALID_CONFIG = 40, False, "The configuration is not valid."
    NOT_CONTROLLER = 41, True, "This is not the active controller."
    INVALID_REQUEST = 42, False, "The request makes no sense as it stands."
    UNSUPPORTED_FOR_MESSAGE_FORMAT = 43, False, "The message format on the broker does not allow this."
    POLICY_VIOLATION = 44, False, "A policy of the cluster forbids this."
    OUT_OF_ORDER_SEQUENCE_NUMBER = 45, False, "The producer's sequence number does not follow the last one."
    DUPLICATE_SEQUENCE_NUMBER = 46, False, "A batch with this sequence number was written before."
    INVALID_PRODUCER_EPOCH = 47, False, "A newer producer with the same id has taken over."
    INVALID_TXN_STATE = 48, False, "The transaction is not in a state that allows this."
    INVALID_PRODUCER_ID_MAPPING = 49, False, "The producer id is not the one that this transactional id has."
    INVALID_TRANSACTION_TIMEOUT = 50, False, "The transaction timeout is above transaction.max.timeout.ms."
    CONCURRENT_TRANSACTIONS = 51, True, "The previous transaction of this producer is still being completed."
    TRANSACTION_COORDINATOR_FENCED = 52, False, "A newer transaction coordinator has taken over."
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53, False, "Not authorised for the transactional id."
    SECURITY_DISABLED = 54, False, "Security features are switched off."
    OPERATION_NOT_ATTEMPTED = 55, False, "Not tried, because another part of the request failed."
    KAFKA_STORAGE_ERROR = 56, True, "The disk of the log directory failed."
    LOG_DIR_NOT_FOUND = 57, False, "The broker has no such log directory."
    SASL_AUTHENTICATION_FAILED = 58, False, "SASL authentication failed."
    UNKNOWN_PRODUCER_ID = 59, False, "The broker holds nothing more of this producer: its records are gone or expired."
    REASSIGNMENT_IN_PROGRESS = 60, False, "The partition is being reassigned."
    DELEGATION_TOKEN_AUTH_DISABLED = 61, False, "Delegation tokens are switched off."
    DELEGATION_TOKEN_NOT_FOUND = 62, False, "The server does not have this delegation token."
    DELEGATION_TOKEN_OWNER_MISMATCH = 63, False, "The principal is neither owner nor renewer of the token."
    DELEGATION_TOKEN_REQUEST_NOT_ALLOWED = 64, False, "Delegation tokens cannot be asked for over this connection."
    DELEGATION_TOKEN_AUTHORIZATION_FAILED = 65, False, "Not authorised for the delegation token."
    DELEGATION_TOKEN_EXPIRED = 66, False, "The delegation token has expired."
    INVALID_PRINCIPAL_TYPE = 67, False, "The principal type is not supported."
    NON_EMPTY_GROUP = 68, False, "The group still has members."
    GROUP_ID_NOT_FOUND = 69, False, "There is no such group."
    FETCH_SESSION_ID_NOT_FOUND = 70, True, "The broker does not know this fetch session."
    INVALID_FETCH_SESSION_EPOCH = 71, True, "The fetch session epoch is not the next one."
    LISTENER_NOT_FOUND = 72, True, "The leader has no listener of the name that this request came in by."
    TOPIC_DELETION_DISABLED = 73, False, "Deleting topics is switched off (delete.topic.enable)."
    FENCED_LEADER_EPOCH = 74, True, "The leader epoch in the request is older than the broker's."
    UNKNOWN_LEADER_EPOCH = 75, True, "The leader epoch in the request is newer than the broker's."
    UNSUPPORTED_COMPRESSION_TYPE = 76, False, "The client's version does not support this compression."
    STALE_BROKER_EPOCH = 77, False, "The broker has registered again since: its epoch is old."
    OFFSET_NOT_AVAILABLE = 78, True, "The new leader's high watermark has not caught up far enough to answer."
    MEMBER_ID_REQUIRED = 79, False, "Join again with the member id that came with this answer."
    PREFERRED_LEADER_NOT_AVAILABLE = 80, True, "The preferred leader is not available."
    GROUP_MAX_SIZE_REACHED = 81, False, "The group has as many members as it may have (group.max.size)."
    FENCED_INSTANCE_ID = 82, False, "Another member has registered with the same group.instance.id."
    ELIGIBLE_LEADERS_NOT_AVAILABLE = 83, True, "No replica that may lead is available."
    ELECTION_NOT_NEEDED = 84, True, "The partition needs no election."
    NO_REASSIGNMENT_IN_PROGRESS = 85, False, "No reassignment is going on."
    GROUP_SUBSCRIBED_TO_TOPIC = 86, False, "The group is subscribed to the topic whose offsets would be deleted."
    INVALID_RECORD = 87, False, "A record did not pass the broker's validation."
    UNSTABLE_OFFSET_COMMIT = 88, True, "Offsets of an open transaction are still pending."
    THROTTLING_QUOTA_EXCEEDED = 89, True, "The quota is used up for the moment."
    PRODUCER_FENCED = 90, False, "A newer producer with the same transactional id has taken over."
    RESOURCE_NOT_FOUND = 91, False, "There is no such resource."
    DUPLICATE_RESOURCE = 92, False, "The same resource is named twice."
    UNACCEPTABLE_CREDENTIAL = 93, False, "The credential does not meet the rules for credentials."
    INCONSISTENT_VOTER_SET = 94, False, "The voters in the request are not the ones of this quorum."
    INVALID_UPDATE_VERSION = 95, False, "The version of the update is not valid."
    FEATURE_UPDATE_FAILED = 96, False, "The feature could not be updated."
    PRINCIPAL_DESERIALIZATION_FAILURE = 97, False, "The forwarded principal could not be read."
    SNAPSHOT_NOT_FOUND = 98, False, "There is no such snapshot."
    POSITION_OUT_OF_RANGE = 99, False, "The position is outside the snapshot."
    UNKNOWN_TOPIC_ID = 100, True, "This server does not have a topic of that id."
    DUPLICATE_BROKER_REGISTRATION = 101, False, "A live broker has registered with this id."
    BROKER_ID_NOT_REGISTERED = 102, False, "No broker has registered with this id."
    INCONSISTENT_TOPIC_ID = 103, True, "The topic id in the log is not the one in the request."
    INCONSISTENT_CLUSTER_ID = 104, False, "The cluster id is not this cluster's."
    TRANSACTIONAL_ID_NOT_FOUND = 105, False, "There is no such transactional id."
    FETCH_SESSION_TOPIC_ID_ERROR = 106, True, "The fetch session mixes topic names and topic ids."
    INELIGIBLE_REPLICA = 107, False, "The replica may not join the in-sync set."
    NEW_LEADER_ELECTED = 108, False, "The change was refused because it led to a new leader."
    OFFSET_MOVED_TO_TIERED_STORAGE = 109, False, "The offset has moved to tiered storage."
    FENCED_MEMBER_EPOCH = 110, False, "The coordinator has fenced this member epoch: join again."
    UNRELEASED_INSTANCE_ID = 111, False, "Another member still holds this group.instance.id."
    UNSUPPORTED_ASSIGNOR = 112, False, "The group does not support any of the member's assignors."
    STALE_MEMBER_EPOCH = 113, False, "The member epoch is old: heartbeat, then try again."
    MISMATCHED_ENDPOINT_TYPE = 114, False, "The request came to a broker and not a controller, or the other way round."
    UNSUPPORTED_ENDPOINT_TYPE = 115, False, "This endpoint type is not supported."
    UNKNOWN_CONTROLLER_ID = 116, False, "There is no controller of this id."
    UNKNOWN_SUBSCRIPTION_ID = 117, False, "The telemetry subscription is not the one that the broker has."
    TELEMETRY_TOO_LARGE = 118, False, "The pushed telemetry is larger than the broker accepts."
    INVALID_REGISTRATION = 119, False, "The controller considers the broker's registration invalid."
    TRANSACTION_ABORTABLE = 120, False, "The transaction must be aborted; the producer can go on after that."
    INVALID_RECORD_STATE = 121, False, "The record is not in a state that allows this acknowledgement."
    SHARE_SESSION_NOT_FOUND = 122, True, "The broker does not know this share session."
    INVALID_SHARE_SESSION_EPOCH = 123, True, "The share session epoch is not the next one."
    FENCED_STATE_EPOCH = 124, False, "The share coordinator has a newer state epoch."
    INVALID_VOTER_KEY = 125, False, "The voter key is not the one of the voter that answered."
    DUPLICATE_VOTER = 126, False, "The voter belongs to the quorum."
    VOTER_NOT_FOUND = 127, False, "The voter does not belong to the quorum."
    INVALID_REGULAR_EXPRESSION = 128, False, "The regular expression is not valid."
    REBOOTSTRAP_REQUIRED = 129, False, "The client's metadata is too old: start again from the bootstrap servers."
    STREAMS_INVALID_TOPOLOGY = 130, False, "The streams topology is not valid."
    STREAMS_INVALID_TOPOLOGY_EPOCH = 131, False, "The epoch of the streams topology is not valid."
    STREAMS_TOPOLOGY_FENCED = 132, False, "The streams topology is older than the group's."
    SHARE_SESSION_LIMIT_REACHED = 133, True, "The broker has as many share sessions as it may have."


_by_code: dict[int, ErrorCode] = {int(member): member for member in ErrorCode}

# The coordinator of a group or a transactional id is still loading, is another broker, or has to be elected.
NO_COORDINATOR = frozenset(
    {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR}
)


# Messages quote what clients send. A string in a response of a version that is not flexible has at most 32,767 bytes,
# and a character up to 4.
_MAX_MESSAGE_LENGTH = 8_000


class Refusal(Exception):
    """An error code as the answer to a request or to a part of it and, where the API has a field for it, a message,
    which is shortened if it would not fit into the response."""

    def __init__(self, code: ErrorCode, message: str | None = None) -> None:
        self.code = code
        self.message = None if message is None else message[:_MAX_MESSAGE_LENGTH]
        super().__init__(f"{code.name}: {self.text}")

    def __repr__(self) -> str:
        return f"Refusal({self.code.name}, {self.message!r})"

    @property
    def text(self) -> str:
        """The message, or the text of the code in the error table."""
        return self.code.text if self.message is None else self.message
