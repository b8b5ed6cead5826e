"""Files that a schema may import without a reference: protobuf's own, Google's common types, and Confluent's two.

protobuf's are in its library. Google's common types (`google/type/date.proto`, …) are there if the package
googleapis-common-protos is installed. Confluent's registry knows two files by heart, and its clients import them
without ever registering them; here they are as declarations.
"""

from __future__ import annotations

import re
from functools import cache
from importlib import import_module

from google.protobuf.descriptor_pb2 import FileDescriptorProto

from pessoa.serde.protobuf.parsing import parse_proto

_GOOGLE = re.compile(r"google/(protobuf|type)/([a-z_]+)\.proto\Z")

# Annotations on files, messages, fields, enums and enum values.
_META = """
syntax = "proto3";
package confluent;
import "google/protobuf/descriptor.proto";
option java_package = "io.confluent.protobuf";
option java_outer_classname = "MetaProto";
message Meta {
  string doc = 1;
  map<string, string> params = 2;
  repeated string tags = 3;
}
extend google.protobuf.FileOptions { Meta file_meta = 1088; }
extend google.protobuf.MessageOptions { Meta message_meta = 1088; }
extend google.protobuf.FieldOptions { Meta field_meta = 1088; }
extend google.protobuf.EnumOptions { Meta enum_meta = 1088; }
extend google.protobuf.EnumValueOptions { Meta enum_value_meta = 1088; }
"""
_DECIMAL = """
syntax = "proto3";
package confluent.type;
message Decimal {
  bytes value = 1;
  uint32 precision = 2;
  int32 scale = 3;
}
"""
_DECLARED = {"confluent/meta.proto": _META, "confluent/type/decimal.proto": _DECIMAL}


@cache
def builtin_file(path: str) -> FileDescriptorProto | None:
    """Return the built-in file with this import path; None if there is none."""
    if path in _DECLARED:
        return parse_proto(_DECLARED[path], path)
    match = _GOOGLE.match(path)
    if match is None:
        return None
    try:
        module = import_module(f"google.{match[1]}.{match[2]}_pb2")
    except ModuleNotFoundError:
        return None
    return FileDescriptorProto.FromString(module.DESCRIPTOR.serialized_pb)
