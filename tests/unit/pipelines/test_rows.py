"""Rows between Arrow and Kafka: slots, the records that a producer gets, the rows that a Python writer gets."""

from __future__ import annotations

import datetime
from typing import Any

import pytest

from pessoa.pipelines.python_sink import KafkaRow, rows_of
from pessoa.pipelines.python_source import SourceRow, as_tuple
from pessoa.pipelines.topic_writer import by_slot, send

pa: Any = pytest.importorskip("pyarrow")


class RecordingProducer:
    """A producer whose queue is full once, after two records."""

    def __init__(self) -> None:
        self.records: list[tuple[Any, ...]] = []
        self.was_full = False

    def produce(self, topic: str, value: bytes, key: bytes, **more: Any) -> None:
        if len(self.records) == 2 and not self.was_full:
            self.was_full = True
            raise BufferError
        self.records.append((topic, value, key, more))

    def poll(self, _timeout: float) -> None:
        pass


def batch(**columns: Any) -> Any:
    return pa.RecordBatch.from_pydict(columns)


def test_rows_are_grouped_by_slot_and_keep_their_order() -> None:
    rows = batch(slot=[1, 0, 1], value=[b"a", b"b", b"c"])
    assert [(slot, part.column("value").to_pylist()) for slot, part in by_slot(rows)] == [
        (0, [b"b"]),
        (1, [b"a", b"c"]),
    ]
    [(slot, whole)] = by_slot(batch(slot=[3, 3], value=[b"a", b"b"]))
    assert (slot, whole.num_rows) == (3, 2)


def test_a_producer_gets_every_row_completely_even_if_its_queue_was_full() -> None:
    producer = RecordingProducer()
    moment = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
    rows = batch(
        topic=["t", "t", "u"],
        partition=pa.array([None, 3, None], pa.int32()),
        key=[b"k", None, b"k"],
        value=[b"1", b"2", None],
        headers=[None, [{"key": "h", "value": b"x"}], []],
        timestamp=pa.array([None, moment, None], pa.timestamp("us", "UTC")),
    )
    sent_by: Any = producer
    send(sent_by, rows)
    milliseconds = int(moment.timestamp() * 1000)
    assert producer.records == [
        ("t", b"1", b"k", {}),
        ("t", b"2", None, {"partition": 3, "headers": [("h", b"x")], "timestamp": milliseconds}),
        ("u", None, b"k", {}),
    ]


def test_a_python_writer_gets_rows_with_kafkas_columns() -> None:
    moment = datetime.datetime(2026, 1, 1, 0, 0, 0, 5000, tzinfo=datetime.UTC)
    rows = batch(
        key=[b"k"],
        value=pa.array([None], pa.binary()),
        topic=["t"],
        partition=[1],
        offset=[42],
        timestamp=pa.array([moment], pa.timestamp("us", "UTC")),
        timestampType=[1],
        headers=[[{"key": "h", "value": None}]],
    )
    time_ms = 1767225600005
    assert list(rows_of(rows, iter(()))) == [KafkaRow("t", 1, 42, time_ms, "LogAppendTime", b"k", None, [("h", None)])]


def test_a_row_of_a_source_has_sparks_types() -> None:
    topic, partition, key, value, headers, time = as_tuple(SourceRow("t", None, b"k", b"v", [], 5))
    assert (topic, partition, key, value, headers) == ("t", None, b"k", b"v", None)
    assert time == datetime.datetime(1970, 1, 1, 0, 0, 0, 5000, tzinfo=datetime.UTC)
    assert as_tuple(SourceRow("t", None, None, None, [("h", b"x")], None))[4:] == ([("h", b"x")], None)
