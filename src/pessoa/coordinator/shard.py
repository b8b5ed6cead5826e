"""What a shard is: the state of one partition of an internal topic, and what it decides.

A shard is pure. It has a method for every request, which looks at its state, changes nothing that is stored, and
returns an `Output`: the records that shall be written and the replies that may be sent once they are. `replay` alone
changes what is stored, when the records are written and when they are loaded. So the runtime can do things in the one
safe order

    decide ──► append ──► replay ──► high watermark passes ──► replies, `on_outcome`
                  └─ fails: nothing was replayed, so nothing is taken back; the replies become errors

and a second request never sees what the log refused.

**Soft state.** Some of what a shard knows stands in no record: who waits for a rebalance, timers, the members of a
classic group between two generations. It changes in these methods, and `Output.on_outcome` is called with the outcome
of the append, to go on or to step back. An output whose records only write down what the soft state has become says
`replays=False`; `applied` is then called in place of the replay.

**Replies.** A request comes with a token, an int that means something only to the runtime. Its reply may stand in the
output of a later request, or of a timer: a JoinGroup is answered when the last member has joined. A reply is a
message, or a `Refusal` that the service turns into the error response of the API.

**Time** comes as `now_ms`, by the wall clock. `next_deadline_ms` is the next deadline; the runtime then calls
`expire` until the next one lies ahead. When the wall clock jumps, `shift_deadlines` moves what is measured from now.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from pessoa.base.ids import Uuid
from pessoa.wire.errors import ErrorCode, Refusal
from pessoa.wire.schema import Message


class CoordinatorRecord(NamedTuple):
    """A record of an internal topic. A `value` of None is a tombstone."""

    key: Message
    value: Message | None
    value_version: int = 0


def public_error(code: ErrorCode) -> ErrorCode:
    """Return the error that a client gets when the coordinator's own log refuses an append or a read."""
    return _PUBLIC_ERRORS.get(code, code)


_PUBLIC_ERRORS = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.INVALID_FETCH_SIZE: ErrorCode.UNKNOWN_SERVER_ERROR,
    # Verifying a transaction may fail so, and old producers do not expect it; this makes them try again right here.
    ErrorCode.NETWORK_EXCEPTION: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
}


Reply = Message | Refusal


class Producer(NamedTuple):
    """The producer id and epoch of the transaction that the records belong to."""

    id: int
    epoch: int


@dataclass(slots=True)
class Output:
    records: list[CoordinatorRecord] = field(default_factory=list)
    replies: list[tuple[int, Reply]] = field(default_factory=list)
    # False: the records say what soft state holds, and are not replayed while it lives.
    replays: bool = True
    # Instead of a replay, after the append.
    applied: Callable[[], None] | None = None
    # Called once: with NONE when the records are committed, or with the reason why they will not be.
    on_outcome: Callable[[ErrorCode, int], Output] | None = None
    producer: Producer | None = None
    # False: the records may be written in pieces, and some of them never; those of an expiry can be many.
    is_atomic: bool = True
    # For an answer without records: it must not be older than what another coordinator has answered (`runtime`).
    is_confirmed: bool = False
    # What an operator wants to read about it.
    notes: list[str] = field(default_factory=list)

    @classmethod
    def reply(cls, token: int, message: Reply) -> Output:
        return cls(replies=[(token, message)])


class Partition(Protocol):
    @property
    def replicas(self) -> tuple[int, ...]: ...


class Topic(Protocol):
    @property
    def name(self) -> str: ...
    @property
    def id(self) -> Uuid: ...
    @property
    def partitions(self) -> Mapping[int, Partition]: ...


class Topics(Protocol):
    @property
    def by_name(self) -> Mapping[str, Topic]: ...
    @property
    def by_id(self) -> Mapping[Uuid, Topic]: ...


class Broker(Protocol):
    @property
    def rack(self) -> str | None: ...


class Cluster(Protocol):
    @property
    def brokers(self) -> Mapping[int, Broker]: ...


class Configs(Protocol):
    def of(self, resource_type: int, name: str) -> Mapping[str, str]: ...


class Image(Protocol):
    """The part of the metadata image that coordinators read."""

    @property
    def offset(self) -> int: ...
    @property
    def topics(self) -> Topics: ...
    @property
    def cluster(self) -> Cluster: ...
    @property
    def configs(self) -> Configs: ...


class Delta(Protocol):
    """The changes from the image `old` to the new one."""

    @property
    def old(self) -> Image: ...
    @property
    def changed_topics(self) -> Collection[Uuid]:
        """The ids of topics that are new, or got partitions or other replicas."""

    @property
    def deleted_topics(self) -> Collection[Uuid]: ...


class Shard(Protocol):
    def replay(
        self, key: Message, value: Message | None, offset: int, producer_id: int, producer_epoch: int
    ) -> None: ...

    def replay_end_transaction(self, producer_id: int, producer_epoch: int, committed: bool) -> None: ...

    def next_deadline_ms(self) -> int | None: ...

    def expire(self, now_ms: int) -> Output:
        """Run the action of the earliest timer, if its deadline has passed."""

    def shift_deadlines(self, by_ms: int) -> None: ...

    def on_loaded(self, image: Image, now_ms: int) -> Output: ...

    def on_image(self, image: Image, delta: Delta, now_ms: int) -> Output: ...
