"""Run the commands and programs of docs/SHARE_GROUPS.md in order; only the bootstrap address is replaced."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from pessoa.testing import Broker

PAGE = Path(__file__).parents[2] / "docs" / "SHARE_GROUPS.md"
ADDRESS = "localhost:9092"
TIMEOUT_S = 120.0
# A worker gets its partitions with its second heartbeat; the default interval is five seconds.
SHORT_INTERVALS = {"group.share.heartbeat.interval.ms": "200", "group.share.min.heartbeat.interval.ms": "100"}


def test_every_code_block_of_the_share_groups_page_runs() -> None:
    whole = PAGE.read_text(encoding="utf-8")
    blocks = re.findall(r"```(\w+)\n(.*?)```", whole, re.DOTALL)
    assert [kind for kind, _ in blocks].count("python") >= 5
    names: dict[str, object] = {}
    tools = str(Path(sys.executable).parent)
    with Broker(SHORT_INTERVALS) as broker:
        for kind, text in blocks:
            if kind == "python":
                # Blank lines, so that a traceback has the line number of the page.
                above = whole[: whole.index(text)].count("\n")
                exec(compile("\n" * above + text.replace(ADDRESS, broker.bootstrap_servers), str(PAGE), "exec"), names)
                continue
            assert kind == "bash", f"a block of {kind} is not run"
            shown = subprocess.run(
                ["bash", "-euc", text.replace(ADDRESS, broker.bootstrap_servers)],
                env=os.environ | {"PATH": f"{tools}:{os.environ['PATH']}"},
                capture_output=True,
                text=True,
                timeout=TIMEOUT_S,
            )
            assert shown.returncode == 0, shown.stdout + shown.stderr
    # The last block describes the group: nothing is left to do.
    assert re.search(r"^workers\s+jobs\s+0\s+\d+\s+0\s*$", shown.stdout, re.MULTILINE), shown.stdout
