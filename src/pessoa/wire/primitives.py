"""The variable-length integers, and what compiled codecs call when a value is out of the ordinary.

Kafka has three of them: the unsigned varint (lengths of the flexible versions, tags), and the zigzag varint and
varlong (inside records). Seven bits a byte, lowest first, the top bit says that more follow. Compiled codecs handle
the one-byte case themselves and come here for the rest, so these functions may be plain.
"""

from __future__ import annotations

from collections.abc import Iterable
from struct import Struct

from pessoa.wire.errors import ProtocolViolation

Data = bytes | bytearray
TaggedFields = tuple[tuple[int, bytes], ...]

MIN_INT32 = -(1 << 31)
MAX_INT32 = (1 << 31) - 1
MAX_INT64 = (1 << 63) - 1

# The classic form counts a string with an int16, and Kafka keeps that bound in the compact form.
MAX_TEXT_BYTES = (1 << 15) - 1

# 32 bits in groups of seven; the fifth byte has room for four bits only.
_LAST_SHIFT = 28
_LAST_BYTE_MAX = 0x0F


def read_uvarint(data: Data, pos: int) -> tuple[int, int]:
    """The unsigned varint at `pos`, and the position behind it. Runs off the end with IndexError."""
    value = shift = 0
    while True:
        byte = data[pos]
        pos += 1
        if byte < 0x80:
            break
        value |= (byte & 0x7F) << shift
        shift += 7
        if shift > _LAST_SHIFT:
            raise ProtocolViolation("a varint is longer than five bytes")
    if shift == _LAST_SHIFT and byte > _LAST_BYTE_MAX:
        raise ProtocolViolation("a varint does not fit into 32 bits")
    return value | byte << shift, pos


def uvarint(value: int) -> bytes:
    """The bytes of an unsigned varint."""
    assert value >= 0
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def write_tagged_fields(out: bytearray, fields: Iterable[tuple[int, bytes | bytearray]]) -> None:
    """Append a section of tagged fields: their count, then tag, size and bytes of each, lowest tag first."""
    ordered = sorted(fields, key=lambda field: field[0])
    out += uvarint(len(ordered))
    for tag, data in ordered:
        out += uvarint(tag)
        out += uvarint(len(data))
        out += data


# Runs of equal integers (arrays of partition ids, broker ids) are packed in one call. Short ones, which are nearly all,
# have their packer ready.
_READY = 32


class IntegerRuns:
    """Packers and unpackers for `count` integers of one struct code."""

    __slots__ = ("_code", "_ready")

    def __init__(self, code: str) -> None:
        self._code = code
        self._ready = tuple(Struct(f">{count}{code}") for count in range(_READY))

    def __getitem__(self, count: int) -> Struct:
        return self._ready[count] if count < _READY else Struct(f">{count}{self._code}")
