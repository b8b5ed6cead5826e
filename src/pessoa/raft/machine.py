"""What comes to a member of the quorum, and what it answers and does then.

    time        start, tick, resign
    the log     appended, flushed, voters_changed, snapshot_loaded, snapshot_progressed, fetch_again
    requests    vote, begin_epoch, end_epoch, fetch, fetched_snapshot
    responses   replied, failed

Each of these inputs looks at the role that the member has, and may move it to another: state and transitions are in
`pessoa.raft.member`.

The machine reads its log through `RaftLogView` and changes nothing in the world. Every method that may change something
leaves the consequences in `Ready`, which the shell takes and carries out, in its order, before it comes back with
anything else:

    persist        epoch and vote, on the disk before anything that follows
    truncate_to    truncate the log
    records        append what was fetched
    snapshot       fetch this snapshot, and replace the log by it
    opens_epoch    append the LeaderChange record: this member leads now
    sends          requests to others; each comes back as `replied` or `failed`
    high_watermark everything before it is committed

The answer to a request is returned, and may leave only after `Ready` has been carried out. Time is `now_ms` of a clock
that never goes back; `deadline_ms` is when `tick` wants to be called at the latest.

For the roles and the way between them see `pessoa.raft.roles`; for the rules, `pessoa.raft`.

Two timings differ from Kafka's, and pre-vote makes both harmless: a voter that starts without a leader asks for
pre-votes at once instead of an election timeout later, and a follower whose connection to the leader breaks doubts it
at once instead of a fetch timeout later. Both need a majority of the same opinion before anything happens. A fetch that
is merely late is no reason to doubt: that is what the fetch timeout is for.
"""

from __future__ import annotations

from pessoa.raft.comparing import find_divergence, reaches, truncation
from pessoa.raft.member import Member
from pessoa.raft.memory import Memory
from pessoa.raft.messages import (
    NO_NODE,
    BeginEpoch,
    ElectionState,
    EndEpoch,
    EpochReply,
    Fetch,
    FetchReply,
    ReplicaKey,
    Reply,
    Request,
    Unanswered,
    Vote,
    VoteReply,
)
from pessoa.raft.ready import Ready
from pessoa.raft.roles import AT_ONCE, NEVER, Candidate, Follower, Leader, Prospective, Resigned, Unattached
from pessoa.raft.voters import VoterSet
from pessoa.wire.errors import ErrorCode

# Elections take tens of milliseconds at least: this many, one after another, take most of a day.
MAX_EPOCH_LEAP = 1 << 20


class Raft(Member):
    """The raft state machine of one member. It takes one input at a time; call `take_ready` after each."""

    def take_ready(self) -> Ready:
        ready, self._ready = self._ready, Ready()
        return ready

    # Inputs: time.

    @property
    def deadline_ms(self) -> int:
        match self.role:
            case Unattached(election_ms, fetching):
                return min(election_ms, NEVER if fetching is None else fetching.deadline_ms)
            case Prospective(election_ms, requests) | Candidate(election_ms, requests):
                return min(election_ms, requests.deadline_ms)
            case Follower(silence_ms, fetching):
                return min(silence_ms, fetching.deadline_ms)
            case Leader() if not self._counts:
                return AT_ONCE
            case Leader(progress, requests):
                contact_ms = progress.last_contact_ms(self.voters)
                silence_ms = NEVER if contact_ms is None else contact_ms + self._timeouts.check_quorum_ms
                return min(silence_ms, requests.deadline_ms)
            case Resigned(over_ms, requests):
                return min(over_ms, requests.deadline_ms)

    def start(self, now_ms: int, stored: ElectionState | None) -> None:
        """Begin in the role that the stored election state implies. The high watermark is unknown until a leader names
        it."""
        self.election = stored if stored is not None else ElectionState()
        if self._log.last_epoch > self.epoch:
            # The state is older than the log: whatever was said in that epoch, say nothing more in it.
            self._move(ElectionState(self._log.last_epoch))
        if self.election.leader_id == self.own.id:
            # Whether the others have seen it lead, it cannot know; so that epoch is over.
            self._move(ElectionState(self.epoch + 1))
        if self.leader_id != NO_NODE:
            self._follow(now_ms, self.epoch, self.leader_id)
        else:
            self._detach(now_ms, self.epoch, wait_ms=self._patience.random_delay_ms() if len(self.voters) > 1 else 0)
        self.tick(now_ms)

    def tick(self, now_ms: int) -> None:
        """Do what is due at `now_ms`. Nothing is due afterwards, or the shell, which calls this at `deadline_ms`, would
        call it for ever."""
        match self.role:
            case Unattached(election_ms, _) if election_ms <= now_ms:
                self._become_prospective(now_ms)
            case Prospective(election_ms, _) if election_ms <= now_ms:
                self._lose(now_ms)
            case Candidate(election_ms, _) if election_ms <= now_ms:
                self._become_prospective(now_ms)
            case Follower(silence_ms, _) if silence_ms <= now_ms:
                self._miss_leader(now_ms)
            case Leader() if not self._counts:
                # A leader that was removed from the voters leads until its removal is committed.
                self._resign(now_ms)
            case Leader(progress, _):
                contact_ms = progress.last_contact_ms(self.voters)
                if contact_ms is not None and contact_ms + self._timeouts.check_quorum_ms <= now_ms:
                    self._resign(now_ms)
            case Resigned(over_ms, _) if over_ms <= now_ms:
                self._detach(now_ms, self.epoch + 1)
            case _:
                pass
        self._send_due(now_ms)
        assert self.deadline_ms > now_ms, (
            f"{self!r} leaves something due at {self.deadline_ms} ms, and it is {now_ms} ms"
        )

    def resign(self, now_ms: int, epoch: int) -> None:
        """Stop leading `epoch`, if this member leads it."""
        if self.is_leader and epoch == self.epoch:
            self._resign(now_ms)
            self._send_due(now_ms)

    # Inputs: the log.

    def appended(self, now_ms: int) -> None:
        """Advance the high watermark and fetch again, after the log was truncated or the fetched records were
        written."""
        if isinstance(self.role, Follower):
            self._advance(min(self.role.leader_high_watermark, self._log.log_end_offset))
            self._maybe_restore_memory()
            self._fetch_when_durable(now_ms, self.role.fetching)
        self._send_due(now_ms)

    def flushed(self, now_ms: int) -> None:
        """Advance the high watermark of a leader, or let a follower fetch again: more of the log is on the disk."""
        match self.role:
            case Leader(progress, _):
                self._advance(progress.committed(self.voters, self._log.durable_end_offset))
            case Follower(_, fetching) if fetching.in_flight is None and fetching.due_ms == NEVER:
                self._maybe_restore_memory()
                self._fetch_when_durable(now_ms, fetching)
            case Unattached(_, fetching) if fetching is not None and fetching.in_flight is None:
                self._fetch_when_durable(now_ms, fetching)
        self._send_due(now_ms)

    def voters_changed(self, now_ms: int, voters: VoterSet) -> None:
        """Take over the voters of the latest VotersRecord in the log."""
        self.voters = voters
        match self.role:
            case Leader(progress, requests):
                for voter in voters:
                    if not voter.key.matches(self.own) and voter.key.id not in requests.due_ms:
                        requests.due_ms[voter.key.id] = now_ms
                for node_id in [one for one in requests.due_ms if one not in voters.by_id]:
                    requests.done(node_id)
                self._advance(progress.committed(voters, self._log.durable_end_offset))
            case Prospective() | Candidate() if not self._may_become_candidate:
                self._detach(now_ms, self.epoch)
            case Unattached(election_ms, _) if (election_ms == NEVER) == self._may_become_candidate:
                self._detach(now_ms, self.epoch)

    def snapshot_loaded(self, now_ms: int) -> None:
        """Continue after the log was replaced by the snapshot that `Ready` asked for."""
        self._awaits_snapshot = False
        snapshot = self._log.latest_snapshot
        assert snapshot is not None
        # What is in a snapshot was committed.
        self._advance(snapshot.offset)
        if isinstance(self.role, Follower):
            self.role.silence_ms = now_ms + self._timeouts.fetch_timeout_ms
            # A fetch that is on its way speaks of the log before the snapshot.
            self.role.fetching.in_flight = None
            self._fetch_when_durable(now_ms, self.role.fetching)
        self._send_due(now_ms)

    def snapshot_progressed(self, now_ms: int) -> None:
        """Note that the leader is alive: it has sent a piece of the snapshot."""
        if isinstance(self.role, Follower):
            self.role.silence_ms = now_ms + self._timeouts.fetch_timeout_ms

    def fetch_again(self, now_ms: int) -> None:
        """Fetch again after the retry backoff: the snapshot could not be downloaded, or the records were damaged. A
        download may end under a later leader than it began under, from which a fetch is in flight already."""
        self._awaits_snapshot = False
        if isinstance(self.role, Follower) and self.role.fetching.in_flight is None:
            self.role.fetching.due_ms = now_ms + self._timeouts.retry_backoff_ms

    # Inputs: requests.

    def vote(self, now_ms: int, request: Vote) -> VoteReply:
        if request.epoch < self.epoch:
            return VoteReply(ErrorCode.FENCED_LEADER_EPOCH, self.epoch, self.leader_id)
        if not self._is_plausible(request.epoch):
            return VoteReply(ErrorCode.INVALID_REQUEST, self.epoch, self.leader_id)
        if not request.voter.matches(self.own):
            return VoteReply(ErrorCode.INVALID_VOTER_KEY, self.epoch, self.leader_id)
        if request.epoch > self.epoch:
            self._detach(now_ms, request.epoch)
        granted = self._may_vote_for(request) and reaches(self._log, request.last_epoch, request.log_end_offset)
        if granted and not request.pre_vote:
            if self.election.voted is None:
                self._move(self.election._replace(voted=request.candidate))
            if self.memory is Memory.NEW:
                self._first_choice = request.candidate
            if isinstance(self.role, Unattached) and self._may_become_candidate:
                self.role.election_ms = now_ms + self._patience.election_ms()
        return VoteReply(ErrorCode.NONE, self.epoch, self.leader_id, granted)

    def _may_vote_for(self, request: Vote) -> bool:
        """Return whether everything but its log allows a vote for the candidate."""
        role = self.role
        if self.memory is Memory.DAMAGED:
            return False
        if self.memory is Memory.NEW and request.log_end_offset > 0 and self._first_choice != request.candidate:
            return False
        if request.pre_vote:
            return not isinstance(role, Leader) and not (isinstance(role, Follower) and role.trusts_leader)
        if self.election.voted is not None:
            return self.election.voted.matches(request.candidate)
        return self.leader_id == NO_NODE and not isinstance(role, Leader | Resigned)

    def begin_epoch(self, now_ms: int, request: BeginEpoch) -> EpochReply:
        error = self._check_leader(request)
        if error is not ErrorCode.NONE:
            return EpochReply(error, self.epoch, self.leader_id)
        self._maybe_transition(now_ms, request.epoch, request.leader_id)
        if isinstance(self.role, Follower) and self.role.fetching.in_flight is None and not self._awaits_snapshot:
            # There is no reason to wait with the next fetch: the leader is there.
            self._fetch_when_durable(now_ms, self.role.fetching)
            self._send_due(now_ms)
        return EpochReply(ErrorCode.NONE, self.epoch, self.leader_id)

    def end_epoch(self, now_ms: int, request: EndEpoch) -> EpochReply:
        error = self._check_leader(request)
        if error is not ErrorCode.NONE:
            return EpochReply(error, self.epoch, self.leader_id)
        self._maybe_transition(now_ms, request.epoch, request.leader_id)
        if isinstance(self.role, Follower) and self._may_become_candidate and request.leader_id == self.leader_id:
            position = next(
                (index for index, key in enumerate(request.successors) if key.matches(self.own)),
                len(request.successors),
            )
            self.role.trusts_leader = False
            wait_ms = 0 if position == 0 else self._patience.random_delay_ms() * (1 << min(position - 1, 6))
            self.role.silence_ms = now_ms + wait_ms
            self.tick(now_ms)
        return EpochReply(ErrorCode.NONE, self.epoch, self.leader_id)

    def _check_leader(self, request: BeginEpoch | EndEpoch) -> ErrorCode:
        if request.epoch < self.epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        if request.leader_id < 0 or request.leader_id == self.own.id or not self._is_plausible(request.epoch):
            return ErrorCode.INVALID_REQUEST
        if request.epoch == self.epoch and self.leader_id not in (NO_NODE, request.leader_id):
            return ErrorCode.INVALID_REQUEST
        return ErrorCode.NONE

    def fetch(self, now_ms: int, request: Fetch) -> FetchReply:
        """Return whether the replica may continue from its offset; if so, the shell reads the records for it."""
        role = self.role
        if not isinstance(role, Leader) or request.epoch != self.epoch:
            return self._refuse_fetch(request)
        answer = FetchReply(ErrorCode.NONE, self.epoch, self.leader_id, self.high_watermark)
        divergence = find_divergence(self._log, request)
        if divergence is not None:
            return answer._replace(diverging=divergence.diverging, snapshot=divergence.snapshot)
        if request.replica.id >= 0:
            role.progress.note_fetch(request.replica, request.offset, self._log.log_end_offset, now_ms)
            role.progress.forget_observers(self.voters)
        role.requests.again(request.replica.id, now_ms + self._timeouts.fetch_timeout_ms // 2)
        if self.voters.has(request.replica):
            self._advance(role.progress.committed(self.voters, self._log.durable_end_offset))
        return answer._replace(high_watermark=self.high_watermark)

    def fetched_snapshot(self, now_ms: int, key: ReplicaKey) -> None:
        """Note that a replica fetches a snapshot from this leader: it is alive, though its log end offset has not
        moved."""
        if isinstance(self.role, Leader):
            progress = self.role.progress
            progress.note_fetch(key, max(progress.end_offset_of(key), 0), NEVER, now_ms)
            progress.forget_observers(self.voters)

    def _refuse_fetch(self, request: Fetch) -> FetchReply:
        error = ErrorCode.NOT_LEADER_OR_FOLLOWER
        if request.epoch < self.epoch:
            error = ErrorCode.FENCED_LEADER_EPOCH
        elif request.epoch > self.epoch:
            error = ErrorCode.UNKNOWN_LEADER_EPOCH
        return FetchReply(error, self.epoch, self.leader_id)

    # Inputs: responses.

    def replied(self, now_ms: int, peer: int, request: Request, reply: Reply) -> None:
        role = self.role
        if isinstance(request, Fetch):
            assert isinstance(reply, FetchReply)
            self._take_fetch_reply(now_ms, request, reply)
        elif self._is_news(reply):
            self._maybe_transition(now_ms, reply.epoch, reply.leader_id)
        elif request.epoch == self.epoch:
            if isinstance(role, Prospective | Candidate) and isinstance(reply, VoteReply):
                self._count_vote(now_ms, role, peer, request, reply)
            elif isinstance(role, Leader) and isinstance(request, BeginEpoch):
                role.requests.again(peer, now_ms + self._timeouts.fetch_timeout_ms // 2)
            elif isinstance(role, Resigned) and isinstance(request, EndEpoch):
                role.requests.done(peer)
        self._send_due(now_ms)

    def failed(self, now_ms: int, peer: int, request: Request, why: Unanswered) -> None:
        """Send the request again after the retry backoff, since `peer` has not answered it; EndEpoch is not repeated. A
        follower whose leader has disconnected also begins to doubt the leader."""
        role = self.role
        again_ms = now_ms + self._timeouts.retry_backoff_ms
        match role:
            case Follower(_, fetching) if fetching.in_flight is request:
                fetching.in_flight = None
                fetching.due_ms = again_ms
                if why is Unanswered.GONE:
                    self._doubt_leader(now_ms, role)
            case Unattached(_, fetching) if fetching is not None and fetching.in_flight is request:
                fetching.in_flight = None
                fetching.due_ms = again_ms
            case Prospective() | Candidate() | Leader() if request.epoch == self.epoch:
                role.requests.again(peer, again_ms)
            case Resigned():
                # EndQuorumEpoch is a courtesy: a voter that misses it notices the silence.
                role.requests.done(peer)
            case _:
                pass

    def _is_news(self, reply: Reply) -> bool:
        """Return whether the response names an epoch or a leader that this member does not know."""
        if reply.epoch == self.epoch:
            return self.leader_id == NO_NODE and reply.leader_id not in (NO_NODE, self.own.id)
        return reply.epoch > self.epoch and self._is_plausible(reply.epoch)

    def _is_plausible(self, epoch: int) -> bool:
        """Return whether elections can have led to this epoch.

        Epochs never go back, and there are 2³¹ of them: a node with a damaged disk, or a malicious one, could use them
        all up for the whole quorum.
        """
        return epoch <= self.epoch + MAX_EPOCH_LEAP or self._knows_nothing

    @property
    def _knows_nothing(self) -> bool:
        return self.epoch == 0 and self._log.log_end_offset == 0

    def _count_vote(
        self, now_ms: int, role: Prospective | Candidate, peer: int, request: Request, reply: VoteReply
    ) -> None:
        assert isinstance(request, Vote)
        if request.pre_vote != isinstance(role, Prospective) or peer not in self.voters.by_id:
            return
        if reply.error is not ErrorCode.NONE:
            role.requests.again(peer, now_ms + self._timeouts.retry_backoff_ms)
            return
        role.requests.done(peer)
        if not reply.granted:
            role.rejected.add(peer)
            if len(role.rejected) > len(self.voters) - self.voters.majority:
                self._end_lost_election(now_ms, role)
        elif peer not in role.rejected:
            role.granted.add(peer)
            self._maybe_win(now_ms, role)

    def _take_fetch_reply(self, now_ms: int, request: Fetch, reply: FetchReply) -> None:
        role = self.role
        fetching = role.fetching if isinstance(role, Follower | Unattached) else None
        is_awaited = fetching is not None and fetching.in_flight is request
        if fetching is not None and is_awaited:
            fetching.in_flight = None
            fetching.due_ms = now_ms + self._timeouts.retry_backoff_ms
        if self._is_news(reply):
            self._maybe_transition(now_ms, reply.epoch, reply.leader_id)
            return
        if not is_awaited or not isinstance(role, Follower):
            return
        if reply.error is not ErrorCode.NONE:
            if reply.error is ErrorCode.NOT_LEADER_OR_FOLLOWER:
                self._doubt_leader(now_ms, role)
            return
        role.silence_ms = now_ms + self._timeouts.fetch_timeout_ms
        role.trusts_leader, role.is_patient = True, False
        self._lost_elections = 0
        if reply.snapshot is not None:
            self._awaits_snapshot = True
            role.fetching.due_ms = NEVER
            self._ready.snapshot = reply.snapshot
        elif reply.diverging is not None:
            end = self._ready.truncate_to = truncation(self._log, reply.diverging)
            assert end >= self.high_watermark, f"{self!r} was told to cut its log at {end}"
            role.fetching.due_ms = now_ms
        else:
            self._ready.records = reply.records or None
            role.fetching.due_ms = now_ms
            role.leader_high_watermark = reply.high_watermark
            # The rest of it when the records are in the log, see `appended`.
            self._advance(min(reply.high_watermark, self._log.log_end_offset))
            self._maybe_restore_memory()
