"""The server and the command as processes: their start, a kill, the prompt in a terminal."""

from __future__ import annotations

import os
import pty
import re
import select
import subprocess
import sys
import time
from pathlib import Path

from pessoa.testing import Broker
from tests.services.ksql.serving import Ksql, wait_for
from tests.support.logged_process import LoggedProcess, pessoa

STREAM = "CREATE STREAM S (ID INT KEY, V VARCHAR) WITH (KAFKA_TOPIC='process', VALUE_FORMAT='JSON', PARTITIONS=1);"


def ksql_command(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pessoa", "ksql", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, stdin=subprocess.DEVNULL, check=False)


def test_a_server_that_is_killed_comes_back_with_its_streams(broker: Broker, tmp_path: Path) -> None:
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


def test_the_command_says_what_is_wrong_and_how_it_ended(ksql: Ksql, tmp_path: Path) -> None:
    url = str(ksql.base_url)
    refused = ksql_command("-e", "SHOW STREEMS;", url)
    assert refused.returncode == 1
    assert "Did you mean STREAMS?" in refused.stdout
    nobody = ksql_command("-e", "SHOW STREAMS;", "http://127.0.0.1:1")
    assert nobody.returncode == 1
    assert "No ksql server answers at http://127.0.0.1:1" in nobody.stdout
    script = tmp_path / "s.sql"
    script.write_text("SHOW TOPICS;")
    assert "Kafka Topic" in ksql_command("-f", str(script), url).stdout


class Prompt:
    """`ksql` in a terminal of its own."""

    def __init__(self, url: str, home: Path) -> None:
        self._pid, self._terminal = pty.fork()
        if self._pid == 0:
            environment = os.environ | {"HOME": str(home), "TERM": "xterm", "COLUMNS": "100", "LINES": "40"}
            os.execve(sys.executable, [sys.executable, "-m", "pessoa", "ksql", url], environment)
        self.shown = ""

    def type(self, text: str) -> None:
        os.write(self._terminal, text.encode())

    def wait_for(self, pattern: str) -> None:
        """Wait until what was shown since the last wait has the pattern."""
        deadline = time.monotonic() + 60
        while (found := re.search(pattern, self.shown)) is None:
            assert time.monotonic() < deadline, f"{pattern} was not shown: {self.shown[-2000:]}"
            if select.select([self._terminal], [], [], 0.2)[0]:
                data = os.read(self._terminal, 65536)
                if b"\x1b[6n" in data:
                    # The prompt asks where the cursor is, and a terminal answers.
                    os.write(self._terminal, b"\x1b[1;1R")
                self.shown += re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", data.decode(errors="replace"))
        self.shown = self.shown[found.end() :]

    def end(self) -> int:
        self.wait_for("ksql>")
        self.type("\x04")
        self.wait_for("Exiting ksqlDB.")
        _, status = os.waitpid(self._pid, 0)
        os.close(self._terminal)
        return os.waitstatus_to_exitcode(status)


def test_the_prompt_takes_lines_until_a_semicolon_and_ctrl_c_ends_a_query(
    ksql: Ksql, name: str, tmp_path: Path
) -> None:
    prompt = Prompt(str(ksql.base_url), tmp_path)
    prompt.wait_for("Server Status: RUNNING")
    prompt.wait_for("ksql>")
    prompt.type(f"CREATE STREAM {name} (ID INT KEY, V VARCHAR)\r")
    prompt.type(f"WITH (KAFKA_TOPIC='{name}', VALUE_FORMAT='JSON', PARTITIONS=1);\r")
    prompt.wait_for("Stream created")
    prompt.wait_for("ksql>")
    prompt.type(f"SELECT * FROM {name} EMIT CHANGES;\r")
    prompt.wait_for(r"\|ID +\|V +\|")
    wait_for(lambda: ksql.run("SHOW QUERIES;")[0]["queries"], "the query")
    ksql.run(f"INSERT INTO {name} VALUES (7, 'seven');")
    prompt.wait_for(r"\|7 +\|seven +\|")
    prompt.type("\x03")
    prompt.wait_for("Query terminated")
    prompt.wait_for("ksql>")
    prompt.type("history\r")
    prompt.wait_for(rf"0: CREATE STREAM {name}")
    assert prompt.end() == 0
    assert (tmp_path / ".ksql-history").exists()
