"""The services of `pessoa up` as the `confluent` command sees them.

Where `pessoa up` runs and CONFLUENT_CURRENT does not ask for a directory of one's own, they are the services that the
command is about: `kafka` is all of the brokers, the others have their own names. A service is stopped and started
through the supervisor, which would otherwise bring back what it finds missing.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import ssl
    from collections.abc import Mapping

    from pessoa.platform.run_file import Run, RunningService

TIMEOUT_S = 60.0
_POLL_S = 0.05


def home() -> Path | None:
    """Return the home of a running `pessoa up`; None if none runs or CONFLUENT_CURRENT is set."""
    if os.environ.get("CONFLUENT_CURRENT"):
        return None
    from pessoa.base.home_folder import pessoa_home
    from pessoa.platform.run_file import is_running

    found = pessoa_home()
    return found if is_running(found) else None


class Access(NamedTuple):
    """The scheme, login header and TLS context for requests to an HTTP service."""

    scheme: str
    headers: Mapping[str, str]
    context: ssl.SSLContext | None


OPEN = Access("http", {}, None)


def access(home: Path) -> Access:
    from pessoa.platform.secured_home import is_secured, secured_files
    from pessoa.platform.security_plan import ADMIN, read_login

    if not is_secured(home):
        return OPEN
    from base64 import b64encode

    from pessoa.base.properties import read_properties
    from pessoa.web.trust import tls_context

    files = secured_files(home)
    login = read_login(read_properties(files.client(ADMIN)))
    if login is None:
        return OPEN
    basic = b64encode(f"{login.name}:{login.password}".encode()).decode()
    return Access("https", {"Authorization": f"Basic {basic}"}, tls_context(str(files.authority)))


def processes(home: Path, name: str) -> list[RunningService]:
    """Return the processes of one service: one for each broker for kafka, one or none for another."""
    run = _run(home)
    return [one for one in run.services if one.name == name or (name == "kafka" and one.name.startswith("broker-"))]


def is_up(home: Path, name: str) -> bool:
    found = processes(home, name)
    return bool(found) and all(one.state == "ready" for one in found)


def start(home: Path, name: str) -> bool:
    """Start a service that was stopped; return False if it does not become ready."""
    from pessoa.platform.held_services import release

    release(home, [one.name for one in processes(home, name)], _run(home).pid)
    return _wait(home, name, "ready")


def stop(home: Path, name: str) -> bool:
    from pessoa.platform.held_services import hold

    hold(home, [one.name for one in processes(home, name)], _run(home).pid)
    return _wait(home, name, "stopped")


def _wait(home: Path, name: str, state: str) -> bool:
    deadline = time.monotonic() + TIMEOUT_S
    while any(one.state != state for one in processes(home, name)):
        if time.monotonic() > deadline:
            return False
        time.sleep(_POLL_S)
    return True


def _run(home: Path) -> Run:
    from pessoa.platform.run_file import Run, read_run

    # The file is missing for a moment when the supervisor has just ended.
    return read_run(home) or Run(os.getpid(), "stopping", 0.0)
