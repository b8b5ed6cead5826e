"""Kafka's own serialisers for simple types: what Java's StringSerializer, IntegerSerializer, … write.

Numbers are big-endian and of fixed size; a null is no bytes at all, and stays None both ways.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, NamedTuple
from uuid import UUID

from pessoa.serde.schema_problems import DataProblem


class Serde(NamedTuple):
    # Each kind takes values of its own type; DataProblem, TypeError or ValueError for any other.
    encode: Callable[[Any], bytes]
    decode: Callable[[bytes], Any]


def _number(form: str, kind: str) -> Serde:
    layout = struct.Struct(form)

    def encode(value: float) -> bytes:
        try:
            return layout.pack(value)
        except struct.error:
            raise DataProblem(f"{value!r} is not a {kind}") from None

    def decode(data: bytes) -> float:
        if len(data) != layout.size:
            raise DataProblem(f"a {kind} has {layout.size} bytes, these are {len(data)}")
        number: float = layout.unpack(data)[0]
        return number

    return Serde(encode, decode)


def _decode_string(data: bytes) -> str:
    try:
        return bytes(data).decode()
    except UnicodeDecodeError as wrong:
        raise DataProblem(f"not UTF-8: {wrong.reason} at byte {wrong.start}") from None


def _decode_uuid(data: bytes) -> UUID:
    try:
        return UUID(_decode_string(data))
    except ValueError:
        raise DataProblem(f"{bytes(data)!r} is no UUID") from None


SERDES: dict[str, Serde] = {
    "string": Serde(lambda value: str(value).encode(), _decode_string),
    "bytes": Serde(bytes, bytes),
    "short": _number(">h", "short"),
    "integer": _number(">i", "integer"),
    "long": _number(">q", "long"),
    "float": _number(">f", "float"),
    "double": _number(">d", "double"),
    "boolean": Serde(lambda value: b"\1" if value else b"\0", lambda data: data == b"\1"),
    "uuid": Serde(lambda value: str(value).encode(), _decode_uuid),
}


def encode(kind: str, value: object) -> bytes | None:
    return None if value is None else SERDES[kind].encode(value)


def decode(kind: str, data: bytes | None) -> object:
    return None if data is None else SERDES[kind].decode(data)
