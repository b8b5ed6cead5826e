"""The shell that sends transaction markers: retries, deleted topics, fencing, and the end of leadership."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping, Sequence

from pessoa.base.clock import ManualClock
from pessoa.coordinator.transactions.marker_messages import MarkersWritten, WriteMarkers
from pessoa.coordinator.transactions.marker_writer import Errors, Marker, MarkerWriter
from pessoa.coordinator.transactions.transaction import ProducerIdentity, TopicPartition
from pessoa.wire.errors import ErrorCode, Refusal
from pessoa.wire.schema import Message
from tests.support.markers import wait_until_idle
from tests.unit.coordinator.transactions.test_producer_ids import turn

P0, P1, GONE = ("t", 0), ("t", 1), ("deleted", 0)
WANTED = WriteMarkers("orders", ProducerIdentity(7, 3), True, (P0, P1), 2)


class World:
    """The leaders of partitions, the shard that is notified of their markers, and its coordinator epoch."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.epoch: int | None = 5
        self.errors: dict[TopicPartition, ErrorCode] = {}
        self.asked: list[tuple[Marker, list[TopicPartition]]] = []
        self.reports: list[list[TopicPartition]] = []
        self.refuses_with: ErrorCode | None = None
        self.answers_later = False
        self.writer = MarkerWriter(self, self.report, lambda partition: self.epoch, self.clock)

    def write(self, marker: Marker, partitions: Sequence[TopicPartition]) -> Errors | Awaitable[Errors]:
        self.asked.append((marker, list(partitions)))
        answer = {partition: self.errors.get(partition, ErrorCode.NONE) for partition in partitions}
        return self.later(answer) if self.answers_later else answer

    async def later(self, answer: Mapping[TopicPartition, ErrorCode]) -> Errors:
        await asyncio.sleep(0)
        return answer

    def is_gone(self, partition: TopicPartition) -> bool:
        return partition == GONE

    def report(self, partition: int, told: MarkersWritten) -> Message | Awaitable[Message]:
        if self.refuses_with is not None:
            raise Refusal(self.refuses_with)
        self.reports.append([(topic.name, index) for topic in told.topics for index in topic.partition_indexes])
        return told

    async def retry(self) -> None:
        await turn()
        self.clock.advance_ms(1_000)
        await turn()


def test_all_markers_are_written_and_reported() -> None:
    async def scenario() -> None:
        world = World()
        world.answers_later = True
        world.writer.start(0, WANTED)
        await wait_until_idle(world.writer)
        assert world.asked == [(Marker(7, 3, 5, True, 2), [P0, P1])]
        assert world.reports == [[P0, P1]]

    asyncio.run(scenario())


def test_a_transaction_without_partitions_is_reported_at_once() -> None:
    async def scenario() -> None:
        world = World()
        world.writer.start(0, WANTED._replace(partitions=()))
        await wait_until_idle(world.writer)
        assert world.asked == []
        assert world.reports == [[]]

    asyncio.run(scenario())


def test_a_partition_of_a_deleted_topic_needs_no_marker() -> None:
    async def scenario() -> None:
        world = World()
        world.writer.start(0, WANTED._replace(partitions=(GONE, P0)))
        await wait_until_idle(world.writer)
        assert [partitions for _, partitions in world.asked] == [[P0]]
        assert world.reports == [[GONE, P0]]

    asyncio.run(scenario())


def test_only_missing_markers_are_requested_again() -> None:
    async def scenario() -> None:
        world = World()
        world.errors[P1] = ErrorCode.NOT_LEADER_OR_FOLLOWER
        world.writer.start(0, WANTED)
        await world.retry()
        assert world.reports == [[P0]]
        world.errors.clear()
        await world.retry()
        assert world.reports == [[P0], [P1]]
        assert [partitions for _, partitions in world.asked] == [[P0, P1], [P1], [P1]]
        await wait_until_idle(world.writer)

    asyncio.run(scenario())


def test_markers_that_could_not_be_reported_are_reported_with_the_rest() -> None:
    async def scenario() -> None:
        world = World()
        world.errors[P1] = ErrorCode.REQUEST_TIMED_OUT
        world.refuses_with = ErrorCode.NOT_ENOUGH_REPLICAS
        world.writer.start(0, WANTED)
        await turn()
        world.errors.clear()
        world.refuses_with = None
        await world.retry()
        assert world.reports == [[P0, P1]]
        await wait_until_idle(world.writer)

    asyncio.run(scenario())


def test_a_completion_that_could_not_be_written_is_tried_again() -> None:
    async def scenario() -> None:
        world = World()
        world.refuses_with = ErrorCode.NOT_ENOUGH_REPLICAS
        world.writer.start(0, WANTED)
        await world.retry()
        assert len(world.asked) == 1
        world.refuses_with = None
        await world.retry()
        assert world.reports == [[P0, P1]]
        await wait_until_idle(world.writer)

    asyncio.run(scenario())


def test_a_fenced_coordinator_stops_writing_markers() -> None:
    async def scenario() -> None:
        for code in (ErrorCode.TRANSACTION_COORDINATOR_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH):
            world = World()
            world.errors[P1] = code
            world.writer.start(0, WANTED)
            await wait_until_idle(world.writer)
            assert world.reports == []

    asyncio.run(scenario())


def test_writing_markers_ends_when_the_leadership_of_their_epoch_ends() -> None:
    async def scenario() -> None:
        world = World()
        world.errors[P1] = ErrorCode.NOT_LEADER_OR_FOLLOWER
        world.writer.start(0, WANTED)
        await turn()
        world.epoch = 6
        await world.retry()
        await wait_until_idle(world.writer)
        assert len(world.asked) == 1
        world.epoch = None
        world.writer.start(0, WANTED)
        await wait_until_idle(world.writer)
        assert len(world.asked) == 1

    asyncio.run(scenario())


def test_markers_of_an_older_coordinator_epoch_are_not_reported() -> None:
    async def scenario() -> None:
        world = World()
        world.answers_later = True
        world.writer.start(0, WANTED)
        await asyncio.sleep(0)
        assert world.asked
        world.epoch = 6
        await world.retry()
        await wait_until_idle(world.writer)
        assert world.reports == []

    asyncio.run(scenario())


def test_an_unexpected_error_of_a_marker_is_passed_to_the_loops_exception_handler() -> None:
    async def scenario() -> None:
        seen: list[BaseException] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: seen.append(context["exception"]))
        world = World()
        world.errors[P0] = ErrorCode.MESSAGE_TOO_LARGE
        world.writer.start(0, WANTED)
        await wait_until_idle(world.writer)
        await turn()
        assert "MESSAGE_TOO_LARGE" in str(seen[0])

    asyncio.run(scenario())
