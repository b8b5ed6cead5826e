"""A Protobuf message as plain values of Python, and plain values as a message.

    repeated → list      map → dict      message → dict      enum → its name      google.protobuf.Timestamp → datetime

Values are found by the names of fields. A field that says whether it is there, and is not, is None; what is None stays
unset.
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message

if TYPE_CHECKING:
    from google._upb._message import Descriptor as UpbDescriptor
    from google._upb._message import FieldDescriptor as UpbFieldDescriptor

# The descriptors of a message are those of protobuf's C library or of its Python one, whichever runs.
MessageType: TypeAlias = "Descriptor | UpbDescriptor"
Field: TypeAlias = "FieldDescriptor | UpbFieldDescriptor"
Filled = TypeVar("Filled", bound=Message)

TIMESTAMP = "google.protobuf.Timestamp"
_WHOLE = (FieldDescriptor.CPPTYPE_UINT64, FieldDescriptor.CPPTYPE_INT64)


def is_map(field: Field) -> bool:
    return map_entry(field) is not None


def map_entry(field: Field) -> MessageType | None:
    """Return the message of a map's entries, with its fields `key` and `value`; None if the field is no map."""
    entry = field.message_type if field.is_repeated else None
    return entry if entry is not None and entry.GetOptions().map_entry else None


def as_dict(message: Message) -> dict[str, object]:
    row: dict[str, object] = {}
    for field in message.DESCRIPTOR.fields:
        value = getattr(message, field.name)
        entry = map_entry(field)
        if entry is not None:
            of_value = entry.fields_by_name["value"]
            row[field.name] = {key: _to_plain(of_value, value[key]) for key in value}
        elif field.is_repeated:
            row[field.name] = [_to_plain(field, each) for each in value]
        elif field.has_presence and not message.HasField(field.name):
            row[field.name] = None
        else:
            row[field.name] = _to_plain(field, value)
    return row


def _to_plain(field: Field, value: Any) -> object:
    """Return the plain Python value for one that protobuf's library has read: a dict, datetime, enum name or scalar."""
    if field.message_type is not None:
        if field.message_type.full_name == TIMESTAMP:
            return value.ToDatetime(tzinfo=datetime.UTC)
        return as_dict(value)
    if field.enum_type is not None:
        named = field.enum_type.values_by_number.get(value)
        return named.name if named is not None else str(value)
    return value


def fill(message: Filled, row: Mapping[str, object]) -> Filled:
    """Fill the message with the values of a row and return it. ValueError or TypeError for a value that does not
    fit."""
    for name, value in row.items():
        field = message.DESCRIPTOR.fields_by_name.get(name)
        if field is None:
            raise ValueError(f"the message {message.DESCRIPTOR.full_name} has no field {name}")
        if value is not None:
            _set(message, field, value)
    return message


def _set(message: Message, field: Field, value: Any) -> None:
    """Set a field to a value that is not None; `dict`, `iter` and protobuf's setters raise if it does not fit."""
    target = getattr(message, field.name)
    entry = map_entry(field)
    if entry is not None:
        of_value = entry.fields_by_name["value"]
        for key, each in dict(value).items():
            if of_value.message_type is not None:
                _put_message(target[key], each)
            else:
                target[key] = _scalar(of_value, each)
    elif field.is_repeated:
        for each in value:
            if field.message_type is not None:
                _put_message(target.add(), each)
            else:
                target.append(_scalar(field, each))
    elif field.message_type is not None:
        _put_message(target, value)
    else:
        setattr(message, field.name, _scalar(field, value))


def _put_message(target: Any, value: Any) -> None:
    if target.DESCRIPTOR.full_name == TIMESTAMP:
        target.FromDatetime(value)
        return
    target.SetInParent()
    fill(target, value)


def _scalar(field: Field, value: Any) -> object:
    if field.enum_type is not None and isinstance(value, str):
        named = field.enum_type.values_by_name.get(value)
        if named is None:
            raise ValueError(f"the enum {field.enum_type.full_name} has no value {value}")
        return named.number
    return int(value) if field.cpp_type in _WHOLE else value
