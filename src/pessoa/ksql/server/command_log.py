"""The command topic: statements that changed something, in order; one partition, kept for ever.

`append` writes a command and returns when this server has replayed it, with its outcome. All servers with one service
id append to and read one topic. Two that append at once find out at the replay: the second command is applied to
what the first has made of the image, and may fail there, on every server in the same way.
"""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import NamedTuple

from pessoa.client.table_topic import Batch, TablePartition, TableReader, TableWriter
from pessoa.client.topic_creation import TopicSpec
from pessoa.ksql.analysis.analyser import Defaults
from pessoa.ksql.ksql_errors import KsqlError
from pessoa.ksql.server.commands import Command, CommandId, UnreadableCommand, decode_command, encode_command
from pessoa.ksql.server.kafka_clients import Settings
from pessoa.ksql.server.ksql_state import Applied, KsqlState, apply_command

log = logging.getLogger("pessoa.ksql")

# Outcomes that GET /status tells; older ones are forgotten.
_MOST_STATUSES = 10_000
KEEP_FOR_EVER = {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"}


class Outcome(NamedTuple):
    """The result of a command. `applied` is None if it failed."""

    offset: int
    status: str
    message: str
    applied: Applied | None = None


class CommandLog:
    """The command topic and the image that its commands make. `changed` is called in the reader's thread with every
    new image."""

    def __init__(
        self, topic: str, settings: Settings, replicas: int, defaults: Defaults, changed: Callable[[KsqlState], None]
    ) -> None:
        self._place = TablePartition(topic, 0)
        spec = TopicSpec(topic, 1, replicas, KEEP_FOR_EVER)
        self._reader = TableReader("ksql-commands", settings, [spec], self._replay)
        self._writer = TableWriter(settings)
        self._append_lock = threading.Lock()
        self._defaults = defaults
        self._on_change = changed
        self.state = KsqlState()
        self.next_offset = 0
        self._outcomes: OrderedDict[int, Outcome] = OrderedDict()
        self._statuses: OrderedDict[CommandId, Outcome] = OrderedDict()

    def __repr__(self) -> str:
        return f"<CommandLog {self._place.topic} at {self.next_offset}, {len(self.state.queries)} queries>"

    def start(self, timeout_s: float) -> None:
        """Read the command topic to its end."""
        self._reader.start(timeout_s)
        self._reader.wait_for_end(timeout_s)

    def stop(self) -> None:
        self._reader.stop()

    def append(self, key: CommandId, command: Command) -> Outcome:
        """Write a command to the topic, and return its result after it is replayed."""
        with self._append_lock:
            _, offset = self._writer.send(self._place.topic, *encode_command(key, command))()
        self.wait_for(offset)
        return self._outcomes[offset]

    def wait_for(self, offset: int, timeout_s: float = 30.0) -> None:
        """Return when the command at this offset has been replayed."""
        self._reader.wait_until(self._place, offset, timeout_s)

    def try_command(self, command: Command) -> Applied:
        """Return the effects that the command would have. Raises KsqlError."""
        return apply_command(self.state, command, self.next_offset, self._defaults)

    def status(self, key: CommandId) -> Outcome | None:
        return self._statuses.get(key)

    def statuses(self) -> dict[str, str]:
        return {str(key): outcome.status for key, outcome in self._statuses.copy().items()}

    def _replay(self, batch: Batch) -> None:
        before = self.state
        for row in batch.rows:
            self._replay_one(row.offset, row.key, row.value)
            self.next_offset = row.offset + 1
        if self.state is not before:
            self._on_change(self.state)

    def _replay_one(self, offset: int, key: bytes | None, value: bytes | None) -> None:
        try:
            known, command = decode_command(key, value)
        except UnreadableCommand as wrong:
            log.warning("the record at %d of %s is skipped: %s", offset, self._place.topic, wrong)
            self._note(offset, None, Outcome(offset, "ERROR", str(wrong)))
            return
        try:
            applied = apply_command(self.state, command, offset, self._defaults)
        except KsqlError as refused:
            log.warning("the command at %d cannot be done: %s", offset, refused.message)
            self._note(offset, known, Outcome(offset, "ERROR", str(refused)))
            return
        self.state = applied.state
        status = "TERMINATED" if known.action == "execute" and known.type == "terminate" else "SUCCESS"
        self._note(offset, known, Outcome(offset, status, applied.message, applied))

    def _note(self, offset: int, key: CommandId | None, outcome: Outcome) -> None:
        self._outcomes[offset] = outcome
        if key is not None:
            self._statuses[key] = outcome
            self._statuses.move_to_end(key)
        for kept in (self._outcomes, self._statuses):
            while len(kept) > _MOST_STATUSES:
                kept.popitem(last=False)
