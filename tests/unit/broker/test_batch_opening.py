"""Batches that take long to decompress do not block the event loop: a thread reads them before they are appended."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from pessoa.broker.apis import produce
from pessoa.log.log_config import LogConfig
from pessoa.net.pending import Pending, PendingTask
from pessoa.records.batch_validation import AppendRules, CostlyBatch, check_produced, open_produced
from pessoa.records.builder import build_batch
from pessoa.records.compression import Codec
from pessoa.records.invalid_batch import InvalidBatch
from pessoa.records.record import Record
from pessoa.wire.api.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from pessoa.wire.errors import ErrorCode
from pessoa.wire.request_context import RequestContext
from tests.support.batches import NOW_MS, plain
from tests.support.replication_stage import LISTENER, SETTINGS, TOPIC, Stage

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

MANY = 6_000
COMPACTED = LogConfig(cleanup_policy=frozenset({"compact"}))
RULES = AppendRules(is_compacted=True)
VERSION = 12


def keyed(count: int, *, codec: Codec = Codec.NONE, value: bytes = b"v") -> memoryview:
    records = [Record(index, NOW_MS, b"k%d" % index, value) for index in range(count)]
    return memoryview(build_batch(records, codec=codec))


def unkeyed(count: int) -> memoryview:
    return memoryview(build_batch([Record(index, NOW_MS, None, b"v") for index in range(count)]))


@pytest.mark.parametrize(
    "batch",
    [
        pytest.param(lambda: keyed(MANY), id="many records"),
        pytest.param(lambda: keyed(MANY, codec=Codec.ZSTD), id="many compressed records"),
        *(
            pytest.param(lambda codec=codec: keyed(1, codec=codec, value=bytes(2 << 20)), id=f"2 MiB in {codec.name}")
            for codec in (Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD)
        ),
    ],
)
def test_a_batch_that_takes_long_to_validate_is_not_validated_on_the_event_loop(
    batch: Callable[[], memoryview],
) -> None:
    data = batch()
    with pytest.raises(CostlyBatch):
        check_produced(data, RULES, NOW_MS, VERSION)
    opened = open_produced(data, RULES, NOW_MS)
    assert check_produced(opened.view, RULES, NOW_MS, VERSION, is_opened=True).records_count == opened.records_count


def test_timestamps_that_take_long_to_read_are_not_read_on_the_event_loop() -> None:
    """A header that is not believed opens the batches of any topic."""
    data = keyed(1, codec=Codec.ZSTD, value=bytes(2 << 20))
    day_ms = 24 * 60 * 60 * 1000
    with pytest.raises(CostlyBatch):
        check_produced(data, AppendRules(), NOW_MS + day_ms, VERSION)
    assert open_produced(data, AppendRules(), NOW_MS + day_ms).records_count == 1


def test_a_batch_that_decompresses_to_more_than_the_limit_is_refused_by_the_thread() -> None:
    data = keyed(1, codec=Codec.ZSTD, value=bytes(129 << 20))
    with pytest.raises(CostlyBatch):
        check_produced(data, RULES, NOW_MS, VERSION)
    with pytest.raises(InvalidBatch) as refused:
        open_produced(data, RULES, NOW_MS)
    assert refused.value.error is ErrorCode.MESSAGE_TOO_LARGE


def play(scene: Callable[[Stage], Coroutine[Any, Any, None]], config: LogConfig = COMPACTED) -> None:
    with Stage(Random(1), config=config, settings=SETTINGS._replace(replica_lag_time_max_ms=600_000)) as stage:
        stage.run(scene(stage))


async def asked(stage: Stage, *batches: memoryview, acks: int = -1) -> Any:
    """Return the response of node 1, which leads them, to a produce of these batches to partitions 0, 1, …"""
    leader, controller = stage.nodes[1], stage.controller
    controller.others = dict.fromkeys(range(1, len(batches)), controller.partition)
    controller.publish()
    await stage.until(lambda: leader.services.replicas.ensure(TOPIC, len(batches) - 1) is not None)
    data = [PartitionProduceData(index=index, records=batch) for index, batch in enumerate(batches)]
    request = ProduceRequest(
        acks=acks, timeout_ms=30_000, topic_data=[TopicProduceData(name=TOPIC, partition_data=data)]
    )
    return produce.handle(leader.services, RequestContext(0, 9, 1, "test", "test", 1, LISTENER), request)


async def answers(stage: Stage, reply: Any) -> list[tuple[int, int]]:
    """Return the error code and the base offset of each partition."""
    assert isinstance(reply, Pending)
    reply.when_ready(lambda: None)
    await stage.until(lambda: reply.is_ready)
    response = reply.response()
    assert isinstance(response, ProduceResponse)
    return [(one.error_code, one.base_offset) for one in response.responses[0].partition_responses]


def test_a_produce_whose_batch_is_validated_in_a_thread_is_answered_completely_and_in_order() -> None:
    async def scene(stage: Stage) -> None:
        await stage.start()
        reply = await asked(stage, keyed(MANY), keyed(3), unkeyed(MANY), keyed(MANY, codec=Codec.ZSTD))
        assert isinstance(reply, PendingTask)
        assert not reply.lets_next_in, "the next batch of the producer must not overtake this one"
        assert await answers(stage, reply) == [
            (ErrorCode.NONE, 0),
            (ErrorCode.NONE, 0),
            (ErrorCode.INVALID_RECORD, -1),
            (ErrorCode.NONE, 0),
        ]
        ends = [stage.nodes[1].services.replicas.ensure(TOPIC, index).log.log_end_offset for index in range(4)]
        assert ends == [MANY, 3, 0, MANY]

    play(scene)


def test_a_batch_that_is_validated_in_a_thread_is_refused_if_leadership_has_changed_meanwhile() -> None:
    async def scene(stage: Stage) -> None:
        await stage.start()
        reply = await asked(stage, keyed(MANY))
        partition = stage.nodes[1].partition
        assert partition is not None
        partition.leave()
        assert await answers(stage, reply) == [(ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)]

    play(scene)


def test_a_large_batch_that_must_be_recompressed_is_compressed_in_a_thread() -> None:
    async def scene(stage: Stage) -> None:
        await stage.start()
        reply = await asked(stage, keyed(1, codec=Codec.ZSTD, value=bytes(3 << 20)))
        assert await answers(stage, reply) == [(ErrorCode.NONE, 0)]
        partition = stage.nodes[1].partition
        assert partition is not None
        assert partition.log.log_end_offset == 1

    play(scene, LogConfig(compression_type="gzip"))


def test_small_batches_are_validated_on_the_event_loop() -> None:
    assert check_produced(keyed(100, codec=Codec.ZSTD), RULES, NOW_MS, VERSION).records_count == 100
    assert check_produced(plain(timestamp=NOW_MS), AppendRules(), NOW_MS, VERSION).records_count == 1
