"""Names of queries that one thread has to itself while it asks the cluster about them without the engine's lock.

The thread that begins or deletes a query makes or removes topics and files under its name, and may wait long for an
answer. No other thread does so for the same name meanwhile; other names are not held up.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

# No query has this name.
EVERY_NAME = "*"


class Names:
    def __init__(self) -> None:
        self._taken_names: set[str] = set()
        self._awaited_names: list[str] = []
        # Calls to make when no name is taken any more.
        self._pending_calls: list[Callable[[], object]] = []
        # Guards all of them. Nothing else is waited for under it.
        self._condition = threading.Condition()

    def __repr__(self) -> str:
        return f"<Names {sorted(self._taken_names)} taken, {self._awaited_names} waited for>"

    @contextmanager
    def alone_with(self, name: str) -> Iterator[None]:
        with self._condition:
            self._awaited_names.append(name)
            self._condition.wait_for(lambda: name not in self._taken_names)
            self._awaited_names.remove(name)
            self._taken_names.add(name)
        try:
            yield
        finally:
            self.give_back(name)

    def maybe_take(self, name: str) -> bool:
        """Take the name if it is free, without waiting; return False if another thread has it."""
        with self._condition:
            if name in self._taken_names:
                return False
            self._taken_names.add(name)
            return True

    def give_back(self, name: str) -> None:
        with self._condition:
            self._taken_names.remove(name)
            self._maybe_go_on()
            self._condition.notify_all()

    def when_all_are_free(self, act: Callable[[], object]) -> None:
        """Call the function now, or when the last name is given back."""
        with self._condition:
            self._pending_calls.append(act)
            self._maybe_go_on()

    def wait_until_all_are_free(self, timeout_s: float) -> bool:
        with self._condition:
            self._awaited_names.append(EVERY_NAME)
            is_free = self._condition.wait_for(lambda: not self._taken_names, timeout_s)
            self._awaited_names.remove(EVERY_NAME)
            return is_free

    def _maybe_go_on(self) -> None:
        while self._pending_calls and not self._taken_names:
            self._pending_calls.pop()()
