"""Declarations of messages: one class for all versions of a message.

    class FetchPartition(Struct):
        partition: int = int32()
        current_leader_epoch: int = int32("9+", default=-1, ignorable=True)
        fetch_offset: int = int64()

    class FetchRequest(Message, versions="4-18", flexible="12+"):
        max_wait_ms: int = int32()
        topics: list[FetchTopic] = array(FetchTopic)

A field says its type, then (only where it matters) the versions that have it, the versions in which it may be null,
its default, and its tag. The order of the fields is their order on the wire. To the type checker these are
dataclasses with keyword arguments; a field without a default must be given. At run time a declaration costs one small
class: `__init__` and the codecs are compiled on first use (`pessoa.wire.codec_compiler`).

What must hold, and is checked when a codec is compiled:

- a field that some version lacks has a default, since decoding that version must produce it;
- setting a field to something else than its default, and then encoding a version that lacks it, is an
  `UnsupportedFieldError` unless the field is `ignorable`: Kafka's rule, so that no field is dropped silently;
- a tagged field is written only when it differs from its default. A tagged *struct* that is absent is None, so that
  no default is built and compared.

Tagged fields that a declaration does not know are kept in `unknown_tagged_fields` and written back.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, ClassVar, Self, dataclass_transform

from pessoa.base.ids import ZERO_UUID, Uuid
from pessoa.wire.errors import ProtocolViolation
from pessoa.wire.primitives import Data, TaggedFields
from pessoa.wire.versions import NO_VERSIONS, Versions

ALL = "0+"
NONE = "none"

Decoder = Callable[[Data, int, int], tuple[Any, int]]
# Appends to the bytearray it is given and returns the buffers to send; that bytearray is the first of them.
Encoder = Callable[[Any, bytearray], "list[bytes | bytearray | memoryview]"]


class _Required:
    def __repr__(self) -> str:
        return "REQUIRED"


REQUIRED: Any = _Required()


class Field:
    """A declared field. `kind` is the wire type; `item` is the element kind of an array, `struct` the class of a
    struct."""

    __slots__ = ("default", "flexible", "ignorable", "item", "kind", "name", "nullable", "struct", "tag", "versions")

    name: str

    def __init__(
        self,
        kind: str,
        versions: str = ALL,
        default: Any = REQUIRED,
        nullable: str = NONE,
        tag: int | None = None,
        ignorable: bool = False,
        item: str | None = None,
        struct: type[Struct] | None = None,
        flexible: str = ALL,
    ) -> None:
        self.kind = kind
        self.versions = versions
        self.default = default
        self.nullable = nullable
        self.tag = tag
        self.ignorable = ignorable
        self.item = item
        self.struct = struct
        self.flexible = flexible

    def __repr__(self) -> str:
        return f"<{self.kind} {self.name} {self.versions}>"

    @property
    def zero(self) -> Any:
        """The value that stands for "not given" on the wire: the declared default, else the empty value of the kind."""
        if self.default is not REQUIRED:
            return self.default
        return _ZEROES.get(self.kind)


_ZEROES: dict[str, Any] = {
    "bool": False,
    "int8": 0,
    "int16": 0,
    "uint16": 0,
    "int32": 0,
    "uint32": 0,
    "int64": 0,
    "float64": 0.0,
    "string": "",
    "bytes": b"",
    "uuid": ZERO_UUID,
    "array": (),
}


def boolean(versions: str = ALL, *, default: bool = REQUIRED, tag: int | None = None, ignorable: bool = False) -> Any:
    return Field("bool", versions, default, tag=tag, ignorable=ignorable)


def int8(versions: str = ALL, *, default: int = REQUIRED, tag: int | None = None, ignorable: bool = False) -> Any:
    return Field("int8", versions, default, tag=tag, ignorable=ignorable)


def int16(versions: str = ALL, *, default: int = REQUIRED, tag: int | None = None, ignorable: bool = False) -> Any:
    return Field("int16", versions, default, tag=tag, ignorable=ignorable)


def uint16(versions: str = ALL, *, default: int = REQUIRED, tag: int | None = None, ignorable: bool = False) -> Any:
    return Field("uint16", versions, default, tag=tag, ignorable=ignorable)


def int32(versions: str = ALL, *, default: int = REQUIRED, tag: int | None = None, ignorable: bool = False) -> Any:
    return Field("int32", versions, default, tag=tag, ignorable=ignorable)


def uint32(versions: str = ALL, *, default: int = REQUIRED, tag: int | None = None, ignorable: bool = False) -> Any:
    return Field("uint32", versions, default, tag=tag, ignorable=ignorable)


def int64(versions: str = ALL, *, default: int = REQUIRED, tag: int | None = None, ignorable: bool = False) -> Any:
    return Field("int64", versions, default, tag=tag, ignorable=ignorable)


def float64(versions: str = ALL, *, default: float = REQUIRED, tag: int | None = None, ignorable: bool = False) -> Any:
    return Field("float64", versions, default, tag=tag, ignorable=ignorable)


def uuid(versions: str = ALL, *, default: Uuid = REQUIRED, tag: int | None = None, ignorable: bool = False) -> Any:
    return Field("uuid", versions, default, tag=tag, ignorable=ignorable)


def string(
    versions: str = ALL,
    *,
    default: str | None = REQUIRED,
    nullable: str = NONE,
    tag: int | None = None,
    ignorable: bool = False,
    flexible: str = ALL,
) -> Any:
    """Declare a string. `flexible="none"` keeps the classic form in flexible versions: the client id of the request
    header needs it."""
    return Field("string", versions, default, nullable, tag, ignorable, flexible=flexible)


def binary(
    versions: str = ALL,
    *,
    default: bytes | None = REQUIRED,
    nullable: str = NONE,
    tag: int | None = None,
    ignorable: bool = False,
) -> Any:
    """Declare a field of Kafka's type `bytes`."""
    return Field("bytes", versions, default, nullable, tag, ignorable)


def batches(versions: str = ALL, *, default: None = REQUIRED, nullable: str = NONE) -> Any:
    """Declare record batches: a view into the frame when decoded, passed through untouched when encoded."""
    return Field("records", versions, default, nullable)


def struct(
    of: type[Struct],
    versions: str = ALL,
    *,
    default: None = REQUIRED,
    nullable: str = NONE,
    tag: int | None = None,
    ignorable: bool = False,
) -> Any:
    return Field("struct", versions, default, nullable, tag, ignorable, struct=of)


def array(
    of: type[Struct] | str,
    versions: str = ALL,
    *,
    default: tuple[()] | None = REQUIRED,
    nullable: str = NONE,
    tag: int | None = None,
    ignorable: bool = False,
) -> Any:
    """Declare an array. `of` is a struct, or the name of a primitive kind. The default `()` stands for a fresh empty
    list."""
    if isinstance(of, str):
        return Field("array", versions, default, nullable, tag, ignorable, item=of)
    return Field("array", versions, default, nullable, tag, ignorable, item="struct", struct=of)


class _StructType(type):
    """The metaclass of structs: it turns the declared fields into slots before the class exists."""

    def __new__(mcs, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **keywords: Any) -> _StructType:
        fields = []
        for key, value in namespace.items():
            if type(value) is Field:
                value.name = key
                fields.append(value)
        for field in fields:
            del namespace[field.name]
            assert not any(hasattr(base, field.name) for base in bases), f"{name}.{field.name} hides a method"
        if "__slots__" not in namespace:
            namespace["__slots__"] = tuple(field.name for field in fields)
        namespace["fields"] = tuple(fields)
        return super().__new__(mcs, name, bases, namespace, **keywords)


@dataclass_transform(
    kw_only_default=True,
    field_specifiers=(
        boolean, int8, int16, uint16, int32, uint32, int64, float64, uuid, string, binary, batches, struct, array,
    ),
)  # fmt: skip
class Struct(metaclass=_StructType):
    """A part of a message: a class with declared fields, which have wire types."""

    __slots__ = ("unknown_tagged_fields",)
    fields: ClassVar[tuple[Field, ...]]
    unknown_tagged_fields: TaggedFields

    def __init__(self, **values: Any) -> None:
        # The first instance of a class compiles its real __init__, which takes this one's place.
        from pessoa.wire.codec_compiler import compile_init

        kind = type(self)
        kind.__init__ = compile_init(kind)  # type: ignore[method-assign]
        kind.__init__(self, **values)

    def __eq__(self, other: object) -> bool:
        if type(self) is not type(other):
            return NotImplemented
        return self.unknown_tagged_fields == other.unknown_tagged_fields and all(
            getattr(self, field.name) == getattr(other, field.name) for field in self.fields
        )

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        parts = [f"{field.name}={_render_value(getattr(self, field.name))}" for field in self.fields]
        if self.unknown_tagged_fields:
            parts.append(f"unknown_tagged_fields={self.unknown_tagged_fields!r}")
        return f"{type(self).__name__}({', '.join(parts)})"


@cache
def has_records(kind: type[Struct]) -> bool:
    """Whether a field of the struct, or of a struct in it, is record data: decoded, a view of the buffer."""
    return any(
        field.kind == "records" or (field.struct is not None and has_records(field.struct)) for field in kind.fields
    )


def _render_value(value: object) -> str:
    return f"<{len(value)} bytes>" if isinstance(value, memoryview) else repr(value)


class Message(Struct):
    """A request, a response, or a stored record: a struct with versions of its own."""

    __slots__ = ()
    versions: ClassVar[Versions] = NO_VERSIONS
    flexible: ClassVar[Versions] = NO_VERSIONS
    # The number by which Kafka names it: an API key, or the type of a metadata or coordinator record; -1 where it has
    # none.
    api_key: ClassVar[int] = -1
    _decoders: ClassVar[dict[int, Decoder]]
    _encoders: ClassVar[dict[int, Encoder]]

    def __init_subclass__(cls, *, versions: str, flexible: str, api_key: int = -1) -> None:
        cls.versions = Versions.parse(versions)
        cls.flexible = Versions.parse(flexible)
        cls.api_key = api_key
        cls._decoders = {}
        cls._encoders = {}

    @classmethod
    def decoder(cls, version: int) -> Decoder:
        """Return the compiled `decode(data, pos, end) -> (message, pos)`. Bytes past `end` are not part of the
        message."""
        found = cls._decoders.get(version)
        if found is None:
            from pessoa.wire.codec_compiler import compile_decoder

            found = cls._decoders[version] = compile_decoder(cls, version)
        return found

    @classmethod
    def encoder(cls, version: int) -> Encoder:
        """Return the compiled `encode(message, out) -> buffers`."""
        found = cls._encoders.get(version)
        if found is None:
            from pessoa.wire.codec_compiler import compile_encoder

            found = cls._encoders[version] = compile_encoder(cls, version)
        return found

    @classmethod
    def decode(cls, data: bytes | bytearray | memoryview, version: int) -> Self:
        """Return the message that these bytes encode. Raises `ProtocolViolation` if bytes are left over."""
        if isinstance(data, memoryview):
            data = bytes(data)
        message, pos = cls.decoder(version)(data, 0, len(data))
        if pos != len(data):
            raise ProtocolViolation(f"{len(data) - pos} bytes are left over behind {cls.__name__} version {version}")
        return message  # type: ignore[no-any-return]

    def encode(self, version: int) -> bytes:
        """Return the whole message as one `bytes`. For frames that pass record data through, see
        `pessoa.wire.frames`."""
        return b"".join(self.encoder(version)(self, bytearray()))
