"""Apache Kafka as `ApacheKafka` starts it: one node whose data is kept, and three nodes that form one cluster."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.apache.broker import POLL_INTERVAL_S, ApacheKafka, ApacheKafkaError, reserve_port, run_tool
from tests.support.clients import until

pytestmark = pytest.mark.apache


def test_reserved_ports_differ() -> None:
    ports = [reserve_port() for _ in range(50)]
    assert len(set(ports)) == 50


def test_an_apache_broker_serves_the_records_that_an_earlier_one_left_in_its_directory(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with ApacheKafka(
        data=[data], auto_create_topics_enable=False, properties={"log.segment.bytes": 1_048_576}
    ) as kafka:
        server = ("--bootstrap-server", kafka.bootstrap_servers)
        kafka.run_tool("kafka-topics", *server, "--create", "--topic", "t")
        kafka.run_tool("kafka-console-producer", *server, "--topic", "t", stdin="one\ntwo\n")
        described = kafka.run_tool("kafka-topics", *server, "--describe", "--topic", "t").stdout
        assert "segment.bytes=1048576" in described
        assert "auto.create.topics.enable = false" in kafka.log_text()

    dump = run_tool("kafka-dump-log", "--print-data-log", "--files", data / "t-0" / "00000000000000000000.log").stdout
    assert "isvalid: true" in dump
    assert "payload: two" in dump

    with ApacheKafka(data=[data]) as kafka:
        server = ("--bootstrap-server", kafka.bootstrap_servers)
        limits = ("--partition", "0", "--offset", "earliest", "--max-messages", "2", "--timeout-ms", "30000")
        assert kafka.run_tool("kafka-console-consumer", *server, "--topic", "t", *limits).stdout == "one\ntwo\n"


def test_three_apache_nodes_form_one_cluster_when_the_with_block_begins() -> None:
    with ApacheKafka(nodes=3) as kafka:
        server = ("--bootstrap-server", kafka.bootstrap_servers)
        kafka.run_tool("kafka-topics", *server, "--create", "--topic", "t", "--replication-factor", "3")
        quorum = kafka.run_tool("kafka-metadata-quorum", *server, "describe", "--replication").stdout
        assert quorum.count("Leader") + quorum.count("Follower") == 3
        places = [kafka.data_directory(node_id) / "t-0" for node_id in (1, 2, 3)]

        def exist() -> list[bool]:
            time.sleep(POLL_INTERVAL_S)
            return [place.exists() for place in places]

        # Followers create their replicas shortly after the topic was created.
        until(exist, all, "a replica on every node")
        directories = [node.directory for node in kafka.nodes]
    assert not any(directory.exists() for directory in directories)


def test_the_error_for_an_apache_broker_that_cannot_start_has_its_output() -> None:
    with pytest.raises(ApacheKafkaError, match=r"Invalid value 3 for configuration log\.segment\.bytes"):
        ApacheKafka(log_segment_bytes=3).__enter__()
