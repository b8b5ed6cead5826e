"""Pairs of .proto files: old, new, whether new code reads old data, whether old code reads new data, and why. From
protobuf's rules for updating a message, and the registry's list of differences."""

from __future__ import annotations

Pair = tuple[str, str, bool, bool, str]


def m(body: str, more: str = "", package: str = "") -> str:
    """Return a proto3 file with the message M."""
    named = f"package {package};" if package else ""
    return f'syntax = "proto3"; {named} message M {{ {body} }} {more}'


def m2(body: str) -> str:
    return f'syntax = "proto2"; message M {{ {body} }}'


def scalar(kind: str) -> str:
    return m(f"{kind} a = 1;")


_GROUPS = ["int32 int64 uint32 uint64 bool", "sint32 sint64", "string bytes", "fixed32 sfixed32", "fixed64 sfixed64"]
_WITHIN = [
    (scalar(first), scalar(second), True, True, f"{first} and {second} look alike on the wire")
    for group in _GROUPS
    for first, second in zip(group.split(), group.split()[1:], strict=False)
]
_ACROSS = [
    (scalar(first), scalar(second), False, False, f"{first} and {second} are written in different ways")
    for first, second in (
        ("int32", "sint32"), ("int32", "fixed32"), ("int32", "string"), ("int64", "fixed64"), ("fixed32", "fixed64"),
        ("float", "double"), ("float", "fixed32"), ("double", "fixed64"), ("bool", "string"), ("sint32", "sfixed32"),
        ("bytes", "int64"),
    )
]  # fmt: skip
E = "enum E { ZERO = 0; ONE = 1; }"
N = "message N { int32 x = 1; }"

PAIRS: list[Pair] = [
    *_WITHIN,
    *_ACROSS,
    # Fields.
    (scalar("int32"), scalar("int32"), True, True, "the same"),
    (m("int32 a = 1;"), m("int32 b = 1;"), True, True, "names are not on the wire"),
    (m("int32 a = 1;"), m("int32 a = 1; int32 b = 2;"), True, True, "a new field is skipped, a missing one is zero"),
    (m("int32 a = 1; int32 b = 2;"), m("int32 a = 1;"), True, True, "a field that goes is skipped"),
    (m("int32 a = 1;"), m("int32 a = 2;"), True, True, "another number is another field: one goes, one comes"),
    (m("int32 a = 1; string b = 2;"), m("string b = 2; int32 a = 1;"), True, True, "the order does not matter"),
    (m("int32 a = 1; string b = 2;"), m("string a = 1; int32 b = 2;"), False, False, "two fields swapped numbers"),
    (m("int32 a = 1;"), m("optional int32 a = 1;"), True, True, "presence is not on the wire"),
    (m("int32 a = 1;"), m("repeated int32 a = 1;"), False, False, "many numbers are packed"),
    (m("string a = 1;"), m("repeated string a = 1;"), True, True, "strings are never packed; the last one wins"),
    (m("bytes a = 1;"), m("repeated bytes a = 1;"), True, True, "nor are bytes"),
    (m("repeated int32 a = 1;"), m("repeated int64 a = 1;"), True, True, "alike, many times"),
    (m("int32 a = 1;"), m("int32 a = 1; reserved 2; reserved \"x\";"), True, True, "reserving changes nothing"),
    (m("int32 a = 1;"), m("int32 a = 1 [deprecated = true];"), True, True, "nor do options"),
    # Enums.
    (m("E a = 1;", E), m("E a = 1;", "enum E { ZERO = 0; ONE = 1; TWO = 2; }"), True, True, "unknown values are kept"),
    (m("E a = 1;", E), m("E a = 1;", "enum E { ZERO = 0; }"), True, True, "values may go"),
    (m("E a = 1;", E), m("E a = 1;", "enum E { NULL = 0; ONE = 1; }"), True, True, "values may be renamed"),
    (m("E a = 1;", E), m("int32 a = 1;", E), True, True, "an enum is a number on the wire"),
    (m("E a = 1;", E), m("int32 a = 1;"), True, True, "and the enum may go with it"),
    (m("int32 a = 1;"), m("int32 a = 1;", E), True, True, "an enum that no field uses"),
    (m("E a = 1;", E), m("string a = 1;", E), False, False, "an enum is no string"),
    (m("E a = 1;", E), m("D a = 1;", "enum D { ZERO = 0; }"), True, True, "any enum is a number"),
    # Messages.
    (m("int32 a = 1;"), m("int32 a = 1;", N), True, False, "the old file has no N: for it, N has gone"),
    (m("int32 a = 1;", N), m("int32 a = 1;"), False, True, "N has gone"),
    (m("N a = 1;", N), m("N a = 1;", N), True, True, "the same"),
    (m("N a = 1;", N), m("int32 a = 1;", N), False, False, "a message is no number"),
    (m("N a = 1;", N), m("bytes a = 1;", N), False, False, "a message is no bytes to its readers"),
    (m("N a = 1;", N), m("O a = 1;", N + "message O { int32 x = 1; }"), False, False, "a message of another type"),
    (m("N a = 1;", N), m("repeated N a = 1;", N), True, True, "messages are never packed"),
    (m("N a = 1;", N), m("N a = 1;", "message N { string x = 1; }"), False, False, "within N a type has changed"),
    (m("N a = 1;", N), m("N a = 1;", "message N { int32 x = 1; int32 y = 2; }"), True, True, "N has one field more"),
    (m("M a = 1;"), m("M a = 1; int32 b = 2;"), True, True, "a message that contains itself"),
    (m("message I { int32 x = 1; } I i = 1;"), m("message I { int64 x = 1; } I i = 1;"), True, True, "one inside"),
    (m("message I { int32 x = 1; } I i = 1;"), m("message I { string x = 1; } I i = 1;"), False, False, "one inside"),
    (m("message I { } int32 a = 1;"), m("int32 a = 1;"), False, True, "one inside has gone"),
    (m("int32 a = 1;", package="p"), m("int32 a = 1;", package="q"), False, False, "another package"),
    (m("int32 a = 1;"), m("int32 a = 1;", package="q"), False, False, "a package that was not there"),
    ('syntax = "proto3"; message A { } message B { }', 'syntax = "proto3"; message B { } message A { }', True, True,
     "messages in another order: the indexes of old data are those of the old file"),
    (m("int32 a = 1;"), m("int32 a = 1;", "service S { rpc F (M) returns (M); }"), True, True, "services hold no data"),
    # Maps.
    (m("map<string, int32> a = 1;"), m("map<string, int32> a = 1;"), True, True, "the same"),
    (m("map<string, int32> a = 1;"), m("map<string, int64> a = 1;"), True, True, "alike"),
    (m("map<string, int32> a = 1;"), m("map<string, string> a = 1;"), False, False, "values of another type"),
    (m("map<string, int32> a = 1;"), m("map<int32, int32> a = 1;"), False, False, "keys of another type"),
    (m("map<string, int32> a = 1;"), m("string a = 1;"), False, False, "a map is no string"),
    (m("map<string, int32> a = 1;"), m(""), True, True, "a map that goes, or comes, is a field"),
    # Oneofs.
    (m("int32 a = 1;"), m("oneof o { int32 a = 1; }"), True, True, "one field alone moves into a new oneof"),
    (m("int32 a = 1; int32 b = 2;"), m("oneof o { int32 a = 1; int32 b = 2; }"), False, True,
     "both may have been set; a oneof that dissolves loses nothing"),
    (m("oneof o { int32 a = 1; }"), m("oneof o { int32 a = 1; int32 b = 2; }"), True, False,
     "a oneof may grow, and may not shrink"),
    (m("oneof o { int32 a = 1; int32 b = 2; }"), m("oneof p { int32 a = 1; int32 b = 2; }"), True, True,
     "the name of a oneof is not on the wire"),
    (m("oneof o { int32 a = 1; } int32 c = 3;"), m("oneof o { int32 a = 1; int32 c = 3; }"), False, True,
     "a field may leave a oneof, and not move into one that was there: both may have been set"),
    (m("oneof o { int32 a = 1; }"), m(""), True, True, "a oneof that goes, or comes, with all its fields"),
    (m("oneof o { int32 a = 1; }"), m("oneof o { string a = 1; }"), False, False, "a type has changed within"),
    (m("oneof o { int32 a = 1; }"), m("oneof p { string a = 1; }"), False, False, "and so under another name"),
    # proto2.
    (m2("optional int32 a = 1;"), m2("optional int32 a = 1; required int32 b = 2;"), False, False,
     "old data has no b; the old file has none that is required, and must not lose one"),
    (m2("required int32 a = 1;"), m2("required int32 a = 1;"), True, True, "the same"),
    (m2("required int32 a = 1;"), m2("optional int32 a = 1;"), True, False, "it need not be there any more"),
    (m2("optional group G = 1 { optional int32 x = 1; }"), m2("optional group G = 1 { optional int64 x = 1; }"), True,
     True, "groups are messages"),
    (m2("optional int32 a = 1 [default = 1];"), m2("optional int32 a = 1 [default = 2];"), True, True,
     "defaults are not on the wire"),
    (m2("optional int32 a = 1;"), m("int32 a = 1;"), True, True, "the syntax is not on the wire"),
]  # fmt: skip
