"""Share groups on real brokers, with requests over raw connections: records, share state and share sessions."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from pessoa.base.ids import Uuid
from pessoa.broker.lifecycle import Broker as Node
from pessoa.testing import Broker
from pessoa.wire.api.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from pessoa.wire.api.list_groups import ListGroupsRequest
from pessoa.wire.errors import ErrorCode
from tests.differential.session_data import produce
from tests.differential.session_stage import Player
from tests.differential.share_script import ACCEPT, GROUP_CONFIG, RELEASE, acknowledge, fetch, join, offsets_of
from tests.support.admin_script import SET, alter, create, delete, feature, quota, topic
from tests.support.batches import plain
from tests.support.clients import TIMEOUT_S, until
from tests.support.crash_wire import fetch_request

SETTINGS = {
    "group.share.min.record.lock.duration.ms": "1000",
    "group.share.assignment.interval.ms": "0",
    "share.coordinator.state.topic.num.partitions": "3",
    "offsets.topic.num.partitions": "3",
}
# For failures alone.
LONG_MS = 60_000


@contextmanager
def playing(broker: Broker) -> Iterator[Player]:
    player = Player({1: broker.port})
    try:
        player.open()
        yield player
    finally:
        player.close()


@pytest.fixture
def player() -> Iterator[Player]:
    with Broker(SETTINGS) as broker, playing(broker) as player:
        yield player


def begin(player: Player, *counts: int, group: str = "g", **configs: str) -> Uuid:
    """Create a topic with batches of so many records, and a share group with a member that has its partition."""
    player.look(create(topic("t", 1, 1)))
    for count in counts:
        player.look(produce("t", plain(count)), 12)
    configs = {"share.auto.offset.reset": "earliest", **configs}
    changes = [(name, SET, value) for name, value in configs.items()]
    player.look(alter(GROUP_CONFIG, group, *changes))
    join(player, group, "mine-a", "t")
    return player.topic_id("t")


def acquired(response: Any) -> list[tuple[int, int, int]]:
    assert response.error_code == 0, response
    partitions = [one for topic in response.responses for one in topic.partitions]
    assert {one.error_code for one in partitions} <= {0}, response
    return [
        (one.first_offset, one.last_offset, one.delivery_count) for each in partitions for one in each.acquired_records
    ]


def take(player: Player, t: Uuid, member: str = "mine-a", epoch: int = 0, group: str = "g", **settings: Any) -> Any:
    settings = {"max_wait_ms": LONG_MS, **settings}
    return acquired(player.look(fetch(group, member, epoch, [(t, 0)], **settings), actor=member))


def say(player: Player, t: Uuid, epoch: int, *batches: tuple[int, int, list[int]], member: str = "mine-a") -> int:
    response = player.look(acknowledge("g", member, epoch, {(t, 0): batches}), actor=member)
    assert response.error_code == 0, response
    return int(response.responses[0].partitions[0].error_code)


def test_a_record_whose_lock_expires_is_redelivered_until_the_delivery_limit(player: Player) -> None:
    t = begin(player, 4, **{"share.record.lock.duration.ms": "1000", "share.delivery.count.limit": "2"})
    assert take(player, t) == [(0, 3, 1)]
    assert take(player, t, "mine-b") == [(0, 3, 2)]
    # Both deliveries were in vain.
    player.look(produce("t", plain(1)), 12)
    until(
        lambda: player.look(offsets_of("g", {"t": [0]})).groups[0].topics[0].partitions[0].lag,
        lambda lag: lag == 1,
        "the end of the locks",
    )
    assert take(player, t, "mine-c") == [(4, 4, 1)]
    assert say(player, t, 1, (0, 3, [ACCEPT])) == ErrorCode.NONE, "what lies below the start offset is passed over"


def test_accepted_records_are_not_redelivered_after_a_kill_and_others_are(tmp_path: Path) -> None:
    with Broker(SETTINGS, directory=tmp_path) as broker:
        with playing(broker) as player:
            t = begin(player, 10)
            assert take(player, t) == [(0, 9, 1)]
            assert say(player, t, 1, (0, 1, [ACCEPT]), (4, 5, [ACCEPT]), (7, 7, [RELEASE])) == 0
            # No connection ends before, which would give back what the member has.
            broker.kill()
        broker.start()
        with playing(broker) as player:
            join(player, "g", "mine-b", "t")
            # The delivery of what was acquired and not acknowledged is not stored.
            assert take(player, t, "mine-b") == [(2, 3, 1), (6, 6, 1), (7, 7, 2), (8, 9, 1)]


def test_a_share_group_that_begins_at_latest_skips_no_record_after_a_restart(tmp_path: Path) -> None:
    with Broker(SETTINGS, directory=tmp_path) as broker:
        with playing(broker) as player:
            t = begin(player, 5, **{"share.auto.offset.reset": "latest"})
            assert take(player, t, max_wait_ms=0) == []
            until(
                lambda: player.look(offsets_of("g", {"t": [0]})).groups[0].topics[0].partitions[0].start_offset,
                lambda offset: offset == 5,
                "the start offset",
            )
            player.look(produce("t", plain(3)), 12)
        broker.restart()
        with playing(broker) as player:
            assert take(player, t, "mine-b") == [(5, 7, 1)]


def test_a_read_committed_share_group_gets_no_records_of_aborted_transactions() -> None:
    with Broker(SETTINGS) as broker, playing(broker) as player:
        t = begin(player, **{"share.isolation.level": "read_committed"})
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "transactional.id": "x", "linger.ms": 50})
        producer.init_transactions(TIMEOUT_S)
        for is_committed in (False, True, False, True):
            producer.begin_transaction()
            for _ in range(3):
                producer.produce("t", b"value")
            producer.flush(TIMEOUT_S)
            (producer.commit_transaction if is_committed else producer.abort_transaction)(TIMEOUT_S)
        # Three records and a marker each. A member gets markers, and acknowledges them as gaps.
        found = take(player, t)
        offsets = {offset for first, last, _ in found for offset in range(first, last + 1)}
        assert {4, 5, 6, 12, 13, 14} <= offsets
        assert offsets.isdisjoint({0, 1, 2, 8, 9, 10})


def test_a_share_group_skips_deleted_records(player: Player) -> None:
    t = begin(player, 5, 5)
    assert take(player, t, max_records=1, batch_size=1) == [(0, 4, 1)]
    wanted = DeleteRecordsPartition(partition_index=0, offset=7)
    player.look(DeleteRecordsRequest(topics=[DeleteRecordsTopic(name="t", partitions=[wanted])], timeout_ms=LONG_MS))
    assert take(player, t, "mine-b") == [(7, 9, 1)]
    assert say(player, t, 1, (0, 4, [ACCEPT])) == ErrorCode.NONE


def test_thousands_of_acknowledge_types_are_processed_in_slices(player: Player) -> None:
    t = begin(player, 9_000)
    assert take(player, t) == [(0, 8_999, 1)]
    types = [ACCEPT if offset % 2 else RELEASE for offset in range(9_000)]
    assert say(player, t, 1, (0, 8_999, types)) == ErrorCode.NONE
    found = take(player, t, "mine-b", max_records=9_000, batch_size=1)
    assert {first for first, _, _ in found} == set(range(0, 9_000, 2))
    assert all(first == last for first, last, _ in found)


def test_a_share_member_over_its_quota_acquires_no_records(player: Player) -> None:
    t = begin(player, *[1] * 100)
    player.look(quota({"client-id": "session"}, ("consumer_byte_rate", 100.0)))
    player.wait_until_applied()
    found = [(0, 0, 0)]
    number = 0
    while found:
        # Each with a connection of its own: that of a member that was over the limit is muted.
        number += 1
        response = player.look(fetch("g", f"mine-{number}", 0, [(t, 0)]), actor=f"mine-{number}")
        found = acquired(response)
    assert response.throttle_time_ms > 0
    player.look(quota({"client-id": "session"}, ("consumer_byte_rate", None)))
    player.wait_until_applied()
    # What was not acquired is there for others.
    assert take(player, t, "mine-z")[-1][1] == 99


def test_share_fetches_and_other_fetches_count_for_one_quota(player: Player) -> None:
    t = begin(player, *[10] * 10)
    player.look(quota({"client-id": "session"}, ("consumer_byte_rate", 10.0)))
    player.wait_until_applied()
    # The first may have what it asks for, and everything that was sent counts.
    response = player.look(fetch("g", "mine-a", 0, [(t, 0)], max_wait_ms=LONG_MS), actor="mine-a")
    assert acquired(response)
    assert response.throttle_time_ms > 0
    plainly = player.look(fetch_request("t", 0), 12, actor="plain")
    assert plainly.throttle_time_ms > 0
    assert not plainly.responses or not plainly.responses[0].partitions[0].records


def test_an_acknowledgement_over_the_request_quota_is_throttled_and_executed(player: Player) -> None:
    t = begin(player, *[1] * 200)
    assert take(player, t)[-1][1] == 199
    player.look(quota({"client-id": "session"}, ("request_percentage", 0.05)))
    player.wait_until_applied()
    # How many that takes depends on the machine. A connection that was throttled is muted: the last one was not.
    offset, throttle_ms = -1, 0
    while throttle_ms == 0 and offset < 199:
        offset += 1
        request = acknowledge("g", "mine-a", offset + 1, {(t, 0): [(offset, offset, [ACCEPT])]})
        response = player.look(request, actor="mine-a")
        assert response.error_code == response.responses[0].partitions[0].error_code == 0
        throttle_ms = response.throttle_time_ms
    assert 0 < throttle_ms <= 1_000
    player.look(quota({"client-id": "session"}, ("request_percentage", None)))
    # What is stored does not have to be waited for: the answers said that it is.
    assert player.look(offsets_of("g", {"t": [0]})).groups[0].topics[0].partitions[0].lag == 199 - offset


def test_a_share_fetch_of_a_group_without_state_is_an_error_at_once(player: Player) -> None:
    t = begin(player, 1)
    response = player.look(fetch("stranger", "mine-s", 0, [(t, 0)], max_wait_ms=LONG_MS), actor="mine-s")
    assert response.responses[0].partitions[0].error_code == ErrorCode.UNKNOWN_SERVER_ERROR


def test_a_topic_that_is_created_again_gets_new_state_in_its_share_group(player: Player) -> None:
    t = begin(player, 3)
    assert take(player, t) == [(0, 2, 1)]
    player.look(delete("t"))
    player.wait_until_applied()
    response = player.look(fetch("g", "mine-a", 1, max_wait_ms=LONG_MS), actor="mine-a")
    assert response.responses[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID
    player.look(create(topic("t", 1, 1)))
    player.look(produce("t", plain(2)), 12)
    join(player, "g", "mine-b", "t")
    assert take(player, player.topic_id("t"), "mine-b") == [(0, 1, 1)]


def test_share_groups_are_switched_off_and_on_again(player: Player) -> None:
    t = begin(player, 3)
    assert take(player, t) == [(0, 2, 1)]
    player.look(feature("share.version", 0, upgrade_type=2))
    player.wait_until_applied()
    off = player.look(fetch("g", "mine-a", 1), actor="mine-a")
    assert off.error_code == ErrorCode.UNSUPPORTED_VERSION
    player.look(feature("share.version", 1))
    player.wait_until_applied()
    assert player.look(fetch("g", "mine-a", 1), actor="mine-a").error_code == ErrorCode.SHARE_SESSION_NOT_FOUND
    assert take(player, t) == [(0, 2, 1)], "what was not acknowledged is delivered again"
    listed = player.look(ListGroupsRequest(states_filter=[], types_filter=[])).groups
    assert [(group.group_id, group.group_type) for group in listed] == [("g", "share")]


def test_records_that_the_share_coordinator_does_not_need_any_more_are_deleted() -> None:
    settings = {
        **SETTINGS,
        "share.coordinator.state.topic.prune.interval.ms": "50",
        "share.coordinator.snapshot.update.records.per.snapshot": "2",
        "share.coordinator.state.topic.num.partitions": "1",
    }

    def start_offset(node: Node) -> int:
        partition = node.services.replicas.ensure("__share_group_state", 0)
        assert partition is not None
        return partition.log.log_start_offset

    with Broker(settings) as broker, playing(broker) as player:
        t = begin(player, 20)
        assert take(player, t) == [(0, 19, 1)]
        for offset in range(19):
            assert say(player, t, offset + 1, (offset, offset, [ACCEPT])) == ErrorCode.NONE
        until(lambda: broker.inspect(start_offset), lambda offset: offset > 3, "the deletion of records")
        player.look(fetch("g", "mine-a", -1), actor="mine-a")
        assert take(player, t, "mine-b") == [(19, 19, 2)]
