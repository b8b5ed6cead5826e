"""`kafka-console-producer`: every line of standard input becomes a record.

On a terminal it shows a `>` before each line. A record that the cluster refuses is reported on standard error and
does not end the tool: its exit code is 0 as long as its command line and its input make sense, as with Apache's.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from pessoa.cli import command_line as line
from pessoa.cli import renamed_options
from pessoa.cli.command_line import INTEGER, LONG, Given, Options, UsageError
from pessoa.cli.console.line_reader import BadLine, LineReader
from pessoa.cli.tool_run import tool, warn

if TYPE_CHECKING:
    from collections.abc import Callable

    from confluent_kafka import KafkaError, Message, Producer

    from pessoa.cli.console.line_reader import Line

_LINE_READER = "org.apache.kafka.tools.LineMessageReader"
_CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
_ACKS = ("all", "-1", "0", "1")
_FLUSH_S = 0.2
_POLL_S = 0.1
# Properties of the producer and the flags that set them.
_FLAGS = {
    "compression.type": "compression-codec",
    "linger.ms": "timeout",
    "acks": "request-required-acks",
    "request.timeout.ms": "request-timeout-ms",
    "retries": "message-send-max-retries",
    "retry.backoff.ms": "retry-backoff-ms",
    "send.buffer.bytes": "socket-buffer-size",
    "buffer.memory": "max-memory-bytes",
    "batch.size": "batch-size",
    "metadata.max.age.ms": "metadata-expiry-ms",
    "max.block.ms": "max-block-ms",
}


def make_options(tool: str = "kafka-console-producer") -> Options:
    options = Options(tool, "Read data from standard input and publish it to Kafka.")
    options.text("topic", "the topic to produce to", metavar="topic")
    options.text(
        "bootstrap-server",
        "the brokers to begin with, with commas between them",
        metavar="server to connect to",
        aliases=("broker-list",),
    )
    options.flag("sync", "wait for each record before the next is read")
    options.text(
        "compression-codec", "none, gzip, snappy, lz4 or zstd; gzip without a value", metavar="compression-codec",
        optional_value=True,
    )  # fmt: skip
    options.text("batch-size", "bytes in a batch", metavar="size", default="16384", kind=INTEGER)
    options.text("message-send-max-retries", "how often to try again", metavar="count", default="3", kind=INTEGER)
    options.text("retry-backoff-ms", "how long to wait before that", metavar="ms", default="100", kind=LONG)
    options.text("timeout", "how long a batch may wait for more records", metavar="ms", default="1000", kind=LONG)
    options.text("request-required-acks", "all, 1 or 0", metavar="acks", default="-1")
    options.text("request-timeout-ms", "how long a broker may take", metavar="ms", default="1500", kind=INTEGER)
    options.text("metadata-expiry-ms", "how old metadata may get", metavar="ms", default="300000", kind=LONG)
    options.text("max-block-ms", "how long a record may wait to be sent", metavar="ms", default="60000", kind=LONG)
    options.text("max-memory-bytes", "memory for waiting records", metavar="bytes", default="33554432", kind=LONG)
    options.text("max-partition-memory-bytes", "means --batch-size", metavar="bytes", default="16384", kind=INTEGER)
    options.text("socket-buffer-size", "the send buffer of a socket", metavar="bytes", default="102400", kind=INTEGER)
    options.text(
        "line-reader", "the class that reads lines; there is one", metavar="reader_class", default=_LINE_READER
    )
    options.text("reader-property", "a property of the line reader, repeatable", metavar="prop")
    options.text("reader-config", "a file of such properties", metavar="config file")
    options.text("property", "the old name of --reader-property", metavar="prop")
    options.text("command-property", "a property of the producer, repeatable", metavar="producer_prop")
    options.text("producer-property", "the old name of --command-property", metavar="producer_prop")
    options.text("command-config", "a file of such properties", metavar="config file")
    options.text("producer.config", "the old name of --command-config", metavar="config file")
    return options


@tool(make_options)
def main(given: Given) -> int:
    line.require(given, "topic")
    if not given.has("bootstrap-server"):
        raise UsageError("Error while validating the bootstrap address\n")
    _check_addresses(given.value("bootstrap-server"))
    given.check_numbers()
    if given.value("line-reader").rpartition(".")[2] != _LINE_READER.rpartition(".")[2]:
        warn(f"ERROR there is no line reader {given.value('line-reader')}; the one there is, is {_LINE_READER}")
        return 1
    properties = renamed_options.properties(given, "reader-property", "property")
    if given.has("reader-config"):
        from pessoa.cli.tool_run import read_properties

        properties = read_properties(given.value("reader-config")) | properties
    try:
        reader = LineReader(properties)
        return produce(given, reader.parse)
    except BadLine as error:
        warn(f"org.apache.kafka.common.KafkaException: {error}")
        return 1


def _check_addresses(text: str) -> None:
    from pessoa.client.client_errors import BadSettings
    from pessoa.client.cluster_client import parse_addresses

    try:
        parse_addresses(text)
    except BadSettings:
        raise UsageError("Please provide valid host:port like host1:9091,host2:9092\n ") from None


def produce(given: Given, parse: Callable[[str, int], Line]) -> int:
    """Send every line of standard input and return the exit code. `parse` makes a record of a line and its number."""
    from confluent_kafka import KafkaException, Producer

    topic = given.value("topic")
    settings = producer_settings(given)
    try:
        producer = Producer(settings)
    except KafkaException as error:
        warn(f"org.apache.kafka.common.KafkaException: {error.args[0].str()}")
        return 1
    is_sync = given.has("sync")
    failed = _failure_report(topic)
    with _poll_in_background(producer):
        try:
            for number, text in enumerate(_lines(), 1):
                record = parse(text, number)
                _send(producer, topic, record, failed)
                if is_sync:
                    _flush(producer)
        except BaseException as end:
            # Also after a bad line: the good ones before it have been promised.
            if isinstance(end, KeyboardInterrupt) and (left := _flush_once(producer)):
                warn(f"{left} records have not been acknowledged; Ctrl-C once more gives them up.")
            _flush(producer)
            raise
        _flush(producer)
    return 0


def _flush(producer: Producer) -> None:
    """Wait until all records are acknowledged. librdkafka waits without looking at signals, so Ctrl-C is seen
    between two calls."""
    while _flush_once(producer):
        pass


def _flush_once(producer: Producer) -> int:
    """Wait for `_FLUSH_S` and return how many records are unacknowledged then."""
    return _wait_interruptibly(producer.flush, _FLUSH_S)


def _wait_interruptibly(wait: Callable[[float], int], seconds: float) -> int:
    try:
        return wait(seconds)
    except SystemError:
        # Ctrl-C has hit a callback. The wrapper of librdkafka loses the exception there, and complains of that.
        raise KeyboardInterrupt from None


@contextmanager
def _poll_in_background(producer: Producer) -> Iterator[None]:
    """Run librdkafka's callbacks in a thread: refused records and lost brokers are reported while the tool waits for
    a line."""
    from threading import Event, Thread

    is_over = Event()

    def listen() -> None:
        while not is_over.is_set():
            producer.poll(_POLL_S)

    listener = Thread(target=listen, daemon=True)
    listener.start()
    try:
        yield
    finally:
        is_over.set()
        listener.join()


def _send(producer: Producer, topic: str, record: Line, failed: Callable[[KafkaError | None, Message], None]) -> None:
    while True:
        try:
            producer.produce(
                topic, value=record.value, key=record.key, headers=record.headers or None, on_delivery=failed
            )
        except BufferError:
            # Not left to the listener alone, which ends if it cannot print an error (a closed standard error).
            _wait_interruptibly(producer.poll, _POLL_S)
        else:
            return


def _failure_report(topic: str) -> Callable[[KafkaError | None, Message], None]:
    def report(error: KafkaError | None, message: Message) -> None:
        if error is None:
            return
        key, value = message.key(), message.value()
        warn(
            f"ERROR Error when sending message to topic {topic} with key: {_size(key)}, value: {_size(value)} "
            f"with error: {error.str()}"
        )

    return report


def _size(data: bytes | None) -> str:
    return "null" if data is None else f"{len(data)} bytes"


def _lines() -> Iterator[str]:
    """Yield standard input line by line; on a terminal with a prompt."""
    stream = sys.stdin
    if hasattr(stream, "reconfigure"):
        stream.reconfigure(encoding="utf-8", errors="surrogateescape", newline="\n")
    prompts = stream.isatty() and sys.stdout.isatty()
    while True:
        if prompts:
            print(">", end="", flush=True)
        text = stream.readline()
        if not text:
            return
        yield text.removesuffix("\n").removesuffix("\r")


def producer_settings(given: Given) -> dict[str, object]:
    """Return librdkafka's settings for this command line."""
    from pessoa.cli.tool_run import check_names, silence_listener
    from pessoa.client.cluster_client import parse_addresses
    from pessoa.client.librdkafka import to_librdkafka

    own = renamed_options.file_properties(given, "command-config", "producer.config")
    own |= renamed_options.properties(given, "command-property", "producer-property")
    merged = dict(own)
    for key, flag in _FLAGS.items():
        # A flag beats a property, and a property beats the default of a flag.
        if given.has(flag) or (key not in own and flag != "compression-codec"):
            merged[key] = given.maybe(flag) or "gzip"
    _check_settings(merged)
    patience = merged.get("delivery.timeout.ms", merged["max.block.ms"])
    settings: dict[str, object] = {
        "bootstrap.servers": given.value("bootstrap-server"),
        "client.id": "console-producer",
        # As the Java client distributes records: by the hash of the key, or in runs without one.
        "partitioner": "murmur2_random",
        **to_librdkafka(merged, warn),
        "delivery.timeout.ms": patience,
        "error_cb": silence_listener(),
        "log_level": 0,
    }
    check_names([host for host, _ in parse_addresses(given.value("bootstrap-server"))])
    settings.setdefault("enable.idempotence", merged["acks"] in ("all", "-1") and int(merged["retries"]) > 0)
    return settings


def _check_settings(settings: dict[str, str]) -> None:
    for key, values in (("acks", _ACKS), ("compression.type", _CODECS)):
        if settings.get(key, values[0]) not in values:
            from pessoa.client.client_errors import BadSettings

            choice = ", ".join(values)
            raise BadSettings(f"Invalid value {settings[key]} for configuration {key}: String must be one of: {choice}")
