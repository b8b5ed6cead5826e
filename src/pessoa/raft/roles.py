"""What a member of the quorum can be, and what it has to remember while it is that.

                     silence                 a majority would           a majority has voted
     ┌─ Unattached ───────────▶ Prospective ──────────────▶ Candidate ───────────────────▶ Leader ─┐
     │      ▲   ▲  ▲               │   ▲                       │ nobody won: ask again             │ resigns
     │      │   │  └── no leader ──┘   └───────────────────────┘                                   ▼
     │      │   └─────────────────────── its epoch is over, the next one begins ──────────────  Resigned
     │      │ a higher epoch, from any role
     ▼      │                     silence (a voter)
   Follower ┴──────────────────────────────────▶ Prospective, and back if the others still hear the leader

A Prospective asks for pre-votes in the epoch that it is in; only a Candidate begins a new one. An observer is
Unattached or a Follower, and never more.

Requests that must reach somebody are repeated: `Repeated` knows when each is due. `NEVER` is while one is on its way.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from pessoa.raft.messages import Fetch, ReplicaKey
from pessoa.raft.progress import Progress

NEVER = (1 << 63) - 1


class Repeated:
    """To whom a request still has to be sent, and when."""

    def __init__(self, now_ms: int, *ids: int) -> None:
        self.due_ms: dict[int, int] = dict.fromkeys(ids, now_ms)

    def take_due(self, now_ms: int) -> list[int]:
        """Those to send to now; they are on their way then."""
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


@dataclass(slots=True)
class Fetching:
    """One fetch at a time: when the next is due, or the one that is on its way."""

    due_ms: int
    in_flight: Fetch | None = None


@dataclass(slots=True)
class Unattached:
    """Knows an epoch, and nobody who leads it."""

    # NEVER for an observer, who just goes on asking around.
    election_ms: int
    fetching: Fetching | None = None


@dataclass(slots=True)
class Prospective:
    election_ms: int
    requests: Repeated
    granted: set[int] = field(default_factory=set)
    rejected: set[int] = field(default_factory=set)


@dataclass(slots=True)
class Candidate:
    # When the election counts as lost.
    election_ms: int
    requests: Repeated
    granted: set[int] = field(default_factory=set)
    rejected: set[int] = field(default_factory=set)


@dataclass(slots=True)
class Follower:
    # When the leader counts as gone.
    silence_ms: int
    fetching: Fetching
    # Whether there is reason to believe that the leader is well: it has answered, and the last fetch did not fail.
    trusts_leader: bool = False
    # Whether it has just asked the others, and they still hear the leader.
    is_patient: bool = False
    # How far the leader has said that its log is committed.
    leader_high_watermark: int = -1


@dataclass(slots=True)
class Leader:
    progress: Progress
    requests: Repeated


@dataclass(slots=True)
class Resigned:
    over_ms: int
    requests: Repeated
    successors: tuple[ReplicaKey, ...]


Role = Unattached | Prospective | Candidate | Follower | Leader | Resigned
