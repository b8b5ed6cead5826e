"""JSON in every encoding of Unicode, in one piece and in chunks."""

from __future__ import annotations

import codecs
import json

import pytest

from pessoa.web.json_charset import Utf8Stream, as_utf8

TEXTS = ('{"a":"ä€𝄞"}', "[1]", "7", '""', "{ }")
ENCODINGS = {
    "utf-8": codecs.BOM_UTF8,
    "utf-16-be": codecs.BOM_UTF16_BE,
    "utf-16-le": codecs.BOM_UTF16_LE,
    "utf-32-be": codecs.BOM_UTF32_BE,
    "utf-32-le": codecs.BOM_UTF32_LE,
}


@pytest.mark.parametrize("with_mark", [True, False])
@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("text", TEXTS)
def test_json_is_decoded_in_every_encoding(text: str, encoding: str, with_mark: bool) -> None:
    body = (ENCODINGS[encoding] if with_mark else b"") + text.encode(encoding)
    assert as_utf8(body) == text.encode()
    for size in (1, 3, 1000):
        stream = Utf8Stream()
        parts = [stream.feed(body[start : start + size]) for start in range(0, len(body), size)]
        assert b"".join((*parts, stream.end())) == text.encode()


@pytest.mark.parametrize("body", [b"", b"{", b"\xff", json.dumps({"a": "b"}).encode("latin-1")])
def test_json_in_utf_8_is_left_unchanged(body: bytes) -> None:
    assert as_utf8(body) == body


@pytest.mark.parametrize("body", ["{}".encode("utf-16-le") + b"x", b"\xfe\xff\xd8\x00", b"\0\0\0{\0\0"])
def test_json_that_breaks_its_encoding_is_an_error(body: bytes) -> None:
    with pytest.raises(UnicodeDecodeError):
        as_utf8(body)
    stream = Utf8Stream()
    with pytest.raises(UnicodeDecodeError):
        _ = stream.feed(body) + stream.end()
