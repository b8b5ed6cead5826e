"""The order of Java's hash tables, on keys whose buckets are known."""

from __future__ import annotations

from pessoa.base.ids import Uuid
from pessoa.base.java_order import (
    computed_hash_order,
    concurrent_hash_order,
    copied_hash_order,
    described_order,
    hash_order,
    int_hash,
    long_hash,
    partition_hash,
    string_hash,
    timeline_order,
    uuid_hash,
)


def test_hashes_are_those_of_java() -> None:
    assert string_hash("") == 0
    assert string_hash("hello") == 99162322
    assert partition_hash(("hello", 2)) == 31 * (31 + 2) + 99162322
    assert long_hash(5 << 32) == 5
    assert long_hash(-1) == 0
    assert uuid_hash(Uuid.of(1001)) == 1001


def test_keys_of_one_hash_bucket_keep_put_order_and_reverse_compute_if_absent_order() -> None:
    keys = [32, 16, 1, 0]
    assert hash_order(keys, int_hash) == [32, 16, 0, 1]
    assert concurrent_hash_order(keys, int_hash) == [32, 16, 0, 1]
    assert computed_hash_order(keys, int_hash) == [0, 16, 32, 1]


def test_each_type_of_java_hash_table_grows_at_another_size() -> None:
    """The key 16 shows it: it leaves the first bucket when the table has 32."""

    def place_of_16(order: list[int]) -> int:
        return order.index(16)

    def keys(count: int) -> list[int]:
        return [16, *range(1, count)]

    assert [place_of_16(concurrent_hash_order(keys(count), int_hash)) for count in (11, 12)] == [0, 11]
    assert [place_of_16(copied_hash_order(keys(count), int_hash)) for count in (11, 12)] == [0, 11]
    assert [place_of_16(hash_order(keys(count), int_hash)) for count in (12, 13)] == [0, 12]
    assert [place_of_16(computed_hash_order(keys(count), int_hash)) for count in (13, 14)] == [0, 13]


def test_described_topics_are_ordered_as_in_apaches_larger_copy_of_the_hash_map() -> None:
    """As Apache's kafka-topics listed them: "Aa.dotted" and "Aa-words" share one of eight buckets, not of sixteen."""
    names = ["Aa-jobs", "Aa-mails", "Aa-orders", "Aa-other", "Aa-words", "Aa.dotted"]
    seen = ["Aa.dotted", "Aa-words", "Aa-orders", "Aa-jobs", "Aa-other", "Aa-mails"]
    assert described_order(names, string_hash) == seen
    assert hash_order(names, string_hash, capacity=6) != seen


def test_a_timeline_hash_table_is_listed_by_bucket_and_within_a_bucket_last_first() -> None:
    # The products begin with the bits 0000, 1001, 0011 and 0111.
    assert timeline_order([0, 1, 2], int_hash) == [2, 0, 1]
    assert timeline_order([0, 4], int_hash) == [4, 0]
    assert timeline_order([4, 0], int_hash) == [0, 4]
    assert timeline_order([0, 4], int_hash, are_put_again=True) == [0, 4]
