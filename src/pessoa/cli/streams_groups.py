"""`kafka-streams-groups`: list, describe and delete streams groups (KIP-1071), and move their offsets.

    --list           names, or with --state a table
    --describe       lag of what the members read (the default), --members, or --state
    --delete, --delete-offsets, --reset-offsets (see streams_groups_offsets)

Unlike kafka-consumer-groups, a refusal of the cluster ends the tool with 1: `Error: …` on standard output. What is
said of single groups or partitions ends it with 0.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pessoa.base.java_order import hash_order, partition_hash
from pessoa.cli import command_line as line
from pessoa.cli.command_line import LONG, Given, Options, UsageError, WrongNumber
from pessoa.cli.consumer_groups import (
    SCENARIOS,
    check_description,
    error_line,
    or_missing,
    print_groups,
    states_of_groups,
)
from pessoa.cli.tool_run import connect, tool
from pessoa.client.client_errors import BadSettings, KafkaFailure, RequestFailed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pessoa.client.cluster_client import Cluster
    from pessoa.client.group_admin import Committed
    from pessoa.client.offset_admin import TopicPartition
    from pessoa.client.streams_group_admin import StreamsGroup, StreamsMember

_ACTIONS = ("list", "describe", "delete", "reset-offsets", "delete-offsets")
_STATES = ("NotReady", "Empty", "Assigning", "Reconciling", "Stable", "Dead")
_FAILED = "Executing streams group command failed due to"


def make_options() -> Options:
    options = Options("kafka-streams-groups", "This tool helps to list, or describe streams groups.")
    text, flag = options.text, options.flag
    text("bootstrap-server", "the brokers to begin with", metavar="server to connect to")
    text("command-config", "a properties file for the connection", metavar="command config property file")
    text("timeout", "how long the cluster may take to answer", metavar="timeout (ms)", default="30000", kind=LONG)
    flag("list", "list the streams groups")
    flag("describe", "show a group: its offsets, members or state")
    flag("delete", "delete streams groups")
    flag("delete-offsets", "delete the offsets of topics from a group")
    flag("reset-offsets", "move the offsets of a group without members")
    text("group", "the group", metavar="streams group")
    flag("all-groups", "all streams groups")
    text("input-topic", "an input topic, or topic:0,1 for some of its partitions", metavar="topic")
    flag("all-input-topics", "all topics that the group's topology reads")
    flag("members", "describe the members")
    flag("offsets", "describe the offsets")
    text("state", "describe the state; or list, perhaps only groups in these states", optional_value=True)
    flag("verbose", "describe in more detail")
    text("to-offset", "move to an offset", metavar="offset", kind=LONG)
    text("from-file", "move to what a CSV file says", metavar="path to CSV file")
    text("to-datetime", "move to a time, YYYY-MM-DDThh:mm:ss.sss", metavar="datetime")
    text("by-duration", "move back by a time, PnDTnHnMnS", metavar="duration")
    flag("to-earliest", "move to the earliest offset")
    flag("to-latest", "move to the latest offset")
    flag("to-current", "move to where the group is")
    text("shift-by", "move by so many records, perhaps backwards", metavar="number-of-offsets", kind=LONG)
    text("delete-internal-topic", "with --reset-offsets --execute: an internal topic that goes", metavar="topic")
    flag("delete-all-internal-topics", "with --delete, or --reset-offsets --execute: all internal topics go")
    flag("dry-run", "show what would be done")
    flag("execute", "do it")
    flag("export", "print the offsets as CSV, for --from-file")
    return options


def _parse_line(options: Options, words: Sequence[str]) -> Given:
    given = line.begin_tersely(options, words)
    for name, needed in {
        "state": ("list", "describe"),
        "members": ("describe",),
        "offsets": ("describe",),
        "verbose": ("describe",),
    }.items():
        if given.has(name) and not given.has_any(*needed):
            raise UsageError(
                f"Option(s) [{name}] are unavailable given other options on the command line", with_help=False
            )
    return given


@tool(make_options, _parse_line)
def main(given: Given) -> int:
    _check(given)
    try:
        given.check_numbers()
        with connect(given) as cluster:
            _execute(cluster, given)
    except WrongNumber as error:
        raise UsageError(str(error)) from None
    except BadSettings as error:
        error_line(f"{_FAILED} Failed to create new KafkaAdminClient", error)
        return 1
    except KafkaFailure as failure:
        error_line(f"{_FAILED} {failure}", failure)
        return 1
    return 0


def _check(given: Given) -> None:
    """Raise UsageError for options that exclude or lack each other, in the order in which Kafka checks them."""
    line.require(given, "bootstrap-server")
    check_description(given)
    if given.has("delete"):
        if not given.has_any("group", "all-groups"):
            raise UsageError("Option [delete] takes one of these options: [group], [all-groups]")
        if given.has_any("input-topic", "all-input-topics"):
            raise UsageError("Kafka Streams does not support topic-specific offset deletion from a streams group.")
    if given.has("delete-offsets"):
        _check_deletion_of_offsets(given)
    if given.has("reset-offsets"):
        _check_reset(given)
    _check_internal_topics(given)
    if given.has_any("dry-run", "execute") and not given.has("reset-offsets"):
        raise UsageError("Only Option [reset-offsets] accepts [execute] or [dry-run]")
    line.refuse(given, "list", "members", "offsets")
    line.refuse(given, "group", "all-groups", "list")
    line.refuse(given, "input-topic", "list", "describe", "delete")
    if sum(given.has(name) for name in _ACTIONS) != 1:
        raise UsageError(
            "Command must include exactly one action: --list, --describe, --delete, --reset-offsets, or "
            "--delete-offsets."
        )


def _check_deletion_of_offsets(given: Given) -> None:
    if not (given.has_any("input-topic", "all-input-topics") and given.has("group")):
        raise UsageError(
            "Option [delete-offsets] takes the [group] and one of these options: [input-topic], [all-input-topics]"
        )
    groups = given.values("group")
    if len(groups) > 1:
        raise UsageError(
            f"Option [delete-offsets] supports only one [group] at a time, but found: [{', '.join(groups)}]"
        )


def _check_reset(given: Given) -> None:
    if given.has("dry-run") and given.has("execute"):
        raise UsageError("Option [reset-offsets] only accepts one of [execute] and [dry-run]")
    if not given.has_any("dry-run", "execute"):
        raise UsageError("Option [reset-offsets] takes the option: [execute] or [dry-run]")
    if not given.has_any("group", "all-groups"):
        raise UsageError("Option [reset-offsets] takes one of these options: [group], [all-groups]")
    for scenario in ("to-offset", "to-datetime", "by-duration", "to-earliest", "to-latest", "to-current", "shift-by",
                     "from-file"):  # fmt: skip
        line.refuse(given, scenario, *(other for other in SCENARIOS if other != scenario))


def _check_internal_topics(given: Given) -> None:
    executes = given.has("reset-offsets") and given.has("execute")
    if given.has("delete-all-internal-topics"):
        if not given.has_any("reset-offsets", "delete"):
            raise UsageError(
                "Option [delete-all-internal-topics] takes one of these options: [reset-offsets], [delete]"
            )
        if given.has("reset-offsets") and not executes:
            raise UsageError("Option [delete-all-internal-topics] takes [execute] when [reset-offsets] is used.")
    if given.has("delete-internal-topic") and not executes:
        raise UsageError("Option [delete-internal-topic] takes [reset-offsets] when [execute] is used.")


def _execute(cluster: Cluster, given: Given) -> None:
    if given.has("list"):
        print_groups(cluster, given, "Streams", _STATES)
    elif given.has("describe"):
        _describe(cluster, given)
    else:
        from pessoa.cli import streams_groups_offsets as offsets

        if given.has("delete"):
            offsets.delete_groups(cluster, given)
        else:
            (offsets.reset if given.has("reset-offsets") else offsets.delete)(cluster, given)


class Wrapped(KafkaFailure):
    """A failure that Apache's tool shows with the name of its class."""

    java_name = "java.util.concurrent.ExecutionException"


def chosen_groups(cluster: Cluster, given: Given) -> list[str]:
    return list(states_of_groups(cluster, "Streams")) if given.has("all-groups") else given.values("group")


def described(cluster: Cluster, group_id: str) -> StreamsGroup:
    """Return the description of the group. An error is raised as Apache's tool prints it."""
    from pessoa.client.streams_group_admin import describe_streams_group

    try:
        return describe_streams_group(cluster, group_id)
    except RequestFailed as failure:
        raise Wrapped(failure.java_text) from failure


def source_offsets(cluster: Cluster, group: StreamsGroup) -> dict[TopicPartition, Committed]:
    """Return the group's committed offsets in the topics that its topology reads."""
    from pessoa.client.group_admin import committed_offsets

    sources = {topic for one in group.subtopologies for topic in (*one.sources, *one.repartitions)}
    return {where: one for where, one in committed_offsets(cluster, group.group_id).items() if where[0] in sources}


# Describe.


def _describe(cluster: Cluster, given: Given) -> None:
    verbose = given.has("verbose")
    for group_id in chosen_groups(cluster, given):
        group = described(cluster, group_id)
        if given.has("members"):
            _print_members(group, verbose)
        elif given.has("state"):
            _print_state(group, verbose)
        else:
            _print_offsets(cluster, group, verbose)


def _warn_if_empty(group: StreamsGroup) -> None:
    if group.state == "Dead":
        error_line(f"Streams group '{group.group_id}' does not exist.")
    elif group.state == "Empty":
        error_line(f"Streams group '{group.group_id}' has no active members.")


def _print_table(rows: Sequence[Sequence[object]], widths: Sequence[int], glued: int = -1) -> None:
    """Print rows with columns of these widths; the last is not padded. There is no space before the column `glued`."""
    for row in rows:
        cells = [
            ("" if index in (0, glued) else " ") + f"{value!s:<{width}}"
            for index, (value, width) in enumerate(zip(row, (*widths, 0), strict=True))
        ]
        print("".join(cells))


def _print_members(group: StreamsGroup, verbose: bool) -> None:
    if not group.members or group.state == "Dead":
        return
    members = group.members
    group_width = max(15, len(group.group_id))
    id_width = max([15, *(len(one.member_id) for one in members)])
    process_width = max([15, *(len(one.process_id) for one in members)])
    client_width = max([15, *(len(one.client_id) for one in members)])
    if not verbose:
        rows = [
            (group.group_id, one.member_id, one.process_id, one.client_id, _tasks_text(one, with_target=False))
            for one in members
        ]
        header = ("GROUP", "MEMBER", "PROCESS", "CLIENT-ID", "ASSIGNMENTS")
        _print_table((header, *rows), (group_width, id_width, process_width, client_width))
        return
    header_verbose = ("GROUP", "TARGET-ASSIGNMENT-EPOCH", "TOPOLOGY-EPOCH", "MEMBER", "MEMBER-PROTOCOL",
                      "MEMBER-EPOCH", "PROCESS", "CLIENT-ID", "ASSIGNMENTS")  # fmt: skip
    rows_verbose = [
        (
            group.group_id,
            group.target_epoch,
            group.topology_epoch,
            one.member_id,
            "classic" if one.is_classic else "streams",
            one.epoch,
            one.process_id,
            one.client_id,
            _tasks_text(one, with_target=True),
        )
        for one in members
    ]
    widths = (group_width, 25, 15, id_width, 15, 15, process_width, client_width)
    # Apache's tool forgets the blank before the member.
    _print_table((header_verbose, *rows_verbose), widths, glued=3)


def _tasks_text(member: StreamsMember, *, with_target: bool) -> str:
    kinds = list(zip(("ACTIVE", "STANDBY", "WARMUP"), member.assignment, strict=True))
    if with_target:
        kinds += zip(("TARGET-ACTIVE", "TARGET-STANDBY", "TARGET-WARMUP"), member.target, strict=True)
    return "".join(
        f"{kind}: " + "".join(f"{name}:[{','.join(map(str, partitions))}]; " for name, partitions in tasks)
        for kind, tasks in kinds
        if tasks
    )


def _print_state(group: StreamsGroup, verbose: bool) -> None:
    _warn_if_empty(group)
    coordinator = f"{group.coordinator.host}:{group.coordinator.port} ({group.coordinator.node_id})"
    header = ["GROUP", "COORDINATOR (ID)", "STATE"]
    row = [group.group_id, coordinator, group.state]
    widths = [max(15, len(group.group_id)), max(25, len(coordinator)), 25]
    if verbose:
        header += ["GROUP-EPOCH", "TARGET-ASSIGNMENT-EPOCH"]
        row += [str(group.epoch), str(group.target_epoch)]
        widths += [15, 25]
    _print_table(([*header, "#MEMBERS"], [*row, str(len(group.members))]), widths)


def _print_offsets(cluster: Cluster, group: StreamsGroup, verbose: bool) -> None:
    from pessoa.client.offset_admin import EARLIEST, LATEST, list_offsets, offset_or_none

    partitions = _read_partitions(group)
    starts = list_offsets(cluster, dict.fromkeys(partitions, EARLIEST)) if partitions else {}
    ends = list_offsets(cluster, dict.fromkeys(partitions, LATEST)) if partitions else {}
    committed = source_offsets(cluster, group)
    if not group.members or group.state == "Dead":
        return
    rows: list[tuple[object, ...]] = []
    for partition in hash_order(partitions, partition_hash):
        one = committed.get(partition)
        end = offset_or_none(ends[partition]) or 0
        begin = one.offset if one is not None else offset_or_none(starts[partition]) or 0
        epoch = None if one is None or one.leader_epoch < 0 else one.leader_epoch
        extra = (or_missing(None if one is None else one.offset), or_missing(epoch), end) if verbose else ()
        rows.append((group.group_id, *partition, *extra, f"{end - begin:<15}" if verbose else end - begin))
    header = ("GROUP", "TOPIC", "PARTITION", *(("CURRENT-OFFSET", "LEADER-EPOCH", "LOG-END-OFFSET") if verbose else ()))
    last = f"{'OFFSET-LAG':<15}" if verbose else "OFFSET-LAG"
    topic_width = max([15, *(len(topic) for topic, _ in partitions)])
    widths = (max(15, len(group.group_id)), topic_width, 10, *((15, 15, 15) if verbose else ()))
    _print_table(((*header, last), *rows), widths)


def _read_partitions(group: StreamsGroup) -> list[TopicPartition]:
    """Return the partitions that the active tasks of the members read."""
    sources = {one.name: (*one.sources, *one.repartitions) for one in group.subtopologies}
    return list(
        dict.fromkeys(
            (topic, partition)
            for member in group.members
            for name, partitions in member.assignment.active
            for topic in sources.get(name, ())
            for partition in partitions
        )
    )
