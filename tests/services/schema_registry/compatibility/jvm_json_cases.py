"""The verdict of the JVM registry on a change from one JSON Schema to another, for every kind of change it reports.

A row is: what changes, the old schema, the new one, and the types of incompatibility that are reported, each with its
path; the last is empty if the change is compatible. The schemas are ours; verdicts and names are those of the JVM
registry (backward, policy STRICT). Rows of `CASES` hold in draft 7 as they stand, and in 2020-12 as `in_2020_12`
rewords them; those of `NEW_DRAFT_CASES` use keywords that only 2020-12 has.
"""

from __future__ import annotations

from typing import Any

from tests.services.schema_registry.compatibility.json_pairs import (
    BOOLEAN,
    D2020,
    INTEGER,
    NUMBER,
    STRING,
    array,
    closed,
    number,
    obj,
    partly,
    string,
)

Case = tuple[str, Any, Any, tuple[str, ...]]
NULL: dict[str, Any] = {"type": "null"}
NAMED = {"name": STRING}
NUMBERED = {"^n_": INTEGER, "^s_": STRING}
NULLABLE: dict[str, Any] = {"oneOf": [NULL, STRING]}
COLOURS: dict[str, Any] = {"enum": ["red", "green"]}


def tuple_of(*items: Any, rest: Any = None) -> dict[str, Any]:
    return array(list(items), **({} if rest is None else {"additionalItems": rest}))


def has(schema: Any) -> dict[str, Any]:
    """Return an object schema with the given schema as its property `part`."""
    return obj({"part": schema})


def refers(to: Any) -> dict[str, Any]:
    return {"$ref": "#/definitions/it", "definitions": {"it": to}}


def circle(kinds: int, links: int, leaf: Any = STRING) -> dict[str, Any]:
    """Return a recursive schema: `kinds` object types, each with `links` properties that are oneOf all types."""
    choice = {"oneOf": [{"$ref": f"#/definitions/k{index}"} for index in range(kinds)]}
    definitions = {
        f"k{index}": obj({"leaf": leaf} | {f"link{link}": dict(choice) for link in range(links)})
        for index in range(kinds)
    }
    return obj({"start": dict(choice)}, definitions=definitions)


def two_kinds(first: Any, second: Any) -> dict[str, Any]:
    """Return a schema with oneOf two types; each refers to a third, which refers to the first."""
    third = obj({"leaf": INTEGER, "next": {"oneOf": [{"$ref": "#/definitions/first"}]}})
    to_third = {"oneOf": [{"$ref": "#/definitions/third"}]}
    definitions = {
        "first": obj({"leaf": first, "next": dict(to_third)}),
        "second": obj({"leaf": second, "next": dict(to_third)}),
        "third": third,
    }
    start = {"oneOf": [{"$ref": "#/definitions/first"}, {"$ref": "#/definitions/second"}]}
    return obj({"start": start}, definitions=definitions)


_WHOLE: list[Case] = [
    ("a schema gives way to one that allows everything", obj(NAMED), {}, ()),
    ("another id", {"$id": "http://a.example/x"}, {"$id": "http://a.example/y"}, ()),
    ("another title", {"title": "x"}, {"title": "y"}, ()),
    ("another description", {"description": "x"}, {"description": "y"}, ()),
    ("another default", string(default="x"), string(default="y"), ()),
    ("a schema where there was none", {}, obj(), ("TYPE_CHANGED #",)),
    ("another type", obj(), array(), ("TYPE_CHANGED #",)),
    ("two types of Connect that are both bytes", string(**{"connect.type": "bytes"}),
     number(**{"connect.type": "bytes"}), ()),
    ("two types of Connect of which one is bytes", string(**{"connect.type": "bytes"}), NUMBER, ("TYPE_CHANGED #",)),
    ("false comes to allow something", has(False), has(STRING), ()),
    ("what refuses everything turns into false", has({"not": {}}), has(False), ("TYPE_CHANGED #/properties/part",)),
    ("false turns into what refuses everything", has(False), has({"not": {}}), ()),
    ("what refuses everything turns into true", has({"not": {}}), has(True), ()),
    ("true turns into what refuses everything", has(True), has({"not": {}}), ("TYPE_CHANGED #/properties/part",)),
    ("what refuses everything is spelt in another way", has({"not": {}}), has({"not": True}), ()),
    ("something comes to be never allowed", has(STRING), has(False), ("TYPE_CHANGED #/properties/part",)),
]  # fmt: skip

_VALUES: list[Case] = [
    ("minLength rises", string(minLength=2), string(minLength=3), ("MIN_LENGTH_INCREASED #/minLength",)),
    ("minLength falls", string(minLength=3), string(minLength=2), ()),
    ("minLength comes", STRING, string(minLength=2), ("MIN_LENGTH_ADDED #/minLength",)),
    ("minLength goes", string(minLength=2), STRING, ()),
    ("maxLength rises", string(maxLength=2), string(maxLength=3), ()),
    ("maxLength falls", string(maxLength=3), string(maxLength=2), ("MAX_LENGTH_DECREASED #/maxLength",)),
    ("maxLength comes", STRING, string(maxLength=3), ("MAX_LENGTH_ADDED #/maxLength",)),
    ("maxLength goes", string(maxLength=2), STRING, ()),
    ("a pattern goes", string(pattern="x"), STRING, ()),
    ("a pattern comes", STRING, string(pattern="x"), ("PATTERN_ADDED #/pattern",)),
    ("another pattern", string(pattern="x"), string(pattern="y"), ("PATTERN_CHANGED #/pattern",)),
    ("the same pattern", string(pattern="x"), string(pattern="x"), ()),
    ("maximum goes", number(maximum=7), NUMBER, ()),
    ("maximum comes", NUMBER, number(maximum=7), ("MAXIMUM_ADDED #/maximum",)),
    ("maximum rises", number(maximum=7), number(maximum=8), ()),
    ("maximum falls", number(maximum=8), number(maximum=7), ("MAXIMUM_DECREASED #/maximum",)),
    ("minimum goes", number(minimum=7), NUMBER, ()),
    ("minimum comes", NUMBER, number(minimum=7), ("MINIMUM_ADDED #/minimum",)),
    ("minimum rises", number(minimum=7), number(minimum=8), ("MINIMUM_INCREASED #/minimum",)),
    ("minimum falls", number(minimum=8), number(minimum=7), ()),
    ("exclusiveMaximum goes", number(exclusiveMaximum=7), NUMBER, ()),
    ("exclusiveMaximum comes", NUMBER, number(exclusiveMaximum=7), ("EXCLUSIVE_MAXIMUM_ADDED #/exclusiveMaximum",)),
    ("exclusiveMaximum rises", number(exclusiveMaximum=7), number(exclusiveMaximum=8), ()),
    ("exclusiveMaximum falls", number(exclusiveMaximum=8), number(exclusiveMaximum=7),
     ("EXCLUSIVE_MAXIMUM_DECREASED #/exclusiveMaximum",)),
    ("exclusiveMinimum goes", number(exclusiveMinimum=7), NUMBER, ()),
    ("exclusiveMinimum rises", number(exclusiveMinimum=7), number(exclusiveMinimum=8),
     ("EXCLUSIVE_MINIMUM_INCREASED #/exclusiveMinimum",)),
    ("exclusiveMinimum falls", number(exclusiveMinimum=8), number(exclusiveMinimum=7), ()),
    ("multipleOf goes", number(multipleOf=6), NUMBER, ()),
    ("multipleOf comes", NUMBER, number(multipleOf=6), ("MULTIPLE_OF_ADDED #/multipleOf",)),
    ("multipleOf turns into a divisor", number(multipleOf=6), number(multipleOf=3), ()),
    ("multipleOf turns into a multiple", number(multipleOf=3), number(multipleOf=6),
     ("MULTIPLE_OF_EXPANDED #/multipleOf",)),
    ("multipleOf turns into neither", number(multipleOf=6), number(multipleOf=5),
     ("MULTIPLE_OF_CHANGED #/multipleOf",)),
    ("a fraction turns into a multiple", number(multipleOf=0.5), number(multipleOf=4),
     ("MULTIPLE_OF_EXPANDED #/multipleOf",)),
    ("a fraction turns into a divisor", number(multipleOf=0.3), number(multipleOf=0.1), ()),
    ("numbers turn into integers", NUMBER, INTEGER, ("TYPE_NARROWED #",)),
    ("integers turn into numbers", INTEGER, NUMBER, ()),
    ("less is refused", {"not": NUMBER}, {"not": INTEGER}, ()),
    ("more is refused", {"not": INTEGER}, {"not": NUMBER}, ("NOT_TYPE_EXTENDED #/not",)),
    ("an enum beside a type goes", string(enum=["a"]), STRING, ()),
    ("an enum comes beside a type", STRING, string(enum=["a"]), ("TYPE_CHANGED #",)),
    ("an enum grows", {"enum": ["a"]}, {"enum": ["a", "b"]}, ()),
    ("an enum shrinks", {"enum": ["a", "b"]}, {"enum": ["b"]}, ("ENUM_ARRAY_NARROWED #/enum",)),
    ("an enum changes", {"enum": ["a", "b"]}, {"enum": ["b", "c"]}, ("ENUM_ARRAY_CHANGED #/enum",)),
    ("an enum of objects grows", {"enum": [{"a": 1}]}, {"enum": [{"b": 2}, {"a": 1}]}, ()),
    ("an enum of numbers shrinks", {"enum": [1, 2]}, {"enum": [1]}, ("ENUM_ARRAY_NARROWED #/enum",)),
    ("another constant", {"const": 1}, {"const": 2}, ("ENUM_ARRAY_CHANGED #/enum",)),
    ("an enum, and not an integer", INTEGER, {"enum": ["a"]}, ("TYPE_CHANGED #",)),
    ("an integer, and not an enum", {"enum": ["a"]}, INTEGER, ("TYPE_CHANGED #",)),
]  # fmt: skip

_OBJECTS: list[Case] = [
    ("one property for another in an open model", obj({"x": STRING}), obj({"y": STRING}),
     ("PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL #/properties/y",)),
    ("another type of a property", obj({"x": STRING}), obj({"x": NUMBER}), ("TYPE_CHANGED #/properties/x",)),
    ("an optional property in a closed model", closed(NAMED), closed(NAMED | {"x": NUMBER}), ()),
    ("a required property in a closed model", closed(NAMED), closed(NAMED | {"x": NUMBER}, ["x"]),
     ("REQUIRED_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL #/properties/x",)),
    ("a required property with a default in a closed model", closed(NAMED),
     closed(NAMED | {"x": number(default=1)}, ["x"]), ()),
    ("a property that a pattern covers", closed(NAMED, patternProperties=NUMBERED),
     closed(NAMED | {"n_1": NUMBER}, patternProperties=NUMBERED), ()),
    ("a property of another type than the pattern's", closed(NAMED, patternProperties=NUMBERED),
     closed(NAMED | {"n_1": STRING}, patternProperties=NUMBERED),
     ("PROPERTY_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL #/properties/n_1",)),
    ("a property that no pattern covers", obj(NAMED, patternProperties=NUMBERED),
     obj(NAMED | {"x": STRING}, patternProperties=NUMBERED), ()),
    ("a property that the rest covers", partly(STRING, NAMED), partly(STRING, NAMED | {"x": STRING}), ()),
    ("a property of another type than the rest", partly(STRING, NAMED), partly(STRING, NAMED | {"x": NUMBER}),
     ("PROPERTY_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL #/properties/x",)),
    ("a required property that the rest covers", partly(STRING, NAMED), partly(STRING, NAMED | {"x": STRING}, ["x"]),
     ("REQUIRED_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL #/properties/x",)),
    ("a property goes, and a pattern takes it", closed(NAMED | {"n_1": INTEGER}),
     closed(NAMED, patternProperties={"^s_": STRING, "^n_": NUMBER}), ()),
    ("a property goes, and a pattern refuses it", closed(NAMED | {"n_1": NUMBER}),
     closed(NAMED, patternProperties=NUMBERED),
     ("PROPERTY_REMOVED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL #/properties/n_1",)),
    ("a property goes, and the rest takes it", closed(NAMED | {"x": STRING}), partly(STRING, NAMED), ()),
    ("a property goes, and the rest refuses it", closed(NAMED | {"x": NUMBER}), partly(STRING, NAMED),
     ("PROPERTY_REMOVED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL #/properties/x",)),
    ("a property with choices goes, and the rest has the same", closed(NAMED | {"x": NULLABLE}),
     partly(NULLABLE, NAMED), ()),
    ("a property goes, and the rest has it among its choices", closed(NAMED | {"x": STRING}),
     partly(NULLABLE, NAMED), ()),
    ("a property goes from a closed model", closed(NAMED | {"x": STRING}), closed(NAMED),
     ("PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL #/properties/x",)),
    ("a property goes from an open model", obj(NAMED | {"x": STRING}), obj(NAMED), ()),
    ("a property comes into an open model", obj(NAMED), obj(NAMED | {"x": NUMBER}),
     ("PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL #/properties/x",)),
    ("a property that may be anything comes into an open model", obj(NAMED), obj(NAMED | {"x": True}), ()),
    ("a property that may be anything goes from an open model", obj(NAMED | {"x": True}), obj(NAMED), ()),
    ("a property that is never allowed comes into a closed model", closed(NAMED), closed(NAMED | {"x": False}), ()),
    ("a property that is never allowed goes from a closed model", closed(NAMED | {"x": False}), closed(NAMED), ()),
    ("nothing is required any more", obj(NAMED, ["name"]), obj(NAMED), ()),
    ("a property comes to be required", obj(NAMED), obj(NAMED, ["name"]),
     ("REQUIRED_ATTRIBUTE_ADDED #/required/name",)),
    ("a property with a default comes to be required", obj({"x": string(default="")}),
     obj({"x": string(default="")}, ["x"]), ()),
    ("something is required that is not declared", obj(NAMED, ["name"]), obj(NAMED, ["other"]), ()),
    ("something more is required that is not declared", obj(NAMED), obj(NAMED, ["other"]), ()),
    ("what was declared is required, and not declared", obj(NAMED), obj({}, ["name"]), ()),
    ("maxProperties goes", obj(maxProperties=3), obj(), ()),
    ("maxProperties comes", obj(), obj(maxProperties=3), ("MAX_PROPERTIES_ADDED #/maxProperties",)),
    ("maxProperties rises", obj(maxProperties=3), obj(maxProperties=4), ()),
    ("maxProperties falls", obj(maxProperties=4), obj(maxProperties=3), ("MAX_PROPERTIES_DECREASED #/maxProperties",)),
    ("minProperties goes", obj(minProperties=3), obj(), ()),
    ("minProperties comes", obj(), obj(minProperties=3), ("MIN_PROPERTIES_ADDED #/minProperties",)),
    ("minProperties rises", obj(minProperties=3), obj(minProperties=4),
     ("MIN_PROPERTIES_INCREASED #/minProperties",)),
    ("minProperties falls", obj(minProperties=4), obj(minProperties=3), ()),
    ("a closed model opens", closed({}), obj({}), ()),
    ("an open model closes", obj(additionalProperties=True), obj(additionalProperties=False),
     ("ADDITIONAL_PROPERTIES_REMOVED #/additionalProperties",)),
    ("an open model closes to a type", obj(additionalProperties=True), obj(additionalProperties=NUMBER),
     ("ADDITIONAL_PROPERTIES_NARROWED #/additionalProperties",)),
    ("a type opens", obj(additionalProperties=NUMBER), obj(additionalProperties=True), ()),
    ("the rest is of another type", obj(additionalProperties=STRING), obj(additionalProperties=NUMBER),
     ("TYPE_CHANGED #/additionalProperties",)),
    ("the rest is of a wider type", obj(additionalProperties=INTEGER), obj(additionalProperties=NUMBER), ()),
    ("names have to follow a rule", obj({"x": {}}), obj({"x": {}}, propertyNames={"pattern": "x*"}), ()),
    ("something else depends on something", obj(dependencies={"x": ["y"]}), obj(dependencies={"y": ["x"]}),
     ("DEPENDENCY_ARRAY_ADDED #/dependencies/y",)),
    ("it depends on more", obj(dependencies={"x": ["y"]}), obj(dependencies={"x": ["y", "z"]}),
     ("DEPENDENCY_ARRAY_EXTENDED #/dependencies/x",)),
    ("it depends on less", obj(dependencies={"x": ["y", "z"]}), obj(dependencies={"x": ["y"]}), ()),
    ("it depends on other things", obj(dependencies={"x": ["y"]}), obj(dependencies={"x": ["z"]}),
     ("DEPENDENCY_ARRAY_CHANGED #/dependencies/x",)),
    ("nothing depends on it", obj(dependencies={"x": ["y"]}), obj(), ()),
    ("a schema that depends goes", obj(dependencies={"x": STRING, "y": STRING}), obj(dependencies={"x": STRING}), ()),
    ("every schema that depends goes", obj(dependencies={"x": STRING}), obj(dependencies={}), ()),
    ("a schema that depends changes", obj(dependencies={"x": STRING}), obj(dependencies={"x": NUMBER}),
     ("TYPE_CHANGED #/dependencies/x",)),
    ("another schema depends", obj(dependencies={"x": STRING}), obj(dependencies={"y": STRING}),
     ("DEPENDENCY_SCHEMA_ADDED #/dependencies/y",)),
]  # fmt: skip

_ARRAYS: list[Case] = [
    ("a schema for all items comes", array(), array(STRING), ("SCHEMA_ADDED #/items",)),
    ("a schema for all items goes", array(STRING), array(), ()),
    ("a schema for all items changes", array(STRING), array(NUMBER), ("TYPE_CHANGED #/items",)),
    ("a schema for all items widens", array(INTEGER), array(NUMBER), ()),
    ("a tuple turns into any array", tuple_of(STRING, NUMBER), array(), ()),
    ("a list turns into a tuple of the same", array(INTEGER), tuple_of(INTEGER),
     ("ITEM_ADDED_TO_OPEN_CONTENT_MODEL #/items/0",)),
    ("a list turns into a tuple of anything", array(INTEGER), tuple_of({}), ()),
    ("a tuple turns into a list of the same", tuple_of(INTEGER), array(INTEGER), ("SCHEMA_ADDED #/items",)),
    ("a closed tuple turns into a list of the same", tuple_of(INTEGER, rest=False), array(INTEGER),
     ("SCHEMA_ADDED #/items",)),
    ("an item that the rest covers", tuple_of(STRING, rest=STRING), tuple_of(STRING, STRING, rest=STRING), ()),
    ("an item of another type than the rest", tuple_of(STRING, rest=STRING), tuple_of(STRING, NUMBER, rest=STRING),
     ("ITEM_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL #/items/1",)),
    ("an item goes, and the rest takes it", tuple_of(STRING, STRING, rest=STRING), tuple_of(STRING, rest=STRING), ()),
    ("an item with choices goes, and the rest has the same", tuple_of(STRING, NULLABLE, rest=NULLABLE),
     tuple_of(STRING, rest=NULLABLE), ()),
    ("an item goes, and the rest refuses it", tuple_of(STRING, NUMBER, rest=STRING), tuple_of(STRING, rest=STRING),
     ("ITEM_REMOVED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL #/items/1",)),
    ("an item changes", tuple_of(STRING), tuple_of(NUMBER), ("TYPE_CHANGED #/items/0",)),
    ("an item comes into an open model", tuple_of(STRING), tuple_of(STRING, NUMBER),
     ("ITEM_ADDED_TO_OPEN_CONTENT_MODEL #/items/1",)),
    ("an item that may be anything comes into an open model", tuple_of(NUMBER, rest=True),
     tuple_of(NUMBER, True, rest=True), ()),
    ("an item that may be anything goes from an open model", tuple_of(NUMBER, True, rest=True),
     tuple_of(NUMBER, rest=True), ()),
    ("an item that is never allowed comes into a closed model", tuple_of(NUMBER, rest=False),
     tuple_of(NUMBER, False, rest=False), ()),
    ("an item that is never allowed goes from a closed model", tuple_of(NUMBER, False, rest=False),
     tuple_of(NUMBER, rest=False), ()),
    ("an item comes, and the model opens", tuple_of(STRING, rest=False), tuple_of(STRING, BOOLEAN, rest=True), ()),
    ("an item goes, and the model opens", tuple_of(STRING, BOOLEAN, rest=False), tuple_of(STRING, rest=True), ()),
    ("an item goes from an open model", tuple_of(STRING, NUMBER, rest=True), tuple_of(STRING, rest=True), ()),
    ("an item goes from a closed model", tuple_of(STRING, NUMBER, rest=False), tuple_of(STRING, rest=False),
     ("ITEM_REMOVED_FROM_CLOSED_CONTENT_MODEL #/items/1",)),
    ("an item comes into a closed model", tuple_of(STRING, rest=False), tuple_of(STRING, NUMBER, rest=False), ()),
    ("an item goes from a closed model that comes to have its type", tuple_of(STRING, NUMBER, rest=False),
     tuple_of(STRING, rest=NUMBER), ()),
    ("an item comes that the rest covers, and the rest opens", tuple_of(STRING, rest=NUMBER),
     tuple_of(STRING, NUMBER, rest=True), ()),
    ("maxItems falls", array(maxItems=4), array(maxItems=3), ("MAX_ITEMS_DECREASED #/maxItems",)),
    ("maxItems rises", array(maxItems=3), array(maxItems=4), ()),
    ("maxItems comes", array(), array(maxItems=3), ("MAX_ITEMS_ADDED #/maxItems",)),
    ("minItems goes", array(minItems=3), array(), ()),
    ("minItems rises", array(minItems=3), array(minItems=4), ("MIN_ITEMS_INCREASED #/minItems",)),
    ("minItems falls", array(minItems=4), array(minItems=3), ()),
    ("items need not differ any more", array(uniqueItems=True), array(), ()),
    ("items come to have to differ", array(), array(uniqueItems=True), ("UNIQUE_ITEMS_ADDED #/uniqueItems",)),
    ("items come to have to differ, where that was denied", array(uniqueItems=False), array(uniqueItems=True),
     ("UNIQUE_ITEMS_ADDED #/uniqueItems",)),
]  # fmt: skip

# additionalItems without a list of items has no meaning in validation; the JVM registry compares it nevertheless.
OLD_DRAFT_CASES: list[Case] = [
    ("additionalItems without items closes", {"additionalItems": True}, {"additionalItems": False},
     ("ADDITIONAL_ITEMS_REMOVED #/additionalItems",)),
    ("additionalItems without items opens", {"additionalItems": False}, {"additionalItems": True}, ()),
    ("additionalItems without items comes to have a type", {"additionalItems": True}, {"additionalItems": STRING},
     ("ADDITIONAL_ITEMS_NARROWED #/additionalItems",)),
    ("additionalItems without items changes its type", {"additionalItems": STRING}, {"additionalItems": NUMBER},
     ("TYPE_CHANGED #/additionalItems",)),
    ("what stands beside a reference says nothing", refers(STRING), refers(STRING) | {"minLength": 3}, ()),
    ("unevaluatedProperties says nothing before 2019-09", obj(), obj(unevaluatedProperties=False), ()),
]  # fmt: skip

_COMBINATIONS: list[Case] = [
    ("a list of types grows", {"type": ["object"]}, {"type": ["object", "array"]}, ()),
    ("a list of types shrinks", {"type": ["object", "array"]}, {"type": ["object"]}, ("SUM_TYPE_NARROWED #",)),
    ("a choice changes", {"oneOf": [STRING]}, {"oneOf": [NUMBER]}, ("COMBINED_TYPE_SUBSCHEMAS_CHANGED #",)),
    ("a choice comes in front", {"oneOf": [STRING]}, {"oneOf": [NUMBER, STRING]}, ()),
    ("a choice changes further down", {"oneOf": [obj({"x": STRING})]}, {"oneOf": [obj({"x": NUMBER})]},
     ("COMBINED_TYPE_SUBSCHEMAS_CHANGED #",)),
    ("a choice for a type", STRING, {"oneOf": [NUMBER, STRING]}, ()),
    ("a choice for null", NULL, {"oneOf": [NUMBER, NULL]}, ()),
    ("a wider choice for a type", string(maxLength=3), {"oneOf": [NUMBER, STRING]}, ()),
    ("demands in another order", has({"allOf": [COLOURS, STRING, {"maxLength": 5}]}),
     has({"allOf": [{"maxLength": 5}, COLOURS, STRING]}), ()),
    ("an enum within demands grows", {"allOf": [STRING, {"enum": ["red"]}]}, {"allOf": [COLOURS, STRING]}, ()),
    ("an enum within demands changes", {"allOf": [STRING, {"enum": ["red"]}]}, {"allOf": [STRING, {"enum": ["blue"]}]},
     ("COMBINED_TYPE_SUBSCHEMAS_CHANGED #",)),
    ("a demand changes", has({"allOf": [COLOURS, STRING]}), has({"allOf": [COLOURS, NUMBER]}),
     ("COMBINED_TYPE_SUBSCHEMAS_CHANGED #/properties/part",)),
    ("a demand was said twice", has({"allOf": [STRING, STRING]}), has({"allOf": [STRING]}), ()),
    ("a demand is said twice", has({"allOf": [STRING]}), has({"allOf": [STRING, STRING]}), ()),
    ("a choice of anyOf was said twice", has({"anyOf": [STRING, NUMBER, STRING]}), has({"anyOf": [STRING, NUMBER]}),
     ()),
    ("a choice of oneOf was said twice", has({"oneOf": [COLOURS, COLOURS]}), has({"oneOf": [COLOURS]}), ()),
    ("a choice comes", has({"oneOf": [STRING]}), has({"oneOf": [BOOLEAN, NUMBER, STRING]}), ()),
    ("a choice comes, and another widens", has({"oneOf": [string(maxLength=5)]}),
     has({"oneOf": [BOOLEAN, string(maxLength=8, title="t")]}), ()),
    ("a choice goes", has({"oneOf": [NUMBER, STRING]}), has({"oneOf": [STRING]}),
     ("SUM_TYPE_NARROWED #/properties/part",)),
    ("a demand goes", has({"allOf": [COLOURS, STRING]}), has({"allOf": [STRING]}), ()),
    ("a demand comes", has({"allOf": [STRING]}), has({"allOf": [COLOURS, STRING]}),
     ("PRODUCT_TYPE_EXTENDED #/properties/part",)),
    ("one turns into any", has({"oneOf": [STRING]}), has({"anyOf": [STRING]}), ()),
    ("one turns into any of more", has({"oneOf": [STRING]}), has({"anyOf": [NUMBER, STRING]}), ()),
    ("all turns into any", has({"allOf": [STRING]}), has({"anyOf": [STRING]}), ()),
    ("all turns into any of more", has({"allOf": [STRING]}), has({"anyOf": [NUMBER, STRING]}), ()),
    ("all turns into any of fewer", has({"allOf": [COLOURS, STRING]}), has({"anyOf": [STRING]}), ()),
    ("all turns into any of fewer that fit nothing", has({"allOf": [COLOURS, STRING]}), has({"anyOf": [NUMBER]}),
     ("COMBINED_TYPE_SUBSCHEMAS_CHANGED #/properties/part",)),
    ("all turns into one of fewer", has({"allOf": [COLOURS, STRING]}), has({"oneOf": [STRING]}), ()),
    ("all turns into one of several", has({"allOf": [COLOURS, STRING]}), has({"oneOf": [COLOURS, STRING]}),
     ("COMBINED_TYPE_CHANGED #/properties/part",)),
    ("any turns into one of more", has({"anyOf": [STRING]}), has({"oneOf": [NUMBER, STRING]}), ()),
    ("any turns into one of fewer", has({"anyOf": [NUMBER, STRING]}), has({"oneOf": [STRING]}),
     ("COMBINED_TYPE_CHANGED #/properties/part",)),
    ("all turns into one of more", has({"allOf": [NUMBER]}), has({"oneOf": [NUMBER, STRING]}), ()),
    ("any turns into all", has({"anyOf": [STRING]}), has({"allOf": [STRING]}), ()),
    ("one turns into all", has({"oneOf": [STRING]}), has({"allOf": [STRING]}), ()),
    ("any turns into all of more", has({"anyOf": [STRING]}), has({"allOf": [NUMBER, STRING]}),
     ("COMBINED_TYPE_CHANGED #/properties/part",)),
    ("one turns into all of more", has({"oneOf": [STRING]}), has({"allOf": [NUMBER, STRING]}),
     ("COMBINED_TYPE_CHANGED #/properties/part",)),
    ("one of several turns into all", has({"oneOf": [STRING, INTEGER]}), has({"allOf": [STRING]}),
     ("COMBINED_TYPE_CHANGED #/properties/part",)),
    ("a type turns into any", has(STRING), has({"anyOf": [NUMBER, STRING]}), ()),
    ("a type turns into all", has(STRING), has({"allOf": [STRING]}), ()),
    ("a type turns into all of more", has(STRING), has({"allOf": [NUMBER, STRING]}),
     ("TYPE_CHANGED #/properties/part",)),
    ("all turns into one type of them", has({"allOf": [COLOURS, STRING]}), has(STRING), ()),
    ("one turns into a type of them", has({"oneOf": [INTEGER, STRING]}), has(INTEGER),
     ("TYPE_CHANGED #/properties/part",)),
]  # fmt: skip

_REFERENCES: list[Case] = [
    ("what is referred to changes", refers(STRING), refers(NUMBER), ("TYPE_CHANGED #",)),
    ("what is referred to widens", refers(INTEGER), refers(NUMBER), ()),
    ("items refer to what changes", array({"$ref": "#/definitions/it"}, definitions={"it": STRING}),
     array({"$ref": "#/definitions/it"}, definitions={"it": NUMBER}), ("TYPE_CHANGED #/items",)),
    ("a schema moves behind a reference", STRING, refers(STRING), ()),
    ("a schema moves out of a reference", refers(STRING), STRING, ()),
    ("circles through choices", circle(12, 2), circle(12, 2), ()),
    ("circles through choices, many of them", circle(12, 5), circle(12, 5), ()),
    ("circles through choices in which a leaf changes", circle(12, 2), circle(12, 2, leaf=NUMBER),
     ("COMBINED_TYPE_SUBSCHEMAS_CHANGED #/properties/start",)),
    ("circles through choices in which a leaf widens", circle(4, 2, leaf=INTEGER), circle(4, 2, leaf=NUMBER), ()),
    ("a circle that hides a change", two_kinds(INTEGER, BOOLEAN), two_kinds(BOOLEAN, NUMBER),
     ("COMBINED_TYPE_SUBSCHEMAS_CHANGED #/properties/start",)),
]  # fmt: skip

CASES: list[Case] = [*_WHOLE, *_VALUES, *_OBJECTS, *_ARRAYS, *_COMBINATIONS, *_REFERENCES]


def unevaluated(schema: Any, properties: dict[str, Any], required: list[str] | None = None) -> dict[str, Any]:
    return obj(properties, required, unevaluatedProperties=schema)


def unevaluated_items(schema: Any, *items: Any) -> dict[str, Any]:
    return {"type": "array", "prefixItems": list(items), "unevaluatedItems": schema}


NEW_DRAFT_CASES: list[Case] = [
    ("a property that the unevaluated rest covers", unevaluated(STRING, NAMED),
     unevaluated(STRING, NAMED | {"x": STRING}), ()),
    ("a property of another type than the unevaluated rest", unevaluated(STRING, NAMED),
     unevaluated(STRING, NAMED | {"x": NUMBER}),
     ("PROPERTY_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL #/properties/x",)),
    ("a required property that the unevaluated rest covers", unevaluated(STRING, NAMED),
     unevaluated(STRING, NAMED | {"x": STRING}, ["x"]),
     ("REQUIRED_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL #/properties/x",)),
    ("a property where nothing may be left unevaluated", unevaluated(False, NAMED),
     unevaluated(False, NAMED | {"x": STRING}), ()),
    ("a property goes where nothing may be left unevaluated", unevaluated(False, NAMED | {"x": STRING}),
     unevaluated(False, NAMED), ("PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL #/properties/x",)),
    ("a property goes that the unevaluated rest covers", unevaluated(STRING, NAMED | {"x": STRING}),
     unevaluated(STRING, NAMED), ()),
    ("a property goes that the unevaluated rest refuses", unevaluated(STRING, NAMED | {"x": NUMBER}),
     unevaluated(STRING, NAMED), ("PROPERTY_REMOVED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL #/properties/x",)),
    ("additionalProperties counts before the unevaluated rest", closed(NAMED, unevaluatedProperties=STRING),
     closed(NAMED | {"x": NUMBER}, unevaluatedProperties=STRING), ()),
    ("nothing may be left unevaluated any more", obj(NAMED), unevaluated(False, NAMED),
     ("UNEVALUATED_PROPERTIES_REMOVED #/unevaluatedProperties",)),
    ("a rule for the unevaluated rest comes", obj(NAMED), unevaluated(STRING, NAMED),
     ("UNEVALUATED_PROPERTIES_NARROWED #/unevaluatedProperties",)),
    ("a rule for the unevaluated rest goes", unevaluated(STRING, NAMED), obj(NAMED), ()),
    ("the unevaluated rest is allowed", unevaluated(False, NAMED), obj(NAMED), ()),
    ("the unevaluated rest comes to have a type", unevaluated(False, NAMED), unevaluated(STRING, NAMED), ()),
    ("the type of the unevaluated rest goes", unevaluated(STRING, NAMED), unevaluated(False, NAMED),
     ("UNEVALUATED_PROPERTIES_REMOVED #/unevaluatedProperties",)),
    ("the unevaluated rest is of another type", unevaluated(STRING, NAMED), unevaluated(NUMBER, NAMED),
     ("TYPE_CHANGED #/unevaluatedProperties",)),
    ("the unevaluated rest is of a wider type", unevaluated(INTEGER, NAMED), unevaluated(NUMBER, NAMED), ()),
    ("no item may be left unevaluated any more", unevaluated_items(True, STRING), unevaluated_items(False, STRING),
     ("UNEVALUATED_ITEMS_REMOVED #/unevaluatedItems",)),
    ("a rule for unevaluated items comes", array(), array(unevaluatedItems=STRING),
     ("UNEVALUATED_ITEMS_NARROWED #/unevaluatedItems",)),
    ("a rule for unevaluated items goes", array(unevaluatedItems=STRING), array(), ()),
    ("unevaluated items are allowed", array(unevaluatedItems=False), array(), ()),
    ("unevaluated items are of another type", array(unevaluatedItems=STRING), array(unevaluatedItems=NUMBER),
     ("TYPE_CHANGED #/unevaluatedItems",)),
    ("an item where none may be left unevaluated", unevaluated_items(False, STRING),
     unevaluated_items(False, STRING, NUMBER), ()),
    ("an item that the unevaluated rest covers", unevaluated_items(NUMBER, STRING),
     unevaluated_items(NUMBER, STRING, NUMBER), ()),
    ("an item of another type than the unevaluated rest", unevaluated_items(NUMBER, STRING),
     unevaluated_items(NUMBER, STRING, STRING),
     ("ITEM_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL #/items/1",)),
    ("an item goes where none may be left unevaluated", unevaluated_items(False, STRING, NUMBER),
     unevaluated_items(False, STRING), ("ITEM_REMOVED_FROM_CLOSED_CONTENT_MODEL #/items/1",)),
    ("items are forbidden", {"items": True}, {"items": False}, ("ADDITIONAL_ITEMS_REMOVED #/additionalItems",)),
    ("maxContains falls", array(contains=STRING, maxContains=3), array(contains=STRING, maxContains=2),
     ("MAX_CONTAINS_DECREASED #/maxContains",)),
    ("maxContains rises", array(contains=STRING, maxContains=2), array(contains=STRING, maxContains=3), ()),
    ("minContains rises", array(contains=STRING, minContains=2), array(contains=STRING, minContains=3),
     ("MIN_CONTAINS_INCREASED #/minContains",)),
    ("minContains falls", array(contains=STRING, minContains=3), array(contains=STRING, minContains=2), ()),
    ("what is behind an anchor changes", {"$ref": "#it", "$defs": {"x": STRING | {"$anchor": "it"}}},
     {"$ref": "#it", "$defs": {"x": NUMBER | {"$anchor": "it"}}}, ("TYPE_CHANGED #",)),
    ("what is behind an anchor widens", {"$ref": "#it", "$defs": {"x": INTEGER | {"$anchor": "it"}}},
     {"$ref": "#it", "$defs": {"x": NUMBER | {"$anchor": "it"}}}, ()),
    ("what is behind a dynamic anchor changes",
     array({"$dynamicRef": "#it"}, **{"$defs": {"x": STRING | {"$dynamicAnchor": "it"}}}),
     array({"$dynamicRef": "#it"}, **{"$defs": {"x": NUMBER | {"$dynamicAnchor": "it"}}}), ("TYPE_CHANGED #/items",)),
    ("a demand comes beside a reference", {"$ref": "#/$defs/x", "$defs": {"x": STRING}},
     {"$ref": "#/$defs/x", "$defs": {"x": STRING}, "minLength": 3}, ("TYPE_CHANGED #",)),
    ("a demand beside a reference changes", {"$ref": "#/$defs/x", "$defs": {"x": {}}, "minLength": 2},
     {"$ref": "#/$defs/x", "$defs": {"x": {}}, "minLength": 3}, ("COMBINED_TYPE_SUBSCHEMAS_CHANGED #",)),
]  # fmt: skip

_HOLD_NAMES = ("properties", "patternProperties", "definitions", "$defs", "dependencies", "dependentSchemas")
_HOLD_VALUES = ("enum", "const", "default", "required")


def in_2020_12(tree: Any) -> Any:
    """Return the same schema with the keywords of 2020-12."""
    return {"$schema": D2020, **_reworded(tree)} if isinstance(tree, dict) else tree


def _reworded(tree: Any) -> Any:
    if isinstance(tree, list):
        return [_reworded(each) for each in tree]
    if not isinstance(tree, dict):
        return tree
    words: dict[str, Any] = {}
    for word, value in tree.items():
        if word == "dependencies":
            for name, each in value.items():
                kind = "dependentRequired" if isinstance(each, list) else "dependentSchemas"
                words.setdefault(kind, {})[name] = _reworded(each)
        elif word in _HOLD_NAMES:
            words[word] = {name: _reworded(each) for name, each in value.items()}
        elif word == "items" and isinstance(value, list):
            words["prefixItems"] = _reworded(value)
        elif word == "additionalItems":
            words["items"] = _reworded(value)
        else:
            words[word] = value if word in _HOLD_VALUES else _reworded(value)
    return words
