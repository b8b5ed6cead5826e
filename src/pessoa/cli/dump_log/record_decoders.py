"""What the key and the value of a record mean, for the lines of `kafka-dump-log`.

A decoder takes a record and gives the text of its key and of its value, or None for what is not printed. Those of the
internal topics give one line of JSON each:

    key: {"type":"1","data":{"group":"g","topic":"t","partition":0}}
    payload: {"version":"3","data":{"offset":10,"leaderEpoch":0,"metadata":"","commitTimestamp":1794777815909}}

A record that such a decoder cannot read does not end the dump: its line says so, and the next one comes.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from pessoa.cli.dump_log.findings import Unreadable
from pessoa.wire.errors import ProtocolViolation
from pessoa.wire.stored.record_framing import (
    GROUP_LOG,
    SHARE_LOG,
    TRANSACTION_LOG,
    decode_coordinator_key,
    decode_coordinator_value,
    decode_metadata_record,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from pessoa.cli.dump_log.batch_lines import Decode
    from pessoa.records.record import Record
    from pessoa.wire.schema import Message

_COORDINATOR_LOGS = {
    "offsets-decoder": GROUP_LOG,
    "transaction-log-decoder": TRANSACTION_LOG,
    "share-group-state-decoder": SHARE_LOG,
}
_TOMBSTONE = "<DELETE>"
_WORD = re.compile(r"(?<!^)(?=[A-Z])")


def plain_decoder(key_class: str, value_class: str) -> Decode:
    """Return a decoder for records of users, by the names of Kafka's decoder classes, with or without their package."""
    decode_key, decode_value = _plain_part(key_class), _plain_part(value_class)

    def decode(record: Record) -> tuple[str | None, str | None]:
        return (
            None if record.key is None else decode_key(record.key),
            None if record.value is None else decode_value(record.value),
        )

    return decode


def _plain_part(class_name: str) -> Callable[[bytes], str]:
    found = _PLAIN_PARTS.get(class_name.rpartition(".")[2])
    if found is None:
        raise Unreadable(f"there is no decoder {class_name}; the known ones are {', '.join(_PLAIN_PARTS)}")
    return found


def _string(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def _integer(data: bytes) -> str:
    return _number(data, 4)


def _long(data: bytes) -> str:
    return _number(data, 8)


def _number(data: bytes, size: int) -> str:
    if len(data) < size:
        raise Unreadable(f"a number of {size} bytes was expected, and a record has only {len(data)}: {data.hex()}")
    return str(int.from_bytes(data[:size], "big", signed=True))


# Java's own form of a byte array is its address in memory; the bytes say more.
_PLAIN_PARTS: dict[str, Callable[[bytes], str]] = {
    "StringDecoder": _string,
    "IntegerDecoder": _integer,
    "LongDecoder": _long,
    "DefaultDecoder": bytes.hex,
}


def log_decoder(option: str) -> Decode:
    """Return a decoder for the records of an internal topic, by the option that names it."""
    if option == "cluster-metadata-decoder":
        return _decode_metadata
    log = _COORDINATOR_LOGS.get(option)
    if log is None:
        raise Unreadable(f"--{option} is not offered: Pessoa has no tiered storage")
    return lambda record: _decode_coordinator(log, record)


def _decode_metadata(record: Record) -> tuple[None, str]:
    from pessoa.cli.dump_log.message_json import as_values, json_text

    data = record.value or b""
    try:
        message = decode_metadata_record(data)
    except ProtocolViolation as problem:
        return None, f"Error at {record.offset}, skipping. {problem}"
    if message is None:
        return None, f"Error at {record.offset}, skipping. Its type or its version is not known"
    version = _metadata_version(data)
    described = {"type": _enum_name(message), "version": version, "data": as_values(message, version)}
    return None, json_text(described)


def _metadata_version(data: bytes) -> int:
    """Return the third number of the frame; the first two are the frame's own version and the type."""
    from pessoa.wire.primitives import read_uvarint

    position = version = 0
    for _ in range(3):
        version, position = read_uvarint(data, position)
    return version


def _enum_name(message: Message) -> str:
    return _WORD.sub("_", type(message).__name__).upper()


def _decode_coordinator(log: str, record: Record) -> tuple[str, str | None]:
    from pessoa.cli.dump_log.message_json import as_values, json_text

    if record.key is None:
        raise Unreadable(f"the record at offset {record.offset} has no key, so it is none of a coordinator")
    try:
        key = decode_coordinator_key(log, record.key)
        if key is None:
            number = int.from_bytes(record.key[:2], "big", signed=True)
            return f"Unknown record type {number} at offset {record.offset}, skipping.", None
        key_text = json_text({"type": str(key.api_key), "data": as_values(key, 0)})
        if record.value is None:
            return key_text, _TOMBSTONE
        value = decode_coordinator_value(log, key, record.value)
    except ProtocolViolation as problem:
        return f"Error at offset {record.offset}, skipping. {problem}", None
    version = int.from_bytes(record.value[:2], "big", signed=True)
    if value is None:
        return f"Error at offset {record.offset}, skipping. Version {version} of its value is not known", None
    values = as_values(value, version)
    _open_consumer_protocol(values)
    return key_text, json_text({"version": str(version), "data": values})


def _open_consumer_protocol(values: dict[str, Any]) -> None:
    """Replace the bytes of subscriptions and assignments by their decoded values: members of a classic consumer
    group exchange them, and brokers keep them as bytes."""
    if values.get("protocolType") != "consumer":
        return
    from pessoa.cli.dump_log.message_json import as_values
    from pessoa.wire.stored.consumer_protocol import ConsumerProtocolAssignment, ConsumerProtocolSubscription

    parts: dict[str, type[Message]] = {
        "subscription": ConsumerProtocolSubscription,
        "assignment": ConsumerProtocolAssignment,
    }
    for member in values.get("members", ()):
        for name, kind in parts.items():
            data = member[name]
            version = int.from_bytes(data[:2], "big", signed=True)
            # A client may send any bytes here. Those that are not of this protocol stay bytes.
            if len(data) >= 2 and version in kind.versions:
                try:
                    member[name] = as_values(kind.decode(data[2:], version), version)
                except ProtocolViolation:
                    continue
