"""A share partition, compared with a second implementation that has one entry per offset, with a log, a share
coordinator that fails or is slow, and failover of leaders.

After every event both must agree on every offset, and the invariants of share groups must hold: an offset is acquired
by one member at most; a record that was accepted successfully is never delivered again, by any leader; no record is
delivered more often than the limit, except for one attempt that a failover or a lost write gives back; the start offset
never moves back; no record below the start offset is lost.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from pessoa.share.acknowledgement import Acknowledgement, AcknowledgeType, Limits
from pessoa.share.acquisition import AcquireMode, AcquireRequest, FetchedBatch, isolation_threshold
from pessoa.share.share_partition import AcquiredRecords, SharePartition, StateWrite
from pessoa.share.state_batches import DeliveryState, StateBatch, combine
from pessoa.wire.errors import ErrorCode, Refusal

AVAILABLE, ACQUIRED = DeliveryState.AVAILABLE, DeliveryState.ACQUIRED
ACKNOWLEDGED, ARCHIVED = DeliveryState.ACKNOWLEDGED, DeliveryState.ARCHIVED
MEMBERS = ("a", "b", "c")


@dataclass
class Entry:
    state: DeliveryState
    count: int = 0
    member: str = ""
    deadline_ms: int = 0
    transition: int = 0
    # How many offsets the entry had with which it was delivered for the first time.
    batch_size: int = 0

    def is_available(self) -> bool:
        return self.state is AVAILABLE and not self.transition


class EveryOffset:
    """The second implementation: a dict with an entry for every offset in flight, which looks at all of them every
    time."""

    def __init__(self, start: int, entries: dict[int, Entry], limits: Limits) -> None:
        self.start, self.entries, self.limits = start, entries, limits
        self.write = 1
        self.pass_done()

    @property
    def end(self) -> int:
        return max(self.entries, default=self.start - 1) + 1

    def next_offset(self) -> int:
        return min((offset for offset, entry in self.entries.items() if entry.is_available()), default=self.end)

    def pass_done(self) -> None:
        while self.start in self.entries:
            entry = self.entries[self.start]
            if entry.transition or not entry.state.is_terminal:
                return
            del self.entries[self.start]
            self.start += 1

    def may_add(self, offset: int) -> bool:
        return max(offset, self.end) - self.start < self.limits.record_locks

    def acquire(
        self, request: AcquireRequest, batches: list[FetchedBatch], now_ms: int, answer: list[AcquiredRecords]
    ) -> None:
        """Apply the rules offset by offset. The size of an isolated delivery is taken from the response."""
        taken: dict[int, int] = {}
        position = self.next_offset()
        is_isolated = False
        new: dict[int, Entry] = {}
        for batch in batches:
            if batch.last_offset < position:
                continue
            if len(taken) >= request.max_records or is_isolated:
                break
            position = self.archive(position, batch.first_offset - 1, new)
            if batch.is_gone:
                position = self.archive(position, batch.last_offset, new)
                continue
            can_add = max(position, self.end) - self.start < self.limits.record_locks
            while position <= batch.last_offset:
                entry = self.entries.get(position)
                if entry is None and not can_add:
                    break
                if request.mode is AcquireMode.RECORD_LIMIT and (
                    len(taken) == request.max_records
                    or (entry is None and position - self.start >= self.limits.record_locks)
                ):
                    break
                if entry is None or entry.is_available():
                    count = entry.count if entry else 0
                    if count >= isolation_threshold(self.limits.delivery_count):
                        is_isolated = True
                        if not taken:
                            taken = self.isolated(position, count, batch, request, answer)
                        break
                    taken[position] = count + 1
                position += 1
        assert expand(answer) == taken
        self.entries |= new
        for entry_of_answer in answer:
            for offset in range(entry_of_answer.first_offset, entry_of_answer.last_offset + 1):
                before = self.entries.get(offset, Entry(AVAILABLE))
                size = entry_of_answer.last_offset - entry_of_answer.first_offset + 1
                self.entries[offset] = Entry(
                    ACQUIRED,
                    taken[offset],
                    request.member_id,
                    now_ms + self.limits.lock_duration_ms,
                    batch_size=size if not before.count else before.batch_size,
                )
        self.pass_done()

    def archive(self, position: int, last_offset: int, new: dict[int, Entry]) -> int:
        can_add = self.may_add(max(position, self.end))
        while position <= last_offset:
            entry = self.entries.get(position)
            if entry is None and not can_add:
                break
            if entry is None or entry.is_available():
                new[position] = Entry(ARCHIVED, entry.count if entry else 0)
            position += 1
        return position

    def isolated(
        self, first: int, count: int, batch: FetchedBatch, request: AcquireRequest, answer: list[AcquiredRecords]
    ) -> dict[int, int]:
        """Return the isolated delivery from this offset on, after checking that it has no more records than the rule
        allows."""
        assert len(answer) == 1
        (got,) = answer
        size = got.last_offset - got.first_offset + 1
        assert got.first_offset == first
        assert got.last_offset <= batch.last_offset
        assert size <= request.max_records
        if count >= self.limits.delivery_count - 1 and self.limits.delivery_count > 2:
            assert size == 1
        else:
            most = max(entry.batch_size for entry in self.entries.values())
            assert size <= max(1, most >> (count - isolation_threshold(self.limits.delivery_count) + 1))
        for offset in range(got.first_offset, got.last_offset + 1):
            assert self.entries[offset].is_available()
            assert self.entries[offset].count == count
        return expand(answer)

    def acknowledge(self, member: str, acks: list[Acknowledgement], now_ms: int) -> int | None:
        changed = {offset: replace(entry) for offset, entry in self.entries.items()}
        seen: set[int] = set()
        for first, last, types in acks:
            for offset in range(first, last + 1):
                if offset < self.start:
                    continue
                if last >= self.end:
                    raise Refusal(ErrorCode.INVALID_REQUEST if self.entries else ErrorCode.INVALID_RECORD_STATE)
                kind = types[0] if len(types) == 1 else types[offset - first]
                entry = changed[offset]
                if offset in seen or entry.state is not ACQUIRED or entry.member != member:
                    raise Refusal(ErrorCode.INVALID_RECORD_STATE)
                seen.add(offset)
                if kind == AcknowledgeType.RENEW:
                    entry.deadline_ms = now_ms + self.limits.lock_duration_ms
                    continue
                entry.transition = self.write
                entry.state = {1: ACKNOWLEDGED, 2: self.released(entry)}.get(kind, ARCHIVED)
        self.entries = changed
        return self.pending()

    def pending(self) -> int | None:
        return self.write if any(entry.transition == self.write for entry in self.entries.values()) else None

    def released(self, entry: Entry) -> DeliveryState:
        return ARCHIVED if entry.count >= self.limits.delivery_count else AVAILABLE

    def release(self, member: str) -> None:
        for entry in self.entries.values():
            if entry.state is ACQUIRED and entry.member == member:
                entry.state, entry.transition = self.released(entry), self.write

    def tick(self, now_ms: int) -> int:
        count = 0
        for offset, entry in self.entries.items():
            if entry.state is ACQUIRED and entry.deadline_ms <= now_ms:
                self.entries[offset] = Entry(self.released(entry), entry.count, batch_size=entry.batch_size)
                count += 1
        self.pass_done()
        return count

    def finish(self, number: int, is_stored: bool, now_ms: int) -> None:
        for offset, entry in self.entries.items():
            if entry.transition == number:
                if is_stored:
                    self.entries[offset] = Entry(entry.state, entry.count, batch_size=entry.batch_size)
                else:
                    entry.state, entry.transition = ACQUIRED, 0
        if not is_stored:
            self.tick(now_ms)
        self.pass_done()

    def begin_at(self, start: int) -> None:
        if start > self.start:
            end = self.end
            self.entries = {offset: entry for offset, entry in self.entries.items() if offset >= start}
            self.start = start
            assert self.end == max(end, start)
            self.pass_done()


def expand(answer: list[AcquiredRecords]) -> dict[int, int]:
    offsets = [
        (offset, got.delivery_count) for got in answer for offset in range(got.first_offset, got.last_offset + 1)
    ]
    assert len(dict(offsets)) == len(offsets), "an offset is acquired twice"
    assert offsets == sorted(offsets)
    return dict(offsets)


class StoredState:
    """The share coordinator: for every offset the highest (count, state) that was written."""

    def __init__(self, start: int) -> None:
        self.start = start
        self.offsets: dict[int, tuple[int, DeliveryState]] = {}

    def apply(self, write: StateWrite) -> None:
        self.start = max(self.start, write.start_offset)
        for first, last, state, count in write.batches:
            for offset in range(first, last + 1):
                self.offsets[offset] = max(self.offsets.get(offset, (0, AVAILABLE)), (count, state))
        self.offsets = {offset: known for offset, known in self.offsets.items() if offset >= self.start}

    def batches(self) -> list[StateBatch]:
        singles = [StateBatch(offset, offset, state, count) for offset, (count, state) in self.offsets.items()]
        return combine(singles, (), self.start)

    def entries(self) -> dict[int, Entry]:
        entries = {offset: Entry(AVAILABLE) for offset in range(self.start, max(self.offsets, default=self.start - 1))}
        for first, last, state, count in self.batches():
            for offset in range(first, last + 1):
                entries[offset] = Entry(state, count, batch_size=last - first + 1)
        return entries


class World:
    def __init__(self, random: Random) -> None:
        self.random = random
        self.limits = Limits(random.choice([2, 3, 5, 8]), random.choice([1, 7, 20]), 100, can_renew=True)
        self.log = make_log(random)
        self.now_ms = 0
        self.stored = StoredState(0)
        self.log_start = 0
        self.accepted: set[int] = set()
        # Accepted, by the number of the write that decides about it.
        self.waiting: dict[int, set[int]] = {}
        self.writing: StateWrite | None = None
        self.load()

    def load(self) -> None:
        self.real = SharePartition(self.stored.start, self.stored.batches(), self.limits)
        self.model = EveryOffset(self.stored.start, self.stored.entries(), self.limits)
        self.real.begin_at(self.log_start)
        self.model.begin_at(self.log_start)
        self.writing = None
        self.waiting = {}

    def step(self) -> None:
        steps = (self.acquire, self.acquire, self.acknowledge, self.acknowledge, self.take, self.finish, self.pass_time)
        self.random.choice((*steps, *steps, self.leave, self.delete_records, self.fail_over))()
        self.compare()

    def acquire(self) -> None:
        random = self.random
        request = AcquireRequest(
            random.choice(MEMBERS), random.randint(0, 12), random.randint(1, 10), random.choice(list(AcquireMode))
        )
        offset = self.real.next_fetch_offset()
        assert offset == self.model.next_offset()
        batches = [batch for batch in self.log if batch.last_offset >= offset][: random.randint(0, 6)]
        answer = self.real.acquire(request, batches, self.now_ms)
        self.model.acquire(request, batches if request.max_records else [], self.now_ms, answer)
        gone = {o for batch in self.log if batch.is_gone for o in range(batch.first_offset, batch.last_offset + 1)}
        for got, count in expand(answer).items():
            assert got not in self.accepted, "what was accepted is delivered again"
            assert got not in gone
            assert count <= self.limits.delivery_count
            assert got >= self.log_start

    def acknowledge(self) -> None:
        random = self.random
        member = random.choice(MEMBERS)
        acquired = [run for run in self.real.in_flight.runs if run.is_acquired and run.member_id == member]
        acks = []
        for run in acquired:
            if random.random() < 0.6:
                first = random.randint(run.first_offset, run.last_offset)
                last = random.randint(first, run.last_offset)
                acks.append(self.types_for(first, last))
        if random.random() < 0.2:
            first = random.randint(0, self.real.in_flight.end_offset + 2)
            acks.append(self.types_for(first, first + random.randint(0, 3)))
            acks.sort()
        answers = []
        for side in (self.real, self.model):
            try:
                answers.append((ErrorCode.NONE, side.acknowledge(member, acks, self.now_ms)))
            except Refusal as refusal:
                answers.append((refusal.code, None))
        if acks:
            assert answers[0][0] == answers[1][0]
        code, number = answers[0]
        if code is ErrorCode.NONE and number is not None:
            accepted = {
                offset
                for first, last, types in acks
                for offset in range(max(first, self.model.start), last + 1)
                if (types[0] if len(types) == 1 else types[offset - first]) == AcknowledgeType.ACCEPT
            }
            self.waiting.setdefault(number, set()).update(accepted)

    def types_for(self, first: int, last: int) -> Acknowledgement:
        size = last - first + 1
        count = size if self.random.random() < 0.5 else 1
        return Acknowledgement(first, last, [self.random.choice([0, 1, 1, 2, 2, 3, 4]) for _ in range(count)])

    def take(self) -> None:
        write = self.real.take_write()
        if write is None:
            return
        assert self.writing is None, "two writes are under way"
        self.writing = write
        self.model.write += 1
        assert write.number + 1 == self.model.write
        assert write.start_offset == self.model.start
        terminal = sum(entry.state.is_terminal for entry in self.model.entries.values())
        assert write.delivery_complete_count == terminal
        assert ACQUIRED not in {batch.state for batch in write.batches}

    def finish(self) -> None:
        if self.writing is None:
            return
        write, self.writing = self.writing, None
        outcome = self.random.choice(["stored", "stored", "stored", "lost", "stored, unknown"])
        if outcome != "lost":
            self.stored.apply(write)
        error = ErrorCode.NONE if outcome == "stored" else ErrorCode.COORDINATOR_NOT_AVAILABLE
        self.real.finish_write(error, self.now_ms)
        self.model.finish(write.number, outcome == "stored", self.now_ms)
        accepted = self.waiting.pop(write.number, set())
        if outcome == "stored":
            assert not accepted & self.accepted, "accepted twice"
            self.accepted |= accepted

    def pass_time(self) -> None:
        self.now_ms += self.random.choice([1, 30, 60, 100])
        deadlines = [entry.deadline_ms for entry in self.model.entries.values() if entry.state is ACQUIRED]
        if deadlines:
            told_ms = self.real.next_deadline_ms()
            assert told_ms is not None
            assert told_ms <= min(deadlines)
        assert self.real.tick(self.now_ms) == self.model.tick(self.now_ms)

    def leave(self) -> None:
        member = self.random.choice(MEMBERS)
        self.real.release(member)
        self.model.release(member)

    def delete_records(self) -> None:
        self.log_start = max(self.log_start, self.random.randint(0, self.real.in_flight.end_offset + 3))
        self.log = [
            batch._replace(first_offset=max(batch.first_offset, self.log_start))
            for batch in self.log
            if batch.last_offset >= self.log_start
        ]
        self.real.begin_at(self.log_start)
        self.model.begin_at(self.log_start)

    def fail_over(self) -> None:
        if self.writing is not None and self.random.random() < 0.5:
            self.stored.apply(self.writing)
        self.load()

    def compare(self) -> None:
        in_flight = self.real.in_flight
        assert (in_flight.start_offset, in_flight.end_offset) == (self.model.start, self.model.end)
        position = in_flight.start_offset
        for run in in_flight.runs:
            assert run.first_offset == position
            position = run.last_offset + 1
            for offset in range(run.first_offset, run.last_offset + 1):
                entry = self.model.entries[offset]
                assert (run.state, run.delivery_count, run.transition) == (entry.state, entry.count, entry.transition)
                if run.is_acquired or run.transition:
                    assert (run.member_id, run.deadline_ms) == (entry.member, entry.deadline_ms)
        assert position == self.model.end


def make_log(random: Random) -> list[FetchedBatch]:
    batches, offset = [], 0
    for _ in range(60):
        offset += random.choice([0, 0, 0, 0, 1, 5])
        size = random.choice([1, 1, 2, 5, 9])
        batches.append(FetchedBatch(offset, offset + size - 1, random.random() < 0.1))
        offset += size
    return batches


@settings(max_examples=300, deadline=None)
@given(st.integers(0, 2**32))
def test_a_share_partition_agrees_with_a_model_of_one_entry_per_offset_under_failures(seed: int) -> None:
    world = World(Random(seed))
    for _ in range(120):
        world.step()


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 2**32))
def test_every_record_is_accepted_or_archived_once_failures_stop(seed: int) -> None:
    world = World(Random(seed))
    for _ in range(60):
        world.step()
    real = world.real
    end = world.log[-1].last_offset + 1 if world.log else world.log_start
    for _ in range(2_000):
        if real.start_offset >= end:
            break
        world.now_ms += 100
        real.tick(world.now_ms)
        if world.writing is not None or real.take_write() is not None:
            world.writing = None
            real.finish_write(ErrorCode.NONE, world.now_ms)
        batches = [batch for batch in world.log if batch.last_offset >= real.next_fetch_offset()]
        for got in real.acquire(AcquireRequest("a", 5, 5), batches, world.now_ms):
            assert not set(range(got.first_offset, got.last_offset + 1)) & world.accepted
            real.acknowledge("a", [Acknowledgement(got.first_offset, got.last_offset, [1])], world.now_ms)
    assert real.start_offset >= end, f"stuck: {real!r}"


BATCHES = st.lists(
    st.builds(
        lambda first, size, state, count: StateBatch(first, first + size, state, count),
        st.integers(0, 30),
        st.integers(0, 8),
        st.sampled_from([AVAILABLE, ACKNOWLEDGED, ARCHIVED]),
        st.integers(0, 4),
    ),
    max_size=12,
)


@given(BATCHES, BATCHES, st.integers(0, 30))
def test_combined_state_batches_hold_the_highest_rank_of_every_offset(
    stored: list[StateBatch], new: list[StateBatch], start_offset: int
) -> None:
    combined = combine(stored, new, start_offset)
    expected: dict[int, tuple[int, int]] = {}
    for batch in (*stored, *new):
        for offset in range(max(batch.first_offset, start_offset), batch.last_offset + 1):
            expected[offset] = max(batch.rank, expected.get(offset, (-1, -1)))
    found = [(offset, batch.rank) for batch in combined for offset in range(batch.first_offset, batch.last_offset + 1)]
    assert found == sorted(expected.items())
    for before, after in pairwise(combined):
        assert before.last_offset + 1 < after.first_offset or before.rank != after.rank, "neighbours are alike"
