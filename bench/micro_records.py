"""Record batches: the cost of appending a produced batch, and of reading its records.

The first lines are the produce path of a broker for one partition: read the header of a batch of 16 KiB, check the CRC,
stamp it. They are to stay below 3 µs plus the CRC itself. The others build and read a hundred records of 100 bytes,
which a broker does only for internal topics, compaction and tools.

aiokafka reads and builds records in a C extension, so its figures there are not those of pure Python.
"""

from __future__ import annotations

import timeit
import warnings
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from aiokafka.record import default_records as aiokafka_records

from pessoa.records import checksum
from pessoa.records.batch import RecordBatch
from pessoa.records.batch_validation import AppendRules, check_produced
from pessoa.records.builder import build_batch
from pessoa.records.compression import Codec
from pessoa.records.record import Record, records, spans
from pessoa.records.stamping import stamp

with warnings.catch_warnings():
    # kafka-python reads its schemas with a deprecated function of importlib.resources when it is imported.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka.record import default_records as kafka_python_records

if TYPE_CHECKING:
    from bench.report import Report

NOW_MS = 1_700_000_000_000
LARGE = [Record(offset, NOW_MS + offset, b"%d" % offset, b"x" * 100) for offset in range(144)]
HUNDRED = [Record(offset, NOW_MS + offset, None, b"x" * 100) for offset in range(100)]
OTHERS = {"aiokafka": aiokafka_records, "kafka-python": kafka_python_records}


def microseconds(call: Callable[[], object], number: int) -> float:
    """Return the time of a call in microseconds: the best of several runs, as other work disturbs some."""
    return min(timeit.repeat(call, number=number, repeat=7)) / number * 1e6


def run(report: Report) -> None:
    produce_path(report)
    open_records(report)


def produce_path(report: Report) -> None:
    data = build_batch(LARGE)
    view = memoryview(data)
    rules = AppendRules()
    batch = RecordBatch(view)
    crc32c = checksum.crc32c

    def produce() -> None:
        stamp(check_produced(view, rules, NOW_MS, 12), 0, 5)

    assert 16_000 < len(data) < 17_000
    number = 20_000
    report.add("header of a 16 KiB batch", "pessoa", microseconds(lambda: RecordBatch(view), number), "µs")
    report.add("its CRC alone", "pessoa", microseconds(lambda: crc32c(view), number), "µs")
    report.add("its CRC checked", "pessoa", microseconds(batch.is_valid, number), "µs")
    report.add("stamp offset and epoch", "pessoa", microseconds(lambda: stamp(batch, 0, 5), number), "µs")
    report.add("header, checks with CRC, stamp", "pessoa", microseconds(produce, number), "µs")
    frozen = bytes(data)
    for name, module in OTHERS.items():
        theirs = module.DefaultRecordBatch(frozen)
        assert theirs.validate_crc()
        look = partial(module.DefaultRecordBatch, frozen)
        report.add("header of a 16 KiB batch", name, microseconds(look, 2_000), "µs")
        report.add("its CRC checked", name, microseconds(theirs.validate_crc, 100), "µs")


def open_records(report: Report) -> None:
    plain = bytes(build_batch(HUNDRED))
    batch = RecordBatch(plain)
    zstd = RecordBatch(build_batch(HUNDRED, codec=Codec.ZSTD))
    number = 200
    report.add("build 100 × 100 B", "pessoa", microseconds(lambda: build_batch(HUNDRED), number), "µs")
    report.add("read 100 × 100 B", "pessoa", microseconds(lambda: list(records(batch)), number), "µs")
    report.add("read 100 × 100 B, zstd", "pessoa", microseconds(lambda: list(records(zstd)), number), "µs")
    report.add("walk 100 × 100 B", "pessoa", microseconds(lambda: list(spans(batch)[1]), number), "µs")
    for name, module in OTHERS.items():
        build = partial(built_by, module)
        read = partial(read_by, module, plain)
        assert build()[61:] == plain[61:]
        assert len(read()) == len(HUNDRED)
        report.add("build 100 × 100 B", name, microseconds(build, number), "µs")
        report.add("read 100 × 100 B", name, microseconds(read, number), "µs")


def built_by(module: Any) -> bytes:
    builder = module.DefaultRecordBatchBuilder(2, 0, False, -1, -1, -1, 1_000_000)
    for record in HUNDRED:
        builder.append(record.offset, record.timestamp, record.key, record.value, [])
    return bytes(builder.build())


def read_by(module: Any, data: bytes) -> list[object]:
    return list(module.DefaultRecordBatch(data))
