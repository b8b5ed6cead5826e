"""Real clients push their metrics (KIP-714), and /metrics of the broker shows them: Java's and librdkafka."""

from __future__ import annotations

import urllib.request
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, Producer
from prometheus_client.parser import text_string_to_metric_families

from pessoa.base.ids import ZERO_UUID
from pessoa.broker.metrics.node_metrics import NodeMetrics
from pessoa.testing import Broker
from pessoa.wire.api.api_versions import ApiVersionsRequest, ApiVersionsResponse
from pessoa.wire.api.get_telemetry_subscriptions import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
)
from pessoa.wire.api.push_telemetry import PushTelemetryRequest, PushTelemetryResponse
from pessoa.wire.errors import ErrorCode
from tests.apache.broker import run_tool
from tests.support.clients import create_topic, unique, until
from tests.support.crash_wire import Wire
from tests.support.otlp import alter_subscriptions


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(settings={"pessoa.metrics.port": "0"}) as found:
        with Wire(found.port) as wire:
            alter_subscriptions(wire, {"all": {"metrics": "*", "interval.ms": "200"}})
        yield found


def pushed(broker: Broker, client_id: str) -> dict[str, str]:
    """Return the pushed metrics of a client: name → name of the client's software."""
    broker.inspect(lambda inside: setattr(inside.stage(NodeMetrics).page, "last", None))
    port = broker.inspect(lambda inside: inside.stage(NodeMetrics).endpoint.port)
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as answer:
        text = answer.read().decode()
    return {
        sample.name: sample.labels["client_software_name"]
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.labels.get("client_id") == client_id and "client_instance_id" in sample.labels
    }


@pytest.mark.apache
@pytest.mark.client("Java 4.3.1")
def test_metrics_that_a_java_producer_pushes_are_on_the_metrics_page(broker: Broker) -> None:
    topic, client = create_topic(broker), unique("java")
    done = run_tool(
        "kafka-producer-perf-test",
        *("--topic", topic, "--num-records", "1000", "--record-size", "100", "--throughput", "500"),
        *("--producer-props", f"bootstrap.servers={broker.bootstrap_servers}", f"client.id={client}"),
    )
    assert done.returncode == 0, done.stderr
    found = pushed(broker, client)
    assert found["org_apache_kafka_producer_record_queue_time_avg"] == "apache-kafka-java"
    assert found["org_apache_kafka_producer_connection_creation_total"] == "apache-kafka-java"


@pytest.mark.client("confluent-kafka")
def test_metrics_that_a_librdkafka_producer_and_consumer_push_are_on_the_metrics_page(broker: Broker) -> None:
    topic, group = create_topic(broker), unique("group")
    servers = {"bootstrap.servers": broker.bootstrap_servers, "enable.metrics.push": True}
    producer = Producer({**servers, "client.id": (writing := unique("producer"))})
    reading = unique("consumer")
    consumer = Consumer({**servers, "client.id": reading, "group.id": group, "auto.offset.reset": "earliest"})
    try:
        consumer.subscribe([topic])

        def is_shown() -> bool:
            producer.produce(topic, b"v")
            producer.poll(0.05)
            consumer.poll(0.05)
            written, read = pushed(broker, writing), pushed(broker, reading)
            software = set(written.values()) | set(read.values())
            return (
                "org_apache_kafka_producer_connection_creation_total" in written
                and "org_apache_kafka_consumer_connection_creation_total" in read
                and all("kafka" in one for one in software)
            )

        until(is_shown, bool, "metrics of both on the page")
    finally:
        consumer.close()
    assert producer.flush(60) == 0


def test_a_broker_without_a_metrics_page_does_not_offer_client_telemetry() -> None:
    with Broker() as silent, Wire(silent.port) as wire:
        offered = {one.api_key for one in wire.ask(ApiVersionsRequest(), ApiVersionsResponse, 0).api_keys}
        assert not offered & {71, 72}
        request = GetTelemetrySubscriptionsRequest(client_instance_id=ZERO_UUID)
        answer = wire.ask(request, GetTelemetrySubscriptionsResponse, 0)
        assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION
        push = PushTelemetryRequest(
            client_instance_id=ZERO_UUID, subscription_id=0, terminating=False, compression_type=0, metrics=b""
        )
        assert wire.ask(push, PushTelemetryResponse, 0).error_code == ErrorCode.UNSUPPORTED_VERSION
