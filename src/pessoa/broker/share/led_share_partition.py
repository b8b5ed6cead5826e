"""The shell around one share partition, on the leader of the partition: it loads, writes, keeps time and wakes fetches.

    made ──► LOADING: the state is read from the share coordinator, which fences earlier leaders ──► ACTIVE
                 └── the coordinator refuses, or cannot be reached ──► GONE
    ACTIVE ── the coordinator knows a newer leader or state, this broker leads no more, no session is left ──► GONE

What is decided stands in `share.share_partition`; this object obeys:

- `take_write` ──► the share coordinator ──► `finish_write`, one write at a time. An acknowledgement is answered when
  the write that carries it has come back.
- `next_deadline_ms` ──► a timer ──► `tick`. Times are monotonic: no lock ends because the clock was set.
- `take_freed` ──► fetches that wait are woken.

The leader epoch is fixed when the object is made. A share partition that is gone stays gone; the next fetch makes a new
one, which reads what the old one has stored.
"""

from __future__ import annotations

import asyncio
import logging
from enum import Enum
from typing import TYPE_CHECKING

from pessoa.coordinator.share.share_state import NO_OFFSET, from_wire
from pessoa.coordinator.share.state_messages import READ, WRITE
from pessoa.log.files import DiskError
from pessoa.share.share_partition import SharePartition
from pessoa.wire.api import read_share_group_state as read_state
from pessoa.wire.api import write_share_group_state as write_state
from pessoa.wire.errors import ErrorCode, Refusal

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence

    from pessoa.base.clock import Clock, Timer
    from pessoa.broker.share.share_settings import ShareSettings
    from pessoa.broker.share.state_persister import StatePersister
    from pessoa.coordinator.share.share_state import ShareKey
    from pessoa.replication.partition import Partition
    from pessoa.share.acknowledgement import Acknowledgement
    from pessoa.share.share_partition import StateWrite

log = logging.getLogger("pessoa.share")

# The error that clients get for an error of the share coordinator, as in Kafka.
_PUBLIC = {
    ErrorCode.FENCED_LEADER_EPOCH: ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.FENCED_STATE_EPOCH: ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.NOT_COORDINATOR: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_NOT_AVAILABLE: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.GROUP_ID_NOT_FOUND: ErrorCode.GROUP_ID_NOT_FOUND,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.NONE: ErrorCode.NONE,
}


def public_error(code: ErrorCode) -> ErrorCode:
    return _PUBLIC.get(code, ErrorCode.UNKNOWN_SERVER_ERROR)


class LoadState(Enum):
    LOADING = "loading"
    ACTIVE = "active"
    GONE = "gone"


class LedSharePartition:
    """A share partition of a partition that this broker leads. `settings` returns the group's present settings."""

    def __init__(
        self,
        key: ShareKey,
        partition: Partition,
        persister: StatePersister,
        clock: Clock,
        settings: Callable[[], ShareSettings],
        on_gone: Callable[[LedSharePartition], None],
        on_load: Callable[[int], None] = lambda _time_ms: None,
    ) -> None:
        self.key = key
        self.partition = partition
        self.leader_epoch = partition.leader_epoch
        self.state = LoadState.LOADING
        # Why it is gone, as the error that clients get; NONE if nothing went wrong with it.
        self.error = ErrorCode.NONE
        self._machine: SharePartition | None = None
        self._persister = persister
        self._clock = clock
        self._settings = settings
        self._on_gone = on_gone
        self._on_load = on_load
        # Locks of records that have ended here.
        self.lock_timeouts = 0
        self._state_epoch = 0
        # Requests that have to look again when records are free, or the state has changed.
        self._waiters: dict[Callable[[], None], None] = {}
        # The acknowledgements that each write decides about.
        self._awaited_outcomes: dict[int, list[asyncio.Future[ErrorCode]]] = {}
        self._timer: Timer | None = None
        self._timer_ms: int | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._start(self._load())

    def __repr__(self) -> str:
        return (
            f"<LedSharePartition {self.key}: {self.state.value}, leader epoch {self.leader_epoch}, {self._machine!r}>"
        )

    @property
    def machine(self) -> SharePartition:
        """The share partition's state machine, with the group's present settings. Only while the state is ACTIVE."""
        assert self.state is LoadState.ACTIVE, f"{self!r} is not active"
        assert self._machine is not None
        self._machine.limits = self._settings().limits
        return self._machine

    @property
    def settings(self) -> ShareSettings:
        return self._settings()

    def watch(self, wake: Callable[[], None]) -> None:
        self._waiters[wake] = None

    def unwatch(self, wake: Callable[[], None]) -> None:
        self._waiters.pop(wake, None)

    def _start(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # ── loading ──

    async def _load(self) -> None:
        group_id, topic_id, index = self.key
        request = read_state.ReadShareGroupStateRequest(
            group_id=group_id,
            topics=[
                read_state.ReadStateData(
                    topic_id=topic_id,
                    partitions=[read_state.PartitionData(partition=index, leader_epoch=self.leader_epoch)],
                )
            ],
        )
        began_ms = self._clock.monotonic_ms()
        response = await self._persister.ask(READ, request)
        if self.state is not LoadState.LOADING:
            return
        assert isinstance(response, read_state.ReadShareGroupStateResponse)
        (found,) = response.results[0].partitions
        code = ErrorCode.of(found.error_code)
        if code.is_error:
            log.info("%s: the state cannot be read: %s", self.key, code.name)
            self.drop(public_error(code))
            return
        settings = self._settings()
        try:
            start_offset = self._first_offset(settings) if found.start_offset == NO_OFFSET else found.start_offset
        except DiskError as problem:
            self.partition.directory.fail(problem)
            self.drop(ErrorCode.KAFKA_STORAGE_ERROR)
            return
        self._state_epoch = found.state_epoch
        self._machine = SharePartition(
            start_offset,
            from_wire(found.state_batches),
            settings.limits,
            is_start_stored=found.start_offset != NO_OFFSET,
        )
        self._machine.begin_at(self.partition.log.log_start_offset)
        self.state = LoadState.ACTIVE
        self._on_load(self._clock.monotonic_ms() - began_ms)
        self._wake()
        self._go_on()

    def _first_offset(self, settings: ShareSettings) -> int:
        """Return the start offset by `share.auto.offset.reset`."""
        partition_log = self.partition.log
        if settings.offset_reset == "earliest":
            return partition_log.log_start_offset
        duration_ms = settings.reset_duration_ms
        if duration_ms is not None:
            found = partition_log.find_by_timestamp(self._clock.now_ms() - duration_ms)
            if found is not None and found.offset < partition_log.high_watermark:
                return found.offset
        return partition_log.high_watermark

    # ── what members say ──

    def acknowledge(
        self, member_id: str, acknowledgements: Sequence[Acknowledgement]
    ) -> asyncio.Future[ErrorCode] | None:
        """Acknowledge records; return a future of the outcome, done when it is stored, or None if nothing must be
        stored. Raises `Refusal`."""
        if self.state is not LoadState.ACTIVE:
            raise Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        number = self.machine.acknowledge(member_id, acknowledgements, self._clock.monotonic_ms())
        return self._outcome_of(number)

    def release(self, member_id: str) -> asyncio.Future[ErrorCode] | None:
        """Release what a member has acquired; returns as `acknowledge`."""
        if self.state is not LoadState.ACTIVE:
            return None
        return self._outcome_of(self.machine.release(member_id))

    def _outcome_of(self, number: int | None) -> asyncio.Future[ErrorCode] | None:
        outcome = None
        if number is not None:
            outcome = asyncio.get_running_loop().create_future()
            self._awaited_outcomes.setdefault(number, []).append(outcome)
        self._go_on()
        return outcome

    def after_acquire(self) -> None:
        """Set the timer for the locks of records that were acquired."""
        self._go_on()

    # ── writes and time ──

    def _go_on(self) -> None:
        """Carry out what the machine wants: drop it if it is fenced, send its next write, set its timer, wake waiting
        fetches."""
        machine = self._machine
        if machine is None or self.state is not LoadState.ACTIVE:
            return
        if machine.fenced_by is not None:
            self.drop(public_error(machine.fenced_by))
            return
        write = machine.take_write()
        if write is not None:
            self._start(self._write(machine, write))
        self._set_timer(machine.next_deadline_ms())
        if machine.take_freed():
            self._wake()

    async def _write(self, machine: SharePartition, write: StateWrite) -> None:
        group_id, topic_id, index = self.key
        request = write_state.WriteShareGroupStateRequest(
            group_id=group_id,
            topics=[
                write_state.WriteStateData(
                    topic_id=topic_id,
                    partitions=[
                        write_state.PartitionData(
                            partition=index,
                            state_epoch=self._state_epoch,
                            leader_epoch=self.leader_epoch,
                            start_offset=write.start_offset,
                            delivery_complete_count=write.delivery_complete_count,
                            state_batches=[
                                write_state.StateBatch(
                                    first_offset=first, last_offset=last, delivery_state=state, delivery_count=count
                                )
                                for first, last, state, count in write.batches
                            ],
                        )
                    ],
                )
            ],
        )
        code = WRITE.error_of(await self._persister.ask(WRITE, request))
        if code.is_error:
            log.info("%s: a write was refused: %s", self.key, code.name)
        machine.finish_write(code, self._clock.monotonic_ms())
        for outcome in self._awaited_outcomes.pop(write.number, ()):
            if not outcome.done():
                outcome.set_result(public_error(code))
        if code.is_error and not machine.is_start_stored:
            # It cannot begin. The next fetch begins anew, at its own pace.
            self.drop(public_error(code))
        self._go_on()

    def _set_timer(self, deadline_ms: int | None) -> None:
        if deadline_ms == self._timer_ms:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self._timer_ms = None, deadline_ms
        if deadline_ms is not None:
            self._timer = self._clock.call_after_ms(max(0, deadline_ms - self._clock.monotonic_ms()), self._tick)

    def _tick(self) -> None:
        self._timer = self._timer_ms = None
        if self.state is LoadState.ACTIVE:
            ended = self.machine.tick(self._clock.monotonic_ms())
            if ended:
                self.lock_timeouts += ended
                log.debug("%s: the locks of %s records have ended", self.key, ended)
            self._go_on()

    # ── the end ──

    def drop(self, error: ErrorCode = ErrorCode.NONE) -> None:
        """Mark this share partition as gone. Members that wait for the outcome of an acknowledgement get `error`, or
        NOT_LEADER_OR_FOLLOWER if there is none."""
        if self.state is LoadState.GONE:
            return
        self.state, self.error = LoadState.GONE, error
        self._set_timer(None)
        for outcomes in self._awaited_outcomes.values():
            for outcome in outcomes:
                if not outcome.done():
                    outcome.set_result(error if error.is_error else ErrorCode.NOT_LEADER_OR_FOLLOWER)
        self._awaited_outcomes.clear()
        self._on_gone(self)
        self._wake()

    def cancel(self) -> None:
        """Cancel the tasks and timers: the broker stops."""
        self.drop()
        for task in self._tasks:
            task.cancel()

    def _wake(self) -> None:
        for wake in tuple(self._waiters):
            wake()
