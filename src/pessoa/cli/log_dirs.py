"""`kafka-log-dirs`: how much each partition takes on the disks of each broker, as one line of JSON."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from pessoa.base.java_order import hash_order, partition_hash
from pessoa.base.json_value import JsonObject, JsonValue
from pessoa.cli import command_line as line
from pessoa.cli.command_line import Options, UsageError
from pessoa.cli.tool_run import connect, tool, warn
from pessoa.client.client_errors import check, java_name, sentence
from pessoa.wire.errors import ErrorCode

if TYPE_CHECKING:
    from pessoa.cli.command_line import Given
    from pessoa.client.cluster_client import Cluster
    from pessoa.wire.api.describe_log_dirs import DescribeLogDirsResult


def make_options() -> Options:
    options = Options("kafka-log-dirs", "Query log directory usage on the specified brokers.")
    options.text("bootstrap-server", "the brokers to begin with", metavar="The server(s) to use for bootstrapping")
    options.text("command-config", "a properties file for the connection", metavar="Admin client property file")
    options.flag("describe", "describe the log directories")
    options.text("topic-list", "only these topics", metavar="Topic list", default="")
    options.text("broker-list", "only these brokers", metavar="Broker list")
    return options


@tool(make_options, line.begin_tersely)
def main(given: Given) -> int:
    line.require(given, "bootstrap-server", "describe")
    topics = {name for name in given.value("topic-list").split(",") if name}
    with connect(given) as cluster:
        known = [node.node_id for node in cluster.nodes()]
        wanted = [_broker_id(part) for part in (given.maybe("broker-list") or "").split(",") if part] or known
        if unknown := [str(broker) for broker in wanted if broker not in known]:
            warn(f"ERROR: The given brokers do not exist from --broker-list: {','.join(unknown)}. Current existent "
                 f"brokers: {','.join(map(str, known))}")  # fmt: skip
            return 1
        print("Querying brokers for log directories information")
        brokers = [{"broker": broker, "logDirs": _directories(cluster, broker, topics)} for broker in wanted]
    print(f"Received log directory information from brokers {','.join(map(str, wanted))}")
    print(json.dumps({"brokers": brokers, "version": 1}, separators=(",", ":"), ensure_ascii=False))
    return 0


def _broker_id(text: str) -> int:
    if not text.removeprefix("-").isdecimal():
        raise UsageError(f'For input string: "{text}"', with_help=False)
    return int(text)


def _directories(cluster: Cluster, broker: int, topics: set[str]) -> list[JsonObject]:
    from pessoa.wire.api.describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse

    answer = cluster.ask(
        DescribeLogDirsRequest(topics=None), DescribeLogDirsResponse, node=broker, name="describeLogDirs"
    )
    check(answer.error_code)
    return [_directory(one, topics) for one in answer.results]


def _directory(one: DescribeLogDirsResult, topics: set[str]) -> JsonObject:
    error = ErrorCode.of(one.error_code)
    parts = {(topic.name, part.partition_index): part for topic in one.topics for part in topic.partitions}
    shown: list[JsonValue] = [
        {
            "partition": f"{name}-{number}",
            "size": parts[name, number].partition_size,
            "offsetLag": parts[name, number].offset_lag,
            "isFuture": parts[name, number].is_future_key,
        }
        for name, number in hash_order(parts, partition_hash)
        if not topics or name in topics
    ]
    return {
        "partitions": shown,
        "error": f"{java_name(error)}: {sentence(error)}" if error.is_error else None,
        "logDir": one.log_dir,
    }
