"""What the receive buffers of all connections may take together (`queued.max.request.bytes`).

A request may have 100 MB, and a peer may stop in the middle of it: thirty such peers would take gigabytes. So a buffer
that grows beyond what every connection has asks for room first. A connection that gets none is not read from until
there is some: its sender waits, as for any receiver that is slow.

    a buffer is full ──▶ is there room? ──yes──▶ it grows, and is counted
                             │no
                             ├──▶ what others keep and do not need is taken back, and it is asked again
                             ├──▶ no other is beyond the limit: then this one may go, so that one always goes on
                             └──▶ it waits in line, the large ones in one, the others in another

- Taken in all: `limit_bytes`, one largest frame, and the little that every connection has without asking.
- A quarter is for requests of usual size: whatever the large ones do, others go on.
- While a connection waits (`is_short`), one that has served a request keeps nothing for its next one.
- Where a connection waits for long, others that hold memory and have not finished a request meanwhile are closed
  (`close_slow_connections`): a few bytes now and then do not hold what others need. A connection that has sent all of a
  request and waits for its answer is not slow, nor is one that waits in line for memory: its time begins when it gets
  the memory.

Kafka's memory pool goes by the size that a peer announces, and has no limit unless one is set; here memory is counted
as it is taken, and -1 is `DEFAULT_LIMIT_BYTES`.
"""

from __future__ import annotations

import logging
from typing import Protocol

log = logging.getLogger("pessoa.net")

# A hundred producers with requests of 1 MiB, which is what their buffers are kept at between requests.
DEFAULT_LIMIT_BYTES = 256 * 1024 * 1024
# Twice what a producer sends at most by default (`max.request.size`).
USUAL_BYTES = 2 * 1024 * 1024
# A client gives up on a request that takes longer (its `request.timeout.ms`).
PATIENCE_MS = 30_000


class ReceivingConnection(Protocol):
    """A connection that holds memory for the requests it receives."""

    @property
    def peer(self) -> str: ...

    @property
    def finished_at_ms(self) -> int:
        """When the connection last finished a request or its response, began to take memory, or got memory that it had
        waited for."""

    @property
    def is_in_progress(self) -> bool:
        """Whether the connection waits for a response."""

    def give_back(self) -> None:
        """Shrink the buffer to the size that every connection has, if the received bytes fit into it."""

    def room_came(self) -> bool:
        """Read on if there is enough memory now; return False to wait further."""

    def abort(self) -> None: ...


class ReceiveRoom:
    def __init__(self, limit_bytes: int = -1) -> None:
        self.limit_bytes = limit_bytes if limit_bytes > 0 else DEFAULT_LIMIT_BYTES
        self.taken_bytes = 0
        # The most that was taken since `take_freed_bytes`.
        self._most_bytes = 0
        self._held_bytes: dict[ReceivingConnection, int] = {}
        # Connections that wait: with large requests, and with requests of usual size.
        self._large: dict[ReceivingConnection, None] = {}
        self._usual: dict[ReceivingConnection, None] = {}
        # Whether there are any. Every connection looks at this whenever it has served something.
        self.is_short = False
        self._is_letting_in = False
        self._short_since_ms = 0
        # The one that may go beyond the limit. It takes nothing from the others.
        self._exception: ReceivingConnection | None = None

    def __repr__(self) -> str:
        return f"<ReceiveRoom: {self.taken_bytes} of {self.limit_bytes} bytes taken, {self.waiting_count} wait>"

    @property
    def waiting_count(self) -> int:
        return len(self._large) + len(self._usual)

    def admits(self, holder: ReceivingConnection, more_bytes: int, frame_bytes: int, *, must: bool) -> bool:
        """Return whether a connection may take `more_bytes` for a frame of `frame_bytes`. With `must` it cannot read on
        without them. It reports with `count` what it has taken."""
        if self._fits(more_bytes, frame_bytes):
            return True
        if not must:
            return False
        for one in [one for one in self._held_bytes if one is not holder]:
            one.give_back()
        if self._fits(more_bytes, frame_bytes):
            return True
        if self._exception is None:
            self._exception = holder
        return self._exception is holder

    def _fits(self, more_bytes: int, frame_bytes: int) -> bool:
        exempt = 0 if self._exception is None else self._held_bytes.get(self._exception, 0)
        limit_bytes = self.limit_bytes if frame_bytes <= USUAL_BYTES else self.limit_bytes * 3 // 4
        return more_bytes <= limit_bytes + exempt - self.taken_bytes

    def count(self, holder: ReceivingConnection, taken_bytes: int) -> None:
        """Note that a connection holds `taken_bytes` in all; if that is less than before, let waiting connections
        in."""
        before = self._held_bytes.get(holder, 0)
        if taken_bytes:
            self._held_bytes[holder] = taken_bytes
        else:
            self._held_bytes.pop(holder, None)
            if self._exception is holder:
                self._exception = None
        self.taken_bytes += taken_bytes - before
        assert self.taken_bytes >= 0
        self._most_bytes = max(self._most_bytes, self.taken_bytes)
        if taken_bytes < before:
            self._let_in()

    def has(self, holder: ReceivingConnection) -> bool:
        """Whether the connection holds any of this memory."""
        return holder in self._held_bytes

    def wait(self, holder: ReceivingConnection, frame_bytes: int, now_ms: int) -> None:
        """Queue a connection that needs memory for a frame of that size; its `room_came` is called when there may be
        room."""
        if not self.is_short:
            self._short_since_ms = now_ms
            self.is_short = True
        line = self._usual if frame_bytes <= USUAL_BYTES else self._large
        line[holder] = None

    def leave(self, holder: ReceivingConnection) -> None:
        """Remove a connection from the queue, and offer memory to those after it, which were not asked while it was the
        first."""
        for line in (self._large, self._usual):
            if holder in line:
                del line[holder]
                self.is_short = bool(self._large or self._usual)
                self._let_in()

    def forget(self, holder: ReceivingConnection) -> None:
        """Remove a connection that has closed, with the memory that it held."""
        self.count(holder, 0)
        self.leave(holder)

    def _let_in(self) -> None:
        if self._is_letting_in:
            # The one that is being asked has made others give back what they do not need.
            return
        self._is_letting_in = True
        try:
            # Requests of usual size have their quarter whatever comes before them.
            for line in (self._large, self._usual):
                while line:
                    first = next(iter(line))
                    if not first.room_came():
                        break
                    self.leave(first)
        finally:
            self._is_letting_in = False

    def take_freed_bytes(self) -> int:
        """Return by how much the memory in use is below its peak since the last call."""
        freed, self._most_bytes = self._most_bytes - self.taken_bytes, self.taken_bytes
        return freed

    def close_slow_connections(self, now_ms: int) -> None:
        """Close connections that have held memory for too long while others waited for it."""
        # A connection that still waits after this has made the others give back what they do not need.
        self._let_in()
        if not self.is_short or now_ms - self._short_since_ms < PATIENCE_MS:
            return
        for one in list(self._held_bytes):
            waits = one.is_in_progress or one in self._large or one in self._usual
            if now_ms - one.finished_at_ms >= PATIENCE_MS and not waits:
                log.warning("%s is too slow with a large request, and is closed: others wait for the memory", one.peer)
                one.abort()
