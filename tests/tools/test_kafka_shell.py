"""The third-party kafka-shell (0.1.4 of PyPI) in a terminal, with our tools on its PATH.

It adds `--bootstrap-server`, `--broker-list` or `--zookeeper` to a typed command and runs it with the system's shell.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from pessoa.testing import Broker
from tests.support.terminal import Terminal

# `make test` installs it there, outside .venv, for the reason in tools/kafka-shell.lock.
INSTALLED = Path(__file__).parents[2] / "build" / "kafka-shell"
START = f"import sys; sys.path.insert(0, {str(INSTALLED)!r}); from kafkashell.main import main; main()"

pytestmark = pytest.mark.skipif(
    not (INSTALLED / "kafkashell").is_dir(), reason="make build/kafka-shell/.stamp installs the kafka-shell of PyPI"
)
CONFIG = """\
version: 1
enable: {{history: true, save_on_exit: true, auto_complete: true, auto_suggest: true, inline_help: true,
         fuzzy_search: true}}
cluster: local
clusters:
  local: {{bootstrap_servers: "{servers}"}}
  old: {{bootstrap_servers: "{servers}", zookeeper_connect: "localhost:2181"}}
"""


class KafkaShell(Terminal):
    def enter(self, line: str) -> None:
        # Input before the prompt is shown would be discarded.
        self.until("[F10] Exit")
        self.type(f"{line}\r")

    def until(self, words: str) -> None:
        self.wait_for(re.escape(words))


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[KafkaShell]:
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
        terminal = KafkaShell([sys.executable, "-W", "ignore", "-c", START], environment)
        try:
            yield terminal
        finally:
            terminal.close()


def test_our_tools_work_in_kafka_shell_with_the_flags_that_it_adds(shell: KafkaShell) -> None:
    shell.enter("kafka-topics --create --topic orders --partitions 2")
    shell.until("Created topic orders.")
    shell.enter("kafka-topics --list")
    shell.until("\norders\n")
    shell.enter("cluster-select old")
    shell.until("Selected cluster: old")
    shell.enter("kafka-topics --describe --topic orders")
    shell.until("Warning: --zookeeper is deprecated and there is no ZooKeeper")
    shell.until("Topic: orders\tTopicId: ")
    shell.enter("kafka-console-consumer --topic orders --timeout-ms 100")
    shell.until("Processed a total of 0 messages")
    shell.enter("kafka-consumer-groups --list --state")
    # The column widths depend on the random name of the consumer's group above.
    shell.until(" STATE ")
    shell.enter("exit")
    assert shell.exit_code() == 0
