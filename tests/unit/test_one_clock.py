"""The parts of a node take time from the `Clock` door, not from the event loop, so that a test can move it by hand."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import pessoa

SOURCE = Path(pessoa.__file__).parent
PACKAGES = ("broker", "coordinator", "controller", "quorum", "replication", "log", "net")
# Functions of asyncio, and methods of its loop, that tell the time or wait for it.
OF_ASYNCIO = {"timeout", "timeout_at", "wait_for"}
OF_LOOP = {"call_later", "call_at", "time"}
LOOPS = {"loop", "_loop", "get_running_loop", "get_event_loop"}
# Files that take the time of the loop, and why.
EXCEPTIONS = {
    "net/channel.py": "every request has a time-out, for which asyncio's makes neither a task nor a future",
    "net/tls.py": "a peer that does not answer the end of TLS: no decision depends on when it is cut",
}


def name_of(node: ast.expr) -> str:
    """Return the last name of `loop`, `self._loop` or `asyncio.get_running_loop()`."""
    if isinstance(node, ast.Call):
        return name_of(node.func)
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def uses_of_loop_time(source: str) -> list[int]:
    """Return the lines that read the time of the event loop."""
    return [
        node.lineno
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Attribute)
        and (
            (name_of(node.value) == "asyncio" and node.attr in OF_ASYNCIO)
            or (name_of(node.value) in LOOPS and node.attr in OF_LOOP)
        )
    ]


def test_parts_of_a_node_take_time_from_the_clock() -> None:
    found = {
        str(path.relative_to(SOURCE))
        for package in PACKAGES
        for path in sorted((SOURCE / package).rglob("*.py"))
        if uses_of_loop_time(path.read_text())
    }
    assert found == EXCEPTIONS.keys(), "see `wait_at_most` and `call_after_ms` in base/clock.py"


@pytest.mark.parametrize(
    "line",
    [
        "async with asyncio.timeout(1): pass",
        "async with asyncio.timeout_at(1): pass",
        "await asyncio.wait_for(work, 1)",
        "asyncio.get_running_loop().call_later(1, work)",
        "self._loop.call_at(1, work)",
        "now_s = loop.time()",
    ],
)
def test_taking_time_from_the_loop_would_be_found(line: str) -> None:
    assert uses_of_loop_time(f"async def main():\n    {line}") == [2]


@pytest.mark.parametrize("line", ["await clock.wait_ms(1)", "time.time()", "loop.call_soon(work)"])
def test_what_takes_no_time_from_the_loop_is_allowed(line: str) -> None:
    assert not uses_of_loop_time(f"async def main():\n    {line}")
