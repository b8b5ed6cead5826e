"""Embedded formats: JSON values of requests and the bytes of records."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pessoa.rest_proxy.embedded import to_bytes, to_json
from pessoa.rest_proxy.media import Format
from pessoa.web.problems import HttpProblem

texts = st.text(max_size=10)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=8,
)


def raw(text: str) -> msgspec.Raw:
    return msgspec.Raw(text.encode())


@given(values)
def test_embedded_json_is_returned_as_it_was_produced(value: Any) -> None:
    written = to_bytes(Format.JSON, raw(json.dumps(value, indent=2)))
    if value is None:
        assert written is None
    else:
        assert written is not None
        assert json.loads(written) == value
    assert json.loads(bytes(to_json(Format.JSON, written))) == value


@given(st.binary())
def test_embedded_binary_is_base64_in_both_directions(data: bytes) -> None:
    assert to_bytes(Format.BINARY, to_json(Format.BINARY, data)) == data


@pytest.mark.parametrize("text", ['"a"', '"ab==x"', "1", "[]", '"é"', '"AAA"'])
def test_invalid_base64_is_answered_with_status_400(text: str) -> None:
    with pytest.raises(HttpProblem) as failure:
        to_bytes(Format.BINARY, raw(text))
    assert (failure.value.status, failure.value.code) == (400, 400)


@pytest.mark.parametrize("data", [b"", b"{", b"\xff", b"nul", b'{"a":1}x', b"[" * 100_000])
def test_a_record_that_is_not_json_is_answered_with_error_40801(data: bytes) -> None:
    with pytest.raises(HttpProblem) as failure:
        to_json(Format.JSON, data)
    assert (failure.value.status, failure.value.code) == (408, 40801)


def test_null_is_null_in_every_format() -> None:
    for kind in (Format.JSON, Format.BINARY, Format.STRING):
        assert to_bytes(kind, raw("null")) is None
        assert to_bytes(kind, msgspec.Raw()) is None
