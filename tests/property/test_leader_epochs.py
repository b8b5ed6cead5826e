"""The leader epoch cache, compared with a log that has an epoch for each of its offsets."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pessoa.log.leader_epoch_cache import LeaderEpochCache

epochs = st.integers(0, 12)
offsets = st.integers(0, 60)


class PlainLog:
    """The model: every offset with the epoch of the leader that wrote it."""

    def __init__(self) -> None:
        self.start_offset = 0
        self.epoch_of: dict[int, int] = {}

    @property
    def end_offset(self) -> int:
        return max(self.epoch_of, default=self.start_offset - 1) + 1

    def append(self, epoch: int, count: int) -> None:
        for offset in range(self.end_offset, self.end_offset + count):
            self.epoch_of[offset] = epoch

    def cut(self, start_offset: int, end_offset: int) -> None:
        self.start_offset = start_offset
        self.epoch_of = {o: epoch for o, epoch in self.epoch_of.items() if start_offset <= o < end_offset}

    def end_offset_for(self, requested: int) -> tuple[int, int]:
        present = sorted(set(self.epoch_of.values()))
        later = [offset for offset, epoch in self.epoch_of.items() if epoch > requested]
        if requested == -1 or not present or requested > present[-1]:
            return -1, -1
        if requested == present[-1]:
            return requested, self.end_offset
        return max((epoch for epoch in present if epoch <= requested), default=requested), min(later)


append = st.tuples(st.just("append"), st.integers(0, 3), st.integers(1, 5))
cut_end = st.tuples(st.just("cut end"), offsets, st.just(0))
cut_start = st.tuples(st.just("cut start"), offsets, st.just(0))


@given(st.lists(st.one_of(append, append, cut_end, cut_start), max_size=30))
def test_leader_epoch_entries_agree_with_the_log(operations: list[tuple[str, int, int]]) -> None:
    log, real = PlainLog(), LeaderEpochCache()
    epoch = 0
    for name, number, count in operations:
        if name == "append":
            epoch += number
            real.assign(epoch, log.end_offset)
            log.append(epoch, count)
        elif name == "cut end":
            end_offset = max(number, log.start_offset)
            log.cut(log.start_offset, end_offset)
            real.truncate_from_end(end_offset)
        elif log.epoch_of:
            # At least one offset stays: an empty log has no epochs, but Kafka keeps the last one's.
            start_offset = min(max(number, log.start_offset), log.end_offset - 1)
            log.cut(start_offset, log.end_offset)
            real.truncate_from_start(start_offset)
        assert [real.epoch_for_offset(offset) for offset in log.epoch_of] == list(log.epoch_of.values())
        assert real.latest_epoch == max(log.epoch_of.values(), default=None)
        for requested in range(-1, epoch + 2):
            assert real.end_offset_for(requested, log.end_offset) == log.end_offset_for(requested)
        assert LeaderEpochCache.parse(real.render()) == real


@given(st.lists(st.tuples(epochs, offsets), max_size=30))
def test_epochs_and_offsets_rise_after_any_assignments(assigned: list[tuple[int, int]]) -> None:
    real = LeaderEpochCache()
    expected: list[tuple[int, int]] = []
    for epoch, offset in assigned:
        is_known = bool(expected) and expected[-1][0] == epoch and expected[-1][1] <= offset
        if not is_known:
            expected = [entry for entry in expected if entry[0] < epoch and entry[1] < offset] + [(epoch, offset)]
        assert real.assign(epoch, offset) is not is_known
        assert real.entries() == expected


@given(st.lists(st.tuples(epochs, offsets), max_size=12), offsets, st.booleans())
def test_a_truncation_says_whether_it_changed_anything(
    assigned: list[tuple[int, int]], offset: int, from_end: bool
) -> None:
    real = LeaderEpochCache(assigned)
    before = real.entries()
    changed = real.truncate_from_end(offset) if from_end else real.truncate_from_start(offset)
    assert changed is (real.entries() != before)
    assert real.latest_epoch == (real.entries()[-1].epoch if real.entries() else None)
    if from_end:
        assert real.entries() == [entry for entry in before if entry.start_offset < offset]
    else:
        epoch = LeaderEpochCache(before).epoch_for_offset(offset)
        cut = [] if epoch is None else [(epoch, offset)]
        assert real.entries() == cut + [entry for entry in before if entry.start_offset > offset]
