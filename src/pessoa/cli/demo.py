"""`pessoa demo`: runs the small shop of `platform/shop.py` against a cluster, until Ctrl-C or for so many events.

Topics are made where they are missing, with as many replicas as there are brokers and at most three. A consumer group
called `shop-shipping` reads the orders a little behind, so that there is a group with a lag to look at.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from pessoa.platform.shop import Event

GROUP = "shop-shipping"
# A minute is long enough for any cluster to come back.
TIMEOUT_S = 60.0
# Whether there is a cluster at all is known sooner.
FIRST_ANSWER_S = 10.0

EPILOG = """\b
Examples:
  pessoa demo                        50 events a second until Ctrl-C
  pessoa demo --events 1000          a thousand events, and the end
  pessoa demo --seed 7 --rate 500    another shop, and a busier one
"""


@click.command(help="Fill topics with the events of a small shop.", epilog=EPILOG)
@click.option("--bootstrap-server", "servers", metavar="HOST:PORT,…", help="The cluster; default localhost:9092.")
@click.option(
    "--rate", type=click.FloatRange(0, min_open=True), default=50.0, show_default=True, help="Events a second."
)
@click.option("--events", type=click.IntRange(1), metavar="N", help="Stop after N events, sent as fast as they go.")
@click.option("--seed", default=1, show_default=True, help="Another seed is another shop.")
def demo(servers: str | None, rate: float, events: int | None, seed: int) -> None:
    from confluent_kafka import KafkaException, Producer

    from pessoa.cli.running import default_cluster, require_answer
    from pessoa.client.errors import KafkaFailure
    from pessoa.platform.shop import stock

    bootstrap_server = servers or default_cluster()
    try:
        require_answer(bootstrap_server, FIRST_ANSWER_S)
        made = _make_topics(bootstrap_server)
        click.echo(f"made the topics {', '.join(made)}" if made else "the topics of the shop are there")
        failures: list[str] = []
        producer = Producer(
            {"bootstrap.servers": bootstrap_server, "client.id": "shop", "linger.ms": 20, "log_level": 0}
        )
        for event in stock(seed):
            _send(producer, event, failures)
        counts = _trade(producer, bootstrap_server, rate, events, seed, failures)
        producer.flush(TIMEOUT_S)
    except KafkaFailure as problem:
        raise click.ClickException(f"{bootstrap_server}: {problem}") from None
    except KafkaException as problem:
        raise click.ClickException(f"{bootstrap_server}: {problem.args[0].str()}") from None
    if failures:
        raise click.ClickException(f"{len(failures)} events were not taken; the first: {failures[0]}")
    click.echo(", ".join(f"{count} {topic}" for topic, count in sorted(counts.items())))


def _make_topics(bootstrap_server: str) -> list[str]:
    from confluent_kafka.admin import AdminClient
    from confluent_kafka.cimpl import NewTopic

    from pessoa.platform.shop import PARTITIONS, TOPICS

    admin = AdminClient({"bootstrap.servers": bootstrap_server, "log_level": 0})
    cluster = admin.list_topics(timeout=10)
    replicas = min(3, len(cluster.brokers))
    missing = [
        NewTopic(name, PARTITIONS, replicas, config=settings)
        for name, settings in TOPICS.items()
        if name not in cluster.topics
    ]
    if missing:
        for future in admin.create_topics(missing).values():
            future.result(TIMEOUT_S)
    return [topic.topic for topic in missing]


def _trade(
    producer: Any, bootstrap_server: str, rate: float, events: int | None, seed: int, failures: list[str]
) -> dict[str, int]:
    """Send until Ctrl-C, or so many events; how many went to each topic."""
    import time

    from confluent_kafka import Consumer

    from pessoa.platform.shop import trade

    shipping = Consumer(
        {"bootstrap.servers": bootstrap_server, "group.id": GROUP, "auto.offset.reset": "earliest", "log_level": 0}
    )
    shipping.subscribe(["orders"])
    counts: dict[str, int] = {}
    began_s = time.monotonic()
    try:
        for number, event in enumerate(trade(seed)):
            if events is not None and number == events:
                break
            if events is None:
                time.sleep(max(0.0, began_s + number / rate - time.monotonic()))
                if number % round(10 * rate + 1) == 0:
                    click.echo(f"{number} events sent")
            _send(producer, event, failures)
            counts[event.topic] = counts.get(event.topic, 0) + 1
            shipping.poll(0)
    except KeyboardInterrupt:
        pass  # how it is meant to end
    finally:
        shipping.close()
    return counts


def _send(producer: Any, event: Event, failures: list[str]) -> None:
    def on_delivery(error: Any, _: object) -> None:
        if error is not None:
            failures.append(str(error))

    while True:
        try:
            producer.produce(event.topic, event.payload, event.key, on_delivery=on_delivery)
        except BufferError:
            producer.poll(0.1)  # the queue is full: wait for room
            continue
        producer.poll(0)
        return
