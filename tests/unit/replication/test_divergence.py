"""The offset from which the logs of leader and follower differ, and what a follower keeps."""

from __future__ import annotations

from pessoa.log.leader_epoch_cache import LeaderEpochCache
from pessoa.replication.divergence import Reset, reset_for_range, truncation_offset


def test_a_follower_truncates_to_the_end_of_the_common_epoch() -> None:
    follower = LeaderEpochCache([(1, 0), (2, 3)])
    assert truncation_offset(follower, 7, 2, 1, 3) == 3


def test_a_follower_in_the_leaders_epoch_truncates_to_the_shorter_of_both_logs() -> None:
    follower = LeaderEpochCache([(1, 0)])
    assert truncation_offset(follower, 9, 2, 1, 6) == 6


def test_a_follower_without_the_leaders_epoch_truncates_to_the_end_of_the_largest_below_it() -> None:
    # The leader has epochs 1 and 3, we have 2 and 4: neither knows the other's.
    follower = LeaderEpochCache([(2, 5), (4, 8)])
    assert truncation_offset(follower, 12, 6, 3, 10) == 8


def test_a_follower_keeps_records_of_a_common_epoch_above_its_high_watermark() -> None:
    follower = LeaderEpochCache([(1, 0), (2, 8)])
    assert truncation_offset(follower, 10, 3, 1, 8) == 8


def test_a_follower_without_a_common_epoch_truncates_to_the_end_of_the_leaders_epoch() -> None:
    follower = LeaderEpochCache([(5, 20)])
    assert truncation_offset(follower, 30, 25, 2, 10) == 10


def test_a_follower_truncates_to_its_high_watermark_when_the_leader_knows_no_epoch() -> None:
    assert truncation_offset(LeaderEpochCache([(1, 0)]), 10, 4, -1, -1) == 4


def test_a_follower_that_is_ahead_of_the_leader_truncates_to_the_leaders_end() -> None:
    assert reset_for_range(log_end_offset=50, leader_start_offset=10, leader_end_offset=40) == Reset(40, False)


def test_a_follower_that_ends_before_the_leaders_start_restarts_there() -> None:
    assert reset_for_range(log_end_offset=5, leader_start_offset=10, leader_end_offset=40) == Reset(10, True)


def test_a_follower_within_the_leaders_range_goes_on() -> None:
    assert reset_for_range(log_end_offset=20, leader_start_offset=10, leader_end_offset=40) == Reset(20, False)
