"""A file linked with its imports: every name is full, every type is known.

protobuf's own descriptor pool does the checking; each schema gets a pool of its own, since two schemas of a registry
often define the same name differently. What the pool found out is written back into the FileDescriptorProto, so that
printing and comparing need no pool.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Iterator, Mapping

from google.protobuf.descriptor import Descriptor, FieldDescriptor, FileDescriptor
from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError

from pessoa.serde.protobuf.builtin import builtin_file
from pessoa.serde.protobuf.options import Options
from pessoa.serde.protobuf.parsing import parse_proto
from pessoa.serde.schema_problems import SchemaProblem

# The pool needs a name, and a schema has none of its own; no file can import this one.
ROOT_NAME = "schema.proto"


class ProtoFile:
    """A linked file. `descriptor` is protobuf's view of it; `proto` the tree, with full names and kept options."""

    def __init__(
        self, proto: FileDescriptorProto, pool: DescriptorPool, dependencies: list[FileDescriptorProto]
    ) -> None:
        self.proto = proto
        self.pool = pool
        self.dependencies = dependencies
        self.descriptor: FileDescriptor = pool.FindFileByName(proto.name)

    def serialized(self) -> bytes:
        """Return the FileDescriptorProto in bytes, without uninterpreted options."""
        proto = _for_pool(self.proto)
        if proto.name == ROOT_NAME:
            proto.name = ""
        return proto.SerializeToString(deterministic=True)


def read_proto(text: str, name: str = ROOT_NAME) -> FileDescriptorProto:
    """Return the descriptor of a schema: the text of a .proto file, or a FileDescriptorProto in base64, which some
    clients send."""
    try:
        return parse_proto(text, name)
    except SchemaProblem:
        proto = _from_base64(text)
        if proto is None:
            raise
        proto.name = name
        return proto


def _from_base64(text: str) -> FileDescriptorProto | None:
    try:
        proto = FileDescriptorProto.FromString(base64.b64decode(text.strip(), validate=True))
    except (binascii.Error, ValueError, DecodeError):
        return None
    proto.ClearField("source_code_info")
    return proto if text.strip() else None


def link(proto: FileDescriptorProto, imports: Mapping[str, FileDescriptorProto] | None = None) -> ProtoFile:
    """Return the file linked with its imports; `imports` has them by import path."""
    pool = DescriptorPool()
    added: dict[str, FileDescriptorProto] = {}
    for path in proto.dependency:
        _add_import(pool, path, imports or {}, added, ())
    _add(pool, proto)
    linked = FileDescriptorProto()
    linked.CopyFrom(proto)
    _fill_names(linked, pool.FindFileByName(proto.name))
    return ProtoFile(linked, pool, list(added.values()))


def _add_import(
    pool: DescriptorPool,
    path: str,
    given: Mapping[str, FileDescriptorProto],
    added: dict[str, FileDescriptorProto],
    chain: tuple[str, ...],
) -> None:
    if path in added:
        return
    if path in chain:
        raise SchemaProblem(f"imports run in a circle: {' → '.join((*chain, path))}")
    found = given.get(path) or builtin_file(path)
    if found is None:
        raise SchemaProblem(f'import "{path}": there is no reference of this name')
    proto = FileDescriptorProto()
    proto.CopyFrom(found)
    proto.name = path
    for deeper in proto.dependency:
        _add_import(pool, deeper, given, added, (*chain, path))
    _add(pool, proto)
    _fill_names(proto, pool.FindFileByName(path))
    added[path] = proto


def _add(pool: DescriptorPool, proto: FileDescriptorProto) -> None:
    try:
        pool.AddSerializedFile(_for_pool(proto).SerializeToString())
    except (TypeError, ValueError) as wrong:
        raise SchemaProblem(str(wrong).removeprefix("Couldn't build proto file into descriptor pool: ")) from None


def _for_pool(proto: FileDescriptorProto) -> FileDescriptorProto:
    plain = FileDescriptorProto()
    plain.CopyFrom(proto)
    plain.ClearField("source_code_info")
    for options in _all_options(plain):
        # Clearing a field of options that are not there would put them there.
        if options.uninterpreted_option:
            options.ClearField("uninterpreted_option")
    return plain


def walk(messages: Iterable[DescriptorProto]) -> Iterator[DescriptorProto]:
    """Yield every message, nested ones too."""
    for message in messages:
        yield message
        yield from walk(message.nested_type)


def _all_options(proto: FileDescriptorProto) -> Iterator[Options]:
    yield proto.options
    for extension in proto.extension:
        yield extension.options
    for enum in proto.enum_type:
        yield enum.options
        yield from (value.options for value in enum.value)
    for service in proto.service:
        yield service.options
        yield from (method.options for method in service.method)
    for message in walk(proto.message_type):
        yield message.options
        yield from (field.options for field in (*message.field, *message.extension))
        yield from (oneof.options for oneof in message.oneof_decl)
        yield from (each.options for each in message.extension_range)
        for enum in message.enum_type:
            yield enum.options
            yield from (value.options for value in enum.value)


def _fill_names(proto: FileDescriptorProto, descriptor: FileDescriptor) -> None:
    """Write the full type names, as the pool has resolved them, into the file's tree."""
    for message in proto.message_type:
        _fill_message(message, descriptor.message_types_by_name[message.name])
    _fill_extensions(proto, descriptor)
    for service in proto.service:
        for method in service.method:
            found = descriptor.services_by_name[service.name].methods_by_name[method.name]
            method.input_type = "." + found.input_type.full_name
            method.output_type = "." + found.output_type.full_name


def _fill_message(message: DescriptorProto, descriptor: Descriptor) -> None:
    for field in message.field:
        _fill_field(field, descriptor.fields_by_name[field.name])
    _fill_extensions(message, descriptor)
    for nested in message.nested_type:
        _fill_message(nested, descriptor.nested_types_by_name[nested.name])


def _fill_extensions(holder: FileDescriptorProto | DescriptorProto, descriptor: FileDescriptor | Descriptor) -> None:
    for extension in holder.extension:
        found = descriptor.extensions_by_name[extension.name]
        _fill_field(extension, found)
        assert found.containing_type is not None, "an extension extends a message"
        extension.extendee = "." + found.containing_type.full_name


def _fill_field(field: FieldDescriptorProto, descriptor: FieldDescriptor) -> None:
    if descriptor.message_type is not None:
        is_group = descriptor.type == FieldDescriptor.TYPE_GROUP
        field.type = FieldDescriptorProto.TYPE_GROUP if is_group else FieldDescriptorProto.TYPE_MESSAGE
        field.type_name = "." + descriptor.message_type.full_name
    elif descriptor.enum_type is not None:
        field.type = FieldDescriptorProto.TYPE_ENUM
        field.type_name = "." + descriptor.enum_type.full_name
