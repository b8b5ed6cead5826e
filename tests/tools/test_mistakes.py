"""Mistakes of new users: unknown options, names and addresses, clusters that are down, Ctrl-C."""

from __future__ import annotations

import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from click.testing import CliRunner

from pessoa.cli.main import main
from pessoa.testing import Broker
from tests.support.typed_process import TypedProcess
from tests.tools.stage import run_ours

TIMEOUT_S = 120.0
SILENCE = (
    "WARN No broker answers at {}: Connection refused. Trying again; `pessoa up` starts a cluster on localhost:9092.\n"
)


@pytest.fixture
def closed_port() -> Iterator[str]:
    """Reserve an address on which no server listens, and return it."""
    with closing(socket.socket()) as held:
        held.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{held.getsockname()[1]}"


def impatient(tmp_path: Path) -> str:
    path = tmp_path / "impatient.properties"
    path.write_text("default.api.timeout.ms=300\n")
    return str(path)


@pytest.mark.parametrize(
    ("tool", "words"),
    [
        ("kafka-topics", ["--list"]),
        ("kafka-consumer-groups", ["--list"]),
        ("kafka-configs", ["--describe", "--broker-defaults"]),
        ("kafka-acls", ["--list"]),
        ("kafka-metadata-quorum", ["describe", "--status"]),
        ("kafka-reassign-partitions", ["--list"]),
    ],
)
def test_a_tool_first_prints_a_single_warning_that_no_broker_answers(
    tool: str, words: list[str], closed_port: str, tmp_path: Path
) -> None:
    settings = ["--command-config", impatient(tmp_path)]
    shown = run_ours(tool, "--bootstrap-server", closed_port, *settings, *words)
    assert shown.err.startswith(SILENCE.format(closed_port))
    assert shown.err.count("WARN") == 1


@pytest.mark.parametrize(
    ("tool", "words"),
    [
        ("kafka-topics", ["--list"]),
        ("kafka-acls", ["--list"]),
        ("kafka-metadata-quorum", ["describe", "--status"]),
        ("kafka-console-producer", ["--topic", "t"]),
        ("kafka-console-consumer", ["--topic", "t"]),
    ],
)
def test_a_tool_exits_with_1_when_the_bootstrap_host_cannot_be_resolved(tool: str, words: list[str]) -> None:
    shown = run_ours(tool, "--bootstrap-server", "nowhere.invalid:9092", *words)
    assert shown.code == 1
    assert shown.err.startswith("WARN Couldn't resolve server nowhere.invalid from bootstrap.servers: no name")
    assert "No resolvable bootstrap urls given in bootstrap.servers" in shown.out + shown.err


@pytest.mark.parametrize(("typed", "meant"), [("--lst", "--list"), ("--bootstrap-servers", "--bootstrap-server")])
def test_a_mistyped_option_is_answered_with_a_suggestion(typed: str, meant: str) -> None:
    shown = run_ours("kafka-topics", typed, "--describe")
    assert shown == (1, "", f"{typed.removeprefix('--')} is not a recognized option\nDid you mean {meant}?\n")


def test_an_option_that_is_like_no_other_gets_no_suggestion() -> None:
    assert run_ours("kafka-topics", "--xyzzy").err == "xyzzy is not a recognized option\n"


def test_describe_with_a_topic_name_but_without_the_topic_option_describes_that_topic() -> None:
    with Broker() as broker:
        ask = ("kafka-topics", "--bootstrap-server", broker.bootstrap_servers)
        for name in ("uvas-verdes", "peras"):
            assert run_ours(*ask, "--create", "--topic", name).code == 0
        alone = run_ours(*ask, "--describe", "peras")
        assert alone == run_ours(*ask, "--describe", "--topic", "peras")
        assert alone.code == 0
        missing = run_ours(*ask, "--describe", "uvas")
    assert missing == (1, "Error while executing topic command : Topic 'uvas' does not exist as expected\n", "")


def test_a_mistyped_command_is_answered_with_a_suggestion() -> None:
    shown = CliRunner().invoke(main, ["statsu"])
    assert shown.exit_code == 2
    assert "No such command 'statsu'. Did you mean 'status'?" in shown.output
    assert "Did you mean" not in CliRunner().invoke(main, ["xyzzy"]).output


def test_pessoa_logs_broker_prints_the_logs_of_all_brokers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PESSOA_HOME", str(tmp_path))
    (tmp_path / "logs").mkdir()
    for name in ("broker-1", "broker-2", "schema-registry"):
        (tmp_path / "logs" / f"{name}.log").write_text(f"{name} speaks\n")
    shown = CliRunner().invoke(main, ["logs", "broker"])
    assert shown.output == "broker-1 | broker-1 speaks\nbroker-2 | broker-2 speaks\n"
    assert CliRunner().invoke(main, ["logs", "broker-2"]).output == "broker-2 speaks\n"
    missing = CliRunner().invoke(main, ["logs", "zookeeper"])
    assert missing.output == "Error: there is no log of zookeeper; there are broker-1, broker-2, schema-registry\n"
    assert missing.exit_code == 1


def test_the_shell_accepts_a_line_copied_with_a_prompt_a_docker_prefix_and_a_pipe() -> None:
    from pessoa.cli.shell import State, as_typed, command_line

    copied = "$ docker-compose exec broker  kafka-topics --list"
    assert as_typed(copied) == as_typed("docker exec -it kafka_1 kafka-topics --list") == "kafka-topics --list"
    assert as_typed("docker-compose exec broker ls") == "docker-compose exec broker ls"
    with Broker() as broker:
        state = State({"here": broker.bootstrap_servers})
        for name in ("peras", "uvas"):
            ask = ("kafka-topics", "--bootstrap-server", broker.bootstrap_servers)
            assert run_ours(*ask, "--create", "--topic", name).code == 0
        command = command_line("kafka-topics --list | grep 'u[v]as'", state)
        assert command is not None
        assert subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S).stdout == "uvas\n"


def tool(log: Path, *words: str) -> TypedProcess:
    return TypedProcess([sys.executable, "-m", "pessoa.cli.tools", *words], log)


def test_the_console_producer_warns_that_no_broker_answers_and_exits_on_the_second_ctrl_c(
    closed_port: str, tmp_path: Path
) -> None:
    words = ("kafka-console-producer", "--bootstrap-server", closed_port, "--topic", "t")
    with tool(tmp_path / "producer", *words) as producer:
        producer.type("oi")
        producer.wait_for(re.escape(SILENCE.format(closed_port)))
        producer.send_signal(signal.SIGINT)
        producer.wait_for(re.escape("1 records have not been acknowledged; Ctrl-C once more gives them up.\n"))
        assert producer.stop(signal.SIGINT) == 130
    assert "Traceback" not in producer.said


def test_the_console_consumer_warns_that_no_broker_answers_and_exits_with_0_on_ctrl_c(
    closed_port: str, tmp_path: Path
) -> None:
    words = ("kafka-console-consumer", "--bootstrap-server", closed_port, "--topic", "t")
    with tool(tmp_path / "consumer", *words) as consumer:
        consumer.wait_for(re.escape(SILENCE.format(closed_port)))
        assert consumer.stop(signal.SIGINT) == 0
    assert consumer.said == f"{SILENCE.format(closed_port)}Processed a total of 0 messages\n"
