"""Producer state, compared with a model that remembers every accepted batch, and searches all of them.

A run is a list of operations whose numbers are relative ("repeat the third batch from the end"), so that most are valid
and a failing list shrinks well. Both get every operation; batches that the model accepts are appended, and then all
results are compared.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from pessoa.log.producer_entry import BatchMetadata, ProducerStateEntry
from pessoa.log.producer_snapshot_format import decode_snapshot, encode_snapshot
from pessoa.log.producer_state import (
    AppendOrigin,
    CompletedTransaction,
    ProducerRefused,
    ProducerState,
    VerificationGuard,
)
from pessoa.records.batch import RecordBatch
from pessoa.records.builder import build_batch
from pessoa.records.control_records import ControlRecordType, build_transaction_marker
from pessoa.records.record import Record
from pessoa.wire.errors import ErrorCode

SEQUENCES = 2**31
NEVER_MS = 2**62


@dataclass(frozen=True)
class Data:
    producer: int
    epoch_step: int
    # "next", "repeat" of the number-th batch from the end, "skip" so many, or "at" a number
    sequence: str
    number: int
    count: int
    # inside or outside a transaction, as the producer was before; or else the other way round
    stays: bool


@dataclass(frozen=True)
class Marker:
    producer: int
    epoch_step: int
    coordinator_step: int
    version: int
    is_abort: bool


@dataclass(frozen=True)
class Replicate:
    """An operation that raises the high watermark by so many offsets, at most to the log end."""

    count: int


def some_operation(chance: Random) -> Data | Marker | Replicate:
    """Return a random operation: mostly data, and mostly batches that a correct producer would send."""
    producer = chance.choice([0, 0, 0, 1, 1, 2])
    kind = chance.choice(["data"] * 10 + ["marker", "marker", "replicate"])
    if kind == "replicate":
        return Replicate(chance.randint(1, 4))
    if kind == "marker":
        return Marker(
            producer,
            epoch_step=chance.choice([0, 1, 1, -1]),
            coordinator_step=chance.choice([0, 0, 1, -1]),
            version=chance.randint(0, 2),
            is_abort=chance.random() < 0.5,
        )
    return Data(
        producer,
        epoch_step=chance.choice([0] * 12 + [1, -1, 2]),
        sequence=chance.choice(["next"] * 6 + ["repeat"] * 3 + ["skip", "at"]),
        number=chance.choice([*range(7), SEQUENCES - 2, SEQUENCES - 1]),
        count=chance.randint(1, 3),
        stays=chance.random() < 0.75,
    )


# One draw per operation, out of a fixed set: many times faster than drawing their parts, and shrinking stays quick.
CHANCE = Random(0)
OPERATIONS = [Data(0, 0, "next", 0, 1, stays=True), *(some_operation(CHANCE) for _ in range(4_000))]
# A run is cut out of a long list. Left to itself a list has five elements on average, and five batches are nothing.
operations = st.tuples(st.lists(st.sampled_from(OPERATIONS), min_size=40, max_size=40), st.integers(0, 40)).map(
    lambda drawn: drawn[0][: drawn[1]]
)


@dataclass(frozen=True)
class Appended:
    batch: RecordBatch
    marker: Marker | None
    coordinator_epoch: int


class EveryBatch:
    """The model: a list of the appended batches, in order, without derived state."""

    def __init__(self) -> None:
        self.log: list[Appended] = []
        self.high_watermark = 0

    @property
    def end_offset(self) -> int:
        return self.log[-1].batch.next_offset if self.log else 0

    def of(self, producer: int) -> list[Appended]:
        return [one for one in self.log if one.batch.producer_id == producer]

    def epoch(self, producer: int) -> int | None:
        return max((one.batch.producer_epoch for one in self.of(producer)), default=None)

    def coordinator_epoch(self, producer: int) -> int:
        return max((one.coordinator_epoch for one in self.of(producer) if one.marker), default=-1)

    def remembered(self, producer: int) -> list[RecordBatch]:
        of_epoch = [one for one in self.of(producer) if one.batch.producer_epoch == self.epoch(producer)]
        return [one.batch for one in of_epoch if not one.marker][-5:]

    def next_sequence(self, producer: int) -> int:
        batches = self.remembered(producer)
        return (batches[-1].last_sequence + 1) % SEQUENCES if batches else 0

    def transactions(self) -> list[tuple[int, int, int | None]]:
        """Return producer, first offset and the offset of the marker, if any, of all transactions, by first offset."""
        found: list[tuple[int, int, int | None]] = []
        for producer in {one.batch.producer_id for one in self.log}:
            first: int | None = None
            for one in self.of(producer):
                if one.marker and first is not None:
                    found.append((producer, first, one.batch.base_offset))
                    first = None
                elif not one.marker and first is None and one.batch.is_transactional:
                    first = one.batch.base_offset
            if first is not None:
                found.append((producer, first, None))
        return sorted(found, key=lambda transaction: transaction[1])

    def open_since(self, producer: int) -> int | None:
        return next((first for who, first, end in self.transactions() if who == producer and end is None), None)

    def first_unstable(self) -> int | None:
        return next((first for _, first, end in self.transactions() if end is None or end >= self.high_watermark), None)

    def judge_data(self, batch: RecordBatch) -> ErrorCode | RecordBatch | None:
        """Return the error for a batch, the batch of which it is a duplicate, or None if it may be appended."""
        producer = batch.producer_id
        epoch = self.epoch(producer)
        if epoch is None:
            return None
        if batch.producer_epoch == epoch:
            for known in self.remembered(producer):
                if (known.base_sequence, known.last_sequence) == (batch.base_sequence, batch.last_sequence):
                    return known
        if batch.producer_epoch < epoch:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        if batch.base_sequence != (self.next_sequence(producer) if batch.producer_epoch == epoch else 0):
            return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        if self.open_since(producer) is not None and not batch.is_transactional:
            return ErrorCode.INVALID_TXN_STATE
        return None

    def judge_marker(self, producer: int, epoch: int, coordinator_epoch: int, version: int) -> ErrorCode | None:
        last_epoch = self.epoch(producer)
        if last_epoch is None:
            return None
        must_rise = version == 2 and self.open_since(producer) is not None
        if epoch < last_epoch or (must_rise and epoch == last_epoch):
            return ErrorCode.INVALID_PRODUCER_EPOCH
        if coordinator_epoch < self.coordinator_epoch(producer):
            return ErrorCode.TRANSACTION_COORDINATOR_FENCED
        return None


def data_batch(model: EveryBatch, operation: Data) -> RecordBatch:
    producer = operation.producer
    epoch = max((model.epoch(producer) or 0) + operation.epoch_step, 0)
    sequence, count = operation.number, operation.count
    if operation.sequence == "next":
        sequence = model.next_sequence(producer)
    elif operation.sequence == "skip":
        sequence = (model.next_sequence(producer) + operation.number) % SEQUENCES
    elif operation.sequence == "repeat":
        earlier = [one.batch for one in model.of(producer) if not one.marker]
        if earlier:
            repeated = earlier[-1 - operation.number % len(earlier)]
            sequence, count = repeated.base_sequence, repeated.last_offset_delta + 1
    end = model.end_offset
    return RecordBatch(
        build_batch(
            [Record(end + i, 1_000 + end, None, b"v") for i in range(count)],
            producer_id=producer,
            producer_epoch=epoch,
            base_sequence=sequence,
            transactional=(model.open_since(producer) is not None) is operation.stays,
        )
    )


def marker_batch(model: EveryBatch, operation: Marker) -> tuple[RecordBatch, int]:
    producer = operation.producer
    coordinator_epoch = max(model.coordinator_epoch(producer) + operation.coordinator_step, 0)
    batch = build_transaction_marker(
        ControlRecordType.ABORT if operation.is_abort else ControlRecordType.COMMIT,
        producer_id=producer,
        producer_epoch=max((model.epoch(producer) or 0) + operation.epoch_step, 0),
        coordinator_epoch=coordinator_epoch,
        timestamp=1_000 + model.end_offset,
        base_offset=model.end_offset,
    )
    return RecordBatch(batch), coordinator_epoch


def learn(state: ProducerState, batch: RecordBatch) -> CompletedTransaction | None:
    completed = state.update(batch)
    if completed is not None:
        state.complete(completed)
    state.end_offset = batch.next_offset
    return completed


def verdict_of(
    state: ProducerState,
    batch: RecordBatch,
    origin: AppendOrigin = AppendOrigin.CLIENT,
    guard: VerificationGuard | None = None,
    version: int = -1,
) -> ErrorCode | BatchMetadata | None:
    try:
        return state.check(batch, origin, guard, version)
    except ProducerRefused as refused:
        return refused.error


def put_data(model: EveryBatch, state: ProducerState, operation: Data) -> None:
    batch = data_batch(model, operation)
    expected = model.judge_data(batch)
    verdict = verdict_of(state, batch)
    if isinstance(expected, RecordBatch):
        assert isinstance(verdict, BatchMetadata)
        assert (verdict.first_sequence, verdict.last_sequence) == (expected.base_sequence, expected.last_sequence)
        assert (verdict.first_offset, verdict.last_offset) == (expected.base_offset, expected.last_offset)
        assert verdict.timestamp == expected.max_timestamp
        return
    assert verdict == expected
    if expected is None:
        assert learn(state, batch) is None
        model.log.append(Appended(batch, None, -1))


def put_marker(model: EveryBatch, state: ProducerState, operation: Marker) -> None:
    batch, coordinator_epoch = marker_batch(model, operation)
    expected = model.judge_marker(batch.producer_id, batch.producer_epoch, coordinator_epoch, operation.version)
    assert verdict_of(state, batch, AppendOrigin.COORDINATOR, version=operation.version) == expected
    if expected is not None:
        return
    first = model.open_since(batch.producer_id)
    others = [since for who, since, end in model.transactions() if end is None and who != batch.producer_id]
    completed = state.update(batch)
    if first is None:
        assert completed is None
    else:
        assert completed == (batch.producer_id, first, batch.base_offset, operation.is_abort)
        assert state.last_stable_offset(completed) == min(others, default=batch.next_offset)
        state.complete(completed)
    model.log.append(Appended(batch, operation, coordinator_epoch))


def put(model: EveryBatch, state: ProducerState, operation: Data | Marker | Replicate) -> None:
    if isinstance(operation, Data):
        put_data(model, state, operation)
    elif isinstance(operation, Marker):
        put_marker(model, state, operation)
    else:
        model.high_watermark = min(model.high_watermark + operation.count, model.end_offset)
        state.on_high_watermark_updated(model.high_watermark)


def assert_same(model: EveryBatch, state: ProducerState) -> None:
    assert state.first_unstable_offset == model.first_unstable()
    undecided = {producer: first for producer, first, end in model.transactions() if end is None}
    open_since = (entry.current_txn_first_offset for entry in state.entries())
    assert sorted(first for first in open_since if first is not None) == sorted(undecided.values())
    assert {entry.producer_id for entry in state.entries()} == {one.batch.producer_id for one in model.log}
    for entry in state.entries():
        last = model.of(entry.producer_id)[-1].batch
        assert entry.epoch == model.epoch(entry.producer_id)
        assert entry.next_sequence == model.next_sequence(entry.producer_id)
        assert entry.current_txn_first_offset == undecided.get(entry.producer_id)
        assert entry.coordinator_epoch == model.coordinator_epoch(entry.producer_id)
        assert entry.last_timestamp == last.max_timestamp


@given(operations)
def test_producer_state_decides_as_a_model_that_keeps_every_batch(run: list[Data | Marker | Replicate]) -> None:
    model, state = EveryBatch(), ProducerState(verification_enabled=False)
    for operation in run:
        put(model, state, operation)
        assert_same(model, state)


@given(operations, st.integers(0, 100))
def test_a_follower_and_a_recovery_from_any_snapshot_reach_the_state_of_the_leader(
    run: list[Data | Marker | Replicate], snapshot_after: int
) -> None:
    model, leader = EveryBatch(), ProducerState(verification_enabled=False)
    for operation in run:
        put(model, leader, operation)
    log = [one.batch for one in model.log]

    follower = ProducerState()
    for batch in log:
        assert follower.check(batch, AppendOrigin.REPLICATION) is None
        learn(follower, batch)
    assert list(follower.entries()) == list(leader.entries())

    recovered = ProducerState()
    older = log[: snapshot_after % (len(log) + 1)]
    for batch in older:
        learn(recovered, batch)
    snapshot = encode_snapshot(recovered.entries())
    end_offset = older[-1].next_offset if older else 0
    recovered.reload(decode_snapshot(snapshot), end_offset, now_ms=0, expiration_ms=NEVER_MS)
    for batch in log[len(older) :]:
        learn(recovered, batch)
    # Without a word from the leader, a log that was just opened takes its end for replicated.
    for state in (leader, follower, recovered):
        state.on_high_watermark_updated(model.end_offset)
    assert recovered.first_unstable_offset == follower.first_unstable_offset == leader.first_unstable_offset
    assert_alike_but_for_older_batches(recovered, leader)


def assert_alike_but_for_older_batches(recovered: ProducerState, leader: ProducerState) -> None:
    """Assert that both states agree except for older batches: a snapshot keeps one of five, with the producer's
    time."""

    def without_batches(entry: ProducerStateEntry) -> tuple[object, ...]:
        return (
            entry.epoch,
            entry.coordinator_epoch,
            entry.last_timestamp,
            entry.current_txn_first_offset,
            entry.next_sequence,
            [batch[:3] for batch in entry.batches[-1:]],
        )

    assert {entry.producer_id: without_batches(entry) for entry in recovered.entries()} == {
        entry.producer_id: without_batches(entry) for entry in leader.entries()
    }
    for entry in recovered.entries():
        known = leader.entry(entry.producer_id)
        assert known is not None
        assert [b[:3] for b in known.batches][len(known.batches) - len(entry.batches) :] == [
            b[:3] for b in entry.batches
        ]


@given(operations, st.integers(0, 60))
def test_expiry_removes_idle_producers_but_none_with_an_open_transaction(
    run: list[Data | Marker | Replicate], age: int
) -> None:
    model, state = EveryBatch(), ProducerState(verification_enabled=False)
    for operation in run:
        put(model, state, operation)
    before = list(state.entries())
    now_ms, expiration_ms = 1_000 + model.end_offset, age
    gone = state.remove_expired(now_ms, expiration_ms)
    kept = [
        entry
        for entry in before
        if entry.current_txn_first_offset is not None or now_ms - entry.last_timestamp < expiration_ms
    ]
    assert list(state.entries()) == kept
    assert gone == len(before) - len(kept)
    assert state.first_unstable_offset == model.first_unstable()


# "verify", "append" with the oldest or the newest guard at hand, or a marker of the same or of the next epoch
steps = st.lists(
    st.sampled_from(["verify", "append with the oldest guard", "append with the newest guard", "end", "end and raise"]),
    max_size=25,
)


@given(steps, st.booleans())
def test_no_transaction_opens_without_a_verification_begun_since_the_last_marker(
    run: list[str], bumps_epoch: bool
) -> None:
    """Of the marker before that has raised the epoch to the verified one, the verification is independent."""
    state = ProducerState()
    epoch = end_offset = 0
    guards: list[tuple[VerificationGuard, bool]] = []
    for step in run:
        entry = state.entry(1)
        sequence = entry.next_sequence if entry is not None and entry.epoch == epoch else 0
        is_open = entry is not None and entry.current_txn_first_offset is not None
        if step == "verify":
            guard = state.start_verification(1, sequence, epoch, 0, supports_epoch_bump=bumps_epoch)
            assert (guard is None) is is_open
            if guard is not None:
                guards.append((guard, True))
        elif step.startswith("append"):
            guard, is_current = guards[-1 if "newest" in step else 0] if guards else (None, False)
            batch = RecordBatch(
                build_batch(
                    [Record(end_offset, 0, None, b"v")],
                    producer_id=1,
                    producer_epoch=epoch,
                    base_sequence=sequence,
                    transactional=True,
                )
            )
            is_accepted = is_open or is_current
            assert verdict_of(state, batch, guard=guard) == (None if is_accepted else ErrorCode.INVALID_TXN_STATE)
            if not is_accepted:
                continue
            state.update(batch)
            end_offset += 1
            # The guard has done its work: the next transaction needs another.
            guards = [(known, False) for known, _ in guards]
        else:
            epoch += step == "end and raise"
            batch = RecordBatch(
                build_transaction_marker(
                    ControlRecordType.COMMIT,
                    producer_id=1,
                    producer_epoch=epoch,
                    coordinator_epoch=0,
                    timestamp=0,
                    base_offset=end_offset,
                )
            )
            learn(state, batch)
            end_offset += 1
            is_for_this_epoch = bumps_epoch and step == "end" and not is_open
            guards = [(known, is_current and is_for_this_epoch) for known, is_current in guards]
