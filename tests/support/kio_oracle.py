"""kio, an independent codec for Kafka's protocol, as the implementation that ours is compared with.

kio has one dataclass per message and version, generated from the same schemas. Its fields stand in the order of the
wire, as ours do, so the two are paired by position; `pairs` checks that the names agree as well, because two
neighbouring fields of the same type could otherwise be swapped without any difference in the bytes.

kio is stricter about values than the wire is: an error code must be a known one, a timestamp must be a date, a
duration must fit into a timedelta. `ours_within_kio` makes values that keep to that; `entity` makes kio's own.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, fields
from dataclasses import Field as KioField
from datetime import UTC, datetime, timedelta
from pkgutil import resolve_name
from random import Random
from types import NoneType, UnionType
from typing import Any, get_args, get_origin
from uuid import UUID

from kio.schema.errors import ErrorCode as KioErrorCode
from kio.schema.index import schema_name_map
from kio.serial import entity_reader, entity_writer
from kio.serial._introspect import classify_field

from pessoa.base.ids import ZERO_UUID, Uuid
from pessoa.wire.codec_compiler import Layout
from pessoa.wire.schema import Field, Message, Struct
from tests.support.wire_values import Generator, equals_default

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)
# kio counts in floating-point seconds, which hold milliseconds exactly up to about here: the year 2033 as a date.
_LONGEST_EXACT_MS = 2 * 10**12
_ERRORS = [code.value for code in KioErrorCode]


class _Known(Mapping[tuple[str, int], Any]):
    """The classes of kio by message and version. Each is imported on first use, because importing all takes seconds."""

    def __init__(self, paths: dict[tuple[str, int], str]) -> None:
        self._paths = paths

    def __getitem__(self, key: tuple[str, int]) -> Any:
        return resolve_name(self._paths[key])

    def __contains__(self, key: object) -> bool:
        return key in self._paths

    def __iter__(self) -> Iterator[tuple[str, int]]:
        return iter(self._paths)

    def __len__(self) -> int:
        return len(self._paths)


def entities() -> Mapping[tuple[str, int], Any]:
    """Return all classes of kio, by name and version of the message."""
    return _Known({
        (path.rpartition(":")[2], version): path
        for versions in schema_name_map.values()
        for version, types in versions.items()
        for path in types.values()
    })  # fmt: skip


def written(entity: Any) -> bytes:
    buffer = io.BytesIO()
    entity_writer(type(entity))(buffer, entity)
    return buffer.getvalue()


def read(entity_class: Any, data: bytes) -> Any:
    entity, size = entity_reader(entity_class)(data, 0)
    assert size == len(data), f"kio read {size} of {len(data)} bytes"
    return entity


def pairs(layout: Layout, struct: type[Struct], entity_class: Any) -> list[tuple[Field, KioField[Any]]]:
    """Return our fields and kio's of one struct, paired by position."""
    ours = [field for field in struct.fields if layout.has(field)]
    theirs = list(fields(entity_class))
    where = f"{layout.title}: {struct.__name__}"
    assert len(ours) == len(theirs), f"{where} has {ours}, kio has {theirs}"
    for one, two in zip(ours, theirs, strict=True):
        assert _respelled(two.name) == one.name.removesuffix("_ms"), f"{where} has {one.name}, kio has {two.name}"
        assert one.tag == two.metadata.get("tag") or not layout.is_flexible, f"{where}: tag of {one.name}"
    return list(zip(ours, theirs, strict=True))


def _respelled(name: str) -> str:
    # kio drops the unit where it has a type for it, renames fields that are Python builtins, and writes KRaft as two
    # words.
    return name.rstrip("_").replace("k_raft", "kraft").removesuffix("_ms")


def as_ours(layout: Layout, struct: type[Struct], entity: Any) -> Any:
    """Return our struct with the values of kio's entity."""
    return struct(**{
        one.name: _value_as_ours(layout, one, getattr(entity, two.name))
        for one, two in pairs(layout, struct, type(entity))
    })  # fmt: skip


def _value_as_ours(layout: Layout, field: Field, value: Any) -> Any:
    if field.kind == "array":
        if value is None:
            return None
        if field.struct is not None:
            return [as_ours(layout, field.struct, item) for item in value]
        assert field.item is not None
        return [_primitive_as_ours(field.item, item) for item in value]
    if field.kind == "struct":
        assert field.struct is not None
        converted = None if value is None else as_ours(layout, field.struct, value)
        return None if converted is not None and layout.is_tagged(field) and equals_default(converted) else converted
    return _primitive_as_ours(field.kind, value)


def _primitive_as_ours(kind: str, value: Any) -> Any:
    if kind == "uuid":
        return ZERO_UUID if value is None else Uuid(value.bytes)
    if kind == "int64" and value is None:
        return -1  # in kio, None is an absent timestamp
    if value is None:
        return None
    if kind == "records":
        return memoryview(value)
    if isinstance(value, KioErrorCode):
        return value.value
    if isinstance(value, timedelta):
        return value // _MILLISECOND
    if isinstance(value, datetime):
        return (value - _EPOCH) // _MILLISECOND
    return value


def ours_within_kio(kind: type[Message], version: int, entity_class: Any, rng: Random) -> Any:
    """Return a random message of ours whose values fit kio's types."""
    layout = Layout(kind, version)
    return _Limited(layout, rng, dict(_kio_types(layout, kind, entity_class))).struct(kind)


def _kio_types(layout: Layout, struct: type[Struct], entity_class: Any) -> Iterator[tuple[Field, str]]:
    for one, two in pairs(layout, struct, entity_class):
        if one.struct is not None:
            yield from _kio_types(layout, one.struct, classify_field(two).type_)
        else:
            yield one, two.metadata["kafka_type"] + ("?" if _may_be_null(two) else "")


class _Limited(Generator):
    """Makes random values within kio's limits, where kio has a narrower type than the wire."""

    def __init__(self, layout: Layout, rng: Random, kio_types: dict[Field, str]) -> None:
        super().__init__(layout, rng, unknown_tags=False)
        self.kio_types = kio_types

    def field(self, field: Field) -> Any:
        limited = _limited_integer(self.kio_types.get(field, ""), self.rng)
        return super().field(field) if limited is None else limited


def _limited_integer(kio_type: str, rng: Random) -> int | None:
    if kio_type == "error_code":
        return rng.choice(_ERRORS)
    if kio_type == "timedelta_i64":
        return rng.choice((0, -1, rng.randint(-_LONGEST_EXACT_MS, _LONGEST_EXACT_MS)))
    if kio_type.startswith("datetime_i64"):
        date = rng.choice((0, _LONGEST_EXACT_MS, rng.randint(0, _LONGEST_EXACT_MS)))
        return rng.choice((date, -1)) if kio_type.endswith("?") else date
    return None


def entity(entity_class: Any, rng: Random) -> Any:
    """Return a random entity, made only from kio's own description of its fields."""
    return entity_class(**{field.name: _kio_value(field, rng) for field in fields(entity_class)})


def _kio_value(field: KioField[Any], rng: Random) -> Any:
    if field.default is not MISSING and rng.random() < 0.2:
        return field.default
    kind = classify_field(field)
    tagged = "tag" in field.metadata
    kio_type = field.metadata.get("kafka_type")
    # A tagged field is null by being left out, so only where null is its default.
    if _may_be_null(field) and rng.random() < 0.25 and (not tagged or field.default is None):
        return None

    def item() -> Any:
        return entity(kind.type_, rng) if kio_type is None else _kio_primitive(kio_type, rng)

    if kind.is_array:
        return tuple(item() for _ in range(rng.choice((0, 1, 2, 3))))
    return item()


def _may_be_null(field: KioField[Any]) -> bool:
    # Whether the field as a whole may be null: kio's is_optional is also True for an array of UUIDs whose items may be
    # None.
    return get_origin(field.type) is UnionType and NoneType in get_args(field.type)


def _kio_primitive(kio_type: str, rng: Random) -> Any:
    plain = Generator.for_primitives(rng)
    if kio_type == "error_code":
        return rng.choice(list(KioErrorCode))
    if kio_type == "timedelta_i32":
        return timedelta(milliseconds=plain.primitive("int32"))
    limited = _limited_integer(kio_type, rng)
    if kio_type == "timedelta_i64":
        assert limited is not None
        return timedelta(milliseconds=limited)
    if kio_type == "datetime_i64":
        assert limited is not None
        return _EPOCH + timedelta(milliseconds=limited)
    if kio_type == "uuid":
        # kio represents the zero UUID as None.
        raw = bytes(plain.primitive("uuid"))
        return UUID(bytes=raw) if any(raw) else None
    if kio_type == "records":
        return plain.binary()
    return plain.primitive(kio_type)
