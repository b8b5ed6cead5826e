"""`kafka-get-offsets`: the offsets of partitions at a time, `topic:partition:offset`, one a line.

Once it was `kafka.tools.GetOffsetShell`, with --broker-list, which still works.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from pessoa.cli import command_line as line
from pessoa.cli.command_line import Options, UsageError
from pessoa.cli.tool_run import connect, tool, warn
from pessoa.client.client_errors import KafkaFailure, RequestFailed
from pessoa.wire.errors import ErrorCode

if TYPE_CHECKING:
    from pessoa.cli.command_line import Given

_TIMES = {
    "latest": -1,
    "earliest": -2,
    "max-timestamp": -3,
    "earliest-local": -4,
    "latest-tiered": -5,
    "earliest-pending-upload": -6,
}

Filter = Callable[[str, int], bool]


def make_options() -> Options:
    purpose = "An interactive shell for getting topic-partition offsets."
    options = Options("kafka-get-offsets", purpose, greeting=purpose)
    options.text("bootstrap-server", "the brokers to begin with", metavar="HOST1:PORT1,...,HOST3:PORT3",
                 aliases=("broker-list",))  # fmt: skip
    options.text("topic", "a regular expression of topics", metavar="topic")
    options.text("partitions", "partitions with commas between them; all without", metavar="partition ids")
    options.text("topic-partitions", "topics and partitions: topic:0,topic:3-7,:2-", metavar="topic1:1,topic2:0-3,...")
    names = ", ".join(f"{number} or {name}" for name, number in _TIMES.items())
    options.text("time", f"a time in ms, or {names}", metavar="<timestamp> / ...", default="latest")
    options.text("command-config", "a properties file for the connection", metavar="config file")
    options.flag("exclude-internal-topics", "leave out Kafka's own topics")
    return options


def _parse_line(options: Options, words: Sequence[str]) -> Given:
    try:
        return line.begin(options, words)
    except UsageError as error:
        if not words:
            raise
        raise UsageError(f"Error occurred: {error}", with_help=False) from None


@tool(make_options, _parse_line)
def main(given: Given) -> int:
    line.require(given, "bootstrap-server")
    try:
        return _print_offsets(given)
    except UsageError as error:
        raise UsageError(f"Error occurred: {error}", with_help=False) from None
    except KafkaFailure as failure:
        warn(f"Error occurred: {failure.java_text}")
        return 1


def _print_offsets(given: Given) -> int:
    from pessoa.client.offset_admin import FoundOffset, list_offsets
    from pessoa.client.topic_admin import list_topics

    if given.has("topic-partitions") and given.has_any("topic", "partitions"):
        raise UsageError("--topic-partitions cannot be used with --topic or --partitions")
    time = _time(given.value("time"))
    is_wanted = _filter(given)
    with connect(given) as cluster:
        topics = list_topics(cluster, internal=not given.has("exclude-internal-topics"))
        wanted = {
            (topic.name, part.partition): time
            for topic in sorted(topics.values(), key=lambda topic: topic.name)
            for part in topic.partitions
            if is_wanted(topic.name, part.partition)
        }
        if not wanted:
            raise UsageError("Could not match any topic-partitions with the specified filters")
        found = list_offsets(cluster, wanted)
    for topic, partition in sorted(wanted):
        offset = found[topic, partition]
        if isinstance(offset, RequestFailed):
            if offset.code is ErrorCode.LEADER_NOT_AVAILABLE or offset.code.retriable:
                warn(f"Skip getting offsets for topic-partition {topic}-{partition} due to error: {offset}")
            continue
        assert isinstance(offset, FoundOffset)
        if offset.offset >= 0:
            print(f"{topic}:{partition}:{offset.offset}")
    return 0


def _time(text: str) -> int:
    if text in _TIMES:
        return _TIMES[text]
    try:
        return int(text)
    except ValueError:
        raise UsageError(
            f"Malformed time argument {text}. Please use -1 or latest / -2 or earliest / -3 or max-timestamp / "
            "-4 or earliest-local / -5 or latest-tiered / -6 or earliest-pending-upload, or a specified long format "
            "timestamp"
        ) from None


def _filter(given: Given) -> Filter:
    if given.has("topic-partitions"):
        rules = [_rule(text) for text in given.value("topic-partitions").split(",")]
        return lambda topic, partition: any(rule(topic, partition) for rule in rules)
    topics = _topic_filter(given.maybe("topic"))
    partitions = _partition_list(given.maybe("partitions"))
    return lambda topic, partition: topics(topic) and (partitions is None or partition in partitions)


def _topic_filter(text: str | None) -> Callable[[str], bool]:
    if not text:
        return lambda _: True
    expression = re.compile(text.strip().replace(",", "|").replace(" ", "").strip("\"'"))
    return lambda topic: expression.fullmatch(topic) is not None


def _partition_list(text: str | None) -> set[int] | None:
    if not text:
        return None
    try:
        return {int(part) for part in text.split(",")}
    except ValueError:
        raise UsageError(
            f"--partitions expects a comma separated list of numeric partition ids, but received: {text}"
        ) from None


# topic, :partition, topic:partition, topic:from-until, topic:from-, topic:-until
_RULE = re.compile(r"([^:,]*)(?::(?:([0-9]+)|(?:([0-9]+)-([0-9]*))|(?:-([0-9]+))))?")


def _rule(text: str) -> Filter:
    match = _RULE.fullmatch(text)
    if match is None:
        raise UsageError(f"org.apache.kafka.tools.TerseException: Invalid rule specification: {text}")
    topics = _topic_filter(match[1])
    if match[2]:
        lowest, end = int(match[2]), int(match[2]) + 1
    else:
        lowest = int(match[3] or 0)
        upper = match[4] or match[5]
        end = int(upper) if upper else sys.maxsize
    return lambda topic, partition: topics(topic) and lowest <= partition < end
