"""The ACLs and passwords of users as the nodes know them, and the check that every response agrees with them.

What counts are the metadata images of the nodes. An entry that was removed is gone *for all* when no running node has
it any more; from then on

    a request that needs it is refused                  by every node to which it is sent after that moment
    no record of its user is appended                   by any leader, until a client asks to add the entry again

and a request whose entries all nodes have, from before it was sent until its response came, must not be refused. While
one node lags behind others, either may happen. The same holds of passwords.

The records of a transaction may be appended some time after their request was authorized (KIP-890): of those, only
records that were written after the entry was gone for all must not appear.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from pessoa.broker.lifecycle import Broker
from pessoa.security.acl import GROUP, READ, TOPIC, TRANSACTIONAL_ID, WRITE
from pessoa.wire.api.add_offsets_to_txn import AddOffsetsToTxnRequest
from pessoa.wire.api.add_partitions_to_txn import AddPartitionsToTxnRequest
from pessoa.wire.api.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from pessoa.wire.api.end_txn import EndTxnRequest
from pessoa.wire.api.fetch import FetchRequest
from pessoa.wire.api.heartbeat import HeartbeatRequest
from pessoa.wire.api.init_producer_id import InitProducerIdRequest
from pessoa.wire.api.join_group import JoinGroupRequest
from pessoa.wire.api.offset_commit import OffsetCommitRequest
from pessoa.wire.api.produce import ProduceRequest
from pessoa.wire.api.share_acknowledge import ShareAcknowledgeRequest
from pessoa.wire.api.share_fetch import ShareFetchRequest
from pessoa.wire.api.share_group_heartbeat import ShareGroupHeartbeatRequest
from pessoa.wire.api.sync_group import SyncGroupRequest
from pessoa.wire.api.txn_offset_commit import TxnOffsetCommitRequest
from pessoa.wire.errors import ErrorCode
from tests.simulation.history import Violation
from tests.simulation.users import INTRUDER, MECHANISM_NUMBER, principal_of, stored_key_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pessoa.metadata.image import MetadataImage
    from pessoa.metadata.table_images import Acl, AclsImage
    from pessoa.wire.schema import Message, Struct
    from tests.simulation.history import History
    from tests.simulation.node import Node

DENIED = frozenset(
    (
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
    )
)
_OF_GROUPS = (
    JoinGroupRequest,
    SyncGroupRequest,
    HeartbeatRequest,
    OffsetCommitRequest,
    ConsumerGroupHeartbeatRequest,
    TxnOffsetCommitRequest,
    AddOffsetsToTxnRequest,
    ShareGroupHeartbeatRequest,
    ShareFetchRequest,
    ShareAcknowledgeRequest,
)
_OF_TRANSACTIONS = (
    InitProducerIdRequest,
    EndTxnRequest,
    AddOffsetsToTxnRequest,
    TxnOffsetCommitRequest,
    ProduceRequest,
)


class Knowledge(NamedTuple):
    """What the serving nodes knew at one moment, to be compared with another moment."""

    images: tuple[object, ...]

    def is_unchanged(self, later: Knowledge) -> bool:
        return len(self.images) == len(later.images) and all(
            one is other for one, other in zip(self.images, later.images, strict=True)
        )


class Before(NamedTuple):
    """The rights of a user when a request was sent."""

    knowledge: Knowledge
    # Whether every node has every entry of the user.
    is_complete: bool
    # The entries of the user that no node has.
    gone: tuple[Acl, ...]


class Rights:
    """The ACL entries and passwords of a run; `entries` are those that the cluster begins and ends with."""

    def __init__(self, nodes: Sequence[Node], entries: Sequence[Acl], now_s: Callable[[], float]) -> None:
        self.entries = entries
        # Entries that are being removed, from before the request that removes them until the request that adds them
        # again.
        self.removed: list[Acl] = []
        self._nodes = nodes
        self._now_s = now_s
        # Entry → when it was first seen to be gone for all
        self._gone_since_s: dict[Acl, float] = {}
        self._known: dict[int, tuple[AclsImage, frozenset[Acl]]] = {}
        # User → the newest generation of its password that was ever requested
        self.generations: dict[str, int] = {}

    def __repr__(self) -> str:
        return f"<Rights: {len(self.entries)} entries, {len(self.removed)} of them removed>"

    # The images of nodes.

    def _entries_of(self, image: MetadataImage) -> frozenset[Acl]:
        acls = image.acls
        known = self._known.get(id(acls))
        if known is None:
            known = self._known[id(acls)] = (acls, frozenset(acls.by_id.values()))
        return known[1]

    def _running(self) -> Iterator[Broker]:
        return (node.broker for node in self._nodes if node.is_up and node.broker is not None)

    def _serving(self) -> Iterator[Broker]:
        """Yield the running brokers that have read all of the metadata log."""
        return (broker for broker in self._running() if broker._publisher._is_live)

    def is_gone(self, entry: Acl) -> bool:
        """Return whether no running node has the entry, and note since when that is so."""
        if entry not in self.removed or any(entry in self._entries_of(one.image) for one in self._running()):
            self._gone_since_s.pop(entry, None)
            return False
        self._gone_since_s.setdefault(entry, self._now_s())
        return True

    def is_everywhere(self, entry: Acl) -> bool:
        return all(entry in self._entries_of(one.image) for one in self._serving())

    def ask_for(self, entry: Acl) -> None:
        """Note that the entry is about to be added again: from now on any node may have it."""
        if entry in self.removed:
            self.removed.remove(entry)
        self._gone_since_s.pop(entry, None)

    def look_at_image(self, image: MetadataImage) -> None:
        """Check that the metadata has no ACL of the intruder and no topic that it tried to create."""
        if any(entry.principal == f"User:{INTRUDER}" for entry in self._entries_of(image)):
            raise Violation(f"the intruder has got rights: {sorted(self._entries_of(image))}")
        strange = [topic.name for topic in image.topics.by_id.values() if topic.name.startswith(INTRUDER)]
        if strange:
            raise Violation(f"the intruder has created {strange}")

    # Requests.

    def before(self, principal: str) -> Before:
        own = [entry for entry in self.entries if entry.principal == principal]
        serving = list(self._serving())
        return Before(
            Knowledge(tuple(one.image.acls for one in serving)),
            all(entry in self._entries_of(one.image) for one in serving for entry in own),
            tuple(entry for entry in own if self.is_gone(entry)),
        )

    def check(self, principal: str, request: Message, before: Before, response: Message) -> bool:
        """Return whether the request was refused; raise a Violation if that was wrong, or if it should have been
        refused."""
        codes = error_codes(response)
        is_refused = not codes.isdisjoint(DENIED)
        if not before.knowledge.is_unchanged(Knowledge(tuple(one.image.acls for one in self._serving()))):
            return is_refused
        if is_refused and before.is_complete:
            raise Violation(
                f"{principal} may do what it does, as all nodes know, and {type(request).__name__} was answered with "
                f"{sorted(ErrorCode.of(one).name for one in codes)}"
            )
        for entry in before.gone if codes <= {ErrorCode.NONE} else ():
            if needs(request, entry) and self.is_gone(entry):
                raise Violation(f"{principal} has lost {entry}, as all nodes know, and {request!r} was carried out")
        return is_refused

    def check_append(self, history: History, topic: str, value: bytes, *, is_transactional: bool) -> None:
        """Check that the user whose record a leader has appended may write to the topic."""
        write = history.writes.get(value)
        if write is None:
            raise Violation(f"{value!r} was appended to {topic}, and no client with rights has written it")
        principal = principal_of(write.producer)
        for entry in self.removed:
            is_about = entry.principal == principal and _may_write(entry, topic)
            if not is_about or not self.is_gone(entry):
                continue
            if not is_transactional or write.begun_s > self._gone_since_s[entry]:
                raise Violation(f"{value!r} was appended to {topic}, and {principal} has lost {entry}")

    # Passwords.

    def passwords(self) -> Knowledge:
        return Knowledge(tuple(one.image.scram for one in self._serving()))

    def is_password_everywhere(self, user: str, generation: int) -> bool:
        wanted = stored_key_of(user, generation)
        return all(_stored_key(one.image, user) == wanted for one in self._serving())

    def is_password_nowhere(self, user: str, generation: int) -> bool:
        unwanted = stored_key_of(user, generation)
        return all(_stored_key(one.image, user) not in (unwanted, None) for one in self._running())


def _stored_key(image: MetadataImage, user: str) -> bytes | None:
    found = image.scram.credentials.get((user, MECHANISM_NUMBER))
    return None if found is None else found.stored_key


def _may_write(entry: Acl, topic: str) -> bool:
    if entry.operation != WRITE:
        return False
    return entry.resource_type == TRANSACTIONAL_ID or (entry.resource_type == TOPIC and entry.resource_name == topic)


def needs(request: Message, entry: Acl) -> bool:
    """Return whether a request of the entry's user needs this entry."""
    kind, operation = entry.resource_type, entry.operation
    if kind == GROUP and operation == READ:
        return isinstance(request, _OF_GROUPS) and request.group_id == entry.resource_name
    if kind == TRANSACTIONAL_ID and operation == WRITE:
        if isinstance(request, AddPartitionsToTxnRequest):
            return True
        return isinstance(request, _OF_TRANSACTIONS) and request.transactional_id is not None
    if kind == TOPIC and operation == WRITE:
        return isinstance(request, ProduceRequest) and entry.resource_name in [one.name for one in request.topic_data]
    if kind == TOPIC and operation == READ:
        if isinstance(request, FetchRequest):
            return entry.resource_name in [one.topic for one in request.topics]
        # Its share session has the one topic that the group reads, whether or not the request names it again.
        if isinstance(request, ShareFetchRequest):
            return True
        if isinstance(request, ShareAcknowledgeRequest):
            return bool(request.topics)
        if isinstance(request, (OffsetCommitRequest, TxnOffsetCommitRequest)):
            return entry.resource_name in [one.name for one in request.topics]
    return False


# The error codes at all levels of a response.


@cache
def _fields_with_codes(kind: Any) -> tuple[tuple[str, bool], ...]:
    """Return the names of the fields that are error codes or structs, and for each whether it is an error code."""
    return tuple(
        (field.name, field.struct is None)
        for field in kind.fields
        if field.struct is not None or field.name.endswith("error_code")
    )


def error_codes(response: Struct) -> set[int]:
    found: set[int] = set()
    parts: list[Any] = [response]
    while parts:
        one = parts.pop()
        kind: type[Struct] = type(one)
        for name, is_code in _fields_with_codes(kind):
            value = getattr(one, name)
            if is_code:
                found.add(value)
            elif isinstance(value, list):
                parts += value
            elif value is not None:
                parts.append(value)
    return found
