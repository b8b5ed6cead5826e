"""The frame that registry clients put around a payload.

    classic    00 | schema id, 4 bytes, big-endian | payload
    by guid    01 | schema guid, 16 bytes | payload
    in a header of the record, `__key_schema_id` or `__value_schema_id`: either of the two without a payload; the
               record's key or value is then the bare payload

A Protobuf payload starts with the path to its message inside the file: how many indexes, then each, as zig-zag
varints. The first message of the file, [0], is by far the commonest, and is written as one zero byte (a count of
nothing). In the header form the indexes follow the id in the header.

An older form of the indexes uses plain varints instead of zig-zag ones; librdkafka's clients can be told to write it.
The two cannot be told apart, so nothing is guessed here: zig-zag it is, as in the Java clients.
"""

from __future__ import annotations

import struct
from typing import NamedTuple
from uuid import UUID

from pessoa.serde.schema_problems import DataProblem

MAGIC_ID = 0
MAGIC_GUID = 1

_ID = struct.Struct(">BI")
_ID_SIZE = _ID.size
_GUID_SIZE = 17
MAX_ID = 2**31 - 1
# A file with more nesting than this does not exist; a count beyond it is garbage and not a reason to allocate.
_MAX_INDEXES = 1024


class Frame(NamedTuple):
    """A payload, and the id or GUID of the schema that it follows."""

    schema: int | UUID
    payload: bytes


def frame(schema: int | UUID, payload: bytes = b"") -> bytes:
    if isinstance(schema, UUID):
        return bytes([MAGIC_GUID]) + schema.bytes + payload
    if not 0 <= schema <= MAX_ID:
        raise DataProblem(f"{schema} is no schema id: they go from 0 to {MAX_ID}")
    return _ID.pack(MAGIC_ID, schema) + payload


def unframe(data: bytes) -> Frame:
    """Split bytes into schema id (or GUID) and payload; raise `DataProblem` without a valid magic byte."""
    if len(data) >= _ID_SIZE and data[0] == MAGIC_ID:
        return Frame(_ID.unpack_from(data)[1], data[_ID_SIZE:])
    if len(data) >= _GUID_SIZE and data[0] == MAGIC_GUID:
        return Frame(UUID(bytes=bytes(data[1:_GUID_SIZE])), data[_GUID_SIZE:])
    if not data:
        raise DataProblem("no bytes: there is no schema id in front of this payload")
    if data[0] in (MAGIC_ID, MAGIC_GUID):
        raise DataProblem(f"{len(data)} bytes are too few for a magic byte and a schema id")
    raise DataProblem(f"unknown magic byte {data[0]}: this was not written with a schema of the registry")


def encode_message_indexes(indexes: tuple[int, ...]) -> bytes:
    if not indexes:
        raise DataProblem("a message has at least one index")
    if indexes == (0,):
        return b"\0"
    return b"".join(_varint(number) for number in (len(indexes), *indexes))


def decode_message_indexes(payload: bytes) -> tuple[tuple[int, ...], bytes]:
    """Return the message indexes at the start of a payload, and the bytes after them."""
    count, position = _read_varint(payload, 0)
    if count == 0:
        return (0,), payload[position:]
    if not 0 < count <= _MAX_INDEXES:
        raise DataProblem(f"{count} message indexes")
    indexes = []
    for _ in range(count):
        index, position = _read_varint(payload, position)
        if index < 0:
            raise DataProblem(f"the message index {index} is negative")
        indexes.append(index)
    return tuple(indexes), payload[position:]


def _varint(number: int) -> bytes:
    number = (number << 1) ^ (number >> 63)
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


def _read_varint(data: bytes, position: int) -> tuple[int, int]:
    number = 0
    for shift in range(0, 35, 7):
        if position >= len(data):
            raise DataProblem("the message indexes end in the middle of a number")
        byte = data[position]
        position += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (number >> 1) ^ -(number & 1), position
    raise DataProblem("a message index has more than 32 bits")
