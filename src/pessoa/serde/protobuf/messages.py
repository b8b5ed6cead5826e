"""A Protobuf message as plain values of Python, and plain values as a message.

    repeated → list      map → dict      message → dict      enum → its name      google.protobuf.Timestamp → datetime

Values are found by the names of fields. A field that says whether it is there, and is not, is None; what is None stays
unset.
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from typing import Any

from google.protobuf.descriptor import FieldDescriptor

TIMESTAMP = "google.protobuf.Timestamp"
_WHOLE = (FieldDescriptor.CPPTYPE_UINT64, FieldDescriptor.CPPTYPE_INT64)


def is_message(field: Any) -> bool:
    return bool(field.cpp_type == FieldDescriptor.CPPTYPE_MESSAGE)


def is_map(field: Any) -> bool:
    return bool(field.is_repeated and is_message(field) and field.message_type.GetOptions().map_entry)


def as_dict(message: Any) -> dict[str, Any]:
    row: dict[str, Any] = {}
    for field in message.DESCRIPTOR.fields:
        value = getattr(message, field.name)
        if is_map(field):
            of_value = field.message_type.fields_by_name["value"]
            row[field.name] = {key: _plain(of_value, value[key]) for key in value}
        elif field.is_repeated:
            row[field.name] = [_plain(field, each) for each in value]
        elif field.has_presence and not message.HasField(field.name):
            row[field.name] = None
        else:
            row[field.name] = _plain(field, value)
    return row


def _plain(field: Any, value: Any) -> Any:
    if is_message(field):
        if field.message_type.full_name == TIMESTAMP:
            return value.ToDatetime(tzinfo=datetime.UTC)
        return as_dict(value)
    if field.cpp_type == FieldDescriptor.CPPTYPE_ENUM:
        named = field.enum_type.values_by_number.get(value)
        return named.name if named is not None else str(value)
    return value


def fill(message: Any, row: Mapping[str, Any]) -> Any:
    """The message with the values of a row. ValueError or TypeError for what does not fit."""
    for name, value in row.items():
        field = message.DESCRIPTOR.fields_by_name.get(name)
        if field is None:
            raise ValueError(f"the message {message.DESCRIPTOR.full_name} has no field {name}")
        if value is not None:
            _set(message, field, value)
    return message


def _set(message: Any, field: Any, value: Any) -> None:
    target = getattr(message, field.name)
    if is_map(field):
        of_value = field.message_type.fields_by_name["value"]
        for key, each in dict(value).items():
            if is_message(of_value):
                _put_message(target[key], each)
            else:
                target[key] = _scalar(of_value, each)
    elif field.is_repeated:
        for each in value:
            if is_message(field):
                _put_message(target.add(), each)
            else:
                target.append(_scalar(field, each))
    elif is_message(field):
        _put_message(target, value)
    else:
        setattr(message, field.name, _scalar(field, value))


def _put_message(target: Any, value: Any) -> None:
    if target.DESCRIPTOR.full_name == TIMESTAMP:
        target.FromDatetime(value)
        return
    target.SetInParent()
    fill(target, value)


def _scalar(field: Any, value: Any) -> Any:
    if field.cpp_type == FieldDescriptor.CPPTYPE_ENUM and isinstance(value, str):
        named = field.enum_type.values_by_name.get(value)
        if named is None:
            raise ValueError(f"the enum {field.enum_type.full_name} has no value {value}")
        return named.number
    return int(value) if field.cpp_type in _WHOLE else value
