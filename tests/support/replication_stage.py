"""Brokers that replicate one partition, on simulated time, disks and network, with a controller of a few lines.

Real are `LocalReplicas` with all that is below it, and the handlers of Produce, Fetch and ListOffsets. Requests and
responses are encoded and decoded, so no node shares objects with another. Not real are the controller, which decides
in one place and sends each broker the new image a little later, and the network: a delay, and links that can be cut.

A broker that is killed keeps all that it has written, as in the page cache; one that loses power keeps what was synced,
and some of the rest.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Self

from pessoa.base.entropy import SeededEntropy, new_uuid, positive_int32
from pessoa.base.ids import Uuid
from pessoa.broker.apis import fetch, list_offsets, produce
from pessoa.broker.batch_opening import BatchOpener
from pessoa.broker.fetch_sessions import FetchSessions
from pessoa.broker.read_damage import ReadDamage
from pessoa.log.directory import LogDirectory
from pessoa.log.flusher import Flusher
from pessoa.log.log_config import LogConfig
from pessoa.log.simulated_disk import SimulatedDisk
from pessoa.log.upkeep import Upkeep
from pessoa.metadata.cluster_image import BrokerImage, ClusterImage
from pessoa.metadata.image import MetadataImage
from pessoa.metadata.table_images import ConfigsImage
from pessoa.metadata.topics_image import DIRECTORY_UNASSIGNED, PartitionImage, TopicImage, TopicsImage
from pessoa.net.channel import ChannelFailed
from pessoa.net.file_sending import read_ranges
from pessoa.replication.local_replicas import LocalReplicas
from pessoa.replication.replication_settings import ReplicationSettings
from pessoa.wire.api.alter_partition import (
    AlterPartitionResponse,
    AlterPartitionResponsePartitionData,
    AlterPartitionResponseTopicData,
    TopicData,
)
from pessoa.wire.api.fetch import FetchRequest
from pessoa.wire.api.list_offsets import ListOffsetsRequest
from pessoa.wire.api.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from pessoa.wire.catalogue import ApiKey
from pessoa.wire.errors import ErrorCode
from pessoa.wire.request_context import RequestContext
from tests.simulation.loop import SimulatedLoop
from tests.support.batches import NOW_MS, plain

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from random import Random

    from pessoa.base.clock import Timer
    from pessoa.replication.partition import Partition
    from pessoa.wire.schema import Message
    from tests.simulation.loop import Process

TOPIC = "orders"
TOPIC_ID = Uuid.of(1000)
LISTENER = "PLAINTEXT"
DIRECTORY = "/data"
PRODUCE_VERSION = 12
_HANDLERS: dict[type[Message], Any] = {
    FetchRequest: fetch.handle,
    ListOffsetsRequest: list_offsets.handle,
    ProduceRequest: produce.handle,
}

SETTINGS = ReplicationSettings(
    replica_lag_time_max_ms=1000, replica_fetch_backoff_ms=200, replica_socket_timeout_ms=2000
)


class StageClock:
    def __init__(self, loop: SimulatedLoop) -> None:
        self._loop = loop

    def now_ms(self) -> int:
        return NOW_MS + self.monotonic_ms()

    def monotonic_ms(self) -> int:
        return int(self._loop.now_s * 1000)

    def call_after_ms(self, duration_ms: int, call: Callable[[], object]) -> Timer:
        return self._loop.call_later(duration_ms / 1000, call)

    async def wait_ms(self, duration_ms: int) -> None:
        await asyncio.sleep(duration_ms / 1000)


class Node:
    """A broker: its disk, which survives a crash, and its process, which does not."""

    def __init__(self, stage: Stage, node_id: int) -> None:
        self.stage = stage
        self.id = node_id
        self.disk = SimulatedDisk(node_id)
        self.disk.make_directory(DIRECTORY)
        self.process: Process | None = None
        self.epoch = -1
        self.incarnations = 0
        self.services: Any = None
        self.directory: LogDirectory

    def __repr__(self) -> str:
        return f"<Node {self.id}: {self.partition if self.is_running else 'down'}>"

    @property
    def is_running(self) -> bool:
        return self.process is not None

    @property
    def partition(self) -> Partition | None:
        return self.services.replicas.ensure(TOPIC, 0) if self.is_running else None

    def start(self) -> None:
        stage, config = self.stage, self.stage.config
        self.process = stage.loop.new_process(f"broker {self.id}")
        clock, flusher = stage.clock, Flusher()
        self.directory = LogDirectory(self.disk, DIRECTORY)
        self.directory.open(lambda _: config, clock.now_ms())
        upkeep = Upkeep(self.disk, [self.directory], clock, flusher)
        # Two incarnations never draw the same random ids.
        self.incarnations += 1
        entropy = SeededEntropy(self.id << 32 | self.incarnations)
        replicas = LocalReplicas(
            self.id, [self.directory], upkeep, lambda _: config, partial(new_uuid, entropy),
            clock=clock, flusher=flusher, settings=stage.settings, broker_epoch=lambda: self.epoch,
            channel_to=lambda peer: StageChannel(stage, self.id, peer),  # type: ignore[arg-type,return-value]
            alter_partition=partial(stage.controller.alter_partition, self),
        )  # fmt: skip
        self.services = SimpleNamespace(
            authorizer=None,
            unread_bytes=lambda: 0,
            damage=ReadDamage(),
            opener=BatchOpener(),
            clock=clock,
            replicas=replicas,
            image=MetadataImage.EMPTY,
            flusher=flusher,
            config=SimpleNamespace(inter_broker_listener_name=LISTENER, fetch_max_bytes=1 << 26, value=lambda _: None),
            is_out_of_touch=lambda: False,
            is_leaving=False,
            fetch_sessions=FetchSessions(partial(positive_int32, entropy)),
            nodes=lambda _: [],
        )
        stage.controller.register(self)

    def crash(self, *, loses_power: bool = False) -> None:
        assert self.process is not None
        self.stage.loop.kill(self.process)
        self.process = None
        if loses_power:
            self.disk.lose_power()
        else:
            self.disk.crash_process()

    def publish(self, image: MetadataImage) -> None:
        if image.offset > self.services.image.offset:
            self.services.image = image
            self.services.replicas.apply(image, image.topics.by_id, ())

    async def serve(self, request: Message, version: int) -> Message | None:
        context = RequestContext(request.api_key, version, 1, "stage", "stage", 1, LISTENER)
        reply = _HANDLERS[type(request)](self.services, context, request)
        answer: Message | None = await reply if isinstance(reply, Awaitable) else reply
        return answer


class StageChannel:
    """A connection from one broker to another, with the interface of `net.channel.Channel`."""

    def __init__(self, stage: Stage, source: int, target: int) -> None:
        self._stage, self._source, self._target = stage, source, target
        self._waiting: dict[asyncio.Future[Any], None] = {}
        self._is_closed = False

    async def send(self, request: Message, version: int, timeout_ms: int) -> Message:
        stage = self._stage
        if self._is_closed:
            raise ChannelFailed("closed")
        answer: asyncio.Future[Any] = stage.loop.create_future()
        self._waiting[answer] = None
        stage.carry(self._source, self._target, lambda: self._arrive(request, version, answer))
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                found: Message = await answer
        except TimeoutError:
            raise ChannelFailed("no answer") from None
        else:
            return found
        finally:
            self._waiting.pop(answer, None)

    def close(self) -> None:
        self._is_closed = True
        for answer in self._waiting:
            if not answer.done():
                answer.set_exception(ChannelFailed("closed"))

    def _arrive(self, request: Message, version: int, answer: asyncio.Future[Any]) -> None:
        stage, target = self._stage, self._stage.nodes[self._target]
        if target.process is None:
            stage.carry(self._target, self._source, lambda: _fail(answer, "refused"))
            return
        data = bytes(request.encode(version))
        stage.loop.spawn(target.process, self._serve(target, type(request).decode(data, version), version, answer))

    async def _serve(self, target: Node, request: Message, version: int, answer: asyncio.Future[Any]) -> None:
        reply = await target.serve(request, version)
        assert reply is not None
        data = bytearray().join(read_ranges(type(reply).encoder(version)(reply, bytearray())))
        kind = ApiKey(request.api_key).response
        self._stage.carry(self._target, self._source, lambda: _resolve(answer, kind.decode(data, version)))


def _resolve(answer: asyncio.Future[Any], value: Any) -> None:
    if not answer.done():
        answer.set_result(value)


def _fail(answer: asyncio.Future[Any], why: str) -> None:
    if not answer.done():
        answer.set_exception(ChannelFailed(why))


class StageController:
    """The controller: decides about leader and ISR correctly, in as few lines as possible."""

    def __init__(self, stage: Stage, replicas: tuple[int, ...]) -> None:
        self._stage = stage
        self._next_epoch = 1
        self.image = replace(MetadataImage.EMPTY, offset=0, configs=ConfigsImage(stage.configs))
        self.brokers: dict[int, BrokerImage] = {}
        self.partition = PartitionImage(
            replicas=replicas, directories=(DIRECTORY_UNASSIGNED,) * len(replicas), isr=replicas,
            removing_replicas=(), adding_replicas=(), elr=(), last_known_elr=(),
            leader=-1, leader_epoch=0, partition_epoch=0, leader_recovery_state=0,
        )  # fmt: skip
        # Further partitions of the topic, by index. The test sets their leader and ISR.
        self.others: dict[int, PartitionImage] = {}

    def register(self, node: Node) -> None:
        """Give a broker that has started a new broker epoch, and remove it from the ISR unless it is the only member:
        its log may have lost bytes that were not synced."""
        self._next_epoch += 1
        node.epoch = self._next_epoch
        self.brokers[node.id] = BrokerImage(node.id, node.epoch, Uuid.of(node.epoch), {}, {}, None, False, False, ())
        isr = self.partition.isr
        if node.id in isr and len(isr) > 1 and self._stage.has_begun:
            self._change(isr=tuple(one for one in isr if one != node.id))
        self.elect()

    def fence(self, node_id: int) -> None:
        if node_id in self.brokers:
            self.brokers[node_id] = replace(self.brokers[node_id], fenced=True)
        isr = tuple(one for one in self.partition.isr if one != node_id)
        if isr and len(isr) < len(self.partition.isr):
            self._change(isr=isr)
        self.elect()

    def is_live(self, node_id: int) -> bool:
        return node_id in self.brokers and not self.brokers[node_id].fenced

    def elect(self, wanted: int | None = None) -> None:
        """Elect a live in-sync replica: `wanted` if it is live and in sync, else the present leader, else the first."""
        candidates = [one for one in self.partition.isr if self.is_live(one)]
        leader = wanted if wanted in candidates else None
        if leader is None:
            leader = self.partition.leader if self.partition.leader in candidates else (candidates or [-1])[0]
        if leader != self.partition.leader:
            self._change(leader=leader, leader_epoch=self.partition.leader_epoch + 1)
        else:
            self.publish()

    def _change(self, **changes: Any) -> None:
        self.partition = self.partition._replace(partition_epoch=self.partition.partition_epoch + 1, **changes)
        self.publish()

    def publish(self) -> None:
        topic = TopicImage(TOPIC, TOPIC_ID, {0: self.partition, **self.others})
        self.image = image = replace(
            self.image,
            offset=self.image.offset + 1,
            topics=TopicsImage({TOPIC: topic}, {TOPIC_ID: topic}),
            cluster=ClusterImage(dict(self.brokers), {}),
        )
        for node in self._stage.nodes.values():
            if node.process is not None:
                process = node.process
                self._stage.later(self._stage.link_delay_s(), partial(self._tell, node, process, image))

    def _tell(self, node: Node, process: Process, image: MetadataImage) -> None:
        if node.process is process and node.id not in self._stage.deaf:
            process.context.run(self._stage.loop.call_soon, node.publish, image)

    async def alter_partition(self, node: Node, topics: list[TopicData]) -> AlterPartitionResponse:
        stage = self._stage
        epoch = node.epoch
        await asyncio.sleep(stage.link_delay_s())
        if stage.loses_message() or node.id in stage.deaf:
            raise ChannelFailed("lost on its way")
        [topic] = topics
        [data] = topic.partitions
        now, error = self.partition, ErrorCode.NONE
        isr = tuple(one.broker_id for one in data.new_isr_with_epochs)
        if epoch != self.brokers[node.id].epoch or not self.is_live(node.id):
            return AlterPartitionResponse(throttle_time_ms=0, error_code=ErrorCode.STALE_BROKER_EPOCH, topics=[])
        if data.leader_epoch != now.leader_epoch or now.leader != node.id:
            error = ErrorCode.FENCED_LEADER_EPOCH
        elif data.partition_epoch != now.partition_epoch:
            error = ErrorCode.INVALID_UPDATE_VERSION
        elif any(
            not self.is_live(one.broker_id) or one.broker_epoch not in (-1, self.brokers[one.broker_id].epoch)
            for one in data.new_isr_with_epochs
        ):
            error = ErrorCode.INELIGIBLE_REPLICA
        else:
            self._change(isr=isr)
        result = AlterPartitionResponsePartitionData(
            partition_index=0, error_code=error, leader_id=self.partition.leader,
            leader_epoch=self.partition.leader_epoch, isr=list(self.partition.isr),
            partition_epoch=self.partition.partition_epoch,
        )  # fmt: skip
        await asyncio.sleep(stage.link_delay_s())
        if stage.loses_message() or node.id in stage.deaf:
            raise ChannelFailed("the answer was lost")
        return AlterPartitionResponse(
            throttle_time_ms=0,
            error_code=ErrorCode.NONE,
            topics=[AlterPartitionResponseTopicData(topic_id=topic.topic_id, partitions=[result])],
        )


class Stage:
    """`with Stage(rng) as stage: stage.run(test())`."""

    def __init__(
        self,
        rng: Random,
        nodes: int = 3,
        *,
        min_insync_replicas: int = 1,
        config: LogConfig | None = None,
        settings: ReplicationSettings = SETTINGS,
        wire_ms: tuple[float, float] = (0.2, 2.0),
    ) -> None:
        self.rng = rng
        self.loop = SimulatedLoop()  # type: ignore[abstract]
        self.clock = StageClock(self.loop)
        self.config = config or LogConfig()
        self.settings = settings
        self.configs = {(2, TOPIC): {"min.insync.replicas": str(min_insync_replicas)}}
        self.cuts: set[tuple[int, int]] = set()
        # Brokers to which the controller's images do not arrive.
        self.deaf: set[int] = set()
        self.message_loss = 0.0
        self.has_begun = False
        self._wire_ms = wire_ms
        self.nodes = {number: Node(self, number) for number in range(1, nodes + 1)}
        self.controller = StageController(self, tuple(self.nodes))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.loop.bury()

    def run(self, work: Any) -> Any:
        result = self.loop.run_until_complete(work, max_steps=2_000_000)
        assert not self.loop.problems, self.loop.problems
        return result

    async def start(self) -> None:
        for node in self.nodes.values():
            node.start()
        self.has_begun = True
        await self.until(lambda: self.leader() is not None)

    # Wires.

    def later(self, delay_s: float, call: Callable[[], None]) -> None:
        self.loop.call_later(delay_s, call)

    def link_delay_s(self) -> float:
        return self.rng.uniform(*self._wire_ms) / 1000

    def loses_message(self) -> bool:
        return self.rng.random() < self.message_loss

    def carry(self, source: int, target: int, arrive: Callable[[], None]) -> None:
        """Call `arrive` at the target after the delay of the link, unless the link is cut by then or the message is
        lost."""
        sender = self.nodes[source].process

        def deliver() -> None:
            if (source, target) not in self.cuts and not self.loses_message():
                process = self.nodes[target].process
                if process is not None:
                    process.context.run(self.loop.call_soon, arrive)
                elif sender is not None and sender is self.nodes[source].process:
                    arrive()

        self.later(self.link_delay_s(), deliver)

    def isolate(self, node_id: int) -> None:
        for other in self.nodes:
            self.cuts |= {(node_id, other), (other, node_id)}

    def heal(self) -> None:
        self.cuts.clear()
        self.deaf.clear()
        self.message_loss = 0.0
        self.controller.publish()

    # What a test asks and does.

    def leader(self) -> Node | None:
        """Return the broker that the controller has elected, or None while that broker does not know of it."""
        node = self.nodes.get(self.controller.partition.leader)
        partition = None if node is None else node.partition
        if partition is None or not partition.is_leader:
            return None
        return node if partition.leader_epoch == self.controller.partition.leader_epoch else None

    def running(self) -> Iterator[Node]:
        return (node for node in self.nodes.values() if node.is_running)

    async def until(self, condition: Callable[[], bool], within_s: float = 60.0) -> None:
        deadline = self.loop.now_s + within_s
        while not condition():
            assert self.loop.now_s < deadline, f"not within {within_s} s: {list(self.nodes.values())}"
            await asyncio.sleep(0.005)

    async def produce(
        self, node: Node, count: int = 1, *, acks: int = -1, timeout_ms: int = 1500, batch: memoryview | None = None
    ) -> tuple[int, int]:
        """Produce one batch to this node; return error code and base offset, which is -1 without a response."""
        data = PartitionProduceData(index=0, records=plain(count) if batch is None else batch)
        request = ProduceRequest(
            transactional_id=None,
            acks=acks,
            timeout_ms=timeout_ms,
            topic_data=[TopicProduceData(name=TOPIC, partition_data=[data])],
        )
        assert node.process is not None
        task = self.loop.spawn(node.process, node.serve(request, PRODUCE_VERSION))
        await asyncio.wait([task], timeout=timeout_ms / 1000 + 1)
        if not task.done():
            return ErrorCode.REQUEST_TIMED_OUT, -1
        response: Any = task.result()
        answer = response.responses[0].partition_responses[0]
        return answer.error_code, answer.base_offset

    def is_quiet(self) -> bool:
        """Return whether all nodes run and are in sync, with equal log ends and high watermarks."""
        partitions = [node.partition for node in self.nodes.values()]
        leader = self.leader()
        if leader is None or leader.partition is None or set(self.controller.partition.isr) != set(self.nodes):
            return False
        end = leader.partition.log.log_end_offset
        return all(
            one is not None and one.log.log_end_offset == end and one.log.high_watermark == end for one in partitions
        )
