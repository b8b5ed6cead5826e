"""docs/TESTING.md: its examples run without changes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from pessoa.testing import Broker, plugin

PAGE = Path(__file__).parents[3] / "docs/TESTING.md"
EXAMPLES = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)


@pytest.mark.parametrize("example", EXAMPLES, ids=range(len(EXAMPLES)))
def test_an_example_of_the_page_runs_as_it_stands(example: str, kafka: Broker, kafka_topic: str) -> None:
    names: dict[str, object] = {}
    exec(compile(example, str(PAGE), "exec"), names)
    test_orders = names.get("test_orders")
    if callable(test_orders):
        test_orders(kafka, kafka_topic)


def test_the_page_names_every_fixture_of_the_plugin() -> None:
    source = Path(plugin.__file__).read_text(encoding="utf-8")
    fixtures = set(re.findall(r"^@pytest\.fixture.*\ndef (\w+)", source, re.MULTILINE))
    assert "kafka" in fixtures
    assert set(re.findall(r"^\| `(\w+)` \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE)) == fixtures
