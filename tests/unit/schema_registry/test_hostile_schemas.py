"""Any text as a schema is parsed or raises a SchemaProblem; and parsed schemas can be compared."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pessoa.schema_registry.compatibility.differences import Difference
from pessoa.schema_registry.compatibility.json_schema_compatibility import check_json
from pessoa.schema_registry.compatibility.levels import Earlier, Level, check_level
from pessoa.schema_registry.schemas import Parsed, canonical_of, parse_schema
from pessoa.serde.json_schema import JsonSchema
from pessoa.serde.schema_problems import SchemaProblem

KEYWORDS = """
    type properties items additionalProperties required enum const allOf anyOf oneOf not $ref minLength maximum pattern
    dependencies additionalItems uniqueItems patternProperties contains if then definitions $id exclusiveMaximum
    name fields symbols size values default aliases namespace
""".split()
WORDS = "string integer object array null record enum fixed map int # #/properties/a a A".split()

leaves = st.one_of(st.none(), st.booleans(), st.integers(-5, 5), st.sampled_from(WORDS), st.text(max_size=3))
trees = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.sampled_from([*KEYWORDS, "a"]), inner, max_size=4)
    ),
    max_leaves=12,
)
PROTO = (
    'syntax = "proto3" ; message M A enum E { } [ ] ( ) int32 string map < , > a b = 1 2 0 - repeated optional oneof '
    "reserved to max import option . deprecated true group extend service rpc returns \"x\" 'y' // /* */ 1.5 0x1"
).split()


def parsed(kind: str, text: str) -> Parsed | None:
    try:
        return parse_schema(kind, text, {})
    except SchemaProblem:
        return None


@settings(max_examples=300)
@pytest.mark.parametrize("kind", ["AVRO", "JSON"])
@given(st.lists(trees, min_size=2, max_size=2))
def test_arbitrary_json_is_a_schema_or_refused(kind: str, both: list[Any]) -> None:
    first, second = (parsed(kind, json.dumps(tree)) for tree in both)
    if first is not None and second is not None:
        check_level(Level.FULL, first, [Earlier(1, second)])
    for each in (first, second):
        if each is not None:
            assert not check_level(Level.FULL, each, [Earlier(1, each)])
            again = parse_schema(kind, each.text, {})
            assert again.canonical == each.canonical
            assert parse_schema(kind, each.normalized(), {}).normalized() == each.normalized()


@settings(max_examples=500)
@given(st.lists(st.sampled_from(PROTO), max_size=25))
def test_arbitrary_words_are_a_proto_file_or_refused(words: list[str]) -> None:
    schema = parsed("PROTOBUF", " ".join(words))
    if schema is not None:
        assert not check_level(Level.FULL, schema, [Earlier(1, schema)])
        assert canonical_of("PROTOBUF", schema.canonical) == schema.canonical


@given(st.text(max_size=40), st.sampled_from(["AVRO", "JSON", "PROTOBUF"]))
def test_arbitrary_text_is_a_schema_or_refused(text: str, kind: str) -> None:
    parsed(kind, text)


@pytest.mark.parametrize(
    "tree",
    [
        {"allOf": [{"$ref": "#"}]},
        {"not": {"$ref": "#"}},
        {"$ref": "#"},
        {"properties": {"a": {"$ref": "#/properties/b"}, "b": {"$ref": "#/properties/a"}}},
        {"anyOf": [{"anyOf": [{"$ref": "#"}, {"type": "string"}]}, {"$ref": "#"}]},
    ],
)
def test_the_compatibility_of_recursive_schemas_is_decided(tree: dict[str, Any]) -> None:
    schema = parsed("JSON", json.dumps(tree))
    other = parsed("JSON", '{"type":"string"}')
    assert other is not None
    if schema is not None:
        for new, old in ((schema, other), (other, schema), (schema, schema)):
            check_level(Level.FULL, new, [Earlier(1, old)])


def test_schemas_nested_too_deeply_are_refused() -> None:
    for kind, text in (
        ("AVRO", '{"type":"array","items":' * 5000 + '"int"' + "}" * 5000),
        ("JSON", '{"not":' * 5000 + "{}" + "}" * 5000),
        ("PROTOBUF", "message A { " * 5000),
    ):
        assert parsed(kind, text) is None


def test_a_very_long_chain_of_references_is_refused_as_too_complex() -> None:
    """The library that follows references panics where the interpreter's stack ends."""
    links = 300
    definitions: dict[str, Any] = {
        f"d{index}": {"anyOf": [{"$ref": f"#/definitions/d{index + 1}"}, {"type": "null"}]} for index in range(links)
    }
    old, new = (
        JsonSchema({"$ref": "#/definitions/d0", "definitions": definitions | {f"d{links}": {"type": leaf}}})
        for leaf in ("integer", "number")
    )
    for frames in range(40):  # wherever the stack ends
        assert [each.kind for each in _below(frames, lambda: check_json(new, old))] == ["TOO_COMPLEX"]


def _below(frames: int, check: Callable[[], list[Difference]]) -> list[Difference]:
    return check() if frames == 0 else _below(frames - 1, check)
