"""The verdict of the JVM registry on a change from one .proto file to another, for every kind of change it reports.

A row is: what changes, the old file, the new one, and the types of incompatibility that are reported, each with its
path; the last is empty if the change is compatible. The files are ours; verdicts and names are those of the JVM
registry. In `IMPORTS` a side is a file and the text of `parts.proto`, which it may import.
"""

from __future__ import annotations

from tests.services.schema_registry.compatibility.protobuf_pairs import m, m2

Case = tuple[str, str, str, tuple[str, ...]]
INNER = "message I { string s = 1; }"
KIND = "enum K { NONE = 0; SOME = 1; }"

CASES: list[Case] = [
    ("another package", m("int32 a = 1;", package="p"), m("int32 a = 1;", package="q"), ("PACKAGE_CHANGED #/",)),
    ("a full name for a type", m(f"I a = 1; {INNER}"), m(f".M.I a = 1; {INNER}"), ()),
    ("a full name with a package for a type", m(f"I a = 1; {INNER}", package="p"),
     m(f".p.M.I a = 1; {INNER}", package="p"), ()),
    ("a field comes", m("string a = 1;"), m("string a = 1; string b = 2;"), ()),
    ("a required field comes", m2("optional string a = 1;"), m2("optional string a = 1; required string b = 2;"),
     ("REQUIRED_FIELD_ADDED #/M/2",)),
    ("a field comes further down", m(INNER), m("message I { string s = 1; string t = 2; }"), ()),
    ("a field goes", m("string a = 1; string b = 2;"), m("string a = 1;"), ()),
    ("a required field goes", m2("optional string a = 1; required string b = 2;"), m2("optional string a = 1;"),
     ("REQUIRED_FIELD_REMOVED #/M/2",)),
    ("a field has another number", m("string a = 1;"), m("string a = 2;"), ()),
    ("a field has another name", m("string a = 1;"), m("string b = 1;"), ()),
    ("int32 turns into int64", m("int32 a = 1;"), m("int64 a = 1;"), ()),
    ("string turns into bytes", m("string a = 1;"), m("bytes a = 1;"), ()),
    ("a number turns into an enum", m("int32 a = 1;"), m("K a = 1;", KIND), ()),
    ("an enum turns into a number", m("K a = 1;", KIND), m("int32 a = 1;"), ()),
    ("a number turns into a message with the name of an enum", m("int32 a = 1;"),
     m("message K { } K a = 1;", KIND), ("FIELD_KIND_CHANGED #/M/1",)),
    ("a message with the name of an enum turns into a number", m("message K { } K a = 1;", KIND), m("int32 a = 1;"),
     ("FIELD_KIND_CHANGED #/M/1", "MESSAGE_REMOVED #/M/K")),
    ("a constant has another name", m("K a = 1;", KIND), m("K a = 1;", "enum K { NONE = 0; OTHER = 1; }"), ()),
    ("a constant comes", m("K a = 1;", KIND), m("K a = 1;", "enum K { NONE = 0; SOME = 1; MORE = 2; }"), ()),
    ("a constant goes", m("K a = 1;", KIND), m("K a = 1;", "enum K { NONE = 0; }"), ()),
    ("a number turns into a message", m("int32 a = 1;"), m("I a = 1;", INNER), ("FIELD_KIND_CHANGED #/M/1",)),
    ("a number turns into a string", m("int32 a = 1;"), m("string b = 1;"), ("FIELD_SCALAR_KIND_CHANGED #/M/1",)),
    ("a message turns into another", m("I a = 1;", INNER), m("J a = 1;", "message J { string s = 1; }"),
     ("MESSAGE_REMOVED #/I", "FIELD_NAMED_TYPE_CHANGED #/M/1")),
    ("a message of the same name further down", m(f"{INNER} .I a = 1;", INNER), m(f"{INNER} .M.I a = 1;", INNER),
     ("FIELD_NAMED_TYPE_CHANGED #/M/1",)),
    ("the values of a map change", m("map<string, int32> a = 1;"), m("map<string, string> a = 1;"),
     ("FIELD_SCALAR_KIND_CHANGED #/M/1",)),
    ("the values of a map have a full name", m(f"map<string, I> a = 1; {INNER}"), m(f"map<string, M.I> a = 1; {INNER}"),
     ()),
    ("a map goes", m("map<string, string> a = 1; string b = 2;"), m("string b = 2;"), ()),
    ("one message turns into many", m("optional I a = 1;", INNER), m("repeated I a = 1;", INNER), ()),
    ("one string turns into many", m("optional string a = 1;"), m("repeated string a = 1;"), ()),
    ("one bytes turns into many", m("optional bytes a = 1;"), m("repeated bytes a = 1;"), ()),
    ("one number turns into many", m("optional int32 a = 1;"), m("repeated int32 a = 1;"),
     ("FIELD_NUMERIC_LABEL_CHANGED #/M/1",)),
    ("a message comes", m("string a = 1;"), m("string a = 1;", INNER), ()),
    ("a message comes in front", m("string a = 1;"), f'syntax = "proto3"; {INNER} message M {{ string a = 1; }}', ()),
    ("messages change places", m("string a = 1;", INNER),
     f'syntax = "proto3"; {INNER} message M {{ string a = 1; }}', ()),
    ("a message has another name", m("string a = 1;"), 'syntax = "proto3"; message N { string a = 1; }',
     ("MESSAGE_REMOVED #/M",)),
    # Oneofs: into them.
    ("one field moves into a new oneof", m("string a = 1; string b = 2;"),
     m("string a = 1; oneof o { string b = 2; int32 c = 3; }"), ()),
    ("one field moves into a new oneof of its own", m("string a = 1; string b = 2;"),
     m("string a = 1; oneof o { string b = 2; }"), ()),
    ("two fields move into a new oneof", m("string a = 1; string b = 2;"),
     m("oneof o { string a = 1; string b = 2; int32 c = 3; }"), ("MULTIPLE_FIELDS_MOVED_TO_ONEOF #/M/o",)),
    ("a field moves into a oneof that was there", m("string a = 1; oneof o { string b = 2; string c = 3; }"),
     m("oneof o { string a = 1; string b = 2; string c = 3; }"), ("FIELD_MOVED_TO_EXISTING_ONEOF #/M/o",)),
    ("a field moves into a oneof that is renamed", m("string a = 1; oneof o { string b = 2; string c = 3; }"),
     m("oneof p { string a = 1; string b = 2; string c = 3; }"), ("FIELD_MOVED_TO_EXISTING_ONEOF #/M/p",)),
    ("two fields move into a oneof that was there", m("string a = 1; string b = 2; oneof o { string c = 3; }"),
     m("oneof o { string a = 1; string b = 2; string c = 3; }"), ("MULTIPLE_FIELDS_MOVED_TO_ONEOF #/M/o",)),
    # Within and between them.
    ("a oneof grows", m("oneof o { string a = 1; }"), m("oneof o { string a = 1; int32 b = 2; }"), ()),
    ("a oneof is renamed", m("oneof o { string a = 1; string b = 2; }"), m("oneof p { string a = 1; string b = 2; }"),
     ()),
    ("a oneof is renamed and grows", m("oneof o { string a = 1; }"), m("oneof p { string a = 1; int32 b = 2; }"), ()),
    ("a field changes in a oneof", m("oneof o { string a = 1; }"), m("oneof o { int32 a = 1; }"),
     ("FIELD_SCALAR_KIND_CHANGED #/M/1",)),
    ("a field changes in a oneof that is renamed", m("oneof o { string a = 1; }"), m("oneof p { int32 a = 1; }"),
     ("FIELD_SCALAR_KIND_CHANGED #/M/1",)),
    ("a oneof is split", m("oneof o { string a = 1; string b = 2; }"),
     m("oneof o { string a = 1; } oneof p { string b = 2; }"), ()),
    ("two oneofs are merged", m("oneof o { string a = 1; } oneof p { string b = 2; }"),
     m("oneof o { string a = 1; string b = 2; }"), ("FIELD_MOVED_TO_EXISTING_ONEOF #/M/o",)),
    ("two oneofs are merged under a new name", m("oneof o { string a = 1; } oneof p { string b = 2; }"),
     m("oneof q { string a = 1; string b = 2; }"), ("FIELD_MOVED_TO_EXISTING_ONEOF #/M/q",)),
    ("a field moves to another oneof", m("oneof o { string a = 1; string b = 2; } oneof p { string c = 3; }"),
     m("oneof o { string a = 1; } oneof p { string b = 2; string c = 3; }"),
     ("FIELD_MOVED_TO_EXISTING_ONEOF #/M/p",)),
    ("a field moves to another oneof from one that goes", m("oneof o { string a = 1; } oneof p { string b = 2; }"),
     m("oneof p { string a = 1; string b = 2; }"), ("FIELD_MOVED_TO_EXISTING_ONEOF #/M/p",)),
    ("two oneofs exchange their fields", m("oneof o { string a = 1; } oneof p { string b = 2; }"),
     m("oneof o { string b = 2; } oneof p { string a = 1; }"), ()),
    # Out of them.
    ("a field goes from a oneof", m("oneof o { string a = 1; string b = 2; int32 c = 3; }"),
     m("oneof o { string a = 1; string b = 2; }"), ("ONEOF_FIELD_REMOVED #/M/3",)),
    ("a field goes from a oneof that is renamed", m("oneof o { string a = 1; string b = 2; }"),
     m("oneof p { string a = 1; }"), ("ONEOF_FIELD_REMOVED #/M/2",)),
    ("a field goes from a oneof that dissolves", m("oneof o { string a = 1; string b = 2; }"), m("string a = 1;"),
     ("ONEOF_FIELD_REMOVED #/M/2",)),
    ("a field goes from a oneof, and others take its place", m("oneof o { string a = 1; }"),
     m("oneof o { string b = 2; }"), ("ONEOF_FIELD_REMOVED #/M/1",)),
    ("a field goes while another moves to another oneof", m("oneof o { string a = 1; string b = 2; }"),
     m("oneof p { string b = 2; string c = 3; }"), ("ONEOF_FIELD_REMOVED #/M/1",)),
    ("a oneof goes with all its fields", m("oneof o { string a = 1; string b = 2; } string c = 3;"),
     m("string c = 3;"), ()),
    ("a oneof goes with all its fields, and another comes", m("oneof o { string a = 1; }"),
     m("oneof p { string b = 2; }"), ()),
    ("a field leaves its oneof", m("oneof o { string a = 1; string b = 2; }"),
     m("oneof o { string a = 1; } string b = 2;"), ()),
    ("a oneof dissolves", m("oneof o { string a = 1; string b = 2; }"), m("string a = 1; string b = 2;"), ()),
    ("a field leaves its oneof with another type", m("oneof o { string a = 1; string b = 2; }"),
     m("oneof o { string a = 1; } int32 b = 2;"), ("FIELD_SCALAR_KIND_CHANGED #/M/2",)),
]  # fmt: skip

HOME = "message Home { int32 id = 1; }"
PARTS = f'syntax = "proto3"; package parts; message Outer {{ {HOME} }} {HOME}'
USES = 'syntax = "proto3"; import "parts.proto"; message M { .parts.Home a = 1; }'
USES_INNER = 'syntax = "proto3"; import "parts.proto"; message M { .parts.Outer.Home a = 1; }'
MOVED = PARTS.replace("package parts", "package other")
# What changes, the old file and its import, the new file and its import, and the kinds of finding.
IMPORTS: list[tuple[str, tuple[str, str], tuple[str, str], tuple[str, ...]]] = [
    ("a type that is imported changes", (USES, PARTS), (USES, PARTS.replace("int32", "string")),
     ("FIELD_SCALAR_KIND_CHANGED #/M/1/1",)),
    ("a type that is imported grows", (USES, PARTS), (USES, PARTS.replace("id = 1;", "id = 1; bool on = 2;")), ()),
    ("a type moves into an import", (m("Home a = 1;", HOME), PARTS), (USES, PARTS),
     ("MESSAGE_REMOVED #/Home",)),
    ("a type moves out of an import", (USES, PARTS), (m("Home a = 1;", HOME), PARTS), ()),
    ("an import has another package", (USES, PARTS), (USES.replace("parts.Home", "other.Home"), MOVED), ()),
    ("an import has another package, and a type is within another", (USES_INNER, PARTS),
     (USES_INNER.replace("parts.Outer", "other.Outer"), MOVED), ()),
    ("an import has another package, and a type changes", (USES_INNER, PARTS),
     (USES_INNER.replace("parts.Outer", "other.Outer"), MOVED.replace("int32", "string")),
     ("FIELD_SCALAR_KIND_CHANGED #/M/1/1",)),
    ("a type within another for one beside it", (USES, PARTS), (USES_INNER, PARTS),
     ("FIELD_NAMED_TYPE_CHANGED #/M/1",)),
]  # fmt: skip
