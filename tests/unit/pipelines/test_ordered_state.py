"""The state of a task during a batch: reads from and writes to its store."""

from __future__ import annotations

from pessoa.pipelines.ordered_state import CachedState


class Stored:
    def __init__(self) -> None:
        self.entries: dict[tuple[object, ...], tuple[object, ...]] = {}
        self.calls: list[str] = []

    def getValue(self, key: tuple[object, ...]) -> tuple[object, ...] | None:  # noqa: N802
        self.calls.append("get")
        return self.entries.get(key)

    def updateValue(self, key: tuple[object, ...], value: tuple[object, ...]) -> None:  # noqa: N802
        self.calls.append("put")
        self.entries[key] = value

    def removeKey(self, key: tuple[object, ...]) -> None:  # noqa: N802
        self.calls.append("delete")
        self.entries.pop(key, None)


def test_a_state_entry_is_read_once_and_written_once() -> None:
    stored = Stored()
    stored.entries["counts", b"a"] = (bytearray(b"1"),)
    state = CachedState(stored)
    for _ in range(3):
        count = state.get("counts", b"a")
        assert count is not None
        state.put("counts", b"a", count + b"1")
    state.flush()
    assert stored.calls == ["get", "put"]
    assert stored.entries == {("counts", b"a"): (b"1111",)}


def test_an_unchanged_state_entry_is_not_written() -> None:
    stored = Stored()
    stored.entries["t", b"a"] = (b"1",)
    state = CachedState(stored)
    state.put("t", b"a", state.get("t", b"a") or b"")
    assert state.get("t", b"none") is None
    state.delete("t", b"none")
    state.flush()
    assert stored.calls == ["get", "get"]


def test_a_state_entry_that_was_created_and_deleted_in_a_batch_is_not_written() -> None:
    stored = Stored()
    stored.entries["t", b"old"] = (b"1",)
    state = CachedState(stored)
    state.put("t", b"new", b"2")
    state.delete("t", b"new")
    state.delete("t", b"old")
    assert state.get("t", b"old") is None
    state.flush()
    assert stored.entries == {}
    # What comes later is seen on top of what was written.
    state.put("t", b"old", b"3")
    state.flush()
    assert stored.entries == {("t", b"old"): (b"3",)}
