"""Hypothesis strategies for declared messages: `messages(FetchRequest, 12)`.

A drawn value is one that survives a round trip in the given version: fields which the version lacks keep their
default, and a tagged struct that equals its default is None. What is drawn shrinks field by field, so a failure shows
the one field that matters. `wire_values` makes the same kind of values from a seed: faster, but they do not shrink.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from pessoa.base.ids import Uuid
from pessoa.wire.codec_compiler import Layout
from pessoa.wire.schema import Field, Message, Struct
from tests.support.declared_messages import all_messages
from tests.support.wire_values import INTEGERS, equals_default

# From this size on a compact length takes two bytes: it is the size plus one, with seven bits in a byte.
_LONG = [bytes(126), bytes(127), bytes(300)]
_LONG_TEXTS = ["x" * 126, "x" * 127, "ç" * 64, "日" * 100]

# Above every tag that Kafka has assigned, with varints of one, two and three bytes.
_UNKNOWN_TAGS = [100, 127, 128, 16_383, 16_384]


def message_versions() -> list[tuple[type[Message], int]]:
    """Return every message with each of its versions."""
    return [(kind, version) for kind in all_messages() for version in kind.versions.each()]


def title(pair: object) -> str:
    """Return the name of a parametrised case: `FetchRequest` and `12` make `FetchRequest-12`."""
    return pair.__name__ if isinstance(pair, type) else str(pair)


@cache
def messages(kind: type[Message], version: int, *, unknown_tags: bool = False) -> SearchStrategy[Any]:
    """Return a strategy for a message in this version. With `unknown_tags`, structs of flexible versions may carry
    tagged fields that are not declared."""
    return _Strategies(Layout(kind, version), unknown_tags).struct(kind)


class _Strategies:
    def __init__(self, layout: Layout, unknown_tags: bool) -> None:
        self.layout = layout
        self.unknown_tags = unknown_tags and layout.is_flexible

    def struct(self, kind: type[Struct]) -> SearchStrategy[Any]:
        parts = {field.name: self.field(field) for field in kind.fields if self.layout.has(field)}
        plain = st.fixed_dictionaries(parts)
        if not self.unknown_tags:
            return plain.map(lambda values: kind(**values))
        return st.tuples(plain, _tagged_fields).map(lambda drawn: _with_tags(kind(**drawn[0]), drawn[1]))

    def field(self, field: Field) -> SearchStrategy[Any]:
        strategy = self.value(field)
        return st.none() | strategy if self.layout.is_nullable(field) else strategy

    def value(self, field: Field) -> SearchStrategy[Any]:
        if field.kind == "array" and field.item != "struct":
            assert field.item is not None
            return st.lists(_PRIMITIVES[field.item], max_size=4)
        if field.kind not in ("array", "struct"):
            return _PRIMITIVES[field.kind]
        assert field.struct is not None
        whole = self.struct(field.struct)
        if field.kind == "array":
            return st.lists(whole, max_size=2)
        if self.layout.is_tagged(field) and not self.layout.is_nullable(field):
            return whole.map(lambda value: None if equals_default(value) else value)
        return whole


def _with_tags(value: Struct, tags: dict[int, bytes]) -> Struct:
    value.unknown_tagged_fields = tuple(sorted(tags.items()))
    return value


def _integers(low: int, high: int) -> SearchStrategy[int]:
    return st.sampled_from(sorted({0, 1, max(low, -1), low, high})) | st.integers(low, high)


_binary = st.binary(max_size=12) | st.sampled_from(_LONG)
_tagged_fields = st.dictionaries(st.sampled_from(_UNKNOWN_TAGS), _binary, max_size=2)

_PRIMITIVES: dict[str, SearchStrategy[Any]] = {
    **{kind: _integers(low, high) for kind, (low, high) in INTEGERS.items()},
    "bool": st.booleans(),
    "float64": st.floats(allow_nan=False),
    "uuid": st.binary(min_size=16, max_size=16).map(Uuid),
    "string": st.text(max_size=12) | st.sampled_from(_LONG_TEXTS),
    "bytes": _binary,
    "records": _binary.map(memoryview),
}
