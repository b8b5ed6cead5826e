from __future__ import annotations

import socket
from collections.abc import Callable
from itertools import count

import pytest

_ports = count()


@pytest.fixture
def free_port(worker_id: str) -> Callable[[], int]:
    """Return a function that gives free ports, from a range below the ephemeral ports that differs between workers."""
    first = 21_000 + 500 * int(worker_id.removeprefix("gw") if worker_id != "master" else 9)

    def next_free() -> int:
        while True:
            port = first + next(_ports)
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)):
                    return port

    return next_free
