"""Where logs part, and what a follower keeps."""

from __future__ import annotations

from pessoa.log.leader_epochs import LeaderEpochs
from pessoa.replication.divergence import Reset, reset_for_range, truncation_offset


def test_a_tail_that_the_leader_does_not_have_is_cut_where_the_common_epoch_ends() -> None:
    follower = LeaderEpochs([(1, 0), (2, 3)])
    assert truncation_offset(follower, 7, 2, 1, 3) == 3


def test_within_one_epoch_the_shorter_log_decides() -> None:
    follower = LeaderEpochs([(1, 0)])
    assert truncation_offset(follower, 9, 2, 1, 6) == 6


def test_a_follower_that_does_not_know_the_leaders_epoch_cuts_to_the_largest_below_it() -> None:
    # The leader has epochs 1 and 3, we have 2 and 4: neither knows the other's.
    follower = LeaderEpochs([(2, 5), (4, 8)])
    assert truncation_offset(follower, 12, 6, 3, 10) == 8


def test_what_is_committed_may_lie_above_the_known_high_watermark_and_is_kept() -> None:
    follower = LeaderEpochs([(1, 0), (2, 8)])
    assert truncation_offset(follower, 10, 3, 1, 8) == 8


def test_logs_without_a_common_epoch_share_nothing() -> None:
    follower = LeaderEpochs([(5, 20)])
    assert truncation_offset(follower, 30, 25, 2, 10) == 10


def test_a_leader_that_cannot_say_leaves_the_high_watermark() -> None:
    assert truncation_offset(LeaderEpochs([(1, 0)]), 10, 4, -1, -1) == 4


def test_who_has_more_than_a_leader_cuts_to_its_end() -> None:
    assert reset_for_range(log_end_offset=50, leader_start_offset=10, leader_end_offset=40) == Reset(40, False)


def test_who_ends_before_the_leader_begins_starts_anew_there() -> None:
    assert reset_for_range(log_end_offset=5, leader_start_offset=10, leader_end_offset=40) == Reset(10, True)


def test_who_is_within_the_leaders_range_after_all_goes_on() -> None:
    assert reset_for_range(log_end_offset=20, leader_start_offset=10, leader_end_offset=40) == Reset(20, False)
