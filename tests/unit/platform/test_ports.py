from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager

import pytest

from pessoa.platform.ports import CAN_BE_SHARED, PortTaken, Reservation
from pessoa.platform.service_rows import Service

on_linux = pytest.mark.skipif(not CAN_BE_SHARED, reason="only Linux lets a bound port be shared with a listener")


def one(port: int, *more: int, host: str = "127.0.0.1") -> list[Service]:
    return [Service("one", ("true",), port, host=host, more_ports=more)]


@contextmanager
def connection_from(port: int) -> Iterator[socket.socket]:
    """Yield an outgoing connection whose local port is this one, as the kernel might choose it."""
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket() as client:
        client.bind(("127.0.0.1", port))
        client.connect(server.getsockname())
        with closing(server.accept()[0]):
            yield client


def test_a_port_that_a_server_has_just_closed_is_free(free_port: Callable[[], int]) -> None:
    port = free_port()
    with socket.create_server(("127.0.0.1", port)) as server, socket.create_connection(("127.0.0.1", port)):
        # The server's end closes first, so its side of the connection goes to TIME_WAIT.
        server.accept()[0].close()
    Reservation.of(one(port)).close()


def test_the_other_ports_of_a_service_must_be_free_too(free_port: Callable[[], int]) -> None:
    port, taken = free_port(), free_port()
    with (
        socket.create_server(("127.0.0.1", taken)),
        pytest.raises(PortTaken, match=f"^Cannot start one: port {taken} is already taken by another program;"),
    ):
        Reservation.of(one(port, taken))
    # What was reserved before the refusal is given back.
    with socket.socket() as without_reuse:
        without_reuse.bind(("127.0.0.1", port))


def test_a_port_without_permission_is_reported_as_such() -> None:
    with pytest.raises(PortTaken, match=r"^Cannot start one: port 9092 cannot be used \(.+\)\.$"):
        # 192.0.2.0/24 is reserved for documentation: no machine has an address in it.
        Reservation.of(one(9092, host="192.0.2.1"))


@on_linux
def test_a_reserved_port_can_be_bound_by_a_listening_server_and_by_no_other_socket(
    free_port: Callable[[], int],
) -> None:
    port = free_port()
    with Reservation.of(one(port)):
        for _ in range(2):  # a service that is started again finds its port free again
            with socket.create_server(("127.0.0.1", port)) as server, socket.create_connection(("127.0.0.1", port)):
                server.accept()[0].close()
        with socket.socket() as client, pytest.raises(OSError, match="in use"):
            # As a connection asks for a port: without SO_REUSEADDR.
            client.bind(("127.0.0.1", port))


def test_a_port_in_use_by_a_connection_is_waited_for(free_port: Callable[[], int]) -> None:
    port = free_port()
    reserved: list[Reservation] = []
    waiting = threading.Thread(target=lambda: reserved.append(Reservation.of(one(port), wait_s=60)))
    with connection_from(port) as client:
        waiting.start()
        # A client that resets its connection leaves no TIME_WAIT behind.
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    waiting.join(60)
    assert len(reserved) == 1
    reserved[0].close()


def test_a_connection_that_keeps_a_port_in_use_is_named_in_the_error(free_port: Callable[[], int]) -> None:
    port = free_port()
    with (
        connection_from(port),
        pytest.raises(PortTaken, match=f"^Cannot start one: port {port} is held by another program's connection;"),
    ):
        Reservation.of(one(port), wait_s=0)
