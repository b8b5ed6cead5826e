"""`kafka-producer-perf-test`: how many records a second a producer gets through, and how long each takes."""

from __future__ import annotations

import argparse
import random
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from pessoa.cli.perf_stats import Stats
from pessoa.cli.subcommands import Failed, Parser, parsed_tool
from pessoa.cli.tool_run import read_properties, warn

if TYPE_CHECKING:
    from collections.abc import Callable

    from confluent_kafka import KafkaError, Producer

_BUSY_POLL_S = 0.01
_MILLISECOND_S = 0.001
_DEFAULT_TRANSACTION_MS = 3000


def make_parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="kafka-producer-perf-test", description="This tool is used to verify the producer performance."
    )
    option = parser.add_argument
    option("--bootstrap-server", help="the brokers to begin with")
    option("--topic", required=True, help="the topic to produce to")
    option("--num-records", type=int, required=True, help="how many records")
    option("--payload-delimiter", default="\\n", help="what stands between the records of --payload-file")
    option("--throughput", type=float, required=True, help="records a second at most; -1 is as many as possible")
    option("--producer-props", nargs="+", default=[], metavar="NAME=VALUE", help="the old name of --command-property")
    option("--command-property", nargs="+", default=[], metavar="NAME=VALUE", help="properties of the producer")
    option("--producer.config", dest="producer_config", help="the old name of --command-config")
    option("--command-config", help="a file of such properties")
    option("--print-metrics", action="store_true", help="print librdkafka's statistics at the end")
    option("--transactional-id", help="produce in transactions, under this id")
    option("--transaction-duration-ms", type=int, help="how long a transaction takes")
    option("--warmup-records", type=int, default=0, help="so many records are left out of the second summary")
    option("--reporting-interval", type=int, default=5000, help="ms between two lines")
    payload = parser.add_mutually_exclusive_group(required=True)
    payload.add_argument("--record-size", type=int, help="bytes in a record")
    payload.add_argument("--payload-file", help="a file of records to choose from")
    payload.add_argument("--payload-monotonic", action="store_true", help="records are numbers that grow")
    return parser


@parsed_tool(make_parser, helps_empty_lines=True)
def main(chosen: argparse.Namespace) -> int:
    properties = _properties(chosen)
    payload = _payloads(chosen)
    is_transactional = chosen.transactional_id is not None or chosen.transaction_duration_ms is not None
    if is_transactional:
        properties["transactional.id"] = chosen.transactional_id or f"performance-producer-{random.getrandbits(32):x}"
    producer = _producer(properties)
    if is_transactional:
        producer.init_transactions()
    if chosen.warmup_records > 0:
        print(f"Warmup first {chosen.warmup_records} records. Steady state results will print after the complete test "
              "summary.")  # fmt: skip
    stats = Stats(chosen.num_records, chosen.reporting_interval)
    steady: list[Stats] = []
    _send_all(producer, chosen, payload, stats, steady, is_transactional)
    stats.print_total()
    for one in steady:
        one.print_total("steady state records")
    if chosen.print_metrics:
        print(f"\n{'Metric Name':<40} Value\nrecords-in-queue{'':<24} : {len(producer)}")
    return 0


def _properties(chosen: argparse.Namespace) -> dict[str, str]:
    for old, new in (("producer_props", "command_property"), ("producer_config", "command_config")):
        if getattr(chosen, old):
            shown = {"producer_props": "producer-props", "producer_config": "producer.config"}[old]
            print(f"Option --{shown} has been deprecated and will be removed in a future version. Use "
                  f"--{new.replace('_', '-')} instead.")  # fmt: skip
    path = chosen.command_config or chosen.producer_config
    properties = read_properties(path) if path else {}
    for pair in (*chosen.producer_props, *chosen.command_property):
        key, equals, value = pair.partition("=")
        if not equals:
            raise Failed(f"Invalid property: {pair}")
        properties[key] = value
    if chosen.bootstrap_server:
        properties["bootstrap.servers"] = chosen.bootstrap_server
    if "bootstrap.servers" not in properties:
        make_parser().error(
            "At least one of --bootstrap-server, --command-property, --producer-props, --producer.config or "
            "--command-config must be specified."
        )
    for name in ("num_records", "record_size", "transaction_duration_ms"):
        number = getattr(chosen, name)
        if number is not None and number <= 0:
            make_parser().error(f"--{name.replace('_', '-')} should be greater than zero.")
    if chosen.warmup_records >= chosen.num_records:
        make_parser().error("--warmup-records must be fewer than --num-records.")
    return properties


def _producer(properties: dict[str, str]) -> Producer:
    from confluent_kafka import KafkaException, Producer

    from pessoa.client.librdkafka import check_addresses, to_librdkafka

    check_addresses(properties["bootstrap.servers"], "producer")
    settings = to_librdkafka({"client.id": "perf-producer-client", "acks": "all", **properties}, warn)
    settings.setdefault("linger.ms", "5")
    settings.setdefault("partitioner", "murmur2_random")
    # The queue is bounded by its bytes, as in Java, and not by the number of records in it.
    settings.setdefault("queue.buffering.max.messages", "0")
    settings.setdefault("queue.buffering.max.kbytes", "32768")
    try:
        return Producer({**settings, "log_level": 0})
    except KafkaException as error:
        raise Failed(error.args[0].str()) from error


def _payloads(chosen: argparse.Namespace) -> Callable[[int], bytes]:
    if chosen.payload_monotonic:
        return lambda number: str(number).encode()
    chance = random.Random(0)
    if chosen.payload_file is None:
        # One record for all: what is measured is the cluster, not the generator.
        record = bytes(chance.randrange(65, 91) for _ in range(chosen.record_size))
        return lambda _: record
    print(f"Reading payloads from: {Path(chosen.payload_file).absolute()}")
    try:
        text = Path(chosen.payload_file).read_text(encoding="utf-8")
    except OSError as error:
        raise Failed("File does not exist or empty file provided.") from error
    delimiter = chosen.payload_delimiter.encode().decode("unicode_escape")
    records = [part.encode() for part in text.split(delimiter) if part]
    if not records:
        raise Failed("File does not exist or empty file provided.")
    print(f"Number of records read: {len(records)}")
    return lambda _: chance.choice(records)


def _send_all(
    producer: Producer,
    chosen: argparse.Namespace,
    payload: Callable[[int], bytes],
    stats: Stats,
    steady: list[Stats],
    is_transactional: bool,
) -> None:
    topic, clock = chosen.topic, time.perf_counter
    duration_s = (chosen.transaction_duration_ms or _DEFAULT_TRANSACTION_MS) / 1000
    begin = clock()
    transaction_began: float | None = None
    for number in range(chosen.num_records):
        if chosen.throughput > 0:
            _wait_for(producer, begin + number / chosen.throughput)
        if is_transactional and transaction_began is None:
            producer.begin_transaction()
            transaction_began = clock()
        if number == chosen.warmup_records > 0:
            steady.append(Stats(chosen.num_records - number, sys.maxsize))
        record = payload(number)
        done = _on_delivery(clock(), len(record), stats, steady[0] if steady else None)
        while True:
            try:
                producer.produce(topic, record, on_delivery=done)
                break
            except BufferError:
                producer.poll(_BUSY_POLL_S)
        producer.poll(0)
        if transaction_began is not None and clock() - transaction_began >= duration_s:
            producer.commit_transaction()
            transaction_began = None
    if transaction_began is not None:
        producer.commit_transaction()
    producer.flush()


def _wait_for(producer: Producer, moment: float) -> None:
    """Poll the producer, which calls the delivery reports, until `moment`."""
    while (left := moment - time.perf_counter()) > 0:
        producer.poll(min(left, _BUSY_POLL_S) if left > _MILLISECOND_S else 0)


def _on_delivery(
    sent: float, size: int, stats: Stats, steady: Stats | None
) -> Callable[[KafkaError | None, object], None]:
    def done(error: KafkaError | None, _: object) -> None:
        if error is not None:
            warn(f"org.apache.kafka.common.KafkaException: {error.str()}")
            return
        latency_ms = int((time.perf_counter() - sent) * 1000)
        stats.record(latency_ms, size)
        if steady is not None:
            steady.record(latency_ms, size)

    return done
