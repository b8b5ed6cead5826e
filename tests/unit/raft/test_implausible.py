"""Messages of other nodes that are refused: implausible epochs, and fetches of too many different replicas."""

from __future__ import annotations

import pytest

from pessoa.raft.machine import MAX_EPOCH_LEAP
from pessoa.raft.messages import NO_NODE, BeginEpoch, ElectionState, EndEpoch, Fetch, ReplicaKey, VoteReply
from pessoa.raft.progress import MAX_OBSERVERS
from pessoa.raft.roles import Leader
from pessoa.wire.errors import ErrorCode
from tests.unit.raft.test_machine import ME, OK, durable, leader, log_of, machine, prospective, vote

LAST_EPOCH = (1 << 31) - 1
HERE = 5


@pytest.mark.parametrize("epoch", [LAST_EPOCH, HERE + MAX_EPOCH_LEAP + 1])
def test_a_request_with_an_implausibly_high_epoch_is_refused_and_changes_no_state(epoch: int) -> None:
    raft, _ = machine(log_of(1, HERE), ElectionState(HERE))
    assert raft.vote(1, vote(epoch, epoch, 1_000)).error is ErrorCode.INVALID_REQUEST
    assert raft.vote(1, vote(epoch, epoch, 1_000, pre=True)).error is ErrorCode.INVALID_REQUEST
    assert raft.begin_epoch(1, BeginEpoch(epoch, 2, ME)).error is ErrorCode.INVALID_REQUEST
    assert raft.end_epoch(1, EndEpoch(epoch, 2, ())).error is ErrorCode.INVALID_REQUEST
    assert raft.epoch == HERE
    assert raft.take_ready().persist is None


def test_a_response_with_an_implausibly_high_epoch_is_ignored() -> None:
    raft, ready = prospective(log_of(1, HERE), ElectionState(HERE))
    (peer, request), *_ = ready.sends
    raft.replied(2, peer, request, VoteReply(OK, LAST_EPOCH, NO_NODE, False))
    assert raft.epoch == HERE


def test_a_node_may_have_missed_many_elections() -> None:
    raft, _ = machine(log_of(1, HERE), ElectionState(HERE))
    assert raft.vote(1, vote(HERE + MAX_EPOCH_LEAP, HERE, 2)).granted
    assert raft.epoch == HERE + MAX_EPOCH_LEAP


def test_a_node_without_an_epoch_follows_the_first_leader_that_contacts_it() -> None:
    raft, _ = machine()
    assert raft.begin_epoch(1, BeginEpoch(MAX_EPOCH_LEAP + 7, 2, ME)).error is OK
    assert raft.epoch == MAX_EPOCH_LEAP + 7


def test_a_leader_tracks_a_bounded_number_of_observers_and_all_voters() -> None:
    raft, log = leader()
    durable(log)
    raft.flushed(4)
    assert isinstance(raft.role, Leader)
    for who in (2, 3):
        raft.fetch(5, Fetch(raft.epoch, ReplicaKey(who), 1, raft.epoch, 0))
    for number in range(3 * MAX_OBSERVERS):
        raft.fetch(6 + number, Fetch(raft.epoch, ReplicaKey(100 + number), 0, 0, 0))
    known = raft.role.progress.replicas
    assert {2, 3, 100 + 3 * MAX_OBSERVERS - 1} <= set(known)
    assert len(known) <= MAX_OBSERVERS + 3
    assert raft.role.progress.end_offset_of(ReplicaKey(2)) == 1
