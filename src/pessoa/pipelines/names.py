"""Names of queries that somebody is alone with, while the cluster is asked about them without the engine's lock.

Whoever begins or deletes a query makes or removes topics and files under its name, and may wait long for an answer.
Nobody else does so for the same name meanwhile; other names go their own way.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager


class Names:
    def __init__(self) -> None:
        self._taken: set[str] = set()
        self._waiting: list[str] = []
        # Guards both. Nothing else is waited for under it.
        self._changed = threading.Condition()

    def __repr__(self) -> str:
        return f"<Names {sorted(self._taken)} taken, {self._waiting} waited for>"

    @contextmanager
    def alone_with(self, name: str) -> Iterator[None]:
        with self._changed:
            self._waiting.append(name)
            self._changed.wait_for(lambda: name not in self._taken)
            self._waiting.remove(name)
            self._taken.add(name)
        try:
            yield
        finally:
            self.give_back(name)

    def maybe_take(self, name: str) -> bool:
        """For who does not wait: whether it is free, and then taken until it is given back."""
        with self._changed:
            if name in self._taken:
                return False
            self._taken.add(name)
            return True

    def give_back(self, name: str) -> None:
        with self._changed:
            self._taken.remove(name)
            self._changed.notify_all()

    def is_waited_for(self, name: str) -> bool:
        with self._changed:
            return name in self._waiting
