"""A member of the quorum: what it knows, and how it goes from one role to the next.

    role          what it is, with what it has to remember meanwhile (`pessoa.raft.roles` has the diagram)
    election      epoch, leader and vote. After the start only `_move` changes them, and `Ready` persists what it sets
    transitions   _detach, _follow, _become_prospective, _become_candidate, _lead, _resign: each replaces the role by a
                  new one
    sending       what the role has to send by now. A voter's fetch waits until its disk has what it fetched before
    committing    `_advance` moves the high watermark, which never goes back

What makes a member do any of this (time, its log, requests and responses) are the inputs in `pessoa.raft.machine`. What
is to be done outside goes into `Ready`.
"""

from __future__ import annotations

from collections.abc import Callable

from pessoa.raft.memory import Memory
from pessoa.raft.messages import (
    NO_NODE,
    BeginEpoch,
    ElectionState,
    EndEpoch,
    Fetch,
    ReplicaKey,
    Request,
    Vote,
)
from pessoa.raft.patience import Patience
from pessoa.raft.progress import Progress
from pessoa.raft.ready import RaftLogView, Ready, Timeouts
from pessoa.raft.roles import (
    NEVER,
    Candidate,
    Fetching,
    Follower,
    Leader,
    Prospective,
    Repeated,
    Resigned,
    Role,
    Unattached,
)
from pessoa.raft.voters import VoterSet


class Member:
    """A member of a quorum; `pessoa.raft.machine.Raft` adds the inputs."""

    def __init__(
        self,
        own: ReplicaKey,
        voters: VoterSet,
        log: RaftLogView,
        timeouts: Timeouts,
        random_below: Callable[[int], int],
        bootstrap: tuple[int, ...] = (),
        *,
        can_vote: bool = True,
        memory: Memory = Memory.WHOLE,
    ) -> None:
        """`bootstrap` are the servers to ask for the leader while no voters are known. `can_vote` is False for a member
        that only ever observes: the broker on a node without a controller."""
        self.own = own
        self.voters = voters
        self.election = ElectionState()
        self.high_watermark = 0
        self.role: Role = Unattached(NEVER)
        self._log = log
        self._timeouts = timeouts
        self._random_below = random_below
        self._patience = Patience(timeouts, random_below)
        self._bootstrap = bootstrap
        self._can_vote = can_vote
        self.memory = memory
        # The candidate for which a member with a new disk has voted: both began together, so records that the candidate
        # has got since are no sign of a record that this member has lost.
        self._first_choice: ReplicaKey | None = None
        self._ready = Ready()
        # A snapshot is being fetched: the log is on hold.
        self._awaits_snapshot = False
        # Elections in a row that this member began and lost.
        self._lost_elections = 0

    def __repr__(self) -> str:
        name, role = type(self).__name__, type(self.role).__name__
        return f"<{name} {self.own.id}: {role} in {self.election}, committed {self.high_watermark}>"

    # What it is.

    @property
    def epoch(self) -> int:
        return self.election.epoch

    @property
    def leader_id(self) -> int:
        """The id of the leader, as far as this member knows it."""
        return NO_NODE if isinstance(self.role, Resigned) else self.election.leader_id

    @property
    def is_leader(self) -> bool:
        return isinstance(self.role, Leader)

    @property
    def is_voter(self) -> bool:
        return self.voters.has(self.own)

    @property
    def _counts(self) -> bool:
        """Whether an election may need this member: it is a voter, or its removal from the voters is not committed.

        What was written and not committed may be in its log alone, and then no other voter can be elected. So it stands
        without a vote of its own until its removal is committed (Ongaro's thesis, 4.2.2; Kafka's members do not).
        """
        return self.is_voter or self._log.is_leaving(self.own, self.high_watermark)

    @property
    def _may_become_candidate(self) -> bool:
        return self.memory is not Memory.DAMAGED and self._counts

    # Transitions.

    def _move(self, election: ElectionState) -> None:
        assert election.epoch >= self.epoch, f"{self!r} cannot go back to {election}"
        if election != self.election:
            self.election = self._ready.persist = election

    def _maybe_transition(self, now_ms: int, epoch: int, leader_id: int) -> None:
        """Move to `epoch`, or follow its leader, if another node has named an epoch or a leader that this member does
        not know."""
        if epoch < self.epoch or leader_id == self.own.id:
            if epoch > self.epoch:
                # This member led that epoch, and has lost the election state of that time.
                self._detach(now_ms, epoch + 1)
            return
        if leader_id == NO_NODE:
            if epoch > self.epoch:
                self._detach(now_ms, epoch)
        elif epoch > self.epoch or self.leader_id == NO_NODE:
            self._follow(now_ms, epoch, leader_id)
        else:
            assert leader_id == self.leader_id, f"{self!r} hears that {leader_id} leads epoch {epoch}"
            if isinstance(self.role, Prospective):
                # The leader can be reached again, or a node that reaches it has named it.
                self._follow(now_ms, epoch, leader_id)

    def _detach(self, now_ms: int, epoch: int, wait_ms: int | None = None) -> None:
        if epoch > self.epoch:
            self._move(ElectionState(epoch))
        else:
            self._move(self.election._replace(leader_id=NO_NODE))
        self._awaits_snapshot = False
        if self._may_become_candidate:
            wait_ms = self._patience.election_ms() if wait_ms is None else wait_ms
            # The voters it knows may be outdated, and a leader that is not among them sends it nothing (KAFKA-17030).
            self.role = Unattached(now_ms + wait_ms, Fetching(now_ms) if self._bootstrap else None)
        else:
            self.role = Unattached(NEVER, Fetching(now_ms))

    def _follow(self, now_ms: int, epoch: int, leader_id: int, *, is_patient: bool = False) -> None:
        assert leader_id != self.own.id, f"{self!r} cannot follow itself"
        voted = self.election.voted if epoch == self.epoch else None
        self._move(ElectionState(epoch, leader_id, voted))
        self._awaits_snapshot = False
        fetching = Fetching(NEVER)
        self.role = Follower(now_ms + self._timeouts.fetch_timeout_ms, fetching, is_patient=is_patient)
        self._fetch_when_durable(now_ms, fetching)
        self._send_due(now_ms)

    def _become_prospective(self, now_ms: int) -> None:
        """Become prospective: ask the voters whether they would elect this member, in the epoch as it is (pre-vote)."""
        assert self._may_become_candidate, f"{self!r} is no voter, or must not be one"
        self._awaits_snapshot = False
        role = self.role = Prospective(
            now_ms + self._patience.election_ms(), Repeated(now_ms, *self._other_voter_ids())
        )
        if self.is_voter:
            role.granted.add(self.own.id)
        self._maybe_win(now_ms, role)
        self._send_due(now_ms)

    def _become_candidate(self, now_ms: int) -> None:
        """Begin a new epoch as a candidate, with this member's own vote, and ask the other voters for theirs."""
        self._move(ElectionState(self.epoch + 1, NO_NODE, self.own))
        role = self.role = Candidate(now_ms + self._patience.election_ms(), Repeated(now_ms, *self._other_voter_ids()))
        if self.is_voter:
            role.granted.add(self.own.id)
        self._maybe_win(now_ms, role)
        self._send_due(now_ms)

    def _maybe_win(self, now_ms: int, role: Prospective | Candidate) -> None:
        if len(role.granted) < self.voters.majority:
            return
        if isinstance(role, Prospective):
            self._become_candidate(now_ms)
        else:
            self._lead(now_ms, tuple(sorted(role.granted)))

    def _end_lost_election(self, now_ms: int, role: Prospective | Candidate) -> None:
        """End an election in which a majority cannot be reached any more; a candidate tries again after a backoff."""
        if isinstance(role, Prospective):
            self._lose(now_ms)
        else:
            role.election_ms = min(role.election_ms, now_ms + self._patience.backoff_ms(self._lost_elections))
            self._lost_elections += 1

    def _lose(self, now_ms: int) -> None:
        if self.leader_id != NO_NODE:
            # The other voters reach the leader. Further pre-votes would not help this member to reach it.
            self._follow(now_ms, self.epoch, self.leader_id, is_patient=True)
        else:
            self._detach(now_ms, self.epoch)

    def _lead(self, now_ms: int, granting: tuple[int, ...]) -> None:
        progress = Progress(self.own, self._log.log_end_offset, now_ms)
        self._move(self.election._replace(leader_id=self.own.id))
        self.role = Leader(progress, Repeated(now_ms, *self._other_voter_ids()))
        self._ready.opens_epoch = granting
        self._lost_elections = 0
        self._send_due(now_ms)

    def _resign(self, now_ms: int) -> None:
        assert isinstance(self.role, Leader)
        # The state on the disk stays: the leader of an epoch must not be taken for a voter that could still vote in it.
        successors = self.role.progress.successors(self.voters)
        self.role = Resigned(
            now_ms + self._patience.election_ms(), Repeated(now_ms, *self._other_voter_ids()), successors
        )

    def _miss_leader(self, now_ms: int) -> None:
        if self._may_become_candidate:
            self._become_prospective(now_ms)
        else:
            self._detach(now_ms, self.epoch)

    def _doubt_leader(self, now_ms: int, role: Follower) -> None:
        if not role.is_patient and self._may_become_candidate:
            role.silence_ms = min(role.silence_ms, now_ms + self._patience.random_delay_ms())
        role.trusts_leader = False

    # Sending.

    def _send_due(self, now_ms: int) -> None:
        match self.role:
            case Follower(_, fetching):
                self._send_fetch(now_ms, fetching, self.leader_id)
            case Unattached(_, fetching) if fetching is not None:
                whom = self._bootstrap or tuple(one for one in self.voters.ids if one != self.own.id)
                if whom:
                    self._send_fetch(now_ms, fetching, whom[self._random_below(len(whom))])
                else:
                    fetching.due_ms = NEVER
            case Prospective() | Candidate() | Leader() | Resigned() as role:
                for peer in role.requests.take_due(now_ms):
                    self._ready.sends.append((peer, self._request_to(role, peer)))
            case _:
                pass

    def _send_fetch(self, now_ms: int, fetching: Fetching, peer: int) -> None:
        if fetching.in_flight is not None or fetching.due_ms > now_ms:
            return
        if self._ready.records is not None or self._ready.truncate_to is not None:
            # What the log will be then, it is not yet.
            return
        if self._can_vote and self._log.durable_end_offset < self._log.log_end_offset:
            fetching.due_ms = NEVER
            return
        log = self._log
        request = Fetch(self.epoch, self.own, log.log_end_offset, log.last_epoch, self.high_watermark)
        fetching.in_flight = request
        fetching.due_ms = NEVER
        self._ready.sends.append((peer, request))

    def _fetch_when_durable(self, now_ms: int, fetching: Fetching) -> None:
        """Make the next fetch due when everything up to the log end offset is on the disk: with the offset of its fetch
        a voter promises to keep what is below, and so does an observer, which may become a voter."""
        if self._awaits_snapshot or (self._can_vote and self._log.durable_end_offset < self._log.log_end_offset):
            fetching.due_ms = NEVER
        else:
            fetching.due_ms = now_ms

    def _request_to(self, role: Prospective | Candidate | Leader | Resigned, peer: int) -> Request:
        voter = self.voters.by_id[peer].key if peer in self.voters.by_id else ReplicaKey(peer)
        match role:
            case Leader():
                return BeginEpoch(self.epoch, self.own.id, voter)
            case Resigned(_, _, successors):
                return EndEpoch(self.epoch, self.own.id, successors)
            case _:
                is_pre_vote = isinstance(role, Prospective)
                log = self._log
                return Vote(self.epoch, self.own, log.last_epoch, log.log_end_offset, is_pre_vote, voter)

    # Committing.

    def _advance(self, offset: int) -> None:
        if offset > self.high_watermark:
            assert offset <= self._log.log_end_offset, f"{self!r} cannot commit up to {offset}"
            self.high_watermark = offset
            if isinstance(self.role, Leader):
                # Of all that was ever committed, a leader has everything.
                self.memory = Memory.WHOLE

    def _maybe_restore_memory(self) -> None:
        """Set the memory to WHOLE once this follower has, on its disk, everything up to a high watermark of its leader
        that lies in the leader's own epoch: such a leader has all that was ever committed, so this voter then has all
        that it can have promised to keep."""
        if self.memory is Memory.WHOLE or not isinstance(self.role, Follower):
            return
        committed = self.role.leader_high_watermark
        if self._log.end_of_epoch(self.epoch - 1).offset < committed <= self._log.durable_end_offset:
            self.memory = Memory.WHOLE

    def _other_voter_ids(self) -> list[int]:
        return [node_id for node_id in self.voters.ids if node_id != self.own.id]
