"""JSON Schema validation with bounded cost: hostile schemas and values, and the same results as without bounds."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft7Validator, Draft201909Validator, Draft202012Validator
from jsonschema.exceptions import ValidationError

from pessoa.base.json_value import JsonObject, JsonValue
from pessoa.serde.json_schema import JsonSchema
from pessoa.serde.json_validation import bounded_validator, check
from pessoa.serde.schema_problems import DataProblem

NEW = "https://json-schema.org/draft/2020-12/schema"


def refusal(schema: dict[str, Any], value: Any) -> str:
    with pytest.raises(DataProblem) as refused:
        JsonSchema(schema).encode(value)
    return str(refused.value)


def choices(depth: int) -> dict[str, Any]:
    known: dict[str, Any] = {"d0": {"type": "string"}}
    for level in range(1, depth):
        known[f"d{level}"] = {"anyOf": [{"$ref": f"#/definitions/d{level - 1}"}] * 2}
    return {"definitions": known, "allOf": [{"$ref": f"#/definitions/d{depth - 1}"}]}


def test_validation_with_exponentially_many_alternatives_is_aborted() -> None:
    assert "too much work" in refusal(choices(60), 1)


def test_validation_of_a_schema_that_references_itself_is_aborted() -> None:
    assert "nested too deeply" in refusal({"allOf": [{"$ref": "#"}]}, 1)


@pytest.mark.parametrize(
    "schema",
    [
        {"pattern": "(a+)+$"},
        {"propertyNames": {"pattern": "(a+)+$"}},
        {"patternProperties": {"(a+)+$": False, "!": False}},
        {"patternProperties": {"(a+)+$": {}}, "additionalProperties": False},
        {"$schema": NEW, "patternProperties": {"(a+)+$": {}}, "unevaluatedProperties": False},
    ],
    ids=lambda schema: "-".join(key for key in schema if key != "$schema"),
)
def test_a_pattern_with_catastrophic_backtracking_is_matched_quickly(schema: dict[str, Any]) -> None:
    text = "a" * 5000 + "!"
    assert refusal(schema, text if "pattern" in schema else {text: 1})


def test_an_unsupported_pattern_is_named_in_the_error() -> None:
    assert "pattern of the schema" in refusal({"pattern": "(?=(a+)+$)b"}, "aaa")


def test_unique_items_are_checked_in_linear_time() -> None:
    items: list[JsonValue] = [{"number": number} for number in range(20_000)]
    schema = JsonSchema({"uniqueItems": True})
    schema.encode(items)
    assert "twice" in refusal({"uniqueItems": True}, [*items, {"number": 7.0}])
    schema.encode([1, True, "1", [1], {"1": 1}])


def test_a_long_list_of_alternatives_counts_for_the_limit_with_every_item() -> None:
    schema: JsonObject = {"items": {"enum": [f"word {number}" for number in range(20_000)]}}
    assert "too much work" in refusal(schema, ["word 1"] * 500)
    JsonSchema(schema).encode(["word 1"] * 10)


def test_the_error_for_a_large_invalid_value_is_short() -> None:
    value = {"field": ["x" * 100] * 1000}
    assert len(refusal({"type": "string"}, value)) < 1000
    # Each alternative would quote the value once more.
    assert "too much work" in refusal({"anyOf": [{"type": "string"}] * 300}, value)


def test_a_value_of_thousands_of_objects_is_validated_completely() -> None:
    person: JsonObject = {
        "type": "object",
        "required": ["name", "age"],
        "properties": {"name": {"type": "string", "pattern": "^[A-Z]"}, "age": {"type": "integer", "minimum": 0}},
        "additionalProperties": False,
    }
    people: list[JsonValue] = [{"name": f"Person {number}", "age": number} for number in range(5000)]
    assert JsonSchema({"items": person}).encode(people) == json.dumps(people, separators=(",", ":")).encode()


leaf = st.sampled_from(
    [True, False, {}, {"type": "string"}, {"type": "integer"}, {"pattern": "^a"}, {"enum": [1, "a"]}]
)
schemas = st.recursive(
    leaf,
    lambda inner: st.fixed_dictionaries(
        {},
        optional={
            "properties": st.dictionaries(st.sampled_from("ab"), inner, max_size=2),
            "patternProperties": st.dictionaries(st.sampled_from(["^a", "b$", "."]), inner, max_size=2),
            "additionalProperties": inner,
            "unevaluatedProperties": inner,
            "uniqueItems": st.booleans(),
            "anyOf": st.lists(inner, min_size=1, max_size=2),
            "oneOf": st.lists(inner, min_size=1, max_size=2),
            "allOf": st.lists(inner, min_size=1, max_size=2),
            "if": inner,
            "then": inner,
            "else": inner,
            "not": inner,
            "dependentSchemas": st.dictionaries(st.sampled_from("ab"), inner, max_size=1),
        },
    ),
    max_leaves=6,
)
values = st.recursive(
    st.sampled_from([None, True, 1, 1.0, 2, "a", "ba"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["a", "b", "ab"]), inner, max_size=3),
    max_leaves=5,
)


@settings(max_examples=100)
@pytest.mark.parametrize("draft", [Draft7Validator, Draft202012Validator])
@given(schema=schemas, value=values)
def test_bounded_validation_has_the_same_result_as_validation_without_bounds(
    draft: Any, schema: Any, value: Any
) -> None:
    try:
        check(bounded_validator(draft)(schema), value, 1000)
        is_valid = True
    except ValidationError:
        is_valid = False
    assert is_valid == draft(schema).is_valid(value)


@pytest.mark.parametrize(
    ("schema", "value", "is_valid"),
    [
        ({"$recursiveAnchor": True, "properties": {"a": {"$recursiveRef": "#"}}, "unevaluatedProperties": False},
         {"a": {"a": {}}}, True),
        ({"$recursiveAnchor": True, "properties": {"a": {"$recursiveRef": "#"}}, "unevaluatedProperties": False},
         {"a": {"b": {}}}, False),
        ({"$ref": "#/$defs/x", "$defs": {"x": {"properties": {"a": True}}}, "unevaluatedProperties": False},
         {"a": 1}, True),
    ],
)  # fmt: skip
def test_unevaluated_properties_are_found_through_references(schema: Any, value: Any, is_valid: bool) -> None:
    assert Draft201909Validator(schema).is_valid(value) == is_valid
    tree = {"$schema": "https://json-schema.org/draft/2019-09/schema", **schema}
    if is_valid:
        JsonSchema(tree).encode(value)
    else:
        refusal(tree, value)


def test_a_value_nested_as_deeply_as_the_stack_is_an_error_and_not_a_panic() -> None:
    """The package that follows references panics where the stack ends within it, which is no Exception."""
    schema = JsonSchema({"type": "object", "properties": {"a": {"$ref": "#"}}})
    value: dict[str, Any] = {}
    for depth in range(200):
        value = {"a": value}
        if depth > 70:
            with suppress(DataProblem):
                schema.validate(value, 1000)
    with pytest.raises(DataProblem, match="nested too deeply"):
        schema.validate(value, 1000)
