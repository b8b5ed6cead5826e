"""The broker processes of the `pessoa up` beside which the control centre runs: the classroom may kill one.

`run.json` in the home of the platform names its processes. A number in a file proves nothing, so a process is killed
only if its command line says that it is that broker. The supervisor starts it again.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path

import msgspec

from pessoa.web.problems import HttpProblem


class _Service(msgspec.Struct):
    name: str
    pid: int


class _Run(msgspec.Struct):
    services: list[_Service] = []


def broker_processes(home: str | None) -> dict[int, int]:
    """Return the process ids by broker id; empty if no platform runs in this home."""
    if home is None:
        return {}
    try:
        run = msgspec.json.decode((Path(home) / "run.json").read_bytes(), type=_Run)
    except (OSError, msgspec.MsgspecError):
        return {}
    found = {}
    for one in run.services:
        name, _, number = one.name.rpartition("-")
        if name == "broker" and number.isdigit() and _is_broker(one.pid, int(number)):
            found[int(number)] = one.pid
    return found


def kill_broker(home: str | None, broker: int) -> None:
    """Send SIGKILL to the broker. Raises the problem 409 if it is not a process of this platform."""
    pid = broker_processes(home).get(broker)
    if pid is None:
        raise HttpProblem(409, f"Broker {broker} is no process of a `pessoa up` on this machine.")
    os.kill(pid, signal.SIGKILL)


def _is_broker(pid: int, broker: int) -> bool:
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return False
    return b"broker" in words and f"node.id={broker}".encode() in words
