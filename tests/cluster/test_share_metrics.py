"""Metrics of share groups in /metrics, under the names of Kafka's own metrics (KIP-1103)."""

from __future__ import annotations

from confluent_kafka import AcknowledgeType, Message, Producer, ShareConsumer

from pessoa.testing import Broker
from tests.cluster.test_metrics import Scrape
from tests.conformance.test_share_groups import SETTINGS, share_group
from tests.support.clients import create_topic, until


def test_share_group_activity_is_counted_under_kafkas_metric_names() -> None:
    with Broker({**SETTINGS, "pessoa.metrics.port": "0"}) as broker:
        topic, group = create_topic(broker), share_group(broker, **{"share.record.lock.duration.ms": "1000"})
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
        for number in range(10):
            producer.produce(topic, str(number))
        assert producer.flush(30) == 0
        share, partitions = "kafka_server_sharegroupmetrics_", "kafka_server_sharepartitionmetrics_"
        settings = {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": group,
            "share.acknowledgement.mode": "explicit",
        }
        with ShareConsumer(settings) as consumer:
            consumer.subscribe([topic])
            held: list[Message] = []

            def poll() -> int:
                held.extend(consumer.poll(0.1))
                return len(held)

            until(poll, lambda count: count == 10, "ten records")
            labels = {"group": group, "topic": topic, "partition": "0"}
            held_page = Scrape(broker)
            assert held_page.value(f"{partitions}inflightmessagecount", **labels) == 10
            runs = held_page.value(f"{partitions}inflightbatchcount", **labels)
            assert runs is not None
            assert held_page.value(f"{partitions}inflightbatchmessagecount_mean", **labels) == round(10 / runs, 3)
            # There is but one partition, and it has room.
            assert held_page.value(f"{share}requesttopicpartitionsfetchratio_mean", group=group) == 100
            assert held_page.value(f"{share}topicpartitionsacquiretimems_max", group=group) is not None
            for number, message in enumerate(held[:6]):
                kinds = (AcknowledgeType.ACCEPT, AcknowledgeType.RELEASE, AcknowledgeType.REJECT)
                consumer.acknowledge(message, kinds[number // 2])
            consumer.commit_sync(30)
            until(
                lambda: Scrape(broker).value(f"{partitions}acquisitionlocktimeout_total", **labels),
                lambda ended: (ended or 0) >= 4,
                "the locks of the records about which nothing was said have ended",
            )
            page = Scrape(broker)
            counts = {
                kind: page.value(f"{share}recordacknowledgements_total", ackType=kind)
                for kind in ("Accept", "Release", "Reject", "Renew")
            }
            assert counts == {"Accept": 2, "Release": 2, "Reject": 2, "Renew": 0}
            assert page.value(f"{share}partitionloadtimems_max") is not None
            assert (page.value("kafka_server_brokertopicmetrics_totalsharefetchrequests_total", topic=topic) or 0) > 0
            assert page.value("kafka_server_brokertopicmetrics_failedsharefetchrequests_total", topic=topic) == 0
            assert page.value("kafka_server_group_coordinator_metrics_group_count", protocol="share") == 1
            name = "kafka_server_group_coordinator_metrics_share_group_count"
            assert page.value(name, protocol="share", state="stable") == 1
            assert page.value("kafka_server_share_coordinator_metrics_partition_load_time_avg") is not None
