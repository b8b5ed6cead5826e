"""A follower with a fetch session gets every change, although the leader skips partitions that have not changed."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from pessoa.broker.apis import fetch
from pessoa.log.partition_log import PartitionLog
from pessoa.replication.follower_session import FollowerSession, Position
from pessoa.wire.api.fetch import FetchRequest, FetchResponse, ReplicaState
from pessoa.wire.errors import ErrorCode
from tests.support.batches import offsets, plain
from tests.support.replication_stage import TOPIC_ID, Node, Stage
from tests.unit.replication.test_fetch_handler import alone, context

KEY = (TOPIC_ID, 0)


class Follower:
    """A follower's state of one partition, derived only from the responses to its fetches."""

    def __init__(self, leader: Node, node: Node) -> None:
        self._leader, self._node = leader, node
        self._session = FollowerSession()
        self.end = self.high_watermark = self.start = 0
        self.error = ErrorCode.NONE

    def heard(self, error: ErrorCode) -> bool:
        return self.error is error

    def fetch(self, leader_epoch: int, last_epoch: int = -1) -> bool:
        """Fetch, and return whether the response included the partition."""
        known = Position(leader_epoch, self.end, last_epoch, self.start)
        topics, forgotten = self._session.next_fetch_topics({KEY: known}, 1 << 20)
        response: Any = fetch.handle(
            self._leader.services,
            context(),
            FetchRequest(
                replica_state=ReplicaState(replica_id=self._node.id, replica_epoch=self._node.epoch),
                max_wait_ms=0,
                min_bytes=1,
                session_id=self._session.id,
                session_epoch=self._session.epoch,
                topics=topics,
                forgotten_topics_data=forgotten,
            ),
        )
        assert isinstance(response, FetchResponse)
        assert response.error_code == ErrorCode.NONE
        self._session.apply_response(ErrorCode.NONE, response.session_id)
        for topic in response.responses:
            for data in topic.partitions:
                self.error = ErrorCode.of(data.error_code)
                if self.error is ErrorCode.NONE:
                    self.high_watermark, self.start = data.high_watermark, data.log_start_offset
                    for _, last in offsets(bytes(data.records or b"")):
                        self.end = last + 1
        return bool(response.responses)


@pytest.mark.parametrize("seed", range(20))
def test_the_next_fetch_reports_every_change_of_a_quiet_partition(seed: int) -> None:
    chance = Random(seed)

    async def scene(stage: Stage) -> None:
        leader = await alone(stage)
        partition = leader.partition
        assert partition is not None
        second, third = (Follower(leader, stage.nodes[number]) for number in (2, 3))
        for _ in range(60):
            for _ in range(chance.randrange(3)):
                happens = chance.choice(["append", "third fetches", "delete", "epoch"])
                if happens == "append":
                    partition.append(plain(), stage.clock.now_ms(), 12)
                elif happens == "third fetches":
                    third.fetch(partition.leader_epoch)
                elif happens == "delete":
                    start = chance.randint(partition.log.log_start_offset, partition.log.high_watermark)
                    partition.log.delete_records_before(start)
                else:
                    now = stage.controller.partition
                    stage.controller.partition = now._replace(
                        leader_epoch=now.leader_epoch + 1, partition_epoch=now.partition_epoch + 1
                    )
                    partition.lead(stage.controller.partition)
            second.fetch(partition.leader_epoch)
            assert second.heard(ErrorCode.NONE)
            log = partition.log
            # The records of this fetch can move the high watermark only with the next one.
            second.fetch(partition.leader_epoch)
            told = (second.end, second.high_watermark, second.start)
            assert told == (log.log_end_offset, log.high_watermark, log.log_start_offset)

    with Stage(Random(seed)) as stage:
        stage.run(scene(stage))


def test_a_quiet_partition_is_not_read_again_and_its_follower_counts_as_caught_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reads: list[int] = []
    read = PartitionLog.read

    def counted(log: PartitionLog, offset: int, *rest: Any, **more: Any) -> Any:
        reads.append(offset)
        return read(log, offset, *rest, **more)

    monkeypatch.setattr(PartitionLog, "read", counted)

    async def scene(stage: Stage) -> None:
        leader = await alone(stage)
        partition = leader.partition
        assert partition is not None
        second = Follower(leader, stage.nodes[2])
        for _ in range(2):
            second.fetch(partition.leader_epoch)
        reads.clear()
        for _ in range(10):
            assert not second.fetch(partition.leader_epoch)
        assert reads == []
        # One that is not in sync is looked at every time: it may join.
        partition.isr = (1, 3)
        partition.lead(stage.controller.partition._replace(isr=(1, 3), partition_epoch=99))
        second.fetch(partition.leader_epoch)
        assert reads == [0]
        # Another life of that broker is not the one that was in sync.
        partition.lead(stage.controller.partition._replace(isr=(1, 2, 3), partition_epoch=100))
        second.fetch(partition.leader_epoch)
        stage.nodes[2].epoch += 1
        reads.clear()
        second.fetch(partition.leader_epoch)
        assert reads == [0]

    with Stage(Random(1)) as stage:
        stage.run(scene(stage))


def test_a_quiet_partition_is_read_when_its_follower_names_another_offset_or_epoch() -> None:
    async def scene(stage: Stage) -> None:
        leader = await alone(stage)
        partition = leader.partition
        assert partition is not None
        second = Follower(leader, stage.nodes[2])
        for _ in range(3):
            second.fetch(1)
        # The same offset, but of a history that the leader does not know.
        assert second.fetch(1, last_epoch=7)
        assert second.heard(ErrorCode.OFFSET_OUT_OF_RANGE)
        for _ in range(3):
            second.fetch(1)
        assert second.heard(ErrorCode.NONE)
        partition.lead(stage.controller.partition._replace(leader_epoch=2, partition_epoch=99))
        assert second.fetch(1)
        assert second.heard(ErrorCode.FENCED_LEADER_EPOCH)
        partition.leave()
        assert second.fetch(2)
        assert second.heard(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    with Stage(Random(1)) as stage:
        stage.run(scene(stage))
