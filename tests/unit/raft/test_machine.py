"""The rules of the raft machine, one by one. Random numbers are always the least, and the test sets the time."""

from __future__ import annotations

import pytest

from pessoa.base.ids import Uuid
from pessoa.raft.machine import Raft
from pessoa.raft.memory import Memory
from pessoa.raft.messages import (
    NO_NODE,
    BeginEpoch,
    ElectionState,
    EndEpoch,
    EpochReply,
    Fetch,
    FetchReply,
    OffsetAndEpoch,
    ReplicaKey,
    Unanswered,
    Vote,
    VoteReply,
)
from pessoa.raft.ready import Ready, Timeouts
from pessoa.raft.roles import NEVER, Candidate, Follower, Leader, Prospective, Resigned, Unattached
from pessoa.raft.voters import Voter, VoterHistory, VoterSet
from pessoa.wire.errors import ErrorCode
from tests.property.raft_world import ListLog

TIMEOUTS = Timeouts(election_timeout_ms=1_000, election_backoff_max_ms=1_000, fetch_timeout_ms=2_000)
ME, SECOND, THIRD = ReplicaKey(1), ReplicaKey(2), ReplicaKey(3)
OK = ErrorCode.NONE


def log_of(*epochs: int) -> ListLog:
    return ListLog([(epoch, None) for epoch in epochs])


def machine(
    log: ListLog | None = None, stored: ElectionState | None = None, voters: VoterSet | None = None
) -> tuple[Raft, Ready]:
    """Return voter 1 of three, just started at time 0, and its Ready."""
    voters = VoterSet.of(1, 2, 3) if voters is None else voters
    raft = Raft(ME, voters, log if log is not None else log_of(), TIMEOUTS, lambda _: 0, bootstrap=(2,))
    raft.start(0, stored)
    return raft, raft.take_ready()


def machine_with_memory(memory: Memory, log: ListLog | None = None) -> Raft:
    """Return voter 1 of three, whose log may have lost records."""
    raft = Raft(ME, VoterSet.of(1, 2, 3), log if log is not None else log_of(), TIMEOUTS, lambda _: 0, memory=memory)
    raft.start(0, None)
    raft.take_ready()
    return raft


def prospective(log: ListLog | None = None, stored: ElectionState | None = None) -> tuple[Raft, Ready]:
    raft, _ = machine(log, stored)
    raft.tick(1)
    return raft, raft.take_ready()


def candidate(log: ListLog | None = None, stored: ElectionState | None = None) -> tuple[Raft, Ready]:
    raft, ready = prospective(log, stored)
    peer, request = ready.sends[0]
    raft.replied(2, peer, request, VoteReply(OK, raft.epoch, NO_NODE, True))
    return raft, raft.take_ready()


def leader(log: ListLog | None = None, stored: ElectionState | None = None) -> tuple[Raft, ListLog]:
    log = log if log is not None else log_of()
    raft, ready = candidate(log, stored)
    peer, request = ready.sends[0]
    raft.replied(3, peer, request, VoteReply(OK, raft.epoch, NO_NODE, True))
    opened = raft.take_ready()
    assert opened.opens_epoch == (1, 2)
    log.entries.append((raft.epoch, None))
    return raft, log


def follower(log: ListLog | None = None, epoch: int = 1) -> tuple[Raft, Fetch]:
    """Return a follower of voter 2, and its first Fetch, which has no response yet."""
    raft, ready = machine(log, ElectionState(epoch, 2))
    ((peer, request),) = ready.sends
    assert peer == 2
    assert isinstance(request, Fetch)
    return raft, request


def vote(epoch: int, last_epoch: int = 0, end: int = 0, *, pre: bool = False, who: ReplicaKey = SECOND) -> Vote:
    return Vote(epoch, who, last_epoch, end, pre, ME)


def role_of(raft: Raft) -> type:
    return type(raft.role)


def durable(log: ListLog) -> None:
    log.durable_end_offset = log.log_end_offset


# Elections.


def test_a_started_voter_sends_pre_vote_requests_in_its_current_epoch() -> None:
    raft, ready = prospective(stored=ElectionState(4))
    assert role_of(raft) is Prospective
    assert ready.persist is None, "nothing has happened that would have to be remembered"
    assert [(peer, request.epoch) for peer, request in ready.sends] == [(2, 4), (3, 4)]
    assert all(isinstance(request, Vote) and request.pre_vote for _, request in ready.sends)


def test_only_a_majority_of_pre_votes_begins_an_epoch() -> None:
    raft, ready = prospective(stored=ElectionState(4))
    raft.replied(2, 2, ready.sends[0][1], VoteReply(OK, 4, NO_NODE, False))
    assert role_of(raft) is Prospective
    raft.replied(2, 3, ready.sends[1][1], VoteReply(OK, 4, NO_NODE, True))
    assert role_of(raft) is Candidate
    ready = raft.take_ready()
    assert ready.persist == ElectionState(5, NO_NODE, ME)
    assert all(isinstance(request, Vote) and not request.pre_vote for _, request in ready.sends)


def test_pre_votes_do_not_count_as_votes() -> None:
    raft, ready = prospective()
    late = ready.sends[1]
    raft.replied(2, 2, ready.sends[0][1], VoteReply(OK, 0, NO_NODE, True))
    raft.replied(2, late[0], late[1], VoteReply(OK, 1, NO_NODE, True))
    assert role_of(raft) is Candidate


def test_a_candidate_with_a_majority_of_votes_becomes_leader() -> None:
    raft, _ = leader()
    assert isinstance(raft.role, Leader)
    assert (raft.leader_id, raft.epoch) == (1, 1)


def test_a_single_voter_becomes_leader_at_once() -> None:
    raft, ready = machine(voters=VoterSet.of(1))
    assert raft.is_leader
    assert ready.persist == ElectionState(1, 1, ME)
    assert ready.opens_epoch == (1,)
    assert raft.deadline_ms == NEVER, "nothing has to be watched"


def test_a_candidate_that_lost_sends_pre_votes_before_it_begins_another_epoch() -> None:
    raft, ready = candidate()
    for peer, request in ready.sends:
        raft.replied(3, peer, request, VoteReply(OK, 1, NO_NODE, False))
    raft.tick(raft.deadline_ms)
    assert role_of(raft) is Prospective
    assert raft.epoch == 1


def test_a_voter_votes_once_in_an_epoch_also_after_a_restart() -> None:
    raft, _ = machine()
    assert raft.vote(0, vote(3)).granted
    stored = raft.take_ready().persist
    assert stored == ElectionState(3, NO_NODE, SECOND)
    assert raft.vote(0, vote(3)).granted, "the same candidate may ask again"
    assert not raft.vote(0, vote(3, who=THIRD)).granted
    revived, _ = machine(stored=stored)
    assert not revived.vote(0, vote(3, who=THIRD)).granted
    assert revived.vote(0, vote(4, who=THIRD)).granted


@pytest.mark.parametrize(("last_epoch", "end", "granted"), [(2, 3, True), (2, 2, False), (3, 1, True), (1, 9, False)])
def test_a_vote_is_granted_only_to_a_candidate_whose_log_is_at_least_as_long(
    last_epoch: int, end: int, granted: bool
) -> None:
    for is_pre_vote in (True, False):
        raft, _ = machine(log_of(1, 1, 2), ElectionState(5))
        assert raft.vote(0, vote(6, last_epoch, end, pre=is_pre_vote)).granted is granted


def test_a_follower_grants_no_pre_vote_while_it_hears_from_its_leader() -> None:
    raft, fetch = follower()
    assert raft.vote(0, vote(1, pre=True)).granted
    raft.replied(1, 2, fetch, FetchReply(OK, 1, 2, 0))
    assert not raft.vote(1, vote(1, pre=True, who=THIRD)).granted
    ((_, again),) = raft.take_ready().sends
    raft.failed(2, 2, again, Unanswered.GONE)
    assert raft.vote(2, vote(1, pre=True, who=THIRD)).granted


def test_a_granted_pre_vote_does_not_bind_the_voter() -> None:
    raft, _ = machine()
    assert raft.vote(0, vote(0, pre=True)).granted
    assert raft.take_ready().persist is None
    assert raft.vote(0, vote(1, who=THIRD)).granted


def test_a_vote_request_for_another_voter_key_is_refused() -> None:
    raft, _ = machine()
    request = vote(1)._replace(voter=ReplicaKey(1, Uuid.of(9)))
    own = Raft(ReplicaKey(1, Uuid.of(8)), raft.voters, log_of(), TIMEOUTS, lambda _: 0)
    own.start(0, None)
    assert own.vote(0, request).error is ErrorCode.INVALID_VOTER_KEY


def test_a_request_with_an_old_epoch_is_fenced() -> None:
    raft, _ = machine(stored=ElectionState(5))
    assert raft.vote(0, vote(4)).error is ErrorCode.FENCED_LEADER_EPOCH
    assert raft.begin_epoch(0, BeginEpoch(4, 2, ME)).error is ErrorCode.FENCED_LEADER_EPOCH
    assert raft.end_epoch(0, EndEpoch(4, 2, ())).error is ErrorCode.FENCED_LEADER_EPOCH


def test_a_higher_epoch_deposes_a_leader() -> None:
    raft, log = leader()
    durable(log)
    assert raft.vote(5, vote(9, 1, 1)).granted
    assert role_of(raft) is Unattached
    assert raft.take_ready().persist == ElectionState(9, NO_NODE, SECOND)


def test_a_leader_that_restarts_does_not_lead_its_epoch_again() -> None:
    raft, ready = machine(stored=ElectionState(7, 1))
    assert raft.epoch == 8
    assert ready.persist == ElectionState(8)
    assert raft.vote(0, vote(7)).error is ErrorCode.FENCED_LEADER_EPOCH


def test_a_follower_refuses_a_second_leader_of_its_epoch() -> None:
    raft, _ = follower()
    assert raft.begin_epoch(1, BeginEpoch(1, 3, ME)).error is ErrorCode.INVALID_REQUEST
    assert raft.leader_id == 2


# Following.


def test_a_follower_whose_leader_is_silent_sends_pre_votes_and_stays_follower_if_others_refuse() -> None:
    raft, _ = follower()
    raft.tick(2_000)
    assert role_of(raft) is Prospective
    assert (raft.epoch, raft.leader_id) == (1, 2)
    for peer, request in raft.take_ready().sends:
        raft.replied(2_001, peer, request, VoteReply(OK, 1, 2, False))
    assert isinstance(raft.role, Follower)
    assert raft.role.silence_ms == 4_001


def test_a_broken_connection_to_the_leader_causes_early_pre_votes_but_only_once() -> None:
    raft, fetch = follower()
    raft.failed(10, 2, fetch, Unanswered.GONE)
    assert raft.role.silence_ms < 20  # type: ignore[union-attr]
    raft.tick(20)
    for peer, request in raft.take_ready().sends:
        if isinstance(request, Vote):
            raft.replied(21, peer, request, VoteReply(OK, 1, 2, False))
    assert isinstance(raft.role, Follower)
    raft.tick(50)
    _, again = raft.take_ready().sends[-1]
    raft.failed(60, 2, again, Unanswered.GONE)
    assert raft.role.silence_ms > 2_000, "the others hear it, so it is this one's connection that is bad"


def test_a_fetch_without_a_response_is_repeated_and_the_leader_is_kept_until_the_fetch_timeout() -> None:
    raft, fetch = follower()
    raft.replied(1, 2, fetch, FetchReply(OK, 1, 2, 0))
    ((_, again),) = raft.take_ready().sends
    raft.failed(1_000, 2, again, Unanswered.LATE)
    raft.tick(1_020)
    assert [type(request) for _, request in raft.take_ready().sends] == [Fetch]
    assert not raft.vote(1_030, vote(1, pre=True)).granted
    raft.tick(2_001)
    assert role_of(raft) is Prospective


def test_a_voter_fetches_from_its_durable_end_offset() -> None:
    log = log_of(1)
    raft, fetch = follower(log)
    assert fetch.offset == 1
    raft.replied(1, 2, fetch, FetchReply(OK, 1, 2, 1, records=memoryview(b"x")))
    records = raft.take_ready().records
    assert records is not None
    assert bytes(records) == b"x"
    log.entries.append((1, None))
    raft.appended(2)
    assert raft.take_ready().sends == []
    durable(log)
    raft.flushed(3)
    ((_, following),) = raft.take_ready().sends
    assert isinstance(following, Fetch)
    assert following.offset == 2


def test_the_high_watermark_of_a_follower_is_at_most_its_log_end_and_never_goes_back() -> None:
    log = log_of(1, 1)
    raft, fetch = follower(log)
    raft.replied(1, 2, fetch, FetchReply(OK, 1, 2, 9))
    assert raft.high_watermark == 2
    ((_, fetch2),) = raft.take_ready().sends
    assert isinstance(fetch2, Fetch)
    raft.replied(2, 2, fetch2, FetchReply(OK, 1, 2, 1))
    assert raft.high_watermark == 2


@pytest.mark.parametrize(
    ("diverging", "end_offset"),
    [
        (OffsetAndEpoch(2, 1), 2),  # both have epoch 1, and the leader's ends earlier
        (OffsetAndEpoch(9, 2), 3),  # the leader has an epoch 2 that this log never saw
        (OffsetAndEpoch(4, 3), 4),
    ],
)
def test_a_follower_truncates_its_log_where_it_diverges(diverging: OffsetAndEpoch, end_offset: int) -> None:
    raft, fetch = follower(log_of(1, 1, 1, 3, 3), epoch=5)
    raft.replied(1, 2, fetch, FetchReply(OK, 5, 2, 0, diverging=diverging))
    ready = raft.take_ready()
    assert (ready.truncate_to, ready.sends) == (end_offset, [])


def test_committed_records_are_never_truncated() -> None:
    log = log_of(1, 1)
    raft, fetch = follower(log)
    raft.replied(1, 2, fetch, FetchReply(OK, 1, 2, 2))
    ((_, fetch2),) = raft.take_ready().sends
    assert isinstance(fetch2, Fetch)
    with pytest.raises(AssertionError, match="cut its log"):
        raft.replied(2, 2, fetch2, FetchReply(OK, 1, 2, 2, diverging=OffsetAndEpoch(1, 1)))


def test_a_response_to_a_fetch_of_an_earlier_epoch_is_ignored() -> None:
    raft, fetch = follower()
    raft.begin_epoch(1, BeginEpoch(2, 3, ME))
    raft.take_ready()
    raft.replied(2, 2, fetch, FetchReply(OK, 1, 2, 0, records=memoryview(b"x")))
    assert raft.take_ready().records is None


def test_an_observer_fetches_from_one_voter_after_the_other_to_find_the_leader() -> None:
    raft, ready = machine(voters=VoterSet.of(2, 3))
    ((peer, request),) = ready.sends
    assert peer == 2
    assert raft.deadline_ms == NEVER, "an observer holds no elections"
    raft.replied(1, peer, request, FetchReply(ErrorCode.NOT_LEADER_OR_FOLLOWER, 4, 3))
    ready = raft.take_ready()
    assert ready.persist == ElectionState(4, 3)
    assert ready.sends[0][0] == 3


# Leading.


def test_an_observer_fetches_when_its_log_has_been_synced() -> None:
    log = log_of(1)
    log.durable_end_offset = 0
    raft, ready = machine(log, voters=VoterSet.of(2, 3))
    assert ready.sends == [], "a fetch says what is on the disk"
    durable(log)
    raft.flushed(7)
    assert [type(request) for _, request in raft.take_ready().sends] == [Fetch]


def test_a_voter_without_a_known_leader_fetches_from_other_voters() -> None:
    """The voter set that it knows may be an old one."""
    _, ready = machine(stored=ElectionState(4))
    assert [(peer, type(request)) for peer, request in ready.sends] == [(2, Fetch)]


def test_a_removed_leader_leads_until_its_removal_is_committed() -> None:
    raft, log = leader()
    removed = VoterSet.of(2, 3)
    log.history = VoterHistory(raft.voters)
    log.entries.append((raft.epoch, removed))
    log.history.add_voters(1, removed)
    raft.voters_changed(4, removed)
    durable(log)
    answer_fetch(raft, SECOND, 2, now_ms=5)
    raft.tick(5)
    assert role_of(raft) is Leader, "one of two is no majority, and its own disk does not count"
    answer_fetch(raft, THIRD, 2, now_ms=6)
    assert raft.high_watermark == 2
    assert raft.deadline_ms <= 6
    raft.tick(6)
    assert role_of(raft) is Resigned


@pytest.mark.parametrize(("committed", "stands"), [(0, True), (1, True), (2, False)])
def test_a_removed_voter_may_be_elected_until_its_removal_is_committed_without_its_own_vote(
    committed: int, stands: bool
) -> None:
    log, remaining = log_of(1, 1), VoterSet.of(2)
    log.history = VoterHistory(VoterSet.of(1, 2))
    log.history.add_voters(1, remaining)
    raft = Raft(ME, remaining, log, TIMEOUTS, lambda _: 0)
    raft.high_watermark = committed
    raft.start(0, ElectionState(1))
    assert (role_of(raft) is Prospective) == stands
    if stands:
        for _ in range(2):
            ((peer, request),) = raft.take_ready().sends
            assert peer == 2
            raft.replied(1, peer, request, VoteReply(OK, raft.epoch, NO_NODE, True))
        assert role_of(raft) is Leader
        assert raft.take_ready().opens_epoch == (2,)


def answer_fetch(raft: Raft, who: ReplicaKey, offset: int, now_ms: int = 10, last_epoch: int = 1) -> FetchReply:
    return raft.fetch(now_ms, Fetch(raft.epoch, who, offset, last_epoch, 0))


def test_a_record_is_committed_when_a_majority_has_it_on_disk() -> None:
    raft, log = leader()
    assert answer_fetch(raft, SECOND, 1).high_watermark == 0, "the leader's own disk does not have it"
    durable(log)
    raft.flushed(11)
    assert raft.high_watermark == 1


def test_a_majority_without_the_leader_commits_records() -> None:
    raft, _ = leader()
    answer_fetch(raft, SECOND, 1)
    assert answer_fetch(raft, THIRD, 1).high_watermark == 1


def test_observers_do_not_count_for_the_majority() -> None:
    raft, log = leader()
    durable(log)
    raft.flushed(5)
    assert answer_fetch(raft, ReplicaKey(9), 1).high_watermark == 0
    assert answer_fetch(raft, ReplicaKey(-1), 1).high_watermark == 0
    assert isinstance(raft.role, Leader)
    assert [one.key.id for one in raft.role.progress.observers(raft.voters, 20)] == [9]


def test_records_of_an_earlier_epoch_are_committed_only_with_a_record_of_the_leaders_own_epoch() -> None:
    raft, log = leader(log_of(1, 1), ElectionState(1))
    assert raft.epoch == 2
    durable(log)
    raft.flushed(5)
    assert answer_fetch(raft, SECOND, 2).high_watermark == 0, "a majority has both, and that is not enough"
    assert answer_fetch(raft, SECOND, 3, last_epoch=2).high_watermark == 3


def test_a_voter_with_another_directory_id_does_not_count_as_the_same_voter() -> None:
    old, new = ReplicaKey(2, Uuid.of(1)), ReplicaKey(2, Uuid.of(2))
    voters = VoterSet(Voter(key, {}) for key in (ME, old, THIRD))
    log = log_of()
    raft = Raft(ME, voters, log, TIMEOUTS, lambda _: 0)
    raft.start(0, None)
    raft.tick(1)
    for now_ms in (2, 3):
        peer, request = raft.take_ready().sends[0]
        raft.replied(now_ms, peer, request, VoteReply(OK, raft.epoch, NO_NODE, True))
    assert raft.is_leader
    log.entries.append((1, None))
    durable(log)
    raft.flushed(4)
    assert answer_fetch(raft, new, 1).high_watermark == 0
    assert answer_fetch(raft, old, 1).high_watermark == 1


@pytest.mark.parametrize(
    ("offset", "last_epoch", "diverging"),
    [(3, 1, OffsetAndEpoch(2, 1)), (9, 3, OffsetAndEpoch(4, 3)), (2, 2, OffsetAndEpoch(2, 1)), (1, 1, None)],
)
def test_a_leader_answers_a_fetch_with_the_diverging_epoch_and_its_end_offset(
    offset: int, last_epoch: int, diverging: OffsetAndEpoch | None
) -> None:
    raft, log = leader(log_of(1, 1, 3), ElectionState(2))
    assert [epoch for epoch, _ in log.entries] == [1, 1, 3, 4]
    log.entries[3] = (3, None)
    assert answer_fetch(raft, SECOND, offset, last_epoch=last_epoch).diverging == diverging


def test_a_follower_behind_the_log_start_gets_the_id_of_the_snapshot() -> None:
    raft, log = leader(log_of(1, 1, 1))
    log.log_start_offset, log.latest_snapshot = 2, OffsetAndEpoch(2, 1)
    assert answer_fetch(raft, SECOND, 0, last_epoch=0).snapshot == OffsetAndEpoch(2, 1)
    assert answer_fetch(raft, SECOND, 3).snapshot is None


def test_only_the_leader_of_the_requested_epoch_answers_a_fetch() -> None:
    raft, _ = leader()
    assert raft.fetch(5, Fetch(0, SECOND, 0, 0, 0)).error is ErrorCode.FENCED_LEADER_EPOCH
    assert raft.fetch(5, Fetch(2, SECOND, 0, 0, 0)).error is ErrorCode.UNKNOWN_LEADER_EPOCH
    other, _ = follower()
    reply = other.fetch(5, Fetch(1, THIRD, 0, 0, 0))
    assert (reply.error, reply.leader_id) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, 2)


def test_a_leader_without_a_majority_of_fetching_voters_resigns() -> None:
    raft, _ = leader()
    answer_fetch(raft, SECOND, 0, now_ms=2_000, last_epoch=0)
    raft.tick(4_500)
    assert raft.is_leader
    raft.tick(5_000)
    assert role_of(raft) is Resigned
    assert raft.leader_id == NO_NODE


def test_a_leader_that_resigns_names_the_voter_with_the_longest_log_as_first_successor() -> None:
    raft, log = leader()
    log.entries.append((1, None))
    answer_fetch(raft, SECOND, 0, last_epoch=0)
    answer_fetch(raft, THIRD, 1)
    raft.resign(20, 1)
    sends = raft.take_ready().sends
    assert {peer for peer, _ in sends} == {2, 3}
    assert all(request == EndEpoch(1, 1, (THIRD, SECOND)) for _, request in sends)


def test_a_resigned_leader_moves_to_the_next_epoch_after_its_election_timeout() -> None:
    raft, _ = leader()
    raft.resign(20, 1)
    raft.tick(500)
    assert (role_of(raft), raft.epoch) == (Resigned, 1)
    raft.tick(5_000)
    assert (role_of(raft), raft.epoch) == (Unattached, 2)


def test_the_first_preferred_successor_sends_pre_votes_at_once_and_the_others_wait() -> None:
    first, _ = follower()
    first.end_epoch(10, EndEpoch(1, 2, (ME, THIRD)))
    assert role_of(first) is Prospective
    second, fetch = follower()
    second.replied(5, 2, fetch, FetchReply(OK, 1, 2, 0))
    second.end_epoch(10, EndEpoch(1, 2, (THIRD, ME)))
    assert isinstance(second.role, Follower)
    assert second.vote(11, vote(1, pre=True, who=THIRD)).granted


def test_a_leader_sends_begin_quorum_epoch_again_to_each_voter_that_does_not_fetch() -> None:
    raft, _ = machine()
    raft.tick(1)
    for now_ms in (2, 3):
        peer, request = raft.take_ready().sends[0]
        raft.replied(now_ms, peer, request, VoteReply(OK, raft.epoch, NO_NODE, True))
    begins = raft.take_ready().sends
    assert [(peer, type(request)) for peer, request in begins] == [(2, BeginEpoch), (3, BeginEpoch)]
    raft.failed(10, 3, begins[1][1], Unanswered.LATE)
    raft.replied(10, 2, begins[0][1], EpochReply(OK, 1, 1))
    raft.tick(30)
    assert [peer for peer, _ in raft.take_ready().sends] == [3]
    raft.tick(1_010)
    assert [peer for peer, _ in raft.take_ready().sends] == [2]


def test_a_quorum_state_older_than_the_log_is_replaced_by_the_epoch_of_the_log() -> None:
    raft, ready = machine(log_of(1, 6), ElectionState(3, NO_NODE, SECOND))
    assert raft.epoch == 6
    assert ready.persist == ElectionState(6)


# ---- A disk that forgets ----


@pytest.mark.parametrize("pre_vote", [True, False])
def test_a_voter_without_log_and_state_votes_only_for_candidates_with_an_empty_log(pre_vote: bool) -> None:
    raft = machine_with_memory(Memory.NEW)
    assert not raft.vote(1, Vote(1, SECOND, 1, 5, pre_vote, ME)).granted
    assert raft.vote(2, Vote(1, THIRD, 0, 0, pre_vote, ME)).granted


def test_a_voter_without_log_and_state_votes_again_for_the_candidate_that_it_has_elected() -> None:
    raft = machine_with_memory(Memory.NEW)
    assert raft.vote(1, Vote(1, SECOND, 0, 0, False, ME)).granted
    # SECOND wrote its first record, died before another voter had fetched it, and came back.
    assert not raft.vote(2, Vote(2, THIRD, 1, 1, False, ME)).granted
    assert raft.vote(3, Vote(3, SECOND, 1, 1, False, ME)).granted


def test_a_leader_that_has_committed_in_its_epoch_counts_as_having_its_whole_log() -> None:
    log = log_of()
    raft = machine_with_memory(Memory.NEW, log)
    raft.tick(1)
    for _ in ("would you", "do you"):
        peer, request = raft.take_ready().sends[0]
        raft.replied(2, peer, request, VoteReply(OK, raft.epoch, NO_NODE, True))
    assert raft.is_leader
    assert raft.memory is Memory.NEW
    log.entries.append((1, None))
    log.durable_end_offset = 1
    raft.flushed(3)
    raft.fetch(4, Fetch(1, SECOND, 1, 1, 0))
    assert (raft.high_watermark, raft.memory) == (1, Memory.WHOLE)


def test_a_voter_with_a_damaged_log_neither_votes_nor_becomes_a_candidate() -> None:
    raft = machine_with_memory(Memory.DAMAGED, log_of(1))
    assert not raft.vote(1, Vote(2, SECOND, 1, 5, False, ME)).granted
    raft.tick(100_000)
    assert isinstance(raft.role, Unattached)
    assert raft.role.election_ms == NEVER
    # It asks around instead.
    assert {type(request) for _, request in raft.take_ready().sends} == {Fetch}


def test_a_voter_with_a_damaged_log_counts_as_whole_when_it_has_all_committed_records() -> None:
    log = log_of(1, 1)
    raft = machine_with_memory(Memory.DAMAGED, log)
    raft.begin_epoch(1, BeginEpoch(3, 2, ME))

    def answer_fetch(end: int, high_watermark: int) -> None:
        (request,) = [one for _, one in raft.take_ready().sends if isinstance(one, Fetch)]
        log.entries += [(3, None)] * (end - len(log.entries))
        log.durable_end_offset = len(log.entries)
        raft.replied(2, 2, request, FetchReply(OK, 3, 2, high_watermark))
        raft.appended(2)

    # First, the leader has not committed anything of its own epoch: what it knows to be committed may not be all. Then
    # there is more than this member has.
    for end, high_watermark, memory in ((2, 2, Memory.DAMAGED), (3, 5, Memory.DAMAGED), (5, 5, Memory.WHOLE)):
        answer_fetch(end, high_watermark)
        assert raft.memory is memory
    raft.tick(100_000)
    assert isinstance(raft.role, Prospective)


def test_a_failed_snapshot_download_from_an_earlier_leader_does_not_affect_the_fetch_from_the_present_one() -> None:
    """`make sim SEED=125817`: the fetch stayed due while it was on its way, and the node's alarm rang without end."""
    raft, fetch = follower(log_of(1))
    raft.replied(1, 2, fetch, FetchReply(OK, 1, 2, 5, snapshot=OffsetAndEpoch(5, 1)))
    assert raft.take_ready().snapshot == OffsetAndEpoch(5, 1)
    raft.begin_epoch(2, BeginEpoch(2, 3, ME))
    ((peer, _),) = raft.take_ready().sends
    assert peer == 3
    raft.fetch_again(3)
    late_ms = 3 + TIMEOUTS.retry_backoff_ms
    raft.tick(late_ms)
    assert raft.take_ready().sends == [], "one fetch at a time"
    assert raft.deadline_ms > late_ms


def test_a_fetch_that_was_sent_before_a_snapshot_was_loaded_is_sent_again_after_it() -> None:
    log = log_of(1)
    raft, fetch = follower(log)
    raft.replied(1, 2, fetch, FetchReply(OK, 1, 2, 5, snapshot=OffsetAndEpoch(5, 1)))
    raft.take_ready()
    # It misses the leader, and comes back to it while the snapshot is on its way.
    raft.tick(1 + TIMEOUTS.fetch_timeout_ms)
    assert role_of(raft) is Prospective
    raft.begin_epoch(2_002, BeginEpoch(1, 2, ME))
    ((_, before),) = [one for one in raft.take_ready().sends if isinstance(one[1], Fetch)]
    log.entries = [(1, None)] * 5
    log.durable_end_offset, log.latest_snapshot = 5, OffsetAndEpoch(5, 1)
    raft.snapshot_loaded(2_003)
    ((_, after),) = raft.take_ready().sends
    assert isinstance(after, Fetch)
    assert after.offset == 5
    raft.replied(2_004, 2, before, FetchReply(OK, 1, 2, 5, records=memoryview(b"of the log before")))
    assert raft.take_ready().is_empty
