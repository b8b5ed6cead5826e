"""`kafka-transactions`: what transactions there are, who writes to a partition, and ending one that hangs (KIP-664)."""

from __future__ import annotations

import argparse
import time
from typing import TYPE_CHECKING

from pessoa.cli.subcommands import Failed, Parser, connect, parsed_tool, print_table
from pessoa.client.client_errors import KafkaFailure, RequestFailed, check

if TYPE_CHECKING:
    from pessoa.client.cluster_client import Cluster
    from pessoa.wire.api.describe_producers import ProducerState

_HANGING = "Topic Partition ProducerId ProducerEpoch CoordinatorEpoch StartOffset LastTimestamp Duration(min)".split()
_FIFTEEN_MINUTES = 15


def make_parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="kafka-transactions.sh",
        description="This tool is used to analyze the transactional state of producers in the cluster.",
    )
    parser.add_argument("-v", "--version", action="version", version="4.3.1")
    parser.add_argument("--command-config", metavar="FILE", help="a properties file for the connection")
    parser.add_argument("--bootstrap-server", metavar="host:port", required=True, help="the brokers to begin with")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    listing = commands.add_parser("list", help="list transactions")
    listing.add_argument("--duration-filter", type=int, help="only those that run for longer, in ms")
    listing.add_argument("--transactional-id-pattern", help="only ids that match this expression")
    describe = commands.add_parser("describe", help="describe a transaction")
    describe.add_argument("--transactional-id", required=True)
    producers = commands.add_parser("describe-producers", help="who writes to a partition")
    producers.add_argument("--broker-id", type=int, help="ask this replica and not the leader")
    abort = commands.add_parser("abort", help="end a hanging transaction; mind what is said in the manual")
    for command in (producers, abort):
        command.add_argument("--topic", required=True)
        command.add_argument("--partition", type=int, required=True)
    for name in ("--start-offset", "--producer-id", "--producer-epoch", "--coordinator-epoch"):
        abort.add_argument(name, type=int)
    hanging = commands.add_parser("find-hanging", help="find hanging transactions")
    hanging.add_argument("--broker-id", type=int)
    hanging.add_argument("--max-transaction-timeout", type=int, default=_FIFTEEN_MINUTES, help="in minutes")
    hanging.add_argument("--topic")
    hanging.add_argument("--partition", type=int)
    force = commands.add_parser("forceTerminateTransaction", help="end the transaction of an id")
    force.add_argument("--transactionalId", required=True, dest="transactional_id")
    return parser


@parsed_tool(make_parser)
def main(chosen: argparse.Namespace) -> None:
    if (
        chosen.command == "abort"
        and chosen.start_offset is None
        and None
        in (
            chosen.producer_id,
            chosen.producer_epoch,
            chosen.coordinator_epoch,
        )
    ):
        raise Failed(
            "The transaction to abort must be identified either with --start-offset (for brokers on 3.0 or above) or "
            "with --producer-id, --producer-epoch, and --coordinator-epoch (for older brokers)"
        )
    if chosen.command == "find-hanging" and chosen.topic is None and chosen.broker_id is None:
        raise Failed(
            "The `find-hanging` command requires either --topic or --broker-id to limit the scope of the search"
        )
    with connect(chosen.bootstrap_server, None, chosen.command_config) as cluster:
        {
            "list": _list,
            "describe": _describe,
            "describe-producers": _describe_producers,
            "abort": _abort,
            "find-hanging": _find_hanging,
            "forceTerminateTransaction": _terminate,
        }[chosen.command](cluster, chosen)


def _list(cluster: Cluster, chosen: argparse.Namespace) -> None:
    from pessoa.wire.api.list_transactions import ListTransactionsRequest, ListTransactionsResponse

    request = ListTransactionsRequest(
        state_filters=[],
        producer_id_filters=[],
        duration_filter=-1 if chosen.duration_filter is None else chosen.duration_filter,
        transactional_id_pattern=chosen.transactional_id_pattern,
    )
    rows: list[tuple[str, int, int, str]] = []
    for node in cluster.nodes():
        answer = cluster.ask(request, ListTransactionsResponse, node=node.node_id, name="listTransactions")
        check(answer.error_code)
        rows += [
            (one.transactional_id, node.node_id, one.producer_id, one.transaction_state)
            for one in answer.transaction_states
        ]
    print_table(["TransactionalId", "Coordinator", "ProducerId", "TransactionState"], rows)


def _describe(cluster: Cluster, chosen: argparse.Namespace) -> None:
    from pessoa.wire.api.describe_transactions import DescribeTransactionsRequest, DescribeTransactionsResponse
    from pessoa.wire.errors import ErrorCode

    name = chosen.transactional_id
    try:
        node = cluster.coordinator(name, transactions=True)
        answer = cluster.ask(
            DescribeTransactionsRequest(transactional_ids=[name]),
            DescribeTransactionsResponse,
            node=node,
            name="describeTransactions",
        )
        state = answer.transaction_states[0]
        if state.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
            raise RequestFailed(
                state.error_code,
                f"DescribeTransactions request for transactionalId `{name}` failed because the ID could not be found",
            )
        check(state.error_code)
    except KafkaFailure as failure:
        raise Failed(
            f"Failed to describe transaction state of transactional-id `{name}`: {failure}. Enable debug logging for "
            "additional detail."
        ) from failure
    start = state.transaction_start_time_ms
    duration = "None" if start < 0 else str(int(time.time() * 1000) - start)
    partitions = ",".join(f"{topic.topic}-{number}" for topic in state.topics for number in topic.partitions)
    header = (
        "CoordinatorId TransactionalId ProducerId ProducerEpoch TransactionState TransactionTimeoutMs "
        "CurrentTransactionStartTimeMs TransactionDurationMs TopicPartitions"
    ).split()
    row = (node, name, state.producer_id, state.producer_epoch, state.transaction_state, state.transaction_timeout_ms,
           "None" if start < 0 else start, duration, partitions)  # fmt: skip
    print_table(header, [row])


def _producers(cluster: Cluster, topic: str, partition: int, broker: int | None, where: str) -> list[ProducerState]:
    from pessoa.client.offset_admin import leaders
    from pessoa.wire.api.describe_producers import (
        DescribeProducersRequest,
        DescribeProducersResponse,
        TopicRequest,
    )
    from pessoa.wire.errors import ErrorCode

    try:
        node = leaders(cluster, [topic]).get((topic, partition), -1) if broker is None else broker
        if node < 0:
            raise RequestFailed(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        request = DescribeProducersRequest(topics=[TopicRequest(name=topic, partition_indexes=[partition])])
        answer = cluster.ask(request, DescribeProducersResponse, node=node, name="describeProducers")
        part = answer.topics[0].partitions[0]
        check(part.error_code, part.error_message)
    except KafkaFailure as failure:
        raise Failed(
            f"Failed to describe producers for partition {topic}-{partition} on {where}: {failure}. Enable debug "
            "logging for additional detail."
        ) from failure
    return part.active_producers


def _describe_producers(cluster: Cluster, chosen: argparse.Namespace) -> None:
    where = "leader" if chosen.broker_id is None else f"broker {chosen.broker_id}"
    found = _producers(cluster, chosen.topic, chosen.partition, chosen.broker_id, where)
    header = (
        "ProducerId ProducerEpoch LatestCoordinatorEpoch LastSequence LastTimestamp CurrentTransactionStartOffset"
    ).split()
    rows = [
        (
            one.producer_id,
            one.producer_epoch,
            one.coordinator_epoch,
            one.last_sequence,
            one.last_timestamp,
            one.current_txn_start_offset if one.current_txn_start_offset >= 0 else "None",
        )
        for one in found
    ]
    print_table(header, rows)


def _abort(cluster: Cluster, chosen: argparse.Namespace) -> None:
    from pessoa.client.offset_admin import leaders
    from pessoa.wire.api.write_txn_markers import (
        WritableTxnMarker,
        WritableTxnMarkerTopic,
        WriteTxnMarkersRequest,
        WriteTxnMarkersResponse,
    )

    producer_id, epoch, coordinator = chosen.producer_id, chosen.producer_epoch, chosen.coordinator_epoch
    if chosen.start_offset is not None:
        found = _producers(cluster, chosen.topic, chosen.partition, None, "leader")
        match = [one for one in found if one.current_txn_start_offset == chosen.start_offset]
        if not match:
            raise Failed(
                f"Could not find any open transactions starting at offset {chosen.start_offset} on partition "
                f"{chosen.topic}-{chosen.partition}"
            )
        producer_id, epoch, coordinator = match[0].producer_id, match[0].producer_epoch, match[0].coordinator_epoch
    marker = WritableTxnMarker(
        producer_id=producer_id,
        producer_epoch=epoch,
        transaction_result=False,
        topics=[WritableTxnMarkerTopic(name=chosen.topic, partition_indexes=[chosen.partition])],
        # A transaction that wrote nothing but data has seen no coordinator, and any is newer than that.
        coordinator_epoch=max(0, coordinator),
    )
    leader = leaders(cluster, [chosen.topic]).get((chosen.topic, chosen.partition))
    request = WriteTxnMarkersRequest(markers=[marker])
    answer = cluster.ask(request, WriteTxnMarkersResponse, node=leader, name="abortTransaction")
    for one in answer.markers:
        for topic in one.topics:
            for part in topic.partitions:
                check(part.error_code)


def _find_hanging(cluster: Cluster, chosen: argparse.Namespace) -> None:
    from pessoa.client.topic_admin import list_topics

    oldest = int(time.time() * 1000) - (chosen.max_transaction_timeout + 5) * 60_000
    rows: list[tuple[object, ...]] = []
    topics = list_topics(cluster)
    for topic in sorted(topics.values(), key=lambda topic: topic.name):
        if chosen.topic is not None and topic.name != chosen.topic:
            continue
        for part in topic.partitions:
            if chosen.partition is not None and part.partition != chosen.partition:
                continue
            if chosen.broker_id is not None and chosen.broker_id not in part.replicas:
                continue
            rows += [
                _hanging_row(topic.name, part.partition, one)
                for one in _producers(cluster, topic.name, part.partition, chosen.broker_id, "leader")
                if one.current_txn_start_offset >= 0 and one.last_timestamp < oldest
            ]
    print_table(_HANGING, rows)


def _hanging_row(topic: str, partition: int, one: ProducerState) -> tuple[object, ...]:
    minutes = (int(time.time() * 1000) - one.last_timestamp) // 60_000
    return (topic, partition, one.producer_id, one.producer_epoch, one.coordinator_epoch, one.current_txn_start_offset,
            one.last_timestamp, minutes)  # fmt: skip


def _terminate(cluster: Cluster, chosen: argparse.Namespace) -> None:
    """Fence the old producer with a new one of the same transactional id, which aborts its open transaction."""
    from pessoa.wire.api.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

    name = chosen.transactional_id
    request = InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=1)

    def attempt() -> None:
        node = cluster.coordinator(name, transactions=True)
        check(cluster.ask(request, InitProducerIdResponse, node=node, name="fenceProducers").error_code)

    cluster.retried(attempt, name="fenceProducers")
