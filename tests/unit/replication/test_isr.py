"""Which replicas are in sync, and the high watermark, rule by rule."""

from __future__ import annotations

import pytest

from pessoa.replication.isr import UNKNOWN, Follower, InSyncReplicas, IsrAnswer
from pessoa.wire.errors import ErrorCode

LAG_MS = 10_000
LEADER_EPOCH = 4
BROKER_EPOCH = 77


def leading(isr: tuple[int, ...] = (1, 2, 3), end: int = 100, now_ms: int = 0) -> InSyncReplicas:
    in_sync = InSyncReplicas(1)
    in_sync.update(LEADER_EPOCH, 9, (1, 2, 3), isr, end, now_ms)
    return in_sync


def all_eligible(_: Follower) -> bool:
    return True


def none_eligible(_: Follower) -> bool:
    return False


def watermark(in_sync: InSyncReplicas, end: int, *, least: int = 1, now_ms: int = 0) -> int:
    return in_sync.high_watermark(end, end, least, now_ms, LAG_MS, none_eligible)


def fetch(in_sync: InSyncReplicas, replica: int, offset: int, end: int, now_ms: int = 0) -> Follower:
    follower = in_sync.followers[replica]
    follower.note_fetch(offset, 0, end, 20 + replica, now_ms)
    return follower


def test_the_high_watermark_is_the_least_end_of_the_in_sync_replicas() -> None:
    in_sync = leading()
    assert watermark(in_sync, 110) == UNKNOWN
    fetch(in_sync, 2, 110, 110)
    assert watermark(in_sync, 110) == UNKNOWN
    fetch(in_sync, 3, 105, 110)
    assert watermark(in_sync, 110) == 105


def test_a_replica_that_is_not_in_sync_does_not_hold_up_the_high_watermark() -> None:
    in_sync = leading(isr=(1, 2))
    fetch(in_sync, 2, 110, 110)
    fetch(in_sync, 3, 50, 110)
    assert watermark(in_sync, 110) == 110


def test_the_high_watermark_waits_for_a_caught_up_follower_that_may_join() -> None:
    in_sync = leading(isr=(1, 2))
    fetch(in_sync, 2, 110, 110)
    fetch(in_sync, 3, 109, 109, now_ms=5)
    assert in_sync.high_watermark(110, 110, 1, 6, LAG_MS, all_eligible) == 109
    assert in_sync.high_watermark(110, 110, 1, 6, LAG_MS, none_eligible) == 110


def test_the_high_watermark_is_at_most_the_offset_up_to_which_the_leader_counts_itself() -> None:
    in_sync = leading(isr=(1,))
    assert in_sync.high_watermark(110, 103, 1, 0, LAG_MS, none_eligible) == 103


def test_the_high_watermark_does_not_move_below_min_insync_replicas() -> None:
    in_sync = leading(isr=(1, 2))
    fetch(in_sync, 2, 110, 110)
    assert watermark(in_sync, 110, least=2) == 110
    assert watermark(in_sync, 110, least=3) == UNKNOWN
    # A topic cannot require more replicas than it has.
    in_sync.update(LEADER_EPOCH, 10, (1, 2, 3), (1, 2, 3), 110, 0)
    fetch(in_sync, 3, 110, 110)
    assert watermark(in_sync, 110, least=5) == 110


def test_a_replica_counts_for_the_high_watermark_from_its_proposal_on() -> None:
    in_sync = leading(isr=(1, 2))
    fetch(in_sync, 2, 100, 100)
    third = fetch(in_sync, 3, 100, 100)
    assert in_sync.propose_joining(third, 100, BROKER_EPOCH, all_eligible) is not None
    assert in_sync.isr == (1, 2)
    assert in_sync.maximal == (1, 2, 3)
    fetch(in_sync, 2, 110, 110)
    assert watermark(in_sync, 110) == 100


def test_a_replica_counts_for_the_high_watermark_until_the_controller_has_removed_it() -> None:
    in_sync = leading()
    fetch(in_sync, 2, 110, 110, now_ms=LAG_MS + 1)
    change = in_sync.propose_leaving(110, LAG_MS + 1, LAG_MS, BROKER_EPOCH)
    assert change is not None
    assert change.isr == (1, 2)
    assert watermark(in_sync, 110, now_ms=LAG_MS + 1) == UNKNOWN
    in_sync.apply_answer(change, IsrAnswer(ErrorCode.NONE, LEADER_EPOCH, 10, (1, 2)))
    assert watermark(in_sync, 110, now_ms=LAG_MS + 1) == 110


def test_a_proposed_isr_names_the_broker_epochs_of_its_replicas() -> None:
    in_sync = leading(isr=(1, 2))
    change = in_sync.propose_joining(fetch(in_sync, 3, 100, 100), 100, BROKER_EPOCH, all_eligible)
    assert change is not None
    assert change.isr == (1, 2, 3)
    assert change.broker_epochs == (BROKER_EPOCH, UNKNOWN, 23)
    assert (change.leader_epoch, change.partition_epoch) == (LEADER_EPOCH, 9)


@pytest.mark.parametrize(
    ("offset", "high_watermark", "joins"),
    [
        (99, 90, False),  # below the start of this leader's epoch
        (100, 90, True),
        (104, 105, False),  # below the high watermark
        (105, 105, True),
    ],
)
def test_a_follower_joins_the_isr_from_the_high_watermark_and_the_start_of_the_leader_epoch_on(
    offset: int, high_watermark: int, joins: bool
) -> None:
    in_sync = leading(isr=(1, 2), end=100)
    follower = fetch(in_sync, 3, offset, 110)
    assert (in_sync.propose_joining(follower, high_watermark, BROKER_EPOCH, all_eligible) is not None) == joins


def test_a_follower_that_is_not_eligible_does_not_join() -> None:
    in_sync = leading(isr=(1, 2))
    assert in_sync.propose_joining(fetch(in_sync, 3, 100, 100), 100, BROKER_EPOCH, none_eligible) is None


def test_one_isr_change_is_in_flight_at_a_time() -> None:
    in_sync = leading(isr=(1,))
    assert in_sync.propose_joining(fetch(in_sync, 2, 100, 100), 100, BROKER_EPOCH, all_eligible) is not None
    assert in_sync.propose_joining(fetch(in_sync, 3, 100, 100), 100, BROKER_EPOCH, all_eligible) is None
    assert in_sync.propose_leaving(100, LAG_MS * 9, LAG_MS, BROKER_EPOCH) is None


def test_a_follower_that_is_always_a_little_behind_counts_as_caught_up() -> None:
    in_sync = leading()
    for second in range(1, 60):
        # Every time it has what the leader had at its last fetch.
        for replica in (2, 3):
            fetch(in_sync, replica, 100 + 10 * (second - 1), 100 + 10 * second, now_ms=1000 * second)
    assert in_sync.propose_leaving(700, 59_000, LAG_MS, BROKER_EPOCH) is None


def test_a_follower_that_fetches_but_never_catches_up_leaves_the_isr() -> None:
    in_sync = leading()
    for second in range(1, 13):
        fetch(in_sync, 2, 100 + 10 * second, 100 + 10 * second, now_ms=1000 * second)
        fetch(in_sync, 3, 100, 100 + 10 * second, now_ms=1000 * second)
    change = in_sync.propose_leaving(220, 12_000, LAG_MS, BROKER_EPOCH)
    assert change is not None
    assert change.isr == (1, 2)


def test_while_nothing_is_appended_a_silent_follower_at_the_end_stays_in_sync() -> None:
    in_sync = leading()
    fetch(in_sync, 2, 100, 100)
    fetch(in_sync, 3, 100, 100)
    assert in_sync.propose_leaving(100, LAG_MS * 9, LAG_MS, BROKER_EPOCH) is None


def test_a_new_leader_counts_the_lag_of_its_isr_from_its_epoch_on() -> None:
    in_sync = leading(now_ms=50_000)
    assert in_sync.propose_leaving(100, 50_000 + LAG_MS, LAG_MS, BROKER_EPOCH) is None
    assert in_sync.propose_leaving(100, 50_001 + LAG_MS, LAG_MS, BROKER_EPOCH) is not None


def test_a_new_leader_epoch_forgets_the_log_ends_of_followers() -> None:
    in_sync = leading()
    fetch(in_sync, 2, 110, 110)
    fetch(in_sync, 3, 110, 110)
    assert watermark(in_sync, 110) == 110
    # Another broker led in epoch 5, and followers may have truncated their logs for it.
    in_sync.update(LEADER_EPOCH + 2, 12, (1, 2, 3), (1, 2, 3), 115, 0)
    assert watermark(in_sync, 115) == UNKNOWN
    fetch(in_sync, 2, 105, 115)
    fetch(in_sync, 3, 115, 115)
    assert watermark(in_sync, 115) == 105


def test_a_refused_isr_change_leaves_the_committed_isr() -> None:
    in_sync = leading(isr=(1, 2))
    change = in_sync.propose_joining(fetch(in_sync, 3, 100, 100), 100, BROKER_EPOCH, all_eligible)
    assert change is not None
    outcome = in_sync.apply_answer(change, IsrAnswer(ErrorCode.INELIGIBLE_REPLICA))
    assert outcome.has_changed
    assert not outcome.try_again
    assert in_sync.maximal == (1, 2)
    assert in_sync.pending is None


@pytest.mark.parametrize("error", [ErrorCode.INVALID_UPDATE_VERSION, ErrorCode.FENCED_LEADER_EPOCH])
def test_after_an_outdated_isr_change_the_maximal_isr_counts_until_metadata_comes(error: ErrorCode) -> None:
    in_sync = leading(isr=(1, 2))
    change = in_sync.propose_joining(fetch(in_sync, 3, 100, 100), 100, BROKER_EPOCH, all_eligible)
    assert change is not None
    outcome = in_sync.apply_answer(change, IsrAnswer(error))
    assert outcome == (False, False)
    assert in_sync.maximal == (1, 2, 3)
    in_sync.update(LEADER_EPOCH, 10, (1, 2, 3), (1, 2), 100, 0)
    assert len(in_sync.maximal) == 2


def test_an_isr_change_without_an_answer_is_sent_again() -> None:
    in_sync = leading(isr=(1, 2))
    change = in_sync.propose_joining(fetch(in_sync, 3, 100, 100), 100, BROKER_EPOCH, all_eligible)
    assert change is not None
    assert in_sync.apply_answer(change, IsrAnswer(ErrorCode.UNKNOWN_SERVER_ERROR)).try_again
    assert in_sync.pending is change


def test_an_answer_to_an_isr_change_is_ignored_after_newer_metadata() -> None:
    in_sync = leading(isr=(1, 2))
    change = in_sync.propose_joining(fetch(in_sync, 3, 100, 100), 100, BROKER_EPOCH, all_eligible)
    assert change is not None
    in_sync.update(LEADER_EPOCH, 11, (1, 2, 3), (1,), 100, 0)
    assert in_sync.apply_answer(change, IsrAnswer(ErrorCode.NONE, LEADER_EPOCH, 10, (1, 2, 3))) == (False, False)
    assert in_sync.isr == (1,)


def test_the_low_watermark_is_unknown_until_every_live_follower_has_reported_its_log_start() -> None:
    in_sync = leading()
    assert in_sync.low_watermark(40, lambda _: True) == UNKNOWN
    in_sync.followers[2].log_start_offset = 40
    in_sync.followers[3].log_start_offset = 7
    assert in_sync.low_watermark(40, lambda _: True) == 7
    assert in_sync.low_watermark(40, lambda broker_id: broker_id != 3) == 40
