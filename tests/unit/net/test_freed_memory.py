"""The effect of `keep_freed_memory`, in a process of its own, as it cannot be undone within a process."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

# As fetches do: six buffers of 1 MiB are filled, and let go together. Prints the page faults of a hundred of them.
_CHILD = """
import resource, sys
from pessoa.net.freed_memory import keep_freed_memory
print(keep_freed_memory() if sys.argv[1] == "keep" else None)
def fetch():
    return [b"x" * (1 << 20) for _ in range(6)]
fetch()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(100):
    fetch()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def told_and_faults(what: str) -> tuple[str, int]:
    done = subprocess.run([sys.executable, "-c", _CHILD, what], capture_output=True, text=True, check=True)
    told, faults = done.stdout.split()
    return told, int(faults)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc can be told")
def test_freed_memory_is_used_for_the_next_response() -> None:
    told, kept = told_and_faults("keep")
    assert told == "True"
    _, given_back = told_and_faults("leave")
    assert kept < 600 < given_back
