"""`kafka-verifiable-producer`: sends increasing numbers and reports for each whether it was acknowledged, in JSON
lines.

System tests read what it prints: every acknowledged number must be found by a consumer afterwards.
"""

from __future__ import annotations

import argparse
import signal
import time
from typing import TYPE_CHECKING

from pessoa.cli.subcommands import Failed, Parser, parsed_tool
from pessoa.cli.tool_run import warn
from pessoa.cli.verifiable import event, own_properties

if TYPE_CHECKING:
    from collections.abc import Callable

    from confluent_kafka import KafkaError, Message, Producer

# librdkafka's own is longer.
_JAVA_DELIVERY_TIMEOUT_MS = "120000"


def make_parser() -> argparse.ArgumentParser:
    parser = Parser(prog="verifiable-producer", description="This tool produces increasing integers to a topic.")
    option = parser.add_argument
    option("--topic", required=True, help="the topic to produce to")
    option("--max-messages", type=int, default=-1, help="how many; -1 is without end")
    option("--throughput", type=int, default=-1, help="records a second at most; -1 is as many as possible")
    option("--acks", choices=["0", "1", "-1"], default="-1", help="who must have a record")
    option("--producer.config", dest="producer_config", help="the old name of --command-config")
    option("--command-config", help="a properties file of the producer")
    option("--message-create-time", type=int, default=-1, help="the time of the first record, in ms")
    option("--value-prefix", type=int, help="what stands before each number, with a dot")
    option("--repeating-keys", type=int, help="keys from 0 to this, over and over")
    option("--bootstrap-server", "--broker-list", required=True, help="the brokers to begin with")
    return parser


class _Counts:
    sent = 0
    acked = 0


@parsed_tool(make_parser, helps_empty_lines=True)
def main(chosen: argparse.Namespace) -> int:
    from confluent_kafka import KafkaException, Producer

    from pessoa.client.librdkafka import check_addresses, to_librdkafka

    files = chosen.command_config, "producer.config", chosen.producer_config
    own = to_librdkafka(own_properties(make_parser(), *files), warn)
    check_addresses(chosen.bootstrap_server, "producer")
    settings = {**own, "bootstrap.servers": chosen.bootstrap_server, "acks": chosen.acks, "log_level": 0}
    # Zero retries in Java's tool, so that an error is seen and not mended.
    settings.setdefault("retries", "0")
    settings.setdefault("partitioner", "murmur2_random")
    settings.setdefault("delivery.timeout.ms", _JAVA_DELIVERY_TIMEOUT_MS)
    try:
        producer = Producer(settings)
    except KafkaException as error:
        raise Failed(error.args[0].str()) from error
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    counts = _Counts()
    began = time.perf_counter()
    event("startup_complete")
    try:
        _send_all(producer, chosen, counts, began)
    except KeyboardInterrupt:
        pass
    finally:
        producer.flush()
        event("shutdown_complete")
        average = counts.acked / max(time.perf_counter() - began, 1e-9)
        event("tool_data", sent=counts.sent, acked=counts.acked, target_throughput=chosen.throughput,
              avg_throughput=average)  # fmt: skip
    return 0


def _send_all(producer: Producer, chosen: argparse.Namespace, counts: _Counts, began: float) -> None:
    number = 0
    while chosen.max_messages < 0 or number < chosen.max_messages:
        if chosen.throughput > 0:
            while (left := began + number / chosen.throughput - time.perf_counter()) > 0:
                producer.poll(min(left, 0.05))
        elif chosen.throughput == 0:
            raise Failed("--throughput 0 would send nothing")
        value = f"{number}" if chosen.value_prefix is None else f"{chosen.value_prefix}.{number}"
        key = None if chosen.repeating_keys is None else str(number % chosen.repeating_keys)
        stamp = {} if chosen.message_create_time < 0 else {
            "timestamp": chosen.message_create_time + int((time.perf_counter() - began) * 1000)
        }  # fmt: skip
        while True:
            try:
                producer.produce(chosen.topic, value, key, on_delivery=_report(key, value, counts), **stamp)
                break
            except BufferError:
                producer.poll(0.01)
        counts.sent += 1
        number += 1
        producer.poll(0)


def _report(key: str | None, value: str, counts: _Counts) -> Callable[[KafkaError | None, Message], None]:
    def done(error: KafkaError | None, message: Message) -> None:
        if error is not None:
            event("producer_send_error", topic=message.topic(), key=key, value=value,
                  exception="class org.apache.kafka.common.KafkaException", message=error.str())  # fmt: skip
            return
        counts.acked += 1
        event("producer_send_success", key=key, value=value, offset=message.offset(), topic=message.topic(),
              partition=message.partition())  # fmt: skip

    return done
