"""PostgreSQL's streaming replication protocol, as far as a client of one logical slot needs it, on libpq.

    CREATE_REPLICATION_SLOT               the slot, and a snapshot that shows the tables as they are where it begins
    START_REPLICATION SLOT … LOGICAL lsn  from here on both sides send:
        server  w  WAL data: a message of pgoutput            k  keepalive: how far the server is, and "answer at once"
        client  r  status: up to which LSN everything is safe, so that the server may drop what is before

psycopg speaks the protocol of queries alone; its `PGconn` gives access to libpq, which speaks this one too.
"""

from __future__ import annotations

import select
import struct
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pessoa.connect.connector import RetriableFailure
from pessoa.connect.connectors.pgoutput import EPOCH_2000_US, lsn_from_text, lsn_text

if TYPE_CHECKING:
    from psycopg.pq.abc import PGconn, PGresult

# How text of every type is printed, whatever the server's own settings are.
PRINTING = (
    "-c datestyle=ISO -c timezone=UTC -c intervalstyle=iso_8601 -c bytea_output=hex -c extra_float_digits=3"
    " -c client_encoding=UTF8"
)

# The SQLSTATE for a slot that another connection reads: one that has just ended, most often.
IN_USE = b"55006"


class ReplicationRefused(Exception):
    """The server has refused a command; trying again would not help."""


@dataclass(frozen=True, slots=True)
class NewSlot:
    consistent_lsn: int
    # Valid until the connection runs another command.
    snapshot: str


@dataclass(frozen=True, slots=True)
class WalData:
    # Where in the log the change stands.
    lsn: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Keepalive:
    end_lsn: int
    wants_answer: bool


class ReplicationConnection:
    def __init__(self, parameters: Mapping[str, str]) -> None:
        from psycopg import conninfo, pq

        text = conninfo.make_conninfo(**parameters, replication="database", options=PRINTING)
        self._connection: PGconn = pq.PGconn.connect(text.encode())
        if self._connection.status != pq.ConnStatus.OK:
            message = self._message()
            self._connection.finish()
            raise RetriableFailure(f"the database cannot be reached for replication: {message}")

    def __repr__(self) -> str:
        return f"<ReplicationConnection, status {self._connection.status}>"

    def _message(self) -> str:
        return self._connection.error_message.decode(errors="replace").strip()

    def _execute(self, command: str, *expected: int) -> PGresult:
        result = self._connection.exec_(command.encode())
        if result.status not in expected:
            from psycopg import pq

            if self._connection.status != pq.ConnStatus.OK:
                raise RetriableFailure(f"the connection broke: {self._message()}")
            if result.error_field(pq.DiagnosticField.SQLSTATE) == IN_USE:
                raise RetriableFailure(f"{command.partition(' (')[0]}: {self._message()}")
            raise ReplicationRefused(f"{command.partition(' (')[0]}: {self._message()}")
        return result

    def create_slot(self, name: str) -> NewSlot:
        from psycopg.pq import ExecStatus

        command = f"CREATE_REPLICATION_SLOT {quote(name)} LOGICAL pgoutput EXPORT_SNAPSHOT"
        result = self._execute(command, ExecStatus.TUPLES_OK)
        lsn, snapshot = result.get_value(0, 1), result.get_value(0, 2)
        assert lsn is not None
        assert snapshot is not None
        return NewSlot(lsn_from_text(lsn.decode()), snapshot.decode())

    def start(self, slot: str, lsn: int, publication: str) -> None:
        from psycopg.pq import ExecStatus

        names = quote(publication).replace("'", "''")
        self._execute(
            f"START_REPLICATION SLOT {quote(slot)} LOGICAL {lsn_text(lsn)}"
            f" (proto_version '1', publication_names '{names}')",
            ExecStatus.COPY_BOTH,
        )

    def receive(self) -> WalData | Keepalive | None:
        """Return the next message; None if none has arrived. RetriableFailure if the connection is lost."""
        import psycopg

        try:
            size, data = self._connection.get_copy_data(1)
            if size == 0:
                self._connection.consume_input()
                size, data = self._connection.get_copy_data(1)
        except psycopg.Error as failure:
            raise RetriableFailure(f"the replication stream broke: {failure}") from None
        if size == 0:
            return None
        if size < 0:
            raise RetriableFailure(f"the server ended the replication stream: {self._message() or 'no reason given'}")
        content = bytes(data)
        if content[:1] == b"w":
            lsn, _, _ = struct.unpack_from(">QQq", content, 1)
            return WalData(lsn, content[25:])
        end_lsn, _, wants = struct.unpack_from(">QqB", content, 1)
        return Keepalive(end_lsn, bool(wants))

    def wait(self, seconds: float) -> None:
        """Return when data has arrived, or at the latest after the timeout."""
        select.select([self._connection.socket], [], [], seconds)

    def confirm(self, received_lsn: int, safe_lsn: int) -> None:
        """Send the server the LSN up to which changes were received, and the LSN up to which they are safe."""
        import psycopg

        now = time.time_ns() // 1000 - EPOCH_2000_US
        try:
            self._connection.put_copy_data(struct.pack(">cQQQqB", b"r", received_lsn, safe_lsn, safe_lsn, now, 0))
            self._connection.flush()
        except psycopg.Error as failure:
            raise RetriableFailure(f"the replication stream broke: {failure}") from None

    def close(self) -> None:
        self._connection.finish()


def quote(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
