"""Every API that is served has one file in `broker/apis` and one row, and no other table says anything about APIs."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import Any

import pytest

import pessoa
from pessoa.broker import apis
from pessoa.broker.api_row import ApiRow
from pessoa.broker.api_table import broker_rows, controller_rows, find_row, row_of
from pessoa.wire.catalogue import ApiKey
from tests.support.api_rows import is_decided_by_controller, is_refusable

SOURCE = Path(pessoa.__file__).parent
MODULES = [module.name for module in iter_modules(apis.__path__)]
ROWS = [import_module(f"pessoa.broker.apis.{name}").ROW for name in MODULES]
# So many entries make a table.
TABLE_SIZE = 3
# Where requests are named one by one: the APIs' own files, and the numbers of the APIs.
OWN_PLACES = ("broker/apis/", "wire/catalogue.py")
# The declarations that a broker has at hand when it has collected all rows: those of what every client asks at once.
AT_HAND = {"api_versions", "fetch", "find_coordinator", "list_offsets", "metadata", "produce"}


def names(row: ApiRow[Any]) -> str:
    return row.key.title


def test_every_api_that_is_declared_to_be_served_has_one_file_and_one_row() -> None:
    served = {key for key in ApiKey if key.request.__module__.startswith("pessoa.wire.api.")}
    assert sorted(MODULES) == sorted(key.name.lower() for key in served)
    assert [row.key.name.lower() for row in ROWS] == MODULES
    assert {row.key for row in (*broker_rows(), *controller_rows())} == served


@pytest.mark.parametrize("row", ROWS, ids=names)
def test_a_file_holds_what_its_row_names(row: ApiRow[Any]) -> None:
    module = import_module(f"pessoa.broker.apis.{row.key.name.lower()}")
    assert module.__doc__ is not None
    assert module.__doc__.startswith(f"{row.key.title}: ")
    handlers = [one for one in (row.handle, row.handle_on_controller, row.serve_in_quorum) if one is not None]
    assert handlers, "no listener serves it"
    assert {one.__module__ for one in handlers} == {module.__name__}
    assert find_row(row.key) is row


@pytest.mark.parametrize("row", ROWS, ids=names)
def test_versions_are_declared_and_all_that_are_served_are_advertised(row: ApiRow[Any]) -> None:
    declared = row.key.request.versions
    assert set(row.versions.each()) <= set(declared.each())
    assert set(row.versions.each()) <= set(row.advertised.each())


@pytest.mark.parametrize("row", ROWS, ids=names)
def test_what_reaches_a_controller_is_decided_there_and_what_is_checked_can_be_refused(row: ApiRow[Any]) -> None:
    comes_to_controller = row.is_forwarded or row.controller_channel is not None
    is_checked = bool(row.authorised or row.authorised_on_controller)
    assert (comes_to_controller or is_checked) == is_refusable(row)
    if comes_to_controller:
        assert row.handle_on_controller is not None
        assert is_decided_by_controller(row) != (row.serve_in_quorum is not None)


def test_an_api_without_a_file_has_no_row() -> None:
    assert find_row(4) is None
    assert find_row(30_000) is None
    assert row_of(ApiKey.FETCH).key is ApiKey.FETCH


def is_of_api(node: ast.expr | None) -> bool:
    """Whether an entry of a literal is about an API: `ApiKey.FETCH`, `FetchRequest`, or a call with one of them."""
    if isinstance(node, ast.Call):
        return any(map(is_of_api, node.args))
    if isinstance(node, ast.Attribute):
        return isinstance(node.value, ast.Name) and node.value.id == "ApiKey"
    return isinstance(node, ast.Name) and re.fullmatch(r"\w+Request", node.id) is not None


def entries(node: ast.AST) -> list[ast.expr | None]:
    if isinstance(node, ast.Dict):
        return list(node.keys)
    return list(node.elts) if isinstance(node, ast.Set | ast.List | ast.Tuple) else []


def tables(source: str) -> list[int]:
    """The lines at which literals begin that have several entries about APIs."""
    return [
        node.lineno
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.expr) and sum(map(is_of_api, entries(node))) >= TABLE_SIZE
    ]


def test_no_other_table_is_keyed_by_api() -> None:
    found = [
        f"{path.relative_to(SOURCE)}:{line}"
        for path in sorted(SOURCE.rglob("*.py"))
        if not str(path.relative_to(SOURCE)).startswith(OWN_PLACES)
        for line in tables(path.read_text())
    ]
    assert not found, "say it in the row of the API: broker/apis/<api>.py"


@pytest.mark.parametrize(
    "table",
    [
        "X = {ApiKey.A: 1, ApiKey.B: 2, ApiKey.C: 3}",
        "X = {ARequest: f, BRequest: g, CRequest: h}",
        "X = frozenset((ApiKey.A, ApiKey.B, ApiKey.C))",
        "X = (row(ApiKey.A), row(ApiKey.B), row(ApiKey.C))",
    ],
)
def test_a_second_table_keyed_by_api_would_be_found(table: str) -> None:
    assert tables(table)


def test_collecting_the_rows_imports_few_declarations() -> None:
    script = (
        "import json, sys; from pessoa.broker.api_table import broker_rows; broker_rows();"
        "print(json.dumps([one for one in sys.modules if one.startswith('pessoa.wire.api.')]))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    imported = {name.rpartition(".")[2] for name in json.loads(done.stdout)}
    assert imported <= AT_HAND, "import what a request needs within the functions that serve it"
