"""What a leader knows of the others: how far their logs reach, and when they were last heard of.

    high watermark      the highest offset that the logs of a majority reach, on disk; once it has passed the start of
                        the leader's own epoch
    last contact        the latest time by which a majority (the leader among them) was heard of

A replica that fetches from an offset has everything before it. Voters count; observers are only remembered, so that
they can be described, and so that one which has caught up may become a voter.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pessoa.raft.messages import ReplicaKey

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pessoa.raft.voters import VoterSet

UNKNOWN = -1
# An observer that has not fetched for so long is forgotten, as in Kafka.
OBSERVER_SESSION_MS = 300_000
# A fetch may name any replica id, so only the observers that fetched last are remembered.
MAX_OBSERVERS = 1_000


class ReplicaProgress:
    __slots__ = ("_leader_end_at_last_fetch", "end_offset", "key", "last_caught_up_ms", "last_fetch_ms")

    def __init__(self, key: ReplicaKey) -> None:
        self.key = key
        self.end_offset = UNKNOWN
        self.last_fetch_ms = UNKNOWN
        self.last_caught_up_ms = UNKNOWN
        # Where the leader's log ended when the replica fetched last.
        self._leader_end_at_last_fetch = UNKNOWN

    def note_fetch(self, offset: int, leader_end_offset: int, now_ms: int) -> None:
        # KIP-836: a replica is caught up if it now has all that the leader had at the replica's previous fetch.
        if offset >= leader_end_offset:
            self.last_caught_up_ms = max(self.last_caught_up_ms, now_ms)
        elif self._leader_end_at_last_fetch != UNKNOWN and offset >= self._leader_end_at_last_fetch:
            self.last_caught_up_ms = max(self.last_caught_up_ms, self.last_fetch_ms)
        self.end_offset = offset
        self.last_fetch_ms = max(self.last_fetch_ms, now_ms)
        self._leader_end_at_last_fetch = leader_end_offset


class Progress:
    """The replicas that fetch from a leader, by id. `since_ms` is when it became the leader: for a replica that has not
    fetched, the time since its last fetch counts from there."""

    def __init__(self, own: ReplicaKey, epoch_start_offset: int, since_ms: int) -> None:
        self.own = own
        self.epoch_start_offset = epoch_start_offset
        self.since_ms = since_ms
        self.replicas: dict[int, ReplicaProgress] = {}

    def __repr__(self) -> str:
        return f"<Progress { ({one.key.id: one.end_offset for one in self.replicas.values()}) }>"

    def note_fetch(self, key: ReplicaKey, offset: int, leader_end_offset: int, now_ms: int) -> None:
        known = self.replicas.get(key.id)
        if known is None or not known.key.matches(key):
            # With another directory it is another replica.
            known = self.replicas[key.id] = ReplicaProgress(key)
        known.note_fetch(offset, leader_end_offset, now_ms)

    def forget_observers(self, voters: VoterSet) -> None:
        """Remove the observers whose last fetch is the longest ago, where more than `MAX_OBSERVERS` are known."""
        if len(self.replicas) <= MAX_OBSERVERS + len(voters):
            return
        observers = [one for one in self.replicas.values() if not voters.has(one.key)]
        observers.sort(key=lambda one: one.last_fetch_ms)
        # Half of them, so that this is rare.
        for one in observers[: MAX_OBSERVERS // 2]:
            del self.replicas[one.key.id]

    def end_offset_of(self, key: ReplicaKey) -> int:
        known = self.replicas.get(key.id)
        return UNKNOWN if known is None or not known.key.matches(key) else known.end_offset

    def last_fetch_of(self, key: ReplicaKey) -> int:
        known = self.replicas.get(key.id)
        return UNKNOWN if known is None or not known.key.matches(key) else known.last_fetch_ms

    def committed(self, voters: VoterSet, own_durable_end_offset: int) -> int:
        """Return the highest offset that a majority of the voters has reached; -1 if that is not beyond the start of
        this epoch."""
        ends = sorted(
            (own_durable_end_offset if voter.key.matches(self.own) else self.end_offset_of(voter.key))
            for voter in voters
        )
        # The highest that at least a majority reaches.
        reached = ends[len(ends) - voters.majority] if ends else UNKNOWN
        # An epoch's own record seals those before it: by count alone, they could still be replaced by a leader that
        # does not have them.
        return reached if reached > self.epoch_start_offset else UNKNOWN

    def last_contact_ms(self, voters: VoterSet) -> int | None:
        """Return the latest time since which a majority of the voters has fetched; None if the leader is a majority by
        itself."""
        needed = voters.majority - (1 if voters.has(self.own) else 0)
        if needed == 0:
            return None
        contacts = sorted(
            (max(self.since_ms, self.last_fetch_of(voter.key)) for voter in voters if not voter.key.matches(self.own)),
            reverse=True,
        )
        return contacts[needed - 1]

    def successors(self, voters: VoterSet) -> tuple[ReplicaKey, ...]:
        """Return the other voters, those with the longest logs first."""
        others = [voter.key for voter in voters if not voter.key.matches(self.own)]
        return tuple(sorted(others, key=lambda key: (-self.end_offset_of(key), key.id)))

    def observers(self, voters: VoterSet, now_ms: int) -> Iterable[ReplicaProgress]:
        return [
            one
            for one in self.replicas.values()
            if not voters.has(one.key) and now_ms - one.last_fetch_ms < OBSERVER_SESSION_MS
        ]
