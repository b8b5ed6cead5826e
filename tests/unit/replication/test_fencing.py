"""Requests and replicas that are refused, or not counted, because of their epoch (KIP-320, KIP-841, KIP-903)."""

from __future__ import annotations

from random import Random
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from pessoa.broker.apis import list_offsets, offset_for_leader_epoch
from pessoa.replication.isr import UNKNOWN, Follower
from pessoa.replication.partition import LocalBroker
from pessoa.wire.api.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsResponse, ListOffsetsTopic
from pessoa.wire.api.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from pessoa.wire.errors import ErrorCode
from pessoa.wire.request_context import RequestContext
from tests.support.replication_stage import LISTENER, TOPIC, Stage

if TYPE_CHECKING:
    from pessoa.replication.partition import Partition

EARLIEST = -2


def context(version: int) -> RequestContext:
    return RequestContext(0, version, 1, "test", "test", 1, LISTENER)


def listed(services: Any, epoch: int) -> int:
    wanted = ListOffsetsPartition(partition_index=0, current_leader_epoch=epoch, timestamp=EARLIEST)
    request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=TOPIC, partitions=[wanted])])
    answer = list_offsets.handle(services, context(11), request)
    assert isinstance(answer, ListOffsetsResponse)
    return int(answer.topics[0].partitions[0].error_code)


def ended(services: Any, epoch: int) -> int:
    wanted = OffsetForLeaderPartition(partition=0, current_leader_epoch=epoch, leader_epoch=0)
    request = OffsetForLeaderEpochRequest(topics=[OffsetForLeaderTopic(topic=TOPIC, partitions=[wanted])])
    return int(offset_for_leader_epoch.handle(services, context(4), request).topics[0].partitions[0].error_code)


def test_list_offsets_and_offset_for_leader_epoch_refuse_older_and_newer_leader_epochs() -> None:
    async def scene(stage: Stage) -> None:
        await stage.start()
        node = stage.nodes[1]
        partition: Partition | None = node.partition
        assert partition is not None
        epoch = partition.leader_epoch
        for ask in (listed, ended):
            assert ask(node.services, epoch - 1) == ErrorCode.FENCED_LEADER_EPOCH
            assert ask(node.services, epoch + 1) == ErrorCode.UNKNOWN_LEADER_EPOCH
            assert ask(node.services, epoch) == ErrorCode.NONE
            assert ask(node.services, -1) == ErrorCode.NONE, "a client that does not say"

    with Stage(Random(1)) as stage:
        stage.run(scene(stage))


@pytest.mark.parametrize(
    ("known", "fetched_epoch", "may_join"),
    [
        pytest.param({}, 7, True, id="a live one"),
        pytest.param({}, UNKNOWN, True, id="one that does not say in which life it is"),
        pytest.param({}, 6, False, id="an earlier broker epoch"),
        pytest.param({}, 8, False, id="a life that the metadata does not know"),
        pytest.param({"fenced": True}, 7, False, id="fenced"),
        pytest.param({"in_controlled_shutdown": True}, 7, False, id="on its way out"),
        pytest.param(None, 7, False, id="not registered"),
    ],
)
def test_only_a_live_follower_joins_the_isr_and_only_under_the_broker_epoch_of_its_fetch(
    known: dict[str, bool] | None, fetched_epoch: int, may_join: bool
) -> None:
    registered = {"epoch": 7, "fenced": False, "in_controlled_shutdown": False, **(known or {})}
    brokers = {} if known is None else {2: SimpleNamespace(**registered)}
    leader: Any = SimpleNamespace(image=SimpleNamespace(cluster=SimpleNamespace(brokers=brokers)))
    follower = Follower(2)
    follower.broker_epoch = fetched_epoch
    assert LocalBroker.is_eligible(leader, follower) is may_join


def test_a_committed_produce_is_answered_not_enough_replicas_after_append_if_the_isr_has_shrunk() -> None:
    async def scene(stage: Stage) -> None:
        await stage.start()
        assert (await stage.produce(stage.nodes[1], 1))[0] == ErrorCode.NONE
        partition = stage.nodes[1].partition
        assert partition is not None
        assert partition.in_sync is not None
        partition.min_insync_replicas = 2
        assert partition.commit_error(1) is ErrorCode.NONE
        assert partition.commit_error(2) is None, "it is not replicated"
        full_isr, partition.in_sync.isr = partition.in_sync.isr, (1,)
        assert partition.commit_error(1) is ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
        partition.in_sync.isr = full_isr

    with Stage(Random(1)) as stage:
        stage.run(scene(stage))
