"""A well-behaved client as a process of its own: it writes one record at a time and reads it back, until it is stopped.

    python -m tests.attacks.well_behaved_client PORT TRUST USER PASSWORD TOPIC

A number on a line of its standard input is answered with a line of JSON when the client has written and read so many
records since the last answer: their number, and the 99th percentile and the maximum of their latencies. It
has a connection of its own, with TLS and a login, and a process of its own, so that it shares only the processor with
the attacker. It exits if a record fails.
"""

from __future__ import annotations

import json
import select
import sys
import time
from pathlib import Path

from tests.attacks.attack_wires import Login, secured_wire
from tests.support.batches import plain, values
from tests.support.crash_wire import fetch, now_ms, produce

# The pause between two records, so that the client itself does not keep the broker busy.
_PAUSE_S = 0.002


def main(port: str, trust: str, user: str, password: str, topic: str) -> None:
    wire = secured_wire(int(port), Path(trust), Login(user, password))
    took_ms: list[float] = []
    wanted: int | None = None
    while True:
        began_s = time.perf_counter()
        produced = produce(wire, topic, plain(timestamp=now_ms()))
        assert produced.error_code == 0, produced
        fetched = fetch(wire, topic, produced.base_offset)
        assert values(fetched.records)[0] == (produced.base_offset, b"v0"), fetched
        took_ms.append((time.perf_counter() - began_s) * 1000)
        if select.select([sys.stdin], [], [], _PAUSE_S)[0]:
            line = sys.stdin.readline()
            if not line:
                return
            wanted = int(line)
        if wanted is not None and len(took_ms) >= wanted:
            took_ms.sort()
            figures = {"records": len(took_ms), "p99_ms": took_ms[len(took_ms) * 99 // 100], "longest_ms": took_ms[-1]}
            print(json.dumps(figures), flush=True)
            took_ms, wanted = [], None


if __name__ == "__main__":
    main(*sys.argv[1:])
