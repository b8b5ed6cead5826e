"""Protobuf data: binary, and protobuf's JSON mapping with the field names of the .proto file.

A payload says by its message indexes which message of the file it is. For data that comes in as JSON nothing says it;
then it is the first message of the file, as in the JVM's REST proxy, unless a full name is given.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from google.protobuf import json_format
from google.protobuf.descriptor import Descriptor
from google.protobuf.message import DecodeError, EncodeError, Message
from google.protobuf.message_factory import GetMessageClass

from pessoa.base.json_value import JsonValue
from pessoa.serde.framing import decode_message_indexes, encode_message_indexes
from pessoa.serde.protobuf.linking import ProtoFile
from pessoa.serde.schema_problems import DataProblem


class ProtobufCodec:
    def __init__(self, file: ProtoFile) -> None:
        self._file = file
        self._messages = list(file.descriptor.message_types_by_name.values())

    def from_json(self, value: Any, message: str | None = None) -> bytes:
        """Return message indexes and Protobuf binary for a JSON value."""
        indexes, descriptor = self._by_name(message) if message else ((0,), self._at((0,)))
        try:
            parsed = json_format.ParseDict(value, GetMessageClass(descriptor)(), descriptor_pool=self._file.pool)
            return encode_message_indexes(indexes) + parsed.SerializeToString()
        except (json_format.Error, EncodeError, AttributeError, TypeError, ValueError, RecursionError) as wrong:
            raise DataProblem(f"the JSON does not fit the message {descriptor.full_name}: {wrong}") from None

    def to_json(self, payload: bytes) -> JsonValue:
        """Return the JSON value for message indexes and Protobuf binary."""
        message = self.read(payload)
        try:
            return json_format.MessageToDict(
                message,
                preserving_proto_field_name=True,
                always_print_fields_with_no_presence=True,
                descriptor_pool=self._file.pool,
            )
        except (json_format.Error, TypeError, ValueError) as wrong:
            raise DataProblem(f"the bytes are no message {message.DESCRIPTOR.full_name}: {wrong}") from None

    def read(self, payload: bytes) -> Message:
        """Return the message for message indexes and Protobuf binary."""
        indexes, data = decode_message_indexes(payload)
        descriptor = self._at(indexes)
        try:
            return GetMessageClass(descriptor).FromString(bytes(data))
        except (DecodeError, TypeError, ValueError) as wrong:
            raise DataProblem(f"the bytes are no message {descriptor.full_name}: {wrong}") from None

    def message_name(self, indexes: tuple[int, ...]) -> str:
        return self._at(indexes).full_name

    def _at(self, indexes: tuple[int, ...]) -> Descriptor:
        assert indexes, "a message has at least one index"
        messages: Sequence[Descriptor] = self._messages
        for index in indexes:
            if index >= len(messages):
                raise DataProblem(f"the schema has no message at {list(indexes)}")
            descriptor = messages[index]
            messages = descriptor.nested_types
        return descriptor

    def _by_name(self, full_name: str) -> tuple[tuple[int, ...], Descriptor]:
        pending: list[tuple[tuple[int, ...], Descriptor]] = [
            ((index,), each) for index, each in enumerate(self._messages)
        ]
        while pending:
            indexes, descriptor = pending.pop()
            if descriptor.full_name == full_name:
                return indexes, descriptor
            pending += [((*indexes, index), each) for index, each in enumerate(descriptor.nested_types)]
        raise DataProblem(f"the schema has no message {full_name}")
