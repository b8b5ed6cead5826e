"""`kafka-acls`: who may do what with which topic, group, transactional id, token, user, or the cluster.

--producer and --consumer stand for what producers and consumers need. Removing asks first unless --force is given.
The old --authorizer-properties zookeeper.connect=… is understood and means the default cluster.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from pessoa.cli import command_line as line
from pessoa.cli.command_line import Given, Options, UsageError
from pessoa.cli.tool_run import default_cluster, reach, read_properties, tool, warn
from pessoa.client.acl_admin import (
    EVERYTHING,
    Entry,
    Operation,
    Pattern,
    PatternType,
    Permission,
    ResourceType,
    create_acls,
    delete_acls,
    describe_acls,
)
from pessoa.client.client_errors import KafkaFailure

if TYPE_CHECKING:
    from pessoa.client.cluster_client import Cluster

_ACTIONS = ("list", "add", "remove")
_CLUSTER = Pattern(ResourceType.CLUSTER, "kafka-cluster", PatternType.LITERAL)
_RESOURCES = {
    "topic": ResourceType.TOPIC,
    "group": ResourceType.GROUP,
    "transactional-id": ResourceType.TRANSACTIONAL_ID,
    "delegation-token": ResourceType.DELEGATION_TOKEN,
    "user-principal": ResourceType.USER,
}
_OPERATIONS = {
    ResourceType.TOPIC: "READ WRITE CREATE DESCRIBE DELETE ALTER DESCRIBE_CONFIGS ALTER_CONFIGS",
    ResourceType.GROUP: "READ DESCRIBE DELETE DESCRIBE_CONFIGS ALTER_CONFIGS",
    ResourceType.CLUSTER: "CREATE CLUSTER_ACTION DESCRIBE_CONFIGS ALTER_CONFIGS IDEMPOTENT_WRITE ALTER DESCRIBE",
    ResourceType.TRANSACTIONAL_ID: "DESCRIBE WRITE TWO_PHASE_COMMIT",
    ResourceType.DELEGATION_TOKEN: "DESCRIBE",
    ResourceType.USER: "CREATE_TOKENS DESCRIBE_TOKENS",
}

Wanted = dict[Pattern, list[Entry]]


def make_options() -> Options:
    options = Options("kafka-acls", "Manage acls on kafka.")
    text, flag = options.text, options.flag
    text("bootstrap-server", "the brokers to begin with", metavar="server to connect to")
    text("bootstrap-controller", "the controllers to begin with", metavar="controller to connect to")
    text("command-config", "a properties file for the connection", metavar="command-config")
    flag("add", "add entries")
    flag("remove", "remove entries")
    flag("list", "list entries")
    text("topic", "a topic", metavar="topic")
    flag("cluster", "the cluster itself")
    text("group", "a consumer group", metavar="group")
    text("transactional-id", "a transactional id", metavar="transactional-id")
    text("delegation-token", "a delegation token", metavar="delegation-token")
    text("user-principal", "a user", metavar="user-principal")
    text("resource-pattern-type", "any, match, literal or prefixed", metavar="type", default="literal")
    text("operation", "what may be done", metavar="String", default="All")
    text("allow-principal", "who is allowed", metavar="allow-principal")
    text("deny-principal", "who is denied", metavar="deny-principal")
    text("principal", "list the entries of these only", metavar="principal")
    text("allow-host", "from where it is allowed", metavar="allow-host")
    text("deny-host", "from where it is denied", metavar="deny-host")
    flag("producer", "what a producer needs")
    flag("consumer", "what a consumer needs")
    flag("idempotent", "what an idempotent producer needs")
    flag("force", "do not ask")
    text("authorizer", "from earlier days", hidden=True)
    text("authorizer-properties", "from earlier days: means the default cluster", hidden=True)
    return options


class _LateUsageError(UsageError):
    """A usage error that is found after connecting, so it is printed as a failure of the command."""


@tool(make_options)
def main(given: Given) -> int:
    _check(given)
    try:
        with _connect(given) as cluster:
            if given.has("add"):
                _add(cluster, given)
            elif given.has("remove"):
                _remove(cluster, given)
            else:
                _list(cluster, given)
    except _LateUsageError as error:
        print(f"Error while executing ACL command: {error}")
        return 1
    except KafkaFailure as failure:
        print(f"Error while executing ACL command: {failure.java_text}")
        warn(f"java.util.concurrent.ExecutionException: {failure.java_text}")
        return 1
    return 0


def _connect(given: Given) -> Cluster:
    settings = read_properties(given.value("command-config")) if given.has("command-config") else {}
    if given.has("bootstrap-controller"):
        return reach(given.value("bootstrap-controller"), settings, controllers=True)
    return reach(given.maybe("bootstrap-server") or default_cluster(), settings)


def _check(given: Given) -> None:
    if given.has("authorizer-properties") and not given.has_any("bootstrap-server", "bootstrap-controller"):
        warn(f"Warning: there is no ZooKeeper; using --bootstrap-server {default_cluster()}.")
    elif not given.has_any("bootstrap-server", "bootstrap-controller"):
        raise UsageError("One of --bootstrap-server or --bootstrap-controller must be specified")
    if given.has("bootstrap-server") and given.has("bootstrap-controller"):
        raise UsageError("Only one of --bootstrap-server or --bootstrap-controller must be specified")
    if sum(given.has(name) for name in _ACTIONS) != 1:
        raise UsageError("Command must include exactly one action: --list, --add, --remove. ")
    line.refuse(given, "list", "producer", "consumer", "allow-host", "allow-principal", "deny-host", "deny-principal")
    line.refuse(given, "producer", "operation", "deny-principal", "deny-host")
    line.refuse(given, "consumer", "operation", "deny-principal", "deny-host")
    if given.has("principal") and not given.has("list"):
        raise UsageError("The --principal option is only available if --list is set")
    if given.has("producer") and not given.has("topic"):
        raise UsageError("With --producer you must specify a --topic")
    if given.has("idempotent") and not given.has("producer"):
        raise UsageError("The --idempotent option is only available if --producer is set")
    if given.has("consumer") and (
        not given.has("topic")
        or not given.has("group")
        or (not given.has("producer") and given.has_any("cluster", "transactional-id"))
    ):
        raise UsageError(
            "With --consumer you must specify a --topic and a --group and no --cluster or --transactional-id option "
            "should be specified."
        )


# What the command line means.


def _pattern_type(given: Given) -> PatternType:
    text = given.value("resource-pattern-type")
    found = PatternType.__members__.get(text.upper())
    if found is None:
        raise _LateUsageError(f"Cannot parse argument '{text}' of option resource-pattern-type")
    return found


def _patterns(given: Given, *, must_be_some: bool) -> list[Pattern]:
    kind = _pattern_type(given)
    found = [Pattern(_RESOURCES["topic"], name.strip(), kind) for name in given.values("topic")]
    if kind is PatternType.LITERAL and given.has_any("cluster", "idempotent"):
        found.append(_CLUSTER)
    for option in ("group", "transactional-id", "delegation-token", "user-principal"):
        found += [Pattern(_RESOURCES[option], name.strip(), kind) for name in given.values(option)]
    if not found and must_be_some:
        raise UsageError(
            "You must provide at least one resource: --topic <topic> or --cluster or --group <group> or "
            "--delegation-token <Delegation Token ID>"
        )
    return found


def _entries(given: Given, operations: Sequence[Operation]) -> list[Entry]:
    found = []
    for word, permission in (("allow", Permission.ALLOW), ("deny", Permission.DENY)):
        for principal in given.values(f"{word}-principal"):
            name = _principal(principal)
            hosts = [host.strip() for host in given.values(f"{word}-host")] or ["*"]
            found += [Entry(name, host, operation, permission) for operation in operations for host in hosts]
    return found


def _principal(text: str) -> str:
    text = text.strip()
    if ":" not in text:
        raise _LateUsageError(f"expected a string in format principalType:principalName but got {text}")
    return text


def _operation(text: str) -> Operation | None:
    return Operation.__members__.get(text.strip().replace("-", "_").upper()) or next(
        (one for one in Operation if one.name.replace("_", "") == text.strip().upper()), None
    )


def _parse_wanted(given: Given) -> Wanted:
    patterns = _patterns(given, must_be_some=True)
    wanted: Wanted = {}
    named = [_operation(text) for text in given.values("operation")]
    if not given.has("producer") and not given.has("consumer"):
        known = [one for one in named if one is not None]
        _check_operations(patterns, named)
        return {pattern: _entries(given, known) for pattern in patterns}
    if given.has("producer"):
        for pattern in patterns:
            if pattern.kind is ResourceType.TOPIC:
                wanted[pattern] = _entries(given, (Operation.DESCRIBE, Operation.WRITE, Operation.CREATE))
            elif pattern.kind is ResourceType.TRANSACTIONAL_ID:
                wanted[pattern] = _entries(given, (Operation.DESCRIBE, Operation.WRITE))
        if given.has("idempotent"):
            wanted[_CLUSTER] = _entries(given, (Operation.IDEMPOTENT_WRITE,))
    if given.has("consumer"):
        for pattern in patterns:
            if pattern.kind is ResourceType.TOPIC:
                more = _entries(given, (Operation.DESCRIBE, Operation.READ))
            elif pattern.kind is ResourceType.GROUP:
                more = _entries(given, (Operation.READ,))
            else:
                continue
            wanted[pattern] = list(dict.fromkeys([*wanted.get(pattern, ()), *more]))
    return wanted


def _check_operations(patterns: list[Pattern], operations: Sequence[Operation | None]) -> None:
    for pattern in patterns:
        valid = {Operation.ALL, *(Operation[name] for name in _OPERATIONS[pattern.kind].split())}
        if not set(operations) <= valid:
            listed = ", ".join(operation.name for operation in sorted(valid))
            raise UsageError(f"ResourceType {pattern.kind.name} only supports operations [{listed}]")


# The actions.


def _add(cluster: Cluster, given: Given) -> None:
    kind = _pattern_type(given)
    if kind in (PatternType.ANY, PatternType.MATCH):
        raise UsageError(f"A '--resource-pattern-type' value of '{kind.name}' is not valid when adding acls.")
    wanted = _parse_wanted(given)
    if not all(wanted.values()):
        raise UsageError("You must specify one of: --allow-principal, --deny-principal when trying to add ACLs.")
    for pattern, entries in wanted.items():
        existing = {entry for _, entry in describe_acls(cluster, pattern)}
        fresh = []
        for entry in entries:
            if entry in existing:
                print(f"Acl (pattern={pattern}, entry={entry}) already exists.")
            else:
                fresh.append(entry)
        if fresh:
            listed = "\n".join(f"\t{entry}" for entry in fresh)
            print(f"Adding ACLs for resource `{pattern}`: \n {listed}\n")
            create_acls(cluster, pattern, fresh)


def _remove(cluster: Cluster, given: Given) -> None:
    for pattern, entries in _parse_wanted(given).items():
        if not entries:
            question = f"Are you sure you want to delete all ACLs for resource filter `{pattern}`? (y/n)"
        else:
            listed = "\n".join(f"\t{entry}" for entry in entries)
            question = f"Are you sure you want to remove ACLs: \n {listed}\n from resource filter `{pattern}`? (y/n)"
        if given.has("force") or _is_confirmed(question):
            delete_acls(cluster, pattern, entries or None)


def _is_confirmed(question: str) -> bool:
    print(question, flush=True)
    return sys.stdin.readline().strip().lower() == "y"


def _list(cluster: Cluster, given: Given) -> None:
    found: Wanted = {}
    for pattern in _patterns(given, must_be_some=False) or [EVERYTHING]:
        for one, entry in describe_acls(cluster, pattern):
            found.setdefault(one, []).append(entry)
    principals = [_principal(text) for text in given.values("principal")]
    if not principals:
        _print(found)
    for principal in principals:
        print(f"ACLs for principal `{principal}`")
        own = {one: [entry for entry in entries if entry.principal == principal] for one, entries in found.items()}
        _print({one: entries for one, entries in own.items() if entries})


def _print(found: Wanted) -> None:
    for pattern, entries in found.items():
        listed = "\n".join(f"\t{entry}" for entry in entries)
        print(f"Current ACLs for resource `{pattern}`:\n{listed}\n")
