"""Fetch sessions (KIP-227): a consumer names its partitions once, and afterwards only what changes.

    epoch  -1, id 0       a fetch outside any session
           -1, id n       the same, and session n ends
            0             a full fetch that begins a session (an old one of that id ends)
            n > 0         the next fetch of the session: carries changes, and answers carry changes

The epochs count up by one, so both sides notice when an answer was lost. An incremental answer leaves out partitions
that have no news: no records, no error, and offsets that the consumer knows.

Memory is bounded by the number of sessions (`max.incremental.fetch.session.cache.slots`) and of the partitions that
consumers have in them. A new session takes the place of one that was idle for long enough, or is not granted: the
consumer then goes on with full fetches. Followers come first: the cluster lives on their fetches, so a follower may
take the place of any consumer. The caller of `FetchSessions.plan` has checked that a follower is one; a fetch of any
other gets `plan_without_session`.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, NamedTuple

from pessoa.base.ids import Uuid
from pessoa.wire.api.fetch import FIRST_FETCH_WITH_TOPIC_IDS
from pessoa.wire.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pessoa.broker.partition_fetch import Found
    from pessoa.wire.api.fetch import FetchPartition, FetchRequest, PartitionData

CONSUMER = -1
NO_SESSION = 0
INITIAL_EPOCH = 0
FINAL_EPOCH = -1
_MAX_EPOCH = (1 << 31) - 1

DEFAULT_SLOTS = 1000
# min.incremental.fetch.session.eviction.ms
DEFAULT_EVICTION_MS = 2 * 60 * 1000
# Of all consumers together: some 500 bytes each, and nothing checks that they exist.
MAX_PARTITIONS = 250_000


class Wanted(NamedTuple):
    """One partition of a fetch: the topic by name or by id, and the offset and limits of the fetch."""

    topic: str
    topic_id: Uuid
    request: FetchPartition


_Key = tuple[str, Uuid, int]


class SessionPartition:
    """A partition of a fetch session: what the consumer asked for, and what the last response said of it."""

    __slots__ = ("high_watermark", "last_look", "log_start_offset", "wanted")

    def __init__(self, wanted: Wanted) -> None:
        self.wanted = wanted
        self.high_watermark = -1
        self.log_start_offset = -1
        # What the last fetch found for a follower that had everything: most partitions have not changed at the next
        # fetch. Only the handler uses it, and checks whether it still holds.
        self.last_look: Found | None = None

    def is_news(self, data: PartitionData, record_bytes: int) -> bool:
        """Return whether the response must have the partition, and remember what it then says."""
        is_news = (
            record_bytes > 0
            or data.error_code != ErrorCode.NONE
            or data.high_watermark != self.high_watermark
            or data.log_start_offset != self.log_start_offset
            or data.preferred_read_replica >= 0
            or data.diverging_epoch is not None
        )
        # After an error the next response must carry the partition even if its offsets are the same. So it must for a
        # follower whose log diverges: it cannot use the high watermark before it has truncated its log.
        is_usable = data.error_code == ErrorCode.NONE and data.diverging_epoch is None
        self.high_watermark = data.high_watermark if is_usable else -1
        self.log_start_offset = data.log_start_offset
        return is_news


class FetchSession:
    __slots__ = ("epoch", "id", "partitions", "replica_id", "used_ms", "uses_topic_ids")

    def __init__(self, session_id: int, uses_topic_ids: bool, now_ms: int, replica_id: int = CONSUMER) -> None:
        self.id = session_id
        # The replica that fetches. The log end offset of one replica must never be taken for that of another.
        self.replica_id = replica_id
        self.epoch = INITIAL_EPOCH
        self.uses_topic_ids = uses_topic_ids
        self.used_ms = now_ms
        self.partitions: OrderedDict[_Key, SessionPartition] = OrderedDict()

    def __repr__(self) -> str:
        return f"<FetchSession {self.id} in epoch {self.epoch}: {len(self.partitions)} partitions>"

    @property
    def is_follower(self) -> bool:
        return self.replica_id != CONSUMER

    def want(self, request: FetchRequest) -> None:
        """Add the partitions of the fetch, and take over its offsets for those that are in the session."""
        partitions = self.partitions
        for topic in request.topics:
            name, topic_id = topic.topic, topic.topic_id
            for partition in topic.partitions:
                key = (name, topic_id, partition.partition)
                wanted = _new_tuple(Wanted, (name, topic_id, partition))
                known = partitions.get(key)
                if known is None:
                    partitions[key] = SessionPartition(wanted)
                else:
                    known.wanted = wanted

    def forget(self, request: FetchRequest) -> None:
        """Remove the partitions that an incremental fetch forgets, even if it also fetches them, as in Kafka."""
        for forgotten in request.forgotten_topics_data:
            for index in forgotten.partitions:
                self.partitions.pop((forgotten.topic, forgotten.topic_id, index), None)

    def wanted(self) -> list[Wanted]:
        return [known.wanted for known in self.partitions.values()]

    def is_news(self, wanted: Wanted, data: PartitionData, record_bytes: int) -> bool:
        key = (wanted.topic, wanted.topic_id, wanted.request.partition)
        known = self.partitions.get(key)
        if known is None:
            return True
        if record_bytes:
            # A partition with records goes to the end, so that a limited response reaches all partitions in turn.
            self.partitions.move_to_end(key)
        return known.is_news(data, record_bytes)


class FetchPlan(NamedTuple):
    """The partitions of a fetch request, and its session if it has one."""

    error: ErrorCode
    wanted: list[Wanted]
    session: FetchSession | None
    is_incremental: bool
    # Beside `wanted`, for the next fetch of a follower's session.
    known: list[SessionPartition] | None = None

    @property
    def session_id(self) -> int:
        return self.session.id if self.session is not None else NO_SESSION


class FetchSessions:
    def __init__(
        self,
        new_id: Callable[[], int],
        slots: int = DEFAULT_SLOTS,
        eviction_ms: int = DEFAULT_EVICTION_MS,
    ) -> None:
        """`new_id` returns random positive int32s: a session id is a secret of its consumer."""
        self._new_id = new_id
        self._slots = slots
        self._eviction_ms = eviction_ms
        # By last use, the longest idle first.
        self._sessions: OrderedDict[int, FetchSession] = OrderedDict()
        # In the sessions of consumers.
        self.partition_count = 0

    def __repr__(self) -> str:
        return f"<FetchSessions: {len(self._sessions)} of {self._slots}>"

    def __len__(self) -> int:
        return len(self._sessions)

    def plan(self, request: FetchRequest, version: int, now_ms: int, replica_id: int = CONSUMER) -> FetchPlan:
        uses_topic_ids = version >= FIRST_FETCH_WITH_TOPIC_IDS
        if request.session_epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            self._end(request.session_id)
            session = None
            if request.session_epoch == INITIAL_EPOCH:
                session = self._begin(request, uses_topic_ids, now_ms, replica_id)
            wanted = _without_repetitions(list(wanted_of(request))) if session is None else session.wanted()
            return FetchPlan(ErrorCode.NONE, wanted, session, is_incremental=False)
        session = self._sessions.get(request.session_id)
        if session is None or session.replica_id != replica_id:
            return _error_plan(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if session.epoch != request.session_epoch:
            return _error_plan(ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        if session.uses_topic_ids != uses_topic_ids:
            return _error_plan(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
        if not self._update(session, request, forgets=True):
            self._end(session.id)
            return _error_plan(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        session.epoch = 1 if session.epoch == _MAX_EPOCH else session.epoch + 1
        session.used_ms = now_ms
        self._sessions.move_to_end(session.id)
        known = list(session.partitions.values()) if session.is_follower else None
        return FetchPlan(ErrorCode.NONE, session.wanted(), session, is_incremental=True, known=known)

    def withhold(self, plan: FetchPlan) -> int:
        """Return the session id for a response without records of a throttled consumer (KIP-219). A new session does
        not begin with it: its consumer would know none of its partitions."""
        if plan.is_incremental or plan.session is None:
            return plan.session_id
        self._end(plan.session.id)
        return NO_SESSION

    def _begin(self, request: FetchRequest, uses_topic_ids: bool, now_ms: int, replica_id: int) -> FetchSession | None:
        if not request.topics or not self._make_room(now_ms, is_follower=replica_id != CONSUMER):
            return None
        session_id = self._new_id()
        while session_id in self._sessions:
            session_id = self._new_id()
        session = FetchSession(session_id, uses_topic_ids, now_ms, replica_id)
        session.epoch = 1
        self._sessions[session_id] = session
        # A session that begins has nothing to forget: as in Kafka, a full fetch that names such partitions reads them.
        if not self._update(session, request, forgets=False):
            self._end(session_id)
            return None
        return session

    def _update(self, session: FetchSession, request: FetchRequest, *, forgets: bool) -> bool:
        """Add the partitions of the fetch to the session; return False if there is no room, and the session must
        end."""
        before = len(session.partitions)
        session.want(request)
        if forgets:
            session.forget(request)
        if session.is_follower:
            return True
        added = len(session.partitions) - before
        self.partition_count += added
        return added <= 0 or self.partition_count <= MAX_PARTITIONS

    def _end(self, session_id: int) -> None:
        session = self._sessions.pop(session_id, None)
        if session is not None and not session.is_follower:
            self.partition_count -= len(session.partitions)

    def _make_room(self, now_ms: int, *, is_follower: bool) -> bool:
        if len(self._sessions) < self._slots:
            return True
        for session in self._sessions.values():
            is_idle = now_ms - session.used_ms >= self._eviction_ms
            if is_idle if session.is_follower == is_follower else is_follower:
                self._end(session.id)
                return True
            if not is_follower and not session.is_follower:
                # Those behind it were used later.
                break
        return False


_A_FEW = 64


def wanted_of(request: FetchRequest) -> Iterable[Wanted]:
    for topic in request.topics:
        name, topic_id = topic.topic, topic.topic_id
        for partition in topic.partitions:
            # Past the generated constructor, which is written in Python.
            yield _new_tuple(Wanted, (name, topic_id, partition))


def plan_without_session(request: FetchRequest) -> FetchPlan:
    """Return the plan of a fetch that may have no session: it begins, continues and ends none."""
    if request.session_epoch not in (INITIAL_EPOCH, FINAL_EPOCH):
        return _error_plan(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
    return FetchPlan(ErrorCode.NONE, _without_repetitions(list(wanted_of(request))), None, is_incremental=False)


def _without_repetitions(wanted: list[Wanted]) -> list[Wanted]:
    """Return each partition once, as in Kafka, even if the request names it twice: a small request must not get an
    enormous response. Requests of few partitions are not searched, which would cost more than it could save."""
    if len(wanted) <= _A_FEW:
        return wanted
    return list({(one.topic, one.topic_id, one.request.partition): one for one in wanted}.values())


_new_tuple = tuple.__new__


def _error_plan(error: ErrorCode) -> FetchPlan:
    return FetchPlan(error, [], None, is_incremental=False)
