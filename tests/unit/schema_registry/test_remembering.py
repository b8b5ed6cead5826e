"""A memory that forgets in time."""

from __future__ import annotations

from pessoa.schema_registry.remembering import Memory


def test_what_was_used_longest_ago_is_forgotten_first() -> None:
    memory: Memory[str] = Memory(10)
    for key in "abc":
        memory.put(key, key.upper(), 3)
    assert memory.get("a") == "A"
    memory.put("d", "D", 4)
    assert [key for key in "abcd" if key in memory] == ["a", "c", "d"]
    assert memory.weight == 10
    assert memory.get("b") is None


def test_what_weighs_more_than_everything_may_is_not_kept() -> None:
    memory: Memory[str] = Memory(10)
    memory.put("a", "A", 3)
    memory.put("b", "B", 11)
    assert (memory.get("a"), memory.get("b")) == ("A", None)


def test_a_new_value_replaces_the_weight_of_the_old() -> None:
    memory: Memory[str] = Memory(10)
    memory.put("a", "A", 8)
    memory.put("a", "AA", 9)
    assert (memory.get("a"), memory.weight) == ("AA", 9)
