"""`kafka-verifiable-share-consumer`: a member of a share group that reports every event in JSON lines."""

from __future__ import annotations

import argparse
import signal
from typing import TYPE_CHECKING

from pessoa.cli.subcommands import Failed, Parser, parsed_tool
from pessoa.cli.tool_run import reach, read_properties, warn
from pessoa.cli.verifiable import event, record_data

if TYPE_CHECKING:
    from collections.abc import Mapping

    from confluent_kafka import KafkaException, Message, ShareConsumer, TopicPartition

_POLL_S = 0.2
_COMMIT_S = 30.0
_MODES = ("auto", "sync", "async")


def make_parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="verifiable-share-consumer",
        description="This tool consumes messages as a member of a share group and tells of every event.",
    )
    option = parser.add_argument
    option("--topic", required=True, help="the topic to consume")
    option("--group-id", required=True, help="the share group")
    option("--max-messages", type=int, default=-1, help="how many; -1 is without end")
    option("--verbose", action="store_true", help="tell of every record")
    option("--acknowledgement-mode", default="auto", help=f"{', '.join(_MODES)}")
    option(
        "--offset-reset-strategy", default="", help="earliest or latest, for partitions that the group does not know"
    )
    option("--command-config", help="a properties file of the consumer")
    option("--bootstrap-server", required=True, help="the brokers to begin with")
    return parser


@parsed_tool(make_parser, helps_empty_lines=True)
def main(chosen: argparse.Namespace) -> int:
    from confluent_kafka import KafkaException, ShareConsumer

    from pessoa.client.librdkafka import check_addresses, to_librdkafka

    mode = chosen.acknowledgement_mode.lower()
    if mode not in _MODES:
        raise Failed(f"--acknowledgement-mode must be one of {', '.join(_MODES)}, and not {mode}")
    own = read_properties(chosen.command_config) if chosen.command_config else {}
    check_addresses(chosen.bootstrap_server, "consumer")
    try:
        consumer = ShareConsumer(
            {
                **to_librdkafka(own, warn),
                "bootstrap.servers": chosen.bootstrap_server,
                "group.id": chosen.group_id,
                "log_level": 0,
            }
        )
    except KafkaException as error:
        raise Failed(error.args[0].str()) from error
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    consumer.set_acknowledgement_commit_callback(_report_acknowledged)
    event("startup_complete")
    try:
        if chosen.offset_reset_strategy:
            _set_reset_strategy(chosen, own)
        consumer.subscribe([chosen.topic])
        _consume(consumer, chosen, mode)
    except KeyboardInterrupt:
        event("shutdown_requested")
    finally:
        consumer.close()
        event("shutdown_complete")
    return 0


def _set_reset_strategy(chosen: argparse.Namespace, own: Mapping[str, str]) -> None:
    """Set the share group's `share.auto.offset.reset`: where a group begins is a config of the group, not of its
    members."""
    from pessoa.client.config_admin import Change, ResourceType, alter_configs

    strategy = chosen.offset_reset_strategy.lower()
    with reach(chosen.bootstrap_server, own) as cluster:
        alter_configs(cluster, (ResourceType.GROUP, chosen.group_id), [Change("share.auto.offset.reset", strategy)])
    event("offset_reset_strategy_set", offsetResetStrategy=strategy)


def _consume(consumer: ShareConsumer, chosen: argparse.Namespace, mode: str) -> None:
    count = 0
    while chosen.max_messages < 0 or count < chosen.max_messages:
        messages = [one for one in consumer.poll(_POLL_S) if one.error() is None]
        if not messages:
            continue
        count += len(messages)
        if chosen.verbose:
            for one in messages:
                record_data(one)
        offsets: dict[tuple[str, int], list[int]] = {}
        for one in messages:
            offsets.setdefault(_place(one), []).append(one.offset() or 0)
        event("records_consumed", count=len(messages), partitions=_partitions(offsets))
        if mode == "sync":
            consumer.commit_sync(_COMMIT_S)
        elif mode == "async":
            consumer.commit_async()
    # librdkafka does not report what it acknowledges while it closes.
    consumer.commit_sync(_COMMIT_S)


def _place(message: Message) -> tuple[str, int]:
    return message.topic() or "", message.partition() or 0


def _partitions(offsets: Mapping[tuple[str, int], list[int]]) -> list[dict[str, object]]:
    return [
        {"topic": topic, "partition": number, "count": len(found), "offsets": found}
        for (topic, number), found in offsets.items()
    ]


def _report_acknowledged(results: Mapping[TopicPartition, set[int]], error: KafkaException | None) -> None:
    offsets = {(one.topic, one.partition): sorted(found) for one, found in results.items()}
    fields: dict[str, object] = {"count": sum(map(len, offsets.values())), "partitions": _partitions(offsets)}
    if error is None:
        event("offsets_acknowledged", **fields, success=True)
    else:
        event("offsets_acknowledged", **fields, success=False, error=str(error))
