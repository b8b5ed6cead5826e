r"""How the console consumer prints a record.

    CreateTime:1700000000000  Partition:0  Offset:7  Delivery:1  Epoch:NOT_PRESENT  headers  key  value

The default formatter prints those of these fields that its properties ask for, in this order, with `key.separator` (a
tab) between them and `line.separator` at the end; by default only the value. What is not there prints as
`null.literal`. Keys, values and header values go out as the bytes they are unless a deserializer is named.

LoggingMessageFormatter and NoOpMessageFormatter are Kafka's too. Its formatters of internal topics are not offered:
what is in those, kafka-dump-log shows.
"""

from __future__ import annotations

import struct
import uuid
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence


_CREATE_TIME, _LOG_APPEND_TIME = 1, 2
_TIME_NAMES = {_CREATE_TIME: "CreateTime", _LOG_APPEND_TIME: "LogAppendTime"}


class BadData(Exception):
    """A deserializer got bytes that it cannot read."""


class Shown(NamedTuple):
    """The fields of a record that formatters print."""

    topic: str
    partition: int
    offset: int
    timestamp_type: int
    timestamp: int
    headers: Sequence[tuple[str, bytes | None]]
    key: bytes | None
    value: bytes | None
    # Of a share group alone: how often the record was delivered, this time included.
    delivery_count: int | None = None


def shown(message: Any) -> Shown:
    """Return the fields of a consumed record. `message` is Any: librdkafka's types do not distinguish it from a
    record to produce."""
    kind, timestamp = message.timestamp()
    return Shown(
        message.topic(),
        message.partition(),
        message.offset(),
        kind,
        timestamp,
        message.headers() or (),
        message.key(),
        message.value(),
        message.delivery_count(),
    )


def _number_reader(name: str, code: str) -> Callable[[bytes], bytes]:
    size = struct.calcsize(code)

    def read(data: bytes) -> bytes:
        if len(data) != size:
            raise BadData(f"Size of data received by {name} is not {size}")
        return str(struct.unpack(code, data)[0]).encode()

    return read


def _boolean(data: bytes) -> bytes:
    if data not in (b"\0", b"\1"):
        raise BadData(f"Unexpected byte received by BooleanDeserializer: {data[:1].hex()}")
    return b"true" if data == b"\1" else b"false"


def _uuid(data: bytes) -> bytes:
    try:
        return str(uuid.UUID(data.decode())).encode()
    except ValueError as error:
        raise BadData("Error parsing data into UUID") from error


_DESERIALIZERS: dict[str, Callable[[bytes], bytes]] = {
    "StringDeserializer": lambda data: data,
    "ByteArrayDeserializer": lambda data: data,
    "BytesDeserializer": lambda data: data,
    "ByteBufferDeserializer": lambda data: data,
    "LongDeserializer": _number_reader("LongDeserializer", ">q"),
    "IntegerDeserializer": _number_reader("IntegerDeserializer", ">i"),
    "ShortDeserializer": _number_reader("ShortDeserializer", ">h"),
    "DoubleDeserializer": _number_reader("DoubleDeserializer", ">d"),
    "FloatDeserializer": _number_reader("FloatDeserializer", ">f"),
    "BooleanDeserializer": _boolean,
    "UUIDDeserializer": _uuid,
    "VoidDeserializer": lambda _: b"null",
}


def deserializer(class_name: str) -> Callable[[bytes], bytes]:
    """Return the deserializer for the name of Kafka's class, with or without its package."""
    found = _DESERIALIZERS.get(class_name.rpartition(".")[2])
    if found is None:
        raise BadData(f"there is no deserializer {class_name}; known are {', '.join(_DESERIALIZERS)}")
    return found


class DefaultFormatter:
    def __init__(self, properties: Mapping[str, str]) -> None:
        def on(name: str, default: str = "false") -> bool:
            return properties.get(name, default).strip().lower() == "true"

        self._timestamp = on("print.timestamp")
        self._partition = on("print.partition")
        self._offset = on("print.offset")
        self._delivery = on("print.delivery")
        self._epoch = on("print.epoch")
        self._headers = on("print.headers")
        self._key = on("print.key")
        self._value = on("print.value", "true")
        self._separator = properties.get("key.separator", "\t").encode()
        self._end = properties.get("line.separator", "\n").encode()
        self._between_headers = properties.get("headers.separator", ",").encode()
        self._null = properties.get("null.literal", "null").encode()
        self.read_key = self._reader(properties, "key.deserializer")
        self.read_value = self._reader(properties, "value.deserializer")
        self._read_header = self._reader(properties, "headers.deserializer")

    @staticmethod
    def _reader(properties: Mapping[str, str], name: str) -> Callable[[bytes], bytes] | None:
        return deserializer(properties[name]) if name in properties else None

    def format(self, record: Shown) -> bytes:
        parts: list[bytes] = []
        if self._timestamp:
            name = _TIME_NAMES.get(record.timestamp_type)
            parts.append(f"{name}:{record.timestamp}".encode() if name else b"NO_TIMESTAMP")
        if self._partition:
            parts.append(b"Partition:%d" % record.partition)
        if self._offset:
            parts.append(b"Offset:%d" % record.offset)
        if self._delivery:
            count = record.delivery_count
            parts.append(b"Delivery:NOT_PRESENT" if count is None else b"Delivery:%d" % count)
        if self._epoch:
            # Apache's tool loses the epoch on its way to the formatter.
            parts.append(b"Epoch:NOT_PRESENT")
        if self._headers:
            parts.append(self._between_headers.join(self._header(*one) for one in record.headers) or b"NO_HEADERS")
        if self._key:
            parts.append(self._text(record.key, self.read_key))
        if self._value:
            parts.append(self._text(record.value, self.read_value))
        return self._separator.join(parts) + self._end

    def _header(self, name: str, value: bytes | None) -> bytes:
        return name.encode() + b":" + self._text(value, self._read_header)

    def _text(self, data: bytes | None, read: Callable[[bytes], bytes] | None) -> bytes:
        if data is None:
            return self._null
        return data if read is None else read(data)


class LoggingFormatter(DefaultFormatter):
    """The default formatter under the name of Kafka's, which also logs each record; this one does not log."""


class Formatter(Protocol):
    def format(self, record: Shown) -> bytes: ...


class NoOpFormatter:
    def __init__(self, properties: Mapping[str, str]) -> None:
        pass

    def format(self, record: Shown) -> bytes:
        return b""


def formatter(class_name: str, properties: Mapping[str, str]) -> Formatter:
    """Return the formatter for the name of Kafka's class; KeyError for an unknown name."""
    name = class_name.rpartition(".")[2]
    classes: dict[str, Callable[[Mapping[str, str]], Formatter]] = {
        "DefaultMessageFormatter": DefaultFormatter,
        "LoggingMessageFormatter": LoggingFormatter,
        "NoOpMessageFormatter": NoOpFormatter,
    }
    return classes[name](properties)
