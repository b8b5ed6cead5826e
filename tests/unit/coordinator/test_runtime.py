"""The coordinator runtime with a toy shard: order of requests, refusals while loading, timers and clock changes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from typing import Any

import pytest

from pessoa.base.clock import ManualClock
from pessoa.coordinator.record_batches import encode_batch
from pessoa.coordinator.runtime import CoordinatorRuntime, LoadState
from pessoa.coordinator.shard import CoordinatorRecord, Delta, Image, Output, Producer
from pessoa.coordinator.timers import Timers
from pessoa.records.batch import RecordBatch
from pessoa.records.control_records import ControlRecordType, control_records
from pessoa.wire.api.heartbeat import HeartbeatRequest, HeartbeatResponse
from pessoa.wire.errors import ErrorCode, Refusal
from pessoa.wire.request_context import Caller
from pessoa.wire.schema import Message
from pessoa.wire.stored.group_records import ConsumerGroupMetadataKey, ConsumerGroupMetadataValue
from pessoa.wire.stored.record_framing import GROUP_LOG
from tests.support.memory_coordinator_log import MemoryLog
from tests.unit.coordinator.groups.bench import Context
from tests.unit.coordinator.images import FakeDelta, image


def record(key: str, epoch: int) -> CoordinatorRecord:
    return CoordinatorRecord(ConsumerGroupMetadataKey(group_id=key), ConsumerGroupMetadataValue(epoch=epoch))


class ToyShard:
    """A shard that stores numbers by key; the group id of a request is a command."""

    def __init__(self) -> None:
        self.state: dict[str, int] = {}
        self.offsets: list[int] = []
        self.ends: list[tuple[int, int, bool]] = []
        self.timers = Timers()
        self.outcomes: list[ErrorCode] = []
        self.parked: list[int] = []
        self.images: list[Image] = []
        self.rung: list[int] = []

    def handle(self, request: Message, context: Caller, token: int, now_ms: int) -> Output:
        assert isinstance(request, HeartbeatRequest)
        command, _, argument = request.group_id.partition(" ")
        answer = HeartbeatResponse(error_code=self.state.get(argument, 0))
        if command == "set":
            return Output([record(argument, request.generation_id)], [(token, answer)], on_outcome=self._on_outcome)
        if command == "set-in-transaction":
            return Output([record(argument, 1)], [(token, answer)], producer=Producer(77, 3))
        if command == "set-many":
            many = [record(str(number), 1) for number in range(int(argument))]
            self.timers.schedule("many", now_ms, lambda _: Output(many, is_atomic=False))
            return Output.reply(token, answer)
        if command == "get":
            return Output.reply(token, answer)
        if command == "get-fresh":
            return Output(replies=[(token, answer)], is_confirmed=True)
        if command == "park":
            self.parked.append(token)
            return Output()
        if command == "unpark":
            replies: list[tuple[int, Any]] = [(parked, answer) for parked in self.parked]
            return Output(replies=[*replies, (token, answer)])
        if command == "refuse":
            return Output.reply(token, Refusal(ErrorCode.UNKNOWN_MEMBER_ID, "who?"))
        if command == "ring-in":
            self.timers.schedule(argument, now_ms + int(argument), self._ring)
            return Output.reply(token, answer)
        if command == "break":
            return Output([record("broken", 1)], [(token, answer)])
        raise AssertionError(command)

    def _on_outcome(self, code: ErrorCode, now_ms: int) -> Output:
        self.outcomes.append(code)
        return Output()

    def _ring(self, now_ms: int) -> Output:
        self.rung.append(now_ms)
        return Output([record("rung", len(self.rung))])

    def replay(self, key: Message, value: Message | None, offset: int, producer_id: int, producer_epoch: int) -> None:
        assert isinstance(key, ConsumerGroupMetadataKey)
        assert isinstance(value, ConsumerGroupMetadataValue)
        if key.group_id == "broken":
            raise RuntimeError("cannot replay")
        self.state[key.group_id] = value.epoch
        self.offsets.append(offset)

    def replay_end_transaction(self, producer_id: int, producer_epoch: int, committed: bool) -> None:
        self.ends.append((producer_id, producer_epoch, committed))

    def next_deadline_ms(self) -> int | None:
        return self.timers.next_deadline_ms()

    def expire(self, now_ms: int) -> Output:
        action = self.timers.pop_due(now_ms)
        return Output() if action is None else action(now_ms)

    def shift_deadlines(self, by_ms: int) -> None:
        self.timers.shift(by_ms)

    def on_loaded(self, image: Image, now_ms: int) -> Output:
        self.images.append(image)
        return Output()

    def on_image(self, image: Image, delta: Delta, now_ms: int) -> Output:
        self.images.append(image)
        return Output()


class JumpyClock(ManualClock):
    """A clock whose wall time can be set independently of its monotonic time."""

    def __init__(self) -> None:
        super().__init__(1_000_000)
        self.ahead_ms = 0

    def now_ms(self) -> int:
        return super().now_ms() + self.ahead_ms


class Fixture:
    def __init__(self, holds_back: bool = False, partitions: int = 1, log: MemoryLog | None = None) -> None:
        self.clock = JumpyClock()
        self.log = log or MemoryLog(partitions, holds_back)
        self.runtime = CoordinatorRuntime(GROUP_LOG, self.log, lambda _: ToyShard(), self.clock, image())

    async def elect(self, partition: int = 0, epoch: int = 1) -> ToyShard:
        task = self.runtime.elect(partition, epoch)
        assert task is not None
        await task
        return self.shard(partition)

    def shard(self, partition: int = 0) -> ToyShard:
        led = self.runtime.led_partition(partition)
        assert led is not None
        return led.shard

    def submit(self, command: str, number: int = 0, guard: object = None) -> Message | Awaitable[Message]:
        request = HeartbeatRequest(group_id=command, generation_id=number, member_id="m")
        return self.runtime.submit(0, ToyShard.handle, request, Context(), guard)

    def answer(self, command: str, number: int = 0) -> int:
        reply = self.submit(command, number)
        assert isinstance(reply, HeartbeatResponse), "it should have been answered at once"
        return reply.error_code

    def later(self, command: str, number: int = 0) -> asyncio.Future[Message]:
        reply = self.submit(command, number)
        assert isinstance(reply, asyncio.Future)
        return reply


def looped(test: Callable[[], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    def run() -> None:
        asyncio.run(test())

    run.__name__ = test.__name__
    return run


async def turn() -> None:
    """Run the event loop until no task is ready."""
    for _ in range(5):
        await asyncio.sleep(0)


@looped
async def test_requests_are_refused_before_the_partition_is_led_and_while_it_loads() -> None:
    fixture = Fixture()
    with pytest.raises(Refusal) as refused:
        fixture.submit("get x")
    assert refused.value.code is ErrorCode.NOT_COORDINATOR
    task = fixture.runtime.elect(0, 1)
    assert task is not None
    with pytest.raises(Refusal) as refused:
        fixture.submit("get x")
    assert refused.value.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    await task
    assert fixture.answer("get x") == 0
    fixture.runtime.close()


@looped
async def test_a_write_that_is_committed_by_its_append_is_answered_at_once() -> None:
    fixture = Fixture()
    shard = await fixture.elect()
    fixture.answer("set a", 5)
    assert fixture.answer("get a") == 5
    assert shard.outcomes == [ErrorCode.NONE]
    fixture.runtime.close()


@looped
async def test_a_write_is_answered_when_the_high_watermark_has_passed_it() -> None:
    fixture = Fixture(holds_back=True)
    shard = await fixture.elect()
    first, second = fixture.later("set a", 1), fixture.later("set b", 2)
    await turn()
    assert not first.done()
    assert shard.state == {"a": 1, "b": 2}, "the next decision must see it, committed or not"
    fixture.log.commit(offset=1)
    await turn()
    assert first.done()
    assert not second.done()
    assert shard.outcomes == [ErrorCode.NONE]
    fixture.log.commit()
    await second
    fixture.runtime.close()


@looped
async def test_a_read_does_not_see_uncommitted_writes() -> None:
    fixture = Fixture(holds_back=True)
    await fixture.elect()
    fixture.later("set a", 1)
    read = fixture.later("get a")
    await turn()
    assert not read.done()
    fixture.log.commit()
    reply = await read
    assert isinstance(reply, HeartbeatResponse)
    assert reply.error_code == 1
    fixture.runtime.close()


@looped
async def test_a_confirmed_read_waits_for_the_replicas_though_all_writes_are_committed() -> None:
    fixture = Fixture()
    await fixture.elect()
    fixture.answer("set a", 1)
    fixture.log.has_followers = fixture.log.holds_back = True
    assert fixture.answer("get a") == 1, "who does not mind what is old is answered at once"
    read = fixture.later("get-fresh a")
    await turn()
    assert not read.done(), "a leader that is cut off would not hear from its followers either"
    fixture.log.commit()
    reply = await read
    assert isinstance(reply, HeartbeatResponse)
    assert reply.error_code == 1
    fixture.runtime.close()


@looped
async def test_a_confirmed_read_of_an_isolated_leader_is_refused_at_its_timeout() -> None:
    fixture = Fixture(holds_back=True)
    fixture.log.has_followers = True
    await fixture.elect()
    read = fixture.later("get-fresh a")
    await turn()
    fixture.clock.advance_ms(5_000)
    await turn()
    with pytest.raises(Refusal) as refused:
        await read
    assert refused.value.code is ErrorCode.REQUEST_TIMED_OUT
    fixture.runtime.close()


@looped
async def test_a_confirmed_read_is_refused_when_too_few_replicas_are_in_sync() -> None:
    fixture = Fixture()
    fixture.log.has_followers = True
    await fixture.elect()
    fixture.log.refuses_with = ErrorCode.NOT_ENOUGH_REPLICAS
    with pytest.raises(Refusal) as refused:
        fixture.submit("get-fresh a")
    assert refused.value.code is ErrorCode.NOT_ENOUGH_REPLICAS
    fixture.runtime.close()


@looped
async def test_a_confirmed_read_of_a_single_replica_writes_nothing() -> None:
    fixture = Fixture()
    await fixture.elect()
    fixture.answer("set a", 1)
    assert fixture.answer("get-fresh a") == 1
    assert len(fixture.log.batches[0]) == 1
    fixture.runtime.close()


@looped
async def test_the_records_of_confirmed_reads_are_ignored_by_the_next_leader() -> None:
    fixture = Fixture()
    fixture.log.has_followers = True
    await fixture.elect()
    fixture.answer("set a", 1)
    fixture.answer("get-fresh a")
    fixture.answer("set b", 2)
    fixture.runtime.resign(0)
    shard = await fixture.elect(epoch=2)
    assert shard.state == {"a": 1, "b": 2}
    assert shard.offsets == [0, 2], "it takes up an offset"
    fixture.runtime.close()


@looped
async def test_a_refused_append_leaves_the_shard_unchanged() -> None:
    fixture = Fixture()
    shard = await fixture.elect()
    fixture.log.refuses_with = ErrorCode.NOT_ENOUGH_REPLICAS
    with pytest.raises(Refusal) as refused:
        fixture.submit("set a", 1)
    assert refused.value.code is ErrorCode.NOT_ENOUGH_REPLICAS
    assert shard.state == {}
    assert shard.outcomes == [ErrorCode.NOT_ENOUGH_REPLICAS]
    fixture.log.refuses_with = None
    assert fixture.answer("get a") == 0
    fixture.runtime.close()


@looped
async def test_a_write_that_is_not_committed_in_time_is_refused_and_the_next_is_not() -> None:
    fixture = Fixture(holds_back=True)
    shard = await fixture.elect()
    slow = fixture.later("set a", 1)
    await turn()
    fixture.clock.advance_ms(4_999)
    await turn()
    assert not slow.done()
    late = fixture.later("set b", 1)
    fixture.clock.advance_ms(1)
    await turn()
    with pytest.raises(Refusal) as refused:
        await slow
    assert refused.value.code is ErrorCode.REQUEST_TIMED_OUT
    assert not late.done()
    fixture.log.commit()
    await late
    assert shard.outcomes == [ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NONE]
    fixture.runtime.close()


@looped
async def test_a_waiting_request_may_be_answered_by_a_later_request() -> None:
    fixture = Fixture()
    await fixture.elect()
    fixture.answer("set a", 3)
    parked = fixture.later("park")
    await turn()
    assert not parked.done()
    assert fixture.answer("unpark a") == 3
    reply = await parked
    assert isinstance(reply, HeartbeatResponse)
    assert reply.error_code == 3
    fixture.runtime.close()


@looped
async def test_a_refusal_by_the_shard_is_raised_to_the_caller() -> None:
    fixture = Fixture()
    await fixture.elect()
    with pytest.raises(Refusal, match=r"who\?"):
        fixture.submit("refuse")
    fixture.runtime.close()


@looped
async def test_waiting_requests_are_answered_not_coordinator_when_leadership_is_lost() -> None:
    fixture = Fixture(holds_back=True)
    await fixture.elect()
    writing, parked = fixture.later("set a", 1), fixture.later("park")
    fixture.runtime.resign(0, epoch=2)
    for waiting in (writing, parked):
        with pytest.raises(Refusal) as refused:
            await waiting
        assert refused.value.code is ErrorCode.NOT_COORDINATOR
    with pytest.raises(Refusal):
        fixture.submit("get a")
    fixture.runtime.close()


@looped
async def test_a_resignation_with_an_older_epoch_is_ignored() -> None:
    fixture = Fixture()
    await fixture.elect(epoch=5)
    fixture.runtime.resign(0, epoch=4)
    assert fixture.answer("get a") == 0
    assert fixture.runtime.elect(0, 5) is None
    fixture.runtime.close()


@looped
async def test_a_new_leader_loads_what_the_old_one_wrote() -> None:
    fixture = Fixture()
    await fixture.elect()
    fixture.answer("set a", 1)
    fixture.answer("set b", 2)
    fixture.answer("set a", 3)
    await fixture.runtime.complete_transaction(0, 77, 3, 0, committed=True)
    fixture.runtime.resign(0)
    shard = await fixture.elect(epoch=2)
    assert shard.state == {"a": 3, "b": 2}
    assert shard.offsets == [0, 1, 2]
    assert shard.ends == [(77, 3, True)]
    fixture.answer("set c", 4)
    assert shard.offsets == [0, 1, 2, 4], "the marker has an offset too"
    fixture.runtime.close()


@looped
async def test_records_with_unknown_key_types_are_skipped_when_a_shard_loads() -> None:
    fixture = Fixture()
    batch = encode_batch([record("a", 1), record("b", 2)], 0)
    # Key type 3 of the second record becomes 99.
    position = batch.rindex(b"\x00\x03\x00\x01b")
    batch[position : position + 2] = b"\x00\x63"
    fixture.log.append(0, batch)
    shard = await fixture.elect()
    assert shard.state == {"a": 1}
    fixture.runtime.close()


@looped
async def test_a_transactional_batch_has_its_producer_and_its_verification_guard_is_passed_to_the_log() -> None:
    fixture = Fixture()
    await fixture.elect()
    guard = object()
    fixture.submit("set-in-transaction a", guard=guard)
    batch = RecordBatch(fixture.log.batches[0][0])
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (77, 3, -1)
    assert batch.is_transactional
    assert fixture.log.guards == [guard]
    fixture.runtime.close()


@looped
async def test_a_transaction_marker_is_committed_before_the_shard_applies_it() -> None:
    fixture = Fixture(holds_back=True)
    shard = await fixture.elect()
    ending = asyncio.ensure_future(fixture.runtime.complete_transaction(0, 77, 3, 9, committed=False))
    await turn()
    assert not ending.done()
    (control,) = control_records(RecordBatch(fixture.log.batches[0][0]))
    assert control.type is ControlRecordType.ABORT
    assert shard.ends == [(77, 3, False)]
    fixture.log.commit()
    await ending
    fixture.runtime.close()


@looped
async def test_a_deadline_of_a_shard_is_kept_and_its_records_are_written() -> None:
    fixture = Fixture()
    shard = await fixture.elect()
    fixture.answer("ring-in 1000")
    fixture.answer("ring-in 500")
    await turn()
    fixture.clock.advance_ms(499)
    await turn()
    assert shard.rung == []
    fixture.clock.advance_ms(1)
    await turn()
    assert shard.rung == [1_000_500]
    fixture.clock.advance_ms(500)
    await turn()
    assert shard.state["rung"] == 2
    fixture.runtime.close()


@looped
async def test_setting_the_wall_clock_neither_shortens_nor_prolongs_timeouts() -> None:
    for jump_ms in (3_600_000, -3_600_000, 900, -900, 10, -10):
        fixture = Fixture()
        shard = await fixture.elect()
        fixture.answer("ring-in 10000")
        await turn()
        fixture.clock.ahead_ms += jump_ms
        fixture.answer("get a")
        fixture.clock.advance_ms(9_999)
        await turn()
        assert shard.rung == []
        fixture.clock.advance_ms(1)
        await turn()
        assert len(shard.rung) == 1
        fixture.runtime.close()


@looped
async def test_setting_the_wall_clock_before_the_timer_waits_does_not_prolong_the_wait() -> None:
    for jump_ms in (3_600_000, -3_600_000, 900, -900):
        fixture = Fixture()
        shard = await fixture.elect()
        fixture.answer("ring-in 1000")
        fixture.clock.ahead_ms += jump_ms
        await turn()
        fixture.clock.advance_ms(1_001)
        await turn()
        assert len(shard.rung) == 1, jump_ms
        fixture.runtime.close()


@looped
async def test_small_steps_of_the_clock_never_add_up_to_an_early_or_a_late_deadline() -> None:
    for step_ms in (1, -1, 10, -10, 900, -900):
        fixture = Fixture()
        shard = await fixture.elect()
        fixture.answer("ring-in 10000")
        await turn()
        # Each deadline that passes makes the runtime look at the clock anew.
        for count in range(1, 10):
            fixture.answer("ring-in 1000")
            await turn()
            fixture.clock.ahead_ms += step_ms
            fixture.clock.advance_ms(1_000)
            await turn()
            fixture.clock.advance_ms(2)  # Less than what is taken for a step does not move deadlines.
            await turn()
            assert len(shard.rung) == count, step_ms
        fixture.clock.advance_ms(10_000 - 9 * 1_002 - 2)
        await turn()
        assert len(shard.rung) == 9, step_ms
        fixture.clock.advance_ms(4)
        await turn()
        assert len(shard.rung) == 10, step_ms
        fixture.runtime.close()


@looped
async def test_a_shard_that_cannot_replay_its_own_records_is_unloaded() -> None:
    fixture = Fixture()
    await fixture.elect()
    parked = fixture.later("park")
    with pytest.raises(RuntimeError, match="cannot replay"):
        fixture.submit("break")
    with pytest.raises(Refusal):
        fixture.submit("get a")
    with pytest.raises(Refusal):
        await parked
    fixture.runtime.close()


def test_a_partition_that_cannot_be_loaded_is_not_served() -> None:
    reported: list[dict[str, Any]] = []

    async def load() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context))
        fixture = Fixture()
        fixture.log.append(0, encode_batch([record("broken", 1)], 0))
        with pytest.raises(RuntimeError, match="cannot replay"):
            await fixture.elect()
        led = fixture.runtime.led_partition(0)
        assert led is not None
        assert led.state is LoadState.FAILED
        with pytest.raises(Refusal) as refused:
            fixture.submit("get a")
        assert refused.value.code is ErrorCode.NOT_COORDINATOR
        fixture.runtime.close()

    asyncio.run(load())
    assert [str(context["exception"]) for context in reported] == ["cannot replay"]


class LostLog(MemoryLog):
    """A log of a broker that no longer leads the partition, which the runtime does not know yet."""

    is_lost = False

    def high_watermark(self, partition: int) -> int:
        if self.is_lost:
            raise Refusal(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return super().high_watermark(partition)

    def read(self, partition: int) -> Iterator[RecordBatch]:
        if self.is_lost:
            raise Refusal(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return super().read(partition)


@looped
async def test_a_read_after_leadership_is_lost_is_refused() -> None:
    fixture = Fixture(log=LostLog())
    await fixture.elect()
    assert isinstance(fixture.log, LostLog)
    fixture.log.is_lost = True
    with pytest.raises(Refusal) as refused:
        fixture.submit("get a")
    assert refused.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
    fixture.runtime.close()


@looped
async def test_a_load_that_ends_after_leadership_is_lost_is_discarded_without_an_error() -> None:
    fixture = Fixture(log=LostLog())
    assert isinstance(fixture.log, LostLog)
    fixture.log.is_lost = True
    await fixture.elect()
    with pytest.raises(Refusal) as refused:
        fixture.submit("get a")
    assert refused.value.code is ErrorCode.NOT_COORDINATOR
    fixture.runtime.close()


@looped
async def test_records_that_need_not_be_atomic_are_written_in_several_batches() -> None:
    fixture = Fixture()
    shard = await fixture.elect()
    fixture.answer("set-many 1200")
    fixture.runtime.expire()
    assert [RecordBatch(batch).records_count for batch in fixture.log.batches[0]] == [500, 500, 200]
    assert len(shard.state) == 1200
    fixture.runtime.close()


@looped
async def test_a_new_metadata_image_reaches_every_shard_and_those_that_load_later() -> None:
    fixture = Fixture(partitions=2)
    first = await fixture.elect(0)
    later = image(orders=1)
    fixture.runtime.publish(later, FakeDelta(image()))
    second = await fixture.elect(1)
    assert first.images[-1] is later
    assert second.images == [later]
    fixture.runtime.close()


@looped
async def test_closing_the_runtime_leaves_no_task() -> None:
    fixture = Fixture(holds_back=True)
    await fixture.elect()
    fixture.answer("ring-in 1000")
    waiting = fixture.later("set a", 1)
    fixture.runtime.close()
    await turn()
    assert asyncio.all_tasks() == {asyncio.current_task()}
    with pytest.raises(Refusal):
        await waiting
