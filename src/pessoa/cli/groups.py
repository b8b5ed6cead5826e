"""`kafka-groups`: the groups of every kind (classic, consumer, share, streams) in one list."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pessoa.cli import command_line as line
from pessoa.cli.command_line import Options, UsageError
from pessoa.cli.tool_run import connect, tool, warn
from pessoa.client.client_errors import KafkaFailure

if TYPE_CHECKING:
    from pessoa.cli.command_line import Given
    from pessoa.client.group_admin import GroupListing

_KINDS = ("classic", "consumer", "share", "streams")


def make_options() -> Options:
    options = Options("kafka-groups", "List groups of all types.", "Missing required option(s) [bootstrap-server]")
    options.text("bootstrap-server", "the brokers to begin with", metavar="server to connect to", required=True)
    options.text("command-config", "a properties file for the connection", metavar="command config property file")
    options.flag("list", "list the groups")
    options.text("group-type", f"only of this type: {', '.join(_KINDS)}", metavar="type")
    options.text("protocol", "only of this protocol type", metavar="protocol")
    options.flag("consumer", "only consumer groups, of either protocol")
    options.flag("share", "only share groups")
    options.flag("streams", "only streams groups")
    return options


@tool(make_options)
def main(given: Given) -> int:
    if not given.has("list"):
        raise UsageError("Command must include exactly one action: --list.")
    if given.has("consumer"):
        line.refuse(given, "consumer", "group-type", "protocol", "share", "streams")
    line.refuse(given, "share", "consumer", "group-type", "protocol", "streams")
    line.refuse(given, "streams", "consumer", "group-type", "protocol", "share")
    kind = given.maybe("group-type")
    if kind is not None and kind.lower() not in _KINDS:
        raise UsageError("--group-type must be a valid group type.", with_help=False)
    try:
        with connect(given) as cluster:
            from pessoa.client.group_admin import list_groups

            groups = [group for group in list_groups(cluster) if _is_wanted(group, given)]
    except KafkaFailure as failure:
        print(f"Error while executing groups command : {failure}")
        warn(f"ERROR {failure.java_text}")
        return 1
    width = max([20, *(len(group.group_id) for group in groups)])
    rows = [(group.group_id, group.kind.capitalize(), group.protocol_type) for group in groups]
    for row in (("GROUP", "TYPE", "PROTOCOL"), *rows):
        print(" ".join(f"{cell:<{width}}" for cell in row))
    return 0


def _is_wanted(group: GroupListing, given: Given) -> bool:
    kind = group.kind.lower()
    if given.has("consumer"):
        return kind == "consumer" or (kind == "classic" and group.protocol_type in ("", "consumer"))
    for name in ("share", "streams"):
        if given.has(name) and kind != name:
            return False
    wanted, protocol = given.maybe("group-type"), given.maybe("protocol")
    return (wanted is None or kind == wanted.lower()) and (protocol is None or group.protocol_type == protocol)
