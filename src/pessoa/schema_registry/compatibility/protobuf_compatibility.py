"""Protobuf: what may change between two files so that old bytes are still understood.

Bytes know field numbers and wire types, nothing else. So fields are matched by number, wherever in the message they
stand, and names do not matter, except the names of messages, by which code finds them. Compatible: fields, oneofs,
enums and messages that come; fields and enums that go; renaming; scalars within one group:

    int32 int64 uint32 uint64 bool enum  |  sint32 sint64  |  string bytes  |  fixed32 sfixed32  |  fixed64 sfixed64

Not compatible: another package, a message that is gone, a required field that comes or goes, another kind, another
message type; numbers that turn from one into many (packed) or back; and of oneofs:

    o {a b} → o {a}, p {a}, or a alone     ONEOF_FIELD_REMOVED: b is gone, even if its oneof is too; only a oneof
                                           that is gone with all its fields, and with its name, may go
    a, b → o {a b}                         MULTIPLE_FIELDS_MOVED_TO_ONEOF: both may have been set
    o {a}, b → o {a b}                     FIELD_MOVED_TO_EXISTING_ONEOF: the same
    o {a}, p {b} → o {a b}                 FIELD_MOVED_TO_EXISTING_ONEOF: the same

A field may leave its oneof for the message, one field may move into a new oneof, and a oneof may be renamed or split.

The reader is the newer file in the sense of the sentences; kinds are named from its side. Types of imported files are
compared as well, where a field leads to them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto

from pessoa.schema_registry.compatibility.differences import Difference
from pessoa.serde.protobuf.linking import ProtoFile

_GROUPS = (
    "int32 int64 uint32 uint64 bool enum",
    "sint32 sint64",
    "string bytes",
    "fixed32 sfixed32",
    "fixed64 sfixed64",
    "float",
    "double",
)
_GROUP_OF = {
    getattr(FieldDescriptorProto, f"TYPE_{name.upper()}"): group
    for group, names in enumerate(_GROUPS)
    for name in names.split()
}
_MESSAGES = (FieldDescriptorProto.TYPE_MESSAGE, FieldDescriptorProto.TYPE_GROUP)
_STRINGS = (FieldDescriptorProto.TYPE_STRING, FieldDescriptorProto.TYPE_BYTES)
_REPEATED = FieldDescriptorProto.LABEL_REPEATED
_REQUIRED = FieldDescriptorProto.LABEL_REQUIRED


def check_protobuf(reader: ProtoFile, writer: ProtoFile) -> list[Difference]:
    check = _Check(_types_of(reader), _types_of(writer))
    if reader.proto.package != writer.proto.package:
        check.add("PACKAGE_CHANGED", "#/", f"package is '{reader.proto.package}' and was '{writer.proto.package}'")
    check.messages(reader.proto.message_type, writer.proto.message_type, "#/")
    return check.differences


class _Type(NamedTuple):
    message: DescriptorProto
    # The name without the package, which has a finding of its own: Outer.Inner.
    local_name: str


def _types_of(file: ProtoFile) -> dict[str, _Type]:
    """Return every message by its full name, including those of imports."""
    types: dict[str, _Type] = {}

    def add(messages: Iterable[DescriptorProto], package: str, scope: str) -> None:
        for message in messages:
            local_name = f"{scope}{message.name}"
            types[f"{package}.{local_name}"] = _Type(message, local_name)
            add(message.nested_type, package, f"{local_name}.")

    for proto in (*file.dependencies, file.proto):
        add(proto.message_type, f".{proto.package}" if proto.package else "", "")
    return types


class _Check:
    def __init__(self, read: Mapping[str, _Type], written: Mapping[str, _Type]) -> None:
        self.differences: list[Difference] = []
        self._read = read
        self._written = written
        # Pairs that are compared or were; messages refer to each other in circles.
        self._seen: set[tuple[int, int]] = set()

    def add(self, kind: str, path: str, what: str) -> None:
        self.differences.append(
            Difference(kind, path, f"{what}, at path '{path}', between the {{reader}} and the {{writer}} schema")
        )

    def messages(self, read: Iterable[DescriptorProto], written: Iterable[DescriptorProto], path: str) -> None:
        by_name = {message.name: message for message in read if not message.options.map_entry}
        for message in written:
            if message.options.map_entry:
                continue
            place = f"{path}{message.name}"
            found = by_name.get(message.name)
            if found is None:
                self.add("MESSAGE_REMOVED", place, f"the message {message.name} is gone")
            else:
                self.message(found, message, place)

    def message(self, read: DescriptorProto, written: DescriptorProto, path: str) -> None:
        if (id(read), id(written)) in self._seen:
            return
        self._seen.add((id(read), id(written)))
        self._oneofs(read, written, path)
        old = {field.number: field for field in written.field}
        new = {field.number: field for field in read.field}
        for number in sorted(old.keys() | new.keys()):
            place = f"{path}/{number}"
            if number not in new:
                self._check_removed_field(read, written, old[number], place)
            elif number not in old:
                if new[number].label == _REQUIRED:
                    self.add("REQUIRED_FIELD_ADDED", place, f"the required field {new[number].name} is new")
            else:
                self._field(new[number], old[number], place)
        self.messages(read.nested_type, written.nested_type, f"{path}/")

    def _check_removed_field(
        self, read: DescriptorProto, written: DescriptorProto, field: FieldDescriptorProto, path: str
    ) -> None:
        if field.label == _REQUIRED:
            self.add("REQUIRED_FIELD_REMOVED", path, f"the required field {field.name} is gone")
            return
        oneof = _oneof_name(field, written)
        if oneof is not None and not _is_oneof_deleted(oneof, read, written):
            self.add("ONEOF_FIELD_REMOVED", path, f"the field {field.name} of the oneof {oneof} is gone")

    def _oneofs(self, read: DescriptorProto, written: DescriptorProto, path: str) -> None:
        """Find fields that a writer could set together and that are in one oneof of the reader: a oneof holds one
        value."""
        # The fields that compete for one place in old bytes: those of a oneof with each other, any other with none.
        places: dict[int, str | int] = {
            field.number: _oneof_name(field, written) or field.number for field in written.field
        }
        places_by_oneof: dict[str, set[str | int]] = {}
        for field in read.field:
            name = _oneof_name(field, read)
            if name is not None and field.number in places:
                places_by_oneof.setdefault(name, set()).add(places[field.number])
        for name, oneof_places in places_by_oneof.items():
            if len(oneof_places) == 1:
                continue
            place = f"{path}/{name}"
            lone_numbers = sorted(each for each in oneof_places if isinstance(each, int))
            if len(lone_numbers) > 1:
                self.add("MULTIPLE_FIELDS_MOVED_TO_ONEOF", place, f"the fields {lone_numbers} moved into one oneof")
            else:
                self.add("FIELD_MOVED_TO_EXISTING_ONEOF", place, f"the oneof {name} takes in fields from elsewhere")

    def _field(self, read: FieldDescriptorProto, written: FieldDescriptorProto, path: str) -> None:
        if read.label == _REQUIRED and written.label != _REQUIRED:
            self.add("REQUIRED_FIELD_ADDED", path, f"the field {read.name} has become required")
        is_message, was_message = read.type in _MESSAGES, written.type in _MESSAGES
        if is_message != was_message:
            self.add("FIELD_KIND_CHANGED", path, f"the kind of the field {read.name} has changed")
        elif is_message:
            self._message_field(read, written, path)
        else:
            self._scalar_field(read, written, path)

    def _message_field(self, read: FieldDescriptorProto, written: FieldDescriptorProto, path: str) -> None:
        (new, new_name), (old, old_name) = self._read[read.type_name], self._written[written.type_name]
        is_map, was_map = new.options.map_entry, old.options.map_entry
        if is_map != was_map or read.type != written.type:
            self.add("FIELD_KIND_CHANGED", path, f"the kind of the field {read.name} has changed")
        elif is_map:
            for mine, theirs in zip(new.field, old.field, strict=True):
                self._field(mine, theirs, path)
        elif new_name != old_name:
            self.add(
                "FIELD_NAMED_TYPE_CHANGED",
                path,
                f"the type of the field {read.name} is {read.type_name[1:]} and was {written.type_name[1:]}",
            )
        else:
            self.message(new, old, path)

    def _scalar_field(self, read: FieldDescriptorProto, written: FieldDescriptorProto, path: str) -> None:
        if _GROUP_OF[read.type] != _GROUP_OF[written.type]:
            self.add("FIELD_SCALAR_KIND_CHANGED", path, f"the scalar type of the field {read.name} has changed")
        elif (read.label == _REPEATED) != (written.label == _REPEATED) and read.type not in _STRINGS:
            self.add("FIELD_NUMERIC_LABEL_CHANGED", path, f"the field {read.name} turned between one and many")


def _oneof_name(field: FieldDescriptorProto, message: DescriptorProto) -> str | None:
    if not field.HasField("oneof_index") or field.proto3_optional:
        return None
    return message.oneof_decl[field.oneof_index].name


def _is_oneof_deleted(oneof: str, read: DescriptorProto, written: DescriptorProto) -> bool:
    """Whether neither the oneof nor any of its fields is left."""
    left = {field.number for field in read.field}
    return all(_oneof_name(field, read) != oneof for field in read.field) and not any(
        field.number in left for field in written.field if _oneof_name(field, written) == oneof
    )
