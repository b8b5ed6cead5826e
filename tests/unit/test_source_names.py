"""Names in src are used in src: no members only for tests, no unused dependencies, few values of type `Any`.

Names are compared, not objects: a name counts as used where any code of src, or a short string in it, has it.
"""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import TypeAlias

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src/pessoa"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
Trees: TypeAlias = dict[str, ast.Module]
WORD = re.compile(r"\w+")
LONGEST_STRING = 200

# What users call, and what simulations stand in for.
PUBLIC = ("streams/", "testing/", "ksql/functions/user_functions.py", "pipelines/row_process.py")
SIMULATED = ("log/simulated_disk.py", "base/entropy.py", "security/jwt/key_reader.py")
# What Kafka has, whether or not this broker does anything with it.
DECLARED = ("wire/stored/", "wire/unserved/", "base/config_keys/no_effect.py")
# What click, h2, httptools, prompt_toolkit, pytest and Spark call.
CALLED_BY_LIBRARIES = {
    "clear_outbound_data_buffer", "format_commands", "get_command", "get_completions", "handleExpiredTimer",
    "handleInputRows", "initialOffset", "lex_document", "list_commands", "on_body", "on_header", "on_headers_complete",
    "on_message_begin", "on_message_complete", "on_url", "pytest_addoption", "readBetweenOffsets", "simpleStreamReader",
}  # fmt: skip
# A decorated function is used by what decorates it, but for these.
PLAIN_DECORATORS = {"property", "classmethod", "staticmethod"}

MOST_ANY = 400
# The distribution that makes these work is another one.
IMPORTED_AS = {"google-re2": "re2", "protobuf": "google"}


@pytest.fixture(scope="module")
def trees() -> Trees:
    return {path.relative_to(SOURCE).as_posix(): ast.parse(path.read_text()) for path in sorted(SOURCE.rglob("*.py"))}


def used_words(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name, ctx=ast.Load()) | ast.Attribute(attr=name, ctx=ast.Load()):
                yield name
            case ast.keyword(arg=str(name)):
                yield name
            case ast.Constant(value=str(text)) if len(text) < LONGEST_STRING:
                yield from WORD.findall(text)


def defined_names(tree: ast.Module) -> Iterator[tuple[str, int]]:
    for node in ast.walk(tree):
        match node:
            case (
                ast.FunctionDef(name=name, decorator_list=decorators)
                | ast.AsyncFunctionDef(name=name, decorator_list=decorators)
                | ast.ClassDef(name=name, decorator_list=decorators)
            ) if all(isinstance(one, ast.Name) and one.id in PLAIN_DECORATORS for one in decorators):
                yield name, node.lineno
    for statement in tree.body:
        match statement:
            case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
                yield name, statement.lineno


def imported_names(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (one.name for one in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            yield node.module


def test_src_uses_every_name_that_it_defines(trees: Trees) -> None:
    used = {word for tree in trees.values() for word in used_words(tree)}
    used |= {script.partition(":")[2] for script in PROJECT["scripts"].values()} | CALLED_BY_LIBRARIES
    unused = [
        f"{file}:{line} {name}"
        for file, tree in trees.items()
        if not file.startswith((*PUBLIC, *SIMULATED, *DECLARED))
        for name, line in defined_names(tree)
        if name not in used and not name.startswith("__")
    ]
    assert unused == [], "only tests use these, or nothing does: move or delete them"


def test_few_values_have_the_type_any() -> None:
    count = sum(len(re.findall(r"\bAny\b", path.read_text())) for path in SOURCE.rglob("*.py"))
    assert count < MOST_ANY


def test_src_imports_every_dependency(trees: Trees) -> None:
    extras = PROJECT["optional-dependencies"]
    wanted = [*PROJECT["dependencies"], *(one for name in extras if name not in {"all", "dev"} for one in extras[name])]
    names = {re.split(r"[\[<>=;]", one)[0].lower().replace("_", "-") for one in wanted}
    modules: dict[str, set[str]] = {name: {IMPORTED_AS[name]} for name in names & set(IMPORTED_AS)}
    for module, distributions in packages_distributions().items():
        for one in distributions:
            modules.setdefault(one.lower().replace("_", "-"), set()).add(module)
    imported = {name.partition(".")[0] for tree in trees.values() for name in imported_names(tree)}
    assert sorted(name for name in names if not modules[name] & imported) == []
