"""README, ARCHITECTURE, CONTRIBUTING, GLOSSARY, SECURITY and the index of decisions name files and commands that exist.

A file is named within backticks: from the root, from `src/pessoa`, or from the directory of the file that its section
has named before it (`schema_registry/api/subject_endpoints.py`, then `state.py`). A package of ARCHITECTURE's diagram
that has still to be written has a ○.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src/pessoa"
PAGES = [
    "README.md",
    "CONTRIBUTING.md",
    "docs/ARCHITECTURE.md",
    "docs/GLOSSARY.md",
    "docs/SECURITY.md",
    "docs/decisions/README.md",
]
FENCE = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```", re.MULTILINE | re.DOTALL)
QUOTED = re.compile(r"`([^`\n]+)`")
LINK = re.compile(r"\]\(([^)#]+)\)")
FILE = re.compile(r"[\w.][\w./-]*(\.(py|md|toml|lock)|/)")
TOOLS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
TARGETS = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))


def sections(page: str) -> Iterator[str]:
    yield from re.split(r"^(?=##)", (ROOT / page).read_text(), flags=re.MULTILINE)


def find(name: str, nearby: list[Path]) -> Path | None:
    return next((place / name for place in (ROOT, SOURCE, *nearby) if (place / name).exists()), None)


@pytest.mark.parametrize("page", PAGES)
def test_every_file_that_a_page_names_exists(page: str) -> None:
    missing = []
    for section in sections(page):
        nearby: list[Path] = []
        for name in QUOTED.findall(FENCE.sub("", section)):
            if not FILE.fullmatch(name) or "<" in name:
                continue
            found = find(name, nearby)
            if found is None:
                missing.append(name)
            else:
                folder = found if found.is_dir() else found.parent
                nearby += [folder, *(parent for parent in folder.parents if SOURCE in parent.parents)]
    assert missing == [], f"{page} names what is not there"


@pytest.mark.parametrize("page", PAGES)
def test_every_link_of_a_page_leads_to_a_file(page: str) -> None:
    links = [link for link in LINK.findall((ROOT / page).read_text()) if "://" not in link]
    assert [link for link in links if not (ROOT / page).parent.joinpath(link).exists()] == []


TOOL_BEGINNINGS = ("kafka-", "confluent", "connect-", "schema-registry-")


@pytest.mark.parametrize("page", PAGES)
def test_every_command_that_a_page_shows_exists(page: str) -> None:
    text = (ROOT / page).read_text()
    shown = [line for language, block in FENCE.findall(text) if not language for line in block.splitlines()]
    shown += QUOTED.findall(text)
    unknown = []
    for line in shown:
        for command in line.split("#")[0].split(" | "):
            match command.split():
                case ["make", target, *_] if not target.startswith("-"):
                    unknown += [] if target in TARGETS else [command]
                case ["pessoa", word, *_] if re.fullmatch("[a-z-]+", word):
                    unknown += [] if word in subcommands() else [command]
                # With `=` it is a setting.
                case [tool, *_] if tool.startswith(TOOL_BEGINNINGS) and "=" not in tool:
                    unknown += [] if tool in TOOLS else [command]
    assert unknown == [], f"{page} shows commands that do not exist"


def subcommands() -> set[str]:
    from pessoa.cli.main import SUBCOMMANDS

    return set(SUBCOMMANDS)


def test_the_diagram_of_the_packages_shows_those_that_exist_and_flags_the_others() -> None:
    blocks = FENCE.findall((ROOT / "docs/ARCHITECTURE.md").read_text())
    diagram = next(block for _, block in blocks if "cluster tower" in block)
    shown = re.findall(r"([a-z_]+)( ○)?(?= |$)", diagram, re.MULTILINE)
    packages = {path.parent.name for path in SOURCE.glob("*/__init__.py")}
    assert packages <= {name for name, mark in shown if not mark}
    marked = {name for name, mark in shown if mark}
    assert marked.isdisjoint(packages)


def test_the_index_of_decisions_lists_every_decision() -> None:
    pages = {path.name for path in (ROOT / "docs/decisions").glob("[0-9]*.md")}
    assert set(LINK.findall((ROOT / "docs/decisions/README.md").read_text())) == pages
