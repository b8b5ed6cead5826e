"""The variable-length integers, and what compiled codecs call when a value is out of the ordinary.

Kafka has three of them: the unsigned varint (lengths of the flexible versions, tags), and the zigzag varint and
varlong (inside records). Seven bits a byte, lowest first, the top bit says that more follow. Compiled codecs handle
the one-byte case themselves and come here for the rest, so these functions may be plain.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from struct import Struct

from pessoa.wire.errors import ProtocolViolation

Data = bytes | bytearray
TaggedFields = tuple[tuple[int, bytes], ...]

MIN_INT32 = -(1 << 31)
MAX_INT32 = (1 << 31) - 1
MAX_INT64 = (1 << 63) - 1

# The classic form counts a string with an int16, and Kafka keeps that bound in the compact form.
MAX_TEXT_BYTES = (1 << 15) - 1

# What a request may name in all. A follower that fetches every partition of a large cluster names some ten thousand;
# a hundred thousand take a broker about a second.
MAX_REQUEST_ITEMS = 100_000
# For what is no request.
UNBOUNDED_ITEMS = 1 << 32

# 32 bits in groups of seven; the fifth byte has room for four bits only.
_LAST_SHIFT = 28
_LAST_BYTE_MAX = 0x0F


def read_uvarint(data: Data, pos: int) -> tuple[int, int]:
    """Return the unsigned varint at `pos`, and the position behind it. Raises IndexError if the data ends within it."""
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


def read_tagged_fields(
    data: Data, pos: int, end: int, count: int, left: int, title: str
) -> tuple[TaggedFields, int, int]:
    """Return the tagged fields of a struct that declares none, the position behind them, and how many more elements
    the request may have. `count` is the first byte of the number of fields, and `pos` is the position behind it."""
    if count > 0x7F:
        count, pos = read_uvarint(data, pos - 1)
    if count > (end - pos) >> 1:
        raise ProtocolViolation(f"{title} claims more tagged fields than there are bytes")
    left -= count
    if left < 0:
        raise ProtocolViolation(f"{title} has more than {MAX_REQUEST_ITEMS} elements")
    found = []
    for _ in range(count):
        tag, pos = read_uvarint(data, pos)
        size, pos = read_uvarint(data, pos)
        stop = pos + size
        if stop > end:
            raise ProtocolViolation(f"{title} has a tagged field past its end")
        found.append((tag, bytes(data[pos:stop])))
        pos = stop
    return tuple(found), pos, left


def uvarint(value: int) -> bytes:
    """Return the bytes of an unsigned varint."""
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


# Arrays of integers (partition ids, broker ids) are packed in one call, with a packer per count. Short ones, which are
# nearly all, keep theirs; for the others nothing is remembered, since a peer may choose the count.
_KEPT_LENGTH = 32
_KEPT_PACKERS = 256


class ArrayPackers(dict[int | tuple[int, ...], Callable[..., bytes]]):
    """`pack` of a run with arrays of integers in it, by their lengths as they stand on the wire.

    `arrays` has for each array the struct codes that stand before its items, its own length last, and the code of an
    item; `tail` has what follows them all. A length exceeds the count by `extra`, which is 1 in the compact form.
    It is a dict that fills itself, because a hit in a dict costs no Python call.
    """

    def __init__(self, arrays: tuple[tuple[str, str], ...], tail: str, extra: int) -> None:
        self.arrays = arrays
        self.tail = tail
        self.extra = extra

    def __missing__(self, key: int | tuple[int, ...]) -> Callable[..., bytes]:
        lengths = key if isinstance(key, tuple) else (key,)
        codes = [
            f"{before}{max(0, length - self.extra)}{code}"
            for (before, code), length in zip(self.arrays, lengths, strict=True)
        ]
        pack = Struct(f">{''.join(codes)}{self.tail}").pack
        if max(lengths) < _KEPT_LENGTH and len(self) < _KEPT_PACKERS:
            self[key] = pack
        return pack


class ArrayUnpackers(dict[int, Callable[[Data, int], tuple[int, ...]]]):
    """A cache: for each number of integers, the `unpack_from` that reads so many."""

    def __init__(self, code: str) -> None:
        self.code = code

    def __missing__(self, count: int) -> Callable[[Data, int], tuple[int, ...]]:
        unpack = Struct(f">{count}{self.code}").unpack_from
        if count < _KEPT_LENGTH:
            self[count] = unpack
        return unpack
