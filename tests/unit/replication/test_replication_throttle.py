"""The replication throttle: catching up at a limited rate."""

from __future__ import annotations

from random import Random

import pytest

from pessoa.replication.replication_throttle import Throttle, names_replica
from pessoa.wire.errors import ErrorCode
from tests.support.replication_stage import SETTINGS, TOPIC, Stage


def test_a_throttle_without_a_limit_does_not_wait() -> None:
    throttle = Throttle()
    throttle.take(1 << 40, 0)
    assert throttle.wait_ms(0) == 0


def test_an_overdrawn_throttle_waits_until_it_is_filled_again() -> None:
    throttle = Throttle()
    throttle.limit(1000, now_ms=0)
    throttle.take(1400, now_ms=0)
    assert throttle.wait_ms(0) == 401
    assert throttle.wait_ms(300) == 101
    assert throttle.wait_ms(401) == 0


def test_a_throttle_keeps_unused_bytes_of_one_second() -> None:
    throttle = Throttle()
    throttle.limit(1000, now_ms=0)
    throttle.take(1000, now_ms=60_000)
    assert throttle.wait_ms(60_000) > 0


@pytest.mark.parametrize(
    ("throttled", "expected"), [(("*",), True), (("3:1",), True), (("3:2", "1:1"), False), ((), False)]
)
def test_the_throttled_replicas_of_a_topic_are_parsed_from_its_config(
    throttled: tuple[str, ...], expected: bool
) -> None:
    assert names_replica(throttled, partition=3, broker_id=1) == expected


@pytest.mark.parametrize("side", ["leader", "follower"])
def test_a_follower_that_catches_up_is_throttled_and_one_in_the_isr_is_not(side: str) -> None:
    settings = SETTINGS._replace(replica_fetch_max_bytes=300)
    if side == "leader":
        settings = settings._replace(leader_replication_throttled_rate=1000)
    else:
        settings = settings._replace(follower_replication_throttled_rate=1000)

    async def scene(stage: Stage) -> None:
        await stage.start()
        stage.nodes[3].crash()
        stage.controller.fence(3)
        leader = stage.nodes[1]
        for _ in range(60):
            assert (await stage.produce(leader))[0] == ErrorCode.NONE
        assert leader.partition is not None
        size = leader.partition.log.size
        assert size > 4000
        stage.nodes[3].start()
        begun = stage.loop.now_s
        await stage.until(stage.is_quiet)
        # One second's worth is there at the beginning, and the last answer is not waited for.
        assert stage.loop.now_s - begun > size / 1000 - 2

    with Stage(Random(1), settings=settings) as stage:
        stage.configs[2, TOPIC][f"{side}.replication.throttled.replicas"] = "*"
        stage.run(scene(stage))


def test_bytes_sent_to_the_isr_count_for_the_throttle_which_delays_only_other_replicas() -> None:
    async def scene(stage: Stage) -> None:
        await stage.start()
        leader = stage.nodes[1]
        for _ in range(60):
            # Each answer waits for both followers, so they are held back by nothing.
            assert (await stage.produce(leader))[0] == ErrorCode.NONE
        partition = leader.partition
        assert partition is not None
        assert partition.log.size > 4000
        assert not partition.is_throttled_for(2)
        stage.isolate(3)
        assert (await stage.produce(leader, acks=1))[0] == ErrorCode.NONE
        await stage.until(lambda: partition.isr == (1, 2))
        for _ in range(60):
            assert (await stage.produce(leader))[0] == ErrorCode.NONE
        assert partition.is_throttled_for(3)
        assert not partition.is_throttled_for(2)

    settings = SETTINGS._replace(leader_replication_throttled_rate=100)
    with Stage(Random(1), settings=settings) as stage:
        stage.configs[2, TOPIC]["leader.replication.throttled.replicas"] = "*"
        stage.run(scene(stage))
