"""`kafka-cluster`: show the id of a cluster and its endpoints, and unregister a broker that no longer exists."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from pessoa.cli.subcommands import Failed, Parser, connect, parsed_tool
from pessoa.client.client_errors import Unsupported, check
from pessoa.client.cluster_client import Node


def make_parser() -> argparse.ArgumentParser:
    parser = Parser(prog="kafka-cluster", description="The Kafka cluster tool.")
    commands = parser.add_subparsers(dest="command", required=True, metavar="{cluster-id,unregister,list-endpoints}")
    identify = commands.add_parser("cluster-id", help="print the id of the cluster")
    unregister = commands.add_parser("unregister", help="unregister a broker")
    endpoints = commands.add_parser("list-endpoints", help="list the endpoints of the cluster")
    for command in (identify, unregister, endpoints):
        where = command.add_mutually_exclusive_group(required=True)
        where.add_argument("--bootstrap-server", "-b", help="the brokers to begin with")
        where.add_argument("--bootstrap-controller", "-C", help="the controllers to begin with")
        command.add_argument("--config", help="the old name of --command-config")
        command.add_argument("--command-config", "-c", help="a properties file for the connection")
    unregister.add_argument("--id", "-i", type=int, required=True, help="the id of the broker")
    endpoints.add_argument("--include-fenced-brokers", action="store_true", help="list brokers that are fenced too")
    return parser


@parsed_tool(make_parser)
def main(chosen: argparse.Namespace) -> None:
    if chosen.config is not None:
        if chosen.command_config is not None:
            raise Failed("--config and --command-config cannot be specified together.")
        print(
            "Option --config has been deprecated and will be removed in a future version. Use --command-config instead."
        )
    if chosen.bootstrap_controller is not None and getattr(chosen, "include_fenced_brokers", False):
        raise Failed("The option --include-fenced-brokers is only supported with --bootstrap-server option")
    settings = chosen.command_config or chosen.config
    with connect(chosen.bootstrap_server, chosen.bootstrap_controller, settings) as cluster:
        if chosen.command == "cluster-id":
            print(f"Cluster ID: {cluster.describe().cluster_id}")
        elif chosen.command == "unregister":
            from pessoa.wire.api.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse

            try:
                answer = cluster.ask(
                    UnregisterBrokerRequest(broker_id=chosen.id), UnregisterBrokerResponse, name="unregisterBroker"
                )
            except Unsupported:
                raise Failed("The target cluster does not support the broker unregistration API.") from None
            check(answer.error_code, answer.error_message)
            print(f"Broker {chosen.id} is no longer registered.")
        else:
            _list_endpoints(cluster.describe(fenced=chosen.include_fenced_brokers).nodes, chosen)


def _list_endpoints(nodes: Sequence[Node], chosen: argparse.Namespace) -> None:
    shows_state = chosen.bootstrap_controller is None
    host_width = max([len("HOST"), *(len(node.host) for node in nodes)])
    rack_width = max([10, *(len(str(node.rack)) for node in nodes)])
    header = ["ID", "HOST", "PORT", "RACK", *(["STATE"] if shows_state else ()), "ENDPOINT_TYPE"]
    widths = [10, host_width, 10, rack_width, *([10] if shows_state else ()), 15]
    rows = [
        [
            str(node.node_id),
            node.host,
            str(node.port),
            node.rack or "null",
            *(["fenced" if node.is_fenced else "unfenced"] if shows_state else ()),
            "broker" if shows_state else "controller",
        ]
        for node in nodes
    ]
    for row in (header, *rows):
        print(" ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)))
