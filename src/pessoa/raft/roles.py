"""What a member of the quorum can be, and what it has to remember while it is that.

                     silence                 a majority would           a majority has voted
     ┌─ Unattached ───────────▶ Prospective ──────────────▶ Candidate ───────────────────▶ Leader ─┐
     │      ▲   ▲  ▲               │   ▲                       │ no one won: ask again             │ resigns
     │      │   │  └── no leader ──┘   └───────────────────────┘                                   ▼
     │      │   └─────────────────────── its epoch is over, the next one begins ──────────────  Resigned
     │      │ a higher epoch, from any role
     ▼      │                     silence (a voter)
   Follower ┴──────────────────────────────────▶ Prospective, and back if the others still hear the leader

A Prospective asks for pre-votes in the epoch that it is in; only a Candidate begins a new one. An observer is
Unattached or a Follower, and never more.

Requests that must reach a node are repeated: `Repeated` knows when each is due. `NEVER` is while one is on its way.
"""

from __future__ import annotations

from pessoa.raft.messages import Fetch, ReplicaKey
from pessoa.raft.progress import Progress

NEVER = (1 << 63) - 1
# Before every time of a clock that begins with 0.
AT_ONCE = 0


class Repeated:
    """The voters to which a request still has to be sent, each with the time at which it is due."""

    def __init__(self, now_ms: int, *ids: int) -> None:
        self.due_ms: dict[int, int] = dict.fromkeys(ids, now_ms)

    def take_due(self, now_ms: int) -> list[int]:
        """Return the voters to which the request is due; it is in flight to them then, and not due before `again`."""
        due = [node_id for node_id, at_ms in self.due_ms.items() if at_ms <= now_ms]
        for node_id in due:
            self.due_ms[node_id] = NEVER
        return due

    def again(self, node_id: int, at_ms: int) -> None:
        if node_id in self.due_ms:
            self.due_ms[node_id] = at_ms

    def done(self, node_id: int) -> None:
        self.due_ms.pop(node_id, None)

    @property
    def deadline_ms(self) -> int:
        return min(self.due_ms.values(), default=NEVER)


# Written out: dataclasses would make the start of every broker some milliseconds longer.


class Fetching:
    """The fetches of a member, one at a time: when the next one is due, or the one in flight."""

    __slots__ = ("due_ms", "in_flight")

    def __init__(self, due_ms: int) -> None:
        self.due_ms = due_ms
        self.in_flight: Fetch | None = None

    @property
    def deadline_ms(self) -> int:
        """When a fetch must be sent: never while one is in flight, so that `tick` leaves nothing due."""
        return self.due_ms if self.in_flight is None else NEVER


class Unattached:
    """Knows an epoch, but no leader of it."""

    __slots__ = __match_args__ = ("election_ms", "fetching")

    def __init__(self, election_ms: int, fetching: Fetching | None = None) -> None:
        # NEVER for an observer, which only fetches until it finds the leader.
        self.election_ms = election_ms
        self.fetching = fetching


class Prospective:
    __slots__ = __match_args__ = ("election_ms", "requests", "granted", "rejected")

    def __init__(self, election_ms: int, requests: Repeated) -> None:
        self.election_ms = election_ms
        self.requests = requests
        self.granted: set[int] = set()
        self.rejected: set[int] = set()


class Candidate:
    __slots__ = __match_args__ = ("election_ms", "requests", "granted", "rejected")

    def __init__(self, election_ms: int, requests: Repeated) -> None:
        # When the election counts as lost.
        self.election_ms = election_ms
        self.requests = requests
        self.granted: set[int] = set()
        self.rejected: set[int] = set()


class Follower:
    __slots__ = __match_args__ = ("silence_ms", "fetching", "trusts_leader", "is_patient", "leader_high_watermark")

    def __init__(self, silence_ms: int, fetching: Fetching, *, is_patient: bool = False) -> None:
        # When the leader counts as gone.
        self.silence_ms = silence_ms
        self.fetching = fetching
        # Whether there is reason to believe that the leader is well: it has answered, and the connection still stands.
        self.trusts_leader = False
        # Whether it has just lost a pre-vote, because the other voters still reach the leader.
        self.is_patient = is_patient
        # How far the leader has said that its log is committed.
        self.leader_high_watermark = -1


class Leader:
    __slots__ = __match_args__ = ("progress", "requests")

    def __init__(self, progress: Progress, requests: Repeated) -> None:
        self.progress = progress
        self.requests = requests


class Resigned:
    __slots__ = __match_args__ = ("over_ms", "requests", "successors")

    def __init__(self, over_ms: int, requests: Repeated, successors: tuple[ReplicaKey, ...]) -> None:
        self.over_ms = over_ms
        self.requests = requests
        self.successors = successors


Role = Unattached | Prospective | Candidate | Follower | Leader | Resigned
