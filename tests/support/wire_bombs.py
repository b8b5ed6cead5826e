"""Messages that make a decoder allocate as much as possible for as few bytes as possible.

Kafka's smallest struct takes two bytes on the wire, and an object in any language takes more. How much more is the
amplification of a schema: the memory of the decoded message over the size of its bytes. `bombs` makes, for a message
in a version, one value for every array in it: that array filled with the cheapest possible elements.
"""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pessoa.base.ids import Uuid
from pessoa.wire.codec_compiler import Layout
from pessoa.wire.schema import Field, Message, Struct


@dataclass(frozen=True)
class Filling:
    """The values in the cheap elements. Python shares small numbers and short texts, so larger ones take more
    memory."""

    number: int
    text: str
    data: bytes
    inner_count: int


FILLINGS = (
    Filling(number=0, text="", data=b"", inner_count=0),
    Filling(number=0, text="", data=b"", inner_count=1),
    Filling(number=100_000, text="日", data=b"12", inner_count=1),
)


def bombs(kind: type[Message], version: int, frame_bytes: int) -> Iterator[tuple[str, bytes]]:
    """Yield encoded messages of about `frame_bytes`, each with the path of the array that fills it."""
    layout = Layout(kind, version)
    for filling in FILLINGS:
        for path in _arrays(layout, kind, ()):
            whole = _Bomb(layout, filling, path, 1).struct(kind, ())
            one = len(whole.encode(version))
            empty = len(_Bomb(layout, filling, path, 0).struct(kind, ()).encode(version))
            count = max(1, frame_bytes // max(1, one - empty))
            yield ".".join(path), _Bomb(layout, filling, path, count).struct(kind, ()).encode(version)


def amplification(kind: type[Message], version: int, data: bytes) -> float:
    """Return the peak memory while these bytes are decoded, divided by their size."""
    decode = kind.decoder(version)
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        message, _ = decode(data, 0, len(data))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    del message
    return (peak - before) / len(data)


def _arrays(layout: Layout, struct: type[Struct], path: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    for field in struct.fields:
        if not layout.has(field):
            continue
        if field.kind == "array":
            yield (*path, field.name)
        if field.struct is not None:
            yield from _arrays(layout, field.struct, (*path, field.name))


class _Bomb:
    def __init__(self, layout: Layout, filling: Filling, path: tuple[str, ...], count: int) -> None:
        self.layout = layout
        self.filling = filling
        self.path = path
        self.count = count

    def struct(self, kind: type[Struct], here: tuple[str, ...]) -> Any:
        return kind(
            **{field.name: self.value(field, (*here, field.name)) for field in kind.fields if self.layout.has(field)}
        )

    def value(self, field: Field, here: tuple[str, ...]) -> Any:
        if field.kind == "array":
            inside = field.struct
            item = self.struct(inside, here) if inside is not None else self.primitive(str(field.item))
            return [item] * self.item_count(here)
        if field.kind == "struct":
            assert field.struct is not None
            on_the_way = here == self.path[: len(here)]
            return None if self.layout.is_nullable(field) and not on_the_way else self.struct(field.struct, here)
        if self.layout.is_tagged(field):
            return field.zero
        return self.primitive(field.kind)

    def item_count(self, here: tuple[str, ...]) -> int:
        if here == self.path:
            return self.count
        if here == self.path[: len(here)]:
            return 1
        inside_the_bomb = self.path == here[: len(self.path)]
        return self.filling.inner_count if inside_the_bomb else 0

    def primitive(self, kind: str) -> Any:
        filling = self.filling
        if kind == "bool":
            return False
        if kind in ("int8", "int16", "uint16"):
            return min(filling.number, {"int8": 127, "int16": 30_000, "uint16": 30_000}[kind])
        if kind == "float64":
            return float(filling.number)
        if kind == "uuid":
            return Uuid(bytes(16))
        if kind == "string":
            return filling.text
        if kind == "records":
            return memoryview(filling.data)
        return filling.data if kind == "bytes" else filling.number
