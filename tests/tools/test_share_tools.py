"""The tools that consume with share groups, ours and Apache's, on our broker."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import Producer

from pessoa.client.cluster_client import Cluster
from pessoa.client.config_admin import Change, ResourceType, alter_configs
from pessoa.testing import Broker
from tests.apache.tool_server import Outcome, ToolServer
from tests.support.clients import TIMEOUT_S, create_topic, unique
from tests.tools.stage import run_ours

pytestmark = pytest.mark.apache

Run = Callable[..., Outcome]
# A member gets its partitions with its second heartbeat; the default interval is five seconds.
SETTINGS = {"group.share.min.heartbeat.interval.ms": "100", "group.share.heartbeat.interval.ms": "100"}
PATIENCE_MS = "20000"


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(SETTINGS) as broker:
        yield broker


@pytest.fixture(params=["ours", "apache"])
def run(request: pytest.FixtureRequest) -> Run:
    if request.param == "ours":
        return run_ours
    tools: ToolServer = request.getfixturevalue("tools")
    return tools.run


def make_topic_and_share_group(broker: Broker, *values: str) -> tuple[str, str]:
    """Create a topic with these records and a share group that reads it from earliest; return their names."""
    topic, group = create_topic(broker), unique("share")
    with Cluster(broker.bootstrap_servers) as cluster:
        alter_configs(cluster, (ResourceType.GROUP, group), [Change("share.auto.offset.reset", "earliest")])
    produce(broker, topic, *values)
    return topic, group


def produce(broker: Broker, topic: str, *values: str) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    for value in values:
        producer.produce(topic, value, key=f"key-{value}")
    assert producer.flush(TIMEOUT_S) == 0


def consume_with_console(run: Run, broker: Broker, topic: str, group: str, count: int, *words: str) -> list[str]:
    """Consume `count` records with kafka-console-share-consumer and return the printed lines."""
    done = run(
        "kafka-console-share-consumer", "--bootstrap-server", broker.bootstrap_servers, "--topic", topic, "--group",
        group, "--max-messages", str(count), "--timeout-ms", PATIENCE_MS, "--formatter-property",
        "print.delivery=true", "--formatter-property", "print.key=true", *words,
    )  # fmt: skip
    assert done.code == 0, done.err
    assert f"Processed a total of {count} messages" in done.err
    return done.out.splitlines()


def test_console_share_consumer_delivers_released_records_again_and_accepted_ones_never(
    run: Run, broker: Broker
) -> None:
    topic, group = make_topic_and_share_group(broker, "a", "b")
    first = ["Delivery:1\tkey-a\ta", "Delivery:1\tkey-b\tb"]
    assert consume_with_console(run, broker, topic, group, 2, "--release") == first
    assert consume_with_console(run, broker, topic, group, 2) == [line.replace("y:1", "y:2") for line in first]
    produce(broker, topic, "c")
    assert consume_with_console(run, broker, topic, group, 1) == ["Delivery:1\tkey-c\tc"]


def test_console_share_consumer_does_not_get_rejected_records_again(run: Run, broker: Broker) -> None:
    topic, group = make_topic_and_share_group(broker, "bad")
    assert consume_with_console(run, broker, topic, group, 1, "--reject") == ["Delivery:1\tkey-bad\tbad"]
    produce(broker, topic, "good")
    assert consume_with_console(run, broker, topic, group, 1) == ["Delivery:1\tkey-good\tgood"]


@pytest.mark.parametrize("mode", ["auto", "sync", "async"])
def test_verifiable_share_consumer_prints_consumed_records_and_acknowledged_offsets(
    run: Run, broker: Broker, mode: str
) -> None:
    topic, _ = make_topic_and_share_group(broker, "a", "b", "c")
    done = run(
        "kafka-verifiable-share-consumer", "--bootstrap-server", broker.bootstrap_servers, "--topic", topic,
        "--group-id", unique("share"), "--max-messages", "3", "--acknowledgement-mode", mode,
        "--offset-reset-strategy", "earliest", "--verbose",
    )  # fmt: skip
    assert done.code == 0, done.err
    events = [json.loads(line) for line in done.out.splitlines()]
    names = [one["name"] for one in events]
    assert names[:2] == ["startup_complete", "offset_reset_strategy_set"]
    assert names[-1] == "shutdown_complete"
    assert [one["value"] for one in events if one["name"] == "record_data"] == ["a", "b", "c"]
    for name in ("records_consumed", "offsets_acknowledged"):
        offsets = [
            offset
            for one in events
            if one["name"] == name
            for part in one["partitions"]
            for offset in part["offsets"]
            if part["topic"] == topic
        ]
        assert sorted(offsets) == [0, 1, 2], name
    assert all(one["success"] for one in events if one["name"] == "offsets_acknowledged")


def test_share_consumer_perf_test_counts_the_records_of_all_members(run: Run, broker: Broker) -> None:
    topic, group = make_topic_and_share_group(broker, *(f"{number:0100}" for number in range(500)))
    done = run(
        "kafka-share-consumer-perf-test", "--bootstrap-server", broker.bootstrap_servers, "--topic", topic, "--group",
        group, "--num-records", "500", "--threads", "2", "--timeout", PATIENCE_MS, "--show-consumer-stats",
    )  # fmt: skip
    assert done.code == 0, done.err
    header, *members, total = done.out.splitlines()
    assert header.startswith("start.time, end.time, data.consumed.in.MB")
    assert len(members) == 2
    assert all(one.startswith("Share consumer ") for one in members)
    # start, end, MB, MB/s, records/s, records, ms
    assert int(total.split(", ")[5]) >= 500


def test_kafka_share_groups_shows_members_and_refuses_to_delete_or_reset_an_active_group(
    run: Run, broker: Broker
) -> None:
    from confluent_kafka import ShareConsumer

    topic, group = make_topic_and_share_group(broker, "a")
    with ShareConsumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": group, "client.id": "me"}) as member:
        member.subscribe([topic])
        while not len(member.poll(TIMEOUT_S)):
            pass
        words = ("--bootstrap-server", broker.bootstrap_servers, "--describe", "--group", group)
        shown = run("kafka-share-groups", *words, "--members").out.split()
        assert shown[:6] == ["GROUP", "CONSUMER-ID", "HOST", "CLIENT-ID", "#PARTITIONS", "ASSIGNMENT"]
        assert [shown[6], *shown[8:]] == [group, "/127.0.0.1", "me", "1", f"{topic}:0"]
        assert "Stable" in run("kafka-share-groups", *words, "--state").out
        refused = run("kafka-share-groups", *words[:2], "--delete", "--group", group)
        assert f"Share group '{group}' is not EMPTY." in refused.out
        moved = run(
            "kafka-share-groups", *words[:2], "--reset-offsets", "--group", group, "--topic", topic, "--to-earliest",
            "--execute",
        )  # fmt: skip
        assert (moved.code, moved.err.strip()) == (1, f"Share group '{group}' is not empty.")
