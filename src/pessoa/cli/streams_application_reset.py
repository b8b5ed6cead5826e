"""`kafka-streams-application-reset`: have an application of Kafka Streams, or of Pessoa's, begin anew.

    the group's offsets      of the input topics, to their beginning or to what a scenario says
    intermediate topics      to their end (an option of older versions)
    internal topics          <application>-…-changelog, -repartition and those of foreign-key joins are deleted

As Apache's tool does, in its words. For an application of Pessoa's Streams, whose checkpoints are on this machine, the
folder $PESSOA_HOME/streams/<application> and the groups of its queries go as well: where it reads stands in the
checkpoints, so it begins at the beginning of its topics and no scenario but --to-earliest can be had.
"""

from __future__ import annotations

import re
import sys
import time
from typing import TYPE_CHECKING

from pessoa.base.java_order import hash_order, partition_hash
from pessoa.cli import command_line as line
from pessoa.cli.command_line import Options, UsageError
from pessoa.cli.tool_run import DEFAULT_CLUSTER, connect, tool
from pessoa.client.client_errors import KafkaFailure, RequestFailed
from pessoa.wire.errors import ErrorCode

if TYPE_CHECKING:
    from pathlib import Path

    from pessoa.cli.command_line import Given
    from pessoa.client.cluster_client import Cluster
    from pessoa.client.offset_admin import TopicPartition

    Offsets = dict[TopicPartition, int]

SCENARIOS = ("to-offset", "to-datetime", "by-duration", "to-earliest", "to-latest", "shift-by", "from-file")
_INTERNAL = re.compile(
    r"(.*(-changelog|-repartition|-subscription-registration-topic|-subscription-response-topic)"
    r"|.+-KTABLE-FK-JOIN-SUBSCRIPTION-(REGISTRATION|RESPONSE)-\d+-topic)",
    re.DOTALL,
)


def make_options() -> Options:
    options = Options(
        "kafka-streams-application-reset",
        "Reset an application so that it processes its input anew. Stop all its instances first, and look at what"
        " --dry-run says: what is deleted is gone.",
    )
    text, flag = options.text, options.flag
    text("application-id", "REQUIRED: the application (application.id).", metavar="id")
    text("bootstrap-server", f"the brokers to begin with; {DEFAULT_CLUSTER} unless said",
         metavar="server to connect to", default=DEFAULT_CLUSTER)  # fmt: skip
    text("input-topics", "topics whose offsets are reset, to their beginning unless a scenario is given, by commas",
         metavar="list")  # fmt: skip
    text("intermediate-topics", "[deprecated] topics that the application wrote and read: skipped to their end",
         metavar="list")  # fmt: skip
    text("internal-topics", "those of the application's internal topics that are deleted; all, if none are named",
         metavar="list")  # fmt: skip
    text("to-offset", "to this offset", metavar="Long", kind=line.LONG)
    text("to-datetime", "to the first record from this time on: YYYY-MM-DDTHH:mm:SS.sss", metavar="String")
    text("by-duration", "to the first record within this duration before now: PnDTnHnMnS", metavar="String")
    flag("to-earliest", "to the beginning")
    flag("to-latest", "to the end")
    text("from-file", "to the offsets of a file with lines TOPIC,PARTITION,OFFSET", metavar="String")
    text("shift-by", "on, or back, by so many", metavar="Long", kind=line.LONG)
    text("command-config", "a properties file for the connection", metavar="file name")
    text("config-file", "[deprecated] as --command-config", metavar="file name")
    flag("force", "remove the group's members, which may take long to expire")
    flag("dry-run", "show what would be done")
    return options


@tool(make_options, line.begin_tersely)
def main(given: Given) -> int:
    line.require(given, "application-id")
    for scenario in SCENARIOS:
        line.refuse(given, scenario, *(other for other in SCENARIOS if other != scenario))
    application = given.value("application-id")
    state = _local_state(application)
    if state is not None and given.has_any(*(name for name in SCENARIOS if name != "to-earliest")):
        raise UsageError(
            f"{application} is an application of Pessoa's Streams with checkpoints in {state}: it begins at the"
            " beginning of its topics, and no other scenario can be had",
            with_help=False,
        )
    try:
        if given.has("config-file"):
            print("Option --config-file has been deprecated and will be removed in a future version. Use"
                  " --command-config instead.")  # fmt: skip
        config = "config-file" if given.has("config-file") else "command-config"
        with connect(given, config=config) as cluster:
            return _reset(cluster, given, application, state)
    except KafkaFailure as failure:
        print(f"ERROR: {failure}", file=sys.stderr)
        return 1


def _reset(cluster: Cluster, given: Given, application: str, state: Path | None) -> int:
    from pessoa.client.topic_admin import list_topics

    _refuse_active_group(cluster, application, force=given.has("force"))
    topics = set(list_topics(cluster))
    if given.has("dry-run"):
        print("----Dry run displays the actions which will be performed when running Streams Reset Tool----")
    code = _reset_offsets(cluster, given, application, topics)
    _delete_internal_topics(cluster, given, application, topics)
    if state is not None:
        _forget_local_state(cluster, given, application, state)
    return code


def _refuse_active_group(cluster: Cluster, group_id: str, *, force: bool) -> None:
    from pessoa.client.group_admin import describe_group

    try:
        members = describe_group(cluster, group_id).members
    except RequestFailed as failure:
        if failure.code is ErrorCode.GROUP_ID_NOT_FOUND:
            return
        raise
    if not members:
        return
    if not force:
        named = ", ".join(member.member_id for member in members)
        raise KafkaFailure(
            f"Consumer group '{group_id}' is still active and has following members: [{named}]. Make sure to stop all"
            " running application instances before running the reset tool. You can use option '--force' to remove"
            " active members from the group."
        )
    print(f"Force deleting all active members in the group: {group_id}")
    _remove_members(cluster, group_id, [member.member_id for member in members])


def _remove_members(cluster: Cluster, group_id: str, members: list[str]) -> None:
    from pessoa.client.client_errors import check
    from pessoa.client.group_admin import at_coordinator
    from pessoa.wire.api.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity

    identities = [MemberIdentity(member_id=member, reason="the application is reset") for member in members]

    def attempt(node: int) -> None:
        request = LeaveGroupRequest(group_id=group_id, members=identities)
        answer = cluster.ask(request, LeaveGroupResponse, coordinator=node, name="leaveGroup")
        check(answer.error_code)
        for member in answer.members:
            # One that is unknown has left by itself.
            if member.error_code != ErrorCode.UNKNOWN_MEMBER_ID:
                check(member.error_code)

    at_coordinator(cluster, group_id, attempt)


def _names(given: Given, option: str) -> list[str]:
    return [name.strip() for text in given.values(option) for name in text.split(",") if name.strip()]


def _list_text(names: list[str]) -> str:
    return f"[{', '.join(names)}]"


def _reset_offsets(cluster: Cluster, given: Given, application: str, existing: set[str]) -> int:
    from pessoa.cli.consumer_groups_offsets import parse_topics
    from pessoa.client.group_admin import commit_offsets

    inputs, intermediates = _names(given, "input-topics"), _names(given, "intermediate-topics")
    if not inputs and not intermediates:
        print("No input or intermediate topics specified. Skipping seek.")
        return 0
    code = 0
    if inputs:
        print(f"Reset-offsets for input topics {_list_text(inputs)}")
    if intermediates:
        print(f"Seek-to-end for intermediate topics {_list_text(intermediates)}")
    for kind, topics in (("input", inputs), ("intermediate", intermediates)):
        if missing := [topic for topic in topics if topic not in existing]:
            print(f"Following {kind} topics are not found, skipping them")
            for topic in missing:
                print(f"Topic: {topic}")
            code = 1
    inputs, intermediates = ([topic for topic in topics if topic in existing] for topics in (inputs, intermediates))
    if not inputs and not intermediates:
        return code
    offsets = _input_offsets(cluster, given, application, parse_topics(cluster, inputs)) if inputs else {}
    if intermediates:
        offsets |= _ends(cluster, application, intermediates)
    if not given.has("dry-run"):
        commit_offsets(cluster, application, offsets)
    print("Done.")
    return code


def _input_offsets(cluster: Cluster, given: Given, group_id: str, partitions: list[TopicPartition]) -> Offsets:
    print(f"Following input topics offsets will be reset to (for consumer group {group_id})")
    offsets = _chosen_offsets(cluster, given, group_id, partitions)
    for topic, partition in hash_order(offsets, partition_hash):
        print(f"Topic: {topic} Partition: {partition} Offset: {offsets[topic, partition]}")
    return offsets


def _chosen_offsets(cluster: Cluster, given: Given, group_id: str, partitions: list[TopicPartition]) -> Offsets:
    from pessoa.cli.consumer_groups_offsets import duration_ms, milliseconds, offsets_at, offsets_in_file
    from pessoa.client.group_admin import committed_offsets
    from pessoa.client.offset_admin import EARLIEST, LATEST

    if given.has("to-offset"):
        return _within_range(cluster, dict.fromkeys(partitions, given.number("to-offset")))
    if given.has("to-latest"):
        return offsets_at(cluster, partitions, LATEST)
    if given.has("to-datetime"):
        return _at_time(cluster, partitions, milliseconds(given.value("to-datetime")))
    if given.has("by-duration"):
        return _at_time(cluster, partitions, int(time.time() * 1000) - duration_ms(given.value("by-duration")))
    if given.has("shift-by"):
        committed, starts = committed_offsets(cluster, group_id), offsets_at(cluster, partitions, EARLIEST)
        shift = given.number("shift-by")
        wanted = {one: (committed[one].offset if one in committed else starts[one]) + shift for one in partitions}
        return _within_range(cluster, wanted)
    if given.has("from-file"):
        planned = offsets_in_file(given.value("from-file"), group_id)
        if missing := [one for one in partitions if one not in planned]:
            raise KafkaFailure(f"the file names no offset for {missing[0][0]}-{missing[0][1]}")
        return _within_range(cluster, {one: planned[one] for one in partitions})
    return offsets_at(cluster, partitions, EARLIEST)


def _at_time(cluster: Cluster, partitions: list[TopicPartition], when: int) -> Offsets:
    from pessoa.cli.consumer_groups_offsets import offsets_at
    from pessoa.client.offset_admin import LATEST, list_offsets, offset_or_none

    answers = list_offsets(cluster, dict.fromkeys(partitions, when))
    found = {one: offset_or_none(answer) for one, answer in answers.items()}
    empty = [one for one, offset in found.items() if offset is None or offset < 0]
    for topic, number in empty:
        print(f"Partition {number} from topic {topic} is empty, without a committed record. Falling back to latest"
              " known offset.")  # fmt: skip
    known = {one: offset for one, offset in found.items() if offset is not None and one not in empty}
    return known | offsets_at(cluster, empty, LATEST)


def _within_range(cluster: Cluster, wanted: Offsets) -> Offsets:
    from pessoa.cli.consumer_groups_offsets import offsets_at
    from pessoa.client.offset_admin import EARLIEST, LATEST

    starts, ends = (offsets_at(cluster, list(wanted), when) for when in (EARLIEST, LATEST))
    chosen = {}
    for one, offset in wanted.items():
        chosen[one] = offset
        if offset >= ends[one]:
            print(f"New offset ({offset}) is higher than latest offset. Value will be set to {ends[one]}")
            chosen[one] = ends[one]
        elif offset <= starts[one]:
            print(f"New offset ({offset}) is lower than earliest offset. Value will be set to {starts[one]}")
            chosen[one] = starts[one]
    return chosen


def _ends(cluster: Cluster, group_id: str, topics: list[str]) -> Offsets:
    from pessoa.cli.consumer_groups_offsets import offsets_at, parse_topics
    from pessoa.client.offset_admin import LATEST

    print(f"Following intermediate topics offsets will be reset to end (for consumer group {group_id})")
    partitions = parse_topics(cluster, topics)
    for topic, _ in partitions:
        print(f"Topic: {topic}")
    return offsets_at(cluster, partitions, LATEST)


def _delete_internal_topics(cluster: Cluster, given: Given, application: str, existing: set[str]) -> None:
    from pessoa.client.topic_admin import delete_topics

    kept = {*_names(given, "input-topics"), *_names(given, "intermediate-topics")}
    inferred = [topic for topic in sorted(existing - kept) if is_internal(topic, application)]
    chosen = _names(given, "internal-topics")
    if not set(chosen) <= set(inferred):
        raise KafkaFailure(
            "Invalid topic specified in the --internal-topics option. Ensure that the topics specified are all internal"
            " topics. Do a dry run without the --internal-topics option to see the list of all internal topics that can"
            " be deleted."
        )
    print(f"Deleting {'specified' if chosen else 'inferred'} internal topics {_list_text(chosen or inferred)}")
    if (chosen or inferred) and not given.has("dry-run"):
        delete_topics(cluster, chosen or inferred)
    print("Done.")


def is_internal(topic: str, application: str) -> bool:
    return topic.startswith(f"{application}-") and _INTERNAL.fullmatch(topic) is not None


# What Pessoa's Streams keep.


def _local_state(application: str) -> Path | None:
    from pessoa.base.home_folder import pessoa_home

    # An application of Pessoa is never called so that this leads elsewhere, one of Java may be.
    if re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", application) is None:
        return None
    folder = pessoa_home() / "streams" / application
    return folder if folder.is_dir() else None


def _forget_local_state(cluster: Cluster, given: Given, application: str, state: Path) -> None:
    import shutil

    from pessoa.client.group_admin import delete_group, list_groups

    groups = sorted(one.group_id for one in list_groups(cluster) if one.group_id.startswith(f"pessoa-{application}-"))
    print(f"Deleting checkpoints in {state} and consumer groups {_list_text(groups)}")
    if not given.has("dry-run"):
        with EngineLock(state):
            for group in groups:
                delete_group(cluster, group)
            shutil.rmtree(state)
    print("Done.")


class EngineLock:
    """The lock that an engine holds on its home while it runs."""

    def __init__(self, home: Path) -> None:
        self._path = home / "engine.lock"
        self._home = home

    def __enter__(self) -> None:
        import fcntl

        self._file = self._path.open("ab")
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self._file.close()
            raise KafkaFailure(f"the application is running in {self._home}: stop it first") from None

    def __exit__(self, *_: object) -> None:
        self._file.close()
