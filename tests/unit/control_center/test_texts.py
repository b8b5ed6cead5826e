"""Every text of the pages is in the Portuguese table, with the same placeholders."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pessoa.control_center
from pessoa.control_center.portuguese import PORTUGUESE

# Tables whose texts are translated where they are drawn.
_TABLES = ("ACKS", "TABS", "SORTS", "STARTS", "MENU", "ACTIONS")
_FACT = re.compile(r"\{(\w+)\}")


def sentences() -> set[str]:
    """Return the texts in calls of `t`, and in the tables that are passed to it."""
    found = set()
    for path in Path(pessoa.control_center.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name | ast.Attribute):
                name = node.func.id if isinstance(node.func, ast.Name) else node.func.attr
                if name == "t" and node.args:
                    found |= {
                        one.value
                        for one in ast.walk(node.args[0])
                        if isinstance(one, ast.Constant) and isinstance(one.value, str) and len(one.value) > 1
                    }
            if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") in _TABLES:
                constants = (one.value for one in ast.walk(node.value) if isinstance(one, ast.Constant))
                found |= {one for one in constants if isinstance(one, str) and (one[:1].isupper() or " " in one)}
    return found


def test_every_sentence_of_the_pages_is_translated() -> None:
    lacking = {one for one in sentences() if one not in PORTUGUESE and not one.isupper()}
    assert not lacking


def test_translations_have_the_facts_of_their_sentences() -> None:
    wrong = {
        one: two for one, two in PORTUGUESE.items() if set(_FACT.findall(one)) != set(_FACT.findall(two)) or not two
    }
    assert not wrong
