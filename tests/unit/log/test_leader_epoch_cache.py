"""The leader epochs of a log: where each begins and ends, conflicts between entries, and the checkpoint file."""

from __future__ import annotations

import pytest

from pessoa.log.checkpoints import CorruptCheckpoint
from pessoa.log.leader_epoch_cache import UNDEFINED, LeaderEpochCache

KNOWN = [(0, 0), (2, 15), (5, 40)]


@pytest.mark.parametrize(
    ("epoch", "start_offset", "changes", "entries"),
    [
        (6, 50, True, [*KNOWN, (6, 50)]),
        # The same epoch further on is what every later batch of it says.
        (5, 41, False, KNOWN),
        (5, 40, False, KNOWN),
        (5, 39, True, [(0, 0), (2, 15), (5, 39)]),
        # A later leader from where an earlier one began: that one wrote nothing.
        (6, 40, True, [(0, 0), (2, 15), (6, 40)]),
        (6, 20, True, [(0, 0), (2, 15), (6, 20)]),
        (6, 15, True, [(0, 0), (6, 15)]),
        (6, 0, True, [(6, 0)]),
        (3, 50, True, [(0, 0), (2, 15), (3, 50)]),
        (2, 50, True, [(0, 0), (2, 50)]),
        (1, 20, True, [(0, 0), (1, 20)]),
        (0, 60, True, [(0, 60)]),
    ],
)
def test_a_new_entry_wins_over_those_it_contradicts(
    epoch: int, start_offset: int, changes: bool, entries: list[tuple[int, int]]
) -> None:
    epochs = LeaderEpochCache(KNOWN)
    assert epochs.assign(epoch, start_offset) is changes
    assert epochs.entries() == entries
    assert epochs.latest_epoch == entries[-1][0]


@pytest.mark.parametrize(("epoch", "start_offset"), [(-1, 0), (0, -1)])
def test_a_negative_epoch_or_start_offset_is_refused(epoch: int, start_offset: int) -> None:
    with pytest.raises(ValueError, match="no leader has epoch"):
        LeaderEpochCache().assign(epoch, start_offset)


@pytest.mark.parametrize(
    ("requested", "found"),
    [
        (-1, (-1, -1)),
        (0, (0, 15)),
        (1, (0, 15)),
        (2, (2, 40)),
        (3, (2, 40)),
        (4, (2, 40)),
        (5, (5, 100)),
        (6, (-1, -1)),
    ],
)
def test_an_epoch_ends_where_the_next_begins_and_the_latest_where_the_log_does(
    requested: int, found: tuple[int, int]
) -> None:
    assert LeaderEpochCache(KNOWN).end_offset_for(requested, log_end_offset=100) == found


def test_an_epoch_older_than_the_log_ends_where_the_log_begins() -> None:
    assert LeaderEpochCache([(3, 20), (4, 30)]).end_offset_for(1, 100) == (1, 20)


def test_an_empty_leader_epoch_cache_answers_every_lookup_with_none_or_undefined() -> None:
    epochs = LeaderEpochCache()
    assert epochs.end_offset_for(0, 100) is UNDEFINED
    assert epochs.end_offset_for(-1, 100) is UNDEFINED
    assert (epochs.latest_epoch, epochs.earliest_entry) == (None, None)
    assert epochs.previous_epoch() is None
    assert epochs.epoch_for_offset(5) is None
    assert not epochs.truncate_from_end(0)
    assert not epochs.truncate_from_start(100)


@pytest.mark.parametrize(("offset", "epoch"), [(4, None), (5, 1), (14, 1), (15, 2), (39, 2), (40, 5), (10**12, 5)])
def test_an_offset_belongs_to_the_last_epoch_that_began_before_it(offset: int, epoch: int | None) -> None:
    assert LeaderEpochCache([(1, 5), (2, 15), (5, 40)]).epoch_for_offset(offset) == epoch


@pytest.mark.parametrize(
    ("end_offset", "entries"),
    [
        (100, KNOWN),
        (41, KNOWN),
        (40, [(0, 0), (2, 15)]),
        (16, [(0, 0), (2, 15)]),
        (15, [(0, 0)]),
        (1, [(0, 0)]),
        (0, []),
        (-1, KNOWN),
    ],
)
def test_truncating_the_tail_of_the_log_drops_epochs_that_begin_in_it(
    end_offset: int, entries: list[tuple[int, int]]
) -> None:
    epochs = LeaderEpochCache(KNOWN)
    assert epochs.truncate_from_end(end_offset) is (entries != KNOWN)
    assert epochs.entries() == entries
    assert epochs.latest_epoch == (entries[-1][0] if entries else None)


@pytest.mark.parametrize(
    ("start_offset", "entries"),
    [
        (0, KNOWN),
        (1, [(0, 1), (2, 15), (5, 40)]),
        (14, [(0, 14), (2, 15), (5, 40)]),
        (15, [(2, 15), (5, 40)]),
        (16, [(2, 16), (5, 40)]),
        (40, [(5, 40)]),
        (99, [(5, 99)]),
    ],
)
def test_truncating_the_head_of_the_log_moves_the_start_of_the_epoch_there(
    start_offset: int, entries: list[tuple[int, int]]
) -> None:
    epochs = LeaderEpochCache(KNOWN)
    assert epochs.truncate_from_start(start_offset) is (entries != KNOWN)
    assert epochs.entries() == entries
    assert epochs.latest_epoch == 5


def test_a_head_that_ends_before_the_first_known_epoch_changes_nothing() -> None:
    epochs = LeaderEpochCache([(3, 20)])
    assert not epochs.truncate_from_start(19)
    assert epochs.entries() == [(3, 20)]


def test_previous_epoch_returns_the_next_lower_epoch_of_the_cache() -> None:
    epochs = LeaderEpochCache(KNOWN)
    assert [epochs.previous_epoch(epoch) for epoch in (0, 1, 2, 3, 5, 9)] == [None, 0, 0, 2, 2, 5]
    assert epochs.previous_epoch() == 2
    assert epochs.earliest_entry == (0, 0)


def test_the_checkpoint_is_one_line_for_each_epoch() -> None:
    epochs = LeaderEpochCache(KNOWN)
    assert epochs.render() == "0\n3\n0 0\n2 15\n5 40\n"
    assert LeaderEpochCache.parse(epochs.render()) == epochs
    assert LeaderEpochCache().render() == "0\n0\n"
    assert LeaderEpochCache.parse("") == LeaderEpochCache.parse("0\n0\n") == LeaderEpochCache()


def test_of_epochs_in_a_checkpoint_that_contradict_each_other_the_later_line_counts() -> None:
    assert LeaderEpochCache.parse("0\n3\n0 0\n4 10\n2 20\n").entries() == [(0, 0), (2, 20)]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("1\n0\n", "leader-epoch-checkpoint, line 1: the version is 1, and only 0 is known"),
        ("0\n1\n3\n", "leader-epoch-checkpoint, line 3: '3' is not epoch, start offset"),
        ("0\n1\n3 x\n", "leader-epoch-checkpoint, line 3: 'x' is not a number"),
        ("0\n1\n-3 7\n", "leader-epoch-checkpoint, line 3: -3 is not between 0 and 2147483647"),
        ("0\n2\n3 7\n", "leader-epoch-checkpoint, line 2: 2 entries are promised, and 1 follow"),
    ],
)
def test_a_damaged_checkpoint_says_what_is_wrong_and_where(text: str, problem: str) -> None:
    with pytest.raises(CorruptCheckpoint) as corrupt:
        LeaderEpochCache.parse(text)
    assert str(corrupt.value) == problem


def test_repr_of_a_leader_epoch_cache_lists_its_epochs_and_start_offsets() -> None:
    assert repr(LeaderEpochCache(KNOWN)) == "LeaderEpochCache(0 from 0, 2 from 15, 5 from 40)"
