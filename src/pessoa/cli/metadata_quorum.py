"""`kafka-metadata-quorum`: who leads the KRaft quorum, how far its members are, adding and removing controllers."""

from __future__ import annotations

import argparse
import time
from typing import TYPE_CHECKING

from pessoa.base.ids import ZERO_UUID, Uuid
from pessoa.cli.subcommands import Failed, Parser, connect, parsed_tool, print_table
from pessoa.client.client_errors import check

if TYPE_CHECKING:
    from pessoa.client.cluster_client import Cluster
    from pessoa.wire.api.describe_quorum import (
        DescribeQuorumResponse,
        DescribeQuorumResponsePartitionData,
        ReplicaState,
    )

_TOPIC = "__cluster_metadata"


def make_parser() -> argparse.ArgumentParser:
    parser = Parser(prog="kafka-metadata-quorum", description="This tool describes kraft metadata quorum status.")
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--bootstrap-server", help="the brokers to begin with")
    where.add_argument("--bootstrap-controller", help="the controllers to begin with")
    parser.add_argument("--command-config", help="a properties file for the connection")
    commands = parser.add_subparsers(dest="command", required=True)
    describe = commands.add_parser("describe", help="describe the quorum")
    describe.add_argument("--status", action="store_true", help="a short summary")
    describe.add_argument("--replication", action="store_true", help="how far each replica is")
    describe.add_argument("--human-readable", "-hr", action="store_true", help="times as people say them")
    add = commands.add_parser("add-controller", help="add the controller of --command-config")
    remove = commands.add_parser("remove-controller", help="remove a controller")
    remove.add_argument("--controller-id", "-i", type=int, required=True, help="its id")
    remove.add_argument("--controller-directory-id", "-d", required=True, help="the id of its metadata directory")
    for command in (add, remove):
        command.add_argument("--dry-run", action="store_true", help="only say what would be done")
    return parser


@parsed_tool(make_parser)
def main(chosen: argparse.Namespace) -> None:
    if chosen.command == "describe":
        if chosen.status and chosen.replication:
            raise Failed("Only one of --status or --replication should be specified with describe sub-command")
        if not chosen.status and not chosen.replication:
            raise Failed("One of --status or --replication must be specified with describe sub-command")
        if chosen.status and chosen.human_readable:
            raise Failed("The option --human-readable is only supported along with --replication")
    elif chosen.command == "add-controller" and chosen.command_config is None:
        raise Failed(
            "You must supply the configuration file of the controller you are adding when using add-controller."
        )
    with connect(chosen.bootstrap_server, chosen.bootstrap_controller, chosen.command_config) as cluster:
        if chosen.command == "describe":
            answer = _quorum(cluster)
            _print_status(cluster, answer) if chosen.status else _print_replicas(answer, chosen.human_readable)
        elif chosen.command == "add-controller":
            _add(cluster, chosen)
        else:
            _remove(cluster, chosen)


def _quorum(cluster: Cluster) -> DescribeQuorumResponse:
    from pessoa.wire.api.describe_quorum import (
        DescribeQuorumRequest,
        DescribeQuorumResponse,
        PartitionData,
        TopicData,
    )

    wanted = [TopicData(topic_name=_TOPIC, partitions=[PartitionData(partition_index=0)])]
    request = DescribeQuorumRequest(topics=wanted)

    def attempt() -> DescribeQuorumResponse:
        answer = cluster.ask(request, DescribeQuorumResponse, name="describeMetadataQuorum")
        check(answer.error_code, answer.error_message or None)
        part = _partition(answer)
        check(part.error_code, part.error_message or None)
        return answer

    return cluster.retried(attempt, name="describeMetadataQuorum")


def _partition(answer: DescribeQuorumResponse) -> DescribeQuorumResponsePartitionData:
    return answer.topics[0].partitions[0]


def _leader(part: DescribeQuorumResponsePartitionData) -> ReplicaState:
    return next(voter for voter in part.current_voters if voter.replica_id == part.leader_id)


def _print_status(cluster: Cluster, answer: DescribeQuorumResponse) -> None:
    part = _partition(answer)
    leader = _leader(part)
    others = [one for one in part.current_voters if one.replica_id != part.leader_id]
    slowest = min(others, key=lambda one: one.log_end_offset, default=leader)
    endpoints = {
        node.node_id: [f"{one.name}://{one.host}:{one.port}" for one in node.listeners] for node in answer.nodes
    }
    lag_time_ms = 0
    if slowest is not leader:
        caught_up = slowest.last_caught_up_timestamp
        lag_time_ms = leader.last_caught_up_timestamp - caught_up if caught_up >= 0 else -1
    rows = {
        "ClusterId": cluster.describe().cluster_id,
        "LeaderId": part.leader_id,
        "LeaderEpoch": part.leader_epoch,
        "HighWatermark": part.high_watermark,
        "MaxFollowerLag": leader.log_end_offset - slowest.log_end_offset,
        "MaxFollowerLagTimeMs": lag_time_ms,
        "CurrentVoters": _replicas(part.current_voters, endpoints),
        "CurrentObservers": _replicas(part.observers, {}),
    }
    for name, value in rows.items():
        print(f"{name + ':':<24}{value}")


def _replicas(replicas: list[ReplicaState], endpoints: dict[int, list[str]]) -> str:
    shown = []
    for one in replicas:
        fields = [f'"id": {one.replica_id}']
        if one.replica_directory_id != ZERO_UUID:
            fields.append(f'"directoryId": "{one.replica_directory_id}"')
        if endpoints.get(one.replica_id):
            listed = ", ".join(f'"{endpoint}"' for endpoint in endpoints[one.replica_id])
            fields.append(f'"endpoints": [{listed}]')
        shown.append(f"{{{', '.join(fields)}}}")
    return f"[{', '.join(shown)}]"


def _print_replicas(answer: DescribeQuorumResponse, human: bool) -> None:
    part = _partition(answer)
    leader = _leader(part)
    followers = [one for one in part.current_voters if one is not leader]
    now_ms = int(time.time() * 1000)

    def shown(timestamp: int) -> str:
        return f"{now_ms - timestamp} ms ago" if human and timestamp >= 0 else str(timestamp)

    rows = [
        (
            one.replica_id,
            one.replica_directory_id,
            one.log_end_offset,
            leader.log_end_offset - one.log_end_offset,
            shown(one.last_fetch_timestamp),
            shown(one.last_caught_up_timestamp),
            status,
        )
        for replicas, status in (([leader], "Leader"), (followers, "Follower"), (part.observers, "Observer"))
        for one in replicas
    ]
    header = "NodeId DirectoryId LogEndOffset Lag LastFetchTimestamp LastCaughtUpTimestamp Status".split()
    print_table(header, rows)


def _remove(cluster: Cluster, chosen: argparse.Namespace) -> None:
    from pessoa.wire.api.remove_raft_voter import RemoveRaftVoterRequest, RemoveRaftVoterResponse

    directory = _uuid(chosen.controller_directory_id)
    if chosen.controller_id < 0:
        raise Failed("Invalid negative --controller-id")
    text = f"KRaft controller {chosen.controller_id} with directory id {directory}"
    if chosen.dry_run:
        print(f"DRY RUN of removing  {text}")
        return
    request = RemoveRaftVoterRequest(cluster_id=None, voter_id=chosen.controller_id, voter_directory_id=directory)
    answer = cluster.ask(request, RemoveRaftVoterResponse, name="removeRaftVoter")
    check(answer.error_code, answer.error_message)
    print(f"Removed {text}")


def _uuid(text: str) -> Uuid:
    try:
        return Uuid.parse(text)
    except ValueError:
        raise Failed(f"Failed to parse --controller-directory-id: Illegal base64 text {text}") from None


def _add(cluster: Cluster, chosen: argparse.Namespace) -> None:
    from pessoa.wire.api.add_raft_voter import AddRaftVoterRequest, AddRaftVoterResponse, Listener

    settings = cluster.settings
    node_id, directory = _own_identity(settings)
    names = [name.strip() for name in settings.get("controller.listener.names", "").split(",") if name.strip()]
    listeners = []
    for text in (settings.get("advertised.listeners") or settings.get("listeners", "")).split(","):
        name, _, address = text.strip().partition("://")
        if name in names:
            host, _, port = address.rpartition(":")
            listeners.append(Listener(name=name, host=host or "localhost", port=int(port)))
    shown = ", ".join(f"{one.name}://{one.host}:{one.port}" for one in listeners)
    text = f"controller {node_id} with directory id {directory} and endpoints: {shown}"
    if chosen.dry_run:
        print(f"DRY RUN of adding {text}")
        return
    request = AddRaftVoterRequest(
        cluster_id=None,
        timeout_ms=cluster.api_timeout_ms,
        voter_id=node_id,
        voter_directory_id=directory,
        listeners=listeners,
    )
    answer = cluster.ask(request, AddRaftVoterResponse, name="addRaftVoter")
    check(answer.error_code, answer.error_message)
    print(f"Added {text}")


def _own_identity(settings: dict[str, str]) -> tuple[int, Uuid]:
    """Return the node id and directory id of the controller with these settings; the latter is in its formatted
    directory."""
    from pathlib import Path

    from pessoa.cli.tool_run import read_properties

    if "node.id" not in settings:
        raise Failed("node.id not found in the configuration file. Is this a valid controller configuration file?")
    if "controller" not in settings.get("process.roles", ""):
        raise Failed("process.roles did not contain 'controller' in the configuration file. Is this a valid controller "
                     "configuration file?")  # fmt: skip
    directory = settings.get("metadata.log.dir") or settings.get("log.dirs", settings.get("log.dir", "")).split(",")[0]
    meta = read_properties(str(Path(directory) / "meta.properties"))
    if "directory.id" not in meta:
        raise Failed(f"No directory id found in {directory}")
    return int(settings["node.id"]), Uuid.parse(meta["directory.id"])
