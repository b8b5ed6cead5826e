"""Apache Kafka's Java clients, in the form of the tools of 4.3.1, against our broker.

The tools that end by themselves run in one Java process (see `tests.apache.warm_tools`); the others have one each.
"""

from __future__ import annotations

import json
import re
from contextlib import ExitStack
from pathlib import Path

import pytest

from pessoa.testing import Broker
from tests.apache.broker import TOOLS, java_command, run_tool
from tests.support.clients import CODECS, TIMEOUT_S, Reachable, create_topic, unique, until
from tests.support.logged_process import LoggedProcess
from tests.support.lossy_proxy import LossyProxy
from tests.support.topics import eventually

pytestmark = [pytest.mark.client("Java 4.3.1"), pytest.mark.apache]

feature = pytest.mark.feature


def run(broker: Reachable, tool: str, *arguments: str, stdin: str | None = None) -> str:
    """Run a tool, require success and return what it prints."""
    done = run_tool(tool, "--bootstrap-server", broker.bootstrap_servers, *arguments, stdin=stdin)
    assert done.returncode == 0, f"{tool} ended with {done.returncode}:\n{done.stdout}{done.stderr}"
    return done.stdout


def fail(broker: Reachable, tool: str, *arguments: str) -> str:
    """Run a tool, require failure and return what it prints."""
    done = run_tool(tool, "--bootstrap-server", broker.bootstrap_servers, *arguments)
    assert done.returncode != 0, done.stdout
    return done.stdout + done.stderr


def produce(broker: Reachable, topic: str, lines: list[str], *arguments: str) -> None:
    done = run_tool(
        "kafka-console-producer",
        *("--bootstrap-server", broker.bootstrap_servers, "--topic", topic),
        *arguments,
        stdin="".join(f"{line}\n" for line in lines),
    )
    assert done.returncode == 0, done.stderr
    assert "ERROR" not in done.stderr, done.stderr


def consume(broker: Reachable, topic: str, count: int, *arguments: str) -> list[str]:
    from_group = "--group" in arguments
    done = run_tool(
        "kafka-console-consumer",
        *("--bootstrap-server", broker.bootstrap_servers, "--topic", topic),
        *("--max-messages", str(count), "--timeout-ms", "100000"),
        *(() if from_group or "--partition" in arguments else ("--from-beginning",)),
        *arguments,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.splitlines()


def numbers(count: int, prefix: str = "") -> list[str]:
    return [f"{prefix}{number}" for number in range(count)]


@feature("topics")
def test_topics_are_created_described_extended_and_deleted(kafka: Broker) -> None:
    name = unique("topic")
    run(kafka, "kafka-topics", "--create", "--topic", name, "--partitions", "2", "--config", "retention.ms=1000")
    run(kafka, "kafka-topics", "--alter", "--topic", name, "--partitions", "4")
    described = run(kafka, "kafka-topics", "--describe", "--topic", name)
    assert "PartitionCount: 4" in described
    assert "retention.ms=1000" in described
    assert len(re.findall(r"Leader: 1\s+Replicas: 1\s+Isr: 1", described)) == 4
    run(kafka, "kafka-topics", "--delete", "--topic", name)
    assert name not in run(kafka, "kafka-topics", "--list").splitlines()


@feature("errors")
def test_creating_an_existing_topic_and_describing_an_unknown_topic_fail(kafka: Broker, topic: str) -> None:
    assert "TopicExistsException" in fail(kafka, "kafka-topics", "--create", "--topic", topic)
    assert "does not exist" in fail(kafka, "kafka-topics", "--describe", "--topic", unique("absent"))


@feature("configs")
def test_configurations_are_altered_and_described(kafka: Broker, topic: str) -> None:
    of_topic = ("--entity-type", "topics", "--entity-name", topic)
    run(kafka, "kafka-configs", *of_topic, "--alter", "--add-config", "retention.ms=1234,max.message.bytes=5000")
    assert "retention.ms=1234" in run(kafka, "kafka-configs", *of_topic, "--describe")
    run(kafka, "kafka-configs", *of_topic, "--alter", "--delete-config", "retention.ms")
    described = run(kafka, "kafka-configs", *of_topic, "--describe")
    assert "retention.ms" not in described
    assert "max.message.bytes=5000" in described
    refused = fail(kafka, "kafka-configs", *of_topic, "--alter", "--add-config", "retention.ms=soon")
    assert "retention.ms" in refused


@feature("share groups")
def test_a_share_group_gets_released_records_again_and_accepted_ones_no_more(kafka: Broker, topic: str) -> None:
    group = unique("share")
    of_group = ("--entity-type", "groups", "--entity-name", group)
    run(kafka, "kafka-configs", *of_group, "--alter", "--add-config", "share.auto.offset.reset=earliest")
    produce(kafka, topic, numbers(30))
    of_topic = ("--topic", topic, "--group", group, "--max-messages", "30", "--timeout-ms", "100000")
    for words in (("--release",), ()):
        found = run(kafka, "kafka-console-share-consumer", *of_topic, *words).splitlines()
        assert sorted(found) == sorted(numbers(30))
    assert "Empty" in run(kafka, "kafka-share-groups", "--describe", "--group", group, "--state")
    rows = run(kafka, "kafka-share-groups", "--describe", "--group", group).splitlines()[2:]
    assert [row.split()[-1] for row in rows if row] == ["0"] * 3, "the lags"


@feature("configs")
def test_the_tools_describe_api_versions_features_and_log_directories(kafka: Broker) -> None:
    assert "Produce(0)" in run(kafka, "kafka-broker-api-versions")
    features = run(kafka, "kafka-features", "describe")
    assert re.search(r"Feature: metadata.version\s.*FinalizedVersionLevel: 4\.3", features), features
    assert '"brokers":[{"broker":1' in run(kafka, "kafka-log-dirs", "--describe")


@feature("acks")
def test_records_arrive_with_every_kind_of_acks(kafka: Broker) -> None:
    topic, all_acks = create_topic(kafka), ("0", "1", "all")
    for acks in all_acks:
        produce(kafka, topic, numbers(100, f"{acks}-"), "--command-property", f"acks={acks}")
    assert consume(kafka, topic, 300) == [value for acks in all_acks for value in numbers(100, f"{acks}-")]


@feature("codecs")
def test_records_compressed_with_any_codec_are_consumed_as_produced(kafka: Broker) -> None:
    topic = create_topic(kafka)
    for codec in CODECS[1:]:
        produce(kafka, topic, numbers(200, codec), "--compression-codec", codec)
    assert consume(kafka, topic, 800) == [value for codec in CODECS[1:] for value in numbers(200, codec)]


@feature("keys", "headers", "timestamps")
def test_keys_headers_and_timestamps_are_consumed_as_produced(kafka: Broker, topic: str) -> None:
    lines = [f"h:{number}\tkey-{number % 5}\tvalue-{number}" for number in range(50)]
    properties = ("parse.key=true", "parse.headers=true")
    produce(kafka, topic, lines, *(word for one in properties for word in ("--reader-property", one)))
    shown = ("print.key=true", "print.headers=true", "print.timestamp=true", "print.partition=true")
    found = consume(kafka, topic, 50, *(word for one in shown for word in ("--formatter-property", one)))
    homes: dict[str, set[str]] = {}
    for line in found:
        time_stamp, partition, header, key, value = line.split("\t")
        assert re.fullmatch(r"CreateTime:\d{13}", time_stamp)
        number = int(value.removeprefix("value-"))
        assert (header, key) == (f"h:{number}", f"key-{number % 5}")
        homes.setdefault(key, set()).add(partition)
    assert len(found) == 50
    assert all(len(partitions) == 1 for partitions in homes.values())


@feature("timestamps")
def test_records_of_a_topic_with_log_append_time_are_printed_with_that_timestamp_type(kafka: Broker) -> None:
    topic = create_topic(kafka, config={"message.timestamp.type": "LogAppendTime"})
    produce(kafka, topic, ["v"])
    [line] = consume(kafka, topic, 1, "--formatter-property", "print.timestamp=true")
    assert re.fullmatch(r"LogAppendTime:\d{13}\tv", line)


@feature("sizes")
def test_the_perf_test_tools_produce_and_consume_large_records(kafka: Broker) -> None:
    topic = create_topic(kafka, 3, {"max.message.bytes": "4000000"})
    done = run_tool(
        "kafka-producer-perf-test",
        *("--topic", topic, "--num-records", "20", "--record-size", "3000000", "--throughput", "-1"),
        *("--bootstrap-server", kafka.bootstrap_servers, "--command-property", "max.request.size=4000000"),
    )
    assert "20 records sent" in done.stdout, done.stdout + done.stderr
    read = run(kafka, "kafka-consumer-perf-test", "--topic", topic, "--num-records", "20", "--fetch-size", "1000")
    assert int(read.splitlines()[-1].split(",")[4]) >= 20


@feature("sizes", "errors")
def test_a_record_larger_than_the_topic_allows_is_refused(kafka: Broker) -> None:
    topic = create_topic(kafka, config={"max.message.bytes": "1000"})
    done = run_tool(
        "kafka-producer-perf-test",
        *("--topic", topic, "--num-records", "1", "--record-size", "5000", "--throughput", "-1"),
        *("--bootstrap-server", kafka.bootstrap_servers),
    )
    assert "RecordTooLargeException" in done.stdout + done.stderr


@feature("seek")
def test_kafka_get_offsets_prints_the_offsets_and_the_console_consumer_reads_from_an_offset(kafka: Broker) -> None:
    topic = create_topic(kafka, 3)
    produce(kafka, topic, [f"key\t{number}" for number in range(10)], "--reader-property", "parse.key=true")
    latest = run(kafka, "kafka-get-offsets", "--topic", topic).split()
    [home] = [line.split(":")[1] for line in latest if line.endswith(":10")]
    assert sorted(latest) == sorted(f"{topic}:{index}:{10 if str(index) == home else 0}" for index in range(3))
    for time_stamp, offset in (("earliest", 0), ("0", 0)):
        asked = ("--topic-partitions", f"{topic}:{home}", "--time", time_stamp)
        assert run(kafka, "kafka-get-offsets", *asked).strip() == f"{topic}:{home}:{offset}"
    assert consume(kafka, topic, 4, "--partition", home, "--offset", "6") == numbers(10)[6:]


@pytest.mark.parametrize(
    "protocol",
    [
        pytest.param("classic", marks=feature("commits", "group admin")),
        pytest.param("consumer", marks=feature("new groups")),
    ],
)
def test_a_group_resumes_at_its_committed_offset_and_is_described_reset_and_deleted(
    kafka: Broker, protocol: str
) -> None:
    topic, group = create_topic(kafka), unique("group")
    produce(kafka, topic, numbers(10))
    properties = (f"group.protocol={protocol}", "auto.offset.reset=earliest")
    settings = ["--group", group, *(word for one in properties for word in ("--command-property", one))]
    assert consume(kafka, topic, 4, *settings) == numbers(4)
    assert consume(kafka, topic, 2, *settings) == numbers(6)[4:]
    described = run(kafka, "kafka-consumer-groups", "--describe", "--group", group)
    assert re.search(rf"{group}\s+{topic}\s+0\s+6\s+10\s+4\s", described), described
    reset = ("--reset-offsets", "--to-offset", "1", "--topic", topic, "--execute")
    run(kafka, "kafka-consumer-groups", "--group", group, *reset)
    assert consume(kafka, topic, 9, *settings) == numbers(10)[1:]
    run(kafka, "kafka-consumer-groups", "--delete", "--group", group)
    assert group not in run(kafka, "kafka-consumer-groups", "--list").split()


class VerifiableConsumer(LoggedProcess):
    """A running `kafka-verifiable-consumer`; its partitions and counts are read from the lines that it prints."""

    def __init__(self, broker: Reachable, topic: str, group: str, log: Path, *arguments: str) -> None:
        command = java_command(
            TOOLS["kafka-verifiable-consumer"],
            *("--bootstrap-server", broker.bootstrap_servers, "--topic", topic, "--group-id", group),
            *("--reset-policy", "earliest", *arguments),
        )
        super().__init__(command, log, errors=log.with_suffix(".errors"))

    @property
    def partitions(self) -> set[int]:
        owned: set[int] = set()
        for event in map(json.loads, self.lines):
            touched = {one["partition"] for one in event.get("partitions", ()) if "partition" in one}
            if event["name"] == "partitions_assigned":
                owned |= touched
            elif event["name"] == "partitions_revoked":
                owned -= touched
        return owned

    @property
    def consumed_count(self) -> int:
        events = map(json.loads, self.lines)
        return sum(event["count"] for event in events if event["name"] == "records_consumed")


def wait_until_assigned(members: list[VerifiableConsumer], sizes: list[int]) -> None:
    def is_assigned() -> bool:
        owned = [member.partitions for member in members]
        return sorted(map(len, owned)) == sizes and set().union(*owned) == {0, 1, 2}

    eventually(is_assigned, TIMEOUT_S, about=f"an assignment of {sizes} partitions to {members}")


@pytest.mark.parametrize(
    "protocol",
    [
        pytest.param("classic", marks=feature("groups", "rebalances")),
        pytest.param("consumer", marks=feature("new groups")),
    ],
)
def test_a_group_of_four_shares_three_partitions_and_rebalances_when_a_member_leaves(
    grouping_kafka: Broker, protocol: str, tmp_path: Path
) -> None:
    topic, group = create_topic(grouping_kafka, 3), unique("group")
    settings = ["--group-protocol", protocol, *(["--session-timeout", "6000"] if protocol == "classic" else [])]
    with ExitStack() as stack:

        def start() -> VerifiableConsumer:
            log = tmp_path / unique("member")
            return stack.enter_context(VerifiableConsumer(grouping_kafka, topic, group, log, *settings))

        members = [start()]
        wait_until_assigned(members, [3])
        members.append(start())
        wait_until_assigned(members, [1, 2])
        members += [start(), start()]
        wait_until_assigned(members, [0, 1, 1, 1])
        produce(grouping_kafka, topic, numbers(60))
        while len(members) > 1:
            members.pop(0).stop()
            wait_until_assigned(members, {3: [1, 1, 1], 2: [1, 2], 1: [3]}[len(members)])
        members.pop().stop()


@feature("idempotence")
def test_an_idempotent_producer_writes_each_record_once_when_responses_are_lost(lossy_kafka: LossyProxy) -> None:
    topic = create_topic(lossy_kafka)
    lossy_kafka.lose_answers(3)
    settings = ("batch.size=200", "linger.ms=0", "retry.backoff.ms=1", "reconnect.backoff.ms=1")
    produce(lossy_kafka, topic, numbers(300), *(word for one in settings for word in ("--command-property", one)))
    # A cut connection may take several answers with it, which then count as one.
    assert lossy_kafka.lost_count > 0
    assert consume(lossy_kafka, topic, 300) == numbers(300)
    assert run(lossy_kafka, "kafka-get-offsets", "--topic", topic).strip() == f"{topic}:0:300"


@feature("idempotence")
def test_the_verifiable_producer_reports_every_record_as_acknowledged(kafka: Broker, topic: str) -> None:
    told = run(kafka, "kafka-verifiable-producer", "--topic", topic, "--max-messages", "500", "--acks", "-1")
    events = [json.loads(line) for line in told.splitlines()]
    assert sum(event["name"] == "producer_send_success" for event in events) == 500
    assert [(one["sent"], one["acked"]) for one in events if one["name"] == "tool_data"] == [(500, 500)]


@feature("transactions")
def test_transactions_are_read_under_both_isolation_levels_and_listed_by_kafka_transactions(kafka: Broker) -> None:
    topic, name = create_topic(kafka), unique("transactional")
    perf = ("--topic", topic, "--num-records", "50", "--record-size", "20", "--throughput", "-1")
    done = run_tool(
        "kafka-producer-perf-test",
        *perf,
        *("--bootstrap-server", kafka.bootstrap_servers),
        *("--transactional-id", name, "--transaction-duration-ms", "5"),
    )
    assert "50 records sent" in done.stdout, done.stdout + done.stderr
    assert len(consume(kafka, topic, 50, "--isolation-level", "read_committed")) == 50
    assert len(consume(kafka, topic, 50, "--isolation-level", "read_uncommitted")) == 50
    # A reader sees the end when its partition has the marker, the coordinator when every partition has it.
    until(
        lambda: run(kafka, "kafka-transactions", "list"),
        lambda listed: re.search(rf"{name}\s+\d+\s+\d+\s+CompleteCommit", listed),
        "the transaction complete",
    )
    described = run(kafka, "kafka-transactions", "describe", "--transactional-id", name)
    assert "CompleteCommit" in described
    producers = run(kafka, "kafka-transactions", "describe-producers", "--topic", topic, "--partition", "0")
    assert len(producers.splitlines()) == 2, producers


@feature("transactions")
def test_a_transaction_that_kafka_transactions_aborts_is_hidden_from_read_committed_consumers(kafka: Broker) -> None:
    from confluent_kafka import Producer

    topic, name = create_topic(kafka), unique("transactional")
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": name})
    producer.init_transactions(TIMEOUT_S)
    producer.begin_transaction()
    producer.produce(topic, b"hidden")
    producer.flush(TIMEOUT_S)
    asked = ("--topic", topic, "--partition", "0", "--start-offset", "0")
    run(kafka, "kafka-transactions", "abort", *asked)
    produce(kafka, topic, ["plain"])
    assert consume(kafka, topic, 1, "--isolation-level", "read_committed") == ["plain"]
    assert consume(kafka, topic, 2, "--isolation-level", "read_uncommitted") == ["hidden", "plain"]


@feature("restart")
def test_a_consumer_group_continues_after_a_broker_restart(tmp_path: Path) -> None:
    with Broker() as broker:
        topic = create_topic(broker, 3)
        with VerifiableConsumer(broker, topic, "survivors", tmp_path / "consumer") as consumer:
            wait_until_assigned([consumer], [3])
            produce(broker, topic, numbers(100))
            eventually(lambda: consumer.consumed_count == 100, TIMEOUT_S, about="the first hundred")
            broker.restart()
            produce(broker, topic, numbers(100))
            eventually(lambda: consumer.consumed_count >= 200, TIMEOUT_S, about="the second hundred")
            assert consumer.consumed_count == 200
            consumer.stop()
        described = run(broker, "kafka-consumer-groups", "--describe", "--group", "survivors")
        assert len(re.findall(rf"survivors\s+{topic}\s+\d\s+(\d+)\s+\1\s+0", described)) >= 1, described
