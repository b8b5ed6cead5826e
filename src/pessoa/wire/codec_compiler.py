"""From a declaration to functions: `__init__`, and for each version a decoder and an encoder.

A codec is compiled on first use: we write the Python that a careful person would write by hand for that one version,
and `exec` it. Only declarations go into that source (names, numbers, struct codes), never data. Three habits make it
fast:

- **Runs.** Neighbouring fields of fixed size are read or written by one `struct.Struct`. A length that follows them
  joins the run: classic lengths are fixed anyway, and of a varint the first byte is nearly always the whole, so the
  run takes that byte and a rare branch looks for more. The count of tagged fields, nearly always zero, ends the run
  in the same way. For an encoder, whole arrays of integers are part of a run.
- **Structs in line.** An array of structs becomes a loop in the same function. No call and no result tuple per element.
- **Slots, not __init__.** A decoder makes the bare object and stores into its slots, straight out of the run.

What the generated decoder guarantees for hostile bytes:

- every length is checked for sign, and every array count against the bytes that are left divided by the smallest size
  that one element can have, *before* anything is allocated for it;
- a request has at most `MAX_REQUEST_ITEMS` elements in all its arrays: an object takes many times the bytes of the
  element that it is made of, and the time to serve it, so a large frame of small elements could end a broker;
- positions only grow, so no byte is read twice; a length that points past the end leaves `pos` there, which the next
  read or the last check turns into a violation;
- running off the buffer (struct.error, IndexError) becomes `ProtocolViolation`. Nothing else is raised.

`data` may be longer than the message, since frames lie side by side in a receive buffer: `end` is where the message
must have ended. Text that is not UTF-8 decodes with U+FFFD in place of the bad bytes, as it does in Java.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from struct import Struct as Packer
from struct import calcsize
from struct import error as StructError
from typing import Any

from pessoa.base.ids import Uuid
from pessoa.wire.errors import EncodeError, ProtocolViolation, UnsupportedFieldError
from pessoa.wire.primitives import ArrayUnpackers, read_tagged_fields, read_uvarint, uvarint, write_tagged_fields
from pessoa.wire.schema import REQUIRED, Decoder, Encoder, Field, Message, Struct
from pessoa.wire.versions import Versions

# Struct codes of the kinds that have a fixed size.
FIXED = {
    "bool": "?",
    "int8": "b",
    "int16": "h",
    "uint16": "H",
    "int32": "i",
    "uint32": "I",
    "int64": "q",
    "float64": "d",
    "uuid": "16s",
}


class Source:
    """Lines of Python with an indentation, and the objects they refer to."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.depth = 0
        self.names: dict[str, Any] = {}
        self._count = 0

    def add(self, *lines: str) -> None:
        self.lines.extend("    " * self.depth + line for line in lines)

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        """Add `head`, and indent below it the lines that are added inside the `with` block."""
        self.add(head)
        self.depth += 1
        before = len(self.lines)
        yield
        if len(self.lines) == before:
            self.add("pass")
        self.depth -= 1

    def variable(self, stem: str) -> str:
        """Return a variable name that is unused in this function."""
        self._count += 1
        return f"{stem}{self._count}"

    def constant(self, stem: str, value: object) -> str:
        """Return the name under which the generated code refers to an object; the same object gets the same name."""
        for name, known in self.names.items():
            if known is value:
                return name
        name = self.variable(stem)
        self.names[name] = value
        return name

    def build(self, name: str, title: str) -> Any:
        text = "\n".join(self.lines)
        exec(compile(text, f"<{title}>", "exec"), self.names)
        return self.names[name]


class Layout:
    """The layout of a message in one version, derived from its declaration: the decoder and the encoder writer share
    it."""

    def __init__(self, message: type[Message], version: int) -> None:
        if version not in message.versions:
            raise EncodeError(f"{message.__name__} has versions {message.versions}, not {version}")
        self.message = message
        self.version = version
        self.is_flexible = version in message.flexible
        self.title = f"{message.__name__} v{version}"
        self.is_request = message.__name__.endswith(("Request", "RequestHeader"))

    def has(self, field: Field) -> bool:
        present = self.version in Versions.parse(field.versions)
        assert present or field.default is not REQUIRED, f"{self.title}: {field.name} is absent and has no default"
        return present

    def is_tagged(self, field: Field) -> bool:
        return field.tag is not None and self.is_flexible

    def is_nullable(self, field: Field) -> bool:
        return self.version in Versions.parse(field.nullable)

    def is_compact(self, field: Field) -> bool:
        return self.is_flexible and field.flexible != "none"

    def inline(self, struct: type[Struct]) -> list[Field]:
        """The fields that stand in the body of the struct, in order."""
        return [field for field in struct.fields if self.has(field) and not self.is_tagged(field)]

    def tagged(self, struct: type[Struct]) -> list[Field]:
        return [field for field in struct.fields if self.has(field) and self.is_tagged(field)]

    def absent(self, struct: type[Struct]) -> list[Field]:
        return [field for field in struct.fields if not self.has(field)]

    def smallest(self, struct: type[Struct]) -> int:
        """The fewest bytes that a value of this struct takes."""
        size = sum(self._smallest_of(field) for field in self.inline(struct))
        return size + 1 if self.is_flexible else size

    def _smallest_of(self, field: Field) -> int:
        if field.kind in FIXED:
            return calcsize(">" + FIXED[field.kind])
        if field.kind == "struct":
            assert field.struct is not None
            return 1 if self.is_nullable(field) else self.smallest(field.struct)
        if self.is_compact(field):
            return 1
        return 2 if field.kind == "string" else 4

    def smallest_item(self, field: Field) -> int:
        if field.item == "struct":
            assert field.struct is not None
            return max(1, self.smallest(field.struct))
        assert field.item is not None
        if field.item in FIXED:
            return calcsize(">" + FIXED[field.item])
        return 1 if self.is_compact(field) else 2


def literal(source: Source, field: Field) -> str:
    """Return the Python expression for the field's default; for an array, one that makes a new list."""
    value = field.zero
    if field.kind == "array" and value == ():
        return "[]"
    if value is None or isinstance(value, bool | int | float | str):
        return repr(value)
    return source.constant("default", value)


def default_struct(field: Field) -> Struct:
    """Return the struct that an absent tagged field stands for: all its fields have their defaults."""
    assert field.struct is not None
    return field.struct(**{part.name: part.zero for part in field.struct.fields})


def compile_init(kind: type[Struct]) -> Callable[..., None]:
    """Return an `__init__` with keyword arguments: fields without a default must be given."""
    source = Source()
    arguments, body = [], ["self.unknown_tagged_fields = ()"]
    for field in kind.fields:
        if field.default is REQUIRED:
            arguments.append(field.name)
        elif field.kind == "array" and field.default == ():
            arguments.append(f"{field.name}=()")
            body.append(f"if {field.name} == (): {field.name} = []")
        else:
            arguments.append(f"{field.name}={literal(source, field)}")
        body.append(f"self.{field.name} = {field.name}")
    with source.block(f"def __init__(self{', *, ' if arguments else ''}{', '.join(arguments)}):"):
        source.add(*body)
    return source.build("__init__", f"{kind.__name__}.__init__")  # type: ignore[no-any-return]


def compile_decoder(message: type[Message], version: int) -> Decoder:
    from pessoa.wire.decoding import DecoderWriter

    return DecoderWriter(Layout(message, version)).write()


def compile_encoder(message: type[Message], version: int) -> Encoder:
    from pessoa.wire.encoding import EncoderWriter

    return EncoderWriter(Layout(message, version)).write()


def decode_names() -> dict[str, Any]:
    """Return the global names that every generated decoder can use."""
    return {
        "Violation": ProtocolViolation,
        "StructError": StructError,
        "read_uvarint": read_uvarint,
        "read_tagged_fields": read_tagged_fields,
        "new": object.__new__,
        "new_bytes": bytes.__new__,
        "Uuid": Uuid,
        "memoryview": memoryview,
    }


def encode_names() -> dict[str, Any]:
    """Return the global names that every generated encoder can use."""
    return {
        "EncodeError": EncodeError,
        "UnsupportedFieldError": UnsupportedFieldError,
        "StructError": StructError,
        "uvarint": uvarint,
        "write_tagged_fields": write_tagged_fields,
        "bytearray": bytearray,
    }


def unpacker(source: Source, codes: str) -> str:
    return _packer(source, codes, "read")


def packer(source: Source, codes: str) -> str:
    return _packer(source, codes, "pack")


def array_unpackers(source: Source, code: str) -> str:
    name = f"read_array_{code}"
    source.names.setdefault(name, ArrayUnpackers(code))
    return name


def _packer(source: Source, codes: str, what: str) -> str:
    name = f"{what}_{codes.replace('?', 'B_')}"
    if name not in source.names:
        struct = Packer(">" + codes)
        source.names[name] = struct.unpack_from if what == "read" else struct.pack
    return name
