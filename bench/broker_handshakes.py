"""TLS handshakes with one broker, compared with Apache Kafka: rate, and the broker's CPU time for each.

`THREADS` clients repeatedly connect, do the handshake, read what the server sends after it, and close. The client's
part of a full handshake takes as long as the server's, and both share the machine: the CPU time of the broker says how
many it could do with a core of its own. A resumed handshake needs no signature; with TLS 1.3 we issue no tickets
(`security/tls/contexts.py`), so resumption is measured with TLS 1.2.
"""

from __future__ import annotations

import socket
import ssl
import threading
import time
from typing import TYPE_CHECKING

from bench.apache import HOST, Figures, compare_sides, print_verdicts, scaled
from bench.secured import ECDSA, RSA, secured_sides

if TYPE_CHECKING:
    from bench.report import Report
    from bench.secured import Secured

THREADS = 4
HANDSHAKES = 2_000
WARMUP_SHARE = 0.5
TIMEOUT_S = 60.0
# ApiVersions version 0, without a client id.
HELLO = bytes((0, 0, 0, 10, 0, 18, 0, 0, 0, 0, 0, 1, 255, 255))
RESUMED = "resumed, TLS 1.2"
CASES = {"full, ECDSA P-256": ECDSA, "full, RSA 2048": RSA, RESUMED: ECDSA}
AT_LEAST = {f"handshakes, {case}": 1.0 for case in CASES}


def run(report: Report) -> None:
    compare_sides(report, measure, secured_sides(has_acls=False))
    print_verdicts(report, AT_LEAST)


def measure(secured: Secured) -> Figures:
    figures: Figures = {}
    for case, listener in CASES.items():
        clients = [Client(secured, listener, resumes=case == RESUMED) for _ in range(THREADS)]
        count = scaled(HANDSHAKES) // THREADS
        _together(clients, round(count * WARMUP_SHARE))
        process = secured.plain.process
        before_s, began = process.cpu_seconds(), time.perf_counter()
        _together(clients, count)
        took_s, cpu_s = time.perf_counter() - began, process.cpu_seconds() - before_s
        if case == RESUMED and sum(one.resumed_count for one in clients) < count * THREADS:
            print(f"  {secured.plain.name} does not resume sessions")
            continue
        figures[f"handshakes, {case}", "ops/s"] = count * THREADS / took_s
        figures[f"handshakes, {case}", "CPU ms"] = cpu_s / (count * THREADS) * 1000
    return figures


class Client:
    def __init__(self, secured: Secured, listener: str, *, resumes: bool) -> None:
        self._port = secured.through(listener).port
        self._context = ssl.create_default_context(cafile=str(secured.files.trust))
        self._resumes = resumes
        if resumes:
            self._context.maximum_version = ssl.TLSVersion.TLSv1_2
        self._session: ssl.SSLSession | None = None
        self.resumed_count = 0
        self.problem: Exception | None = None

    def work(self, count: int) -> None:
        try:
            for _ in range(count):
                self._shake_hands()
        except (OSError, AssertionError) as problem:
            self.problem = problem

    def _shake_hands(self) -> None:
        session = self._session if self._resumes else None
        with (
            socket.create_connection((HOST, self._port), TIMEOUT_S) as plain,
            self._context.wrap_socket(plain, server_hostname="localhost", session=session) as secured,
        ):
            secured.sendall(HELLO)
            assert secured.recv(65536), "no answer"
            self.resumed_count += bool(secured.session_reused)
            self._session = secured.session


def _together(clients: list[Client], count: int) -> None:
    threads = [threading.Thread(target=one.work, args=(count,)) for one in clients]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for one in clients:
        if one.problem is not None:
            raise SystemExit(f"a handshake failed: {one.problem!r}")
