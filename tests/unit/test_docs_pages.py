"""README, CONTRIBUTING and every page under docs/ name files, modules and commands that exist.

A file name is in backticks: relative to the root, to `src/pessoa`, or to the directory of the file that its section has
named before it (`schema_registry/api/subject_endpoints.py`, then `state.py`). A package in ARCHITECTURE's diagram that
does not exist yet has a ○.
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
    *sorted(str(path.relative_to(ROOT)) for path in (ROOT / "docs").rglob("*.md")),
]
# On other pages such names are those of settings.
PAGES_WITH_MODULES = ["README.md", "CONTRIBUTING.md", "docs/ARCHITECTURE.md", "docs/TESTING.md", "docs/STREAMS.md"]
# A page about a folder names its files by themselves.
FOLDERS = {"docs/CHAOS.md": [ROOT / "tests/chaos", ROOT / "tests/simulation"]}
# What users write, what a build makes and what others have.
NOT_OURS = {"flows.py", "vendas.py", "build/", "uv.lock"}
# Topics, a fixture, a service and a command of Apache's: they look like our commands.
NO_COMMANDS = {"connect-configs", "connect-offsets", "connect-status", "kafka", "ksql-server", "kafka-server-start.sh"}
FENCE = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```", re.MULTILINE | re.DOTALL)
QUOTED = re.compile(r"`([^`\n]+)`")
LINK = re.compile(r"\]\(([^)#]+)\)")
FILE = re.compile(r"[\w.][\w./-]*(\.(py|md|toml|lock)|/)")
MODULE = re.compile(r"pessoa(\.[a-z_]+)+(\.[A-Z]\w+)?")
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
        nearby = list(FOLDERS.get(page, ()))
        for name in QUOTED.findall(FENCE.sub("", section)):
            if not FILE.fullmatch(name) or name in NOT_OURS:
                continue
            found = find(name, nearby)
            if found is None:
                missing.append(name)
            else:
                folder = found if found.is_dir() else found.parent
                nearby += [folder, *(parent for parent in folder.parents if SOURCE in parent.parents)]
    assert missing == [], f"{page} names what is not there"


@pytest.mark.parametrize("page", PAGES_WITH_MODULES)
def test_every_module_that_a_page_names_exists(page: str) -> None:
    named = [name for name in QUOTED.findall((ROOT / page).read_text()) if MODULE.fullmatch(name)]
    assert [name for name in named if not is_there(name)] == []


def is_there(name: str) -> bool:
    """Return whether the name is that of a package or module, or of something in one."""
    path = SOURCE.parent.joinpath(*name.split("."))
    if path.is_dir() or path.with_suffix(".py").exists():
        return True
    holder = path.parent / "__init__.py" if path.parent.is_dir() else path.parent.with_suffix(".py")
    return holder.exists() and re.search(rf"\b{path.name}\b", holder.read_text()) is not None


@pytest.mark.parametrize("page", PAGES)
def test_every_link_of_a_page_leads_to_a_file(page: str) -> None:
    links = [link for link in LINK.findall((ROOT / page).read_text()) if "://" not in link]
    assert [link for link in links if not (ROOT / page).parent.joinpath(link).exists()] == []


TOOL = re.compile(r"(kafka|confluent|connect|schema-registry|ksql)(-[a-z-]+)?(\.sh)?")


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
                case [tool, *_] if TOOL.fullmatch(tool) and tool not in NO_COMMANDS:
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
