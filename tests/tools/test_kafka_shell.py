"""The shell that others wrote (kafka-shell on PyPI, 0.1.4), in a terminal, with our tools on its PATH.

It adds the flags of its time to what is typed (`--bootstrap-server`, `--broker-list`, `--zookeeper`) and runs the
commands through the system's shell.
"""

from __future__ import annotations

import os
import pty
import re
import select
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from pessoa.testing import Broker

# Where `make test` has put it; beside .venv, for the reason that stands in tools/kafka-shell.lock.
INSTALLED = Path(__file__).parents[2] / "build" / "kafka-shell"
START = f"import sys; sys.path.insert(0, {str(INSTALLED)!r}); from kafkashell.main import main; main()"

pytestmark = pytest.mark.skipif(
    not (INSTALLED / "kafkashell").is_dir(), reason="make build/kafka-shell/.stamp installs the kafka-shell of PyPI"
)
TIMEOUT_S = 90.0
CONFIG = """\
version: 1
enable: {{history: true, save_on_exit: true, auto_complete: true, auto_suggest: true, inline_help: true,
         fuzzy_search: true}}
cluster: local
clusters:
  local: {{bootstrap_servers: "{servers}"}}
  old: {{bootstrap_servers: "{servers}", zookeeper_connect: "localhost:2181"}}
"""


class Terminal:
    """A program on a pseudo-terminal: type a line, wait for words."""

    def __init__(self, command: list[str], environment: dict[str, str]) -> None:
        self._master, theirs = pty.openpty()
        self._process = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=environment)
        os.close(theirs)
        self._seen = ""

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        os.close(self._master)

    def type(self, line: str) -> None:
        # What is typed before the prompt is there would be thrown away.
        self.until("[F10] Exit")
        os.write(self._master, line.encode() + b"\r")

    def until(self, words: str) -> str:
        """What was shown since the last call, up to these words."""
        deadline = time.monotonic() + TIMEOUT_S
        while words not in self._seen:
            assert time.monotonic() < deadline, f"{words!r} is not in {self._seen!r}"
            if select.select([self._master], [], [], 0.1)[0]:
                text = os.read(self._master, 65536).decode(errors="replace")
                if "\x1b[6n" in text:
                    # The program asks where the cursor is, and a terminal answers.
                    os.write(self._master, b"\x1b[1;1R")
                self._seen += re.sub(r"\x1b\[[0-9;?]*[A-Za-z]|\r", "", text)
        found, _, self._seen = self._seen.partition(words)
        return found

    def exit_code(self) -> int:
        return self._process.wait(TIMEOUT_S)


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Terminal]:
    beside_python = Path(sys.executable).parent
    assert shutil.which("kafka-topics", path=str(beside_python)), "the tools are not installed beside this Python"
    with Broker() as broker:
        (tmp_path / ".kafka-shell").mkdir()
        (tmp_path / ".kafka-shell" / "config.yaml").write_text(CONFIG.format(servers=broker.bootstrap_servers))
        environment = os.environ | {
            "HOME": str(tmp_path),
            "PATH": f"{beside_python}:{os.environ['PATH']}",
            "PESSOA_BOOTSTRAP_SERVER": broker.bootstrap_servers,
            "TERM": "xterm",
        }
        terminal = Terminal([sys.executable, "-W", "ignore", "-c", START], environment)
        try:
            yield terminal
        finally:
            terminal.close()


def test_the_shell_from_pypi_finds_our_tools_and_adds_its_flags(shell: Terminal) -> None:
    shell.type("kafka-topics --create --topic orders --partitions 2")
    shell.until("Created topic orders.")
    shell.type("kafka-topics --list")
    shell.until("\norders\n")
    shell.type("cluster-select old")
    shell.until("Selected cluster: old")
    shell.type("kafka-topics --describe --topic orders")
    shell.until("Warning: --zookeeper is deprecated and there is no ZooKeeper")
    shell.until("Topic: orders\tTopicId: ")
    shell.type("kafka-console-consumer --topic orders --timeout-ms 100")
    shell.until("Processed a total of 0 messages")
    shell.type("kafka-consumer-groups --list --state")
    # How far apart depends on the number that the group above was given.
    shell.until(" STATE ")
    shell.type("exit")
    assert shell.exit_code() == 0
