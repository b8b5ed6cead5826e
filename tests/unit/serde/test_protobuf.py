"""Protobuf schemas: errors with their position, canonical form, and comparison with protoc.

googleapis-common-protos has its files as text and as descriptors that protoc made of them: our parser must make the
same descriptors of the texts, apart from options that are extensions.
"""

from __future__ import annotations

import base64
from importlib import import_module
from importlib.metadata import files
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import any_pb2, descriptor_pb2, struct_pb2
from google.protobuf.descriptor_pb2 import FileDescriptorProto

from pessoa.base.json_value import JsonValue
from pessoa.serde.codecs import codec_for
from pessoa.serde.protobuf.linking import ProtoFile, _all_options, link, read_proto, walk
from pessoa.serde.protobuf.parsing import camel_case, parse_proto
from pessoa.serde.protobuf.printing import print_proto
from pessoa.serde.schema_problems import DataProblem, SchemaProblem

OTHER = 'syntax = "proto3"; package a.b; message X { string q = 1; }'
TEXT = """
syntax = "proto3";
package a.b;
import "google/protobuf/timestamp.proto";
import public "x.proto";  // for X
option java_package = "com.\\"x";
/* the whole
   of it */
message M {
  reserved 5, 7 to 9, 1000 to max;
  reserved "foo", "bar";
  optional int32 a = 1 [deprecated = true, json_name = "A"];
  map<string, Inner> m = 2;
  oneof o { string s = 3; .a.b.M.Inner i = 4 [(my.opt).x = {a: 1 b: "x"}, (y) = -5]; }
  message Inner { repeated int64 xs = 1 [packed=false]; E e = 2; google.protobuf.Timestamp ts = 3; X message = 4; }
  enum E { option allow_alias = true; ZERO = 0; ONE = 0x1; UNO = 01; NEG = -1; reserved 4 to 8; reserved "OLD"; }
}
service S { rpc Get (M) returns (stream M.Inner) { option idempotency_level = IDEMPOTENT; }
  rpc Put (stream M) returns (M); }
"""
PROTO2 = """
message A {
  required string name = 1 [default = "x\\ty"];
  optional group Part = 2 { optional bytes raw = 1 [default = "\\xff\\001"]; }
  extensions 100 to 199;
  optional float f = 3 [default = -inf];
  extend A { optional int32 inner = 101; }
}
extend A { repeated sint64 more = 100; }
"""


def linked(text: str) -> ProtoFile:
    return link(read_proto(text), {"x.proto": read_proto(OTHER, "x.proto")})


@pytest.mark.parametrize("text", [TEXT, PROTO2, 'edition = "2023"; message A { int32 x = 1; }', "message A {}"])
def test_printing_and_parsing_a_proto_file_again_changes_nothing(text: str) -> None:
    printed = print_proto(linked(text).proto)
    assert print_proto(linked(printed).proto) == printed


@pytest.mark.parametrize("module", [any_pb2, descriptor_pb2, struct_pb2])
def test_descriptors_of_protoc_survive_our_printer_and_parser(module: object) -> None:
    proto = FileDescriptorProto.FromString(module.DESCRIPTOR.serialized_pb)  # type: ignore[attr-defined]
    for message in walk(proto.message_type):
        for field in message.field:
            # protoc writes down the JSON name that follows from the name; we do not.
            if field.json_name == camel_case(field.name):
                field.ClearField("json_name")
    again = link(read_proto(print_proto(proto), proto.name))
    assert again.serialized() == proto.SerializeToString(deterministic=True)


COMMON = [
    str(path)
    for path in files("googleapis-common-protos") or []
    if path.suffix == ".proto" and str(path).startswith(("google/type/", "google/rpc/"))
]


@pytest.mark.parametrize("path", COMMON)
def test_our_parser_gives_the_same_descriptor_as_protoc(path: str) -> None:
    module = import_module(path.removesuffix(".proto").replace("/", ".") + "_pb2")
    wanted = FileDescriptorProto.FromString(module.DESCRIPTOR.serialized_pb)
    folder = Path(module.__file__ or "").parents[len(Path(path).parts) - 1]
    text = (folder / path).read_text()
    imports = {
        each: read_proto((folder / each).read_text(), each)
        for each in parse_proto(text).dependency
        if not each.startswith("google/protobuf/")
    }
    made = FileDescriptorProto.FromString(link(read_proto(text, path), imports).serialized())
    every: list[Any] = [*_all_options(wanted), *_all_options(made)]
    for options in every:
        # Options that are extensions are understood by protoc and kept as words by us.
        for field, _ in options.ListFields():
            if field.is_extension:
                options.ClearExtension(field)
        options.DiscardUnknownFields()
    assert print_proto(made) == print_proto(wanted)


def test_base64_descriptors_are_parsed_as_their_text() -> None:
    file = linked(TEXT.replace(' [(my.opt).x = {a: 1 b: "x"}, (y) = -5]', ""))
    encoded = base64.b64encode(file.serialized()).decode()
    assert print_proto(linked(encoded).proto) == print_proto(file.proto)


def test_normalising_ignores_the_order_of_fields_and_imports() -> None:
    one = 'syntax="proto3"; import "google/protobuf/any.proto"; import "x.proto"; message A { int32 a=1; int32 b=2; }'
    two = 'syntax="proto3"; import "x.proto"; import "google/protobuf/any.proto"; message A { int32 b=2; int32 a=1; }'
    assert print_proto(linked(one).proto) != print_proto(linked(two).proto)
    assert print_proto(linked(one).proto, normalize=True) == print_proto(linked(two).proto, normalize=True)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("message {", "line 1, column 9: expected a name"),
        ('syntax="proto3";\nmessage A {\n int32 x = ; }', "line 3, column 12: expected the number"),
        ("hello", "line 1, column 1: expected a declaration"),
        ("message A { int32 x = 1; }", "'optional', 'required' or 'repeated'"),
        ('syntax="proto4";', "unknown syntax"),
        ('edition="1999";', "unknown edition"),
        ('syntax="proto3"; message A { int32 x = 1 }', "expected ';'"),
        ('syntax="proto3"; message A { int32 x = 0; }', "from 1 to"),
        ('syntax="proto3"; message A { int32 x = 19500; }', "19000"),
        ('syntax="proto3"; message A { int32 x = 1; int32 y = 1; }', "have the number 1"),
        ('syntax="proto3"; message A { int32 x = 1; int32 x = 2; }', "two fields are called x"),
        ('syntax="proto3"; message A { reserved 1; int32 x = 1; }', "reserved"),
        ('syntax="proto3"; message A { reserved "x"; int32 x = 1; }', "reserved"),
        ('syntax="proto3"; message A { required int32 x = 1; }', "required"),
        ('syntax="proto3"; message A { map<float, int32> x = 1; }', "key of a map"),
        ('syntax="proto3"; message A { oneof o { } }', "no fields"),
        ('syntax="proto3"; message A { int32 x = 1 [nonsense = 3]; }', "nonsense"),
        ('syntax="proto3"; message A { int32 x = 1 [deprecated = 3]; }', "deprecated"),
        ('syntax="proto3"; enum E { A = 1; }', "is not 0"),
        ('syntax="proto3"; enum E { }', "no values"),
        ('syntax="proto3"; enum E { A = 0; B = 0; }', "allow_alias"),
        ('syntax="proto3"; enum E { A = 3000000000; }', "32-bit"),
        ('syntax="proto3"; message A { B x = 1; }', "B"),
        ('syntax="proto3"; message A { } message A { }', "A"),
        ('syntax="proto3"; import "nope.proto";', "no reference of this name"),
        ('syntax="proto3"; import "../../etc/passwd";', "no reference of this name"),
        ('syntax="proto3"; option java_package = "x', "does not end"),
        ('syntax="proto3"; option (x) = { a: 1', "expected '}'"),
        ("message A { " * 40 + "}" * 40, "nested"),
        ('syntax="proto3"; message A { int32 x = ' + "9" * 5000 + "; }", "too large"),
    ],
)
def test_a_text_that_is_no_proto_file_is_refused_with_position_and_reason(text: str, says: str) -> None:
    with pytest.raises(SchemaProblem, match=says):
        linked(text)


def test_circular_imports_are_refused() -> None:
    one = read_proto('syntax="proto3"; import "two.proto";', "one.proto")
    two = read_proto('syntax="proto3"; import "one.proto";', "two.proto")
    with pytest.raises(SchemaProblem, match="circle"):
        link(read_proto('syntax="proto3"; import "one.proto";'), {"one.proto": one, "two.proto": two})


def test_protobuf_data_survives_json_and_binary_encoding() -> None:
    codec = codec_for("PROTOBUF", TEXT, {"x.proto": OTHER})
    payload = codec.from_json({"a": 5, "m": {"k": {"xs": [1, 2], "message": {"q": "z"}}}})
    assert payload[:3] == b"\0\x08\5"
    back: Any = codec.to_json(payload)
    assert back["a"] == 5
    assert back["m"]["k"]["xs"] == ["1", "2"]
    assert back["m"]["k"]["message"] == {"q": "z"}


@pytest.mark.parametrize("value", [{"nope": 1}, {"a": "x"}, 3, [1], None, {"a": 2**40}])
def test_json_that_does_not_fit_is_refused(value: JsonValue) -> None:
    with pytest.raises(DataProblem):
        codec_for("PROTOBUF", TEXT, {"x.proto": OTHER}).from_json(value)


@pytest.mark.parametrize("payload", [b"", b"\0\xff", b"\2\x0c", b"\4\0\x20", b"\0\x0a\xff"])
def test_bytes_that_are_no_message_are_refused(payload: bytes) -> None:
    with pytest.raises(DataProblem):
        codec_for("PROTOBUF", TEXT, {"x.proto": OTHER}).to_json(payload)
