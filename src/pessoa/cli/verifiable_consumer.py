"""`kafka-verifiable-consumer`: a member of a group that reports every event in JSON lines."""

from __future__ import annotations

import argparse
import signal
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pessoa.cli.subcommands import Failed, Parser, parsed_tool
from pessoa.cli.tool_run import warn
from pessoa.cli.verifiable import event, own_properties, record_data

if TYPE_CHECKING:
    from confluent_kafka import Consumer, TopicPartition

_BATCH = 500
_POLL_S = 0.2


def make_parser() -> argparse.ArgumentParser:
    parser = Parser(prog="verifiable-consumer", description="This tool consumes messages and tells of every event.")
    option = parser.add_argument
    option("--topic", required=True, help="the topic to consume")
    option("--group-protocol", default="classic", choices=["classic", "consumer", "CLASSIC", "CONSUMER"])
    option("--group-remote-assignor", help="the assignor of the broker, for --group-protocol consumer")
    option("--group-id", required=True, help="the group")
    option("--group-instance-id", help="the name of a static member")
    option("--max-messages", type=int, default=-1, help="how many; -1 is without end")
    option("--session-timeout", type=int, default=30_000, help="in ms, for --group-protocol classic")
    option("--verbose", action="store_true", help="tell of every record")
    option("--enable-autocommit", action="store_true", help="let the client commit")
    option("--reset-policy", default="earliest", help="earliest, latest or none")
    option("--assignment-strategy", default="range", help="the class of the assignor")
    option("--consumer.config", dest="consumer_config", help="the old name of --command-config")
    option("--command-config", help="a properties file of the consumer")
    option("--close-timeout", type=int, default=30_000, help="in ms")
    option("--bootstrap-server", "--broker-list", required=True, help="the brokers to begin with")
    return parser


def _settings(chosen: argparse.Namespace) -> dict[str, str | int | float | bool]:
    from pessoa.client.librdkafka import check_addresses, to_librdkafka

    own = own_properties(make_parser(), chosen.command_config, "consumer.config", chosen.consumer_config)
    check_addresses(chosen.bootstrap_server, "consumer")
    protocol = chosen.group_protocol.lower()
    options = {
        "bootstrap.servers": chosen.bootstrap_server,
        "group.id": chosen.group_id,
        "group.protocol": protocol,
        "auto.offset.reset": chosen.reset_policy,
        "enable.auto.commit": str(chosen.enable_autocommit).lower(),
    }
    if protocol == "classic":
        options["partition.assignment.strategy"] = chosen.assignment_strategy
        options["session.timeout.ms"] = str(chosen.session_timeout)
    elif chosen.group_remote_assignor:
        options["group.remote.assignor"] = chosen.group_remote_assignor
    if chosen.group_instance_id:
        options["group.instance.id"] = chosen.group_instance_id
    return {**to_librdkafka({**own, **options}, warn), "log_level": 0}


@parsed_tool(make_parser, helps_empty_lines=True)
def main(chosen: argparse.Namespace) -> int:
    from confluent_kafka import Consumer, KafkaException

    try:
        consumer = Consumer(_settings(chosen))
    except KafkaException as error:
        raise Failed(error.args[0].str()) from error
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    event("startup_complete")

    def told(name: str) -> Callable[[Consumer, list[TopicPartition]], None]:
        return lambda _, partitions: event(name, partitions=[_partition(one) for one in partitions])

    consumer.subscribe([chosen.topic], on_assign=told("partitions_assigned"), on_revoke=told("partitions_revoked"))
    try:
        _consume(consumer, chosen)
        is_asked = False
    except KeyboardInterrupt:
        is_asked = True
        event("shutdown_requested")
    finally:
        consumer.close()
        event("shutdown_complete")
    if not is_asked:
        # Java's tool says so whenever its process ends; who has had enough records has ended by then.
        event("shutdown_requested")
    return 0


def _partition(one: TopicPartition) -> dict[str, object]:
    return {"topic": one.topic, "partition": one.partition}


def _consume(consumer: Consumer, chosen: argparse.Namespace) -> None:
    count = 0
    while chosen.max_messages < 0 or count < chosen.max_messages:
        found = [one for one in consumer.consume(_BATCH, _POLL_S) if one.error() is None]
        if not found:
            continue
        # What came beyond the last that is wanted counts as come, and as nothing else.
        messages = found if chosen.max_messages < 0 else found[: chosen.max_messages - count]
        count += len(messages)
        _report_consumed(messages, len(found), chosen.verbose)
        if not chosen.enable_autocommit:
            _commit(consumer, messages)


def _report_consumed(messages: list[Any], count: int, verbose: bool) -> None:
    ranges: dict[tuple[str, int], list[int]] = {}
    for one in messages:
        if verbose:
            record_data(one)
        ranges.setdefault((one.topic(), one.partition()), []).append(one.offset())
    partitions = [
        {"topic": topic, "partition": number, "count": len(found), "minOffset": found[0], "maxOffset": found[-1]}
        for (topic, number), found in ranges.items()
    ]
    event("records_consumed", count=count, partitions=partitions)


def _commit(consumer: Consumer, messages: list[Any]) -> None:
    from confluent_kafka import KafkaException, TopicPartition

    last = {(one.topic(), one.partition()): one.offset() + 1 for one in messages}
    offsets = [{"topic": topic, "partition": number, "offset": offset} for (topic, number), offset in last.items()]
    try:
        consumer.commit(
            offsets=[TopicPartition(topic, number, offset) for (topic, number), offset in last.items()],
            asynchronous=False,
        )
    except KafkaException as error:
        event("offsets_committed", offsets=offsets, success=False, error=error.args[0].str())
    else:
        event("offsets_committed", offsets=offsets, success=True)
