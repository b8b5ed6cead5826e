"""Principals without a login: brokers of this process take a client id such as `User:ana` for the client's principal.

Tests of authorization need many principals, on the listeners of brokers and of controllers; authentication has tests
of its own. Connections of nodes have other client ids, and stay anonymous.
"""

from __future__ import annotations

from struct import unpack_from

import pytest

from pessoa.broker.dispatch import Dispatcher
from pessoa.net.connection import Connection
from pessoa.net.pending import Pending
from pessoa.wire.frames import Buffer

_CLIENT_ID_POSITION = 8


def _client_id(data: bytearray, start: int, end: int) -> str:
    if end - start < _CLIENT_ID_POSITION + 2:
        return ""
    (size,) = unpack_from(">h", data, start + _CLIENT_ID_POSITION)
    begin = start + _CLIENT_ID_POSITION + 2
    return bytes(data[begin : begin + max(size, 0)]).decode()


def believe_client_ids(monkeypatch: pytest.MonkeyPatch) -> None:
    serve = Dispatcher.serve

    def serve_as_claimed(
        self: Dispatcher, connection: Connection, data: bytearray, start: int, end: int
    ) -> list[Buffer] | Pending | None:
        claimed = _client_id(data, start, end)
        if claimed.startswith("User:"):
            connection.principal = claimed
        return serve(self, connection, data, start, end)

    monkeypatch.setattr(Dispatcher, "serve", serve_as_claimed)
