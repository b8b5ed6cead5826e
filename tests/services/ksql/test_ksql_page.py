"""Run the SQL blocks of docs/KSQL.md in order with the ksql command, and compare the output with the page."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from pathlib import Path

from pessoa.testing import Broker
from tests.services.ksql.serving import ksql_server

PAGE = Path(__file__).parents[3] / "docs" / "KSQL.md"
BLOCK = re.compile(r"```sql\n(.*?)```(?:\n```text\n(.*?)```)?", re.DOTALL)
DEADLINE_S = 200.0


def run(url: str, block: str) -> str:
    words = [sys.executable, "-m", "pessoa", "ksql", "-e", block, url]
    done = subprocess.run(words, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
    assert done.returncode == 0, f"{block}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def has_all(shown: str, wanted: str) -> bool:
    lines = [" ".join(line.split()) for line in shown.splitlines()]
    return all(" ".join(line.split()) in lines for line in wanted.splitlines())


def test_every_sql_block_of_the_ksql_page_prints_the_output_of_the_page(tmp_path: Path) -> None:
    blocks = BLOCK.findall(PAGE.read_text(encoding="utf-8"))
    assert len(blocks) == 8
    with Broker() as broker, ksql_server(broker.bootstrap_servers, tmp_path) as server:
        url = str(server.base_url)
        for block, wanted in blocks:
            shown = run(url, block)
            deadline = time.monotonic() + DEADLINE_S
            # A pull query is repeated: its table lags behind the topic.
            while not has_all(shown, wanted) and block.startswith("SELECT"):
                assert time.monotonic() < deadline, f"{block}\n{shown}"
                time.sleep(0.2)
                shown = run(url, block)
            assert has_all(shown, wanted), f"{block}\n{shown}"
