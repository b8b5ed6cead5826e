"""A simulated quorum with faults: raft machines, a network that loses and repeats messages, disks that lose writes.

Everything follows from one seed and uses simulated time. After every event the world checks the invariants:

    one leader      in an epoch
    epochs          of a member never go back, also over crashes
    committed       a record that one member knows as committed is the same on every member, for ever
    high watermark  of a leader: a majority has everything below it on its disks
    completeness    a new leader has all records that were ever committed

The log is a list, and its records are pickled into the bytes that a fetch carries. A record is a number, or the voters.
"""

from __future__ import annotations

import heapq
import pickle
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from random import Random

from pessoa.base.ids import Uuid
from pessoa.raft.machine import Raft
from pessoa.raft.messages import (
    BeginEpoch,
    ElectionState,
    EndEpoch,
    Fetch,
    FetchReply,
    OffsetAndEpoch,
    ReplicaKey,
    Reply,
    Request,
    Unanswered,
    Vote,
)
from pessoa.raft.ready import Timeouts
from pessoa.raft.roles import NEVER, Leader
from pessoa.raft.voters import Voter, VoterHistory, VoterSet

TIMEOUTS = Timeouts(election_timeout_ms=100, election_backoff_max_ms=100, fetch_timeout_ms=200, retry_backoff_ms=10)
FETCH_WAIT_MS = 50
REQUEST_TIMEOUT_MS = 150
Entry = tuple[int, object]


class ListLog:
    """`entries` from offset 0 on: (epoch, value)."""

    def __init__(self, entries: list[Entry]) -> None:
        self.entries = entries
        self.durable_end_offset = len(entries)
        self.log_start_offset = 0
        self.latest_snapshot: OffsetAndEpoch | None = None
        self.history = VoterHistory(VoterSet())

    def is_leaving(self, key: ReplicaKey, high_watermark: int) -> bool:
        return self.history.is_leaving(key, high_watermark)

    @property
    def log_end_offset(self) -> int:
        return len(self.entries)

    @property
    def last_epoch(self) -> int:
        return self.entries[-1][0] if self.entries else 0

    def end_of_epoch(self, epoch: int) -> OffsetAndEpoch:
        for offset in range(len(self.entries), 0, -1):
            if self.entries[offset - 1][0] <= epoch:
                return OffsetAndEpoch(offset, self.entries[offset - 1][0])
        return OffsetAndEpoch(0, 0)


@dataclass(slots=True)
class Disk:
    """The state of a node that survives a crash."""

    state: ElectionState | None = None
    entries: list[Entry] = field(default_factory=list)


class Member:
    def __init__(self, world: World, key: ReplicaKey, static: VoterSet) -> None:
        self.world = world
        self.key = key
        self.static = static
        self.disk = Disk()
        self.highest_epoch = -1
        self.life = 0
        self.is_up = False
        self.raft: Raft
        self.log: ListLog
        self.history: VoterHistory
        self.applied = 0
        self.is_flushing = False

    def __repr__(self) -> str:
        return f"<Member {self.key.id}: {self.raft!r} log {len(self.log.entries)}>"

    def boot(self) -> None:
        self.life += 1
        self.is_up = True
        self.is_flushing = False
        self.applied = 0
        self.log = ListLog(list(self.disk.entries))
        self.history = self.log.history = VoterHistory(self.static)
        for offset, (_, value) in enumerate(self.log.entries):
            if isinstance(value, VoterSet):
                self.history.add_voters(offset, value)
        bootstrap = tuple(one.key.id for one in self.world.members if one is not self)
        self.raft = Raft(self.key, self.history.voters, self.log, TIMEOUTS, self.world.random.randrange, bootstrap)
        self.raft.start(self.world.now_ms, self.disk.state)
        self.obey()

    def crash(self, keeps: int) -> None:
        """Crash with a power loss, after which the disk has `keeps` of the entries that were not synced."""
        self.is_up = False
        self.life += 1
        for give_up in self.world.waiting.pop(self.key.id, []):
            self.world.after(self.world.random.randrange(1, 5), give_up)
        common = 0
        while (
            common < min(len(self.disk.entries), len(self.log.entries))
            and self.disk.entries[common] == self.log.entries[common]
        ):
            common += 1
        if self.log.durable_end_offset >= len(self.disk.entries) or common < self.log.durable_end_offset:
            self.disk.entries = self.log.entries[: self.log.durable_end_offset + keeps]

    def wipe(self, directory_id: Uuid) -> None:
        """Replace the disk by an empty one, which makes this another member with the same id."""
        self.world.wiped.append(self.key)
        self.key = ReplicaKey(self.key.id, directory_id)
        self.disk = Disk()
        self.highest_epoch = -1

    # Carrying out what the machine's Ready says.

    def obey(self) -> None:
        while True:
            ready = self.raft.take_ready()
            if ready.persist is not None:
                self.world.persist(self, ready.persist)
            if ready.truncate_to is not None:
                del self.log.entries[ready.truncate_to :]
                self.log.durable_end_offset = min(self.log.durable_end_offset, ready.truncate_to)
                self.history.truncate_to(ready.truncate_to)
                # Synced at once, as the real log does it below the recovery point.
                self.disk.entries = self.log.entries[: self.log.durable_end_offset]
                self.raft.voters_changed(self.world.now_ms, self.history.voters)
                self.raft.appended(self.world.now_ms)
            if ready.records is not None:
                for entry in pickle.loads(ready.records):
                    self._append(entry)
                self.raft.appended(self.world.now_ms)
            if ready.opens_epoch is not None:
                self._append((self.raft.epoch, None))
            for peer, request in ready.sends:
                self.world.send(self, peer, request)
            self._flush_later()
            if ready.is_empty:
                break
        self.world.set_timer(self)
        self.world.check(self)

    def append(self, value: object) -> None:
        self._append((self.raft.epoch, value))
        self._flush_later()
        self.obey()

    def _append(self, entry: Entry) -> None:
        self.log.entries.append(entry)
        if isinstance(entry[1], VoterSet):
            self.history.add_voters(len(self.log.entries) - 1, entry[1])
            self.raft.voters_changed(self.world.now_ms, entry[1])

    def _flush_later(self) -> None:
        if self.is_flushing or self.log.durable_end_offset == self.log.log_end_offset:
            return
        self.is_flushing = True
        end, entries, life = self.log.log_end_offset, list(self.log.entries), self.life

        def finish() -> None:
            if self.life != life:
                return
            self.is_flushing = False
            if self.log.entries[:end] == entries:
                self.log.durable_end_offset = max(self.log.durable_end_offset, end)
                self.disk.entries = entries
            self.raft.flushed(self.world.now_ms)
            self.obey()

        self.world.after(self.world.random.randrange(1, 20), finish)

    # Answering.

    def answer(self, request: Request) -> Reply:
        now_ms = self.world.now_ms
        match request:
            case Vote():
                return self.raft.vote(now_ms, request)
            case BeginEpoch():
                return self.raft.begin_epoch(now_ms, request)
            case EndEpoch():
                return self.raft.end_epoch(now_ms, request)
            case Fetch():
                return self._read(request, self.raft.fetch(now_ms, request))

    def _read(self, request: Fetch, reply: FetchReply) -> FetchReply:
        if not reply.is_readable:
            return reply
        entries = self.log.entries[
            request.offset : request.offset + self.world.random.randrange(1, self.world.longest_fetch + 1)
        ]
        return reply._replace(records=memoryview(pickle.dumps(entries))) if entries else reply


class World:
    def __init__(self, seed: int, voters: int, observers: int = 0) -> None:
        self.random = Random(seed)
        self.now_ms = 0
        self.events: list[tuple[int, int, Callable[[], None]]] = []
        self.numbers = count()
        self.drop = 0.0
        self.duplicate = 0.0
        self.longest_delay_ms = 5
        # Pairs (from, to) between which nothing passes.
        self.cut: set[tuple[int, int]] = set()
        self.leaders: dict[int, ReplicaKey] = {}
        self.committed: list[Entry] = []
        # The epoch in which each of them was.
        self.committed_in: list[int] = []
        # By member: what the senders do when their connection to it breaks.
        self.waiting: dict[int, list[Callable[[], None]]] = {}
        self.directories = count(1_000)
        self.wiped: list[ReplicaKey] = []
        self.longest_fetch = 3
        keys = [ReplicaKey(node_id, Uuid.of(next(self.directories))) for node_id in range(1, voters + observers + 1)]
        static = VoterSet(Voter(key, {}) for key in keys[:voters])
        self.members = [Member(self, key, static) for key in keys]
        self.by_id = {one.key.id: one for one in self.members}
        # For breaking it on purpose: a state file that is not synced.
        self.persist: Callable[[Member, ElectionState], None] = _persist
        for member in self.members:
            member.boot()

    # Time.

    def after(self, delay_ms: int, action: Callable[[], None]) -> None:
        heapq.heappush(self.events, (self.now_ms + delay_ms, next(self.numbers), action))

    def run_until(self, condition: Callable[[], bool], limit_ms: int) -> bool:
        end_ms = self.now_ms + limit_ms
        while not condition():
            if not self.events or self.events[0][0] > end_ms:
                self.now_ms = end_ms
                return condition()
            self.now_ms, _, action = heapq.heappop(self.events)
            action()
        return True

    def run(self, duration_ms: int) -> None:
        self.run_until(lambda: False, duration_ms)

    def set_timer(self, member: Member) -> None:
        deadline_ms, life = member.raft.deadline_ms, member.life
        if deadline_ms == NEVER:
            return

        def fire() -> None:
            if member.life == life and member.raft.deadline_ms <= self.now_ms:
                member.raft.tick(self.now_ms)
                member.obey()

        self.after(max(0, deadline_ms - self.now_ms), fire)

    # The network.

    def send(self, sender: Member, peer: int, request: Request) -> None:
        receiver, life = self.by_id[peer], sender.life
        is_answered = False

        def deliver() -> None:
            if not receiver.is_up or (sender.key.id, peer) in self.cut:
                return
            wait_ms = 0
            reply = receiver.answer(request)
            receiver.obey()
            if isinstance(reply, FetchReply) and reply.is_readable and reply.records is None:
                wait_ms = FETCH_WAIT_MS
            if wait_ms and isinstance(request, Fetch):
                self.after(self.random.randrange(1, wait_ms), lambda: respond_late(request))
            else:
                respond(reply)

        def respond_late(fetch: Fetch) -> None:
            if receiver.is_up:
                reply = receiver.answer(fetch)
                receiver.obey()
                respond(reply)

        def respond(reply: Reply) -> None:
            self._travel(peer, sender.key.id, lambda: receive(reply))

        def receive(reply: Reply) -> None:
            nonlocal is_answered
            if sender.life == life and not is_answered:
                is_answered = True
                sender.raft.replied(self.now_ms, peer, request, reply)
                sender.obey()

        def give_up() -> None:
            nonlocal is_answered
            if sender.life == life and not is_answered:
                is_answered = True
                why = Unanswered.LATE if receiver.is_up else Unanswered.GONE
                sender.raft.failed(self.now_ms, peer, request, why)
                sender.obey()

        self._travel(sender.key.id, peer, deliver)
        self.waiting.setdefault(peer, []).append(give_up)
        # A connection that is refused is noticed at once, a lost packet only when the time is up.
        self.after(5 if not receiver.is_up else REQUEST_TIMEOUT_MS, give_up)

    def _travel(self, source: int, target: int, arrive: Callable[[], None]) -> None:
        if (source, target) in self.cut or self.random.random() < self.drop:
            return

        def arrive_if_not_cut() -> None:
            if (source, target) not in self.cut:
                arrive()

        self.after(self.random.randrange(1, self.longest_delay_ms + 1), arrive_if_not_cut)
        if self.random.random() < self.duplicate:
            self.after(self.random.randrange(1, self.longest_delay_ms * 10), arrive_if_not_cut)

    # Faults.

    def isolate(self, *ids: int) -> None:
        """Cut all connections between these members and the others."""
        self.cut = {
            pair
            for one in self.by_id
            for other in self.by_id
            if (one in ids) != (other in ids)
            for pair in ((one, other), (other, one))
        }

    def heal(self) -> None:
        self.cut, self.drop, self.duplicate, self.longest_delay_ms = set(), 0.0, 0.0, 5
        for member in self.members:
            if not member.is_up:
                member.boot()

    # What must hold.

    @property
    def leader(self) -> Member | None:
        """Return the leader of the highest epoch."""
        leading = [one for one in self.members if one.is_up and one.raft.is_leader]
        return max(leading, key=lambda one: one.raft.epoch, default=None)

    def check(self, member: Member) -> None:
        raft = member.raft
        assert raft.epoch >= member.highest_epoch, f"{member} was in epoch {member.highest_epoch} before"
        member.highest_epoch = raft.epoch
        if isinstance(raft.role, Leader):
            known = self.leaders.setdefault(raft.epoch, member.key)
            assert known == member.key, f"{known} and {member.key} lead epoch {raft.epoch}"
            for offset, entry in enumerate(self.committed):
                # One that has been deposed and does not know it need not have what came after.
                if self.committed_in[offset] < raft.epoch:
                    has = member.log.entries[offset : offset + 1] == [entry]
                    assert has, f"{member} leads without what was committed at {offset}"
        if raft.high_watermark > member.applied:
            if isinstance(raft.role, Leader):
                self._check_majority(member, raft.high_watermark)
            for offset in range(member.applied, raft.high_watermark):
                entry = member.log.entries[offset]
                if offset == len(self.committed):
                    self.committed.append(entry)
                    self.committed_in.append(raft.epoch)
                assert self.committed[offset] == entry, f"{member} sees another record at {offset}"
            member.applied = raft.high_watermark

    def _check_majority(self, leader: Member, high_watermark: int) -> None:
        voters = leader.raft.voters
        having = [
            one
            for one in self.members
            if voters.has(one.key) and one.disk.entries[:high_watermark] == leader.log.entries[:high_watermark]
        ]
        # A disk that was lost had what it said it had.
        lost = sum(voter.key in self.wiped for voter in voters)
        assert len(having) + lost >= voters.majority, f"{leader} commits {high_watermark}, but only {having} have it"


def _persist(member: Member, state: ElectionState) -> None:
    member.disk.state = state
