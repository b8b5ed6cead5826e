"""The measures of quotas: an average over windows, a bucket of tokens, and the pace of a client that was throttled.

A `WindowedRate` is what Kafka has for bytes, request time and connections. It sums up what was recorded in windows of
time; one begins with the first record behind the end of the one before, so silence makes none:

    │ 1 s │     │ 1 s │ 1 s │ ·· now        rate = the sum of the windows ÷ the time since the oldest began

The time never counts as less than all windows but the one that is being filled: the first bytes of a client that was
silent are spread over ten seconds by default, so that a client may take as much at once. A window stays as long as its
last record is not older than all windows together.

A client that is over the limit T, with a rate O over a time W, waits for (O - T) / T × W: then the same sum over a time
that is longer by so much is a rate of T.

By this alone a client that sends all it can gets ten seconds' worth at once, then nothing until the window with that
burst is forgotten, then the same again: over twenty seconds anything from half of its limit to a tenth more. So one
that was throttled keeps a `Pace` for as long as all windows last from then on: it gets what its limit allows in one
window at most, and then the limit itself. Twenty seconds behind the first burst are twenty seconds' worth.

A `TokenBucket` is for costs that come in lumps: the mutations of controllers (KIP-599). It fills up at the allowed rate
to what all windows together allow. It may be overdrawn once; below zero, nothing is allowed until it is filled again.
"""

from __future__ import annotations

from typing import NamedTuple

# `throttle_time_ms` is an int32.
MAX_THROTTLE_MS = (1 << 31) - 1


def whole_throttle_ms(throttle_ms: float) -> int:
    """Return the throttle time as an integer that fits into a response. It may be infinite: a rate is divided by
    limits as small as 5e-324."""
    return round(min(MAX_THROTTLE_MS, throttle_ms))


class Windows(NamedTuple):
    """`quota.window.num` and `quota.window.size.seconds`, with their defaults."""

    number: int = 11
    size_ms: int = 1_000

    @property
    def all_ms(self) -> int:
        return self.number * self.size_ms

    @property
    def full_ms(self) -> int:
        """The length of all windows but the one that is being filled."""
        return max(1, self.number - 1) * self.size_ms


class _Window:
    __slots__ = ("began_ms", "last_ms", "total")

    def __init__(self, now_ms: int) -> None:
        self.began_ms = self.last_ms = now_ms
        self.total = 0.0


class WindowedRate:
    """The average per second of the recorded values over the last windows."""

    __slots__ = ("_all_ms", "_recorded_windows", "_total", "windows")

    def __init__(self, windows: Windows) -> None:
        self.windows = windows
        self._all_ms = windows.all_ms
        # Of all that is in `_recorded_windows`.
        self._total = 0.0
        # Oldest first: at most one more than `windows.number`, each with at least one record. Few, and in very many
        # rates: a deque would take more memory.
        self._recorded_windows: list[_Window] = []

    def __repr__(self) -> str:
        return f"<WindowedRate: {self._total:g} in {len(self._recorded_windows)} windows>"

    def record(self, value: float, now_ms: int) -> None:
        """Add `value`; a negative value takes back one that was recorded at the same time."""
        recorded_windows = self._recorded_windows
        if not recorded_windows or now_ms - recorded_windows[-1].began_ms >= self.windows.size_ms:
            self._drop_old_windows(now_ms)
            recorded_windows.append(_Window(now_ms))
        current = recorded_windows[-1]
        current.total += value
        current.last_ms = now_ms
        self._total += value

    def measure(self, now_ms: int) -> float:
        self._drop_old_windows(now_ms)
        return self._total * 1000 / self._time_ms(now_ms)

    def throttle_ms(self, limit: float, now_ms: int) -> int:
        """Return how long a client must wait until the rate is down to the limit; 0 if the rate is not above the
        limit."""
        self._drop_old_windows(now_ms)
        time_ms = self._time_ms(now_ms)
        rate = self._total * 1000 / time_ms
        return whole_throttle_ms((rate - limit) / limit * time_ms) if rate > limit else 0

    def is_idle(self, now_ms: int) -> bool:
        """Return whether nothing was recorded in any window that counts, so that a new rate would measure the same."""
        self._drop_old_windows(now_ms)
        return not self._recorded_windows

    def _time_ms(self, now_ms: int) -> int:
        """Return the time that the rate is an average over: since the oldest window began, at least that of all full
        windows."""
        elapsed_ms = now_ms - self._recorded_windows[0].began_ms if self._recorded_windows else 0
        number, size_ms = self.windows
        missing = number - 1 - elapsed_ms // size_ms
        if missing > 0:
            elapsed_ms += missing * size_ms
        return elapsed_ms if elapsed_ms > size_ms else size_ms

    def _drop_old_windows(self, now_ms: int) -> None:
        recorded_windows = self._recorded_windows
        while recorded_windows and now_ms - recorded_windows[0].last_ms >= self._all_ms:
            self._total -= recorded_windows.pop(0).total
            if not recorded_windows:
                # What is no whole number leaves a remainder.
                self._total = 0.0


class Pace:
    """The bytes that a client that was throttled may use now. If they are below zero, the client owes them, and
    waits."""

    __slots__ = ("_at_ms", "_remaining", "throttled_ms", "windows")

    def __init__(self, windows: Windows, now_ms: int) -> None:
        self.windows = windows
        self._remaining = 0.0
        self._at_ms = now_ms
        # When it was last throttled.
        self.throttled_ms = now_ms

    def __repr__(self) -> str:
        return f"<Pace: {self._remaining:g} left>"

    def is_over(self, now_ms: int) -> bool:
        """Return whether the client was not throttled for as long as all windows last."""
        return now_ms - self.throttled_ms >= self.windows.all_ms

    def owed_ms(self, limit: float, now_ms: int) -> int:
        """Return for how long the client has to wait until it may use more bytes."""
        most = limit * self.windows.size_ms / 1000
        self._remaining = min(most, self._remaining + limit * (now_ms - self._at_ms) / 1000)
        self._at_ms = now_ms
        return whole_throttle_ms(-self._remaining / limit * 1000) if self._remaining < 0 else 0

    def spend(self, value: float) -> None:
        """Subtract `value` from the bytes that the client may use; a negative value gives bytes back."""
        self._remaining -= value


class TokenBucket:
    __slots__ = ("_filled_at_ms", "_tokens", "windows")

    def __init__(self, windows: Windows) -> None:
        self.windows = windows
        self._tokens = 0.0
        # None: the bucket is full, with any quota.
        self._filled_at_ms: int | None = None

    def __repr__(self) -> str:
        return f"<TokenBucket: {'full' if self._filled_at_ms is None else f'{self._tokens:g} tokens'}>"

    def tokens(self, rate: float, now_ms: int) -> float:
        """Return the tokens in the bucket now, at `rate` tokens per second."""
        full = rate * self.windows.all_ms / 1000
        if self._filled_at_ms is None:
            return full
        return min(full, self._tokens + rate * (now_ms - self._filled_at_ms) / 1000)

    def spend(self, cost: float, rate: float, now_ms: int) -> None:
        self._tokens = self.tokens(rate, now_ms) - cost
        self._filled_at_ms = now_ms

    def throttle_ms(self, rate: float, now_ms: int) -> int:
        """Return how long the bucket takes to refill to zero tokens; 0 if no tokens are owed."""
        tokens = self.tokens(rate, now_ms)
        return whole_throttle_ms(-tokens / rate * 1000) if tokens < 0 else 0

    def is_full(self, rate: float, now_ms: int) -> bool:
        """Return whether a new bucket would hold the same number of tokens."""
        return self.tokens(rate, now_ms) >= rate * self.windows.all_ms / 1000
