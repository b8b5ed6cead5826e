"""Cutting a stream of JSON values: the same values come out however the stream is chunked."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pessoa.rest_proxy.json_stream import JsonCutter, NotAnObject, TooLong

texts = st.text(max_size=6)
values = st.recursive(
    st.none() | st.integers() | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)
objects = st.dictionaries(texts, values, max_size=3)
streams = st.lists(objects, max_size=4)


def cut(chunks: list[bytes], max_bytes: int = 1 << 20) -> list[bytes]:
    cutter = JsonCutter(max_bytes)
    found = [value for chunk in chunks for value in cutter.feed(chunk)]
    assert cutter.is_between_values
    return found


@given(streams, st.sampled_from(["", " ", "\n", "\r\n\t "]), st.booleans(), st.data())
def test_json_values_are_parsed_wherever_the_chunks_of_a_stream_end(
    written: list[dict[str, Any]], between: str, is_ascii: bool, data: st.DataObject
) -> None:
    stream = between.join(json.dumps(each, ensure_ascii=is_ascii) for each in written).encode("utf-8", "surrogatepass")
    places = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=8)))
    chunks = [stream[start:end] for start, end in zip([0, *places], [*places, len(stream)], strict=True)]
    assert [json.loads(each) for each in cut(chunks)] == written


@given(streams)
def test_an_array_of_objects_is_a_stream_of_them(written: list[dict[str, Any]]) -> None:
    stream = json.dumps(written).encode()
    assert [
        json.loads(each) for each in cut([stream[index : index + 3] for index in range(0, len(stream), 3)])
    ] == written


@pytest.mark.parametrize("garbage", [b"x", b"1", b'"text"', b"}", b"]", b"null", b"{}x"])
def test_a_value_that_is_no_object_ends_the_stream(garbage: bytes) -> None:
    cutter = JsonCutter(100)
    assert list(cutter.feed(b'{"a":1} ')) == [b'{"a":1}']
    with pytest.raises(NotAnObject):
        list(cutter.feed(garbage))


def test_complete_values_before_invalid_bytes_are_returned() -> None:
    values = JsonCutter(100).feed(b'{"a":1}{"b":2}garbage')
    assert [next(values), next(values)] == [b'{"a":1}', b'{"b":2}']
    with pytest.raises(NotAnObject):
        next(values)


def test_a_value_that_exceeds_the_limit_is_refused_before_its_end() -> None:
    cutter = JsonCutter(10)
    list(cutter.feed(b'{"a":"xxx'))
    with pytest.raises(TooLong):
        list(cutter.feed(b"xxxxxxxxx"))


def test_a_stream_that_ends_within_a_value_is_an_error() -> None:
    cutter = JsonCutter(100)
    list(cutter.feed(b'{} {"a"'))
    assert not cutter.is_between_values
