"""Every API that is served has one file in `broker/apis` and one row, and no other table says anything about APIs."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
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
# So many APIs make a table.
TABLE_SIZE = 2
# Where requests are named one by one: the APIs' own files, and the numbers of the APIs.
OWN_PLACES = ("broker/apis/", "wire/catalogue.py")
TITLES = {key.title for key in ApiKey}
# Functions that tell APIs apart, and why no row can.
TELLS_APIS_APART = {
    "security/sasl/server_session.py: receive": "the state machine of SASL: which request may come next",
}
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
def test_the_module_of_an_api_defines_the_handlers_that_its_row_names(row: ApiRow[Any]) -> None:
    module = import_module(f"pessoa.broker.apis.{row.key.name.lower()}")
    assert module.__doc__ is not None
    assert module.__doc__.startswith(f"{row.key.title}: ")
    handlers = [one for one in (row.handle, row.handle_on_controller, row.serve_in_quorum) if one is not None]
    assert handlers, "no listener serves it"
    assert {one.__module__ for one in handlers} == {module.__name__}
    assert find_row(row.key) is row


@pytest.mark.parametrize("row", ROWS, ids=names)
def test_served_versions_of_an_api_are_declared_and_advertised(row: ApiRow[Any]) -> None:
    declared = row.key.request.versions
    assert set(row.versions.each()) <= set(declared.each())
    assert set(row.versions.each()) <= set(row.advertised.each())


@pytest.mark.parametrize("row", ROWS, ids=names)
def test_apis_that_reach_a_controller_have_a_controller_handler_and_authorised_apis_can_be_refused(
    row: ApiRow[Any],
) -> None:
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


def apis_in(node: ast.expr | None) -> set[str]:
    """Return the APIs that an expression names: `ApiKey.FETCH`, `FetchRequest`, `fetch.FetchResponse`, several, or a
    call with one of them."""
    if isinstance(node, ast.Call):
        return apis_in_any(node.args)
    if isinstance(node, ast.Dict | ast.Set | ast.List | ast.Tuple):
        return apis_in_any(entries(node))
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "ApiKey":
        return {"".join(word.capitalize() for word in node.attr.split("_"))}
    name = node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
    found = re.fullmatch(r"(\w+)(Request|Response)", name)
    return {found[1]} & TITLES if found is not None else set()


def apis_in_any(nodes: Iterable[ast.expr | None]) -> set[str]:
    return {api for node in nodes for api in apis_in(node)}


def entries(node: ast.AST) -> list[ast.expr | None]:
    if isinstance(node, ast.Dict):
        return list(node.keys)
    return list(node.elts) if isinstance(node, ast.Set | ast.List | ast.Tuple) else []


def tables(source: str) -> list[int]:
    """Return the lines of the literals in this source that name at least `TABLE_SIZE` APIs."""
    return [
        node.lineno
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.expr) and len(apis_in_any(entries(node))) >= TABLE_SIZE
    ]


def functions_that_compare(source: str) -> list[str]:
    """Return the names of functions that compare a value with several APIs, by `==`, `is`, `in` or their opposites."""
    found = []
    for function in ast.walk(ast.parse(source)):
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            compared = [one for one in ast.walk(function) if isinstance(one, ast.Compare)]
            if len(apis_in_any(side for one in compared for side in (one.left, *one.comparators))) >= TABLE_SIZE:
                found.append(function.name)
    return found


def other_files() -> Iterator[tuple[str, str]]:
    """Yield paths and texts of all files, without those that may name APIs one by one."""
    for path in sorted(SOURCE.rglob("*.py")):
        name = str(path.relative_to(SOURCE))
        if not name.startswith(OWN_PLACES):
            yield name, path.read_text()


def test_no_other_table_is_keyed_by_api() -> None:
    found = [f"{name}:{line}" for name, text in other_files() for line in tables(text)]
    assert not found, "say it in the row of the API: broker/apis/<api>.py"


def test_no_function_tells_apis_apart_by_their_keys() -> None:
    found = {f"{name}: {function}" for name, text in other_files() for function in functions_that_compare(text)}
    assert found == TELLS_APIS_APART.keys(), "say it in the row of the API: broker/apis/<api>.py"


@pytest.mark.parametrize(
    "table",
    [
        "X = {ApiKey.FETCH: 1, ApiKey.VOTE: 2}",
        "X = {FetchRequest: f, VoteRequest: g}",
        "X = {FetchResponse: f, VoteResponse: g}",
        "X = {fetch.FetchResponse: f, vote.VoteRequest: g}",
        "X = frozenset((ApiKey.FETCH, ApiKey.END_TXN))",
        "X = (row(ApiKey.FETCH), row(ApiKey.VOTE))",
    ],
)
def test_a_second_table_keyed_by_api_would_be_found(table: str) -> None:
    assert tables(table)


@pytest.mark.parametrize(
    "body",
    [
        "if key == ApiKey.FETCH: f()\n if key == ApiKey.VOTE: g()",
        "if key is ApiKey.FETCH: f()\n elif key is not ApiKey.VOTE: g()",
        "return key in (ApiKey.FETCH, ApiKey.VOTE)",
        "return f() if key == int(ApiKey.FETCH) else key == ApiKey.VOTE",
        "return type(request) is FetchRequest or type(request) is vote.VoteRequest",
    ],
)
def test_a_chain_of_comparisons_with_apis_would_be_found(body: str) -> None:
    assert functions_that_compare(f"def f(key, request):\n {body}") == ["f"]


@pytest.mark.parametrize(
    "body",
    ["return key is ApiKey.FETCH or request.api_key == ApiKey.FETCH", "return kind is AnyRequest or OtherRequest"],
)
def test_what_is_about_one_api_is_no_table(body: str) -> None:
    source = f"def f(key, request):\n {body}\nX = (FetchRequest, FetchResponse, ApiKey.FETCH)"
    assert not functions_that_compare(source)
    assert not tables(source)


def test_collecting_the_rows_imports_few_declarations() -> None:
    script = (
        "import json, sys; from pessoa.broker.api_table import broker_rows; broker_rows();"
        "print(json.dumps([one for one in sys.modules if one.startswith('pessoa.wire.api.')]))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    imported = {name.rpartition(".")[2] for name in json.loads(done.stdout)}
    assert imported <= AT_HAND, "import what a request needs within the functions that serve it"
