"""Rows between prepare and take: their encoding, their tasks, their order."""

from __future__ import annotations

from pessoa.ksql.operators.key_partitioner import murmur2
from pessoa.ksql.operators.stream_order import merge_in_stream_order
from pessoa.ksql.operators.task_rows import TaskRow


def test_murmur2_agrees_with_the_values_of_kafkas_own_test() -> None:
    known = {
        b"21": -973932308, b"foobar": -790332482, b"a-little-bit-long-string": -985981536,
        b"a-little-bit-longer-string": -1486304829, b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
        b"abc": 479470107,
    }  # fmt: skip
    for key, value in known.items():
        assert murmur2(key) == value & 0xFFFFFFFF, key


def test_a_task_row_decodes_from_its_bytes() -> None:
    for row in (TaskRow(1, 2, 3, -4, b"k", b"payload"), TaskRow(0, 0, 0, 0, None, b"")):
        assert TaskRow.from_bytes(row.to_bytes()) == row


def test_rows_without_a_new_key_stay_in_the_task_of_their_partition() -> None:
    assert TaskRow(0, 5, 0, 0, None, b"").task(8) == 5
    assert TaskRow(0, 5, 0, 0, b"21", b"").task(8) == (-973932308 & 0x7FFFFFFF) % 8


def test_partitions_are_merged_by_the_timestamps_of_their_next_rows() -> None:
    def row(source: int, partition: int, offset: int, time: int) -> TaskRow:
        return TaskRow(source, partition, offset, time, None, b"")

    # Offset 1 of the first partition is late, and holds nothing up.
    rows = [row(0, 0, 1, 5), row(0, 0, 0, 20), row(1, 0, 0, 10), row(1, 0, 1, 30), row(0, 1, 7, 10), row(0, 0, 2, 25)]
    order = [(one.input, one.partition, one.offset) for one in merge_in_stream_order(rows)]
    assert order == [(0, 1, 7), (1, 0, 0), (0, 0, 0), (0, 0, 1), (0, 0, 2), (1, 0, 1)]
