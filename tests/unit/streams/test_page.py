"""The code of docs/STREAMS.md: its plans can be made, and run in the mode that the page names."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

PAGE = Path(__file__).parents[3] / "docs" / "STREAMS.md"


def test_the_page_s_pipeline_can_be_imported_and_runs_at_the_speeds_that_are_shown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    text = PAGE.read_text(encoding="utf-8")
    found = re.search(r"```python\n(.*?)```", text, re.DOTALL)
    assert found is not None
    vendas = ModuleType("vendas")
    # Where a dataclass looks for what its annotations mean.
    monkeypatch.setitem(sys.modules, "vendas", vendas)
    exec(found[1], vars(vendas))
    first, second = vendas.app.explain().split("\n\n")
    assert first.startswith("vendas-app-vendas-caras\n")
    assert first.endswith("runs in real-time mode")
    assert second.startswith("vendas-app-vendas-por-minuto\n")
    assert second.splitlines()[-3:] == [
        "runs in several queries:",
        "vendas-app-vendas-por-minuto-letters → vendas-app-dead-letters runs in real-time mode",
        "vendas-app-vendas-por-minuto → vendas-por-minuto runs in real-time mode",
    ]


def test_every_block_of_the_page_makes_a_plan_that_can_be_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    text = PAGE.read_text(encoding="utf-8")
    vendas = ModuleType("vendas")
    monkeypatch.setitem(sys.modules, "vendas", vendas)
    blocks = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    topics = []
    for block in blocks:
        if "pandas" in block:
            vars(vendas)["pandas"] = pytest.importorskip("pandas")
        exec(block, vars(vendas))
        topics.append({sink.topic for sink in vendas.app.plans})
    assert len(blocks) >= 9
    assert {"montra", "mostrar", "com-preco", "saldos", "ultimo-minuto", "avisos", "totais"} <= topics[-1]
    assert "vendas-app-totais-changelog" in topics[-1]
    text = vendas.app.explain()
    assert "process with Parado() → STRING, with event-time timers" in text
    assert vendas.app.explain(format="mermaid").startswith("flowchart TD")
