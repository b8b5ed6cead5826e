"""The requests and replies between the members of a quorum, without their encoding.

Each request has one reply, and every reply names the leader and the epoch that its sender knows: a node that gets a
reply with a higher epoch moves to that epoch, whatever it had asked.

`pessoa.quorum.translation` turns these into Kafka's requests and responses and back.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from pessoa.base.ids import ZERO_UUID, Uuid
from pessoa.wire.errors import ErrorCode

NO_NODE = -1


class ReplicaKey(NamedTuple):
    """A member: its id, and the id of the directory that its log is in. A lost disk makes another member (KIP-853).

    The directory is zero where none is known: in a quorum whose voters the configuration names.
    """

    id: int
    directory_id: Uuid = ZERO_UUID

    def matches(self, other: ReplicaKey) -> bool:
        """Return whether both can be the same member; a directory id that is not known matches any."""
        return self.id == other.id and (
            self.directory_id == other.directory_id or ZERO_UUID in (self.directory_id, other.directory_id)
        )


class OffsetAndEpoch(NamedTuple):
    """An end offset, and the epoch of the last record before it. It also names a snapshot."""

    offset: int
    epoch: int


class ElectionState(NamedTuple):
    """The election state that a member must store durably. Within one epoch there is at most one leader, and at most
    one vote."""

    epoch: int = 0
    leader_id: int = NO_NODE
    voted: ReplicaKey | None = None


# Requests.


class Vote(NamedTuple):
    """A vote request to elect the sender in `epoch`; with `pre_vote` it asks whether the peer would elect it in an
    epoch after `epoch`."""

    epoch: int
    candidate: ReplicaKey
    last_epoch: int
    log_end_offset: int
    pre_vote: bool
    # The voter to which it is sent, as the sender knows it.
    voter: ReplicaKey


class BeginEpoch(NamedTuple):
    """The BeginQuorumEpoch request: the sender leads `epoch`."""

    epoch: int
    leader_id: int
    voter: ReplicaKey


class EndEpoch(NamedTuple):
    """The EndQuorumEpoch request: the sender led `epoch` and resigns. The successors are in the order in which they
    should become candidates."""

    epoch: int
    leader_id: int
    successors: tuple[ReplicaKey, ...]


class Fetch(NamedTuple):
    """A fetch of the records from `offset` on. From a voter it also says that everything before is on its disk."""

    epoch: int
    replica: ReplicaKey
    offset: int
    last_epoch: int
    # What the asker knows to be committed; the answer need not wait if there is more (KIP-1166).
    high_watermark: int


# Answers.


class VoteReply(NamedTuple):
    error: ErrorCode
    epoch: int
    leader_id: int
    granted: bool = False


class EpochReply(NamedTuple):
    """The response to BeginEpoch and EndEpoch."""

    error: ErrorCode
    epoch: int
    leader_id: int


class FetchReply(NamedTuple):
    """The response to a fetch: records, or why there are none. The logs diverge at `diverging`, or the log starts after
    the offset and only a snapshot has it."""

    error: ErrorCode
    epoch: int
    leader_id: int
    high_watermark: int = -1
    diverging: OffsetAndEpoch | None = None
    snapshot: OffsetAndEpoch | None = None
    records: memoryview | None = None

    @property
    def is_readable(self) -> bool:
        """Whether the log of the replica that fetched is a prefix of the leader's, so that it can append the
        records."""
        return self.error is ErrorCode.NONE and self.diverging is None and self.snapshot is None


class Unanswered(Enum):
    """Why a request has no response."""

    # Refused, or the connection has broken: the node is likely to be gone.
    GONE = "gone"
    # The time is up, which says as much of the way as of the peer.
    LATE = "late"


Request = Vote | BeginEpoch | EndEpoch | Fetch
Reply = VoteReply | EpochReply | FetchReply
