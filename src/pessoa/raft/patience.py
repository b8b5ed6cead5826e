"""How long a member waits before it tries to be elected.

Always with a part of chance, so that of several who think of it at once one is first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from pessoa.raft.ready import Timeouts

# Two candidates in one epoch both lose; who comes back first wins the next one.
_FIRST_BACKOFF_MS = 50
_MAX_DOUBLINGS = 10


class Patience:
    def __init__(self, timeouts: Timeouts, random_below: Callable[[int], int]) -> None:
        self._timeouts = timeouts
        self._random_below = random_below

    def election_ms(self) -> int:
        """For a leader to show itself, or for votes to come in."""
        timeout_ms = self._timeouts.election_timeout_ms
        return timeout_ms + self._random_below(max(1, timeout_ms))

    def moment_ms(self) -> int:
        """Where there is no reason to wait but the others."""
        return 1 + self._random_below(max(1, self._timeouts.election_timeout_ms // 10))

    def backoff_ms(self, lost_elections: int) -> int:
        """After so many elections in a row that were begun and lost."""
        bound_ms = _FIRST_BACKOFF_MS << min(lost_elections, _MAX_DOUBLINGS)
        return 1 + self._random_below(max(1, min(self._timeouts.election_backoff_max_ms, bound_ms)))
