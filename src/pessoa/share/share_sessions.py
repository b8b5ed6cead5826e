"""Share sessions (KIP-932): a member names its partitions once for each broker, and afterwards only what changes.

    epoch    ShareFetch                                             ShareAcknowledge
     0       begins a session; one that the member had is replaced  refused
     n       the next request of the session                        likewise
    -1       the last request: the session is closed, and what      likewise
             the member has acquired is released

A request of either API must carry the epoch that the session is at, and raises it by one (behind the greatest it is 1
again). The epoch moves before the request does its work: if the response is lost, the retry is refused, the member
begins a new session, and what it had acquired waits for its lock to end. A session that is *replaced* releases nothing
for the same reason: the member may still be at work.

A session belongs to the connection that it began on. When that closes the session is closed as well, unless the
member has begun another one on a new connection by then.

Memory is bounded by the number of sessions (`group.share.max.share.sessions`) and of the partitions in all of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from typing import NamedTuple

from pessoa.base.ids import Uuid
from pessoa.wire.errors import ErrorCode, Refusal

INITIAL_EPOCH = 0
FINAL_EPOCH = -1
_FIRST_EPOCH = 1
_MAX_EPOCH = (1 << 31) - 1
# Of all sessions together: nothing checks that partitions exist when a session begins.
MAX_PARTITIONS = 250_000

SharedPartition = tuple[Uuid, int]


class SessionKey(NamedTuple):
    group_id: str
    member_id: str


class ShareSession:
    __slots__ = ("connection_id", "epoch", "key", "partitions")

    def __init__(self, key: SessionKey, connection_id: int) -> None:
        self.key = key
        self.connection_id = connection_id
        # What the next request must carry.
        self.epoch = _FIRST_EPOCH
        # In the order in which the member named them.
        self.partitions: dict[SharedPartition, None] = {}

    def __repr__(self) -> str:
        return f"<ShareSession of {self.key.member_id} in {self.key.group_id}, epoch {self.epoch}>"

    def rotated(self, epoch: int) -> list[SharedPartition]:
        """Return the partitions, beginning with another one at every epoch, so that no partition is always the last."""
        partitions = list(self.partitions)
        start = epoch % len(partitions) if partitions else 0
        return partitions[start:] + partitions[:start]


class FetchPlan(NamedTuple):
    session: ShareSession
    # What to fetch from, in this order; nothing in the last request of a session.
    partitions: list[SharedPartition]
    # Partitions that the request has added: the response includes them even if they have no records.
    added: frozenset[SharedPartition]
    is_closed: bool


class ShareSessions:
    """The share sessions of a broker."""

    def __init__(self, limit: int, partition_limit: int = MAX_PARTITIONS) -> None:
        self.limit = limit
        self._partition_limit = partition_limit
        self._partition_count = 0
        self._sessions: dict[SessionKey, ShareSession] = {}
        self._by_connection: dict[int, dict[SessionKey, None]] = {}
        self._count_by_group: Counter[str] = Counter()

    def __repr__(self) -> str:
        return f"<ShareSessions: {len(self._sessions)} of {self.limit}, {self._partition_count} partitions>"

    def __len__(self) -> int:
        return len(self._sessions)

    def get(self, key: SessionKey) -> ShareSession | None:
        return self._sessions.get(key)

    def has_group(self, group_id: str) -> bool:
        """Return whether the group has a session on this broker. Without one its share partitions can be dropped."""
        return group_id in self._count_by_group

    def plan_fetch(
        self,
        key: SessionKey,
        connection_id: int,
        epoch: int,
        wanted: Collection[SharedPartition],
        forgotten: Collection[SharedPartition],
        *,
        has_acknowledgements: bool,
    ) -> FetchPlan:
        """Begin, continue or close the session of a ShareFetch, and return the partitions to fetch from. Raises
        `Refusal`."""
        if epoch == INITIAL_EPOCH:
            if has_acknowledgements:
                raise Refusal(ErrorCode.INVALID_REQUEST, "The first request of a session acknowledges nothing.")
            return self._begin(key, connection_id, wanted)
        session = self._advance(key, epoch)
        if epoch == FINAL_EPOCH:
            return FetchPlan(session, [], frozenset(), is_closed=True)
        added = frozenset(wanted).difference(session.partitions)
        self._check_room(len(added))
        before = len(session.partitions)
        for partition in wanted:
            session.partitions[partition] = None
        for partition in forgotten:
            session.partitions.pop(partition, None)
        self._partition_count += len(session.partitions) - before
        return FetchPlan(session, session.rotated(epoch), added, is_closed=False)

    def plan_acknowledge(self, key: SessionKey, epoch: int) -> ShareSession:
        """Continue or close the session of a ShareAcknowledge, and return it. Raises `Refusal`."""
        if epoch == INITIAL_EPOCH:
            raise Refusal(ErrorCode.INVALID_SHARE_SESSION_EPOCH)
        return self._advance(key, epoch)

    def disconnect(self, connection_id: int) -> list[ShareSession]:
        """Close and return the sessions of a connection that has closed."""
        return [self._remove(key) for key in list(self._by_connection.get(connection_id, ()))]

    def close_all(self) -> list[ShareSession]:
        """Close and return every session: share groups were switched off."""
        return [self._remove(key) for key in list(self._sessions)]

    def _begin(self, key: SessionKey, connection_id: int, wanted: Collection[SharedPartition]) -> FetchPlan:
        session = ShareSession(key, connection_id)
        session.partitions = dict.fromkeys(wanted)
        before = self._sessions.get(key)
        if before is None and len(self._sessions) >= self.limit:
            raise Refusal(ErrorCode.SHARE_SESSION_LIMIT_REACHED)
        self._check_room(len(session.partitions) - (0 if before is None else len(before.partitions)))
        # Only when the new session is sure to begin: without a session the records of the member would not be released.
        if before is not None:
            self._remove(key)
        self._sessions[key] = session
        self._by_connection.setdefault(connection_id, {})[key] = None
        self._count_by_group[key.group_id] += 1
        self._partition_count += len(session.partitions)
        return FetchPlan(session, session.rotated(INITIAL_EPOCH), frozenset(session.partitions), is_closed=False)

    def _advance(self, key: SessionKey, epoch: int) -> ShareSession:
        session = self._sessions.get(key)
        if session is None:
            raise Refusal(ErrorCode.SHARE_SESSION_NOT_FOUND)
        if epoch == FINAL_EPOCH:
            return self._remove(key)
        if epoch != session.epoch:
            raise Refusal(ErrorCode.INVALID_SHARE_SESSION_EPOCH)
        session.epoch = _FIRST_EPOCH if epoch == _MAX_EPOCH else epoch + 1
        return session

    def _check_room(self, count: int) -> None:
        if self._partition_count + count > self._partition_limit:
            raise Refusal(ErrorCode.SHARE_SESSION_LIMIT_REACHED)

    def _remove(self, key: SessionKey) -> ShareSession:
        session = self._sessions.pop(key)
        self._partition_count -= len(session.partitions)
        keys = self._by_connection[session.connection_id]
        del keys[key]
        if not keys:
            del self._by_connection[session.connection_id]
        self._count_by_group[key.group_id] -= 1
        if not self._count_by_group[key.group_id]:
            del self._count_by_group[key.group_id]
        return session
