"""The shell around the shards of one internal topic.

A `LedPartition` is a partition that this broker leads, with its shard and what waits for it:

    elect ──► LOADING ──(log replayed)──► ACTIVE ──► resign: gone
                 └──(the log cannot be read)──► FAILED

While it loads, requests are refused with COORDINATOR_LOAD_IN_PROGRESS; for a partition that this broker does not lead,
or after a failure, with NOT_COORDINATOR. Requests that wait for an answer when the lead goes are refused with
NOT_COORDINATOR too.

**What waits.** An output is answered when the high watermark has reached the log end that followed its own append. An
output without records, a read, is answered under the same condition: what it saw may contain records that are not
committed, and a reply must never show what may still be lost. On a broker that is the only replica the watermark
moves with the append, and nothing waits at all: `submit` then returns the message itself and no future is made. What
is not committed within `write_timeout_ms` is answered with REQUEST_TIMED_OUT, though it may be committed later, as in
Kafka.

**What must be fresh.** A leader that is cut off does not know that another one leads. What it writes will never be
committed, so it can do no harm, but what it remembers is old. Most readers do not mind. An output that `is_confirmed`
does: its answer waits for a batch without records, written after the request came, and that is committed only if all
in-sync replicas still followed this leader then.

**Time.** One timer of the loop runs for all partitions, at the earliest of all deadlines. They are wall-clock times,
yet a session must not end because the clock was set: the runtime watches how the wall clock stands to the monotonic one
and shifts the shards' deadlines when that changes, as Kafka's timers go by the monotonic clock alone.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from enum import Enum
from typing import Generic, TypeAlias, TypeVar

from pessoa.base.clock import Clock
from pessoa.coordinator.coordinator_log import CoordinatorLog
from pessoa.coordinator.partitioning import partition_for
from pessoa.coordinator.record_batches import NO_PRODUCER, TransactionEnd, decode_batch, encode_batch
from pessoa.coordinator.shard import Delta, Image, Output, Reply, Shard
from pessoa.records.compression import Codec
from pessoa.records.control_records import ControlRecordType, build_transaction_marker
from pessoa.wire.errors import ErrorCode, Refusal
from pessoa.wire.request_context import Caller
from pessoa.wire.schema import Message

logger = logging.getLogger(__name__)

# Kafka's default of offsets.commit.timeout.ms.
WRITE_TIMEOUT_MS = 5_000
# Both clocks are read in whole milliseconds, so one of them may seem to be ahead by one more without a jump.
CLOCK_ROUNDING_MS = 1
# A jump that is worth a warning. Clocks that are only slewed stay far below this between two looks.
CLOCK_JUMP_MS = 1_000
# A load gives the loop to others after so many batches.
BATCHES_PER_TURN = 100
_REMEMBERED_LOADS = 100
# So many tombstones stay far below the size that the log takes in one batch.
RECORDS_PER_PIECE = 500

S = TypeVar("S", bound=Shard)
R = TypeVar("R", bound=Message)
# A method of a shard that decides about a request: the request, who asks, the token of the reply, and now_ms.
Decide: TypeAlias = Callable[[S, R, Caller, int, int], Output]


class LoadState(Enum):
    LOADING = "loading"
    ACTIVE = "active"
    FAILED = "failed"


class _UncommittedOutput:
    """An output whose records, or the records that it was decided from, are not committed. `end` is the offset that the
    high watermark must reach."""

    __slots__ = ("deadline_ms", "end", "output")

    def __init__(self, end: int, output: Output, deadline_ms: int) -> None:
        self.end = end
        self.output = output
        self.deadline_ms = deadline_ms


class LedPartition(Generic[S]):
    def __init__(self, partition: int, epoch: int, shard: S) -> None:
        self.partition = partition
        self.epoch = epoch
        self.shard = shard
        self.state = LoadState.LOADING
        self.log_end_offset = 0
        # In the order of `end`.
        self.uncommitted: deque[_UncommittedOutput] = deque()
        self.waiter: asyncio.Task[None] | None = None
        self.loader: asyncio.Task[None] | None = None
        # Tokens of requests that are not answered.
        self.waiting: dict[int, asyncio.Future[Message]] = {}

    def __repr__(self) -> str:
        return (
            f"<LedPartition {self.partition} epoch {self.epoch}, {self.state.value}, log end {self.log_end_offset}, "
            f"{len(self.uncommitted)} uncommitted, {len(self.waiting)} waiting>"
        )


class CoordinatorRuntime(Generic[S]):
    """Runs the shards of the partitions that this broker leads. `log_name` is GROUP_LOG or TRANSACTION_LOG;
    `make_shard` makes an empty shard for a partition."""

    def __init__(
        self,
        log_name: str,
        log: CoordinatorLog,
        make_shard: Callable[[int], S],
        clock: Clock,
        image: Image,
        write_timeout_ms: int = WRITE_TIMEOUT_MS,
        codec: Codec = Codec.NONE,
    ) -> None:
        self.write_timeout_ms = write_timeout_ms
        self._log_name = log_name
        self._log = log
        self._make_shard = make_shard
        self._clock = clock
        self._image = image
        self._codec = codec
        self._led_partitions: dict[int, LedPartition[S]] = {}
        # How long each of the last partitions took to load, in milliseconds.
        self.load_times_ms: deque[int] = deque(maxlen=_REMEMBERED_LOADS)
        self._token = 0
        # Replies to the request that is being handled, so that it needs no future.
        self._ready: dict[int, Reply] = {}
        self._skew_ms = clock.now_ms() - clock.monotonic_ms()
        self._timer: asyncio.Task[None] | None = None
        self._timer_ms: int | None = None

    def __repr__(self) -> str:
        return f"<CoordinatorRuntime: leads {len(self._led_partitions)} partitions>"

    def partition_for(self, key: str) -> int:
        return partition_for(key, self._log.partition_count())

    def led_partition(self, partition: int) -> LedPartition[S] | None:
        return self._led_partitions.get(partition)

    def led_partitions(self) -> list[LedPartition[S]]:
        return list(self._led_partitions.values())

    def active_partitions(self) -> list[int]:
        return [partition for partition, led in self._led_partitions.items() if led.state is LoadState.ACTIVE]

    # ── leadership ──

    def elect(self, partition: int, epoch: int) -> asyncio.Task[None] | None:
        """Load a partition that this broker leads; return the task that does, None if the epoch is not newer."""
        led = self._led_partitions.get(partition)
        if led is not None:
            if led.epoch >= epoch:
                return None
            self._drop(led)
        led = self._led_partitions[partition] = LedPartition(partition, epoch, self._make_shard(partition))
        led.loader = _start(self._load(led))
        return led.loader

    def resign(self, partition: int, epoch: int | None = None) -> None:
        """Drop a partition that this broker does not lead any more. `epoch` is that of the new leader, None if it was
        deleted."""
        led = self._led_partitions.get(partition)
        if led is not None and (epoch is None or led.epoch < epoch):
            self._drop(led)

    def close(self) -> None:
        for led in list(self._led_partitions.values()):
            self._drop(led)
        self._stop_timer()

    def _drop(self, led: LedPartition[S]) -> None:
        del self._led_partitions[led.partition]
        led.state = LoadState.FAILED
        for task in (led.loader, led.waiter):
            if task is not None:
                task.cancel()
        led.uncommitted.clear()
        for token in list(led.waiting):
            self._deliver(led, token, Refusal(ErrorCode.NOT_COORDINATOR))

    async def _load(self, led: LedPartition[S]) -> None:
        started_ms = self._clock.monotonic_ms()
        count = 0
        try:
            for number, batch in enumerate(self._log.read(led.partition), 1):
                for stored in decode_batch(self._log_name, batch):
                    count += 1
                    if isinstance(stored, TransactionEnd):
                        led.shard.replay_end_transaction(*stored)
                    else:
                        led.shard.replay(
                            stored.key, stored.value, stored.offset, batch.producer_id, batch.producer_epoch
                        )
                led.log_end_offset = batch.next_offset
                if number % BATCHES_PER_TURN == 0:
                    await asyncio.sleep(0)
        except Refusal as refusal:
            led.state = LoadState.FAILED
            logger.info("partition %d of %s is not ours to load: %s", led.partition, self._log_name, refusal)
            return
        except Exception:
            led.state = LoadState.FAILED
            logger.exception("partition %d of %s cannot be loaded", led.partition, self._log_name)
            raise
        led.state = LoadState.ACTIVE
        now_ms = self._now_ms()
        self.load_times_ms.append(self._clock.monotonic_ms() - started_ms)
        if count:
            logger.info(
                "loaded partition %d of %s at epoch %d: %d records in %d ms",
                led.partition, self._log_name, led.epoch, count, self._clock.monotonic_ms() - started_ms,
            )  # fmt: skip
        self._perform(led, led.shard.on_loaded(self._image, now_ms), now_ms)
        self._arm_timer(led)

    # ── requests ──

    def submit(
        self, partition: int, decide: Decide[S, R], request: R, context: Caller, guard: object = None
    ) -> Message | Awaitable[Message]:
        """Call `decide` on the partition's shard and return its response, or an awaitable of it. Both raise
        `Refusal`."""
        led = self._active(partition)
        self._token += 1
        token = self._token
        now_ms = self._now_ms()
        try:
            output = decide(led.shard, request, context, token, now_ms)
        except Refusal as refusal:
            output = Output.reply(token, refusal)
        self._ready[token] = _UNANSWERED
        try:
            self._perform(led, output, now_ms, guard)
        finally:
            reply = self._ready.pop(token)
        self._arm_timer(led)
        if reply is _UNANSWERED:
            future: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
            led.waiting[token] = future
            return future
        if isinstance(reply, Refusal):
            raise reply
        return reply

    def complete_transaction(
        self, partition: int, producer_id: int, producer_epoch: int, coordinator_epoch: int, committed: bool
    ) -> Awaitable[None]:
        """Write the marker that ends a transaction, and apply it to the shard. The awaitable is done when the marker is
        committed."""
        led = self._active(partition)
        marker = build_transaction_marker(
            ControlRecordType.COMMIT if committed else ControlRecordType.ABORT,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            coordinator_epoch=coordinator_epoch,
            timestamp=self._clock.now_ms(),
        )
        end = led.log_end_offset = self._log.append(partition, marker)
        led.shard.replay_end_transaction(producer_id, producer_epoch, committed)
        return self._log.wait_until_committed(partition, end)

    def _active(self, partition: int) -> LedPartition[S]:
        led = self._led_partitions.get(partition)
        if led is None or led.state is LoadState.FAILED:
            raise Refusal(ErrorCode.NOT_COORDINATOR)
        if led.state is LoadState.LOADING:
            raise Refusal(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        return led

    def publish(self, image: Image, delta: Delta) -> None:
        """Give the new metadata image to every shard."""
        self._image = image
        now_ms = self._now_ms()
        for led in self._all_active():
            self._perform(led, led.shard.on_image(image, delta, now_ms), now_ms)
            self._arm_timer(led)

    def _all_active(self) -> Iterator[LedPartition[S]]:
        return (led for led in list(self._led_partitions.values()) if led.state is LoadState.ACTIVE)

    # ── what an output asks for ──

    def _perform(self, led: LedPartition[S], output: Output, now_ms: int, guard: object = None) -> None:
        for note in output.notes:
            logger.info("%s", note)
        if not output.is_atomic and len(output.records) > RECORDS_PER_PIECE:
            assert output.replays
            assert not output.replies
            assert output.on_outcome is None
            for start in range(0, len(output.records), RECORDS_PER_PIECE):
                piece = output.records[start : start + RECORDS_PER_PIECE]
                self._perform(led, Output(piece, producer=output.producer), now_ms)
            return
        if output.records:
            producer = output.producer or NO_PRODUCER
            batch = encode_batch(output.records, now_ms, output.producer, self._codec)
            try:
                end = self._log.append(led.partition, batch, guard)
            except Refusal as refusal:
                self._finish(led, output, refusal, now_ms)
                return
            led.log_end_offset = end
            try:
                if output.replays:
                    offset = end - len(output.records)
                    for record in output.records:
                        led.shard.replay(record.key, record.value, offset, producer.id, producer.epoch)
                        offset += 1
                elif output.applied is not None:
                    output.applied()
            except Exception:
                # What is written and what is known have parted: only a fresh load can join them.
                self._drop(led)
                raise
        elif output.is_confirmed:
            try:
                led.log_end_offset = self._log.append_barrier(led.partition)
            except Refusal as refusal:
                self._finish(led, output, refusal, now_ms)
                return
        if not output.records and not output.replies and output.on_outcome is None:
            return
        end = led.log_end_offset
        try:
            is_committed = not led.uncommitted and end <= self._log.high_watermark(led.partition)
        except Refusal as refusal:
            # Leadership has just gone, and the news is on its way.
            self._finish(led, output, refusal, now_ms)
            return
        if is_committed:
            self._finish(led, output, None, now_ms)
            return
        led.uncommitted.append(_UncommittedOutput(end, output, now_ms + self.write_timeout_ms))
        if led.waiter is None or led.waiter.done():
            led.waiter = _start(self._wait_for_commits(led))

    async def _wait_for_commits(self, led: LedPartition[S]) -> None:
        while led.uncommitted:
            try:
                await self._log.wait_until_committed(led.partition, led.uncommitted[0].end)
                committed = self._log.high_watermark(led.partition)
            except Refusal as refusal:
                while led.uncommitted:
                    self._finish(led, led.uncommitted.popleft().output, refusal, self._now_ms())
                return
            while led.uncommitted and led.uncommitted[0].end <= committed:
                self._finish(led, led.uncommitted.popleft().output, None, self._now_ms())
            self._arm_timer(led)

    def _finish(self, led: LedPartition[S], output: Output, refusal: Refusal | None, now_ms: int) -> None:
        """Complete an output: its records are committed, or, with `refusal`, cannot be."""
        for token, reply in output.replies:
            self._deliver(led, token, reply if refusal is None else refusal)
        if output.on_outcome is not None:
            code = ErrorCode.NONE if refusal is None else refusal.code
            self._perform(led, output.on_outcome(code, now_ms), now_ms)

    def _deliver(self, led: LedPartition[S], token: int, reply: Reply) -> None:
        if token in self._ready:
            # The first answer counts: after a failed append the shard may answer a second time.
            if self._ready[token] is _UNANSWERED:
                self._ready[token] = reply
            return
        future = led.waiting.pop(token, None)
        if future is None or future.done():
            return
        if isinstance(reply, Refusal):
            future.set_exception(Refusal(reply.code, reply.message))
        else:
            future.set_result(reply)

    # ── time ──

    def _now_ms(self) -> int:
        """The wall clock; the shards' deadlines follow it when it jumps."""
        now_ms = self._clock.now_ms()
        skew_ms = now_ms - self._clock.monotonic_ms()
        jump_ms = skew_ms - self._skew_ms
        if abs(jump_ms) > CLOCK_JUMP_MS:
            logger.warning("the clock jumped by %d ms; deadlines move with it", jump_ms)
        if abs(jump_ms) > CLOCK_ROUNDING_MS:
            self._skew_ms = skew_ms
            for led in self._led_partitions.values():
                led.shard.shift_deadlines(jump_ms)
                for waiting in led.uncommitted:
                    waiting.deadline_ms += jump_ms
            if self._timer_ms is not None:
                self._timer_ms += jump_ms
        return now_ms

    def _next_deadline_ms(self) -> int | None:
        deadlines = (_deadline_ms(led) for led in self._all_active())
        return min((deadline_ms for deadline_ms in deadlines if deadline_ms is not None), default=None)

    def _arm_timer(self, led: LedPartition[S]) -> None:
        """Set the timer earlier if this partition now has an earlier deadline."""
        deadline_ms = _deadline_ms(led)
        if deadline_ms is None:
            return
        if self._timer is not None and not self._timer.done():
            # A timer that comes early looks again, so only an earlier deadline needs a new one.
            if self._timer_ms is not None and self._timer_ms <= deadline_ms:
                return
            self._stop_timer()
        self._timer_ms = deadline_ms
        self._timer = _start(self._run_timer())

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
            self._timer_ms = None

    async def _run_timer(self) -> None:
        while True:
            # The time first: if the clock was set, that moves the deadlines.
            now_ms = self._now_ms()
            deadline_ms = self._timer_ms = self._next_deadline_ms()
            if deadline_ms is None:
                return
            await self._clock.wait_ms(deadline_ms - now_ms)
            # From here to the next deadline nothing waits, so no request can want to stop this task half-way.
            self.expire()

    def expire(self) -> None:
        """Fail the outputs that have timed out, and run the timers of all shards that are due."""
        now_ms = self._now_ms()
        for led in self._all_active():
            while led.uncommitted and led.uncommitted[0].deadline_ms <= now_ms:
                output = led.uncommitted.popleft().output
                self._finish(led, output, Refusal(ErrorCode.REQUEST_TIMED_OUT), now_ms)
            while (deadline_ms := led.shard.next_deadline_ms()) is not None and deadline_ms <= now_ms:
                self._perform(led, led.shard.expire(now_ms), now_ms)


def _deadline_ms(led: LedPartition[S]) -> int | None:
    deadline_ms = led.shard.next_deadline_ms()
    if led.uncommitted and (deadline_ms is None or led.uncommitted[0].deadline_ms < deadline_ms):
        return led.uncommitted[0].deadline_ms
    return deadline_ms


def _start(work: Coroutine[None, None, None]) -> asyncio.Task[None]:
    """Return a task whose exception is passed to the event loop's handler at once, and not when the task is
    collected."""
    task = asyncio.get_running_loop().create_task(work)
    task.add_done_callback(_report)
    return task


def _report(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        task.get_loop().call_exception_handler({"message": "a coordinator failed", "exception": error, "task": task})


_UNANSWERED = Refusal(ErrorCode.UNKNOWN_SERVER_ERROR, "the shard has not answered")
