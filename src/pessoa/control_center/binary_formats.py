"""Values in CBOR (RFC 8949) and XML as plain data, for records that come without a schema.

    CBOR   decoded here: integers, floats, bytes (hexadecimal), texts, arrays, maps, tags (their content), null
    XML    {"order": {"@id": "7", "amount": "12.50", "#text": …}}; elements of one name become a list

Records are hostile: nesting is bounded, lengths are checked against the bytes that are there before anything is made,
and a document type declaration is refused, since entities can grow without bound. Pure.
"""

from __future__ import annotations

import math
import struct
from xml.parsers import expat

from pessoa.base.json_value import JsonValue

MAX_DEPTH = 100
# Integers that JSON's readers keep exactly; larger ones become texts.
_EXACT = 1 << 53
_BREAK = object()


class BadBinary(ValueError):
    """The bytes are not of this format; the sentence says where they are wrong."""


def decode_cbor(data: bytes) -> JsonValue:
    """Return the one item that `data` encodes. Raises `BadBinary`."""
    reader = _Cbor(data)
    found = reader.item(0)
    if reader.at != len(data):
        raise BadBinary(f"{len(data) - reader.at} bytes follow the item")
    assert found is not _BREAK
    return found  # type: ignore[return-value]


class _Cbor:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self.at = 0

    def __repr__(self) -> str:
        return f"<_Cbor at {self.at} of {len(self._data)}>"

    def item(self, depth: int, *, may_break: bool = False) -> object:
        if depth > MAX_DEPTH:
            raise BadBinary(f"items are nested deeper than {MAX_DEPTH}")
        first = self._take(1)[0]
        kind, small = first >> 5, first & 31
        if kind == 7:
            return self._simple_value(small, may_break)
        length = self._number(small)
        match kind:
            case 0:
                return self._integer(small, length)
            case 1:
                return self._integer(small, -1 - (length or 0))
            case 2:
                return (self._pieces(2) if length is None else self._take(length)).hex(" ")
            case 3:
                return _utf8(self._pieces(3) if length is None else self._take(length))
            case 4:
                return self._array(length, depth)
            case 5:
                return self._map(length, depth)
        if small == 31:
            raise BadBinary("a tag has no indefinite length")
        return self.item(depth + 1)

    def _take(self, count: int) -> bytes:
        if count > len(self._data) - self.at:
            raise BadBinary(f"{count} bytes are wanted at {self.at}, and {len(self._data) - self.at} are there")
        found = self._data[self.at : self.at + count]
        self.at += count
        return found

    def _number(self, small: int) -> int | None:
        """Return the argument of an item's head; None for an indefinite length."""
        if small < 24:
            return small
        if small == 31:
            return None
        if small > 27:
            raise BadBinary(f"{small} is reserved")
        return int.from_bytes(self._take(1 << (small - 24)), "big")

    def _integer(self, small: int, value: int | None) -> JsonValue:
        if small == 31 or value is None:
            raise BadBinary("an integer has no indefinite length")
        return value if abs(value) <= _EXACT else str(value)

    def _pieces(self, kind: int) -> bytes:
        """Return the bytes of a string of indefinite length: definite pieces of the same kind, then a break."""
        found = bytearray()
        while (head := self._take(1)[0]) != 0xFF:
            length = self._number(head & 31)
            if head >> 5 != kind or length is None:
                raise BadBinary("a piece of a string is of another kind")
            found += self._take(length)
        return bytes(found)

    def _array(self, length: int | None, depth: int) -> list[object]:
        if length is not None and length > len(self._data) - self.at:
            raise BadBinary(f"an array of {length} items does not fit")
        found: list[object] = []
        while length is None or len(found) < length:
            one = self.item(depth + 1, may_break=length is None)
            if one is _BREAK:
                break
            found.append(one)
        return found

    def _map(self, length: int | None, depth: int) -> dict[str, object]:
        if length is not None and 2 * length > len(self._data) - self.at:
            raise BadBinary(f"a map of {length} pairs does not fit")
        found: dict[str, object] = {}
        count = 0
        while length is None or count < length:
            key = self.item(depth + 1, may_break=length is None)
            if key is _BREAK:
                break
            found[key if isinstance(key, str) else str(key)] = self.item(depth + 1)
            count += 1
        return found

    def _simple_value(self, small: int, may_break: bool) -> object:
        match small:
            case 20 | 21:
                return small == 21
            case 22 | 23:
                return None
            case 25 | 26 | 27:
                form, size = {25: (">e", 2), 26: (">f", 4), 27: (">d", 8)}[small]
                value: float = struct.unpack(form, self._take(size))[0]
                return value if math.isfinite(value) else str(value)
            case 31 if may_break:
                return _BREAK
        raise BadBinary(f"the simple value {small} has no meaning here")


def _utf8(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise BadBinary("a text is not UTF-8") from None


def decode_xml(data: bytes) -> JsonValue:
    """Return the document as {name of its root: content}. Raises `BadBinary`."""
    root: dict[str, JsonValue] = {}
    # The open elements from the root on: their content so far, and their text.
    open_: list[tuple[dict[str, JsonValue], list[str]]] = [(root, [])]

    def begin(_: str, attributes: dict[str, str]) -> None:
        if len(open_) > MAX_DEPTH:
            raise BadBinary(f"elements are nested deeper than {MAX_DEPTH}")
        open_.append(({f"@{key}": value for key, value in attributes.items()}, []))

    def end(name: str) -> None:
        content, words = open_.pop()
        text = "".join(words).strip()
        value: JsonValue = content
        if text and content:
            content["#text"] = text
        elif not content:
            value = text or None
        parent = open_[-1][0]
        if name not in parent:
            parent[name] = value
            return
        known = parent[name]
        # An element is an object, a text or null: a list is one that was made here.
        if isinstance(known, list):
            known.append(value)
        else:
            parent[name] = [known, value]

    def add_text(words: str) -> None:
        open_[-1][1].append(words)

    def declare(*_: object) -> None:
        raise BadBinary("a document type declaration is not read here")

    parser = expat.ParserCreate()
    parser.StartElementHandler = begin
    parser.EndElementHandler = end
    parser.CharacterDataHandler = add_text
    parser.StartDoctypeDeclHandler = declare
    try:
        parser.Parse(data, True)
    except expat.ExpatError as wrong:
        raise BadBinary(str(wrong)) from None
    return root
