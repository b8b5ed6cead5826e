"""Settings of producers and transactions take effect on running brokers, from the file and when changed at run time."""

from __future__ import annotations

import select
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from pessoa.broker.stages.log_maintenance import LogMaintenance
from pessoa.broker.stages.node_listeners import NodeListeners
from pessoa.records.builder import build_batch
from pessoa.records.record import Record
from pessoa.testing import Broker, Cluster
from pessoa.wire.api.consumer_group_describe import ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse
from pessoa.wire.api.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse
from pessoa.wire.api.describe_producers import DescribeProducersRequest, DescribeProducersResponse, TopicRequest
from pessoa.wire.api.describe_transactions import DescribeTransactionsRequest, DescribeTransactionsResponse
from pessoa.wire.api.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from pessoa.wire.api.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from pessoa.wire.api.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from pessoa.wire.api.list_groups import ListGroupsRequest, ListGroupsResponse
from pessoa.wire.api.produce import ProduceResponse
from pessoa.wire.api.update_features import FeatureUpdateKey, UpdateFeaturesRequest, UpdateFeaturesResponse
from pessoa.wire.errors import ErrorCode
from tests.cluster.conftest import create_topic, until
from tests.support.batches import idempotent, transactional
from tests.support.clients import create_topic as create_single
from tests.support.crash_wire import Wire, produce_request

HOUR_MS = 3_600_000
BROKER = 4
# The last version in which a producer adds its partitions to a transaction itself.
PRODUCE_WITHOUT_ADDING = 11


def now_ms() -> int:
    return time.time_ns() // 1_000_000


@contextmanager
def wire_to(broker: Broker) -> Iterator[Wire]:
    with Wire(broker.port) as wire:
        yield wire


def produce(
    broker: Broker, topic: str, records: memoryview, version: int = 12, transactional_id: str | None = None
) -> ErrorCode:
    request = produce_request(topic, records)
    request.transactional_id = transactional_id
    with wire_to(broker) as wire:
        response = wire.ask(request, ProduceResponse, version)
    return ErrorCode.of(response.responses[0].partition_responses[0].error_code)


def producers_of(broker: Broker, topic: str) -> dict[int, int]:
    """Return producer id → first offset of its open transaction, or -1, in this broker's replica of partition 0."""
    request = DescribeProducersRequest(topics=[TopicRequest(name=topic, partition_indexes=[0])])
    with wire_to(broker) as wire:
        [partition] = wire.ask(request, DescribeProducersResponse, 0).topics[0].partitions
    assert partition.error_code == ErrorCode.NONE, ErrorCode.of(partition.error_code)
    return {one.producer_id: one.current_txn_start_offset for one in partition.active_producers}


def wait_for_producers(cluster: Cluster, wanted: dict[int, int]) -> None:
    """Wait until every replica of the topic t has state of exactly these producers."""
    until(lambda: all(producers_of(cluster[one], "t") == wanted for one in cluster), f"{wanted} everywhere")


def alter_brokers(broker: Broker, **settings: str) -> None:
    """Change settings of all brokers of the cluster."""
    resource = AlterConfigsResource(
        resource_type=BROKER,
        resource_name="",
        configs=[
            AlterableConfig(name=name.replace("_", "."), config_operation=0, value=value)
            for name, value in settings.items()
        ],
    )
    request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=False)
    with wire_to(broker) as wire:
        [answer] = wire.ask(request, IncrementalAlterConfigsResponse, 1).responses
    assert answer.error_code == ErrorCode.NONE, answer


def new_producer(broker: Broker, transactional_id: str, timeout_ms: int = 60_000) -> tuple[int, int]:
    request = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=timeout_ms)
    found: list[Any] = []
    with wire_to(broker) as wire:

        def has_begun() -> bool:
            wire.ask(
                FindCoordinatorRequest(key_type=1, coordinator_keys=[transactional_id]), FindCoordinatorResponse, 4
            )
            found.append(wire.ask(request, InitProducerIdResponse, 4))
            return bool(found[-1].error_code == ErrorCode.NONE)

        until(has_begun, "a producer id")
    return found[-1].producer_id, found[-1].producer_epoch


def state_of(broker: Broker, transactional_id: str) -> Any:
    with wire_to(broker) as wire:
        request = DescribeTransactionsRequest(transactional_ids=[transactional_id])
        return wire.ask(request, DescribeTransactionsResponse, 0).transaction_states[0]


# ── producer.id.expiration.ms ──


def test_silent_producer_expires_after_producer_id_expiration_ms_unless_its_transaction_is_open() -> None:
    settings = {"producer.id.expiration.ms": "3600000", "producer.id.expiration.check.interval.ms": "50"}
    with Broker(settings) as broker:
        topic = create_single(broker)
        producer_id, epoch = new_producer(broker, "open", 600_000)
        old = now_ms() - HOUR_MS
        assert (
            produce(broker, topic, transactional(producer_id, 0, producer_epoch=epoch, timestamp=old), 12, "open") == 0
        )
        assert produce(broker, topic, idempotent(7_001, 0, timestamp=now_ms())) == ErrorCode.NONE
        assert produce(broker, topic, idempotent(7_000, 0, timestamp=old)) == ErrorCode.NONE
        until(lambda: 7_000 not in producers_of(broker, topic), "the silent producer is forgotten")
        assert set(producers_of(broker, topic)) == {producer_id, 7_001}
        # Nothing is known of it, so it may go on anywhere.
        assert produce(broker, topic, idempotent(7_000, 25, timestamp=now_ms())) == ErrorCode.NONE


def test_a_changed_producer_id_expiration_ms_holds_on_leader_and_followers_of_running_brokers() -> None:
    with Cluster(3, {"producer.id.expiration.check.interval.ms": "50"}) as cluster:
        create_topic(cluster, "t")
        leader = cluster[cluster.leader_of("t", 0)]
        assert produce(leader, "t", idempotent(7_000, 0, timestamp=now_ms() - HOUR_MS)) == ErrorCode.NONE
        wait_for_producers(cluster, {7_000: -1})
        alter_brokers(leader, producer_id_expiration_ms=str(HOUR_MS))
        wait_for_producers(cluster, {})


@pytest.mark.parametrize("is_static", [True, False], ids=["from the file", "set while it ran"])
def test_a_producer_that_is_remembered_for_longer_than_a_day_is_known_after_a_restart(is_static: bool) -> None:
    """Its replica is opened before the broker has heard what was set while it ran."""
    long = str(72 * HOUR_MS)
    with Broker({"producer.id.expiration.ms": long} if is_static else {}) as broker:
        topic = create_single(broker)
        if not is_static:
            alter_brokers(broker, producer_id_expiration_ms=long)
        old = now_ms() - 48 * HOUR_MS
        assert produce(broker, topic, idempotent(7_000, 0, timestamp=old)) == ErrorCode.NONE
        assert produce(broker, topic, idempotent(7_001, 0, timestamp=old - 48 * HOUR_MS)) == ErrorCode.NONE
        broker.restart()
        assert producers_of(broker, topic) == {7_000: -1}
        assert produce(broker, topic, idempotent(7_000, 5, timestamp=old)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_producers_that_come_and_go_take_no_memory_for_longer_than_they_are_remembered() -> None:
    settings = {"producer.id.expiration.ms": "1", "producer.id.expiration.check.interval.ms": "10"}
    with Broker(settings) as broker:
        topic = create_single(broker)
        with wire_to(broker) as wire:
            for producer_id in range(2_000):
                request = produce_request(topic, idempotent(10_000 + producer_id, 0, timestamp=now_ms()), acks=1)
                wire.ask(request, ProduceResponse, 12)
        until(lambda: producers_of(broker, topic) == {}, "all are forgotten")


# ── DescribeProducers ──


def test_followers_describe_the_producers_that_they_remember() -> None:
    with Cluster(3, {"transaction.partition.verification.enable": "false"}) as cluster:
        create_topic(cluster, "t")
        leader = cluster[cluster.leader_of("t", 0)]
        records = transactional(7_000, 0, timestamp=now_ms())
        assert produce(leader, "t", records, PRODUCE_WITHOUT_ADDING, "open") == ErrorCode.NONE
        wait_for_producers(cluster, {7_000: 0})


# ── transactions ──


def test_expired_transactional_ids_are_looked_for_at_the_configured_interval() -> None:
    settings = {
        "transactional.id.expiration.ms": "1",
        "transaction.remove.expired.transaction.cleanup.interval.ms": "100",
    }
    with Broker(settings) as broker:
        new_producer(broker, "soon gone")
        until(
            lambda: state_of(broker, "soon gone").error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND,
            "the transactional id has expired",
        )


@pytest.mark.parametrize(("is_enabled", "expected"), [(True, ErrorCode.TRANSACTION_ABORTABLE), (False, ErrorCode.NONE)])
def test_a_batch_of_no_open_transaction_is_taken_only_where_verification_is_switched_off(
    is_enabled: bool, expected: ErrorCode
) -> None:
    with Broker({"transaction.partition.verification.enable": str(is_enabled).lower()}) as broker:
        topic = create_single(broker)
        producer_id, epoch = new_producer(broker, "late")
        records = transactional(producer_id, 0, producer_epoch=epoch, timestamp=now_ms())
        assert produce(broker, topic, records, PRODUCE_WITHOUT_ADDING, "late") == expected


def test_switching_verification_off_holds_on_a_running_broker_and_still_adds_partitions_of_version_2() -> None:
    with Broker() as broker:
        topic, other = create_single(broker), create_single(broker)
        producer_id, epoch = new_producer(broker, "late")
        records = transactional(producer_id, 0, producer_epoch=epoch, timestamp=now_ms())
        assert (
            produce(broker, topic, bytes_of(records), PRODUCE_WITHOUT_ADDING, "late") == ErrorCode.TRANSACTION_ABORTABLE
        )
        alter_brokers(broker, transaction_partition_verification_enable="false")
        until(
            lambda: produce(broker, topic, bytes_of(records), PRODUCE_WITHOUT_ADDING, "late") == ErrorCode.NONE,
            "the coordinator is not asked any more",
        )
        assert produce(broker, other, bytes_of(records), 12, "late") == ErrorCode.NONE
        assert [one.topic for one in state_of(broker, "late").topics] == [other]


def bytes_of(records: memoryview) -> memoryview:
    return memoryview(bytearray(records))


# ── sockets ──


def buffers_of(broker: Broker) -> set[tuple[int, int]]:
    """Return the sizes of the send and receive buffers of all client connections."""

    def look(inside: Any) -> set[tuple[int, int]]:
        sockets = [
            connection._transport.get_extra_info("socket")
            for held in inside.stage(NodeListeners).all
            for connection in held.listener.connections
        ]
        return {
            (one.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF), one.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF))
            for one in sockets
        }

    return broker.inspect(look)


def test_connections_have_the_socket_buffers_that_are_configured() -> None:
    settings = {"socket.send.buffer.bytes": "65536", "socket.receive.buffer.bytes": "32768"}
    with Broker(settings) as broker, wire_to(broker) as wire:
        wire.ask(ListGroupsRequest(), ListGroupsResponse, 5)
        # Linux counts what it needs for itself as well, and takes twice as much.
        assert buffers_of(broker) == {(2 * 65536, 2 * 32768)}


@pytest.mark.parametrize(("backlog", "least", "most"), [("2", 1, 5), (None, 20, 20)])
def test_no_more_connections_wait_to_be_accepted_than_the_configured_backlog(
    backlog: str | None, least: int, most: int
) -> None:
    with Broker({} if backlog is None else {"socket.listen.backlog.size": backlog}) as broker:
        broker.pause()
        waiting = [socket.socket() for _ in range(20)]
        try:
            for one in waiting:
                one.setblocking(False)
                one.connect_ex(("127.0.0.1", broker.port))
            _, connected, _ = select.select([], waiting, [], 0.3)
            while len(connected) < least:
                _, connected, _ = select.select([], waiting, [], 0.3)
            assert len(connected) <= most
        finally:
            for one in waiting:
                one.close()
            broker.resume()


# ── group.coordinator.rebalance.protocols ──


def join(broker: Broker) -> ErrorCode:
    request = ConsumerGroupHeartbeatRequest(
        group_id="g",
        member_id="m",
        member_epoch=0,
        rebalance_timeout_ms=60_000,
        subscribed_topic_names=["t"],
        topic_partitions=[],
    )
    with wire_to(broker) as wire:
        wire.ask(FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]), FindCoordinatorResponse, 4)
        return ErrorCode.of(wire.ask(request, ConsumerGroupHeartbeatResponse, 1).error_code)


def test_consumer_groups_are_refused_where_only_classic_groups_are_served() -> None:
    with Broker({"group.coordinator.rebalance.protocols": "classic"}) as broker:
        assert join(broker) == ErrorCode.UNSUPPORTED_VERSION
        request = ConsumerGroupDescribeRequest(group_ids=["b", "", "a"], include_authorized_operations=False)
        with wire_to(broker) as wire:
            groups = wire.ask(request, ConsumerGroupDescribeResponse, 1).groups
        refused = ErrorCode.UNSUPPORTED_VERSION
        assert [(one.group_id, one.error_code) for one in groups] == [("b", refused), ("", refused), ("a", refused)]


def test_consumer_groups_are_refused_below_the_group_version_that_has_them() -> None:
    with Broker() as broker:
        until(lambda: join(broker) == ErrorCode.NONE, "a member joins")
        update = FeatureUpdateKey(feature="group.version", max_version_level=0, upgrade_type=2)
        with wire_to(broker) as wire:
            answer = wire.ask(UpdateFeaturesRequest(feature_updates=[update]), UpdateFeaturesResponse, 1)
        assert answer.error_code == ErrorCode.NONE, answer
        until(lambda: join(broker) == ErrorCode.UNSUPPORTED_VERSION, "consumer groups are switched off")


# ── log.cleaner ──


def test_a_broker_that_runs_takes_over_the_settings_of_the_cleaner(tmp_path: Path) -> None:
    def settings(inside: Any) -> tuple[int, int, float]:
        found = inside.stage(LogMaintenance).cleaner._settings
        return found.threads, found.backoff_ms, found.io_max_bytes_per_second

    def has_cleaner(inside: Any) -> bool:
        return inside.stage(LogMaintenance).cleaner is not None

    with Broker(directory=tmp_path) as broker:
        # A broker has a cleaner once a compacted log has a segment below its active one, and looks for such a log at
        # once when settings change.
        topic = create_single(broker, config={"cleanup.policy": "compact", "segment.ms": "1"})
        alter_brokers(broker, log_cleaner_backoff_ms="50")

        def runs_after_another_batch() -> bool:
            batch = memoryview(build_batch([Record(0, now_ms(), b"k", b"v")]))
            assert produce(broker, topic, batch) == ErrorCode.NONE
            return bool(broker.inspect(has_cleaner))

        until(runs_after_another_batch, "the cleaner runs")
        alter_brokers(
            broker,
            log_cleaner_threads="2",
            log_cleaner_backoff_ms="77",
            log_cleaner_io_max_bytes_per_second="1000000",
        )
        until(lambda: broker.inspect(settings) == (2, 77, 1_000_000), "the cleaner has them")
