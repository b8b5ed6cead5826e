"""The table of all APIs, collected from the files of `pessoa.broker.apis`.

The file of an API has the name of its `ApiKey` in lower case, so a single row is found without looking at the others:
a broker that starts imports those of the requests that come. ApiVersions alone asks for all of them.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from pkgutil import iter_modules
from typing import TYPE_CHECKING

from pessoa.wire.catalogue import ApiKey

if TYPE_CHECKING:
    from pessoa.broker.api_row import AnyRow

_PACKAGE = "pessoa.broker.apis"

_found: dict[int, AnyRow | None] = {}


def find_row(key: int) -> AnyRow | None:
    """Return the row of an API; None if no listener serves that API key."""
    if key not in _found:
        _found[key] = _import_row(key)
    return _found[key]


def row_of(key: int) -> AnyRow:
    """Return the row of an API that is served."""
    row = find_row(key)
    assert row is not None, f"API {key} has no file in {_PACKAGE}"
    return row


@cache
def broker_rows() -> tuple[AnyRow, ...]:
    """Return the rows of the APIs that brokers' listeners serve, by API key."""
    return tuple(row for row in _rows() if row.handle is not None)


@cache
def controller_rows() -> tuple[AnyRow, ...]:
    """Return the rows of the APIs that controllers' listeners serve, by API key: to other controllers, to brokers, and
    to tools that connect to a controller."""
    return tuple(row for row in _rows() if row.handle_on_controller is not None)


@cache
def _rows() -> tuple[AnyRow, ...]:
    package = import_module(_PACKAGE)
    keys = sorted(ApiKey[module.name.upper()] for module in iter_modules(package.__path__))
    return tuple(map(row_of, keys))


def _import_row(key: int) -> AnyRow | None:
    try:
        name = f"{_PACKAGE}.{ApiKey(key).name.lower()}"
    except ValueError:
        return None
    try:
        row: AnyRow = import_module(name).ROW
    except ModuleNotFoundError as problem:
        if problem.name != name:
            raise
        return None
    assert row.key == key, f"{name} has the row of {row.key.title}"
    return row
