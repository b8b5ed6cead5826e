"""`kafka-configs`: describe and change the settings of topics, brokers, clients, users, addresses, groups and metrics.

What is meant is said in two ways, `--entity-type topics --entity-name orders` or `--topic orders`; --entity-default
and `--broker-defaults` mean what holds where nothing else is said. Users, clients and addresses have quotas, users
SCRAM credentials too (configs_quotas); all others have settings in Kafka's ordinary sense.
"""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING, NamedTuple

from pessoa.cli import command_line as line
from pessoa.cli.command_line import Given, Options, UsageError
from pessoa.cli.tool_run import default_cluster, reach, read_properties, tool, warn
from pessoa.client.client_errors import KafkaFailure, Unsupported

if TYPE_CHECKING:
    from pessoa.client.cluster_client import Cluster
    from pessoa.client.config_admin import Entry, ResourceType

# The types in the order of the shortcut flags, which is the order in which several of them are put.
_TYPES = {
    "topics": "topic",
    "clients": "client",
    "users": "user",
    "brokers": "broker",
    "broker-loggers": "broker-logger",
    "ips": "ip",
    "groups": "group",
    "client-metrics": "client-metrics",
}
_DEFAULTS = {"clients": "client-defaults", "users": "user-defaults", "brokers": "broker-defaults", "ips": "ip-defaults"}
_LISTED_TYPES = "topics, clients, users, brokers, ips, client-metrics, groups, broker-loggers"
_QUOTA_TYPES = ("users", "clients", "ips")
_PAIR = re.compile(r",(?=[^\]]*(?:\[|$))")
_NAMES = ("--entity-name", "--entity-default")


class Target(NamedTuple):
    """An entity type and one of its entities: by name, "" for the default, None for all."""

    kind: str
    name: str | None

    @property
    def singular(self) -> str:
        return "client-metric" if self.kind == "client-metrics" else self.kind.removesuffix("s")


def make_options() -> Options:
    options = Options(
        "kafka-configs",
        "Manipulate and describe entity config for a topic, client, user, broker, ip, client-metrics or group",
    )
    text, flag = options.text, options.flag
    text("bootstrap-server", "the brokers to begin with", metavar="server to connect to")
    text("bootstrap-controller", "the controllers to begin with", metavar="controller to connect to")
    text("command-config", "a properties file for the connection", metavar="command config property file")
    flag("alter", "change settings")
    flag("describe", "show settings")
    flag("all", "describe all settings, not only those that were set")
    text("entity-type", f"what kind: {_LISTED_TYPES}", metavar="String")
    text("entity-name", "the name of it", metavar="String")
    flag("entity-default", "the default of that kind")
    text("add-config", "what to set: k1=v1,k2=[v1,v2]", metavar="String")
    text("add-config-file", "a properties file of what to set", metavar="String")
    text("delete-config", "what to remove: k1,k2", metavar="config key list", separator=",")
    for kind, shortcut in _TYPES.items():
        text(shortcut, f"means --entity-type {kind} --entity-name", metavar="String")
    for kind, shortcut in _DEFAULTS.items():
        flag(shortcut, f"means --entity-type {kind} --entity-default")
    flag("force", "from earlier days", hidden=True)
    text("zookeeper", "from earlier days: means the default cluster", metavar="hosts", hidden=True)
    return options


@tool(make_options, line.begin_tersely)
def main(given: Given) -> int:
    try:
        targets = _check(given)
        with _connect(given) as cluster:
            if given.has("describe"):
                _describe(cluster, given, targets)
            else:
                _alter(cluster, given, targets)
    except UsageError as error:
        # This tool prints its help only if no action was named.
        raise UsageError(str(error), with_help="exactly one action" in str(error)) from None
    except KafkaFailure as failure:
        sys.stdout.flush()
        warn(f"Error while executing config command with args '{' '.join(given.line)}'")
        warn(f"java.util.concurrent.ExecutionException: {failure.java_text}")
        return 1
    return 0


def _connect(given: Given) -> Cluster:
    settings = read_properties(given.value("command-config")) if given.has("command-config") else {}
    if given.has("bootstrap-controller"):
        return reach(given.value("bootstrap-controller"), settings, controllers=True)
    return reach(given.maybe("bootstrap-server") or default_cluster(), settings)


def _check(given: Given) -> list[Target]:
    if given.has("alter") == given.has("describe"):
        raise UsageError("Command must include exactly one action: --describe, --alter")
    if given.has("zookeeper") and not given.has_any("bootstrap-server", "bootstrap-controller"):
        warn(f"Warning: there is no ZooKeeper; using --bootstrap-server {default_cluster()}.")
    elif not given.has_any("bootstrap-server", "bootstrap-controller"):
        raise UsageError("Either --bootstrap-server or --bootstrap-controller must be specified.")
    if given.has("bootstrap-server") and given.has("bootstrap-controller"):
        raise UsageError("Only one of --bootstrap-server or --bootstrap-controller can be specified")
    targets = _targets(given)
    _check_targets(given, targets)
    if given.has("alter") and not given.has_any("add-config", "add-config-file", "delete-config"):
        raise UsageError(
            "At least one of --add-config, --add-config-file, or --delete-config must be specified with --alter"
        )
    return targets


def _targets(given: Given) -> list[Target]:
    kinds = given.values("entity-type")
    names = _names(given)
    for kind in kinds:
        if kind not in _TYPES:
            raise UsageError(
                f"Invalid entity type {kind}, the entity type must be one of {_LISTED_TYPES} with a "
                "--bootstrap-server or --bootstrap-controller argument"
            )
    targets = [Target(kind, names[index] if index < len(names) else None) for index, kind in enumerate(kinds)]
    for kind, shortcut in _TYPES.items():
        if given.has(shortcut):
            targets.append(Target(kind, given.value(shortcut)))
        elif kind in _DEFAULTS and given.has(_DEFAULTS[kind]):
            targets.append(Target(kind, ""))
    if not targets:
        raise UsageError("At least one entity type must be specified")
    found = [target.kind for target in targets]
    if duplicates := [kind for index, kind in enumerate(found) if kind in found[:index]]:
        raise UsageError(f"Duplicate entity type(s) specified: {','.join(dict.fromkeys(duplicates))}")
    if len(targets) > 1 and set(found) != {"users", "clients"}:
        raise UsageError("Only 'users' and 'clients' entity types may be specified together")
    return targets


def _names(given: Given) -> list[str]:
    """Return the names of entities, "" for a default, in the order of the command line: the first belongs to the
    first type, and both of two types may be defaults."""
    named = iter(given.values("entity-name"))
    options = [word.partition("=")[0] for word in given.line]
    return [next(named) if one == "--entity-name" else "" for one in options if one in _NAMES]


def _check_targets(given: Given, targets: list[Target]) -> None:
    for kind, name in targets:
        if kind in ("brokers", "broker-loggers") and name and not name.lstrip("-").isdigit():
            raise UsageError(f"The entity name for {kind} must be a valid integer broker id, but it is: {name}")
        has_default = kind in _DEFAULTS
        if given.has("describe"):
            if name == "" and not has_default:
                raise UsageError(f"--entity-default must not be specified with --describe of {kind}")
            if kind == "broker-loggers" and name is None:
                raise UsageError("An entity name must be specified with --describe of broker-loggers")
        elif name is None:
            what = "An entity-name or default entity" if has_default else "An entity name"
            raise UsageError(f"{what} must be specified with --alter of {', '.join(one.kind for one in targets)}")
        elif name == "" and not has_default:
            raise UsageError(f"An entity name must be specified with --alter of {kind}")


# Describe.


def _describe(cluster: Cluster, given: Given, targets: list[Target]) -> None:
    kind, name = targets[0]
    if kind in _QUOTA_TYPES:
        from pessoa.cli.configs_quotas import describe

        describe(cluster, targets)
        return
    if given.has("bootstrap-controller") and kind not in ("brokers", "broker-loggers"):
        failure = KafkaFailure(
            "This Admin API is not yet supported when communicating directly with the controller quorum."
        )
        failure.java_name = "org.apache.kafka.common.errors.UnsupportedEndpointTypeException"
        raise failure
    known = _known_names(cluster, kind)
    if name and known is not None and name not in known:
        print(f"The {targets[0].singular} '{name}' doesn't exist and doesn't have dynamic config.")
        return
    names = [name] if name is not None else [*(known or []), *([""] if kind == "brokers" else ())]
    for one in names:
        _describe_one(cluster, Target(kind, one), given.has("all"))


def _known_names(cluster: Cluster, kind: str) -> list[str] | None:
    """Return every entity of a kind; None if the cluster cannot list them."""
    from pessoa.client.config_admin import ResourceType, list_resources

    if kind == "topics":
        from pessoa.base.java_order import hash_order, string_hash
        from pessoa.client.topic_admin import list_topics

        return hash_order(list_topics(cluster), string_hash)
    if kind in ("brokers", "broker-loggers"):
        return [str(node.node_id) for node in cluster.nodes()]
    resource = ResourceType.CLIENT_METRICS if kind == "client-metrics" else ResourceType.GROUP
    try:
        found = list_resources(cluster, resource)
    except Unsupported:
        return None
    if kind == "groups":
        from pessoa.client.group_admin import list_groups

        found = list(dict.fromkeys([*(group.group_id for group in list_groups(cluster)), *found]))
    return found


def _describe_one(cluster: Cluster, target: Target, shows_all: bool) -> None:
    entries = _entries(cluster, target, shows_all)
    if target.kind == "brokers" and target.name == "":
        print("Default configs for brokers in the cluster are:")
    else:
        print(f"{'All' if shows_all else 'Dynamic'} configs for {target.singular} {target.name} are:")
    for entry in entries:
        synonyms = ", ".join(f"{one.source.name}:{one.name}={_value_text(one.value)}" for one in entry.synonyms)
        sensitive = str(entry.is_sensitive).lower()
        print(f"  {entry.name}={_value_text(entry.value)} sensitive={sensitive} synonyms={{{synonyms}}}")


def _value_text(value: str | None) -> str:
    return "null" if value is None else value


def _entries(cluster: Cluster, target: Target, shows_all: bool, synonyms: bool = True) -> list[Entry]:
    """Return settings by name: all of them, or those that were set on this very entity."""
    from pessoa.client.config_admin import Source, describe_configs

    resource = _resource(target)
    own = {
        "topics": Source.DYNAMIC_TOPIC_CONFIG,
        "brokers": Source.DYNAMIC_BROKER_CONFIG if target.name else Source.DYNAMIC_DEFAULT_BROKER_CONFIG,
        "broker-loggers": None,
        "client-metrics": Source.DYNAMIC_CLIENT_METRICS_CONFIG,
        "groups": Source.DYNAMIC_GROUP_CONFIG,
    }[target.kind]
    found = describe_configs(cluster, [resource], synonyms=synonyms)[resource]
    wanted = [entry for entry in found if shows_all or own is None or entry.source is own]
    return sorted(wanted, key=lambda entry: entry.name)


def _resource(target: Target) -> tuple[ResourceType, str]:
    from pessoa.client.config_admin import ResourceType

    kinds = {
        "topics": ResourceType.TOPIC,
        "brokers": ResourceType.BROKER,
        "broker-loggers": ResourceType.BROKER_LOGGER,
        "client-metrics": ResourceType.CLIENT_METRICS,
        "groups": ResourceType.GROUP,
    }
    return kinds[target.kind], target.name or ""


# Alter.


def _alter(cluster: Cluster, given: Given, targets: list[Target]) -> None:
    added, removed = _parse_additions(given), [key.strip() for key in given.values("delete-config")]
    target = targets[0]
    if target.kind in _QUOTA_TYPES:
        from pessoa.cli.configs_quotas import alter

        alter(cluster, targets, added, removed)
    else:
        _alter_one(cluster, target, added, removed)
    if target.name:
        print(f"Completed updating config for {target.singular} {target.name}.")
    else:
        print(f"Completed updating default config for {target.kind} in the cluster.")


def _parse_additions(given: Given) -> dict[str, str]:
    if given.has("add-config-file"):
        return read_properties(given.value("add-config-file"))
    if not given.has("add-config"):
        return {}
    added = {}
    for pair in _PAIR.split(given.value("add-config")):
        key, equals, value = pair.partition("=")
        if not equals:
            raise UsageError(
                'requirement failed: Invalid entity config: all configs to be added must be in the format "key=val" '
                'or  "key=[val1,val2]" to group values which contain commas.'
            )
        added[key.strip()] = value.strip().replace("[", "").replace("]", "")
    return added


def _alter_one(cluster: Cluster, target: Target, added: dict[str, str], removed: list[str]) -> None:
    from pessoa.client.config_admin import Change, Operation, alter_configs

    if target.kind == "broker-loggers":
        known = {entry.name for entry in _entries(cluster, target, shows_all=True)}
        if unknown := [name for name in (*added, *removed) if name not in known]:
            raise UsageError(f"Invalid broker logger(s): {','.join(unknown)}")
    changes = [Change(key, value) for key, value in added.items()]
    changes += [Change(key, "", Operation.DELETE) for key in removed]
    alter_configs(cluster, _resource(target), changes)
