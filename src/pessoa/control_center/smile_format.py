"""Values in Smile, Jackson's binary JSON (its format specification 1.0.6), as plain data.

    3A 29 0A, a byte of flags         :)\\n; 0x01 names are shared, 0x02 short texts are shared
    then one value, and perhaps FF    a byte says the kind, and for short values the length or the value itself

Names and texts that came before are named again by their number, of at most 1024; a full table begins anew. A VInt has
seven bits in each byte but the last, which has its high bit set and six. Records are hostile: nesting is bounded, and
lengths are checked against the bytes that are there. Pure.
"""

from __future__ import annotations

import math
import struct

from pessoa.base.json_value import JsonValue
from pessoa.control_center.binary_formats import MAX_DEPTH, BadBinary

HEADER = b":)\n"
_SHARED_NAMES, _SHARED_TEXTS = 1, 2
_TABLE = 1024
_EXACT = 1 << 53
_END = 0xFC


def decode_smile(data: bytes) -> JsonValue:
    """Return the one value that `data` encodes. Raises `BadBinary`."""
    if data[:3] != HEADER or len(data) < 5:
        raise BadBinary("it does not begin with :)")
    reader = _Smile(data)
    found = reader.value(reader.byte(), 0)
    if reader.at < len(data) and data[reader.at :] != b"\xff":
        raise BadBinary(f"{len(data) - reader.at} bytes follow the value")
    return found


class _Smile:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._flags = data[3]
        self.at = 4
        self._names: list[str] = []
        self._texts: list[str] = []

    def __repr__(self) -> str:
        return f"<_Smile at {self.at} of {len(self._data)}>"

    def byte(self) -> int:
        return self._take(1)[0]

    def _take(self, count: int) -> bytes:
        if count > len(self._data) - self.at:
            raise BadBinary(f"{count} bytes are wanted at {self.at}, and {len(self._data) - self.at} are there")
        found = self._data[self.at : self.at + count]
        self.at += count
        return found

    def value(self, kind: int, depth: int) -> JsonValue:
        if depth > MAX_DEPTH:
            raise BadBinary(f"values are nested deeper than {MAX_DEPTH}")
        if 0x01 <= kind <= 0x1F:
            return self._shared_at(self._texts, kind - 1)
        if 0x40 <= kind <= 0xBF:
            least = (1, 33, 2, 34)[(kind - 0x40) >> 5]
            return self._shared_text(self._take((kind & 0x1F) + least))
        if 0xC0 <= kind <= 0xDF:
            return _unzigzag(kind & 0x1F)
        if 0xEC <= kind <= 0xEF:
            return self._shared_at(self._texts, (kind & 3) << 8 | self.byte())
        if kind == 0xF8:
            return self._array(depth)
        if kind == 0xFA:
            return self._object(depth)
        return self._literal(kind)

    def _literal(self, kind: int) -> JsonValue:
        match kind:
            case 0x20:
                return ""
            case 0x21:
                return None
            case 0x22 | 0x23:
                return kind == 0x23
            case 0x24 | 0x25:
                return _json_integer(_unzigzag(self._vint()))
            case 0x26:
                return _json_integer(int.from_bytes(self._seven_bits(), "big", signed=True))
            case 0x28:
                return _json_float(struct.unpack(">f", (self._groups(5) & 0xFFFFFFFF).to_bytes(4, "big"))[0])
            case 0x29:
                return _json_float(struct.unpack(">d", (self._groups(10) & (1 << 64) - 1).to_bytes(8, "big"))[0])
            case 0x2A:
                scale = _unzigzag(self._vint())
                return f"{int.from_bytes(self._seven_bits(), 'big', signed=True)}E{-scale}"
            case 0xE0 | 0xE4:
                return _utf8(self._until_end())
            case 0xE8:
                return self._seven_bits().hex(" ")
            case 0xFD:
                return self._take(self._vint()).hex(" ")
        raise BadBinary(f"the byte {kind:#04x} begins no value")

    def _array(self, depth: int) -> JsonValue:
        found: list[JsonValue] = []
        while (kind := self.byte()) != 0xF9:
            found.append(self.value(kind, depth + 1))
        return found

    def _object(self, depth: int) -> JsonValue:
        found: dict[str, JsonValue] = {}
        while (kind := self.byte()) != 0xFB:
            name = self._name(kind)
            found[name] = self.value(self.byte(), depth + 1)
        return found

    def _name(self, kind: int) -> str:
        if kind == 0x20:
            return ""
        if 0x30 <= kind <= 0x33:
            return self._shared_at(self._names, (kind & 3) << 8 | self.byte())
        if kind == 0x34:
            return _utf8(self._until_end())
        if 0x40 <= kind <= 0x7F:
            return self._shared_at(self._names, kind & 0x3F)
        if 0x80 <= kind <= 0xF7:
            size = (kind & 0x3F) + 1 if kind < 0xC0 else (kind & 0x3F) + 2
            name = _utf8(self._take(size))
            if self._flags & _SHARED_NAMES:
                _remember(self._names, name)
            return name
        raise BadBinary(f"the byte {kind:#04x} begins no name")

    def _shared_text(self, data: bytes) -> str:
        text = _utf8(data)
        if self._flags & _SHARED_TEXTS and len(data) <= 64:
            _remember(self._texts, text)
        return text

    def _shared_at(self, table: list[str], number: int) -> str:
        if number >= len(table):
            raise BadBinary(f"number {number} was not shared before")
        return table[number]

    def _vint(self) -> int:
        found = 0
        for _ in range(10):
            one = self.byte()
            if one & 0x80:
                return found << 6 | one & 0x3F
            found = found << 7 | one
        raise BadBinary("a number has no end")

    def _groups(self, count: int) -> int:
        found = 0
        for one in self._take(count):
            found = found << 7 | one & 0x7F
        return found

    def _seven_bits(self) -> bytes:
        """Return the bytes that are encoded in the low seven bits of more bytes; the last has the remaining bits."""
        size = self._vint()
        spread = self._take(-(-size * 8 // 7))
        if not size:
            return b""
        last_bits = size * 8 - 7 * (len(spread) - 1)
        bits = 0
        for one in spread[:-1]:
            bits = bits << 7 | one & 0x7F
        return (bits << last_bits | spread[-1] & (1 << last_bits) - 1).to_bytes(size, "big")

    def _until_end(self) -> bytes:
        end = self._data.find(_END, self.at)
        if end < 0:
            raise BadBinary("a long text has no end")
        found = self._take(end - self.at)
        self.at += 1
        return found


def _remember(table: list[str], text: str) -> None:
    if len(table) == _TABLE:
        table.clear()
    table.append(text)


def _unzigzag(number: int) -> int:
    return number >> 1 ^ -(number & 1)


def _json_integer(number: int) -> JsonValue:
    return number if abs(number) <= _EXACT else str(number)


def _json_float(number: float) -> JsonValue:
    return number if math.isfinite(number) else str(number)


def _utf8(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise BadBinary("a text is not UTF-8") from None
