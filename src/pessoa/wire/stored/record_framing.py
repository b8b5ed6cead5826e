"""The framing of stored records: how their type and version are encoded.

    metadata log    value   uvarint frame version (1), uvarint record type, uvarint version, the record
    coordinators    key     int16 record type, the key
                    value   int16 version, the value; a null value is a tombstone

The coordinators' record type stands where a version would: Kafka began with versions 0 and 1 of one key and later made
each number a type of its own. So a key has one version, 0, that is never written.

Reading a type or version that no declaration has gives None: a newer Kafka wrote it, and the reader decides whether
it may pass over it. Bytes that do not fit their declaration are a `ProtocolViolation`.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module

from pessoa.wire.errors import ProtocolViolation
from pessoa.wire.internal_topics import GROUP_TOPIC, SHARE_TOPIC, TRANSACTION_TOPIC
from pessoa.wire.primitives import read_uvarint, uvarint
from pessoa.wire.schema import Message

_METADATA_FRAME_VERSION = 1
_TYPE_BYTES = 2
_KEY_VERSION = 0

# Kafka's names of the logs, and the modules that declare their records.
GROUP_LOG = GROUP_TOPIC
TRANSACTION_LOG = TRANSACTION_TOPIC
SHARE_LOG = SHARE_TOPIC
_METADATA_LOG = "__cluster_metadata"
MODULES = {
    GROUP_LOG: (
        "pessoa.wire.stored.group_records",
        "pessoa.wire.stored.share_group_records",
        "pessoa.wire.stored.streams_group_records",
    ),
    TRANSACTION_LOG: ("pessoa.wire.stored.transaction_records",),
    SHARE_LOG: ("pessoa.wire.stored.share_state_records",),
    _METADATA_LOG: ("pessoa.wire.stored.metadata_records",),
}

# (log, suffix of the class name) → record type → declaration
_by_number: dict[tuple[str, str], dict[int, type[Message]]] = {}


def encode_metadata_record(record: Message, version: int) -> bytes:
    return uvarint(_METADATA_FRAME_VERSION) + uvarint(record.api_key) + uvarint(version) + record.encode(version)


def decode_metadata_record(data: bytes) -> Message | None:
    try:
        frame_version, pos = read_uvarint(data, 0)
        number, pos = read_uvarint(data, pos)
        version, pos = read_uvarint(data, pos)
    except IndexError as error:
        raise ProtocolViolation("a metadata record ends within its frame") from error
    if frame_version != _METADATA_FRAME_VERSION:
        raise ProtocolViolation(f"a metadata record has frame version {frame_version}, not {_METADATA_FRAME_VERSION}")
    return _decode(_METADATA_LOG, "Record", number, data[pos:], version)


def encode_coordinator_key(key: Message) -> bytes:
    return key.api_key.to_bytes(_TYPE_BYTES, "big") + key.encode(_KEY_VERSION)


def encode_coordinator_value(value: Message, version: int) -> bytes:
    return version.to_bytes(_TYPE_BYTES, "big") + value.encode(version)


def decode_coordinator_key(log: str, data: bytes) -> Message | None:
    """Return the key of a coordinator's record; None for an unknown type. `log` is GROUP_LOG, TRANSACTION_LOG or
    SHARE_LOG."""
    return _decode(log, "Key", _leading_int16(data), data[_TYPE_BYTES:], _KEY_VERSION)


def decode_coordinator_value(log: str, key: Message, data: bytes) -> Message | None:
    return _decode(log, "Value", key.api_key, data[_TYPE_BYTES:], _leading_int16(data))


def _leading_int16(data: bytes) -> int:
    if len(data) < _TYPE_BYTES:
        raise ProtocolViolation(f"a coordinator record of {len(data)} bytes has no type")
    return int.from_bytes(data[:_TYPE_BYTES], "big", signed=True)


def _decode(log: str, suffix: str, number: int, data: bytes, version: int) -> Message | None:
    known = _by_number.get((log, suffix))
    if known is None:
        known = _by_number[log, suffix] = {kind.api_key: kind for kind in _declared_messages(log, suffix)}
    kind = known.get(number)
    if kind is None or version not in kind.versions:
        return None
    return kind.decode(data, version)


def _declared_messages(log: str, suffix: str) -> Iterator[type[Message]]:
    for module in MODULES[log]:
        for name, value in vars(import_module(module)).items():
            if name.endswith(suffix) and isinstance(value, type) and issubclass(value, Message):
                yield value
