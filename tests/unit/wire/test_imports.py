"""The cost of importing `pessoa.wire`: only small modules, and no message before its first use.

So a command-line tool starts in a fraction of a second. The tests count modules and not milliseconds, which depend on
the machine.
"""

from __future__ import annotations

import subprocess
import sys

import pytest

# Each of these takes longer to import than all of pessoa.wire.
HEAVY = {
    "asyncio",
    "dataclasses",
    "decimal",
    "hashlib",
    "inspect",
    "json",
    "logging",
    "random",
    "socket",
    "ssl",
    "subprocess",
    "tempfile",
    "uuid",
}


def imported_by(module: str) -> set[str]:
    """Return the modules that a fresh interpreter has loaded after this import and not before."""
    # -S keeps out what the environment's own .pth files import.
    script = f"""
import sys
sys.path[:0] = {[entry for entry in sys.path if entry]!r}
before = set(sys.modules)
import {module}
print(*sorted(set(sys.modules) - before))
"""
    done = subprocess.run([sys.executable, "-S", "-c", script], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


@pytest.mark.parametrize(
    "module", ["pessoa.wire", "pessoa.wire.frames", "pessoa.wire.catalogue", "pessoa.wire.api.produce"]
)
def test_the_wire_package_imports_no_slow_module(module: str) -> None:
    assert imported_by(module) & HEAVY == set()


@pytest.mark.parametrize("module", ["pessoa.wire", "pessoa.wire.frames", "pessoa.wire.catalogue"])
def test_the_wire_package_imports_messages_and_code_generator_only_when_needed(module: str) -> None:
    found = imported_by(module)
    assert module in found
    assert [
        name for name in found if name.startswith(("pessoa.wire.api", "pessoa.wire.stored", "pessoa.wire.unserved"))
    ] == []
    assert found & {"pessoa.wire.codec_compiler", "pessoa.wire.decoding", "pessoa.wire.encoding"} == set()
