"""Resources that a request names many times are answered once, so that a small request has no enormous response."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from pessoa.metadata.image import ConfigResource
from pessoa.testing import Broker
from pessoa.wire.api.consumer_group_describe import ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse
from pessoa.wire.api.describe_configs import DescribeConfigsRequest, DescribeConfigsResource, DescribeConfigsResponse
from pessoa.wire.api.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from pessoa.wire.api.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    TopicRequest,
)
from pessoa.wire.api.describe_transactions import DescribeTransactionsRequest, DescribeTransactionsResponse
from pessoa.wire.api.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from pessoa.wire.api.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchResponse
from pessoa.wire.api.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from pessoa.wire.errors import ErrorCode
from tests.support.crash_wire import Wire, fetch

TIMEOUT_S = 60
TIMES = 500
TOPIC, GROUP = int(ConfigResource.TOPIC), int(ConfigResource.GROUP)


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as running:
        admin = AdminClient({"bootstrap.servers": running.bootstrap_servers})
        admin.create_topics([NewTopic("t", 3, 1)])["t"].result(TIMEOUT_S)
        consumer = Consumer({"bootstrap.servers": running.bootstrap_servers, "group.id": "g"})
        consumer.commit(offsets=[TopicPartition("t", 0, 1)], asynchronous=False)
        consumer.close()
        yield running


@pytest.fixture
def wire(broker: Broker) -> Iterator[Wire]:
    with Wire(broker.port) as connection:
        yield connection


def test_a_metadata_request_with_repeated_topics_is_answered_once_for_each(wire: Wire) -> None:
    topics = [MetadataRequestTopic(name=name) for name in ("t", "unknown") * TIMES]
    for version in (0, 13):
        request = MetadataRequest(topics=topics, allow_auto_topic_creation=version == 0)
        answer = wire.ask(request, MetadataResponse, version)
        assert [topic.name for topic in answer.topics] == ["t", "unknown"]


def test_describe_requests_with_repeated_groups_transactions_or_producers_are_answered_once_for_each(
    wire: Wire,
) -> None:
    groups = wire.ask(DescribeGroupsRequest(groups=["g", "h"] * TIMES), DescribeGroupsResponse, 5)
    assert [group.group_id for group in groups.groups] == ["g", "h"]
    consumers = wire.ask(
        ConsumerGroupDescribeRequest(group_ids=["g", "h"] * TIMES, include_authorized_operations=False),
        ConsumerGroupDescribeResponse,
        0,
    )
    assert [group.group_id for group in consumers.groups] == ["g", "h"]
    transactions = wire.ask(
        DescribeTransactionsRequest(transactional_ids=["x", "y"] * TIMES), DescribeTransactionsResponse, 0
    )
    assert [one.transactional_id for one in transactions.transaction_states] == ["x", "y"]
    producers = wire.ask(
        DescribeProducersRequest(topics=[TopicRequest(name="t", partition_indexes=[0, 1, 0])] * TIMES),
        DescribeProducersResponse,
        0,
    )
    assert [[one.partition_index for one in topic.partitions] for topic in producers.topics] == [[0, 1]]


def test_an_offset_fetch_with_a_repeated_group_is_answered_once(wire: Wire) -> None:
    everything = OffsetFetchRequestGroup(group_id="g", topics=None)
    answer = wire.ask(OffsetFetchRequest(groups=[everything] * TIMES), OffsetFetchResponse, 8)
    assert [group.group_id for group in answer.groups] == ["g"]


def described(wire: Wire, resources: list[tuple[int, str, list[str] | None]]) -> list[Any]:
    request = DescribeConfigsRequest(
        resources=[
            DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=keys)
            for kind, name, keys in resources
        ]
    )
    found: list[Any] = wire.ask(request, DescribeConfigsResponse, 4).results
    return found


def test_describe_configs_with_a_repeated_resource_returns_the_union_of_the_requested_keys(wire: Wire) -> None:
    [found] = described(wire, [(TOPIC, "t", ["retention.ms"]), (TOPIC, "t", ["cleanup.policy"])] * TIMES)
    assert {config.name for config in found.configs} == {"retention.ms", "cleanup.policy"}
    [everything] = described(wire, [(TOPIC, "t", ["retention.ms"]), (TOPIC, "t", None)] * TIMES)
    assert len(everything.configs) > 20


def test_describe_configs_is_limited_in_the_number_of_resources(wire: Wire) -> None:
    some = described(wire, [(GROUP, f"g{number}", None) for number in range(100)])
    assert [one.resource_name for one in some] == [f"g{number}" for number in range(100)]
    assert {one.error_code for one in some} == {ErrorCode.NONE}
    too_many = described(wire, [(GROUP, f"g{number}", None) for number in range(10_001)])
    assert {one.error_code for one in too_many} == {ErrorCode.INVALID_REQUEST}


def test_write_txn_markers_with_a_repeated_partition_appends_one_marker(wire: Wire) -> None:
    marker = WritableTxnMarker(
        producer_id=4711,
        producer_epoch=0,
        transaction_result=False,
        topics=[WritableTxnMarkerTopic(name="t", partition_indexes=[0] * TIMES)] * 2,
        coordinator_epoch=0,
    )
    answer = wire.ask(WriteTxnMarkersRequest(markers=[marker]), WriteTxnMarkersResponse, 1)
    codes = {one.error_code for topic in answer.markers[0].topics for one in topic.partitions}
    assert codes == {ErrorCode.NONE}
    assert fetch(wire, "t", 0).high_watermark == 1
