"""The TLS handshakes of a listener that are not done: bounded in number, in time, and in how they hold up the loop.

A handshake costs its server a signature, which is half a millisecond of the event loop or more, and some memory; its
peer it costs almost nothing, and the peer has proved nothing before it is done. So

- one step of one handshake is made in each turn of the loop, and what other connections have sent is served in between;
- a handshake has `TIMEOUT_MS`;
- of more than `MAX_AT_ONCE`, the oldest is given up: an honest peer is done within some round trips, so of a thousand
  that only begin, the honest one is never the oldest for long.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import asyncio

    from pessoa.base.clock import Clock, Timer

TIMEOUT_MS = 10_000
MAX_AT_ONCE = 512
_SWEEP_MS = 1_000


class Handshake(Protocol):
    """The handshake of one connection."""

    def step(self) -> None:
        """Continue the handshake with the bytes that were received."""

    def give_up(self, why: str) -> None:
        """Close the connection."""


class Handshakes:
    def __init__(self, clock: Clock, loop: asyncio.AbstractEventLoop) -> None:
        self._clock = clock
        self._loop = loop
        # When each began, the oldest first.
        self._begun_at_ms: dict[Handshake, int] = {}
        # Those for which bytes have come.
        self._ready: deque[Handshake] = deque()
        self._sweeper: Timer | None = None

    def __repr__(self) -> str:
        return f"<Handshakes: {len(self._begun_at_ms)}, {len(self._ready)} of them ready>"

    def __len__(self) -> int:
        return len(self._begun_at_ms)

    def begin(self, handshake: Handshake) -> None:
        self._begun_at_ms[handshake] = self._clock.monotonic_ms()
        if len(self._begun_at_ms) > MAX_AT_ONCE:
            oldest = next(iter(self._begun_at_ms))
            self.end(oldest)
            oldest.give_up("more handshakes are in progress than there may be")
        if self._sweeper is None:
            self._sweeper = self._clock.call_after_ms(_SWEEP_MS, self._sweep)

    def has(self, handshake: Handshake) -> bool:
        return handshake in self._begun_at_ms

    def step_soon(self, handshake: Handshake) -> None:
        if not self._ready:
            self._loop.call_soon(self._step)
        self._ready.append(handshake)

    def end(self, handshake: Handshake) -> None:
        """Remove a handshake that is done, or whose connection is lost."""
        self._begun_at_ms.pop(handshake, None)

    def _step(self) -> None:
        handshake = self._ready.popleft()
        # The next one before this one, which may fail for a mistake of ours.
        if self._ready:
            self._loop.call_soon(self._step)
        if handshake in self._begun_at_ms:
            handshake.step()

    def _sweep(self) -> None:
        self._sweeper = None
        latest_ms = self._clock.monotonic_ms() - TIMEOUT_MS
        for handshake, begun_at_ms in list(self._begun_at_ms.items()):
            if begun_at_ms > latest_ms:
                break
            self.end(handshake)
            handshake.give_up(f"the handshake was not done within {TIMEOUT_MS} ms")
        if self._begun_at_ms:
            self._sweeper = self._clock.call_after_ms(_SWEEP_MS, self._sweep)
