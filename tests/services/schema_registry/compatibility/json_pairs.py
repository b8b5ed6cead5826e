"""Pairs of JSON Schemas: old, new, whether the new one accepts all that the old one did, whether the old one accepts
all that the new one does, and why. From the content models and the list of differences in Confluent's documentation."""

from __future__ import annotations

import json
from typing import Any

Pair = tuple[str, str, bool, bool, str]


def obj(properties: dict[str, Any] | None = None, required: list[str] | None = None, **more: Any) -> dict[str, Any]:
    """Return an object schema; its content model is open unless `more` closes it."""
    tree: dict[str, Any] = {"type": "object"}
    if properties is not None:
        tree["properties"] = properties
    if required:
        tree["required"] = required
    return tree | more


def closed(properties: dict[str, Any], required: list[str] | None = None, **more: Any) -> dict[str, Any]:
    return obj(properties, required, additionalProperties=False, **more)


def partly(schema: Any, properties: dict[str, Any], required: list[str] | None = None) -> dict[str, Any]:
    return obj(properties, required, additionalProperties=schema)


def array(items: Any = None, **more: Any) -> dict[str, Any]:
    return {"type": "array", **({} if items is None else {"items": items}), **more}


STRING: dict[str, Any] = {"type": "string"}
INTEGER: dict[str, Any] = {"type": "integer"}
NUMBER: dict[str, Any] = {"type": "number"}
BOOLEAN: dict[str, Any] = {"type": "boolean"}
A = {"a": STRING}
AB = {"a": STRING, "b": INTEGER}
D2020 = "https://json-schema.org/draft/2020-12/schema"
D4 = "http://json-schema.org/draft-04/schema#"
NEW = {"$schema": D2020}
LIST = obj({"v": INTEGER, "next": {"$ref": "#"}})


def string(**more: Any) -> dict[str, Any]:
    return STRING | more


def number(**more: Any) -> dict[str, Any]:
    return NUMBER | more


_PAIRS: list[tuple[Any, Any, bool, bool, str]] = [
    # Whole schemas.
    (True, True, True, True, "everything is everything"),
    ({}, True, True, True, "an empty schema allows everything"),
    (STRING, True, True, False, "everything includes strings"),
    (False, STRING, True, False, "there was nothing to read"),
    (STRING, STRING, True, True, "the same"),
    (STRING, string(title="t", description="d", default="x"), True, True, "annotations demand nothing"),
    (STRING, INTEGER, False, False, "another type"),
    (INTEGER, NUMBER, True, False, "integers are numbers"),
    (STRING, BOOLEAN, False, False, "another type"),
    (obj(), array(), False, False, "another type"),
    ({"type": "null"}, STRING, False, False, "null is no string"),
    (STRING, {"type": ["string", "null"]}, True, False, "one more type"),
    ({"type": ["string", "null"]}, {"type": ["string", "null", "integer"]}, True, False, "one more type"),
    ({"type": ["string", "null"]}, {"type": ["null", "string"]}, True, True, "in another order"),
    ({"type": ["string"]}, STRING, True, True, "a list of one type is that type"),
    # Strings.
    (string(maxLength=5), string(maxLength=9), True, False, "longer strings are allowed"),
    (string(maxLength=5), STRING, True, False, "no limit any more"),
    (string(minLength=5), string(minLength=2), True, False, "shorter strings are allowed"),
    (string(minLength=5), STRING, True, False, "no limit any more"),
    (string(pattern="a+"), STRING, True, False, "no pattern any more"),
    (string(pattern="a+"), string(pattern="b+"), False, False, "another pattern"),
    # Numbers.
    (number(maximum=5), number(maximum=9), True, False, "larger numbers are allowed"),
    (number(maximum=5), NUMBER, True, False, "no maximum any more"),
    (number(minimum=5), number(minimum=2), True, False, "smaller numbers are allowed"),
    (number(minimum=5), NUMBER, True, False, "no minimum any more"),
    (number(exclusiveMaximum=5), number(exclusiveMaximum=9), True, False, "larger numbers are allowed"),
    (number(exclusiveMinimum=5), number(exclusiveMinimum=2), True, False, "smaller numbers are allowed"),
    (number(exclusiveMinimum=5), NUMBER, True, False, "no bound any more"),
    (number(multipleOf=10), number(multipleOf=5), True, False, "multiples of ten are multiples of five"),
    (number(multipleOf=10), NUMBER, True, False, "any number"),
    (number(multipleOf=10), number(multipleOf=7), False, False, "neither divides the other"),
    ({"$schema": D4, "type": "number", "maximum": 5, "exclusiveMaximum": True},
     {"$schema": D4, "type": "number", "maximum": 9, "exclusiveMaximum": True}, True, False,
     "draft 4 says with a boolean that the maximum is excluded"),
    # Enums.
    ({"enum": ["a", "b"]}, {"enum": ["b", "a"]}, True, True, "in another order"),
    ({"enum": ["a"]}, {"enum": ["a", "b"]}, True, False, "one more value"),
    ({"enum": ["a"]}, {"enum": ["b"]}, False, False, "another value"),
    ({"const": "a"}, {"enum": ["a", "b"]}, True, False, "a constant is an enum of one"),
    ({"const": "a"}, {"const": "b"}, False, False, "another constant"),
    (string(enum=["a"]), string(enum=["a", "b"]), True, False, "one more value, with a type beside it"),
    (string(enum=["a"]), STRING, True, False, "any string"),
    # Objects: open.
    (obj(A), obj(A), True, True, "the same"),
    (obj(A), obj(AB), False, True, "old data may hold anything under b; an open model may lose a declaration"),
    (obj(A), obj(A | {"b": {}}), True, True, "b may be anything, as before"),
    (obj(A), obj(A | {"b": {}}, ["b"]), False, True, "b was not required"),
    (obj(A), obj({"a": INTEGER}), False, False, "the type of a has changed"),
    (obj({"a": INTEGER}), obj({"a": NUMBER}), True, False, "a may now be any number"),
    (obj(A), obj(A, ["a"]), False, True, "a was not required"),
    (obj({"a": string(default="x")}), obj({"a": string(default="x")}, ["a"]), True, True,
     "a default stands in for what was not required"),
    (obj(A, ["a"]), obj(A), True, False, "a is not required any more"),
    (obj(A), obj({}), True, False, "a declaration that goes from an open model"),
    (obj({"a": obj(A)}), obj({"a": obj(AB)}), False, True, "the same rules further down"),
    # Objects: closed.
    (closed(A), closed(AB), True, False, "an optional property comes; the old side refuses it"),
    (closed(A), closed(AB, ["b"]), False, False, "a required property comes; old data has none"),
    (closed(A), closed(A | {"b": INTEGER | {"default": 0}}, ["b"]), True, False, "required, but there is a default"),
    (closed(A), obj(A), True, False, "anything else is allowed now"),
    (closed(A | {"b": False}), closed(A), True, True, "b never was allowed; to add it as never allowed is no change"),
    (closed(A), obj(AB), True, False, "it opens, and b was refused before"),
    # Objects: partially open.
    (partly(STRING, {}), partly(STRING, A), True, True, "a is a string by either rule"),
    (partly(STRING, {}), partly(STRING, {"a": INTEGER}), False, False, "a was a string by the rule for the rest"),
    (partly(NUMBER, {}), partly(NUMBER, {"a": INTEGER}), False, True, "a was any number; now an integer"),
    (partly(INTEGER, {}), partly(NUMBER, {}), True, False, "the rest may be any number"),
    (partly(STRING, {}), obj({}), True, False, "the rest may be anything"),
    (closed({}), partly(STRING, {}), True, False, "the rest may be strings"),
    (obj({}, patternProperties={"^a": STRING}), obj(A, patternProperties={"^a": STRING}), True, True,
     "the pattern covers a"),
    (obj({}, patternProperties={"^a": STRING}), obj({"a": INTEGER}, patternProperties={"^a": STRING}), False, False,
     "the pattern has another type for a"),
    (obj({}, patternProperties={"^a": INTEGER}), obj({}, patternProperties={"^a": NUMBER}), True, False,
     "the pattern allows more"),
    # Objects: the rest.
    (obj(maxProperties=3), obj(maxProperties=5), True, False, "more properties"),
    (obj(maxProperties=3), obj(), True, False, "any number of properties"),
    (obj(minProperties=3), obj(minProperties=1), True, False, "fewer properties"),
    (obj(dependencies={"a": ["b", "c"]}), obj(dependencies={"a": ["b"]}), True, False, "a needs less beside it"),
    (obj(dependencies={"a": ["b"]}), obj(), True, False, "a needs nothing beside it"),
    (obj(dependencies={"a": ["b"]}), obj(dependencies={"a": ["c"]}), False, False, "a needs something else"),
    (obj(dependencies={"a": obj(A)}), obj(), True, False, "nothing depends on a any more"),
    (obj(propertyNames={"maxLength": 3}), obj(propertyNames={"maxLength": 5}), True, True, "names are not compared"),
    # Arrays.
    (array(), array(), True, True, "the same"),
    (array(INTEGER), array(NUMBER), True, False, "any numbers"),
    (array(INTEGER), array(STRING), False, False, "items of another type"),
    (array(INTEGER), array(), True, False, "any items"),
    (array(maxItems=3), array(maxItems=5), True, False, "more items"),
    (array(maxItems=3), array(), True, False, "any number of items"),
    (array(minItems=3), array(minItems=1), True, False, "fewer items"),
    (array(uniqueItems=True), array(), True, False, "items may repeat"),
    (array([STRING]), array([STRING, INTEGER]), False, True, "the second item could have been anything"),
    (array([STRING], additionalItems=False), array([STRING, INTEGER], additionalItems=False), True, False,
     "there was no second item"),
    (array([STRING]), array([STRING, {}]), True, True, "the second item may be anything, as before"),
    (array([STRING], additionalItems=False), array([STRING]), True, False, "more items are allowed"),
    (array([STRING], additionalItems=INTEGER), array([STRING, INTEGER], additionalItems=INTEGER), True, True,
     "the rule for the rest covers the second item"),
    (array([STRING], additionalItems=INTEGER), array([STRING, STRING], additionalItems=INTEGER), False, False,
     "the rule for the rest has another type"),
    (array([STRING], additionalItems=INTEGER), array([STRING], additionalItems=NUMBER), True, False,
     "the rest may be any number"),
    ({"$schema": D2020, "type": "array", "prefixItems": [STRING], "items": False},
     {"$schema": D2020, "type": "array", "prefixItems": [STRING, INTEGER], "items": False}, True, False,
     "prefixItems are the tuples of 2020-12"),
    (array(contains=STRING), array(), True, False, "nothing need be in it"),
    # Combinations.
    ({"oneOf": [STRING, INTEGER]}, {"oneOf": [INTEGER, STRING]}, True, True, "in another order"),
    ({"oneOf": [STRING]}, {"oneOf": [STRING, INTEGER]}, True, False, "one more choice"),
    ({"anyOf": [STRING]}, {"anyOf": [STRING, INTEGER]}, True, False, "one more choice"),
    (STRING, {"oneOf": [STRING, INTEGER]}, True, False, "one of the choices"),
    (STRING, {"oneOf": [INTEGER, BOOLEAN]}, False, False, "none of the choices"),
    (STRING, {"oneOf": [STRING]}, True, True, "the only choice"),
    ({"oneOf": [STRING, INTEGER]}, {"anyOf": [STRING, INTEGER]}, True, False, "one is any; any may be more than one"),
    ({"oneOf": [STRING, INTEGER]}, {"oneOf": [STRING, BOOLEAN]}, False, False, "another choice"),
    ({"oneOf": [INTEGER, STRING]}, {"oneOf": [STRING, NUMBER]}, True, False, "each finds a wider one"),
    ({"allOf": [obj(A), obj({"b": INTEGER})]}, {"allOf": [obj(A)]}, True, False, "fewer demands"),
    ({"allOf": [{"maxLength": 5}, {"minLength": 2}]}, {"allOf": [{"minLength": 1}, {"maxLength": 9}]}, True, False,
     "each demand finds a weaker one"),
    ({"not": STRING}, {"not": STRING}, True, True, "the same refusal"),
    ({"not": NUMBER}, {"not": INTEGER}, True, False, "less is refused"),
    # References.
    ({"definitions": {"x": STRING}, "properties": {"a": {"$ref": "#/definitions/x"}}, "type": "object"}, obj(A), True,
     True, "a reference is what it refers to"),
    ({"definitions": {"x": INTEGER}, "properties": {"a": {"$ref": "#/definitions/x"}}, "type": "object"},
     {"definitions": {"x": NUMBER}, "properties": {"a": {"$ref": "#/definitions/x"}}, "type": "object"}, True, False,
     "what it refers to allows more"),
    (LIST, LIST, True, True, "a schema that refers to itself"),
    (LIST, obj({"v": NUMBER, "next": {"$ref": "#"}}), True, False, "and that allows more, all the way down"),
    (LIST, obj({"v": STRING, "next": {"$ref": "#"}}), False, False, "and that changes a type"),
]  # fmt: skip

PAIRS: list[Pair] = [
    (json.dumps(old), json.dumps(new), backward, forward, why) for old, new, backward, forward, why in _PAIRS
]

# old, new, strict, lenient: what the lenient policy forgives.
POLICY: list[tuple[str, str, bool, bool, str]] = [
    (json.dumps(old), json.dumps(new), strict, lenient, why)
    for old, new, strict, lenient, why in (
        (obj(A), obj(AB), False, True, "writers write what is declared"),
        (closed(AB), closed(A), False, True, "a property that goes from a closed model"),
        (obj(A), closed(A), False, True, "an open model closes"),
        (obj(A), partly(STRING, A), False, True, "an open model closes to a type"),
        (obj(A), obj({"a": STRING, "b": INTEGER}, ["b"]), False, False, "a required property stays incompatible"),
        (NEW | obj(), NEW | obj(unevaluatedProperties=False), False, True, "an open model closes to what is evaluated"),
        (partly(STRING, {}), partly(STRING, {"a": INTEGER}), False, False, "a type that the rest refuses"),
        (closed({"a": INTEGER}), partly(STRING, {}), False, False, "the same, of a property that goes"),
        (obj(A), obj({"a": INTEGER}), False, False, "another type stays incompatible"),
        (obj(A), obj(A, ["a"]), False, False, "a new demand stays incompatible"),
    )
]
