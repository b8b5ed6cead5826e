"""/metrics and /health of running brokers, the lag of groups on all brokers, and the Grafana dashboard."""

from __future__ import annotations

import json
import re
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from prometheus_client.parser import text_string_to_metric_families

from pessoa.broker.metrics.node_metrics import NodeMetrics
from pessoa.testing import Broker, Cluster
from pessoa.wire.api.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    EntityData,
    EntryData,
    OpData,
)
from tests.cluster.conftest import QUIET, create_topic, until
from tests.support.crash_wire import Wire

if TYPE_CHECKING:
    from pessoa.broker.assembly import AnyBroker

DASHBOARD = Path(__file__).parents[2] / "docs" / "grafana-dashboard.json"
Labels = frozenset[tuple[str, str]]


def get(port: int, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=30) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as problem:
        return problem.code, problem.read().decode()


def port_of(broker: Broker) -> int:
    return broker.inspect(lambda one: one.stage(NodeMetrics).endpoint.port)


def forget_page(inside: AnyBroker) -> None:
    """Drop the cached page, so that the next request gets present values."""
    inside.stage(NodeMetrics).page.last = None


class Scrape:
    """The samples of one page, or of the pages of several brokers."""

    def __init__(self, *brokers: Broker) -> None:
        self.samples: list[tuple[str, Labels, float]] = []
        self.names: set[str] = set()
        for broker in brokers:
            broker.inspect(forget_page)
            status, text = get(port_of(broker), "/metrics")
            assert status == 200
            for family in text_string_to_metric_families(text):
                self.names |= {
                    family.name,
                    f"{family.name}_total" if family.type == "counter" else f"{family.name}_count",
                }
                for sample in family.samples:
                    self.samples.append((sample.name, frozenset(sample.labels.items()), sample.value))

    def value(self, name: str, **labels: str) -> float | None:
        """Return the sum of all samples with these labels; None if there are none."""
        wanted = set(labels.items())
        found = [value for one, have, value in self.samples if one == name and wanted <= have]
        return sum(found) if found else None


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(brokers=3, settings={"pessoa.metrics.port": "0"}) as found:
        yield found


def brokers(cluster: Cluster) -> list[Broker]:
    return [cluster[one] for one in cluster]


def produce(cluster: Cluster, topic: str, count: int) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "acks": "all", **QUIET})
    for number in range(count):
        producer.produce(topic, b"x" * 100, partition=number % 2)
    assert producer.flush(60) == 0


def commit(cluster: Cluster, topic: str, group: str, *offsets: int) -> None:
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap_servers, "group.id": group, **QUIET})
    try:
        wanted = [TopicPartition(topic, index, offset) for index, offset in enumerate(offsets)]

        def is_committed() -> bool:
            """Return whether the commit has succeeded: a new leader of __consumer_offsets may refuse commits for a
            moment."""
            try:
                consumer.commit(offsets=wanted, asynchronous=False)
            except KafkaException as problem:
                if problem.args[0].code() not in (KafkaError.NOT_COORDINATOR, KafkaError.COORDINATOR_LOAD_IN_PROGRESS):
                    raise
                return False
            return True

        until(is_committed, "a commit")
    finally:
        consumer.close()


def test_records_bytes_and_requests_are_counted(cluster: Cluster) -> None:
    create_topic(cluster, "counted", 2)
    produce(cluster, "counted", 10)
    seen = Scrape(*brokers(cluster))
    prefix = "kafka_server_brokertopicmetrics_"
    assert seen.value(f"{prefix}messagesin_total", topic="counted") == 10
    assert (seen.value(f"{prefix}bytesin_total", topic="counted") or 0) > 1000
    assert (seen.value(f"{prefix}replicationbytesout_total") or 0) > 1000
    assert (seen.value("kafka_network_requestmetrics_requests_total", request="Produce") or 0) >= 1
    assert (seen.value("kafka_network_requestmetrics_totaltimems", request="Produce", quantile="0.99") or 0) > 0
    assert seen.value("kafka_log_log_logendoffset", topic="counted", partition="0") == 3 * 5
    assert seen.value("kafka_topic_partition_current_offset", topic="counted") == 10


def test_replication_commits_and_the_parts_of_request_times_are_shown(cluster: Cluster) -> None:
    create_topic(cluster, "copied", 2)
    produce(cluster, "copied", 10)
    commit(cluster, "copied", "committer", 1, 1)
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "transactional.id": "x", **QUIET})
    producer.init_transactions(60)
    producer.begin_transaction()
    producer.produce("copied", b"x")
    producer.commit_transaction(60)
    seen = Scrape(*brokers(cluster))
    prefix = "kafka_server_"
    assert (seen.value(f"{prefix}brokertopicmetrics_replicationbytesin_total") or 0) > 1000
    assert seen.value(f"{prefix}replicafetchermanager_maxlag", clientId="Replica") is not None
    assert seen.value(f"{prefix}raftmetrics_commit_latency_avg") is not None
    assert seen.value(f"{prefix}raftmetrics_commit_latency_max") is not None
    assert (seen.value(f"{prefix}group_coordinator_metrics_offset_commit_count") or 0) >= 2
    assert seen.value(f"{prefix}group_coordinator_metrics_partition_load_time_max") is not None
    assert seen.value(f"{prefix}transaction_coordinator_metrics_partition_load_time_max") is not None
    states = ("Ongoing", "PrepareCommit", "CompleteCommit")
    assert sum(seen.value("pessoa_transactions", state=state) or 0 for state in states) == 1
    # With acks=all a produce waits for its followers.
    times = "kafka_network_requestmetrics_"
    assert (seen.value(f"{times}remotetimems", request="Produce", quantile="0.99") or 0) > 0
    assert (seen.value(f"{times}localtimems", request="Produce", quantile="0.99") or 0) > 0


def test_the_state_of_the_cluster_is_shown(cluster: Cluster) -> None:
    scrapes = [Scrape(one) for one in brokers(cluster)]
    active = [one.value("kafka_controller_kafkacontroller_activecontrollercount") for one in scrapes]
    assert sorted(value or 0 for value in active) == [0, 0, 1]
    for one in scrapes:
        assert one.value("kafka_brokers") == 3
        assert one.value("kafka_controller_kafkacontroller_activebrokercount") == 3
        assert one.value("kafka_controller_kafkacontroller_offlinepartitionscount") == 0
        assert one.value("kafka_server_kafkaserver_brokerstate") == 3
        assert one.value("kafka_server_replicamanager_underreplicatedpartitions") == 0
        assert (one.value("kafka_server_socket_server_metrics_connection_count") or 0) > 0
        assert 0 <= (one.value("kafka_network_socketserver_networkprocessoravgidle_percent") or 0) <= 1


def test_the_lag_of_a_group_is_shown_by_its_coordinator(cluster: Cluster) -> None:
    create_topic(cluster, "lagging", 2)
    produce(cluster, "lagging", 20)
    commit(cluster, "lagging", "slow", 4, 10)

    def scraped() -> Scrape | None:
        """Return the page when it has the lag: a coordinator that follows the partition gets its high watermark
        later."""
        found = [Scrape(one) for one in brokers(cluster)]
        shown = [one for one in found if one.value("kafka_consumergroup_lag", consumergroup="slow") is not None]
        assert len(shown) <= 1, "the coordinator alone shows it"
        lag = shown[0].value("kafka_consumergroup_lag_sum", consumergroup="slow", topic="lagging") if shown else None
        return shown[0] if lag == 6 else None

    until(scraped, "the lag")
    seen = scraped()
    assert seen is not None
    assert seen.value("kafka_consumergroup_lag", consumergroup="slow", topic="lagging", partition="0") == 6
    assert seen.value("kafka_consumergroup_lag", consumergroup="slow", topic="lagging", partition="1") == 0
    assert seen.value("kafka_consumergroup_lag_sum", consumergroup="slow", topic="lagging") == 6
    assert seen.value("kafka_consumergroup_current_offset", consumergroup="slow", partition="0") == 4
    assert seen.value("kafka_consumergroup_members", consumergroup="slow") == 0


def test_the_lag_of_a_partition_without_a_local_replica_is_asked_of_its_leader(cluster: Cluster) -> None:
    from confluent_kafka.admin import AdminClient
    from confluent_kafka.cimpl import NewTopic

    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers, **QUIET})
    names = [f"single-{node}" for node in cluster]
    topics = [NewTopic(name, 1, replica_assignment=[[node]]) for name, node in zip(names, cluster, strict=True)]
    for future in admin.create_topics(topics).values():
        future.result(60)
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, **QUIET})
    for name in names:
        producer.produce(name, b"x")
    assert producer.flush(60) == 0
    for name in names:
        commit(cluster, name, "far", 0)

    def lags() -> list[float | None]:
        seen = Scrape(*brokers(cluster))
        return [seen.value("kafka_consumergroup_lag", consumergroup="far", topic=name) for name in names]

    until(lambda: lags() == [1, 1, 1], lambda: f"the lags are {lags()}")


def test_the_quota_usage_of_clients_is_shown(cluster: Cluster) -> None:
    entity = [EntityData(entity_type="client-id", entity_name="limited")]
    ops = [OpData(key="producer_byte_rate", value=1e9, remove=False)]
    request = AlterClientQuotasRequest(entries=[EntryData(entity=entity, ops=ops)], validate_only=False)
    with Wire(cluster[1].port) as wire:
        [result] = wire.ask(request, AlterClientQuotasResponse, 1).entries
        assert result.error_code == 0
    create_topic(cluster, "limited", 2)
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "client.id": "limited", **QUIET})

    def rate() -> float:
        producer.produce("limited", b"x" * 100)
        assert producer.flush(60) == 0
        seen = Scrape(*brokers(cluster))
        return seen.value("kafka_server_quota_byte_rate", type="Produce", client_id="limited") or 0

    until(lambda: rate() > 0, "the quota of the client is shown")


def test_the_health_page_of_a_healthy_broker_reports_it_as_healthy(cluster: Cluster) -> None:
    for node_id in cluster:
        status, text = get(port_of(cluster[node_id]), "/health")
        answer = json.loads(text)
        assert (status, answer["status"], answer["node_id"]) == (200, "ok", node_id)


def test_the_dashboard_names_only_metrics_that_are_exposed(cluster: Cluster) -> None:
    dashboard = json.loads(DASHBOARD.read_text())
    expressions = [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", ())]
    named = {name for one in expressions for name in re.findall(r"\b(?:kafka|pessoa)_[a-z_]+", one)}
    assert len(named) > 15
    assert named <= Scrape(*brokers(cluster)).names


def test_without_a_metrics_port_nothing_is_counted() -> None:
    with Broker() as broker:
        assert broker.inspect(lambda one: one.find(NodeMetrics)) is None
        assert broker.inspect(lambda one: repr(one.observers)) == "<Observers: none>"
