"""The memory of an idle connection in a fresh broker: to a listener without login, to one that requires a login, and
over TLS without having logged in.

The suite opens a thousand; `PESSOA_CONNECTIONS=10000` (`make connections`) opens the number that should be supported.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.attacks.attack_stage import LOGIN, MIB, OPEN, SECURED, AttackStage
from tests.attacks.attack_wires import connect

CONNECTIONS = int(os.environ.get("PESSOA_CONNECTIONS", "1000"))
# Connections per loopback address, so that no source address runs out of ports.
_PER_SOURCE = 4_000
# The objects of transport, protocol and connection with a first buffer of 4 KiB; the state of a login; OpenSSL's own
# state. Measured: 7, 7 and 22 KiB.
KIB_EACH = {OPEN: 16, LOGIN: 16, SECURED: 64}


@pytest.fixture
def fresh(tmp_path: Path) -> Iterator[AttackStage]:
    with AttackStage(tmp_path) as stage:
        yield stage


@pytest.mark.parametrize("listener", [OPEN, LOGIN, SECURED])
def test_an_idle_connection_costs_a_bounded_amount_of_memory(
    listener: str, fresh: AttackStage, request: pytest.FixtureRequest
) -> None:
    # Fewer, because TLS handshakes take long on both sides.
    count = CONNECTIONS // 4 if listener == SECURED else CONNECTIONS
    context = ssl.create_default_context(cafile=str(fresh.trust))
    what = f"{count} idle connections of {listener}"
    with fresh.attack(2, request, max_mib=4 + count * KIB_EACH[listener] // 1024, what=what), ExitStack() as stack:
        for number in range(count):
            idle = connect(fresh.ports[listener], f"127.0.0.{10 + number // _PER_SOURCE}")
            if listener == SECURED:
                idle = context.wrap_socket(idle, server_hostname="localhost")
            stack.enter_context(idle)
        fresh.serves(0)
        steady = fresh.serves(200)
    each = fresh.grown_bytes / count / 1024
    note = f"an idle connection of {listener} takes {each:.1f} KiB; with all of them p99 {steady.p99_ms:.1f} ms"
    request.node.user_properties.append(("summary", note))
    assert fresh.grown_bytes < 4 * MIB + count * KIB_EACH[listener] * 1024
