"""Batches that were refused with an error that passes, and what their producers had sent behind them.

An idempotent producer has up to five requests on their way. Suppose the first is refused, because too few replicas are
in sync or because this broker does not know yet that it leads, and the reason is gone when the second arrives. It
then has a gap before it, and Kafka's answer to a gap is OUT_OF_ORDER_SEQUENCE_NUMBER. The Java client repeats both.
librdkafka begins a new epoch for all its partitions and sends again, under that epoch, what it has no answer for: if
another partition has that already, the broker cannot tell, and it is there twice. A partition that knows nothing of the
producer takes any first sequence, and so would take the second batch and never the first.

So later batches of the producer are refused with the same error until the refused batch has been sent again:

    sequence 7 refused ──▶ 8, 9 refused with its error ──▶ 7 comes again, and all batches are checked as in Kafka

If the producer has given the batch up, only `IN_FLIGHT` later batches are refused like that, and the next gets Kafka's
error. So does a batch after one that came to a broker without a replica of the partition, which cannot note it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pessoa.log.producer_entry import BATCHES_REMEMBERED, SEQUENCE_MASK
from pessoa.records.batch import RecordBatch
from pessoa.records.invalid_batch import InvalidBatch

if TYPE_CHECKING:
    from pessoa.log.producer_entry import ProducerStateEntry
    from pessoa.log.producer_state import ProducerState
    from pessoa.wire.errors import ErrorCode

IN_FLIGHT = BATCHES_REMEMBERED
# Producers of one partition; beyond that the first one is forgotten.
MAX_PRODUCERS = 64
# A producer that has not come back by then is gone, and looking for it would cost every append a little.
FORGOTTEN_AFTER_MS = 60_000
# Sequences go round, so of two that are not equal the later one is less than half a round ahead.
_HALF_ROUND = 1 << 30


class _Refused:
    __slots__ = ("epoch", "error", "left", "sequence", "until_ms")

    def __init__(self, batch: RecordBatch, error: ErrorCode, now_ms: int) -> None:
        self.epoch = batch.producer_epoch
        self.sequence = batch.base_sequence
        self.error = error
        self.left = IN_FLIGHT
        self.until_ms = now_ms + FORGOTTEN_AFTER_MS

    def is_before(self, batch: RecordBatch) -> bool:
        ahead = (batch.base_sequence - self.sequence) & SEQUENCE_MASK
        return batch.producer_epoch == self.epoch and 0 < ahead < _HALF_ROUND

    def is_over(self, entry: ProducerStateEntry | None, now_ms: int) -> bool:
        """Return whether the entry can be removed: the batch is in the log, perhaps through another leader, or does not
        come any more."""
        if self.until_ms <= now_ms:
            return True
        if entry is None or entry.epoch < self.epoch:
            return False
        return entry.epoch > self.epoch or entry.next_sequence != self.sequence


class RefusedBatches(dict[int, _Refused]):
    """The first refused batch of each producer. Mostly empty, so that it costs an append one look."""

    __slots__ = ()

    def note(self, data: memoryview | None, error: ErrorCode, producers: ProducerState, now_ms: int) -> None:
        """Remember the first refused batch of a producer and its error; the producer will send it again."""
        batch = _batch_in(data)
        if batch is None:
            return
        known = self.pop(batch.producer_id, None)
        if known is None or not known.is_before(batch) or known.is_over(producers.entry(batch.producer_id), now_ms):
            known = _Refused(batch, error, now_ms)
        self[batch.producer_id] = known
        if len(self) > MAX_PRODUCERS:
            del self[next(iter(self))]

    def error_after_refused_batch(
        self, data: memoryview | None, producers: ProducerState, now_ms: int
    ) -> ErrorCode | None:
        """Return the error of the producer's earlier refused batch, with which this batch is refused too; None if
        there is no such reason to refuse it."""
        oldest = next(iter(self))
        if self[oldest].until_ms <= now_ms:
            del self[oldest]
        batch = _batch_in(data)
        known = None if batch is None else self.get(batch.producer_id)
        if batch is None or known is None:
            return None
        is_over = known.is_over(producers.entry(batch.producer_id), now_ms)
        if known.is_before(batch) and known.left and not is_over:
            known.left -= 1
            return known.error
        if batch.producer_epoch != known.epoch or batch.base_sequence == known.sequence or known.is_before(batch):
            # Another epoch, the batch itself, or something behind it that has to be judged.
            del self[batch.producer_id]
        return None


def _batch_in(data: memoryview | None) -> RecordBatch | None:
    """Return the batch if it has a producer id; None if it has none or is invalid, which is refused elsewhere."""
    if data is None:
        return None
    try:
        batch = RecordBatch(data)
    except InvalidBatch:
        return None
    return batch if batch.has_producer_id else None
