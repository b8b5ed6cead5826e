"""The ISR and the high watermark of a partition, as its leader decides about them.

The leader learns how far a follower is from the follower's own fetches: one that asks for offset n has everything below
n. From that it decides two things, and both are decided here, without a clock and without a log.

**The high watermark** is the least log end offset of the replicas that count. They are chosen so that no change of the
ISR that is in flight to the controller can make the high watermark wrong (KIP-497):

    committed ISR    what the controller is known to have stored: these replicas may be elected
    maximal ISR      the committed one, and the replicas that an AlterPartition request adds: it may have succeeded

A replica whose removal is proposed stays in the maximal ISR until the controller has confirmed it, because until then
the replica may be elected. A follower that is caught up and may join at any moment counts too. And while the ISR is
smaller than `min.insync.replicas`, the high watermark does not move (KIP-966): what lies below it is then on at least
that many replicas, always.

**A change of the in-sync replicas** is proposed to the controller, one at a time for each partition:

    COMMITTED ── a follower has caught up, or lags ──▶ PENDING ── an answer, or newer metadata ──▶ COMMITTED

A follower joins when its log reaches the high watermark and the start of this leader's epoch; the second matters after
an election, when the watermark of the new leader may be behind that of the old one. Its broker must be alive: not
fenced, not shutting down, and registered with the broker epoch under which it fetched (KIP-841, KIP-903). It leaves
when it has not been caught up for `replica.lag.time.max.ms`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from pessoa.wire.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

UNKNOWN = -1
# Long before anything: a follower that has never been caught up.
_NEVER_MS = -(1 << 62)


class Follower:
    """The state of one follower, as the leader knows it. Times are monotonic."""

    __slots__ = (
        "broker_epoch",
        "broker_id",
        "caught_up_ms",
        "fetched_ms",
        "leader_end_at_fetch",
        "log_end_offset",
        "log_start_offset",
    )

    def __init__(self, broker_id: int) -> None:
        self.broker_id = broker_id
        self.broker_epoch = UNKNOWN
        self.log_end_offset = UNKNOWN
        self.log_start_offset = UNKNOWN
        # When it last was known to have everything that the leader had.
        self.caught_up_ms = _NEVER_MS
        # The last fetch: when it came, and where the log of the leader ended then.
        self.fetched_ms = _NEVER_MS
        self.leader_end_at_fetch = UNKNOWN

    def __repr__(self) -> str:
        return f"<Follower {self.broker_id}: offsets {self.log_start_offset}..{self.log_end_offset}>"

    def begin_epoch(self, now_ms: int, *, is_in_sync: bool) -> None:
        """Reset the follower at the start of a leader epoch. The lag of one in the ISR counts from now on.

        Its log end in the last epoch is forgotten, even if the leader is the same: another broker may have led in
        between without this one's noticing, and the follower may have truncated its log for that leader.
        """
        self.log_end_offset = self.log_start_offset = self.leader_end_at_fetch = UNKNOWN
        self.caught_up_ms = self.fetched_ms = now_ms if is_in_sync else _NEVER_MS

    def note_fetch(self, offset: int, log_start_offset: int, leader_end: int, broker_epoch: int, now_ms: int) -> None:
        """Note a fetch for `offset`, while the leader's log ended at `leader_end`.

        Under a steady load a follower is never at the very end. It is caught up all the same if it has now what the
        leader had at its last fetch: then it was caught up at that moment.
        """
        if offset >= leader_end:
            self.caught_up_ms = max(self.caught_up_ms, now_ms)
        elif self.leader_end_at_fetch != UNKNOWN and offset >= self.leader_end_at_fetch:
            self.caught_up_ms = max(self.caught_up_ms, self.fetched_ms)
        self.log_end_offset = offset
        self.log_start_offset = log_start_offset
        self.leader_end_at_fetch = leader_end
        self.fetched_ms = now_ms
        self.broker_epoch = broker_epoch

    def is_caught_up(self, leader_end: int, now_ms: int, lag_max_ms: int) -> bool:
        return self.log_end_offset == leader_end or now_ms - self.caught_up_ms <= lag_max_ms


class IsrChange(NamedTuple):
    """An ISR that is proposed to the controller, and the epochs of the state that it is meant for."""

    isr: tuple[int, ...]
    # Beside each of them: its broker epoch as the leader has seen it, -1 if it has not.
    broker_epochs: tuple[int, ...]
    leader_epoch: int
    partition_epoch: int


class IsrAnswer(NamedTuple):
    """The controller's answer to a change."""

    error: ErrorCode
    leader_epoch: int = UNKNOWN
    partition_epoch: int = UNKNOWN
    isr: tuple[int, ...] = ()


class Outcome(NamedTuple):
    """What an answer means: whether the ISR has changed, and whether the change must be sent again."""

    has_changed: bool
    try_again: bool


# The controller has not made the change, and may make it later: the committed ISR counts again.
_REFUSED = (ErrorCode.OPERATION_NOT_ATTEMPTED, ErrorCode.INELIGIBLE_REPLICA)
# The controller has newer state. Whether the change was made is not known until its metadata reaches this broker, so
# the maximal ISR keeps counting.
_OUTDATED = (
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.INVALID_UPDATE_VERSION,
    ErrorCode.INVALID_REQUEST,
    ErrorCode.NEW_LEADER_ELECTED,
)


class InSyncReplicas:
    """The in-sync replicas of one partition, while this broker leads it in one epoch after another.

    Invariant: the leader is in `isr`, and `isr` ⊆ `maximal` ⊆ the leader and its followers.
    """

    __slots__ = (
        "epoch_start_offset",
        "followers",
        "isr",
        "leader_epoch",
        "leader_id",
        "maximal",
        "partition_epoch",
        "pending",
    )

    def __init__(self, leader_id: int) -> None:
        self.leader_id = leader_id
        self.followers: dict[int, Follower] = {}
        self.leader_epoch = UNKNOWN
        self.partition_epoch = UNKNOWN
        # Where the log ended when this epoch began: below it stands what earlier leaders wrote.
        self.epoch_start_offset = UNKNOWN
        self.isr: tuple[int, ...] = ()
        self.maximal: tuple[int, ...] = ()
        self.pending: IsrChange | None = None

    def __repr__(self) -> str:
        pending = f", {list(self.pending.isr)} proposed" if self.pending is not None else ""
        return f"<InSyncReplicas {list(self.isr)} of {self.leader_id} and {list(self.followers.values())}{pending}>"

    # What the metadata says.

    def update(
        self,
        leader_epoch: int,
        partition_epoch: int,
        replicas: Iterable[int],
        isr: tuple[int, ...],
        log_end_offset: int,
        now_ms: int,
    ) -> None:
        """Take over the state that the controller has committed, which is never older than the known one."""
        assert (leader_epoch, partition_epoch) >= (self.leader_epoch, self.partition_epoch), f"{self!r} goes back"
        followers = {}
        for replica in replicas:
            if replica != self.leader_id:
                followers[replica] = self.followers.get(replica) or Follower(replica)
        self.followers = followers
        if leader_epoch > self.leader_epoch:
            self.leader_epoch = leader_epoch
            self.epoch_start_offset = log_end_offset
            for follower in followers.values():
                follower.begin_epoch(now_ms, is_in_sync=follower.broker_id in isr)
        self._commit(isr, partition_epoch)

    def _commit(self, isr: tuple[int, ...], partition_epoch: int) -> None:
        self.isr = self.maximal = isr
        self.partition_epoch = partition_epoch
        self.pending = None

    # The high watermark.

    def has_enough(self, min_insync_replicas: int) -> bool:
        """Whether the ISR has `min.insync.replicas` replicas, or all of a topic with fewer replicas than that."""
        return len(self.isr) >= min(min_insync_replicas, len(self.followers) + 1)

    def high_watermark(
        self,
        log_end_offset: int,
        own_offset: int,
        min_insync_replicas: int,
        now_ms: int,
        lag_max_ms: int,
        is_eligible: Callable[[Follower], bool],
    ) -> int:
        """Return the offset that the high watermark may be moved to; UNKNOWN if it must not move. `own_offset` is the
        offset that the leader counts for itself: its log end, or the recovery point where `flush.messages` requires
        records to be on the disk."""
        if not self.has_enough(min_insync_replicas):
            return UNKNOWN
        least = own_offset
        for follower in self.followers.values():
            if follower.log_end_offset < least and (
                follower.broker_id in self.maximal
                or (follower.is_caught_up(log_end_offset, now_ms, lag_max_ms) and is_eligible(follower))
            ):
                least = follower.log_end_offset
        return least

    def low_watermark(self, log_start_offset: int, is_alive: Callable[[int], bool]) -> int:
        """The offset below which no live replica has records (KIP-107); UNKNOWN while the log start offset of one is
        not known."""
        starts = (one.log_start_offset for one in self.followers.values() if is_alive(one.broker_id))
        return min(starts, default=log_start_offset) if self.followers else log_start_offset

    # Changes.

    def propose_joining(
        self, follower: Follower, high_watermark: int, leader_broker_epoch: int, is_eligible: Callable[[Follower], bool]
    ) -> IsrChange | None:
        """Propose to add a follower that has caught up, unless it is in the ISR or another change is in flight."""
        if (
            self.pending is not None
            or follower.broker_id in self.isr
            or follower.log_end_offset < max(high_watermark, self.epoch_start_offset)
            or not is_eligible(follower)
        ):
            return None
        return self._propose((*self.isr, follower.broker_id), leader_broker_epoch)

    def propose_leaving(
        self, log_end_offset: int, now_ms: int, lag_max_ms: int, leader_broker_epoch: int
    ) -> IsrChange | None:
        """Propose to remove the followers that have lagged for too long."""
        if self.pending is not None:
            return None
        staying = tuple(
            replica
            for replica in self.isr
            if replica == self.leader_id
            or (replica in self.followers and self.followers[replica].is_caught_up(log_end_offset, now_ms, lag_max_ms))
        )
        if len(staying) == len(self.isr):
            return None
        return self._propose(staying, leader_broker_epoch)

    def _propose(self, isr: tuple[int, ...], leader_broker_epoch: int) -> IsrChange:
        epochs = tuple(
            leader_broker_epoch if replica == self.leader_id else self.followers[replica].broker_epoch
            for replica in isr
        )
        self.pending = IsrChange(isr, epochs, self.leader_epoch, self.partition_epoch)
        self.maximal = (*self.isr, *(replica for replica in isr if replica not in self.isr))
        return self.pending

    def apply_answer(self, change: IsrChange, answer: IsrAnswer) -> Outcome:
        """Take over the controller's answer to a change, unless metadata that came since has made it void."""
        if self.pending is not change:
            return Outcome(has_changed=False, try_again=False)
        if answer.error in _REFUSED:
            self._commit(self.isr, self.partition_epoch)
            return Outcome(has_changed=True, try_again=False)
        if answer.error in _OUTDATED:
            return Outcome(has_changed=False, try_again=False)
        if answer.error is not ErrorCode.NONE:
            return Outcome(has_changed=False, try_again=True)
        if answer.leader_epoch != self.leader_epoch or answer.partition_epoch < self.partition_epoch:
            # Our metadata will catch up with the controller's.
            return Outcome(has_changed=False, try_again=False)
        self._commit(answer.isr, answer.partition_epoch)
        return Outcome(has_changed=True, try_again=False)
