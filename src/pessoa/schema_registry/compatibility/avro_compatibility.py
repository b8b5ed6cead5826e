"""Avro: can this reader's schema read what that writer's schema wrote? The specification's resolution rules.

- Primitives match themselves, or by promotion: int → long → float → double, string ↔ bytes.
- Named types match by their unqualified name, or when an alias of the reader is the writer's full name.
- Every field of the reader is in the writer, under its name or an alias, or has a default.
- Every symbol of the writer is one of the reader's, or the reader's enum has a default.
- Every branch that a writer's union may have written can be read; a reader's union needs one branch that can read it.

A pair of named types that is being compared further up counts as matching: a recursive schema is as good as its parts.
Places are paths into the reader's schema as JSON, as Avro's Java library gives them: /fields/1/type/items.
"""

from __future__ import annotations

from pessoa.schema_registry.compatibility.differences import Difference
from pessoa.serde.avro.avro_schema import (
    MISSING,
    Array,
    AvroType,
    EnumType,
    Field,
    Fixed,
    Map,
    NamedType,
    Primitive,
    Record,
    Union,
    simple_name,
)

PROMOTIONS = {
    "long": ("int",),
    "float": ("int", "long"),
    "double": ("int", "long", "float"),
    "bytes": ("string",),
    "string": ("bytes",),
}


def check_avro(reader: AvroType, writer: AvroType) -> list[Difference]:
    """Return every difference that keeps the reader from reading; none if it can."""
    return _Check().compare(reader, writer, "")


class _Check:
    def __init__(self) -> None:
        # Pairs under way or done, by identity: a pair is judged once, and its findings reported once.
        self._seen: set[tuple[int, int]] = set()

    def compare(self, reader: AvroType, writer: AvroType, path: str) -> list[Difference]:
        if isinstance(writer, Union):
            return self._written_union(reader, writer, path)
        if isinstance(reader, Union):
            return self._read_union(reader, writer, path)
        if isinstance(reader, Record) and isinstance(writer, Record):
            return self._records(reader, writer, path)
        if isinstance(reader, EnumType) and isinstance(writer, EnumType):
            return _names(reader, writer, path) + _symbols(reader, writer, path)
        if isinstance(reader, Fixed) and isinstance(writer, Fixed):
            return _names(reader, writer, path) + _sizes(reader, writer, path)
        if isinstance(reader, Array) and isinstance(writer, Array):
            return self.compare(reader.items, writer.items, f"{path}/items")
        if isinstance(reader, Map) and isinstance(writer, Map):
            return self.compare(reader.values, writer.values, f"{path}/values")
        if isinstance(reader, Primitive) and (
            reader.kind == writer.kind or writer.kind in PROMOTIONS.get(reader.kind, ())
        ):
            return []
        return [
            Difference(
                "TYPE_MISMATCH",
                path or "/",
                f"The {{reader}} schema has {reader.kind} at '{path or '/'}', which cannot read {writer.kind} of the "
                "{writer} schema",
                f"reader: {reader.kind.upper()}, writer: {writer.kind.upper()}",
            )
        ]

    def _written_union(self, reader: AvroType, writer: Union, path: str) -> list[Difference]:
        differences = []
        for index, branch in enumerate(writer.branches):
            if isinstance(reader, Union):
                if not any(self._can_read(each, branch) for each in reader.branches):
                    differences.append(_missing_branch(branch, f"{path}/{index}"))
            else:
                differences += self.compare(reader, branch, path)
        return differences

    def _read_union(self, reader: Union, writer: AvroType, path: str) -> list[Difference]:
        if any(self._can_read(branch, writer) for branch in reader.branches):
            return []
        return [_missing_branch(writer, path or "/")]

    def _can_read(self, reader: AvroType, writer: AvroType) -> bool:
        # A branch that is tried and does not fit must leave no trace.
        seen = set(self._seen)
        fits = not self.compare(reader, writer, "")
        self._seen = seen
        return fits

    def _records(self, reader: Record, writer: Record, path: str) -> list[Difference]:
        if (id(reader), id(writer)) in self._seen:
            return []
        self._seen.add((id(reader), id(writer)))
        differences = _names(reader, writer, path)
        written = {field.name: field for field in writer.fields}
        for index, field in enumerate(reader.fields):
            place = f"{path}/fields/{index}"
            match = _written_field(field, written)
            if match is not None:
                differences += self.compare(field.type, match.type, f"{place}/type")
            elif field.default is MISSING:
                differences.append(
                    Difference(
                        "READER_FIELD_MISSING_DEFAULT_VALUE",
                        place,
                        f"The {{reader}} schema wants the field '{field.name}' at '{place}', without a default; the "
                        "{writer} schema has no such field",
                        field.name,
                    )
                )
        return differences


def _written_field(field: Field, written: dict[str, Field]) -> Field | None:
    for name in (field.name, *field.aliases):
        if name in written:
            return written[name]
    return None


def _names(reader: NamedType, writer: NamedType, path: str) -> list[Difference]:
    if simple_name(reader.name) == simple_name(writer.name) or writer.name in reader.aliases:
        return []
    place = f"{path}/name"
    return [Difference("NAME_MISMATCH", place, f"The name at '{place}' is not the same in both schemas", writer.name)]


def _symbols(reader: EnumType, writer: EnumType, path: str) -> list[Difference]:
    missing = [symbol for symbol in writer.symbols if symbol not in reader.symbols]
    if not missing or reader.default is not None:
        return []
    place, listed = f"{path}/symbols", f"[{', '.join(missing)}]"
    return [
        Difference(
            "MISSING_ENUM_SYMBOLS",
            place,
            f"The {{writer}} schema knows symbols that the {{reader}} schema does not have at '{place}': {listed}",
            listed,
        )
    ]


def _sizes(reader: Fixed, writer: Fixed, path: str) -> list[Difference]:
    if reader.size == writer.size:
        return []
    place = f"{path}/size"
    return [
        Difference(
            "FIXED_SIZE_MISMATCH",
            place,
            f"The {{reader}} schema has {reader.size} bytes at '{place}', the {{writer}} schema {writer.size}",
            f"reader: {reader.size}, writer: {writer.size}",
        )
    ]


def _missing_branch(writer: AvroType, path: str) -> Difference:
    return Difference(
        "MISSING_UNION_BRANCH",
        path,
        f"No branch of the {{reader}} schema at '{path}' can read what the {{writer}} schema has there",
        writer.kind.upper(),
    )
