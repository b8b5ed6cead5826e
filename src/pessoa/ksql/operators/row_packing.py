"""Rows and states as bytes: a version byte, then MessagePack. Decimals, which MessagePack has not, are an extension.

A row is packed as the list of its columns' values in a fixed order, so names are not repeated. What is read back is
made of None, bool, int, float, str, bytes, list, dict and Decimal, and of nothing else.
"""

from __future__ import annotations

import decimal
from collections.abc import Callable, Sequence
from typing import TypeAlias, cast

import msgspec

from pessoa.ksql.types.sql_types import Array, Decimal, Map, SqlType, Struct, Value

VERSION = b"\1"
_DECIMAL = 1

Row: TypeAlias = "dict[str, Value]"


def _extension(code: int, data: memoryview) -> object:
    if code != _DECIMAL:
        raise ValueError(f"unknown extension {code} in a state")
    return decimal.Decimal(bytes(data).decode("ascii"))


_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder(ext_hook=_extension)


def pack(value: object) -> bytes:
    """Return the bytes of a value; decimals in it must have been replaced (`plain`)."""
    return VERSION + _ENCODER.encode(value)


def unpack(data: bytes) -> object:
    if data[:1] != VERSION:
        raise ValueError(f"a state of version {data[:1]!r}, but this is version {VERSION!r}")
    return _DECODER.decode(memoryview(data)[1:])


def plain(value: object) -> object:
    """Return the value with decimals as extensions, at any depth."""
    match value:
        case decimal.Decimal():
            return msgspec.msgpack.Ext(_DECIMAL, str(value).encode("ascii"))
        case list() | tuple():
            return [plain(one) for one in value]
        case dict():
            return {plain(key): plain(one) for key, one in value.items()}
    return value


def pack_any(value: object) -> bytes:
    return pack(plain(value))


def has_decimal(kind: SqlType) -> bool:
    match kind:
        case Decimal():
            return True
        case Array(element):
            return has_decimal(element)
        case Map(key, value):
            return has_decimal(key) or has_decimal(value)
        case Struct(fields):
            return any(has_decimal(one) for _, one in fields)
    return False


class RowShape:
    """The columns of the rows of one flow, and how they are packed."""

    def __init__(self, columns: Sequence[tuple[str, SqlType]]) -> None:
        self.names = tuple(name for name, _ in columns)
        self._plain = [name for name, kind in columns if has_decimal(kind)]

    def __repr__(self) -> str:
        return f"RowShape({', '.join(self.names)})"

    def to_list(self, row: Row | None) -> list[object] | None:
        """Return a row in a form that `pack` accepts."""
        if row is None:
            return None
        if self._plain:
            row = {**row, **{name: cast("Value", plain(row.get(name))) for name in self._plain}}
        return list(map(row.get, self.names))

    def to_row(self, values: object) -> Row | None:
        return None if values is None else dict(zip(self.names, cast("list[Value]", values), strict=True))


Keys: TypeAlias = "tuple[Value, ...]"


def key_packer(kinds: Sequence[SqlType]) -> Callable[[Keys], bytes]:
    """Return the function that encodes a key as the bytes under which its state is stored."""
    if any(has_decimal(kind) for kind in kinds):
        return lambda key: _ENCODER.encode(plain(key))
    return _ENCODER.encode
