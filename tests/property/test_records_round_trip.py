"""Round trips of records through a batch, with the same bytes as a second, deliberately simple encoder.

The simple one below follows the tables at the head of `pessoa.records.batch` and `pessoa.records.record` field by
field, with none of the caches, shortcuts and joins of the real one.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st

from pessoa.records import checksum
from pessoa.records.batch import RecordBatch, batches
from pessoa.records.batch_validation import UNBOUNDED_MS, AppendRules, check_produced
from pessoa.records.builder import build_batch
from pessoa.records.compression import Codec, compress, decompress
from pessoa.records.record import Record, records, spans
from pessoa.records.stamping import stamp, stamp_log_append_time

if TYPE_CHECKING:
    from collections.abc import Sequence

names = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
values = st.none() | st.binary(max_size=200) | st.binary(min_size=120, max_size=140)
headers = st.lists(st.tuples(names, st.none() | st.binary(max_size=20)), max_size=4).map(tuple)
timestamps = st.integers(-1, 2**42) | st.integers(-(2**62), 2**62)
gaps = st.integers(1, 3) | st.integers(1, 2**20)


@st.composite
def record_lists(draw: st.DrawFn, *, has_gaps: bool = True, min_size: int = 1) -> list[Record]:
    offset = draw(st.integers(0, 2**62)) if has_gaps else 0
    made = []
    for _ in range(draw(st.integers(min_size, 12))):
        made.append(Record(offset, draw(timestamps), draw(values), draw(values), draw(headers)))
        offset += draw(gaps) if has_gaps else 1
    return made


def dumb_varint(value: int) -> bytes:
    raw = 2 * value if value >= 0 else -2 * value - 1
    if raw < 128:
        return bytes([raw])
    groups = []
    while raw:
        groups.append(raw % 128)
        raw //= 128
    return bytes([group + 128 for group in groups[:-1]] + groups[-1:])


def dumb_sized(value: bytes | None) -> bytes:
    return dumb_varint(-1) if value is None else dumb_varint(len(value)) + value


def dumb_batch(made: Sequence[Record]) -> bytes:
    body = b""
    for record in made:
        parts = b"\x00"
        parts += dumb_varint(record.timestamp - made[0].timestamp)
        parts += dumb_varint(record.offset - made[0].offset)
        parts += dumb_sized(record.key)
        parts += dumb_sized(record.value)
        parts += dumb_varint(len(record.headers))
        for name, value in record.headers:
            parts += dumb_sized(name.encode("utf-8"))
            parts += dumb_sized(value)
        body += dumb_varint(len(parts)) + parts
    covered = struct.pack(">h", 0)
    covered += struct.pack(">i", made[-1].offset - made[0].offset)
    covered += struct.pack(">q", made[0].timestamp)
    covered += struct.pack(">q", max(record.timestamp for record in made))
    covered += struct.pack(">q", -1)
    covered += struct.pack(">h", -1)
    covered += struct.pack(">i", -1)
    covered += struct.pack(">i", len(made))
    covered += body
    after_length = struct.pack(">ib", -1, 2) + struct.pack(">I", checksum.crc32c(covered)) + covered
    return struct.pack(">qi", made[0].offset, len(after_length)) + after_length


@given(record_lists())
def test_the_builder_writes_the_same_bytes_as_a_simple_encoder(made: list[Record]) -> None:
    assert bytes(build_batch(made)) == dumb_batch(made)


@given(record_lists(), st.sampled_from(Codec), st.none() | st.integers(0, 2**42))
def test_records_are_decoded_from_every_codec(made: list[Record], codec: Codec, delete_horizon_ms: int | None) -> None:
    batch = RecordBatch(build_batch(made, codec=codec, delete_horizon_ms=delete_horizon_ms))
    assert batch.is_valid()
    assert list(records(batch)) == made
    assert batch.delete_horizon_ms == delete_horizon_ms


@given(record_lists(), st.sampled_from(Codec))
def test_record_spans_agree_with_decoded_records(made: list[Record], codec: Codec) -> None:
    batch = RecordBatch(build_batch(made, codec=codec))
    data, found = spans(batch)
    assert [
        (
            batch.base_offset + span.offset_delta,
            batch.base_timestamp + span.timestamp_delta,
            data[span.key_start : span.key_end] if span.key_end >= span.key_start else None,
            data[span.value_start : span.value_end] if span.value_end >= span.value_start else None,
            span.headers_count,
        )
        for span in found
    ] == [(r.offset, r.timestamp, r.key, r.value, len(r.headers)) for r in made]


@given(
    record_lists(has_gaps=False),
    st.sampled_from(Codec),
    st.integers(0, 2**62),
    st.integers(0, 2**31 - 1),
    st.none() | st.integers(0, 2**42),
)
def test_a_produced_batch_is_validated_stamped_and_read_at_its_offset(
    made: list[Record], codec: Codec, base_offset: int, leader_epoch: int, log_append_time: int | None
) -> None:
    data = build_batch(made, codec=codec, producer_id=5, producer_epoch=0, base_sequence=2**31 - 4)
    batch = check_produced(memoryview(data), AppendRules(timestamp_after_max_ms=UNBOUNDED_MS), 0, 13)
    stamp(batch, base_offset, leader_epoch)
    if log_append_time is not None:
        stamp_log_append_time(batch, log_append_time)
    read = RecordBatch(bytes(data))
    assert read.is_valid()
    assert (read.base_offset, read.partition_leader_epoch) == (base_offset, leader_epoch)
    assert read.next_offset == base_offset + len(made)
    assert list(records(read)) == [
        record._replace(
            offset=base_offset + record.offset,
            timestamp=record.timestamp if log_append_time is None else log_append_time,
        )
        for record in made
    ]


@given(st.lists(record_lists(), min_size=1, max_size=5), st.data())
def test_a_batch_walk_finds_the_whole_batches_and_the_start_of_an_incomplete_one(
    groups: list[list[Record]], data: st.DataObject
) -> None:
    built = [bytes(build_batch(group)) for group in groups]
    log = b"".join(built)
    size = data.draw(st.integers(0, len(log)))
    walk = batches(log[:size])
    whole: list[bytes] = []
    for batch in built:
        if len(b"".join(whole)) + len(batch) > size:
            break
        whole.append(batch)
    assert [bytes(batch.view) for batch in walk] == whole
    assert walk.end == len(b"".join(whole))
    assert walk.has_partial_tail == (walk.end < size)


@given(
    st.sampled_from(Codec),
    st.binary(max_size=2_000)
    | st.builds(lambda piece, count: piece * count, st.binary(min_size=1, max_size=50), st.integers(1, 8_000)),
)
def test_compressed_bytes_are_decompressed_with_a_limit_of_exactly_their_size(codec: Codec, data: bytes) -> None:
    packed = compress(codec, data)
    assert decompress(codec, packed) == data
    assert decompress(codec, packed, limit=len(data)) == data
