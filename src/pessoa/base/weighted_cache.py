"""A cache of bounded weight: the entry that was used longest ago is evicted first.

`functools.lru_cache` counts entries. Where an entry is a caller's schema, a thousand of a megabyte each would take all
the memory there is. So each entry has a weight, in bytes or in something that grows with them. Worker threads and
the event loop may share one cache.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

V = TypeVar("V")


class WeightedCache(Generic[V]):
    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._entries: OrderedDict[Hashable, tuple[V, int]] = OrderedDict()
        self._lock = threading.Lock()
        self.weight = 0

    def __repr__(self) -> str:
        return f"<WeightedCache of {len(self._entries)} entries, {self.weight} of {self._limit}>"

    def __contains__(self, key: Hashable) -> bool:
        return key in self._entries

    def get(self, key: Hashable) -> V | None:
        with self._lock:
            entry = self._entries.get(key)
            if entry is None:
                return None
            self._entries.move_to_end(key)
            return entry[0]

    def put(self, key: Hashable, value: V, weight: int) -> None:
        if weight > self._limit:
            return
        with self._lock:
            _, old_weight = self._entries.pop(key, (value, 0))
            self._entries[key] = (value, weight)
            self.weight += weight - old_weight
            while self.weight > self._limit:
                _, (_, evicted_weight) = self._entries.popitem(last=False)
                self.weight -= evicted_weight
