"""The checkers report each kind of inconsistent history by its name."""

from __future__ import annotations

import pytest

from tests.simulation.history import History, Outcome, TopicPartition, Violation, Write

T0 = TopicPartition("t", 0)


@pytest.fixture
def history() -> History:
    return History()


def acknowledged(history: History, value: bytes, offset: int) -> Write:
    write = history.begin_write(value, T0, "p")
    history.acknowledge(write, offset)
    return write


def check(history: History, uncommitted: dict[int, bytes], committed: dict[int, bytes] | None = None) -> None:
    history.check_complete({T0: uncommitted}, {T0: uncommitted if committed is None else committed})


def test_the_checker_passes_a_consistent_history(history: History) -> None:
    acknowledged(history, b"a", 0)
    history.begin_write(b"maybe", T0, "p")
    history.see("r", T0, 0, b"a", is_committed=True)
    check(history, {0: b"a"})
    check(history, {0: b"a", 1: b"maybe"})


def test_the_checker_reports_an_acknowledged_record_that_is_missing(history: History) -> None:
    acknowledged(history, b"a", 0)
    with pytest.raises(Violation, match="lost"):
        check(history, {})


def test_the_checker_reports_a_record_that_was_read_and_is_missing(history: History) -> None:
    history.begin_write(b"a", T0, "p")
    history.see("r", T0, 0, b"a", is_committed=False)
    with pytest.raises(Violation, match="lost"):
        check(history, {})


def test_the_checker_reports_a_value_at_two_offsets(history: History) -> None:
    history.begin_write(b"a", T0, "p")
    history.see("r", T0, 0, b"a", is_committed=False)
    with pytest.raises(Violation, match="duplicate"):
        history.see("r", T0, 5, b"a", is_committed=False)


def test_the_checker_reports_an_offset_with_two_values(history: History) -> None:
    for value in (b"a", b"b"):
        history.begin_write(value, T0, "p")
    history.see("r", T0, 0, b"a", is_committed=False)
    with pytest.raises(Violation, match="inconsistent offsets"):
        history.see("s", T0, 0, b"b", is_committed=False)


def test_the_checker_reports_a_value_at_another_offset_than_acknowledged(history: History) -> None:
    acknowledged(history, b"a", 3)
    with pytest.raises(Violation, match=r"t-0@4.*t-0@3"):
        history.see("r", T0, 4, b"a", is_committed=False)


def test_the_checker_reports_a_value_that_was_never_written(history: History) -> None:
    with pytest.raises(Violation, match="was never written"):
        history.see("r", T0, 4, b"a", is_committed=False)


def test_the_checker_reports_visible_records_of_an_aborted_transaction(history: History) -> None:
    transaction = history.begin_transaction("x")
    history.begin_write(b"a", T0, "p", transaction)
    transaction.outcome = Outcome.FAILED
    history.see("r0", T0, 0, b"a", is_committed=False)
    with pytest.raises(Violation, match="aborted read"):
        history.see("r1", T0, 0, b"a", is_committed=True)
    with pytest.raises(Violation, match="aborted read"):
        check(history, {0: b"a"})
    check(history, {0: b"a"}, {})


@pytest.mark.parametrize("outcome", [Outcome.OK, Outcome.OPEN])
def test_the_checker_reports_a_partly_visible_transaction(history: History, outcome: Outcome) -> None:
    transaction = history.begin_transaction("x")
    for offset, value in enumerate((b"a", b"b")):
        history.acknowledge(history.begin_write(value, T0, "p", transaction), offset)
    transaction.outcome = outcome
    with pytest.raises(Violation, match="torn"):
        check(history, {0: b"a", 1: b"b"}, {0: b"a"})
    check(history, {0: b"a", 1: b"b"})


def test_the_checker_reports_records_of_a_producer_out_of_order(history: History) -> None:
    for value in (b"a", b"b"):
        history.begin_write(value, T0, "p")
    with pytest.raises(Violation, match="order"):
        check(history, {0: b"b", 1: b"a"})


def test_the_checker_reports_a_log_end_that_goes_back_for_a_reader(history: History) -> None:
    history.see_latest("r", T0, 0, 10, asked_floor=0)
    with pytest.raises(Violation, match="ends at 9"):
        history.see_latest("r", T0, 0, 9, asked_floor=history.latest_floor("r", T0, 0))


def test_the_checker_allows_an_earlier_log_end_from_a_deposed_leader_to_a_reader_that_knows_no_later_one(
    history: History,
) -> None:
    """`make sim SEED=125689`: two readers of committed records shared one floor."""
    history.see_latest("r", T0, 1, 10, asked_floor=history.latest_floor("r", T0, 1))
    history.see_latest("s", T0, 1, 9, asked_floor=history.latest_floor("s", T0, 1))
    assert history.latest_floor("r", T0, 1) == 10


def test_the_checker_requires_every_reported_log_end_after_all_faults_have_healed(history: History) -> None:
    history.see_latest("r", T0, 1, 10, asked_floor=0)
    history.see_latest("s", T0, 1, 9, asked_floor=0)
    history.see_latest("s", T0, 0, 12, asked_floor=0)
    floor = history.latest_floor_of_all(T0, 1)
    with pytest.raises(Violation, match="ends at 9"):
        history.see_latest("final", T0, 1, 9, asked_floor=floor)
    history.see_latest("final", T0, 1, 10, asked_floor=floor)


def test_the_checker_reports_two_owners_of_a_partition_in_one_generation(history: History) -> None:
    history.own("g", 1, [T0], "a")
    history.own("g", 2, [T0], "b")
    with pytest.raises(Violation, match="belongs to a and to b"):
        history.own("g", 1, [T0], "b")


def test_the_checker_reports_a_commit_by_a_previous_owner_of_a_partition(history: History) -> None:
    history.own("g", 1, [T0], "a")
    history.own("g", 2, [T0], "b")
    history.own("g", 1, [T0], "a")
    newest = history.newest_owner("g", T0)
    history.check_owner("g", 2, T0, "b", newest)
    history.check_owner("g", 1, T0, "a", (1, "a"))
    with pytest.raises(Violation, match="b had got it in 2 before"):
        history.check_owner("g", 1, T0, "a", newest)


def copied(*sources: int) -> History:
    """Return a history of a source with four committed records, some of which were copied, each by one write."""
    history = History()
    for number, offset in enumerate(sources):
        value = b"c:%d" % number
        history.begin_write(value, TopicPartition("copies", 0), "c")
        history.copies[value] = (T0, offset)
    return history


@pytest.mark.parametrize(
    ("sources", "end", "complaint"),
    [
        ((0, 1, 3), 4, None),
        ((0, 1), 3, None),
        ((), 0, None),
        ((0, 3), 4, "1 was not copied"),
        ((0, 1, 3), 2, "3 was copied, and the committed offset is 2"),
        ((0, 1, 1), 3, "copied twice"),
    ],
)
def test_the_checker_requires_one_copy_of_every_record_up_to_the_committed_offset(
    sources: tuple[int, ...], end: int, complaint: str | None
) -> None:
    history = copied(*sources)
    # Offset 2 has a marker.
    committed = {
        T0: {0: b"p:0", 1: b"p:1", 3: b"p:3"},
        TopicPartition("copies", 0): {number: b"c:%d" % number for number in range(len(sources))},
    }
    if complaint is None:
        history.check_copies(committed, {T0: end})
    else:
        with pytest.raises(Violation, match=complaint):
            history.check_copies(committed, {T0: end})


def keyed(history: History, key: bytes, value: bytes, offset: int, *, is_tombstone: bool = False) -> Write:
    write = acknowledged(history, value, offset)
    write.key, write.is_tombstone = key, is_tombstone
    return write


def test_the_checker_allows_a_missing_write_in_a_compacted_topic_only_for_a_later_one_with_its_key() -> None:
    history = History(["t"])
    keyed(history, b"k", b"a", 0)
    keyed(history, b"other", b"b", 1)
    keyed(history, b"k", b"c", 2)
    history.see("r", T0, 0, b"a", is_committed=True)
    check(history, {1: b"b", 2: b"c"})
    with pytest.raises(Violation, match="lost"):
        check(history, {0: b"a", 2: b"c"})


def test_the_checker_accepts_a_tombstone_as_reason_for_a_missing_record_only_if_it_may_be_removed_itself() -> None:
    for drops_tombstones in (True, False):
        history = History(["t"], drops_tombstones=drops_tombstones)
        keyed(history, b"k", b"a", 0)
        keyed(history, b"k", b"deleted", 1, is_tombstone=True)
        check(history, {1: b"deleted"})
        if drops_tombstones:
            check(history, {})
        else:
            with pytest.raises(Violation, match="lost"):
                check(history, {})


def test_the_checker_accepts_a_transaction_of_which_a_part_was_compacted() -> None:
    history = History(["t"])
    transaction = history.begin_transaction("x")
    for offset, value in enumerate((b"a", b"b")):
        write = history.begin_write(value, T0, "p", transaction)
        write.key = b"k%d" % offset
        history.acknowledge(write, offset)
    transaction.outcome = Outcome.OK
    keyed(history, b"k0", b"c", 3)
    check(history, {1: b"b", 3: b"c"})
    with pytest.raises(Violation, match="lost"):
        check(history, {0: b"a", 3: b"c"})
