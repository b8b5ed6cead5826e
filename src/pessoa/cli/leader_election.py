"""`kafka-leader-election`: make the preferred replica the leader again, or any replica at all (unclean)."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

from pessoa.base.java_order import hash_order, partition_hash
from pessoa.cli import command_line as line
from pessoa.cli.command_line import INTEGER, Options, UsageError
from pessoa.cli.tool_run import connect, tool, warn
from pessoa.client.client_errors import KafkaFailure, RequestFailed, check
from pessoa.wire.errors import ErrorCode

if TYPE_CHECKING:
    from pessoa.cli.command_line import Given
    from pessoa.client.cluster_client import Cluster
    from pessoa.client.offset_admin import TopicPartition

_TYPES = {"PREFERRED": 0, "UNCLEAN": 1}
_TIMEOUT_MS = 30_000


def make_options() -> Options:
    options = Options(
        "kafka-leader-election",
        "This tool attempts to elect a new leader for a set of topic partitions. The type of elections supported are "
        "preferred replicas and unclean replicas.",
    )
    options.text("bootstrap-server", "the brokers to begin with", metavar="host:port")
    options.text("command-config", "a properties file for the connection", metavar="config file",
                 aliases=("admin.config",))  # fmt: skip
    options.text("election-type", "preferred or unclean", metavar="[PREFERRED,UNCLEAN]")
    options.text("topic", "the topic", metavar="topic name")
    options.text("partition", "the partition", metavar="partition id", kind=INTEGER)
    options.flag("all-topic-partitions", "all partitions of all topics")
    options.text("path-to-json-file", 'a file like {"partitions": [{"topic": "foo", "partition": 1}]}',
                 metavar="path to JSON file")  # fmt: skip
    return options


@tool(make_options, line.begin_tersely)
def main(given: Given) -> int:
    try:
        partitions = _check(given)
        kind = given.value("election-type").upper()
        with connect(given) as cluster:
            return _elect(cluster, kind, partitions)
    except UsageError as error:
        raise UsageError(str(error), with_help=False) from None
    except KafkaFailure as failure:
        warn(f"Failed to perform election for partitions: {failure}")
        return 1


def _check(given: Given) -> list[TopicPartition] | None:
    """Return the partitions to elect leaders for; None for all. Raises UsageError for options that do not go
    together."""
    required = [name for name in ("bootstrap-server", "election-type") if not given.has(name)]
    if required:
        raise UsageError(f"Missing required option(s): {', '.join(required)}")
    if given.value("election-type").upper() not in _TYPES:
        raise UsageError(f"Cannot parse argument '{given.value('election-type')}' of option election-type")
    if sum(given.has(name) for name in ("topic", "all-topic-partitions", "path-to-json-file")) != 1:
        raise UsageError(
            "One and only one of the following options is required: topic, all-topic-partitions, path-to-json-file"
        )
    if given.has("topic"):
        if not given.has("partition"):
            raise UsageError("Missing required option(s): partition")
        return [(given.value("topic"), given.number("partition"))]
    if given.has("partition"):
        raise UsageError("Option partition is only allowed if topic is used")
    return _read(given.value("path-to-json-file")) if given.has("path-to-json-file") else None


def _read(path: str) -> list[TopicPartition]:
    from pathlib import Path

    try:
        content = json.loads(Path(path).read_text(encoding="utf-8"))
    except OSError:
        raise UsageError(f"java.io.IOException: Unable to read file {path}") from None
    except ValueError:
        raise UsageError("Replica election data is empty") from None
    if "partitions" not in content:
        raise UsageError('Replica election data is missing "partitions" field')
    return [(str(one["topic"]), int(one["partition"])) for one in content["partitions"]]


def _elect(cluster: Cluster, kind: str, partitions: list[TopicPartition] | None) -> int:
    from pessoa.wire.api.elect_leaders import ElectLeadersRequest, ElectLeadersResponse, TopicPartitions

    wanted = None
    if partitions is not None:
        topics: dict[str, list[int]] = {}
        for topic, number in partitions:
            topics.setdefault(topic, []).append(number)
        wanted = [TopicPartitions(topic=topic, partitions=numbers) for topic, numbers in topics.items()]
    request = ElectLeadersRequest(election_type=_TYPES[kind], topic_partitions=wanted, timeout_ms=_TIMEOUT_MS)
    answer = cluster.ask(request, ElectLeadersResponse, name="electLeaders")
    check(answer.error_code)
    elected, unneeded, failed = [], [], []
    results = {(one.topic, part.partition_id): part for one in answer.replica_election_results
               for part in one.partition_result}  # fmt: skip
    for topic, number in hash_order(results, partition_hash):
        part = results[topic, number]
        if not part.error_code:
            elected.append(f"{topic}-{number}")
        elif part.error_code == ErrorCode.ELECTION_NOT_NEEDED:
            unneeded.append(f"{topic}-{number}")
        else:
            failed.append((f"{topic}-{number}", RequestFailed(part.error_code, part.error_message)))
    if elected:
        print(f"Successfully completed leader election ({kind}) for partitions {', '.join(elected)}")
    if unneeded:
        print(f"Valid replica already elected for partitions {', '.join(unneeded)}")
    for name, failure in failed:
        print(f"Error completing leader election ({kind}) for partition: {name}: {failure.java_text}")
    if failed:
        sys.stdout.flush()
        warn(f"{len(failed)} replica(s) could not be elected")
        return 1
    return 0
