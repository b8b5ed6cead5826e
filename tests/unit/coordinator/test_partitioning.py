"""The partition of a group follows Java's hashCode; the expected numbers are from a JVM."""

from __future__ import annotations

import pytest

from pessoa.base.java_order import string_hash
from pessoa.coordinator.partitioning import partition_for


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", 0),
        ("a", 97),
        ("my-group", -1906497762),
        ("console-consumer-12345", 158455506),
        ("café", 3045921),
        ("😀", 1772899),
        # One of the texts whose hash is the smallest int32.
        ("polygenelubricants", -2147483648),
    ],
)
def test_the_string_hash_is_that_of_java(text: str, expected: int) -> None:
    assert string_hash(text) == expected % (1 << 32)


def test_a_hash_of_integer_min_value_is_mapped_to_partition_zero() -> None:
    assert partition_for("polygenelubricants", 50) == 0


def test_a_negative_hash_is_mapped_by_its_absolute_value() -> None:
    assert partition_for("my-group", 50) == 1906497762 % 50
