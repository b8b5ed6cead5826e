"""The console producer and consumer as processes on our broker, with the commands of tutorials."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import pytest

from pessoa.testing import Broker
from tests.apache.tool_server import Outcome
from tests.tools.stage import run_ours

TIMEOUT_S = 120


def run(tool: str, *words: str, stdin: str = "") -> Outcome:
    command = [sys.executable, "-m", "pessoa.cli.tools", tool, *words]
    done = subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=TIMEOUT_S)
    return Outcome(done.returncode, done.stdout, done.stderr)


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    with Broker() as broker:
        yield broker.bootstrap_servers


@pytest.fixture
def topic(servers: str, request: pytest.FixtureRequest) -> str:
    name = "".join(letter for letter in request.node.name if letter.isalnum())[-60:]
    assert run_ours("kafka-topics", "--bootstrap-server", servers, "--create", "--topic", name).code == 0
    return name


def consume(servers: str, topic: str, count: int, *words: str) -> Outcome:
    return run("kafka-console-consumer", "--bootstrap-server", servers, "--topic", topic, "--from-beginning",
               "--max-messages", str(count), "--timeout-ms", "100000", *words)  # fmt: skip


def test_a_hundred_lines_are_produced_with_the_deprecated_flags_and_consumed(servers: str, topic: str) -> None:
    lines = "".join(f"{number}\n" for number in range(1, 101))
    produced = run("kafka-console-producer", "--request-required-acks", "1", "--broker-list", servers, "--topic", topic,
                   stdin=lines)  # fmt: skip
    assert produced == Outcome(0, "", "")
    assert consume(servers, topic, 100) == Outcome(0, lines, "Processed a total of 100 messages\n")


def test_headers_keys_and_nulls_are_parsed_and_printed(servers: str, topic: str) -> None:
    properties = ("parse.key=true", "parse.headers=true", "null.marker=NULL")
    run("kafka-console-producer", "--bootstrap-server", servers, "--topic", topic,
        *(word for one in properties for word in ("--reader-property", one)),
        stdin="a:1,b:2\tkey\tvalue\nNULL\tNULL\tNULL\n")  # fmt: skip
    shown = ("print.key=true", "print.headers=true", "print.partition=true", "print.offset=true", "null.literal=-")
    found = consume(servers, topic, 2, *(word for one in shown for word in ("--property", one)))
    assert found.out.splitlines() == [
        "Option --property is deprecated and will be removed in a future version. Use --formatter-property instead.",
        "Partition:0\tOffset:0\ta:1,b:2\tkey\tvalue",
        "Partition:0\tOffset:1\tNO_HEADERS\t-\t-",
    ]


def test_the_producer_fails_at_a_line_without_key_separator_after_sending_the_lines_before(
    servers: str, topic: str
) -> None:
    bad = run("kafka-console-producer", "--bootstrap-server", servers, "--topic", topic,
              "--reader-property", "parse.key=true", stdin="k\tgood\nbad\n")  # fmt: skip
    assert bad == Outcome(
        1, "", "org.apache.kafka.common.KafkaException: No key separator found on line number 2: 'bad'\n"
    )
    assert consume(servers, topic, 1).out == "good\n"


def test_a_group_continues_after_the_last_printed_record_and_not_after_the_last_fetched_one(
    servers: str, topic: str
) -> None:
    run("kafka-console-producer", "--bootstrap-server", servers, "--topic", topic, stdin="one\ntwo\nthree\n")
    assert consume(servers, topic, 2, "--group", topic).out == "one\ntwo\n"
    assert consume(servers, topic, 1, "--group", topic).out == "three\n"
    described = run_ours("kafka-consumer-groups", "--bootstrap-server", servers, "--describe", "--group", topic)
    assert described.out.split()[9:15] == [topic, topic, "0", "3", "3", "0"]


def test_a_partition_is_read_from_an_offset_without_a_group(servers: str, topic: str) -> None:
    run("kafka-console-producer", "--bootstrap-server", servers, "--topic", topic, stdin="one\ntwo\nthree\n")
    groups = run_ours("kafka-consumer-groups", "--bootstrap-server", servers, "--list")
    found = run("kafka-console-consumer", "--bootstrap-server", servers, "--topic", topic, "--partition", "0",
                "--offset", "1", "--max-messages", "2")  # fmt: skip
    assert found == Outcome(0, "two\nthree\n", "Processed a total of 2 messages\n")
    assert run_ours("kafka-consumer-groups", "--bootstrap-server", servers, "--list") == groups


def test_a_consumer_without_records_reports_its_timeout_and_exits_with_0(servers: str, topic: str) -> None:
    found = run("kafka-console-consumer", "--bootstrap-server", servers, "--topic", topic, "--timeout-ms", "300")
    assert found.code == 0
    assert found.err.splitlines()[-2:] == [
        "org.apache.kafka.common.errors.TimeoutException",
        "Processed a total of 0 messages",
    ]


def test_the_zookeeper_option_uses_the_default_cluster_and_prints_a_warning(
    servers: str, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PESSOA_BOOTSTRAP_SERVER", servers)
    listed = run_ours("kafka-topics", "--list", "--zookeeper", "localhost:2181")
    assert listed.code == 0
    assert topic in listed.out.splitlines()
    assert listed.err == (
        f"Warning: --zookeeper is deprecated and there is no ZooKeeper; using --bootstrap-server {servers}.\n"
    )


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--topic", "t"), "Error while validating the bootstrap address"),
        (("--bootstrap-server", "b:1"), 'Missing required argument "[topic]"'),
        (("--bogus",), "bogus is not a recognized option"),
        (
            ("--bootstrap-server", "b:1", "--topic", "t", "--compression-codec", "bogus"),
            (
                "org.apache.kafka.common.config.ConfigException: Invalid value bogus for configuration "
                "compression.type: String must be one of: none, gzip, snappy, lz4, zstd"
            ),
        ),
        (
            ("--bootstrap-server", "b:1", "--topic", "t", "--producer-property", "a=1", "--command-property", "a=1"),
            "Options --command-property and --producer-property cannot be specified together.",
        ),
    ],
)
def test_the_console_producer_reports_wrong_arguments_and_exits_with_1(words: tuple[str, ...], sentence: str) -> None:
    done = run_ours("kafka-console-producer", *words)
    assert done.code == 1
    assert done.err.splitlines()[0] == sentence


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--topic", "t"), 'Missing required argument "[bootstrap-server]"'),
        (("--bootstrap-server", "b:1"), "Exactly one of the following arguments is required: [topic], [include]"),
        (
            ("--bootstrap-server", "b:1", "--topic", "t", "--offset", "3"),
            "The partition is required when offset is specified.",
        ),
        (
            ("--bootstrap-server", "b:1", "--topic", "t", "--partition", "0", "--offset", "bogus"),
            (
                "The provided offset value 'bogus' is incorrect. Valid values are 'earliest', 'latest', or a "
                "non-negative long."
            ),
        ),
        (
            ("--bootstrap-server", "b:1", "--topic", "t", "--from-beginning", "--command-property",
             "auto.offset.reset=latest"),
            "Can't simultaneously specify --from-beginning and 'auto.offset.reset=latest', please remove one option",
        ),
        (("--bootstrap-server", "b:1", "--topic", "t", "--formatter", "bogus"), "bogus"),
    ],
)  # fmt: skip
def test_the_console_consumer_reports_wrong_arguments_and_exits_with_1(words: tuple[str, ...], sentence: str) -> None:
    done = run_ours("kafka-console-consumer", *words)
    assert done.code == 1
    assert done.err.splitlines()[0] == sentence
