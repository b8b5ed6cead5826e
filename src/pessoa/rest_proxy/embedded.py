"""A JSON value ⇄ the bytes of a record's key or value, for the formats that need no schema.

JSON values travel as text: a body is decoded with its keys and values left raw, and what is raw is written to Kafka
with its spaces taken out. Numbers keep the digits that they came with, and nothing is parsed twice. On the way back a
record must be valid JSON to be put into an answer, so it is parsed once and then sent as it is.

null is a record's null in every format: a tombstone.

Formats with a schema are in record_schemas.py; they end in the same two functions' shapes.
"""

from __future__ import annotations

import base64
import binascii

import msgspec

from pessoa.rest_proxy.media import Format
from pessoa.rest_proxy.proxy_problems import bad_request, undecodable

NULL = msgspec.Raw(b"null")
_TEXT = msgspec.json.Decoder(str)
_ANY = msgspec.json.Decoder()


def is_null(value: msgspec.Raw) -> bool:
    """Whether a raw value is null or missing."""
    view = memoryview(value)
    return view.nbytes in (0, 4) and bytes(view) in (b"", b"null")


def to_bytes(kind: Format, value: msgspec.Raw) -> bytes | None:
    """Return the bytes to produce for this value. Raises the problem 400 if it is not of the format."""
    if is_null(value):
        return None
    if kind is Format.JSON:
        return msgspec.json.format(bytes(value), indent=-1)
    try:
        text = _TEXT.decode(value)
    except msgspec.ValidationError:
        raise bad_request(f"a {kind.value} key or value must be a string, not {_shorten(bytes(value))}") from None
    if kind is Format.STRING:
        return text.encode()
    return from_base64(text)


def from_base64(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as wrong:
        raise bad_request(f"{_shorten(text.encode())} is not base64: {wrong}") from None


def to_json(kind: Format, data: bytes | None) -> msgspec.Raw:
    """Return the record's bytes as JSON for a response; raise the "undecodable" problem (408) if they are not of the
    format."""
    if data is None:
        return NULL
    if kind is Format.BINARY:
        return msgspec.Raw(b'"' + base64.b64encode(data) + b'"')
    assert kind is Format.JSON, f"{kind} needs a schema"
    try:
        _ANY.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as wrong:
        raise undecodable(f"a record is not JSON: {wrong}") from None
    return msgspec.Raw(data)


def _shorten(text: bytes) -> str:
    return text.decode(errors="replace") if len(text) <= 40 else f"{text[:40].decode(errors='replace')}…"
