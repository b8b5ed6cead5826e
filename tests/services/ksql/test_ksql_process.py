"""The ksql server and the ksql command as processes: start, SIGKILL, and the prompt in a terminal."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from pessoa.testing import Broker
from tests.services.ksql.serving import Ksql
from tests.support.logged_process import LoggedProcess, pessoa
from tests.support.terminal import Terminal

STREAM = "CREATE STREAM S (ID INT KEY, V VARCHAR) WITH (KAFKA_TOPIC='process', VALUE_FORMAT='JSON', PARTITIONS=1);"


def ksql_command(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pessoa", "ksql", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, stdin=subprocess.DEVNULL, check=False)


def test_a_killed_ksql_server_has_its_streams_again_after_a_restart(broker: Broker, tmp_path: Path) -> None:
    properties = tmp_path / "ksql-server.properties"
    properties.write_text(
        f"listeners=http://127.0.0.1:0\nbootstrap.servers={broker.bootstrap_servers}\nksql.service.id=killed_\n"
        f"pessoa.home={tmp_path / 'home'}\n"
    )
    command = [*pessoa("ksql-server"), str(properties)]
    with LoggedProcess(command, tmp_path / "first.log") as first:
        url = first.wait_for(r"is listening on (\S+)")[1]
        done = ksql_command("-e", STREAM + "INSERT INTO S VALUES (1, 'a');", url)
        assert done.returncode == 0, done.stdout + done.stderr
        assert "Stream created" in done.stdout
        first.kill()
    with LoggedProcess(command, tmp_path / "second.log") as second:
        url = second.wait_for(r"is listening on (\S+)")[1]
        asked = ksql_command("--output", "JSON", "-e", "SELECT * FROM S", url)
        assert '[1, "a"]' in asked.stdout
        assert second.stop() == 0


def test_the_ksql_command_prints_an_error_exits_with_1_and_runs_a_script(ksql: Ksql, tmp_path: Path) -> None:
    url = str(ksql.base_url)
    refused = ksql_command("-e", "SHOW STREEMS;", url)
    assert refused.returncode == 1
    assert "Did you mean STREAMS?" in refused.stdout
    unanswered = ksql_command("-e", "SHOW STREAMS;", "http://127.0.0.1:1")
    assert unanswered.returncode == 1
    assert "No ksql server answers at http://127.0.0.1:1" in unanswered.stdout
    script = tmp_path / "s.sql"
    script.write_text("SHOW TOPICS;")
    assert "Kafka Topic" in ksql_command("-f", str(script), url).stdout


class Prompt(Terminal):
    """`ksql` in a terminal."""

    def __init__(self, url: str, home: Path) -> None:
        environment = os.environ | {"HOME": str(home), "TERM": "xterm", "COLUMNS": "100", "LINES": "40"}
        super().__init__([sys.executable, "-m", "pessoa", "ksql", url], environment)

    def enter(self, *lines: str) -> None:
        self.wait_for("ksql>")
        for line in lines:
            self.type(f"{line}\r")

    def leave(self) -> int:
        self.wait_for("ksql>")
        self.type("\x04")
        self.wait_for("Exiting ksqlDB.")
        return self.exit_code()


@pytest.fixture
def prompt(ksql: Ksql, tmp_path: Path) -> Iterator[Prompt]:
    prompt = Prompt(str(ksql.base_url), tmp_path)
    try:
        prompt.wait_for("Server Status: RUNNING")
        yield prompt
    finally:
        prompt.close()


@pytest.fixture
def stream(ksql: Ksql, name: str) -> str:
    ksql.run(STREAM.replace("STREAM S ", f"STREAM {name} ").replace("'process'", f"'{name}'"))
    return name


def test_the_ksql_prompt_reads_lines_until_a_semicolon_and_ctrl_c_ends_a_query(
    ksql: Ksql, prompt: Prompt, name: str, tmp_path: Path
) -> None:
    prompt.enter(
        f"CREATE STREAM {name} (ID INT KEY, V VARCHAR)",
        f"WITH (KAFKA_TOPIC='{name}', VALUE_FORMAT='JSON', PARTITIONS=1);",
    )
    prompt.wait_for("Stream created")
    prompt.enter(f"SELECT * FROM {name} EMIT CHANGES;")
    prompt.wait_for(r"\|ID +\|V +\|")
    ksql.run(f"INSERT INTO {name} VALUES (7, 'seven');")
    prompt.wait_for(r"\|7 +\|seven +\|")
    prompt.type("\x03")
    prompt.wait_for("Query terminated")
    prompt.enter("history")
    prompt.wait_for(rf"0: CREATE STREAM {name}")
    assert prompt.leave() == 0
    assert (tmp_path / ".ksql-history").exists()


def test_ctrl_c_that_is_typed_right_after_a_push_query_ends_it(prompt: Prompt, stream: str) -> None:
    prompt.wait_for("ksql>")
    prompt.type(f"SELECT * FROM {stream} EMIT CHANGES;\r\x03")
    prompt.wait_for("Interrupted|Query terminated")
    assert prompt.leave() == 0


def test_ctrl_c_at_the_ksql_prompt_discards_the_lines_of_an_unfinished_statement(prompt: Prompt, stream: str) -> None:
    prompt.enter("SELECT half")
    prompt.wait_for("half\n>")
    prompt.type("\x03")
    prompt.enter(f"DESCRIBE {stream};")
    prompt.wait_for("VARCHAR")
    assert prompt.leave() == 0
