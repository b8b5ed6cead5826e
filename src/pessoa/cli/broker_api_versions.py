"""`kafka-broker-api-versions`: which APIs each broker serves, in which versions, and which of them we would use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pessoa.cli import command_line as line
from pessoa.cli.command_line import Options
from pessoa.cli.tool_run import connect, tool
from pessoa.wire.catalogue import ApiKey

if TYPE_CHECKING:
    from pessoa.cli.command_line import Given
    from pessoa.client.blocking_connection import Connection


def make_options() -> Options:
    options = Options("kafka-broker-api-versions", "Retrieve broker version information.")
    options.text("bootstrap-server", "the brokers to begin with", metavar="server(s) to use for bootstrapping")
    options.text("command-config", "a properties file for the connection", metavar="command config property file")
    return options


# APIs that are between brokers only, or that Kafka keeps to its controllers: no client asks for them.
_NOT_FOR_CLIENTS = frozenset(
    """
    VOTE BEGIN_QUORUM_EPOCH END_QUORUM_EPOCH ALTER_PARTITION ENVELOPE FETCH_SNAPSHOT BROKER_REGISTRATION
    BROKER_HEARTBEAT ALLOCATE_PRODUCER_IDS CONTROLLER_REGISTRATION ASSIGN_REPLICAS_TO_DIRS UPDATE_RAFT_VOTER
    """.split()
)


@tool(make_options, line.begin_tersely)
def main(given: Given) -> int:
    line.require(given, "bootstrap-server")
    with connect(given) as cluster:
        for node in cluster.nodes():
            print(f"{node} -> (")
            print(",\n".join(f"\t{text}" for text in _lines(cluster.connection(node.node_id))))
            print(")")
    return 0


def _lines(connection: Connection) -> list[str]:
    served_versions = {row.api_key: (row.min_version, row.max_version) for row in connection.api_versions.api_keys}
    lines = []
    for key in ApiKey:
        if key in served_versions:
            lines.append(_line(key, *served_versions[key]))
        elif key.name not in _NOT_FOR_CLIENTS:
            lines.append(f"{key.title}({int(key)}): UNSUPPORTED")
    known = {int(key) for key in ApiKey}
    for number, (oldest, newest) in sorted(served_versions.items()):
        if number not in known:
            lines.append(f"UNKNOWN({number}): {_range(oldest, newest)}")
    return lines


def _line(key: ApiKey, oldest: int, newest: int) -> str:
    client_versions = key.request.versions
    # Apache spells out that its oldest Produce is not its oldest usable one.
    if min(newest, client_versions.last) >= max(oldest, client_versions.first):
        verdict = f"[usable: {min(newest, client_versions.last)}]"
    else:
        verdict = f"[unusable: node too {'new' if oldest > client_versions.last else 'old'}]"
    return f"{key.title}({int(key)}): {_range(oldest, newest)} {verdict}"


def _range(oldest: int, newest: int) -> str:
    return str(oldest) if oldest == newest else f"{oldest} to {newest}"
