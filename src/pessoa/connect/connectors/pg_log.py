"""The log of a PostgreSQL server from an offset on, as events: its messages (`pgoutput.py`) become records.

    Begin ──► Relation, Change, Truncate … ──► Commit

Changes are counted within their transaction; (LSN of its commit, number) is what tells which were given before a
restart. The server is told up to where it may drop its log (`maybe_confirm`).
"""

from __future__ import annotations

import logging
import time as clock
from collections.abc import Callable, Iterator

from pessoa.base.json_value import JsonObject
from pessoa.connect.connector import RetriableFailure
from pessoa.connect.connectors.debezium_events import CapturedTable, Where
from pessoa.connect.connectors.pg_replication import Keepalive, ReplicationConnection
from pessoa.connect.connectors.pgoutput import Begin, Change, Commit, Message, Relation, Truncate, decode, lsn_text
from pessoa.connect.data import Record

log = logging.getLogger("pessoa.connect")

# The server is told at most this often that changes are safe.
CONFIRM_S = 0.5

MakeTable = Callable[[Relation], CapturedTable | None]


class LogReader:
    """The WAL from an offset on, as records. At `clear_lsn` no transaction is open and every change has arrived."""

    def __init__(self, connection: ReplicationConnection, behind: tuple[int, int], make_table: MakeTable) -> None:
        self.connection = connection
        self.clear_lsn = 0
        self._behind = behind
        self._make_table = make_table
        self._tables: dict[int, CapturedTable | None] = {}
        self._transaction: Begin | None = None
        self._event = 0
        self._last_commit_lsn: int | None = None
        self._received_lsn = 0
        self._wants_answer = False
        self._confirmed_lsn = 0
        self._confirmed_at_s = clock.monotonic()

    def receive(self, records: list[Record], skipped: tuple[str, ...], *, tombstones: bool) -> bool:
        """Add the records of one message; return False if no message has arrived."""
        found = self.connection.receive()
        if found is None:
            return False
        if isinstance(found, Keepalive):
            self._received_lsn = max(self._received_lsn, found.end_lsn)
            self._wants_answer |= found.wants_answer
            if self._transaction is None:
                self.clear_lsn = max(self.clear_lsn, found.end_lsn)
            return True
        self._received_lsn = max(self._received_lsn, found.lsn)
        records += self._records(decode(found.data), found.lsn, skipped, tombstones)
        return True

    def _records(self, message: Message, lsn: int, skipped: tuple[str, ...], tombstones: bool) -> Iterator[Record]:
        match message:
            case Begin():
                self._transaction, self._event = message, 0
            case Commit():
                self._transaction, self._last_commit_lsn = None, message.commit_lsn
                self.clear_lsn = max(self.clear_lsn, message.end_lsn)
                self._received_lsn = max(self._received_lsn, message.end_lsn)
            case Relation():
                self._tables[message.id] = self._make_table(message)
            case Change():
                where = self._next_place(lsn)
                table = self._tables[message.relation_id]
                if where is not None and table is not None and message.operation not in skipped:
                    yield from table.events(
                        message.operation, message.old, message.new, message.old_is_key, where,
                        clock.time_ns() // 1000, tombstones=tombstones,
                    )  # fmt: skip
            case Truncate():
                where = self._next_place(lsn)
                for table in [self._tables[each] for each in message.relation_ids]:
                    if where is not None and table is not None and "t" not in skipped:
                        yield table.truncated(where, clock.time_ns() // 1000)

    def _next_place(self, lsn: int) -> Where | None:
        """Return the position of the transaction's next change; None if it was delivered before a restart."""
        begin = self._transaction
        assert begin is not None
        self._event += 1
        if (begin.commit_lsn, self._event) <= self._behind:
            return None
        offset: JsonObject = {
            "lsn": begin.commit_lsn, "event": self._event, "txId": begin.xid, "ts_usec": begin.time_us,
        }  # fmt: skip
        return Where(lsn, begin.time_us, begin.xid, offset, last_commit_lsn=self._last_commit_lsn)

    def maybe_confirm(self, safe_lsn: int, interval_s: float) -> None:
        """Confirm the safe LSN to the server if it is new, requested, or long not confirmed."""
        since_s = clock.monotonic() - self._confirmed_at_s
        is_new = safe_lsn > self._confirmed_lsn and since_s >= CONFIRM_S
        if is_new or self._wants_answer or since_s >= interval_s:
            safe = max(safe_lsn, self._confirmed_lsn)
            self.connection.confirm(max(self._received_lsn, safe), safe)
            self._confirmed_lsn, self._confirmed_at_s, self._wants_answer = safe, clock.monotonic(), False

    def confirm_quietly(self, safe_lsn: int) -> None:
        """Confirm the safe LSN before the connection is closed; if that fails, it is confirmed after the next start."""
        try:
            self.connection.confirm(max(self._received_lsn, safe_lsn), safe_lsn)
        except RetriableFailure as failure:
            log.info("the server was not told that changes up to %s are safe: %s", lsn_text(safe_lsn), failure)

    def close(self) -> None:
        self.connection.close()
