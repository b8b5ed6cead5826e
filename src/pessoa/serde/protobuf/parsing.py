"""The grammar of proto2, proto3 and editions: one method per rule, tokens in, a FileDescriptorProto out.

Names of types stay as they are written; linking.py finds out what they mean. What depends on the file alone is checked
here with its position: syntax, ranges of field numbers, numbers and names used twice or reserved, enums that do not
start at zero in proto3.

A map field becomes what it is on the wire: a repeated message with `key` and `value`, marked as a map entry. A proto3
`optional` becomes a field alone in a oneof of its own, after all others, as protoc has it.
"""

from __future__ import annotations

from bisect import bisect_right
from itertools import accumulate
from typing import TYPE_CHECKING

from google.protobuf import descriptor_pb2
from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
    MethodDescriptorProto,
    ServiceDescriptorProto,
)

from pessoa.serde.protobuf.options import Option, Options, apply_option, read_bracketed_options, read_option
from pessoa.serde.protobuf.proto_tokens import END, IDENTIFIER, STRING, Token, tokenize
from pessoa.serde.protobuf.reading import Cursor
from pessoa.serde.schema_problems import SchemaProblem

if TYPE_CHECKING:
    from google.protobuf.internal.containers import RepeatedCompositeFieldContainer

    Fields = RepeatedCompositeFieldContainer[FieldDescriptorProto]
    Messages = RepeatedCompositeFieldContainer[DescriptorProto]

_SCALAR_NAMES = """
    double float int64 uint64 int32 fixed64 fixed32 bool string bytes uint32 sfixed32 sfixed64 sint32 sint64
"""
SCALARS: dict[str, FieldDescriptorProto.Type.ValueType] = {
    name: getattr(FieldDescriptorProto, f"TYPE_{name.upper()}") for name in _SCALAR_NAMES.split()
}
_KEY_TYPES = set(SCALARS) - {"double", "float", "bytes"}
_LABELS = {
    "optional": FieldDescriptorProto.LABEL_OPTIONAL,
    "required": FieldDescriptorProto.LABEL_REQUIRED,
    "repeated": FieldDescriptorProto.LABEL_REPEATED,
}
MAX_FIELD_NUMBER = 2**29 - 1
_RESERVED_BY_PROTOBUF = range(19000, 20000)
_INT32 = range(-(2**31), 2**31)
# Deeper than any file, and far from the end of Python's stack.
_MAX_DEPTH = 32


def parse_proto(text: str, name: str = "") -> FileDescriptorProto:
    cursor = Cursor(tokenize(text))
    return _Parser(cursor, name).file()


def camel_case(name: str) -> str:
    """The JSON name of a field."""
    out = []
    upper = False
    for character in name:
        if character == "_":
            upper = True
        else:
            out.append(character.upper() if upper else character)
            upper = False
    return "".join(out)


def map_entry_name(field: str) -> str:
    """Return the name of the entry message that protobuf makes for a map field."""
    camel = camel_case(field)
    return camel[:1].upper() + camel[1:] + "Entry"


class _Parser:
    def __init__(self, cursor: Cursor, name: str) -> None:
        self._cursor = cursor
        self._file = FileDescriptorProto(name=name)
        # The same names as in the file, where looking one up walks them all.
        self._imported_names: set[str] = set()
        self._depth = 0

    def file(self) -> FileDescriptorProto:
        cursor = self._cursor
        self._syntax()
        while cursor.token.kind != END:
            if cursor.maybe(";"):
                continue
            word = cursor.token.text if cursor.token.kind == IDENTIFIER else ""
            match word:
                case "package":
                    cursor.take()
                    if self._file.package:
                        cursor.fail("one package only")
                    self._file.package = cursor.full_identifier()
                    cursor.expect(";")
                case "import":
                    self._import()
                case "option":
                    self._option(self._file.options)
                case "message":
                    self._message(self._file.message_type.add())
                case "enum":
                    self._enum(self._file.enum_type.add())
                case "extend":
                    self._extend(self._file.extension, self._file.message_type)
                case "service":
                    self._service(self._file.service.add())
                case _:
                    cursor.fail("a declaration (message, enum, import, …)")
        return self._file

    def _syntax(self) -> None:
        cursor = self._cursor
        # Blank declarations may come first.
        while cursor.at(";"):
            cursor.take()
        if cursor.maybe("syntax"):
            cursor.expect("=")
            token = cursor.token
            syntax = cursor.string()
            if syntax not in ("proto2", "proto3"):
                raise SchemaProblem(f'unknown syntax "{syntax}": it is proto2 or proto3', token.line, token.column)
            if syntax == "proto3":
                self._file.syntax = syntax
            cursor.expect(";")
        elif cursor.maybe("edition"):
            cursor.expect("=")
            token = cursor.token
            edition = cursor.string()
            number = descriptor_pb2.Edition.DESCRIPTOR.values_by_name.get(f"EDITION_{edition}")
            if number is None or not edition.isdigit():
                raise SchemaProblem(f'unknown edition "{edition}"', token.line, token.column)
            self._file.syntax = "editions"
            self._file.edition = number.number  # type: ignore[assignment]
            cursor.expect(";")

    @property
    def _is_proto3(self) -> bool:
        return self._file.syntax == "proto3"

    def _import(self) -> None:
        cursor = self._cursor
        cursor.expect("import")
        if cursor.maybe("public"):
            self._file.public_dependency.append(len(self._file.dependency))
        elif cursor.maybe("weak"):
            self._file.weak_dependency.append(len(self._file.dependency))
        token = cursor.token
        name = cursor.string()
        if name in self._imported_names:
            raise SchemaProblem(f'import "{name}" is there twice', token.line, token.column)
        self._imported_names.add(name)
        self._file.dependency.append(name)
        cursor.expect(";")

    def _option(self, options: Options) -> None:
        self._cursor.expect("option")
        apply_option(options, read_option(self._cursor))
        self._cursor.expect(";")

    # Messages.

    def _message(self, message: DescriptorProto) -> None:
        self._cursor.expect("message")
        message.name = self._cursor.identifier()
        self._message_body(message)

    def _message_body(self, message: DescriptorProto) -> None:
        cursor = self._cursor
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise SchemaProblem(f"messages nested more than {_MAX_DEPTH} deep", cursor.token.line, cursor.token.column)
        start = cursor.expect("{")
        optionals: list[FieldDescriptorProto] = []
        while not cursor.maybe("}"):
            if not cursor.maybe(";"):
                self._message_element(message, optionals)
        self._depth -= 1
        taken = {each.name for each in message.field} | {each.name for each in message.oneof_decl}
        for field in optionals:
            name = _synthetic_name(field.name, taken)
            taken.add(name)
            field.oneof_index = len(message.oneof_decl)
            message.oneof_decl.add(name=name)
        _check_message(message, start)

    def _message_element(self, message: DescriptorProto, optionals: list[FieldDescriptorProto]) -> None:
        cursor = self._cursor
        # Keywords are names too: `message` may be the type or the name of a field.
        word = cursor.token.text if cursor.token.kind == IDENTIFIER else ""
        follows = cursor.peek()
        if word == "message" and follows.kind == IDENTIFIER:
            self._message(message.nested_type.add())
        elif word == "enum" and follows.kind == IDENTIFIER:
            self._enum(message.enum_type.add())
        elif word == "extend" and (follows.kind == IDENTIFIER or follows.text == "."):
            self._extend(message.extension, message.nested_type)
        elif word == "option" and (follows.kind == IDENTIFIER or follows.text == "("):
            self._option(message.options)
        elif word == "oneof" and follows.kind == IDENTIFIER:
            self._oneof(message)
        elif word == "extensions" and follows.kind == "integer":
            self._extension_ranges(message)
        elif word == "reserved" and (follows.kind in ("integer", STRING) or follows.text == ";"):
            self._reserved(message)
        elif word == "map" and follows.text == "<":
            self._map(message)
        else:
            field = self._field(message.field, message.nested_type)
            if field.proto3_optional:
                optionals.append(field)

    def _field(self, fields: Fields, nested: Messages, *, in_oneof: bool = False) -> FieldDescriptorProto:
        cursor = self._cursor
        field = fields.add(label=FieldDescriptorProto.LABEL_OPTIONAL)
        if cursor.at(*_LABELS) and not in_oneof and cursor.peek().text != "=":
            label = cursor.take()
            if label.text == "required" and self._is_proto3:
                cursor.fail("no required field in proto3", label)
            field.label = _LABELS[label.text]
            field.proto3_optional = self._is_proto3 and label.text == "optional"
            if not field.proto3_optional:
                field.ClearField("proto3_optional")
        elif not in_oneof and self._file.syntax not in ("proto3", "editions"):
            cursor.fail("'optional', 'required' or 'repeated'")
        if cursor.at("group") and cursor.peek().kind == IDENTIFIER:
            self._group(field, nested)
            return field
        type_name = cursor.type_name()
        if type_name in SCALARS:
            field.type = SCALARS[type_name]
        else:
            field.type_name = type_name
        field.name = cursor.identifier("the name of a field")
        self._number_and_options(field)
        cursor.expect(";")
        return field

    def _number_and_options(self, field: FieldDescriptorProto) -> None:
        cursor = self._cursor
        cursor.expect("=")
        token = cursor.token
        number = cursor.integer("the number of a field")
        if not 1 <= number <= MAX_FIELD_NUMBER:
            raise SchemaProblem(f"field numbers go from 1 to {MAX_FIELD_NUMBER}", token.line, token.column)
        if number in _RESERVED_BY_PROTOBUF:
            raise SchemaProblem("field numbers 19000 to 19999 belong to protobuf", token.line, token.column)
        field.number = number
        for option in read_bracketed_options(cursor):
            self._field_option(field, option)

    def _field_option(self, field: FieldDescriptorProto, option: Option) -> None:
        if option.name == "default":
            value = option.value
            if field.type == FieldDescriptorProto.TYPE_BYTES and isinstance(value, str):
                value = _escape_bytes(value)
            field.default_value = str(value)
        elif option.name == "json_name" and option.kind == STRING:
            field.json_name = str(option.value)
        else:
            apply_option(field.options, option)

    def _group(self, field: FieldDescriptorProto, nested: Messages) -> None:
        self._cursor.expect("group")
        message = nested.add()
        message.name = self._cursor.identifier("the name of a group")
        field.name = message.name.lower()
        field.type = FieldDescriptorProto.TYPE_GROUP
        field.type_name = message.name
        self._number_and_options(field)
        self._message_body(message)

    def _map(self, message: DescriptorProto) -> None:
        cursor = self._cursor
        cursor.expect("map")
        cursor.expect("<")
        token = cursor.token
        key = cursor.identifier("the type of a map's keys")
        if key not in _KEY_TYPES:
            raise SchemaProblem(f"{key} cannot be the key of a map", token.line, token.column)
        cursor.expect(",")
        value = cursor.type_name()
        cursor.expect(">")
        field = message.field.add(label=FieldDescriptorProto.LABEL_REPEATED)
        field.name = cursor.identifier("the name of a field")
        self._number_and_options(field)
        cursor.expect(";")
        entry = message.nested_type.add(name=map_entry_name(field.name))
        entry.options.map_entry = True
        optional = FieldDescriptorProto.LABEL_OPTIONAL
        entry.field.add(name="key", number=1, label=optional, type=SCALARS[key])
        entry_value = entry.field.add(name="value", number=2, label=optional)
        if value in SCALARS:
            entry_value.type = SCALARS[value]
        else:
            entry_value.type_name = value
        field.type = FieldDescriptorProto.TYPE_MESSAGE
        field.type_name = entry.name

    def _oneof(self, message: DescriptorProto) -> None:
        cursor = self._cursor
        cursor.expect("oneof")
        index = len(message.oneof_decl)
        oneof = message.oneof_decl.add(name=cursor.identifier())
        start = cursor.expect("{")
        count = 0
        while not cursor.maybe("}"):
            if cursor.maybe(";"):
                continue
            if cursor.at("option") and (cursor.peek().kind == IDENTIFIER or cursor.peek().text == "("):
                self._option(oneof.options)
                continue
            field = self._field(message.field, message.nested_type, in_oneof=True)
            field.oneof_index = index
            count += 1
        if not count:
            raise SchemaProblem(f"the oneof {oneof.name} has no fields", start.line, start.column)

    def _extension_ranges(self, message: DescriptorProto) -> None:
        self._cursor.expect("extensions")
        first = len(message.extension_range)
        for low, high in self._ranges(MAX_FIELD_NUMBER):
            message.extension_range.add(start=low, end=high + 1)
        for option in read_bracketed_options(self._cursor):
            for extension_range in list(message.extension_range)[first:]:
                apply_option(extension_range.options, option)
        self._cursor.expect(";")

    def _reserved(self, message: DescriptorProto) -> None:
        cursor = self._cursor
        cursor.expect("reserved")
        if cursor.token.kind == STRING:
            message.reserved_name.extend(self._reserved_names())
        else:
            for low, high in self._ranges(MAX_FIELD_NUMBER):
                message.reserved_range.add(start=low, end=high + 1)
        cursor.expect(";")

    def _reserved_names(self) -> list[str]:
        names = [self._cursor.string()]
        while self._cursor.maybe(","):
            names.append(self._cursor.string())
        return names

    def _ranges(self, highest: int) -> list[tuple[int, int]]:
        cursor = self._cursor
        ranges = []
        while True:
            token = cursor.token
            low = cursor.integer()
            high = low
            if cursor.maybe("to"):
                high = highest if cursor.maybe("max") else cursor.integer()
            if not -(2**31) <= low <= high <= highest:
                raise SchemaProblem(f"{low} to {high} is no range of numbers", token.line, token.column)
            ranges.append((low, high))
            if not cursor.maybe(","):
                return ranges

    # Enums, extensions, services.

    def _enum(self, enum: EnumDescriptorProto) -> None:
        cursor = self._cursor
        cursor.expect("enum")
        start = cursor.token
        enum.name = cursor.identifier()
        cursor.expect("{")
        while not cursor.maybe("}"):
            if cursor.maybe(";"):
                continue
            follows = cursor.peek()
            if cursor.at("option") and (follows.kind == IDENTIFIER or follows.text == "("):
                self._option(enum.options)
            elif cursor.at("reserved") and follows.text != "=":
                self._enum_reserved(enum)
            else:
                self._enum_value(enum)
        _check_enum(enum, start, is_proto3=self._is_proto3)

    def _enum_reserved(self, enum: EnumDescriptorProto) -> None:
        cursor = self._cursor
        cursor.expect("reserved")
        if cursor.token.kind == STRING:
            enum.reserved_name.extend(self._reserved_names())
        else:
            for low, high in self._ranges(_INT32[-1]):
                enum.reserved_range.add(start=low, end=high)
        cursor.expect(";")

    def _enum_value(self, enum: EnumDescriptorProto) -> None:
        cursor = self._cursor
        value = enum.value.add(name=cursor.identifier("the name of an enum value"))
        cursor.expect("=")
        token = cursor.token
        number = cursor.integer()
        if number not in _INT32:
            raise SchemaProblem("enum values are 32-bit numbers", token.line, token.column)
        value.number = number
        for option in read_bracketed_options(cursor):
            apply_option(value.options, option)
        cursor.expect(";")

    def _extend(self, extensions: Fields, nested: Messages) -> None:
        cursor = self._cursor
        cursor.expect("extend")
        extended = cursor.type_name()
        cursor.expect("{")
        while not cursor.maybe("}"):
            if not cursor.maybe(";"):
                field = self._field(extensions, nested)
                field.extendee = extended

    def _service(self, service: ServiceDescriptorProto) -> None:
        cursor = self._cursor
        cursor.expect("service")
        service.name = cursor.identifier()
        cursor.expect("{")
        while not cursor.maybe("}"):
            if cursor.maybe(";"):
                continue
            if cursor.at("option"):
                self._option(service.options)
            else:
                self._method(service.method.add())

    def _method(self, method: MethodDescriptorProto) -> None:
        cursor = self._cursor
        cursor.expect("rpc")
        method.name = cursor.identifier()
        method.input_type, is_stream = self._method_type()
        if is_stream:
            method.client_streaming = True
        cursor.expect("returns")
        method.output_type, is_stream = self._method_type()
        if is_stream:
            method.server_streaming = True
        if cursor.maybe(";"):
            return
        cursor.expect("{")
        while not cursor.maybe("}"):
            if not cursor.maybe(";"):
                self._option(method.options)

    def _method_type(self) -> tuple[str, bool]:
        cursor = self._cursor
        cursor.expect("(")
        is_stream = cursor.at("stream") and cursor.peek().text != ")"
        if is_stream:
            cursor.take()
        name = cursor.type_name()
        cursor.expect(")")
        return name, is_stream


def _synthetic_name(field: str, taken: set[str]) -> str:
    name = field if field.startswith("_") else f"_{field}"
    while name in taken:
        name = f"X{name}"
    return name


def _check_message(message: DescriptorProto, place: Token) -> None:
    def fail(sentence: str) -> None:
        raise SchemaProblem(f"message {message.name}: {sentence}", place.line, place.column)

    numbers: dict[int, str] = {}
    names: set[str] = set()
    reserved_names = set(message.reserved_name)
    # Merged in one pass, so that thousands of fields and of ranges do not meet each with each.
    reserved = sorted((each.start, each.end) for each in message.reserved_range)
    furthest = list(accumulate((end for _, end in reserved), max))
    for field in message.field:
        if field.number in numbers:
            fail(f"the fields {numbers[field.number]} and {field.name} have the number {field.number}")
        if field.name in names:
            fail(f"two fields are called {field.name}")
        if field.name in reserved_names:
            fail(f"the field name {field.name} is reserved")
        before = bisect_right(reserved, (field.number, MAX_FIELD_NUMBER + 1))
        if before and field.number < furthest[before - 1]:
            fail(f"the number {field.number} of {field.name} is reserved")
        numbers[field.number] = field.name
        names.add(field.name)


def _check_enum(enum: EnumDescriptorProto, place: Token, *, is_proto3: bool) -> None:
    if not enum.value:
        raise SchemaProblem(f"the enum {enum.name} has no values", place.line, place.column)
    if is_proto3 and enum.value[0].number != 0:
        raise SchemaProblem(f"the first value of the proto3 enum {enum.name} is not 0", place.line, place.column)
    numbers = [value.number for value in enum.value]
    if len(set(numbers)) != len(numbers) and not enum.options.allow_alias:
        sentence = f"two values of the enum {enum.name} have one number; `option allow_alias = true;` allows that"
        raise SchemaProblem(sentence, place.line, place.column)


def _escape_bytes(text: str) -> str:
    return "".join(
        character if " " <= character < "\x7f" and character not in "\"'\\" else f"\\{ord(character) & 0xFF:03o}"
        for character in text
    )
