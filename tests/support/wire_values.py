"""Random values for declared messages, from a seeded generator: `random_message(FetchRequest, 12, Random(7))`.

A value is one that survives a round trip in the given version: fields which the version lacks keep their default, a
tagged struct that equals its default is None. Edge values (empty, null, extreme, long enough for a two-byte varint)
come up often.
"""

from __future__ import annotations

from random import Random
from typing import Any

from pessoa.base.ids import Uuid
from pessoa.wire.codec_compiler import Layout
from pessoa.wire.message_headers import RequestHeader
from pessoa.wire.schema import Field, Message, Struct

INTEGERS = {
    "int8": (-(1 << 7), (1 << 7) - 1),
    "int16": (-(1 << 15), (1 << 15) - 1),
    "uint16": (0, (1 << 16) - 1),
    "int32": (-(1 << 31), (1 << 31) - 1),
    "uint32": (0, (1 << 32) - 1),
    "int64": (-(1 << 63), (1 << 63) - 1),
}
_ALPHABET = "abcXYZ019._-çãé日🙂"


def random_message(message: type[Message], version: int, rng: Random, *, unknown_tags: bool = False) -> Any:
    """Return a random message in this version. With `unknown_tags`, structs of flexible versions also carry tagged
    fields that are not declared."""
    return Generator(Layout(message, version), rng, unknown_tags).struct(message)


class Generator:
    def __init__(self, layout: Layout, rng: Random, unknown_tags: bool) -> None:
        self.layout = layout
        self.rng = rng
        self.unknown_tags = unknown_tags

    @classmethod
    def for_primitives(cls, rng: Random) -> Generator:
        """Return a generator for primitive values only, which are the same in every message."""
        return cls(Layout(RequestHeader, 1), rng, unknown_tags=False)

    def struct(self, kind: type[Struct]) -> Any:
        values = {field.name: self.field(field) for field in kind.fields if self.layout.has(field)}
        value = kind(**values)
        if self.unknown_tags and self.layout.is_flexible and self.rng.random() < 0.3:
            tags = sorted({self.rng.choice((100, 127, 128, 20_000)) for _ in range(self.rng.randrange(1, 3))})
            value.unknown_tagged_fields = tuple((tag, self.binary()) for tag in tags)
        return value

    def field(self, field: Field) -> Any:
        if self.layout.is_nullable(field) and self.rng.random() < 0.25:
            return None
        if field.kind == "array":
            if field.item == "struct":
                assert field.struct is not None
                return [self.struct(field.struct) for _ in range(self.count(most=3))]
            assert field.item is not None
            return [self.primitive(field.item) for _ in range(self.count(most=40))]
        if field.kind == "struct":
            assert field.struct is not None
            value = self.struct(field.struct)
            # Where None means null, a struct that equals the default stays what it is.
            is_implied = self.layout.is_tagged(field) and not self.layout.is_nullable(field) and equals_default(value)
            return None if is_implied else value
        return self.primitive(field.kind)

    def count(self, most: int) -> int:
        return self.rng.choice((0, 1, 2, self.rng.randint(0, most)))

    def primitive(self, kind: str) -> Any:
        rng = self.rng
        if kind in INTEGERS:
            low, high = INTEGERS[kind]
            return rng.choice((low, max(low, -1), 0, 1, high, rng.randint(low, high)))
        if kind == "bool":
            return rng.random() < 0.5
        if kind == "float64":
            return rng.choice((0.0, -1.5, 1e300, rng.random()))
        if kind == "uuid":
            return Uuid(rng.choice((bytes(16), rng.randbytes(16))))
        if kind == "string":
            return "".join(rng.choices(_ALPHABET, k=self.size()))
        if kind == "records":
            return memoryview(self.binary())
        assert kind == "bytes", kind
        return self.binary()

    def binary(self) -> bytes:
        return self.rng.randbytes(self.size())

    def size(self) -> int:
        return self.rng.choice((0, 1, 5, 20, 126, 127, 128, 300)) if self.rng.random() < 0.2 else self.rng.randrange(12)


def equals_default(value: Struct) -> bool:
    return not value.unknown_tagged_fields and all(getattr(value, part.name) == part.zero for part in value.fields)
