"""Options: `option java_package = "x";`, `[deprecated = true, (mine).part = {a: 1}]`.

An option that protobuf itself defines is set on the options message. One in parentheses is an extension, whose
definition may be anywhere; it is kept word by word as `uninterpreted_option`, which is what protoc's own parser does
before it looks for the definition.
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

from google.protobuf import text_format
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.descriptor_pb2 import (
    EnumOptions,
    EnumValueOptions,
    ExtensionRangeOptions,
    FieldOptions,
    FileOptions,
    MessageOptions,
    MethodOptions,
    OneofOptions,
    ServiceOptions,
)
from google.protobuf.message import Message

from pessoa.serde.protobuf.proto_tokens import END, FLOAT, IDENTIFIER, INTEGER, STRING, Token, escape
from pessoa.serde.protobuf.reading import Cursor, integer_of
from pessoa.serde.schema_problems import SchemaProblem

Options: TypeAlias = (
    FileOptions
    | MessageOptions
    | FieldOptions
    | OneofOptions
    | ExtensionRangeOptions
    | EnumOptions
    | EnumValueOptions
    | ServiceOptions
    | MethodOptions
)


class Option(NamedTuple):
    # (name, is in parentheses)
    path: tuple[tuple[str, bool], ...]
    # The words of an aggregate, a string or an identifier, or a number.
    value: str | int | float
    kind: str
    token: Token

    @property
    def name(self) -> str:
        """The name of an option of protobuf's own; empty for any other option."""
        return self.path[0][0] if len(self.path) == 1 and not self.path[0][1] else ""


AGGREGATE = "aggregate"


def read_option(cursor: Cursor) -> Option:
    """Read an option, `name = value`, at the cursor."""
    token = cursor.token
    path = [_name_part(cursor)]
    while cursor.maybe("."):
        path.append(_name_part(cursor))
    cursor.expect("=")
    value, kind = _value(cursor)
    return Option(tuple(path), value, kind, token)


def read_bracketed_options(cursor: Cursor) -> list[Option]:
    """Read a list of options, `[a = 1, b = 2]`, at the cursor; return an empty list if there is none."""
    if not cursor.maybe("["):
        return []
    options = [read_option(cursor)]
    while cursor.maybe(","):
        options.append(read_option(cursor))
    cursor.expect("]")
    return options


def _name_part(cursor: Cursor) -> tuple[str, bool]:
    if cursor.maybe("("):
        name = cursor.type_name()
        cursor.expect(")")
        return name, True
    return cursor.identifier("the name of an option"), False


def _value(cursor: Cursor) -> tuple[str | int | float, str]:
    if cursor.at("{"):
        return _aggregate(cursor), AGGREGATE
    if cursor.token.kind == STRING:
        return cursor.string(), STRING
    sign = -1
    if not cursor.maybe("-"):
        sign = 1
        cursor.maybe("+")
    token = cursor.take()
    if token.kind == INTEGER:
        return sign * integer_of(token), INTEGER
    if token.kind == FLOAT:
        return sign * float(token.text), FLOAT
    if token.kind != IDENTIFIER:
        cursor.fail("a value", token)
    if sign > 0:
        return token.text, IDENTIFIER
    if token.text not in ("inf", "nan"):
        cursor.fail("a number", token)
    return -float(token.text), FLOAT


def _aggregate(cursor: Cursor) -> str:
    """Return the tokens between braces, unchanged and separated by single blanks."""
    cursor.expect("{")
    words: list[str] = []
    depth = 1
    while True:
        token = cursor.take()
        if token.kind == END:
            cursor.fail("'}'", token)
        if token.text in ("{", "<") and token.kind != STRING:
            depth += 1
        elif token.text in ("}", ">") and token.kind != STRING:
            depth -= 1
            if depth == 0:
                return " ".join(words)
        words.append(escape(token.text) if token.kind == STRING else token.text)


def apply_option(options: Options, option: Option) -> None:
    """Set an option on FileOptions, FieldOptions, …"""
    target: Message = options
    for place, (name, is_extension) in enumerate(option.path):
        field = None if is_extension else target.DESCRIPTOR.fields_by_name.get(name)
        if field is None:
            if not is_extension and place == 0:
                raise SchemaProblem(f'Option "{name}" unknown', option.token.line, option.token.column)
            _keep_uninterpreted(options, option)
            return
        if place == len(option.path) - 1:
            _set(target, name, option)
        elif field.message_type is None or field.is_repeated:
            raise SchemaProblem(f"the option {name} has no parts", option.token.line, option.token.column)
        else:
            target = getattr(target, name)


def _set(target: Message, name: str, option: Option) -> None:
    def wrong() -> SchemaProblem:
        return SchemaProblem(f"not a value for the option {name}", option.token.line, option.token.column)

    field = target.DESCRIPTOR.fields_by_name[name]
    value = option.value
    if field.cpp_type == FieldDescriptor.CPPTYPE_BOOL:
        if option.kind != IDENTIFIER or value not in ("true", "false"):
            raise wrong()
        value = value == "true"
    elif field.enum_type is not None:
        number = field.enum_type.values_by_name.get(str(value)) if option.kind == IDENTIFIER else None
        if number is None:
            raise wrong()
        value = number.number
    elif field.message_type is not None:
        if option.kind != AGGREGATE:
            raise wrong()
        inner = getattr(target, name).add() if field.is_repeated else getattr(target, name)
        try:
            text_format.Merge(str(value), inner)
        except text_format.ParseError:
            raise wrong() from None
        return
    elif (field.cpp_type == FieldDescriptor.CPPTYPE_STRING) != (option.kind == STRING):
        raise wrong()
    try:
        if field.is_repeated:
            getattr(target, name).append(value)
        else:
            setattr(target, name, value)
    except (TypeError, ValueError):
        raise wrong() from None


def _keep_uninterpreted(options: Options, option: Option) -> None:
    kept = options.uninterpreted_option.add()
    for name, is_extension in option.path:
        kept.name.add(name_part=name, is_extension=is_extension)
    value = option.value
    if isinstance(value, float):
        kept.double_value = value
    elif isinstance(value, int):
        if value >= 0:
            kept.positive_int_value = value & 0xFFFFFFFFFFFFFFFF
        else:
            kept.negative_int_value = value
    elif option.kind == AGGREGATE:
        kept.aggregate_value = value
    elif option.kind == STRING:
        kept.string_value = value.encode("utf-8", "surrogateescape")
    else:
        kept.identifier_value = value
