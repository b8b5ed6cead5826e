"""What stands around the machine: its patience, the log that it looks at, and what it wants done.

`Ready` is carried out from its first field to its last. What is persisted is on the disk before the rest happens.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

from pessoa.raft.messages import ElectionState, OffsetAndEpoch, ReplicaKey, Request


class Timeouts(NamedTuple):
    """The defaults are Kafka's, and the names are those of `controller.quorum.…`."""

    election_timeout_ms: int = 1_000
    election_backoff_max_ms: int = 1_000
    fetch_timeout_ms: int = 2_000
    retry_backoff_ms: int = 20

    @property
    def check_quorum_ms(self) -> int:
        """How long a leader leads without fetches of a majority. It is longer than the fetch timeout of followers:
        those that still fetch should not lose a leader that works."""
        return self.fetch_timeout_ms * 3 // 2


class RaftLogView(Protocol):
    """The log of a member, as far as the raft machine reads it."""

    @property
    def log_start_offset(self) -> int: ...
    @property
    def log_end_offset(self) -> int: ...
    @property
    def durable_end_offset(self) -> int:
        """The offset below which every record is on the disk."""

    @property
    def last_epoch(self) -> int:
        """The epoch of the last record, or of the snapshot if the log is empty; 0 if there is neither."""

    @property
    def latest_snapshot(self) -> OffsetAndEpoch | None: ...
    def end_of_epoch(self, epoch: int) -> OffsetAndEpoch:
        """Return the largest epoch of this log up to the given one, and its end offset."""

    def is_leaving(self, key: ReplicaKey, high_watermark: int) -> bool:
        """Return whether the latest voter set, which is not committed, is the first one without this member."""


class Ready:
    """What the shell has to do, in this order. See the head of `pessoa.raft.machine`."""

    __slots__ = ("opens_epoch", "persist", "records", "sends", "snapshot", "truncate_to")

    def __init__(self) -> None:
        self.persist: ElectionState | None = None
        self.truncate_to: int | None = None
        self.records: memoryview | None = None
        self.snapshot: OffsetAndEpoch | None = None
        self.opens_epoch: tuple[int, ...] | None = None
        self.sends: list[tuple[int, Request]] = []

    @property
    def is_empty(self) -> bool:
        return self.persist is None and not self.sends and not self.is_about_the_log

    @property
    def is_about_the_log(self) -> bool:
        return any(one is not None for one in (self.truncate_to, self.records, self.snapshot, self.opens_epoch))
