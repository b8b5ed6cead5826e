"""`pessoa demo`: runs the small shop of `platform/shop.py` against a cluster, until Ctrl-C or for so many events.

Topics are made where they are missing, with as many replicas as there are brokers and at most three. A consumer group
called `shop-shipping` reads the orders a little behind, so that there is a group with a lag to look at.

On the cluster of a secured home the shop is its admin, unless a properties file says who it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Producer

    from pessoa.platform.shop import Event

GROUP = "shop-shipping"
PATH = click.Path(exists=True, dir_okay=False, path_type=Path)
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
@click.option("--command-config", "config", type=PATH, help="A properties file for the connection.")
@click.option(
    "--rate", type=click.FloatRange(0, min_open=True), default=50.0, show_default=True, help="Events a second."
)
@click.option("--events", type=click.IntRange(1), metavar="N", help="Stop after N events, sent as fast as they go.")
@click.option("--seed", default=1, show_default=True, help="Another seed is another shop.")
def demo(servers: str | None, config: Path | None, rate: float, events: int | None, seed: int) -> None:
    from confluent_kafka import KafkaException, Producer

    from pessoa.cli.tool_run import require_answer
    from pessoa.client.client_errors import KafkaFailure
    from pessoa.client.topic_creation import TopicUnavailable
    from pessoa.platform.shop import stock

    java = _java_settings(servers, config)
    bootstrap_server = java["bootstrap.servers"]
    try:
        require_answer(bootstrap_server, FIRST_ANSWER_S, java)
        client = _client_settings(java)
        made = _make_topics(client)
        click.echo(f"made the topics {', '.join(made)}" if made else "the topics of the shop are there")
        failures: list[str] = []
        producer = Producer({**client, "client.id": "shop", "linger.ms": 20})
        for event in stock(seed):
            _send(producer, event, failures)
        counts = _trade(producer, client, rate, events, seed, failures)
        producer.flush(TIMEOUT_S)
    except (KafkaFailure, TopicUnavailable) as problem:
        raise click.ClickException(f"{bootstrap_server}: {problem}") from None
    except KafkaException as problem:
        raise click.ClickException(f"{bootstrap_server}: {problem.args[0].str()}") from None
    if failures:
        raise click.ClickException(f"{len(failures)} events were not taken; the first: {failures[0]}")
    click.echo(", ".join(f"{count} {topic}" for topic, count in sorted(counts.items())))


def _java_settings(servers: str | None, config: Path | None) -> dict[str, str]:
    """Return the settings for the connection, under the names of Kafka's Java clients."""
    from pessoa.base.home_folder import pessoa_home
    from pessoa.cli.service_settings import settings_in
    from pessoa.cli.tool_run import default_cluster
    from pessoa.platform.secured_home import is_secured, secured_files
    from pessoa.platform.security_plan import ADMIN

    home = pessoa_home()
    if config is None and servers is None and is_secured(home):
        config = secured_files(home).client(ADMIN)
    settings = {} if config is None else settings_in(config)
    return {**settings, "bootstrap.servers": servers or settings.get("bootstrap.servers") or default_cluster()}


def _client_settings(java: Mapping[str, str]) -> dict[str, str | int | float | bool]:
    from pessoa.cli.tool_run import warn
    from pessoa.client.librdkafka import to_librdkafka

    return {**to_librdkafka(java, warn), "log_level": 0}


def _make_topics(client: Mapping[str, str | int | float | bool]) -> list[str]:
    from confluent_kafka.admin import AdminClient

    from pessoa.client.topic_creation import TopicSpec, ensure_topic
    from pessoa.platform.shop import PARTITIONS, TOPICS

    admin = AdminClient(dict(client))
    cluster = admin.list_topics(timeout=10)
    replicas = min(3, len(cluster.brokers))
    missing = [name for name in TOPICS if name not in cluster.topics]
    for name in missing:
        ensure_topic(admin, TopicSpec(name, PARTITIONS, replicas, TOPICS[name]), TIMEOUT_S)
    return missing


def _trade(
    producer: Producer,
    client: Mapping[str, str | int | float | bool],
    rate: float,
    events: int | None,
    seed: int,
    failures: list[str],
) -> dict[str, int]:
    """Send events until Ctrl-C or until there are `events` of them; return how many went to each topic."""
    import time

    from confluent_kafka import Consumer

    from pessoa.platform.shop import trade

    shipping = Consumer({**client, "group.id": GROUP, "auto.offset.reset": "earliest"})
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


def _send(producer: Producer, event: Event, failures: list[str]) -> None:
    def on_delivery(error: KafkaError | None, _: object) -> None:
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
