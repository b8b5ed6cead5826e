"""Pipelined batches of a producer after a batch that was refused with a retriable error."""

from __future__ import annotations

from random import Random

import pytest

from pessoa.broker.apis import produce
from pessoa.log.producer_state import ProducerState
from pessoa.records.batch import RecordBatch
from pessoa.replication.refused_batches import FORGOTTEN_AFTER_MS, IN_FLIGHT, MAX_PRODUCERS, RefusedBatches
from pessoa.wire.api.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from pessoa.wire.errors import ErrorCode
from pessoa.wire.request_context import RequestContext
from tests.support.batches import NOW_MS, idempotent, plain
from tests.support.replication_stage import LISTENER, PRODUCE_VERSION, TOPIC, Node, Stage

PRODUCER = 7
LAST_SEQUENCE = (1 << 31) - 1
NOT_ENOUGH = ErrorCode.NOT_ENOUGH_REPLICAS


def states(*appended: memoryview) -> ProducerState:
    made = ProducerState()
    for data in appended:
        made.update(RecordBatch(data))
    return made


def refused(data: memoryview) -> RefusedBatches:
    made = RefusedBatches()
    made.note(data, NOT_ENOUGH, states(), NOW_MS)
    return made


def test_batches_after_a_refused_batch_get_its_error_until_the_refused_batch_is_sent_again() -> None:
    known, producers = refused(idempotent(PRODUCER, 5, 2)), states(idempotent(PRODUCER, 0, 5))
    for sequence in (7, 8, 9):
        assert known.error_after_refused_batch(idempotent(PRODUCER, sequence), producers, NOW_MS) is NOT_ENOUGH
    assert known.error_after_refused_batch(idempotent(PRODUCER, 5, 2), producers, NOW_MS) is None
    assert not known


def test_refusing_a_later_batch_keeps_the_first_refused_batch() -> None:
    known = refused(idempotent(PRODUCER, 5))
    known.note(idempotent(PRODUCER, 6), NOT_ENOUGH, states(idempotent(PRODUCER, 0, 5)), NOW_MS)
    assert (
        known.error_after_refused_batch(idempotent(PRODUCER, 6), states(idempotent(PRODUCER, 0, 5)), NOW_MS)
        is NOT_ENOUGH
    )


@pytest.mark.parametrize("later_ms", [0, FORGOTTEN_AFTER_MS], ids=["appended meanwhile", "long ago"])
def test_a_settled_or_expired_refusal_does_not_hide_the_next_refusal(later_ms: int) -> None:
    known = refused(idempotent(PRODUCER, 7))
    # It had been appended after all, or it is not known what became of it.
    producers = states(idempotent(PRODUCER, 0, 8)) if not later_ms else states()
    known.note(idempotent(PRODUCER, 8), NOT_ENOUGH, producers, NOW_MS + later_ms)
    assert known.error_after_refused_batch(idempotent(PRODUCER, 9), producers, NOW_MS + later_ms) is NOT_ENOUGH
    assert known.error_after_refused_batch(idempotent(PRODUCER, 8), producers, NOW_MS + later_ms) is None


def test_a_batch_after_a_refused_first_batch_of_an_unknown_producer_is_refused() -> None:
    known = refused(idempotent(PRODUCER, 0))
    assert known.error_after_refused_batch(idempotent(PRODUCER, 1), states(), NOW_MS) is NOT_ENOUGH


def test_refused_sequences_wrap_around() -> None:
    known = refused(idempotent(PRODUCER, LAST_SEQUENCE))
    assert known.error_after_refused_batch(idempotent(PRODUCER, 0), states(), NOW_MS) is NOT_ENOUGH


def test_a_duplicate_of_a_batch_before_the_refused_one_is_accepted() -> None:
    known = refused(idempotent(PRODUCER, 5))
    assert known.error_after_refused_batch(idempotent(PRODUCER, 4), states(idempotent(PRODUCER, 0, 5)), NOW_MS) is None
    assert known, "the refused one is still missing"


def test_a_producer_that_skips_its_refused_batch_is_accepted_after_max_in_flight_requests() -> None:
    known, producers = refused(idempotent(PRODUCER, 5)), states(idempotent(PRODUCER, 0, 5))
    said = [
        known and known.error_after_refused_batch(idempotent(PRODUCER, 6), producers, NOW_MS)
        for _ in range(IN_FLIGHT + 1)
    ]
    assert said == [NOT_ENOUGH] * IN_FLIGHT + [None]
    assert not known


@pytest.mark.parametrize(
    ("batch", "producers"),
    [
        (idempotent(PRODUCER, 0, producer_epoch=1), states(idempotent(PRODUCER, 0, 5))),
        (idempotent(PRODUCER, 8), states(idempotent(PRODUCER, 0, 8))),
    ],
    ids=["another epoch", "the leader between has taken it"],
)
def test_a_settled_refusal_refuses_no_further_batches(batch: memoryview, producers: ProducerState) -> None:
    known = refused(idempotent(PRODUCER, 5))
    assert known.error_after_refused_batch(batch, producers, NOW_MS) is None
    assert not known


def test_a_refusal_concerns_no_other_producer_and_no_batch_without_a_sequence() -> None:
    known = refused(idempotent(PRODUCER, 5))
    for data in (idempotent(PRODUCER + 1, 9), plain(1), memoryview(b"no batch"), None):
        assert known.error_after_refused_batch(data, states(), NOW_MS) is None
        known.note(data if data is None or len(data) < 61 else plain(1), NOT_ENOUGH, states(), NOW_MS)
    assert list(known) == [PRODUCER]


def test_a_partition_keeps_a_bounded_number_of_refused_batches_for_a_limited_time() -> None:
    known = RefusedBatches()
    for producer in range(2 * MAX_PRODUCERS):
        known.note(idempotent(producer, 0), NOT_ENOUGH, states(), NOW_MS)
    assert list(known) == list(range(MAX_PRODUCERS, 2 * MAX_PRODUCERS))
    for _ in range(MAX_PRODUCERS):
        assert known.error_after_refused_batch(idempotent(0, 1), states(), NOW_MS + FORGOTTEN_AFTER_MS) is None
    assert not known


def send(node: Node, sequence: int, acks: int = -1) -> ErrorCode | None:
    """Produce one record; return the error code, or None if the produce waits for replicas."""
    data = PartitionProduceData(index=0, records=memoryview(bytearray(idempotent(PRODUCER, sequence))))
    request = ProduceRequest(
        transactional_id=None,
        acks=acks,
        timeout_ms=1000,
        topic_data=[TopicProduceData(name=TOPIC, partition_data=[data])],
    )
    context = RequestContext(0, PRODUCE_VERSION, 1, "test", "test", 1, LISTENER)
    answer = produce.handle(node.services, context, request)
    if not isinstance(answer, ProduceResponse):
        answer.__await__().close()  # type: ignore[union-attr]
        return None
    return ErrorCode.of(answer.responses[0].partition_responses[0].error_code)


def test_a_leader_that_has_enough_replicas_again_keeps_the_order_of_pipelined_batches() -> None:
    async def scene(stage: Stage) -> None:
        await stage.start()
        leader = stage.leader()
        assert leader is not None
        partition = leader.partition
        assert partition is not None
        for follower in (2, 3):
            stage.isolate(follower)
            stage.controller.fence(follower)
        await stage.until(lambda: not partition.has_enough_replicas)
        assert send(leader, 0) is NOT_ENOUGH
        stage.heal()
        for follower in (2, 3):
            stage.controller.register(stage.nodes[follower])
        await stage.until(lambda: partition.has_enough_replicas)
        assert [send(leader, sequence) for sequence in (1, 2, 0, 1, 2)] == [NOT_ENOUGH, NOT_ENOUGH, None, None, None]
        assert partition.log.log_end_offset == 3
        assert not partition.refused

    with Stage(Random(3), min_insync_replicas=2) as stage:
        stage.run(scene(stage))


def test_a_broker_that_learns_late_of_its_leadership_keeps_the_order_of_pipelined_batches() -> None:
    async def scene(stage: Stage) -> None:
        await stage.start()
        follower = stage.nodes[2]
        assert send(follower, 0) is ErrorCode.NOT_LEADER_OR_FOLLOWER
        stage.controller.elect(2)
        await stage.until(lambda: stage.leader() is follower)
        said = [send(follower, sequence, acks=1) for sequence in (1, 0, 1)]
        assert said == [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NONE, ErrorCode.NONE]

    with Stage(Random(3)) as stage:
        stage.run(scene(stage))
