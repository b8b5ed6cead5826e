"""How long a member waits before it tries to be elected.

Each wait has a random part, so that of several members that miss their leader at once one is first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from pessoa.raft.ready import Timeouts

# Two candidates in one epoch may both lose; the one that tries again first wins the next epoch.
_FIRST_BACKOFF_MS = 50
_MAX_DOUBLINGS = 10


class Patience:
    def __init__(self, timeouts: Timeouts, random_below: Callable[[int], int]) -> None:
        self._timeouts = timeouts
        self._random_below = random_below

    def election_ms(self) -> int:
        """Return how long to wait for a leader, or for votes, before the next election."""
        timeout_ms = self._timeouts.election_timeout_ms
        return timeout_ms + self._random_below(max(1, timeout_ms))

    def random_delay_ms(self) -> int:
        """Return a short random wait, which keeps several members from becoming candidates at the same time."""
        return 1 + self._random_below(max(1, self._timeouts.election_timeout_ms // 10))

    def backoff_ms(self, lost_elections: int) -> int:
        """Return how long a candidate waits after so many lost elections in a row."""
        bound_ms = _FIRST_BACKOFF_MS << min(lost_elections, _MAX_DOUBLINGS)
        return 1 + self._random_below(max(1, min(self._timeouts.election_backoff_max_ms, bound_ms)))
