"""`kafka-share-groups`: list, describe and delete share groups, and move the offsets at which their partitions start.

    --list           names, or with --state a table
    --describe       start offsets and lag (the default), --members, or --state
    --delete, --delete-offsets, --reset-offsets

As with kafka-consumer-groups, every refusal of the cluster is `Error: …` on standard output with exit code 0; only a
command line that makes no sense, and offsets of a group that has members, end with 1.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from pessoa.base.java_order import hash_order, string_hash
from pessoa.cli import command_line as line
from pessoa.cli.command_line import LONG, Given, Options, UsageError, WrongNumber
from pessoa.cli.consumer_groups import (
    assignment_text,
    check_description,
    error_line,
    or_missing,
    print_deletion,
    print_groups,
    states_of_groups,
)
from pessoa.cli.tool_run import connect, tool, warn
from pessoa.client.client_errors import BadSettings, KafkaFailure, RequestFailed
from pessoa.wire.errors import ErrorCode

if TYPE_CHECKING:
    from pessoa.client.cluster_client import Cluster
    from pessoa.client.group_admin import Group
    from pessoa.client.offset_admin import TopicPartition

_ACTIONS = ("list", "describe", "delete", "reset-offsets", "delete-offsets")
_SCENARIOS = ("to-datetime", "to-earliest", "to-latest")
_STATES = ("Dead", "Empty", "Stable")
_FAILED = "Executing share group command failed due to"


def make_options() -> Options:
    options = Options("kafka-share-groups", "This tool helps to list, describe, reset and delete share groups.")
    text, flag = options.text, options.flag
    text("bootstrap-server", "the brokers to begin with", metavar="server to connect to")
    text("command-config", "a properties file for the connection", metavar="command config property file")
    text("timeout", "how long the groups may take to settle", metavar="timeout (ms)", default="30000", kind=LONG)
    flag("list", "list the share groups")
    flag("describe", "show a group: its offsets, members or state")
    flag("delete", "delete share groups")
    flag("delete-offsets", "delete the offsets of topics from a group without members")
    flag("reset-offsets", "move the offsets of a group without members")
    text("group", "the group", metavar="share group")
    flag("all-groups", "all share groups")
    text("topic", "a topic, or for --reset-offsets topic:0,1 for some of its partitions", metavar="topic")
    flag("all-topics", "all topics of which the group has offsets")
    flag("members", "describe the members")
    flag("offsets", "describe the offsets")
    text("state", "describe the state; or list, perhaps only groups in these states", optional_value=True)
    flag("verbose", "describe in more detail")
    flag("dry-run", "show what would be done")
    flag("execute", "do it")
    text("to-datetime", "move to a time, YYYY-MM-DDThh:mm:ss.sss", metavar="datetime")
    flag("to-earliest", "move to the earliest offset")
    flag("to-latest", "move to the latest offset")
    return options


@tool(make_options, line.begin_tersely)
def main(given: Given) -> int:
    _check(given)
    try:
        given.check_numbers()
        with connect(given) as cluster:
            _execute(cluster, given)
    except WrongNumber as error:
        error_line(f"{_FAILED} {error}")
    except BadSettings as error:
        error_line(f"{_FAILED} Failed to create new KafkaAdminClient", error)
    except KafkaFailure as failure:
        error_line(f"{_FAILED} {failure}", failure)
    return 0


def _check(given: Given) -> None:
    """Raise UsageError for options that exclude or lack each other, in the order in which Kafka checks them."""
    line.require(given, "bootstrap-server")
    check_description(given)
    if given.has("delete"):
        if not given.has_any("group", "all-groups"):
            raise UsageError("Option [delete] takes the options [group] or [all-groups]")
        if given.has("topic"):
            raise UsageError("Option [delete] does not take the option: [topic]")
    if given.has("delete-offsets") and not (given.has("group") and given.has("topic")):
        raise UsageError("Option [delete-offsets] takes the following options: [group], [topic]")
    if given.has("reset-offsets"):
        _check_reset(given)
    line.refuse(given, "group", "all-groups")
    if sum(given.has(name) for name in _ACTIONS) != 1:
        raise UsageError(f"Command must include exactly one action: {', '.join(f'--{name}' for name in _ACTIONS)}.")


def _check_reset(given: Given) -> None:
    if given.has("dry-run") and given.has("execute"):
        raise UsageError("Option [reset-offsets] only accepts one of [execute] and [dry-run]")
    if not given.has("dry-run") and not given.has("execute"):
        raise UsageError("Option [reset-offsets] takes the option: [execute] or [dry-run]")
    if not given.has("group"):
        raise UsageError("Option [reset-offsets] takes the option: [group]")
    if not (given.has("topic") or given.has("all-topics")):
        raise UsageError("Option [reset-offsets] takes one of these options: [all-topics], [topic]")
    for scenario in _SCENARIOS:
        line.refuse(given, scenario, *(other for other in _SCENARIOS if other != scenario))
    if not given.has_any(*_SCENARIOS):
        raise UsageError("Option [reset-offsets] takes one of these options: [to-datetime], [to-earliest], [to-latest]")


def _execute(cluster: Cluster, given: Given) -> None:
    if given.has("list"):
        print_groups(cluster, given, "Share", _STATES)
    elif given.has("describe"):
        _describe(cluster, given)
    elif given.has("delete"):
        _delete(cluster, given)
    elif given.has("reset-offsets"):
        _reset(cluster, given)
    else:
        _delete_offsets(cluster, given)


# Delete.


def _delete(cluster: Cluster, given: Given) -> None:
    from pessoa.client.group_admin import delete_group

    known = states_of_groups(cluster, "Share")
    deleted, failures = [], []
    for group_id in list(known) if given.has("all-groups") else list(dict.fromkeys(given.values("group"))):
        try:
            _require_empty(group_id, known)
            delete_group(cluster, group_id)
            deleted.append(group_id)
        except KafkaFailure as failure:
            failures.append((group_id, failure.java_text))
    print_deletion("share", deleted, failures)


class _NoShareGroup(KafkaFailure):
    java_name = "java.lang.IllegalArgumentException"


def _require_empty(group_id: str, known: dict[str, str]) -> None:
    if group_id not in known:
        raise _NoShareGroup(f"Group '{group_id}' is not a share group.")
    if known[group_id] != "Empty":
        raise RequestFailed(ErrorCode.NON_EMPTY_GROUP, f"Share group '{group_id}' is not EMPTY.")


# Describe.


def _describe(cluster: Cluster, given: Given) -> None:
    from pessoa.client.share_group_admin import describe_share_group

    names = states_of_groups(cluster, "Share") if given.has("all-groups") else dict.fromkeys(given.values("group"))
    verbose = given.has("verbose")
    for group_id in sorted(names):
        try:
            group = describe_share_group(cluster, group_id)
        except RequestFailed as failure:
            raise KafkaFailure(failure.java_text) from failure
        if given.has("members"):
            _print_members(group, verbose)
        elif given.has("state"):
            _print_state(group, verbose)
        else:
            _print_offsets(cluster, group, verbose)


def _warn_if_empty(group: Group) -> None:
    sys.stdout.flush()
    if group.state == "Dead":
        error_line(f"Share group '{group.group_id}' does not exist.")
    elif group.state == "Empty":
        warn(f"\nShare group '{group.group_id}' has no active members.")


def _print_table(header: list[str], rows: list[list[str]], minimums: list[int]) -> None:
    """Print a header and rows, each after a line break, as Apache's tool does; the last column is not padded."""
    widths = [max([low, *(len(row[index]) for row in rows)]) for index, low in enumerate(minimums)] + [0]
    for row in (header, *rows):
        print("\n" + " ".join(f"{text:<{width}}" for text, width in zip(row, widths, strict=True)), end="")
    print()


def _print_offsets(cluster: Cluster, group: Group, verbose: bool) -> None:
    from pessoa.client.share_group_admin import share_offsets

    found = share_offsets(cluster, group.group_id)
    if not found:
        _warn_if_empty(group)
        return
    header = ["GROUP", "TOPIC", "PARTITION", *(["LEADER-EPOCH"] if verbose else ()), "START-OFFSET", "LAG"]
    rows = [
        [
            group.group_id,
            topic,
            str(partition),
            *([or_missing(one.leader_epoch)] if verbose else ()),
            or_missing(one.offset),
            or_missing(one.lag),
        ]
        for (topic, partition), one in sorted(found.items())
    ]
    _print_table(header, rows, [15, 15, 10, *([13] if verbose else ()), 13])


def _print_members(group: Group, verbose: bool) -> None:
    if not group.members:
        _warn_if_empty(group)
        return
    header = ["GROUP", "CONSUMER-ID", "HOST", "CLIENT-ID", "#PARTITIONS"]
    header += [*(["MEMBER-EPOCH"] if verbose else ()), "ASSIGNMENT"]
    rows = [
        [
            group.group_id,
            member.member_id,
            member.host,
            member.client_id,
            str(len(member.assignment)),
            *([or_missing(member.epoch)] if verbose else ()),
            assignment_text(member.assignment),
        ]
        for member in sorted(group.members, key=lambda member: -len(member.assignment))
    ]
    _print_table(header, rows, [15, 15, 15, 15, 12, *([13] if verbose else ())])


def _print_state(group: Group, verbose: bool) -> None:
    _warn_if_empty(group)
    coordinator = f"{group.coordinator.host}:{group.coordinator.port}  ({group.coordinator.node_id})"
    header = ["GROUP", "COORDINATOR (ID)", "STATE"]
    row = [group.group_id, coordinator, group.state]
    minimums = [15, 25, 15]
    if verbose:
        header += ["GROUP-EPOCH", "ASSIGNMENT-EPOCH"]
        row += [or_missing(group.epoch), or_missing(group.target_epoch)]
        minimums += [12, 17]
    _print_table([*header, "#MEMBERS"], [[*row, str(len(group.members))]], minimums)


# Offsets.


def _reset(cluster: Cluster, given: Given) -> None:
    from pessoa.cli import consumer_groups_offsets as moving
    from pessoa.client.offset_admin import EARLIEST, LATEST

    group_id = given.value("group")
    known = states_of_groups(cluster, "Share")
    if known.get(group_id, "Dead") not in ("Empty", "Dead"):
        raise UsageError(f"Share group '{group_id}' is not empty.", with_help=False)
    partitions = _partitions(cluster, given, group_id in known)
    if given.has("to-earliest"):
        offsets = moving.offsets_at(cluster, partitions, EARLIEST)
    elif given.has("to-latest"):
        offsets = moving.offsets_at(cluster, partitions, LATEST)
    else:
        offsets = moving.offsets_at_time(cluster, partitions, moving.milliseconds(given.value("to-datetime")))
    if given.has("execute") and offsets:
        _alter(cluster, group_id, offsets)
    moving.print_new_offsets({group_id: offsets})


def _partitions(cluster: Cluster, given: Given, is_known: bool) -> list[TopicPartition]:
    from pessoa.cli.consumer_groups_offsets import existing_partitions, parse_topics
    from pessoa.client.share_group_admin import share_offsets

    if given.has("topic"):
        return existing_partitions(cluster, parse_topics(cluster, given.values("topic")))
    return existing_partitions(cluster, list(share_offsets(cluster, given.value("group")))) if is_known else []


def _alter(cluster: Cluster, group_id: str, offsets: dict[TopicPartition, int]) -> None:
    from pessoa.client.share_group_admin import alter_share_offsets

    try:
        outcome = alter_share_offsets(cluster, group_id, offsets)
    except RequestFailed:
        refused = list(offsets)
    else:
        refused = [partition for partition, code in outcome.items() if code.is_error]
    if refused:
        names = ", ".join(f"{topic}-{partition}" for topic, partition in sorted(refused))
        raise KafkaFailure(f"Failed altering group offsets for the following partitions: [{names}]")


def _delete_offsets(cluster: Cluster, given: Given) -> None:
    from pessoa.client.share_group_admin import delete_share_offsets

    topics = list(dict.fromkeys(given.values("topic")))
    try:
        outcome = delete_share_offsets(cluster, given.value("group"), topics)
    except RequestFailed as failure:
        error_line(str(failure))
        outcome = dict.fromkeys(topics, failure)
    rows = [
        [topic, f"Error: {refusal}" if (refusal := outcome[topic]) is not None else "Successful"]
        for topic in hash_order(outcome, string_hash)
    ]
    _print_table(["TOPIC", "STATUS"], rows, [15])
