"""The ports of the platform: checked at the start, and reserved while the platform runs.

29092 and above lie among the ports that the kernel hands out to outgoing connections. So such a port can be taken
by a connection that any program has just opened, at the start or in the moment in which a broker that fell is started
again; and the broker would not come back until that connection ends.

Hence a reservation: the supervisor binds every port, does not listen, and keeps the sockets until it ends. On Linux
the kernel gives a bound port to no connection, whereas a child that sets SO_REUSEADDR, as servers do, may bind the same
port and listen on it. Elsewhere two sockets cannot have one port in this way, and the ports are only looked at.

A port that is held at the start without a listener is held by such a connection, and connections end; so binding it is
retried for a while. A port with a listener belongs to another program, which is reported at once.
"""

from __future__ import annotations

import errno
import socket
import sys
import time
from collections.abc import Iterable
from contextlib import ExitStack
from types import TracebackType
from typing import Self

from pessoa.platform.service_rows import Service

CAN_BE_SHARED = sys.platform == "linux"
WAIT_FOR_CONNECTIONS_S = 5.0
_RETRY_S = 0.05
_CONNECT_TIMEOUT_S = 1.0


class PortTaken(Exception):
    """A port is in use; the message is the sentence for the user."""


class Reservation:
    """Bound sockets on the ports of services: `with Reservation.of(services): …`. Within the block the kernel gives
    none of these ports to an outgoing connection."""

    def __init__(self) -> None:
        self._sockets = ExitStack()
        self._ports: list[int] = []

    def __repr__(self) -> str:
        return f"<Reservation of {self._ports}>"

    @classmethod
    def of(cls, services: Iterable[Service], wait_s: float = WAIT_FOR_CONNECTIONS_S) -> Self:
        """Return a reservation of all ports of all services. Raises `PortTaken` if a port is in use; none is
        reserved then."""
        reservation = cls()
        deadline_s = time.monotonic() + wait_s
        try:
            for service in services:
                for port in (service.port, *service.more_ports):
                    reservation._hold(service, port, deadline_s)
        except BaseException:
            reservation.close()
            raise
        return reservation

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._sockets.close()

    def _hold(self, service: Service, port: int, deadline_s: float) -> None:
        while True:
            bound = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
            # As servers do: a port in TIME_WAIT is free, one with a listener is not.
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                bound.bind((service.host, port))
            except OSError as failure:
                bound.close()
                if failure.errno != errno.EADDRINUSE:
                    raise PortTaken(_sentence(service, f"port {port} cannot be used ({failure.strerror})")) from None
                if is_listened_on(service.host, port):
                    why = f"port {port} is already taken by another program; stop it, or use --port-shift"
                    raise PortTaken(_sentence(service, why)) from None
                if time.monotonic() >= deadline_s:
                    why = f"port {port} is held by another program's connection; try again, or use --port-shift"
                    raise PortTaken(_sentence(service, why)) from None
                time.sleep(_RETRY_S)
                continue
            if CAN_BE_SHARED:
                self._sockets.enter_context(bound)
                self._ports.append(port)
            else:
                bound.close()
            return


def is_listened_on(host: str, port: int) -> bool:
    try:
        socket.create_connection((host, port), timeout=_CONNECT_TIMEOUT_S).close()
    except OSError:
        return False
    return True


def _sentence(service: Service, why: str) -> str:
    return f"Cannot start {service.name}: {why}."
