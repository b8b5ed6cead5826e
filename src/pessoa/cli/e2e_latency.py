"""`kafka-e2e-latency`: how long a record takes from a producer through the cluster to a consumer, one at a time."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from pessoa.cli import command_line as line
from pessoa.cli.command_line import INTEGER, Given, Options, UsageError
from pessoa.cli.perf_stats import percentiles
from pessoa.cli.tool_run import read_properties, tool, warn
from pessoa.client.client_errors import KafkaFailure

if TYPE_CHECKING:
    from confluent_kafka import Consumer, Message, Producer

_PURPOSE = "This tool measures end-to-end latency in Kafka by sending messages and timing their reception."
_TIMEOUT_S = 60.0
_POSITIONAL = ("bootstrap-server", "topic", "num-records", "producer-acks", "record-size", "command-config")
# A progress line after so many records.
_EVERY = 1000


def make_options() -> Options:
    options = Options("kafka-e2e-latency", _PURPOSE)
    options.text("bootstrap-server", "the brokers to begin with", metavar="bootstrap-server")
    options.text("topic", "the topic to go through", metavar="topic")
    options.text("num-records", "how many records", metavar="count", kind=INTEGER)
    options.text("producer-acks", "1 or all", metavar="producer-acks")
    options.text("record-size", "bytes of a value", metavar="bytes", kind=INTEGER)
    options.text("command-config", "a properties file for both clients", metavar="config-file")
    options.text("record-key-size", "bytes of a key", metavar="bytes", default="0", kind=INTEGER)
    options.text("num-headers", "headers of a record", metavar="count", default="0", kind=INTEGER)
    return options


def _parse_line(options: Options, words: Sequence[str]) -> Given:
    if words and not words[0].startswith("-"):
        print(
            "WARNING: Positional argument usage is deprecated and will be removed in Apache Kafka 5.0. Please use "
            f"named arguments instead: {', '.join(f'--{name}' for name in _POSITIONAL)}"
        )
        words = [word for pair in zip(_POSITIONAL, words, strict=False) for word in (f"--{pair[0]}", pair[1])]
    return line.begin(options, words)


@tool(make_options, _parse_line)
def main(given: Given) -> int:
    line.require(given, "bootstrap-server", "topic", "num-records", "producer-acks", "record-size")
    if given.value("producer-acks") not in ("1", "all"):
        raise UsageError(
            "Invalid value for --producer-acks. Latency testing requires synchronous acknowledgement. Please use '1' "
            "or 'all'."
        )
    latencies = _measure(given)
    average = sum(latencies) / len(latencies)
    print(f"Avg latency: {average:.4f} ms")
    p50, p99, p999 = percentiles([int(one) for one in latencies], 0.5, 0.99, 0.999)
    print(f"Percentiles: 50th = {p50}, 99th = {p99}, 99.9th = {p999}")
    return 0


def _clients(given: Given) -> tuple[Producer, Consumer]:
    from confluent_kafka import Consumer, Producer

    from pessoa.client.librdkafka import check_addresses, to_librdkafka

    check_addresses(given.value("bootstrap-server"), "consumer")
    own = to_librdkafka(read_properties(given.value("command-config")), warn) if given.has("command-config") else {}
    common = {**own, "bootstrap.servers": given.value("bootstrap-server"), "log_level": 0}
    # Nothing may wait for more of its kind: neither the producer for a batch nor the broker for bytes.
    producer = Producer({**common, "acks": given.value("producer-acks"), "linger.ms": "0"})
    consumer = Consumer(
        {
            **common,
            "group.id": f"test-group-{random.getrandbits(32):x}",
            "enable.auto.commit": "false",
            "auto.offset.reset": "latest",
            "fetch.wait.max.ms": "10",
        }
    )
    return producer, consumer


def _measure(given: Given) -> list[float]:
    from pessoa.client.cluster_client import Cluster
    from pessoa.client.offset_admin import LATEST, list_offsets, offset_or_none
    from pessoa.client.topic_admin import metadata

    topic, count = given.value("topic"), given.number("num-records")
    producer, consumer = _clients(given)
    try:
        with Cluster(given.value("bootstrap-server")) as cluster:
            parts = [part.partition for part in metadata(cluster, [topic])[0].partitions]
            ends = list_offsets(cluster, {(topic, part): LATEST for part in parts})
        from confluent_kafka import TopicPartition

        consumer.assign([TopicPartition(topic, part, offset_or_none(ends[topic, part]) or 0) for part in parts])
        chance = random.Random(0)
        latencies = []
        for number in range(count):
            value, key = (
                _letters(chance, given.number("record-size")),
                _letters(chance, given.number("record-key-size")),
            )
            headers: list[tuple[str, str | bytes | None]] = [
                (f"header-{index}", b"value") for index in range(given.number("num-headers"))
            ]
            began = time.perf_counter()
            producer.produce(topic, value, key or None, headers=headers or None)
            producer.flush(_TIMEOUT_S)
            message = consumer.poll(_TIMEOUT_S)
            elapsed_ms = (time.perf_counter() - began) * 1000
            _check(message, value)
            if number % _EVERY == 0:
                print(f"{number}\t{elapsed_ms}")
            latencies.append(elapsed_ms)
    finally:
        consumer.close()
    return latencies


def _letters(chance: random.Random, size: int) -> bytes:
    return bytes(chance.randrange(65, 91) for _ in range(size))


def _check(message: Message | None, sent: bytes) -> None:
    if message is None:
        raise KafkaFailure(f"poll() timed out before finding a result (timeout:[{int(_TIMEOUT_S * 1000)}ms])")
    if (error := message.error()) is not None:
        raise KafkaFailure(error.str())
    if message.value() != sent:
        raise KafkaFailure("The message read did not match the message sent")
