"""`kafka-client-metrics`: which metrics the clients push to the brokers (KIP-714), as named subscriptions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pessoa.cli.command_line import Options, UsageError
from pessoa.cli.tool_run import connect, tool, warn
from pessoa.client.client_errors import KafkaFailure
from pessoa.client.config_admin import (
    Change,
    Operation,
    ResourceType,
    Source,
    alter_configs,
    describe_configs,
    list_resources,
)

if TYPE_CHECKING:
    from pessoa.cli.command_line import Given
    from pessoa.client.cluster_client import Cluster
    from pessoa.client.config_admin import Entry as ConfigEntry

_ACTIONS = ("alter", "delete", "describe", "list")


def make_options() -> Options:
    options = Options("kafka-client-metrics", "Manipulate and describe client metrics configurations.")
    text = options.text
    text("bootstrap-server", "the brokers to begin with", metavar="server to connect to")
    text("command-config", "a properties file for the connection", metavar="command config property file")
    options.flag("alter", "change a subscription, or make one")
    options.flag("delete", "delete a subscription")
    options.flag("describe", "describe subscriptions")
    options.flag("list", "list the subscriptions")
    text("name", "its name", metavar="name")
    options.flag("generate-name", "make up a name")
    text("metrics", "prefixes of metric names, with commas; empty removes it", metavar="m1,m2", optional_value=True)
    text("interval", "how often clients push, in ms; empty removes it", metavar="push interval", optional_value=True)
    text("match", "which clients: key=regex, with commas; empty removes it", metavar="k1=v1,k2=v2", optional_value=True)
    return options


@tool(make_options)
def main(given: Given) -> int:
    _check(given)
    try:
        with connect(given) as cluster:
            _execute(cluster, given)
    except KafkaFailure as failure:
        print(f"Error while executing client metrics command : {failure}")
        warn(f"ERROR {failure.java_text}")
        return 1
    return 0


def _check(given: Given) -> None:
    if not given.has("bootstrap-server"):
        raise UsageError("--bootstrap-server must be specified", with_help=False)
    if sum(given.has(name) for name in _ACTIONS) != 1:
        raise UsageError("Command must include exactly one action: --alter, --delete, --describe or --list.")
    if given.has("alter"):
        if given.has("name") == given.has("generate-name"):
            raise UsageError("One of --name or --generate-name must be specified with --alter.", with_help=False)
        interval = given.maybe("interval")
        if interval and not interval.lstrip("-").isdigit():
            raise UsageError("Invalid interval value. Enter an integer, or leave empty to reset.", with_help=False)
    if given.has("delete") and not given.has("name"):
        raise UsageError("A client metrics resource name must be specified with --delete.", with_help=False)


def _execute(cluster: Cluster, given: Given) -> None:
    if given.has("list"):
        print("\n".join(list_resources(cluster, ResourceType.CLIENT_METRICS)))
    elif given.has("alter"):
        name = given.maybe("name") or _new_name()
        changes = []
        for option, key in (("interval", "interval.ms"), ("metrics", "metrics"), ("match", "match")):
            if given.has(option):
                value = given.maybe(option) or ""
                changes.append(Change(key, value, Operation.SET if value else Operation.DELETE))
        alter_configs(cluster, (ResourceType.CLIENT_METRICS, name), changes)
        print(f"Altered client metrics config for {name}.")
    elif given.has("delete"):
        name = given.value("name")
        deletions = [Change(key, "", Operation.DELETE) for key in _own_keys(cluster, name)]
        alter_configs(cluster, (ResourceType.CLIENT_METRICS, name), deletions)
        print(f"Deleted client metrics config for {name}.")
    else:
        _describe(cluster, given.maybe("name"))


def _describe(cluster: Cluster, name: str | None) -> None:
    known = list_resources(cluster, ResourceType.CLIENT_METRICS)
    if name is not None and name not in known:
        print(f"The client metric resource {name} doesn't exist and doesn't have dynamic config.")
        return
    for one in [name] if name is not None else known:
        print(f"Client metrics configs for {one} are:")
        for entry in sorted(_entries(cluster, one), key=lambda entry: entry.name):
            print(f"  {entry.name}={entry.value or ''}")


def _own_keys(cluster: Cluster, name: str) -> list[str]:
    entries = _entries(cluster, name)
    return sorted(entry.name for entry in entries if entry.source is Source.DYNAMIC_CLIENT_METRICS_CONFIG)


def _entries(cluster: Cluster, name: str) -> list[ConfigEntry]:
    resource = ResourceType.CLIENT_METRICS, name
    return describe_configs(cluster, [resource])[resource]


def _new_name() -> str:
    import uuid

    from pessoa.base.ids import Uuid

    return str(Uuid(uuid.uuid4().bytes))
