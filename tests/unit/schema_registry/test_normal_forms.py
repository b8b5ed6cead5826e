"""Which schemas are equal with `normalize=true`, and which are not: as in the JVM registry."""

from __future__ import annotations

import json
from typing import Any

import pytest

from pessoa.schema_registry.schemas import parse_schema
from pessoa.serde.schema_problems import SchemaProblem


def record(**more: Any) -> str:
    return json.dumps({"type": "record", "name": "R", "namespace": "n", "fields": [], **more})


def field(**more: Any) -> str:
    return record(fields=[{"name": "f", "type": "int", **more}])


def proto(body: str = "", head: str = "", tail: str = "") -> str:
    return f'syntax = "proto3"; {head} message M {{ {body} }} {tail}'


DESCRIPTOR = 'import "google/protobuf/descriptor.proto";'


def with_options(kind: str, text: str) -> tuple[str, str]:
    """Return the text with two custom options, in both orders."""
    extension = f"extend google.protobuf.{kind}Options {{ string a = 50001; int32 b = 50002; }}"
    head = f'syntax = "proto3"; {DESCRIPTOR} {extension} '
    return head + text.format('(a) = "x"', "(b) = 2"), head + text.format("(b) = 2", '(a) = "x"')


ONE: list[tuple[str, str, str, str]] = [
    ("AVRO", "attributes in another order", '{"name":"R","type":"record","fields":[]}',
     '{"fields":[],"type":"record","name":"R"}'),
    ("AVRO", "a primitive type in braces", '{"type":"string"}', '"string"'),
    ("AVRO", "the namespace within the name", '{"type":"record","name":"n.R","fields":[]}', record()),
    ("AVRO", "properties in another order", record(z=1, a=2), record(a=2, z=1)),
    ("AVRO", "properties within properties in another order", record(p={"z": [{"y": 1, "b": 2}], "a": 2}),
     record(p={"a": 2, "z": [{"b": 2, "y": 1}]})),
    ("AVRO", "properties of a field in another order", field(z=1, a=2), field(a=2, z=1)),
    ("AVRO", "aliases in another order", record(aliases=["b", "a"]), record(aliases=["a", "b"])),
    ("AVRO", "aliases of a field in another order", field(aliases=["b", "a"]), field(aliases=["a", "b"])),
    ("AVRO", "a default in another order", field(type={"type": "map", "values": "int"}, default={"b": 1, "a": 2}),
     field(type={"type": "map", "values": "int"}, default={"a": 2, "b": 1})),
    ("AVRO", "the order that fields have anyway", field(order="ascending"), field()),
    ("AVRO", "a description that says nothing", record(doc=""), record()),
    ("JSON", "blanks", '{ "type" : "object" }', '{"type":"object"}'),
    ("JSON", "keywords in another order", '{"type":"object","title":"t"}', '{"title":"t","type":"object"}'),
    ("JSON", "keywords further down in another order", '{"properties":{"b":{"type":"string","title":"t"},"a":{}}}',
     '{"properties":{"a":{},"b":{"title":"t","type":"string"}}}'),
    ("PROTOBUF", "comments and blanks", proto("int32 a = 1; // one\n"), proto("int32   a=1;")),
    ("PROTOBUF", "fields in another order", proto("int32 b = 2; int32 a = 1;"), proto("int32 a = 1; int32 b = 2;")),
    ("PROTOBUF", "fields of a oneof in another order", proto("oneof o { int32 b = 2; int32 a = 1; }"),
     proto("oneof o { int32 a = 1; int32 b = 2; }")),
    ("PROTOBUF", "oneofs in another order", proto("oneof p { int32 b = 2; } oneof o { int32 a = 1; }"),
     proto("oneof o { int32 a = 1; } oneof p { int32 b = 2; }")),
    ("PROTOBUF", "fields beside oneofs in another order", proto("oneof o { int32 a = 1; } int32 b = 2;"),
     proto("int32 b = 2; oneof o { int32 a = 1; }")),
    ("PROTOBUF", "constants in another order", proto(tail="enum E { ZERO = 0; TWO = 2; ONE = 1; }"),
     proto(tail="enum E { ZERO = 0; ONE = 1; TWO = 2; }")),
    ("PROTOBUF", "constants below zero in another order", proto(tail="enum E { ZERO = 0; ONE = 1; LESS = -1; }"),
     proto(tail="enum E { ZERO = 0; LESS = -1; ONE = 1; }")),
    ("PROTOBUF", "full names", proto("message I { } I a = 1;"), proto("message I { } .M.I a = 1;")),
    ("PROTOBUF", "imports in another order",
     proto(head='import "google/protobuf/any.proto"; import "google/protobuf/empty.proto";'),
     proto(head='import "google/protobuf/empty.proto"; import "google/protobuf/any.proto";')),
    ("PROTOBUF", "reserved numbers in another order", proto("reserved 5, 2 to 3;"), proto("reserved 2 to 3, 5;")),
    ("PROTOBUF", "reserved numbers in several statements", proto("reserved 5; reserved 2;"), proto("reserved 2, 5;")),
    ("PROTOBUF", "reserved names in another order", proto('reserved "b", "a";'), proto('reserved "a", "b";')),
    ("PROTOBUF", "reserved names of an enum in another order", proto(tail='enum E { Z = 0; reserved "b", "a"; }'),
     proto(tail='enum E { Z = 0; reserved "a", "b"; }')),
    ("PROTOBUF", "options of the file in another order",
     proto(head='option java_package = "p"; option java_multiple_files = true;'),
     proto(head='option java_multiple_files = true; option java_package = "p";')),
    ("PROTOBUF", "options of a message in another order", *with_options(
        "Message", "message M {{ option {0}; option {1}; }}")),
    ("PROTOBUF", "options of a field in another order", *with_options(
        "Field", "message M {{ int32 f = 1 [{0}, {1}]; }}")),
    ("PROTOBUF", "options of a oneof in another order", *with_options(
        "Oneof", "message M {{ oneof o {{ option {0}; option {1}; int32 f = 1; }} }}")),
    ("PROTOBUF", "options of an enum in another order", *with_options(
        "Enum", "enum E {{ option {0}; option {1}; Z = 0; }}")),
    ("PROTOBUF", "options of a constant in another order", *with_options(
        "EnumValue", "enum E {{ Z = 0 [{0}, {1}]; }}")),
    ("PROTOBUF", "options of a service in another order", *with_options(
        "Service", "service S {{ option {0}; option {1}; }}")),
    ("PROTOBUF", "options of a method in another order", *with_options(
        "Method", "message M {{ }} service S {{ rpc F (M) returns (M) {{ option {0}; option {1}; }} }}")),
]  # fmt: skip

TWO: list[tuple[str, str, str, str]] = [
    ("AVRO", "another description", record(doc="a"), record(doc="b")),
    ("AVRO", "another default", field(default=1), field(default=2)),
    ("AVRO", "fields in another order", record(fields=[{"name": "a", "type": "int"}, {"name": "b", "type": "int"}]),
     record(fields=[{"name": "b", "type": "int"}, {"name": "a", "type": "int"}])),
    ("AVRO", "branches in another order", '["null","int"]', '["int","null"]'),
    ("AVRO", "items of a property in another order", record(p=[1, 2]), record(p=[2, 1])),
    ("JSON", "choices in another order", '{"enum":[1,2]}', '{"enum":[2,1]}'),
    ("PROTOBUF", "messages in another order", proto(tail="message A { } message B { }"),
     proto(tail="message B { } message A { }")),
    ("PROTOBUF", "another value of an option", proto(head='option java_package = "p";'),
     proto(head='option java_package = "q";')),
]  # fmt: skip


def rows(table: list[tuple[str, str, str, str]]) -> list[Any]:
    return [pytest.param(kind, one, two, id=f"{kind}: {what}") for kind, what, one, two in table]


@pytest.mark.parametrize(("kind", "one", "two"), rows(ONE))
def test_spellings_of_one_schema_have_one_normal_form(kind: str, one: str, two: str) -> None:
    forms = {parse_schema(kind, text, {}).normalized() for text in (one, two)}
    assert len(forms) == 1
    (form,) = forms
    assert parse_schema(kind, form, {}).normalized() == form


@pytest.mark.parametrize(("kind", "one", "two"), rows(TWO))
def test_differences_in_meaning_are_kept_in_the_normal_form(kind: str, one: str, two: str) -> None:
    assert parse_schema(kind, one, {}).normalized() != parse_schema(kind, two, {}).normalized()


def test_the_normal_form_of_an_avro_schema_is_the_text_that_the_jvm_registry_stores() -> None:
    text = json.dumps(
        {
            "connect.name": "scope.Envelope",
            "fields": [
                {
                    "default": None,
                    "name": "before",
                    "type": [
                        "null",
                        {
                            "connect.name": "scope.Value",
                            "fields": [
                                {"name": "at", "type": {"connect.version": 1, "connect.name": "Time", "type": "long"}}
                            ],
                            "name": "Value",
                            "type": "record",
                        },
                    ],
                },
                {"default": None, "name": "after", "type": ["null", "Value"]},
            ],
            "name": "Envelope",
            "namespace": "scope",
            "type": "record",
        }
    )
    assert parse_schema("AVRO", text, {}).normalized() == (
        '{"type":"record","name":"Envelope","namespace":"scope","fields":[{"name":"before","type":["null",'
        '{"type":"record","name":"Value","fields":[{"name":"at","type":{"type":"long","connect.name":"Time","connect.version":1}}],'
        '"connect.name":"scope.Value"}],"default":null},{"name":"after","type":["null","Value"],"default":null}],'
        '"connect.name":"scope.Envelope"}'
    )


@pytest.mark.parametrize("text", ['{"maximum":1e400}', '{"const":-1e999}', '{"properties":{"a":{"default":[1e400]}}}'])
def test_a_json_schema_with_a_number_that_no_double_holds_is_refused(text: str) -> None:
    """It would be stored as Infinity, which is no JSON, and could not be read again."""
    with pytest.raises(SchemaProblem):
        parse_schema("JSON", text, {})


@pytest.mark.parametrize("default", ["1e400", "-1e400"])
def test_an_avro_schema_with_a_number_that_no_double_holds_is_refused(default: str) -> None:
    with pytest.raises(SchemaProblem):
        parse_schema("AVRO", field(type="double", default=0).replace(": 0", f": {default}"), {})
