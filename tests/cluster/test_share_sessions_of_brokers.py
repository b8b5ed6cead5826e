"""Share sessions on real brokers: the release of records at their end, and long reads that leave time to others."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import pytest
from confluent_kafka import Producer

from pessoa.base.clock import ManualClock
from pessoa.broker.lifecycle import Broker as Node
from pessoa.broker.share import share_reads
from pessoa.broker.share.share_reads import AbortedOffsets
from pessoa.coordinator.share.share_state import ShareKey
from pessoa.log.aborted_transactions import AbortedTransaction
from pessoa.testing import Broker
from pessoa.wire.errors import ErrorCode
from tests.cluster.test_share_partitions import LONG_MS, SETTINGS, acquired, begin, playing, say, take
from tests.differential.session_data import produce
from tests.differential.session_stage import Player
from tests.differential.share_script import ACCEPT, acknowledge, fetch
from tests.support.admin_script import feature
from tests.support.batches import plain
from tests.support.clients import TIMEOUT_S, until


def share_partition_count(broker: Broker) -> int:
    def count(node: Node) -> int:
        return len(node.services.coordinators.share_partitions)

    return broker.inspect(count)


def wait_for_share_partition(broker: Broker, key: ShareKey) -> None:
    def is_there(node: Node) -> bool:
        return node.services.coordinators.share_partitions.get(key) is not None

    until(lambda: broker.inspect(is_there), bool, "the share partition of the fetch that waits")


class Turns:
    """Counts the turns of a broker's event loop."""

    def __init__(self) -> None:
        self.count = 0
        self._is_over = False

    @contextmanager
    def of(self, broker: Broker) -> Iterator[None]:
        broker.inspect(lambda _: self._turn())
        try:
            yield
        finally:
            self._is_over = True

    def _turn(self) -> None:
        self.count += 1
        if not self._is_over:
            asyncio.get_running_loop().call_soon(self._turn)


def test_a_waiting_share_fetch_ends_with_its_session() -> None:
    with Broker(SETTINGS) as broker, playing(broker) as player:
        t = begin(player)
        waiting = player.begin("waits", fetch("g", "mine-a", 0, [(t, 0)], max_wait_ms=LONG_MS), actor="mine-a")
        wait_for_share_partition(broker, ShareKey("g", t, 0))
        assert player.look(fetch("g", "mine-a", -1), actor="another").error_code == ErrorCode.NONE
        assert acquired(player.finish(waiting)) == []
        assert share_partition_count(broker) == 0, "no session would ever end it"
        player.look(produce("t", plain(3)), 12)
        assert take(player, t, "mine-b") == [(0, 2, 1)]


class NotedClock(ManualClock):
    """A manual clock that records the durations of waits."""

    def __init__(self) -> None:
        super().__init__()
        self.waits_ms: list[int] = []

    async def wait_ms(self, duration_ms: int) -> None:
        self.waits_ms.append(duration_ms)
        await super().wait_ms(duration_ms)


def test_a_member_without_room_for_its_share_session_is_refused_at_its_timeout_and_may_retry() -> None:
    with Broker({**SETTINGS, "group.share.max.share.sessions": "1"}) as broker, playing(broker) as player:
        t = begin(player, 3)
        assert take(player, t) == [(0, 2, 1)]
        clock = NotedClock()
        # From now on no time passes for requests but what is said here.
        broker.inspect(lambda node: setattr(node.services, "clock", clock))
        waiting = player.begin("no room", fetch("g", "mine-b", 0, [(t, 0)], max_wait_ms=LONG_MS), actor="mine-b")
        until(lambda: broker.inspect(lambda _: clock.waits_ms), bool, "the request that has no room")
        assert clock.waits_ms == [LONG_MS]
        broker.inspect(lambda _: clock.advance_ms(LONG_MS - 1))
        # Other members go on meanwhile, and their answers come first.
        assert say(player, t, 1, (0, 0, [ACCEPT])) == ErrorCode.NONE
        assert not player.has_answer(waiting)
        broker.inspect(lambda _: clock.advance_ms(1))
        refused = player.finish(waiting)
        assert (refused.error_code, refused.responses) == (ErrorCode.SHARE_SESSION_LIMIT_REACHED, [])
        # A member that has a session may begin it anew, and one that closes its session makes room.
        assert player.look(fetch("g", "mine-a", 0, [(t, 0)], max_wait_ms=0), actor="mine-a").error_code == 0
        assert player.look(fetch("g", "mine-a", -1), actor="mine-a").error_code == ErrorCode.NONE
        assert take(player, t, "mine-b") == [(1, 2, 2)]


def test_a_waiting_share_fetch_creates_no_state_after_share_groups_were_switched_off() -> None:
    with Broker(SETTINGS) as broker, playing(broker) as player:
        t = begin(player)
        waiting = player.begin("waits", fetch("g", "mine-a", 0, [(t, 0)], max_wait_ms=LONG_MS), actor="mine-a")
        wait_for_share_partition(broker, ShareKey("g", t, 0))
        player.look(feature("share.version", 0, upgrade_type=2))
        assert acquired(player.finish(waiting)) == []
        assert share_partition_count(broker) == 0


def test_the_final_request_of_a_share_session_releases_its_records_though_its_connection_closes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """While its acknowledgements are stored, which takes as long as the share coordinator likes."""
    from pessoa.broker.share import share_acknowledging

    is_asked = []

    async def never(*_: Any, **__: Any) -> None:
        is_asked.append(True)
        await asyncio.get_running_loop().create_future()

    with Broker(SETTINGS) as broker, playing(broker) as player:
        t = begin(player, 10)
        assert take(player, t) == [(0, 9, 1)]
        with monkeypatch.context() as patch:
            patch.setattr(share_acknowledging, "acknowledge", never)
            with closing(Player({1: broker.port})) as other:
                other.begin("leaves", acknowledge("g", "mine-a", -1, {(t, 0): [(0, 1, [ACCEPT])]}))
                until(lambda: bool(is_asked), bool, "the last request")
        until(lambda: share_partition_count(broker), lambda count: count == 0, "the end of the session")
        assert take(player, t, "mine-b") == [(0, 9, 2)]


@pytest.mark.parametrize("more", [{}, {"pessoa.metrics.port": "0"}], ids=["without metrics", "with metrics"])
def test_a_share_session_ends_with_the_connection_of_its_member(more: dict[str, str]) -> None:
    with Broker({**SETTINGS, **more}) as broker, playing(broker) as player:
        t = begin(player, 3)
        with closing(Player({1: broker.port})) as leaving:
            assert take(leaving, t) == [(0, 2, 1)]
            assert share_partition_count(broker) == 1
        until(lambda: share_partition_count(broker), lambda count: count == 0, "the end of the session")
        assert take(player, t, "mine-b") == [(0, 2, 2)]


def test_other_requests_are_served_while_a_share_fetch_skips_aborted_records(monkeypatch: pytest.MonkeyPatch) -> None:
    turns = Turns()
    turns_at_reads: list[int] = []
    acquire = share_reads.acquire

    def noted(*arguments: Any, **settings: Any) -> Any:
        turns_at_reads.append(turns.count)
        return acquire(*arguments, **settings)

    with Broker(SETTINGS) as broker, playing(broker) as player:
        t = begin(player, **{"share.isolation.level": "read_committed", "share.partition.max.record.locks": "100"})
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "transactional.id": "x", "linger.ms": 50})
        producer.init_transactions(TIMEOUT_S)
        producer.begin_transaction()
        for _ in range(10):
            for _ in range(50):
                producer.produce("t", b"value")
            producer.flush(TIMEOUT_S)
        producer.abort_transaction(TIMEOUT_S)
        monkeypatch.setattr(share_reads, "acquire", noted)
        with turns.of(broker):
            take(player, t)
    assert len(turns_at_reads) > 2
    assert len(set(turns_at_reads)) == len(turns_at_reads), turns_at_reads


def test_a_share_fetch_of_one_record_skips_aborted_records_in_one_read(monkeypatch: pytest.MonkeyPatch) -> None:
    reads = []
    acquire = share_reads.acquire

    def noted(*arguments: Any, **settings: Any) -> Any:
        reads.append(arguments)
        return acquire(*arguments, **settings)

    with Broker(SETTINGS) as broker, playing(broker) as player:
        t = begin(player, **{"share.isolation.level": "read_committed"})
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "transactional.id": "x"})
        producer.init_transactions(TIMEOUT_S)
        producer.begin_transaction()
        for _ in range(10):
            producer.produce("t", b"value")
            producer.flush(TIMEOUT_S)
        producer.abort_transaction(TIMEOUT_S)
        monkeypatch.setattr(share_reads, "acquire", noted)
        # The marker, which is acknowledged as a gap.
        assert take(player, t, max_records=1) == [(10, 10, 1)]
    assert len(reads) == 1


def test_other_requests_are_served_while_a_share_response_names_very_many_partitions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    turns = Turns()
    turns_at_partitions: set[int] = set()
    failed = share_reads.failed

    def noted(*arguments: Any) -> Any:
        turns_at_partitions.add(turns.count)
        return failed(*arguments)

    with Broker(SETTINGS) as broker, playing(broker) as player:
        t = begin(player)
        monkeypatch.setattr(share_reads, "failed", noted)
        with turns.of(broker):
            response = player.look(fetch("g", "mine-a", 0, [(t, index) for index in range(9_000)], max_records=0))
    assert sum(len(topic.partitions) for topic in response.responses) == 9_000
    assert len(turns_at_partitions) > 3


def test_a_batch_is_aborted_only_by_a_transaction_of_its_own_producer_that_contains_it() -> None:
    transactions = [(1, 0, 5), (2, 3, 8), (1, 10, 12)]
    aborted = AbortedOffsets([AbortedTransaction(*one, last_stable_offset=0) for one in transactions])
    found = {producer: [offset for offset in range(14) if aborted.have(producer, offset)] for producer in (1, 2, 3)}
    assert found == {1: [0, 1, 2, 3, 4, 10, 11], 2: [3, 4, 5, 6, 7], 3: []}
