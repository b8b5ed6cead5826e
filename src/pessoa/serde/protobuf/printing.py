"""A FileDescriptorProto as .proto text, in one spelling: the identity of a Protobuf schema in the registry.

Comments are gone, blanks are ours, types are full names with a leading dot, and options that say what holds anyway are
left out (the JSON name that a field has in any case). With `normalize`, what has no meaning in its order is sorted as
well: imports, options, reserved names, fields and constants by number. The order of messages stays: message indexes
count on it.
"""

from __future__ import annotations

from collections.abc import Iterable

from google.protobuf import text_format
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    Edition,
    EnumDescriptorProto,
    EnumValueDescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
    ServiceDescriptorProto,
    UninterpretedOption,
)
from google.protobuf.message import Message

from pessoa.serde.protobuf.options import Options
from pessoa.serde.protobuf.parsing import MAX_FIELD_NUMBER, SCALARS, camel_case
from pessoa.serde.protobuf.proto_tokens import escape

_SCALAR_NAMES = {number: name for name, number in SCALARS.items()}
_MAX_ENUM = 2**31 - 1


def print_proto(proto: FileDescriptorProto, *, normalize: bool = False) -> str:
    return "\n".join(_Printer(proto, normalize).file()) + "\n"


class _Printer:
    def __init__(self, proto: FileDescriptorProto, normalize: bool) -> None:
        self._file = proto
        self._normalize = normalize

    def file(self) -> Iterable[str]:
        proto = self._file
        if proto.syntax == "editions":
            yield f'edition = "{Edition.Name(proto.edition).removeprefix("EDITION_")}";'
        else:
            yield f'syntax = "{proto.syntax or "proto2"}";'
        if proto.package:
            yield f"package {proto.package};"
        imports = [self._import(index, path) for index, path in enumerate(proto.dependency)]
        yield from sorted(imports) if self._normalize else imports
        yield from (f"option {each};" for each in self._options(proto.options))
        for message in proto.message_type:
            yield ""
            yield from self._message(message, "", "message")
        for enum in proto.enum_type:
            yield ""
            yield from self._enum(enum, "")
        yield from self._extensions(proto.extension, (), "")
        for service in proto.service:
            yield ""
            yield from self._service(service)

    def _import(self, index: int, path: str) -> str:
        kind = ""
        if index in self._file.public_dependency:
            kind = "public "
        elif index in self._file.weak_dependency:
            kind = "weak "
        return f"import {kind}{escape(path)};"

    # Messages.

    def _message(self, message: DescriptorProto, indent: str, keyword: str) -> Iterable[str]:
        yield f"{indent}{keyword} {message.name} {{"
        yield from self._message_body(message, indent + "  ")
        yield f"{indent}}}"

    def _message_body(self, message: DescriptorProto, indent: str) -> Iterable[str]:
        yield from (f"{indent}option {each};" for each in self._options(message.options, skip=("map_entry",)))
        if message.reserved_range:
            ranges = [(each.start, each.end - 1) for each in message.reserved_range]
            yield f"{indent}reserved {self._ranges(ranges, MAX_FIELD_NUMBER)};"
        if message.reserved_name:
            yield f"{indent}reserved {', '.join(escape(name) for name in self._names(message.reserved_name))};"
        for extension_range in message.extension_range:
            ranges = [(extension_range.start, extension_range.end - 1)]
            options = self._in_brackets(self._options(extension_range.options))
            yield f"{indent}extensions {self._ranges(ranges, MAX_FIELD_NUMBER)}{options};"
        entries = {nested.name: nested for nested in message.nested_type if nested.options.map_entry}
        groups = {
            field.type_name.rpartition(".")[2]
            for field in message.field
            if field.type == FieldDescriptorProto.TYPE_GROUP
        }
        yield from self._fields(message, entries, indent)
        for nested in message.nested_type:
            if nested.name not in entries and nested.name not in groups:
                yield from self._message(nested, indent, "message")
        for enum in message.enum_type:
            yield from self._enum(enum, indent)
        yield from self._extensions(message.extension, message.nested_type, indent)

    def _fields(self, message: DescriptorProto, entries: dict[str, DescriptorProto], indent: str) -> Iterable[str]:
        fields = list(message.field)
        if self._normalize:
            fields.sort(key=lambda field: field.number)
        written: set[int] = set()
        for field in fields:
            if not field.HasField("oneof_index") or field.proto3_optional:
                yield from self._field(field, message.nested_type, entries, indent)
            elif field.oneof_index not in written:
                written.add(field.oneof_index)
                oneof = message.oneof_decl[field.oneof_index]
                yield f"{indent}oneof {oneof.name} {{"
                yield from (f"{indent}  option {each};" for each in self._options(oneof.options))
                for member in fields:
                    if member.HasField("oneof_index") and member.oneof_index == field.oneof_index:
                        yield from self._field(member, message.nested_type, entries, indent + "  ", in_oneof=True)
                yield f"{indent}}}"

    def _field(
        self,
        field: FieldDescriptorProto,
        nested: Iterable[DescriptorProto],
        entries: dict[str, DescriptorProto],
        indent: str,
        *,
        in_oneof: bool = False,
    ) -> Iterable[str]:
        options = self._in_brackets(self._field_options(field))
        entry = entries.get(field.type_name.rpartition(".")[2])
        if entry is not None and field.label == FieldDescriptorProto.LABEL_REPEATED:
            key, value = entry.field
            yield f"{indent}map<{_type(key)}, {_type(value)}> {field.name} = {field.number}{options};"
            return
        label = "" if in_oneof else self._label(field)
        if field.type == FieldDescriptorProto.TYPE_GROUP:
            body = next(each for each in nested if each.name == field.type_name.rpartition(".")[2])
            yield f"{indent}{label}group {body.name} = {field.number}{options} {{"
            yield from self._message_body(body, indent + "  ")
            yield f"{indent}}}"
            return
        yield f"{indent}{label}{_type(field)} {field.name} = {field.number}{options};"

    def _label(self, field: FieldDescriptorProto) -> str:
        if field.label == FieldDescriptorProto.LABEL_REPEATED:
            return "repeated "
        if field.label == FieldDescriptorProto.LABEL_REQUIRED:
            return "required "
        is_proto2 = self._file.syntax not in ("proto3", "editions")
        return "optional " if field.proto3_optional or is_proto2 else ""

    def _field_options(self, field: FieldDescriptorProto) -> list[str]:
        options = []
        if field.HasField("default_value"):
            value = field.default_value
            if field.type == FieldDescriptorProto.TYPE_STRING:
                value = escape(value)
            elif field.type == FieldDescriptorProto.TYPE_BYTES:
                value = f'"{value}"'  # a descriptor holds it escaped
            options.append(f"default = {value}")
        if field.json_name and field.json_name != camel_case(field.name):
            options.append(f"json_name = {escape(field.json_name)}")
        return options + self._options(field.options)

    def _extensions(
        self, extensions: Iterable[FieldDescriptorProto], nested: Iterable[DescriptorProto], indent: str
    ) -> Iterable[str]:
        for extension in extensions:
            yield f"{indent}extend {extension.extendee} {{"
            yield from self._field(extension, nested, {}, indent + "  ")
            yield f"{indent}}}"

    # The rest.

    def _enum(self, enum: EnumDescriptorProto, indent: str) -> Iterable[str]:
        yield f"{indent}enum {enum.name} {{"
        yield from (f"{indent}  option {each};" for each in self._options(enum.options))
        for value in self._constants(enum):
            yield f"{indent}  {value.name} = {value.number}{self._in_brackets(self._options(value.options))};"
        if enum.reserved_range:
            ranges = [(each.start, each.end) for each in enum.reserved_range]
            yield f"{indent}  reserved {self._ranges(ranges, _MAX_ENUM)};"
        if enum.reserved_name:
            yield f"{indent}  reserved {', '.join(escape(name) for name in self._names(enum.reserved_name))};"
        yield f"{indent}}}"

    def _constants(self, enum: EnumDescriptorProto) -> Iterable[EnumValueDescriptorProto]:
        if not self._normalize:
            return enum.value
        # The first is the default of an unset field, and in proto3 it has to be zero.
        return [*enum.value[:1], *sorted(enum.value[1:], key=lambda value: (value.number, value.name))]

    def _names(self, reserved: Iterable[str]) -> Iterable[str]:
        return sorted(reserved) if self._normalize else reserved

    def _service(self, service: ServiceDescriptorProto) -> Iterable[str]:
        yield f"service {service.name} {{"
        yield from (f"  option {each};" for each in self._options(service.options))
        for method in service.method:
            taken = f"{'stream ' if method.client_streaming else ''}{method.input_type}"
            given = f"{'stream ' if method.server_streaming else ''}{method.output_type}"
            options = self._options(method.options)
            yield f"  rpc {method.name} ({taken}) returns ({given}){' {' if options else ';'}"
            if options:
                yield from (f"    option {each};" for each in options)
                yield "  }"
        yield "}"

    def _ranges(self, ranges: list[tuple[int, int]], highest: int) -> str:
        if self._normalize:
            ranges = sorted(ranges)
        return ", ".join(
            str(low) if low == high else f"{low} to {'max' if high >= highest else high}" for low, high in ranges
        )

    def _options(self, options: Options, skip: tuple[str, ...] = ()) -> list[str]:
        printed = []
        for field, value in options.ListFields():
            if field.is_extension or field.name in ("uninterpreted_option", *skip):
                continue
            for each in value if field.is_repeated else [value]:
                printed += _option(field, each, field.name)
        printed += [_print_uninterpreted(each) for each in options.uninterpreted_option]
        return sorted(printed) if self._normalize else printed

    def _in_brackets(self, options: list[str]) -> str:
        return f" [{', '.join(options)}]" if options else ""


def _type(field: FieldDescriptorProto) -> str:
    return field.type_name or str(_SCALAR_NAMES[field.type])


def _option(field: FieldDescriptor, value: Message | str | bytes | float, name: str) -> list[str]:
    if isinstance(value, Message):
        if field.is_repeated:
            return [f"{name} = {{ {text_format.MessageToString(value, as_one_line=True)} }}"]
        return [part for inner, each in value.ListFields() for part in _option(inner, each, f"{name}.{inner.name}")]
    if field.enum_type is not None and isinstance(value, int):
        return [f"{name} = {field.enum_type.values_by_number[value].name}"]
    if isinstance(value, str | bytes):
        return [f"{name} = {escape(value if isinstance(value, str) else value.decode('latin-1'))}"]
    return [f"{name} = {str(value).lower()}"]


def _print_uninterpreted(option: UninterpretedOption) -> str:
    name = ".".join(f"({part.name_part})" if part.is_extension else part.name_part for part in option.name)
    if option.HasField("aggregate_value"):
        return f"{name} = {{ {option.aggregate_value} }}"
    if option.HasField("string_value"):
        return f"{name} = {escape(option.string_value.decode('utf-8', 'surrogateescape'))}"
    if option.HasField("identifier_value"):
        return f"{name} = {option.identifier_value}"
    if option.HasField("positive_int_value"):
        return f"{name} = {option.positive_int_value}"
    if option.HasField("negative_int_value"):
        return f"{name} = {option.negative_int_value}"
    return f"{name} = {option.double_value!r}"
