"""Codecs of all formats: round trips of values, and refusal of foreign bytes with the one expected error."""

from __future__ import annotations

import decimal
import math
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pessoa.ksql.analysis.source_catalogue import FormatOptions, SchemaColumn, SourceWindow
from pessoa.ksql.operators.format_codecs import CodecFailure, KeyCodec, Side, TimeWindow, side_codec
from pessoa.ksql.operators.schema_source import AVRO, MemorySchemas
from pessoa.ksql.syntax.query_nodes import WindowKind
from pessoa.ksql.types.sql_types import (
    BIGINT,
    BOOLEAN,
    BYTES,
    DATE,
    DOUBLE,
    INTEGER,
    STRING,
    TIME,
    TIMESTAMP,
    Array,
    Decimal,
    Map,
    SqlType,
    Struct,
    Value,
)
from tests.support.ksql_texts import parse_type_text

TYPES = {
    "B": BOOLEAN, "I": INTEGER, "L": BIGINT, "D": DOUBLE, "S": STRING, "Y": BYTES, "C": Decimal(9, 3), "DT": DATE,
    "TI": TIME, "TS": TIMESTAMP,
}  # fmt: skip
NESTED = {
    "A": Array(INTEGER), "AC": Array(Decimal(4, 1)), "M": Map(STRING, BIGINT), "AS": Array(Struct((("Z", DOUBLE),))),
    "ST": Struct((("X", INTEGER), ("Y", STRING))),
}  # fmt: skip
# 0001-01-01 to 9999-12-31 is what Python's dates hold.
_DAYS, _MS = st.integers(-700_000, 2_900_000), st.integers(-62_135_596_800_000, 253_402_300_799_999)


def values_of(kind: SqlType, nulls: bool) -> st.SearchStrategy[Value]:
    found: st.SearchStrategy[Value]
    match kind:
        case Array(element):
            found = st.lists(values_of(element, nulls), max_size=3)
        case Map(_, value):
            found = st.dictionaries(st.text(max_size=4), values_of(value, nulls), max_size=3)
        case Struct(fields):
            found = st.fixed_dictionaries({name: values_of(one, nulls) for name, one in fields})
        case Decimal(precision, scale):
            limit = 10**precision - 1
            found = st.integers(-limit, limit).map(lambda number: decimal.Decimal(number).scaleb(-scale))
        case _:
            found = _PRIMITIVES[kind]
    return st.none() | found if nulls else found


_PRIMITIVES: dict[SqlType, st.SearchStrategy[Value]] = {
    BOOLEAN: st.booleans(),
    INTEGER: st.integers(-(2**31), 2**31 - 1),
    BIGINT: st.integers(-(2**63), 2**63 - 1),
    DOUBLE: st.floats(allow_nan=False),
    STRING: st.text(max_size=8),
    BYTES: st.binary(max_size=8),
    DATE: _DAYS,
    TIME: st.integers(0, 86_399_999),
    TIMESTAMP: _MS,
}


def columns(kinds: dict[str, SqlType]) -> tuple[SchemaColumn, ...]:
    return tuple(SchemaColumn(name, kind) for name, kind in kinds.items())


def rows(kinds: dict[str, SqlType], nulls: bool) -> st.SearchStrategy[list[Value]]:
    return st.tuples(*(values_of(kind, nulls) for kind in kinds.values())).map(list)


@pytest.mark.parametrize("form", ["JSON", "JSON_SR", "AVRO"])
def test_formats_with_nested_types_decode_to_the_encoded_values(form: str) -> None:
    kinds = TYPES | NESTED
    codec = side_codec(Side("t", False, form, columns(kinds)), MemorySchemas())

    @settings(max_examples=60, deadline=None)
    @given(rows(kinds, nulls=True))
    def there_and_back(values: list[Value]) -> None:
        assert codec.decode(codec.encode(values)) == values

    there_and_back()


@pytest.mark.parametrize("form", ["PROTOBUF", "PROTOBUF_NOSR"])
@pytest.mark.parametrize("nullable", [None, "OPTIONAL", "WRAPPER"])
def test_protobuf_decodes_to_the_encoded_values(form: str, nullable: str | None) -> None:
    kinds = TYPES | NESTED
    codec = side_codec(Side("t", False, form, columns(kinds), FormatOptions(nullable=nullable)), MemorySchemas())

    @settings(max_examples=40, deadline=None)
    @given(rows(kinds, nulls=False))
    def there_and_back(values: list[Value]) -> None:
        assert codec.decode(codec.encode(values)) == values

    there_and_back()
    empty = codec.decode(codec.encode([None] * len(kinds)))
    assert empty is not None
    # Numbers and text are null again only if they say whether they are there.
    assert (empty[1] is None) is (nullable is not None)
    assert empty[list(kinds).index("ST")] is None


@settings(max_examples=100, deadline=None)
@given(rows(TYPES, nulls=True))
def test_delimited_decodes_to_the_encoded_values(values: list[Value]) -> None:
    codec = side_codec(Side("t", False, "DELIMITED", columns(TYPES)), MemorySchemas())
    # An empty field is null, so empty text is.
    expected = [None if value in ("", b"") else value for value in values]
    assert codec.decode(codec.encode(values)) == expected


@pytest.mark.parametrize("kind", [INTEGER, BIGINT, DOUBLE, STRING])
def test_the_kafka_format_decodes_to_the_encoded_values(kind: SqlType) -> None:
    codec = side_codec(Side("t", True, "KAFKA", (SchemaColumn("K", kind),)), MemorySchemas())

    @settings(max_examples=40, deadline=None)
    @given(values_of(kind, nulls=True))
    def there_and_back(value: Value) -> None:
        assert codec.decode(codec.encode([value])) == (None if value is None else [value])

    there_and_back()


@pytest.mark.parametrize("form", ["JSON", "JSON_SR", "AVRO", "PROTOBUF", "PROTOBUF_NOSR", "DELIMITED", "KAFKA"])
def test_arbitrary_bytes_are_decoded_or_raise_codec_failure(form: str) -> None:
    kinds: dict[str, SqlType] = TYPES if form == "DELIMITED" else {"S": STRING} if form == "KAFKA" else TYPES | NESTED
    schemas = MemorySchemas()
    codec = side_codec(Side("t", False, form, columns(kinds)), schemas)
    sample = codec.encode([_sample(kind) for kind in kinds.values()])
    assert sample is not None

    @settings(max_examples=200, deadline=None)
    @given(st.binary(max_size=40), st.integers(0, len(sample)), st.integers(0, len(sample)))
    def read(data: bytes, start: int, end: int) -> None:
        for mutated in (data, sample[:start] + data + sample[end:]):
            with suppress(CodecFailure):
                codec.decode(mutated)

    read()


def _sample(kind: SqlType) -> Value:
    match kind:
        case Array(element):
            return [_sample(element)]
        case Map(_, value):
            return {"k": _sample(value)}
        case Struct(fields):
            return {name: _sample(one) for name, one in fields}
        case Decimal(_, scale):
            return decimal.Decimal(5).scaleb(-scale)
    return {BOOLEAN: True, DOUBLE: 1.5, STRING: "text", BYTES: b"12"}.get(kind, 7)  # type: ignore[call-overload, no-any-return]


def test_infinities_are_encoded_as_text_in_json() -> None:
    codec = side_codec(Side("t", False, "JSON", (SchemaColumn("D", DOUBLE),)), MemorySchemas())
    for value in (math.inf, -math.inf):
        assert codec.decode(codec.encode([value])) == [value]
    (found,) = codec.decode(codec.encode([math.nan])) or []
    assert isinstance(found, float)
    assert math.isnan(found)


@pytest.mark.parametrize(
    ("window", "bounds"),
    [
        (SourceWindow(WindowKind.TUMBLING, 10), TimeWindow(20, 30)),
        (SourceWindow(WindowKind.HOPPING, 10), TimeWindow(5, 15)),
        (SourceWindow(WindowKind.SESSION), TimeWindow(3, 8)),
    ],
)
def test_windowed_keys_are_encoded_with_the_window_at_their_end(window: SourceWindow, bounds: TimeWindow) -> None:
    inner = side_codec(Side("t", True, "KAFKA", (SchemaColumn("K", STRING),)), MemorySchemas())
    codec = KeyCodec(inner, window)
    key = codec.encode(["k"], bounds)
    start, end = bounds
    tail = start.to_bytes(8, "big")
    if window.kind is WindowKind.SESSION:
        tail = end.to_bytes(8, "big") + tail
    assert tuple(key) == (b"k" + tail, b"k")
    assert codec.decode(key.key) == (("k",), bounds)
    with pytest.raises(CodecFailure):
        codec.decode(b"short")


def test_avro_is_written_with_the_schema_that_a_source_names() -> None:
    schemas = MemorySchemas()
    fields = '{"name": "first", "type": "string"}, {"name": "n", "type": ["null", "long"]}'
    text = f'{{"type": "record", "name": "Own", "fields": [{fields}]}}'
    schema_id = schemas.register("t-value", AVRO, text)
    kinds = columns({"FIRST": STRING, "N": BIGINT})
    codec = side_codec(Side("t", False, "AVRO", kinds, FormatOptions(schema_id=schema_id)), schemas)
    data = codec.encode(["x", 5])
    assert data is not None
    assert data[:5] == b"\0" + schema_id.to_bytes(4, "big")
    assert codec.decode(data) == ["x", 5]
    # The schema has no null there.
    with pytest.raises(CodecFailure):
        codec.encode([None, 5])


def test_nested_types_of_any_depth_are_read_from_json() -> None:
    kind = parse_type_text("ARRAY<MAP<STRING, STRUCT<A ARRAY<DECIMAL(3, 1)>>>>")
    codec = side_codec(Side("t", False, "JSON", (SchemaColumn("X", kind),)), MemorySchemas())
    found = codec.decode(b'{"x": [{"k": {"a": [1.5, null, "2"]}}, null]}')
    assert found == [[{"k": {"A": [decimal.Decimal("1.5"), None, decimal.Decimal("2.0")]}}, None]]


@pytest.mark.parametrize("kind", [INTEGER, BIGINT, DATE, TIMESTAMP, Decimal(38, 2)])
def test_a_number_of_a_thousand_million_digits_is_refused_at_once(kind: SqlType) -> None:
    codec = side_codec(Side("t", False, "JSON", (SchemaColumn("X", kind),)), MemorySchemas())
    for text in (b'{"X": 1e999999999}', b'{"X": -1e999999999}', b'{"X": "1e999999999"}'):
        with pytest.raises(CodecFailure):
            codec.decode(text)


def test_a_protobuf_decimal_with_an_extreme_scale_or_size_is_refused() -> None:
    codec = side_codec(Side("t", False, "PROTOBUF_NOSR", (SchemaColumn("X", Decimal(9, 3)),)), MemorySchemas())

    def message(value: bytes, scale: int) -> bytes:
        inner = b"\x0a" + _varint(len(value)) + value + b"\x18" + _varint(scale & (2**64 - 1))
        return b"\x0a" + _varint(len(inner)) + inner

    assert codec.decode(message(b"\x05", 1)) == [decimal.Decimal("0.500")]
    for value, scale in ((b"\x05", 2**31 - 1), (b"\x05", -(2**31)), (b"\x05" * 1_000_000, 3)):
        with pytest.raises(CodecFailure):
            codec.decode(message(value, scale))


def _varint(number: int) -> bytes:
    found = bytearray()
    while number > 127:
        found.append(number & 127 | 128)
        number >>= 7
    return bytes([*found, number])
