from __future__ import annotations

import sys

import pytest
from click.testing import CliRunner

from pessoa.cli.shell import State, command_line, shell
from pessoa.cli.shell_words import Live, suggestions
from pessoa.cli.tool_run import DEFAULT_CLUSTER_VARIABLE
from pessoa.cli.topics import main as kafka_topics
from pessoa.testing import Broker


class Fixed(Live):
    def _ask(self, kind: str) -> list[str]:
        return {"topics": ["orders", "parcels"], "groups": ["shop"]}[kind]


def texts(line: str) -> list[str]:
    return [one.text for one in suggestions(line, Fixed("here:9092"))]


def test_commands_complete_at_the_beginning_of_a_line() -> None:
    assert texts("kafka-top") == ["kafka-topics"]
    assert {"kafka-acls", "exit", "cluster"} <= set(texts(""))


def test_options_complete_with_their_help_and_not_twice() -> None:
    found = {one.text: one.help for one in suggestions("kafka-topics --list --exc", Fixed("here:9092"))}
    assert found == {"--exclude-internal": "leave out Kafka's own topics"}
    assert "--list" not in texts("kafka-topics --list --")
    assert "--config" in texts("kafka-topics --create --config a=b --")


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("kafka-topics --describe --topic ", ["orders", "parcels"]),
        ("kafka-console-consumer --topic or", ["orders"]),
        ("kafka-consumer-groups --describe --group ", ["shop"]),
        ("kafka-configs --alter --add-config retention.m", ["retention.ms="]),
        ("kafka-topics --create --config cleanup.policy=c", ["compact"]),
        ("kafka-console-producer --compression-codec z", ["zstd"]),
        ("kafka-cluster --boot", []),
        ("ls -", []),
    ],
)
def test_values_complete_from_the_cluster_and_from_tables(line: str, found: list[str]) -> None:
    assert texts(line) == found


def test_names_are_completed_from_the_running_cluster_and_not_at_all_without_one() -> None:
    with Broker() as broker:
        words = ["--bootstrap-server", broker.bootstrap_servers, "--create", "--topic", "apples"]
        assert kafka_topics(words) == 0
        assert Live(broker.bootstrap_servers).topics() == ["apples"]
    assert Live("127.0.0.1:1").topics() == []


def test_a_command_gets_the_chosen_cluster_unless_it_names_one() -> None:
    state = State({"local": "here:9092", "far": "there:9092"})
    start = [sys.executable, "-m", "pessoa.cli.tools", "kafka-topics"]
    assert command_line("kafka-topics --list", state) == [*start, "--bootstrap-server", "here:9092", "--list"]
    state.next_cluster()
    assert command_line("kafka-topics.sh --list", state) == [*start, "--bootstrap-server", "there:9092", "--list"]
    assert command_line("kafka-topics --list --bootstrap-server x:1", state) == [
        *start,
        *("--list", "--bootstrap-server", "x:1"),
    ]
    assert command_line("ls", state) is None
    assert state.toolbar() == " [F2] Cluster: far [F3] Fuzzy: ON [F9] In-Line Help: ON [F10] Exit"


def test_the_tools_with_schemas_complete_and_get_the_cluster_too() -> None:
    assert texts("kafka-avro-console-producer --top") == ["--topic"]
    command = command_line("kafka-protobuf-console-consumer --topic orders", State({"here": "there:9092"}))
    assert command is not None
    assert command[4:] == ["--bootstrap-server", "there:9092", "--topic", "orders"]


def test_a_command_behind_a_semicolon_gets_the_chosen_cluster_too(capfd: pytest.CaptureFixture[str]) -> None:
    line = f"kafka-topics --version > /dev/null ; printenv {DEFAULT_CLUSTER_VARIABLE}\n"
    CliRunner().invoke(shell, ["--cluster", "far=there:9092"], input=line)
    assert capfd.readouterr().out == "there:9092\n"


def test_without_a_terminal_lines_are_run_one_after_the_other() -> None:
    lines = 'ls\ncluster other\n\ncluster nowhere\nkafka-topics "x\nexit\ncluster here\n'
    done = CliRunner().invoke(shell, ["--cluster", "here=a:1", "--cluster", "other=b:2"], input=lines)
    assert done.exit_code == 0
    assert done.output.splitlines() == [
        "ls is not a command of Kafka's; Tab shows what there is.",
        "Selected cluster: other (b:2)",
        "Unknown cluster!",
        'No closing quotation: kafka-topics "x',
    ]


@pytest.mark.parametrize("cluster", ["nonsense", "=localhost:9092", "name="])
def test_a_cluster_option_without_name_and_address_is_refused(cluster: str) -> None:
    refused = CliRunner().invoke(shell, ["--cluster", cluster])
    assert refused.exit_code == 2
    assert "a cluster is given as NAME=HOST:PORT" in refused.output
