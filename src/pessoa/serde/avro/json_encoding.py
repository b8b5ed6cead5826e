"""Avro's JSON encoding, to binary and back, directly: an intermediate value could lose information. Pure.

A value of a union names its branch, `{"long": 5}`, and in binary the branch's number stands before it. Python values
name no branch: 5 is an int and a long. So JSON is written as binary at once, by the schema, as `JsonDecoder` and
`GenericDatumWriter` of Apache Avro do, and read back alike. Logical types are what they are stored as: a date is its
number of days, a decimal its bytes.

What is taken and what is refused is Avro's, but for this: a field that is missing gets its default; a character beyond
U+00FF in bytes is refused, where Avro writes a question mark; and the value of a union names one branch, and no more.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from typing import NoReturn, TypeVar

from pessoa.base.json_value import JsonObject, JsonValue
from pessoa.serde.avro.avro_schema import (
    MISSING,
    Array,
    AvroType,
    EnumType,
    Field,
    Fixed,
    Map,
    Primitive,
    Record,
    Union,
)
from pessoa.serde.avro.parsing import fits
from pessoa.serde.schema_problems import DataProblem

_INT_BITS, _LONG_BITS = 32, 64
_MAX_VARINT_BYTES = 10
# Items of an array may take no bytes at all; so many of them are accepted.
_MAX_EMPTY_ITEMS = 100_000
_NO_MORE_BLOCKS = 0
Choice = TypeVar("Choice")

_FLOAT, _DOUBLE = struct.Struct("<f"), struct.Struct("<d")


def branch_name(kind: AvroType) -> str:
    """Return the name by which the JSON encoding of a union's value names this branch."""
    return kind.name if isinstance(kind, Record | EnumType | Fixed) else kind.kind


def json_to_binary(kind: AvroType, value: JsonValue) -> bytes:
    """Return the Avro binary of a parsed value in Avro's JSON encoding. DataProblem if it does not fit."""
    out = bytearray()
    try:
        _Writer(out).write(kind, value)
    except RecursionError:
        raise DataProblem("the JSON does not fit its Avro schema: it is nested too deeply") from None
    return bytes(out)


def binary_to_json(kind: AvroType, data: bytes) -> JsonValue:
    """Return the value in Avro's JSON encoding. DataProblem if the bytes do not follow the schema to their end."""
    reader = _Reader(data)
    try:
        value = reader.read(kind)
    except RecursionError:
        raise DataProblem("the bytes do not follow their Avro schema: they are nested too deeply") from None
    if reader.position != len(data):
        raise DataProblem(f"{len(data) - reader.position} bytes are left over after the Avro value")
    return value


class _Writer:
    """Writes JSON values as Avro binary. `is_default` is for defaults in schemas, where a union's value names no
    branch."""

    def __init__(self, out: bytearray, *, is_default: bool = False) -> None:
        self._out = out
        self._is_default = is_default

    def write(self, kind: AvroType, value: JsonValue) -> None:
        match kind:
            case Primitive():
                self._primitive(kind.kind, value)
            case Record():
                self._record(kind, value)
            case Union():
                self._union(kind, value)
            case Array():
                if not isinstance(value, list):
                    _refuse(kind, value)
                self._begin_block(len(value))
                for each in value:
                    self.write(kind.items, each)
                self._out.append(_NO_MORE_BLOCKS)
            case Map():
                if not isinstance(value, dict):
                    _refuse(kind, value)
                self._begin_block(len(value))
                for key, each in value.items():
                    self._write_sized(_utf8(key))
                    self.write(kind.values, each)
                self._out.append(_NO_MORE_BLOCKS)
            case EnumType():
                if value not in kind.symbols:
                    _refuse(kind, value)
                self._number(kind.symbols.index(value))
            case Fixed():
                data = _latin(kind, value)
                if len(data) != kind.size:
                    raise _misfit(f"{kind.name} has {kind.size} bytes, not {len(data)}")
                self._out += data

    def _record(self, kind: Record, value: JsonValue) -> None:
        if not isinstance(value, dict):
            _refuse(kind, value)
        for field in kind.fields:
            if field.name in value:
                self.write(field.type, value[field.name])
            else:
                self._default(kind, field)

    def _default(self, kind: Record, field: Field) -> None:
        if field.default is MISSING:
            raise _misfit(f"the field {field.name} of {kind.name} is missing, and has no default")
        _Writer(self._out, is_default=True).write(field.type, field.default)

    def _union(self, kind: Union, value: JsonValue) -> None:
        if self._is_default:
            number = next(place for place, branch in enumerate(kind.branches) if fits(branch, value, {}))
        else:
            number, value = _find_branch(kind, value)
        self._number(number)
        self.write(kind.branches[number], value)

    def _primitive(self, kind: str, value: JsonValue) -> None:
        match kind:
            case "null":
                if value is not None:
                    _refuse_primitive(kind, value)
            case "boolean":
                if not isinstance(value, bool):
                    _refuse_primitive(kind, value)
                self._out.append(value)
            case "int" | "long":
                self._number(_whole_number(kind, value))
            case "float" | "double":
                if isinstance(value, bool) or not isinstance(value, int | float):
                    _refuse_primitive(kind, value)
                self._out += _pack(_FLOAT if kind == "float" else _DOUBLE, value)
            case "string":
                if not isinstance(value, str):
                    _refuse_primitive(kind, value)
                self._write_sized(_utf8(value))
            case _:
                self._write_sized(_latin(Primitive(kind), value))

    def _begin_block(self, count: int) -> None:
        if count:
            self._number(count)

    def _write_sized(self, data: bytes) -> None:
        self._number(len(data))
        self._out += data

    def _number(self, value: int) -> None:
        rest = value << 1 if value >= 0 else (-value << 1) - 1
        while rest >= 0x80:
            self._out.append(rest & 0x7F | 0x80)
            rest >>= 7
        self._out.append(rest)


def _find_branch(kind: Union, value: JsonValue) -> tuple[int, JsonValue]:
    """Return the index of the branch that a union's value names, and the value without that name."""
    names = [branch_name(branch) for branch in kind.branches]
    if value is None:
        name, inner = "null", None
    elif isinstance(value, dict) and len(value) == 1:
        [(name, inner)] = value.items()
    else:
        raise _misfit(f"a value of a union names its branch, as in {{{names[-1]!r}: …}}, not {_short(value)}")
    if name not in names:
        raise _misfit(f"the union has no branch {name!r}, but {', '.join(names)}")
    return names.index(name), inner


def _whole_number(kind: str, value: JsonValue) -> int:
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        _refuse_primitive(kind, value)
    bits = _INT_BITS if kind == "int" else _LONG_BITS
    if not -(1 << bits - 1) <= value < 1 << bits - 1:
        raise _misfit(f"{value} is beyond {kind}")
    return value


def _pack(form: struct.Struct, value: float) -> bytes:
    try:
        return form.pack(value)
    except OverflowError:
        # As a cast in Java.
        return form.pack(math.inf if value > 0 else -math.inf)


def _utf8(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise _misfit(f"{text!r} is half of a character") from None


def _latin(kind: AvroType, value: JsonValue) -> bytes:
    if not isinstance(value, str):
        _refuse(kind, value)
    try:
        return value.encode("latin-1")
    except UnicodeEncodeError:
        raise _misfit(f"bytes are written as characters up to U+00FF, and {_short(value)} has others") from None


def _misfit(why: str) -> DataProblem:
    return DataProblem(f"the JSON does not fit its Avro schema: {why}")


def _refuse(kind: AvroType, value: JsonValue) -> NoReturn:
    raise _misfit(f"{_short(value)} is no {branch_name(kind)}")


def _refuse_primitive(kind: str, value: JsonValue) -> NoReturn:
    raise _misfit(f"{_short(value)} is no {kind}")


def _short(value: JsonValue) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:40]}…"


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self.position = 0
        self._empty_items = 0

    def read(self, kind: AvroType) -> JsonValue:
        match kind:
            case Primitive():
                return self._primitive(kind.kind)
            case Record():
                return {field.name: self.read(field.type) for field in kind.fields}
            case Union():
                branch = self._one_of(kind.branches, "branches")
                value = self.read(branch)
                return None if branch.kind == "null" else {branch_name(branch): value}
            case Array():
                items: list[JsonValue] = []
                self._blocks(lambda: items.append(self.read(kind.items)))
                return items
            case Map():
                members: JsonObject = {}

                def member() -> None:
                    key = self._string()
                    members[key] = self.read(kind.values)

                self._blocks(member)
                return members
            case EnumType():
                return self._one_of(kind.symbols, "symbols")
            case Fixed():
                return self._take_bytes(kind.size).decode("latin-1")

    def _primitive(self, kind: str) -> JsonValue:
        match kind:
            case "null":
                return None
            case "boolean":
                flag = self._take_bytes(1)[0]
                if flag > 1:
                    raise _corrupt_data(f"{flag} is no boolean")
                return flag == 1
            case "int" | "long":
                return self._number(_INT_BITS if kind == "int" else _LONG_BITS)
            case "float" | "double":
                form = _FLOAT if kind == "float" else _DOUBLE
                number: float = form.unpack(self._take_bytes(form.size))[0]
                if math.isfinite(number):
                    return number
                return "NaN" if math.isnan(number) else "Infinity" if number > 0 else "-Infinity"
            case "string":
                return self._string()
            case _:
                return self._take_bytes(self._number()).decode("latin-1")

    def _blocks(self, item: Callable[[], None]) -> None:
        while count := self._number():
            if count < 0:
                # The size of the block follows, for readers that skip it.
                count = -count
                self._number()
            if count > len(self._data) - self.position:
                self._empty_items += count
                if self._empty_items > _MAX_EMPTY_ITEMS:
                    raise _corrupt_data(f"{count} items cannot be in {len(self._data) - self.position} bytes")
            for _ in range(count):
                item()

    def _one_of(self, choices: list[Choice], what: str) -> Choice:
        number = self._number()
        if not 0 <= number < len(choices):
            raise _corrupt_data(f"there are {len(choices)} {what}, and none is number {number}")
        return choices[number]

    def _string(self) -> str:
        try:
            return self._take_bytes(self._number()).decode()
        except UnicodeDecodeError as wrong:
            raise _corrupt_data(f"a string is not UTF-8: {wrong.reason}") from None

    def _number(self, bits: int = _LONG_BITS) -> int:
        rest = shift = 0
        for _ in range(_MAX_VARINT_BYTES):
            byte = self._take_bytes(1)[0]
            rest |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                break
        else:
            raise _corrupt_data("a number does not end")
        if rest >> bits:
            raise _corrupt_data(f"a number has more than {bits} bits")
        return rest >> 1 if rest & 1 == 0 else -(rest >> 1) - 1

    def _take_bytes(self, size: int) -> bytes:
        if not 0 <= size <= len(self._data) - self.position:
            raise _corrupt_data(f"{size} bytes are wanted, and {len(self._data) - self.position} are left")
        self.position += size
        return self._data[self.position - size : self.position]


def _corrupt_data(why: str) -> DataProblem:
    return DataProblem(f"the bytes do not follow their Avro schema: {why}")
