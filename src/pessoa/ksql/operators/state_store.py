"""The state of operators: bytes by name and key. There are no scans, so an operator keeps its own indexes.

Spark's MapState offers no more than this, and a store that can be dropped and read again after every row is the proof
that an operator keeps nothing else (`tests/unit/ksql/test_ksql_operator_state.py`).
"""

from __future__ import annotations

from typing import Protocol


class StateStore(Protocol):
    def get(self, name: str, key: bytes) -> bytes | None:
        """Return the value of the key in the store of this name; None if it has none."""

    def put(self, name: str, key: bytes, value: bytes) -> None: ...

    def delete(self, name: str, key: bytes) -> None:
        """Remove the value of the key, if it has one."""


class MemoryState:
    """State of one task in a dict, for as long as the process runs."""

    def __init__(self, entries: dict[tuple[str, bytes], bytes] | None = None) -> None:
        self.entries = {} if entries is None else entries

    def __repr__(self) -> str:
        return f"MemoryState({len(self.entries)} entries)"

    def get(self, name: str, key: bytes) -> bytes | None:
        return self.entries.get((name, key))

    def put(self, name: str, key: bytes, value: bytes) -> None:
        self.entries[name, key] = value

    def delete(self, name: str, key: bytes) -> None:
        self.entries.pop((name, key), None)
