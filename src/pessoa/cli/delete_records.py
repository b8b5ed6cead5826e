"""`kafka-delete-records`: forget the records of partitions below an offset; -1 means all that are committed."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from pessoa.base.java_order import hash_order, partition_hash
from pessoa.cli import command_line as line
from pessoa.cli.command_line import Options, UsageError
from pessoa.cli.tool_run import connect, tool
from pessoa.client.client_errors import RequestFailed
from pessoa.wire.errors import ErrorCode

if TYPE_CHECKING:
    from pessoa.cli.command_line import Given
    from pessoa.client.cluster_client import Cluster
    from pessoa.client.offset_admin import TopicPartition


def make_options() -> Options:
    options = Options("kafka-delete-records", "Delete records of the given partitions down to the specified offset.")
    options.text("bootstrap-server", "the brokers to begin with", metavar="server(s) to use for bootstrapping")
    options.text(
        "offset-json-file",
        'a file like {"partitions": [{"topic": "foo", "partition": 1, "offset": 1}], "version": 1}',
        metavar="Offset json file path",
    )
    options.text("command-config", "a properties file for the connection", metavar="command config property file path")
    return options


@tool(make_options, line.begin_tersely)
def main(given: Given) -> int:
    line.require(given, "bootstrap-server", "offset-json-file")
    offsets = _read(given.value("offset-json-file"))
    with connect(given) as cluster:
        print("Executing records delete operation")
        outcome = _delete(cluster, offsets)
    print("Records delete operation completed:")
    for topic, partition in hash_order(offsets, partition_hash):
        result = outcome[topic, partition]
        shown = f"error: {result.java_text}" if isinstance(result, RequestFailed) else f"low_watermark: {result}"
        print(f"partition: {topic}-{partition}\t{shown}")
    return 0


def _read(path: str) -> dict[TopicPartition, int]:
    from pathlib import Path

    try:
        text = Path(path).read_text(encoding="utf-8")
    except OSError:
        raise UsageError(f"Unable to read file {path}", with_help=False) from None
    try:
        content = json.loads(text)
    except ValueError:
        raise UsageError("The input string is not a valid JSON", with_help=False) from None
    if content.get("version", 1) != 1:
        raise UsageError(f"Not supported version field value {content['version']}", with_help=False)
    if "partitions" not in content:
        raise UsageError("Missing partitions field", with_help=False)
    offsets: dict[TopicPartition, int] = {}
    for one in content["partitions"]:
        partition = str(one["topic"]), int(one["partition"])
        if partition in offsets:
            name = f"{partition[0]}-{partition[1]}"
            raise UsageError(f"Offset json file contains duplicate topic partitions: {name}", with_help=False)
        offsets[partition] = int(one["offset"])
    return offsets


def _delete(cluster: Cluster, offsets: dict[TopicPartition, int]) -> dict[TopicPartition, int | RequestFailed]:
    from pessoa.client.offset_admin import leaders
    from pessoa.wire.api.delete_records import (
        DeleteRecordsPartition,
        DeleteRecordsRequest,
        DeleteRecordsResponse,
        DeleteRecordsTopic,
    )

    known = leaders(cluster, (topic for topic, _ in offsets))
    outcome: dict[TopicPartition, int | RequestFailed] = {
        partition: RequestFailed(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION) for partition in offsets
    }
    for leader in sorted({known[partition] for partition in offsets if known.get(partition, -1) >= 0}):
        topics = [
            DeleteRecordsTopic(name=topic, partitions=[DeleteRecordsPartition(partition_index=number, offset=offset)])
            for (topic, number), offset in offsets.items()
            if known.get((topic, number)) == leader
        ]
        request = DeleteRecordsRequest(topics=topics, timeout_ms=cluster.api_timeout_ms)
        for topic in cluster.ask(request, DeleteRecordsResponse, node=leader, name="deleteRecords").topics:
            for part in topic.partitions:
                failed = RequestFailed(part.error_code) if part.error_code else None
                outcome[topic.name, part.partition_index] = failed or part.low_watermark
    return outcome
