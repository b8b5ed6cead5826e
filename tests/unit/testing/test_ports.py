"""The ports of a cluster are reserved from their choice until its brokers listen."""

from __future__ import annotations

import socket

import pytest

from pessoa.testing.cluster import _free_ports


def test_a_chosen_port_is_reserved_and_can_be_listened_on() -> None:
    ports = [port for pair in _free_ports(6) for port in pair]
    assert len(set(ports)) == 6
    for port in ports:
        with socket.socket() as other, pytest.raises(OSError, match="in use"):
            other.bind(("127.0.0.1", port))
        socket.create_server(("127.0.0.1", port)).close()
