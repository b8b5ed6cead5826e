"""`pessoa partitions`: how many partitions does a topic need?

The rule of thumb is max(t/p, t/c): t is the throughput that is wanted, p what a producer gets into one partition, c
what a consumer gets out of one. p and c depend on machines, records and settings, so they are measured here: a topic
of one partition is made, filled and read, and deleted again.
"""

from __future__ import annotations

import math
import shutil
import time
import uuid
from typing import TYPE_CHECKING, NamedTuple

import click

if TYPE_CHECKING:
    from collections.abc import Callable

    from confluent_kafka import KafkaError

_MEGABYTE = 1024 * 1024
# What a bar may take beside the numbers before it, at most and at least.
_BAR_WIDTH, _SHORTEST_BAR, _BEFORE_BAR = 40, 5, 42
_FIRST_ANSWER_S = 10.0
# Records in one step between two looks at the clock.
_STEP = 500


class Measured(NamedTuple):
    producer_mb_s: float
    consumer_mb_s: float
    record_count: int


def partitions_needed(target_mb_s: float, measured: Measured) -> int:
    """Return max(t/p, t/c), rounded up to whole partitions."""
    by_producer = target_mb_s / measured.producer_mb_s
    by_consumer = target_mb_s / measured.consumer_mb_s
    return max(1, math.ceil(max(by_producer, by_consumer)))


EPILOG = """\b
Examples:
  pessoa partitions --target 100                      100 MB/s of records of 1000 bytes
  pessoa partitions --target 20 --record-size 100     20 MB/s of small ones
  pessoa partitions --target 100 --acks 1             when the leader alone need answer
"""


@click.command(
    help="Say how many partitions a throughput needs, after measuring one on the running cluster.", epilog=EPILOG
)
@click.option("--bootstrap-server", "servers", default=None, help="The cluster; default localhost:9092.")
@click.option("--target", "target_mb_s", type=click.FloatRange(min=0, min_open=True), required=True,
              help="The throughput that is wanted, t, in MB/s.")  # fmt: skip
@click.option("--record-size", default=1000, show_default=True, type=click.IntRange(min=1), help="Bytes of a record.")
@click.option("--seconds", default=5.0, show_default=True, type=click.FloatRange(min=0, min_open=True),
              help="How long to produce.")  # fmt: skip
@click.option("--replication-factor", default=-1, type=int, help="Replicas of the topic; default as the broker says.")
@click.option("--acks", default="all", show_default=True, type=click.Choice(["0", "1", "all"]))
def partitions(
    servers: str | None, target_mb_s: float, record_size: int, seconds: float, replication_factor: int, acks: str
) -> None:
    from pessoa.cli.tool_run import default_cluster, require_answer
    from pessoa.client.client_errors import KafkaFailure

    servers = servers or default_cluster()
    try:
        require_answer(servers, _FIRST_ANSWER_S)
        measured = measure(servers, record_size, seconds, replication_factor, acks)
    except KafkaFailure as failure:
        raise click.ClickException(f"{servers}: {failure}") from failure
    for line in report(target_mb_s, measured):
        click.echo(line)


def measure(servers: str, record_size: int, seconds: float, replication_factor: int, acks: str) -> Measured:
    from pessoa.client.cluster_client import Cluster
    from pessoa.client.topic_admin import NewTopic, create_topic, delete_topics

    topic = f"pessoa-partitions-{uuid.uuid4().hex[:12]}"
    with Cluster(servers) as cluster:
        create_topic(cluster, NewTopic(topic, 1, replication_factor))
        try:
            from rich.progress import Progress

            with Progress(transient=True) as progress:
                task = progress.add_task("producing", total=seconds)
                count, produced_s = _produce(
                    servers, topic, record_size, seconds, acks, lambda done: progress.update(task, completed=done)
                )
                task = progress.add_task("consuming", total=count)
                consumed_s = _consume(servers, topic, count, lambda done: progress.update(task, completed=done))
        finally:
            delete_topics(cluster, [topic])
    size = count * record_size / _MEGABYTE
    return Measured(size / produced_s, size / consumed_s, count)


def _produce(
    servers: str, topic: str, record_size: int, seconds: float, acks: str, tell: Callable[[float], None]
) -> tuple[int, float]:
    from confluent_kafka import Producer

    from pessoa.client.client_errors import KafkaFailure

    producer = Producer({"bootstrap.servers": servers, "acks": acks, "linger.ms": 5, "log_level": 0})
    failures: list[KafkaError] = []

    def note(error: KafkaError | None, _: object) -> None:
        if error is not None:
            failures.append(error)

    record = bytes(i * 31 % 251 for i in range(record_size))
    count, began = 0, time.perf_counter()
    while (elapsed := time.perf_counter() - began) < seconds:
        for _ in range(_STEP):
            while True:
                try:
                    producer.produce(topic, record, on_delivery=note)
                    break
                except BufferError:
                    producer.poll(0.01)
        count += _STEP
        producer.poll(0)
        tell(elapsed)
    producer.flush()
    if failures:
        raise KafkaFailure(f"{len(failures)} of {count} records were not written: {failures[0].str()}")
    return count, time.perf_counter() - began


def _consume(servers: str, topic: str, count: int, tell: Callable[[float], None]) -> float:
    from confluent_kafka import Consumer, TopicPartition

    from pessoa.client.client_errors import KafkaFailure

    consumer = Consumer({"bootstrap.servers": servers, "group.id": topic, "enable.auto.commit": False, "log_level": 0})
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        # The first record is the end of connecting, which is not what is measured.
        if not consumer.consume(1, 30):
            raise KafkaFailure("nothing of what was written could be read within 30 s")
        found, began = 1, time.perf_counter()
        while found < count:
            messages = consumer.consume(min(10_000, count - found), 30)
            if not messages:
                raise KafkaFailure(f"only {found} of {count} records could be read")
            found += len(messages)
            tell(found)
        return max(time.perf_counter() - began, 1e-6)
    finally:
        consumer.close()


def report(target_mb_s: float, measured: Measured) -> list[str]:
    """Return the lines of the report: the measured numbers with a small plot, the result, and its limits."""
    p, c = measured.producer_mb_s, measured.consumer_mb_s
    largest = max(p, c, target_mb_s)

    room = shutil.get_terminal_size().columns - _BEFORE_BAR
    longest = min(_BAR_WIDTH, max(_SHORTEST_BAR, room))

    def bar(value: float) -> str:
        return "█" * max(1, round(longest * value / largest))

    needed = partitions_needed(target_mb_s, measured)
    plural = "" if needed == 1 else "s"
    answer = f"max(t/p, t/c) = max({target_mb_s / p:.2f}, {target_mb_s / c:.2f}), so {needed} partition{plural}."
    return [
        f"one partition, {measured.record_count} records:",
        f"  p  a producer writes   {p:10.1f} MB/s  {bar(p)}",
        f"  c  a consumer reads    {c:10.1f} MB/s  {bar(c)}",
        f"  t  wanted              {target_mb_s:10.1f} MB/s  {bar(target_mb_s)}",
        "",
        answer,
        "",
        f"At most {needed} consumer{plural} of one group can share the work: a partition has one reader in a group.",
        "Records with the same key go to the same partition and keep their order; across partitions there is none.",
        "Adding partitions later moves keys to other partitions, so leave room if order by key matters.",
    ]
