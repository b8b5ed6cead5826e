"""`kafka-consumer-groups`: list, describe and delete consumer groups, and move their offsets.

    --list           names, or with --state / --type a table
    --describe       offsets and lag (the default), --members, or --state
    --delete, --delete-offsets, --reset-offsets (see consumer_groups_offsets), --validate-regex

Every refusal of the cluster is `Error: …` on standard output with exit code 0, as Apache's tool has it; only a command
line that makes no sense ends with 1.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from pessoa.cli import command_line as line
from pessoa.cli.command_line import LONG, Given, Options, UsageError, WrongNumber
from pessoa.cli.tool_run import connect, tool, warn
from pessoa.client.client_errors import BadSettings, KafkaFailure

if TYPE_CHECKING:
    from pessoa.client.cluster_client import Cluster
    from pessoa.client.group_admin import Committed, Group, Member
    from pessoa.client.offset_admin import TopicPartition

_ACTIONS = ("list", "describe", "delete", "reset-offsets", "delete-offsets", "validate-regex")
SCENARIOS = (
    "to-datetime",
    "by-duration",
    "to-earliest",
    "to-latest",
    "shift-by",
    "from-file",
    "to-current",
    "to-offset",
)
MISSING = "-"
_STATES = ("Assigning", "Dead", "Empty", "Stable", "PreparingRebalance", "CompletingRebalance", "Reconciling")
_KINDS = ("Consumer", "Classic")
_REBALANCING = ("PreparingRebalance", "CompletingRebalance", "Assigning", "Reconciling")
_NO_ACTION = (
    "WARN: No action will be performed as the --execute option is missing. In version 5.0, this command will require "
    "either --dry-run or --execute to be specified. You should add the --dry-run option explicitly if you are "
    "scripting this command and want to keep the current default behavior without prompting."
)


class Wrapped(KafkaFailure):
    """A failure that Apache's tool shows with the name of its class."""

    java_name = "java.util.concurrent.ExecutionException"


def make_options() -> Options:
    options = Options(
        "kafka-consumer-groups",
        "List all consumer groups, describe a consumer group, delete consumer group info, or reset consumer group "
        "offsets.",
    )
    text, flag = options.text, options.flag
    text("bootstrap-server", "the brokers to begin with", metavar="server to connect to")
    text("command-config", "a properties file for the connection", metavar="command config property file")
    text("timeout", "how long the groups may take to settle", metavar="timeout (ms)", default="30000", kind=LONG)
    flag("list", "list the groups")
    flag("describe", "show a group: its offsets, members or state")
    flag("delete", "delete groups")
    flag("delete-offsets", "delete the offsets of topics from a group")
    flag("reset-offsets", "move the offsets of a group without members")
    text("validate-regex", "say whether a regular expression is valid", metavar="regex")
    text("group", "the group", metavar="consumer group")
    flag("all-groups", "all groups")
    text("topic", "a topic, or topic:0,1 for some of its partitions", metavar="topic")
    flag("all-topics", "all topics of which the group has offsets")
    flag("members", "describe the members")
    flag("offsets", "describe the offsets")
    text("state", "describe the state; or list, perhaps only groups in these states", optional_value=True)
    text("type", "list the type, perhaps only groups of these types", optional_value=True)
    flag("verbose", "describe in more detail")
    flag("dry-run", "show what would be done")
    flag("execute", "do it")
    flag("export", "print the offsets as CSV, for --from-file")
    text("to-offset", "move to an offset", metavar="offset", kind=LONG)
    text("from-file", "move to what a CSV file says", metavar="path to CSV file")
    text("to-datetime", "move to a time, YYYY-MM-DDThh:mm:ss.sss", metavar="datetime")
    text("by-duration", "move back by a time, PnDTnHnMnS", metavar="duration")
    flag("to-earliest", "move to the earliest offset")
    flag("to-latest", "move to the latest offset")
    flag("to-current", "move to where the group is")
    text("shift-by", "move by so many records, perhaps backwards", metavar="number-of-offsets", kind=LONG)
    flag("new-consumer", "from earlier days", hidden=True)
    return options


@tool(make_options, line.begin_tersely)
def main(given: Given) -> int:
    _check(given)
    if given.has("validate-regex"):
        return _validate_regex(given.value("validate-regex"))
    try:
        given.check_numbers()
        with connect(given) as cluster:
            _execute(cluster, given)
    except WrongNumber as error:
        error_line(f"Executing consumer group command failed due to {error}")
    except BadSettings as error:
        error_line("Executing consumer group command failed due to Failed to create new KafkaAdminClient", error)
    except KafkaFailure as failure:
        error_line(f"Executing consumer group command failed due to {failure}", failure)
    return 0


def error_line(message: str, failure: KafkaFailure | None = None) -> None:
    print(f"\nError: {message}", flush=True)
    if failure is not None:
        warn(failure.java_text)


def _check(given: Given) -> None:
    """Raise UsageError for options that exclude or lack each other, in the order in which Kafka checks them."""
    if not given.has("validate-regex"):
        line.require(given, "bootstrap-server")
    one_group_or_all = given.has("group") or given.has("all-groups")
    check_description(given)
    if given.has("delete"):
        if not one_group_or_all:
            raise UsageError("Option [delete] takes one of these options: [group], [all-groups]")
        if given.has("topic"):
            raise UsageError("The consumer does not support topic-specific offset deletion from a consumer group.")
    if given.has("delete-offsets") and not (given.has("group") and given.has("topic")):
        raise UsageError("Option [delete-offsets] takes the following options: [group], [topic]")
    if given.has("reset-offsets"):
        _check_reset(given, one_group_or_all)
    line.refuse(given, "group", "all-groups")
    line.refuse(given, "topic", "all-topics")
    if sum(given.has(name) for name in _ACTIONS) != 1:
        raise UsageError(f"Command must include exactly one action: {', '.join(f'--{name}' for name in _ACTIONS)}")


def check_description(given: Given) -> None:
    """Raise UsageError for a --describe that names no group, or several things to show."""
    if not given.has("describe"):
        return
    if not given.has_any("group", "all-groups"):
        raise UsageError("Option [describe] takes one of these options: [group], [all-groups]")
    if sum(given.has(name) for name in ("members", "offsets", "state")) > 1:
        raise UsageError("Option [describe] takes at most one of these options: [members], [offsets], [state]")
    if given.has("state") and given.values("state"):
        raise UsageError("Option [describe] does not take a value for [state]")


def _check_reset(given: Given, one_group_or_all: bool) -> None:
    if given.has("dry-run") and given.has("execute"):
        raise UsageError("Option [reset-offsets] only accepts one of [execute] and [dry-run]")
    if not given.has("dry-run") and not given.has("execute"):
        warn(_NO_ACTION)
    if not one_group_or_all:
        raise UsageError("Option [reset-offsets] takes one of these options: [group], [all-groups]")
    for scenario in ("to-offset", "to-datetime", "by-duration", "to-earliest", "to-latest", "to-current", "shift-by",
                     "from-file"):  # fmt: skip
        line.refuse(given, scenario, *(other for other in SCENARIOS if other != scenario))


def _validate_regex(text: str) -> int:
    import re

    try:
        re.compile(text)
    except re.error as error:
        reasons = {
            "missing ), unterminated subpattern": "missing closing )",
            "unterminated character set": "missing closing ]",
        }
        print(f"The regular expression `{text}` is invalid: {reasons.get(error.msg, error.msg)}.")
    else:
        print(f"The regular expression `{text}` is valid.")
    return 0


def _execute(cluster: Cluster, given: Given) -> None:
    if given.has("list"):
        _list(cluster, given)
    elif given.has("describe"):
        _describe(cluster, given)
    elif given.has("delete"):
        _delete(cluster, given)
    else:
        from pessoa.cli import consumer_groups_offsets as offsets

        (offsets.reset if given.has("reset-offsets") else offsets.delete)(cluster, given)


# List and delete.


def group_ids(cluster: Cluster, given: Given) -> list[str]:
    return all_groups(cluster) if given.has("all-groups") else list(dict.fromkeys(given.values("group")))


def all_groups(cluster: Cluster) -> list[str]:
    from pessoa.client.group_admin import list_groups

    try:
        found = list_groups(cluster)
    except KafkaFailure as failure:
        raise Wrapped(f"{Wrapped.java_name}: {failure.java_text}") from failure
    return [
        one.group_id
        for one in found
        if one.kind.lower() in ("", "classic", "consumer") and one.protocol_type in ("", "consumer")
    ]


def _list(cluster: Cluster, given: Given) -> None:
    from pessoa.client.group_admin import list_groups

    if not given.has("state") and not given.has("type"):
        for group_id in all_groups(cluster):
            print(group_id)
        return
    states = chosen_of("state", given.maybe("state"), _STATES)
    kinds = chosen_of("types", given.maybe("type"), _KINDS)
    groups = [
        one
        for one in list_groups(cluster, states=states, kinds=kinds or ["Classic", "Consumer"])
        if one.protocol_type in ("", "consumer")
    ]
    width = max([15, *(len(one.group_id) for one in groups)]) + 10
    columns = [("TYPE", "kind"), ("STATE", "state")]
    shown = [(title, name) for title, name in columns if given.has("type" if name == "kind" else "state")]
    print(" ".join([f"{'GROUP':<{width}}", *(f"{title:<20}" for title, _ in shown)]))
    for one in groups:
        values = {"kind": one.kind.capitalize(), "state": one.state}
        print(" ".join([f"{one.group_id:<{width}}", *(f"{values[name]:<20}" for _, name in shown)]))


def chosen_of(what: str, text: str | None, valid: Sequence[str]) -> list[str]:
    if not text:
        return []
    by_name = {name.lower(): name for name in valid}
    found = [by_name.get(word.strip().lower().replace("_", "")) for word in text.split(",")]
    if None in found:
        plural = "states" if what == "state" else "types"
        raise UsageError(f"Invalid {what} list '{text}'. Valid {plural} are: {', '.join(valid)}")
    return [name for name in found if name is not None]


def states_of_groups(cluster: Cluster, kind: str, states: Sequence[str] = ()) -> dict[str, str]:
    """Return the state of every group of this kind by its name; with `states` only of groups in one of them."""
    from pessoa.client.group_admin import list_groups

    return {one.group_id: one.state for one in list_groups(cluster, states=states, kinds=[kind])}


def print_groups(cluster: Cluster, given: Given, kind: str, valid_states: Sequence[str]) -> None:
    """Print the result of --list for a tool with one kind of group: names, or with --state a table."""
    if not given.has("state"):
        for group_id in states_of_groups(cluster, kind):
            print(group_id)
        return
    groups = states_of_groups(cluster, kind, chosen_of("state", given.maybe("state"), valid_states))
    width = max([15, *map(len, groups)])
    for group_id, state in (("GROUP", "STATE"), *groups.items()):
        print(f"{group_id:<{width}} {state}")


def _delete(cluster: Cluster, given: Given) -> None:
    from pessoa.client.group_admin import delete_group

    deleted, failures = [], []
    for group_id in group_ids(cluster, given):
        try:
            delete_group(cluster, group_id)
            deleted.append(group_id)
        except KafkaFailure as failure:
            failures.append((group_id, failure.java_text))
    print_deletion("consumer", deleted, failures)


def print_deletion(kind: str, deleted: list[str], failures: list[tuple[str, str]]) -> None:
    """Print which groups of a kind are deleted, and why the others are not."""
    names = ", ".join(f"'{group_id}'" for group_id in deleted)
    if not failures:
        print(f"Deletion of requested {kind} groups ({names}) was successful.")
        return
    error_line(f"Deletion of some {kind} groups failed:")
    for group_id, reason in failures:
        print(f"* Group '{group_id}' could not be deleted due to: {reason}")
    if deleted:
        print(f"\nThese {kind} groups were deleted successfully: {names}")


# Describe.


def _describe(cluster: Cluster, given: Given) -> None:
    from pessoa.client.group_admin import describe_group

    groups = []
    for group_id in sorted(group_ids(cluster, given)):
        try:
            groups.append(describe_group(cluster, group_id))
        except KafkaFailure as failure:
            raise Wrapped(failure.java_text) from failure
    verbose = given.has("verbose")
    for group in groups:
        if given.has("members"):
            _print_members(group, verbose)
        elif given.has("state"):
            _print_state(group, verbose)
        else:
            _print_offsets(cluster, group, verbose)


def _has_something_to_show(group: Group, rows: int) -> bool:
    sys.stdout.flush()
    if group.state == "Dead":
        error_line(f"Consumer group '{group.group_id}' does not exist.")
    elif group.state == "Empty":
        warn(f"\nConsumer group '{group.group_id}' has no active members.")
    elif group.state in _REBALANCING:
        warn(f"\nWarning: Consumer group '{group.group_id}' is rebalancing.")
    return group.state != "Dead" and rows > 0


def _print_offsets(cluster: Cluster, group: Group, verbose: bool) -> None:
    from pessoa.client.group_admin import committed_offsets
    from pessoa.client.offset_admin import LATEST, list_offsets, offset_or_none

    committed = committed_offsets(cluster, group.group_id)
    owners: list[tuple[TopicPartition, Member | None]] = []
    for member in sorted(group.members, key=lambda member: -len(member.assignment)):
        owners += [(partition, member) for partition in sorted(member.assignment)]
    assigned = {partition for partition, _ in owners}
    owners += [(partition, None) for partition in sorted(committed) if partition not in assigned]
    ends = list_offsets(cluster, dict.fromkeys((partition for partition, _ in owners), LATEST))
    rows = [
        _offset_row(group, partition, committed.get(partition), offset_or_none(ends[partition]), member, verbose)
        for partition, member in owners
    ]
    if not _has_something_to_show(group, len(rows)):
        return
    header = ["GROUP", "TOPIC", "PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG", "CONSUMER-ID", "HOST"]
    header.append("CLIENT-ID")
    if verbose:
        header.insert(3, "LEADER-EPOCH")
    flexible = {"GROUP", "TOPIC", "CONSUMER-ID", "HOST"}
    widths = [
        max([15, *(len(row[index]) for row in rows)]) if name in flexible else 10 if name == "PARTITION" else 15
        for index, name in enumerate(header)
    ]
    widths[-1] = 0
    for row in (header, *rows):
        print("\n" + " ".join(f"{text:<{width}}" for text, width in zip(row, widths, strict=True)), end="")
    print()


def _offset_row(
    group: Group,
    partition: TopicPartition,
    committed: Committed | None,
    end: int | None,
    member: Member | None,
    verbose: bool,
) -> list[str]:
    lag = None if committed is None or end is None else end - committed.offset
    epoch = MISSING if committed is None or committed.leader_epoch < 0 else str(committed.leader_epoch)
    return [
        group.group_id,
        partition[0],
        str(partition[1]),
        *([epoch] if verbose else ()),
        or_missing(committed.offset if committed else None),
        or_missing(end),
        or_missing(lag),
        member.member_id if member else MISSING,
        member.host if member else MISSING,
        member.client_id if member else MISSING,
    ]


def or_missing(number: int | None) -> str:
    return MISSING if number is None else str(number)


def _print_members(group: Group, verbose: bool) -> None:
    members = sorted(group.members, key=lambda member: -len(member.assignment))
    _has_something_to_show(group, len(members))
    has_instances = any(member.instance_id for member in members)
    kinds = {member.is_upgraded for member in members}
    is_mixed = {True, False} <= kinds
    header = ["GROUP", "CONSUMER-ID", *(["GROUP-INSTANCE-ID"] if has_instances else ()), "HOST", "CLIENT-ID"]
    header.append("#PARTITIONS")
    minimums = [15, 15, *([17] if has_instances else ()), 15, 15, 15]
    rows = [
        [
            group.group_id,
            member.member_id,
            *([member.instance_id or ""] if has_instances else ()),
            member.host,
            member.client_id,
            str(len(member.assignment)),
        ]
        for member in members
    ]
    if verbose:
        header += ["CURRENT-EPOCH", "CURRENT-ASSIGNMENT", "TARGET-EPOCH", "TARGET-ASSIGNMENT"]
        minimums += [15, 20, 15, 20]
        for row, member in zip(rows, members, strict=True):
            target = group.target_epoch if member.target is not None else None
            row += [or_missing(member.epoch), assignment_text(member.assignment), or_missing(target)]
            row.append(assignment_text(member.target or []))
            if is_mixed:
                row.append(str(member.is_upgraded).lower())
        if is_mixed:
            header.append("UPGRADED")
            minimums.append(0)
    widths = [max([low, *(len(row[i]) for row in rows)]) for i, low in enumerate(minimums)]
    print()
    for row in (header, *rows):
        # The last column is padded too, except UPGRADED; without --verbose even a blank follows it.
        text = " ".join(f"{value:<{width}}" for value, width in zip(row, widths, strict=True))
        print(text.rstrip() if is_mixed and verbose else text if verbose else text + " ")


def assignment_text(partitions: list[TopicPartition]) -> str:
    by_topic: dict[str, list[int]] = {}
    for topic, partition in partitions:
        by_topic.setdefault(topic, []).append(partition)
    parts = sorted(f"{topic}:{','.join(map(str, sorted(numbers)))}" for topic, numbers in by_topic.items())
    return ";".join(parts) or MISSING


def _print_state(group: Group, verbose: bool) -> None:
    if not _has_something_to_show(group, 1):
        return
    coordinator = f"{group.coordinator.host}:{group.coordinator.port}  ({group.coordinator.node_id})"
    header = ["GROUP", "COORDINATOR (ID)", "ASSIGNMENT-STRATEGY", "STATE"]
    row = [group.group_id, coordinator, group.assignor or MISSING, group.state]
    widths = [max(15, len(group.group_id)), max(25, len(coordinator)), 20, 20]
    if verbose:
        header += ["GROUP-EPOCH", "TARGET-ASSIGNMENT-EPOCH"]
        row += [or_missing(group.epoch), or_missing(group.target_epoch)]
        widths += [15, 25]
    header.append("#MEMBERS")
    row.append(str(len(group.members)))
    widths.append(0)
    for one in (header, row):
        print("\n" + " ".join(f"{text:<{width}}" for text, width in zip(one, widths, strict=True)), end="")
    print()
