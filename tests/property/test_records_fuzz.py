"""Hostile bytes: a reader of any damaged batch gets records or `InvalidBatch`, and uses limited memory.

A batch is built, then cut, overwritten, doubled and stretched in a few places, and half of the time its CRC and length
are made right again, so that the damage reaches the code behind those checks. The number of examples is the profile's:
`make test` runs a fixed set, `make fuzz` as many as it is told.
"""

from __future__ import annotations

import tracemalloc
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st

from pessoa.records import checksum
from pessoa.records.batch import RecordBatch, TimestampType, batches, whole_batches
from pessoa.records.batch_validation import AppendRules, check_produced
from pessoa.records.builder import build_batch
from pessoa.records.compression import Codec, compress, decompress
from pessoa.records.invalid_batch import InvalidBatch
from pessoa.records.record import Record, records, spans

if TYPE_CHECKING:
    from collections.abc import Callable

LIMIT = 256 * 1024
# The buffer of a codec and the bytes made of it, one record of such bytes, and small change.
PEAK = 4 * LIMIT

MADE = [
    Record(
        i, 1_000_000 + i * 70, None if i % 5 == 4 else b"key%d" % i, b"value" * i, (("h", b"x"), ("n", None)) * (i % 3)
    )
    for i in range(40)
]
PLAIN = bytes(build_batch(MADE, producer_id=7, producer_epoch=1, base_sequence=0))
BUILT = [bytes(build_batch(MADE, codec=codec, producer_id=7, producer_epoch=1, base_sequence=0)) for codec in Codec]

RULES = [
    AppendRules(decompressed_limit=LIMIT),
    AppendRules(decompressed_limit=LIMIT, is_compacted=True, timestamp_before_max_ms=10**6),
    AppendRules(decompressed_limit=LIMIT, timestamp_type=TimestampType.LOG_APPEND_TIME),
]

ODD_BYTES = st.sampled_from(
    [b"\x00", b"\x01", b"\x7f", b"\x80", b"\xff", b"\xff" * 5, b"\x80" * 11, b"\xff\xff\xff\xff\x0f"]
)


@st.composite
def mutations(draw: st.DrawFn, data: bytes) -> bytes:
    mutated = bytearray(data)
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(mutated)))
        kind = draw(st.sampled_from(["overwrite", "insert", "cut", "drop", "double"]))
        piece = draw(ODD_BYTES | st.binary(min_size=1, max_size=8))
        if kind == "overwrite":
            mutated[at : at + len(piece)] = piece
        elif kind == "insert":
            mutated[at:at] = piece
        elif kind == "cut":
            del mutated[at:]
        elif kind == "drop":
            del mutated[at : at + draw(st.integers(1, 20))]
        else:
            mutated += mutated[at:]
    return bytes(mutated)


def made_plausible(data: bytes) -> bytes:
    """Return the bytes with valid length and CRC, so that only the records are damaged."""
    batch = bytearray(data)
    if len(batch) >= 61:
        batch[8:12] = (len(batch) - 12).to_bytes(4, "big")
        batch[17:21] = checksum.crc32c(memoryview(batch)[21:]).to_bytes(4, "big")
    return bytes(batch)


def bounded(reader: Callable[[], object]) -> None:
    """Run a reader, and check that it raises only `InvalidBatch`, and uses no more memory than its limit allows."""
    tracemalloc.reset_peak()
    before = tracemalloc.get_traced_memory()[0]
    with suppress(InvalidBatch):
        reader()
    assert tracemalloc.get_traced_memory()[1] - before <= PEAK


def read_everything(data: bytes) -> None:
    for rules in RULES:
        bounded(partial(check_produced, memoryview(data), rules, 1_500_000, 9))
    bounded(lambda: [batch.is_valid() for batch in batches(data)])
    bounded(lambda: [batch.is_valid() for batch in whole_batches(data)])
    bounded(lambda: sum(1 for batch in batches(data) for _ in records(batch, LIMIT)))
    bounded(lambda: sum(1 for batch in batches(data) for _ in spans(batch, LIMIT)[1]))
    bounded(lambda: repr(RecordBatch(data)))


def with_memory_counted(check: Callable[[], None]) -> None:
    tracemalloc.start()
    try:
        check()
    finally:
        tracemalloc.stop()


@given(st.sampled_from(BUILT).flatmap(mutations), st.booleans())
def test_a_damaged_batch_gives_records_or_a_refusal(data: bytes, is_plausible: bool) -> None:
    with_memory_counted(lambda: read_everything(made_plausible(data) if is_plausible else data))


@given(st.binary(max_size=300), st.integers(-3, 300), st.sampled_from(Codec))
def test_any_bytes_as_records_give_records_or_a_refusal(payload: bytes, count: int, codec: Codec) -> None:
    data = bytearray(PLAIN[:61]) + compress(codec, payload)
    data[22] = codec
    data[23:27] = (count - 1).to_bytes(4, "big", signed=True)
    data[57:61] = count.to_bytes(4, "big", signed=True)
    with_memory_counted(lambda: read_everything(made_plausible(bytes(data))))


@given(st.binary(max_size=400))
def test_any_bytes_at_all_give_batches_or_a_refusal(data: bytes) -> None:
    with_memory_counted(lambda: read_everything(data))


@given(st.sampled_from(list(Codec)[1:]), st.data())
def test_a_damaged_compressed_stream_gives_bytes_within_the_limit_or_a_refusal(
    codec: Codec, data: st.DataObject
) -> None:
    original = data.draw(
        st.builds(lambda piece, count: piece * count, st.binary(min_size=1, max_size=40), st.integers(1, 20_000))
    )
    packed = data.draw(mutations(compress(codec, original)))
    unpacked: list[bytes] = []
    with_memory_counted(lambda: bounded(lambda: unpacked.append(decompress(codec, packed, LIMIT))))
    assert all(len(data) <= LIMIT for data in unpacked)


MAGICS = [
    b"",
    b"\x1f\x8b\x08\0\0\0\0\0\0\0",
    b"\x82SNAPPY\0\0\0\0\x01\0\0\0\x01",
    b"\x04\x22\x4d\x18\x60\x40\x82",
    b"\x28\xb5\x2f\xfd",
]


@given(st.sampled_from(list(Codec)[1:]), st.sampled_from(MAGICS), st.binary(max_size=200))
def test_any_bytes_as_a_compressed_stream_give_bytes_or_a_refusal(codec: Codec, magic: bytes, rest: bytes) -> None:
    with_memory_counted(lambda: bounded(lambda: decompress(codec, magic + rest, LIMIT)))
