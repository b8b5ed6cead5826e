"""WeightedCache: what is evicted, and when."""

from __future__ import annotations

from pessoa.base.weighted_cache import WeightedCache


def test_the_least_recently_used_entry_is_evicted_first() -> None:
    cache: WeightedCache[str] = WeightedCache(10)
    for key in "abc":
        cache.put(key, key.upper(), 3)
    assert cache.get("a") == "A"
    cache.put("d", "D", 4)
    assert [key for key in "abcd" if key in cache] == ["a", "c", "d"]
    assert cache.weight == 10
    assert cache.get("b") is None


def test_an_entry_heavier_than_the_limit_of_the_cache_is_not_kept() -> None:
    cache: WeightedCache[str] = WeightedCache(10)
    cache.put("a", "A", 3)
    cache.put("b", "B", 11)
    assert (cache.get("a"), cache.get("b")) == ("A", None)


def test_a_new_value_replaces_the_weight_of_the_old() -> None:
    cache: WeightedCache[str] = WeightedCache(10)
    cache.put("a", "A", 8)
    cache.put("a", "AA", 9)
    assert (cache.get("a"), cache.weight) == ("AA", 9)
