"""The offsets of groups, moved and deleted: `kafka-consumer-groups --reset-offsets` and `--delete-offsets`.

The new offset is first computed from the scenario for every partition, then clamped to the partition's log start and
end offsets, and committed only with --execute. A group must have no members for that: a member would overwrite it at
once.
"""

from __future__ import annotations

import re
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from pessoa.base.java_order import hash_order, partition_hash, string_hash
from pessoa.cli.command_line import UsageError
from pessoa.cli.consumer_groups import MISSING, error_line, group_ids
from pessoa.cli.tool_run import warn
from pessoa.client.client_errors import KafkaFailure, RequestFailed, java_name, sentence
from pessoa.client.group_admin import committed_offsets, delete_offsets, describe_group
from pessoa.client.offset_admin import EARLIEST, LATEST, FoundOffset, leaders, list_offsets, offset_or_none
from pessoa.client.topic_admin import metadata
from pessoa.wire.errors import ErrorCode

if TYPE_CHECKING:
    from pessoa.cli.command_line import Given
    from pessoa.client.cluster_client import Cluster
    from pessoa.client.offset_admin import TopicPartition

Offsets = dict["TopicPartition", int]

_DURATION = re.compile(
    r"(?P<sign>[-+]?)P(?:(?P<days>[-+]?\d+)D)?"
    r"(?:T(?:(?P<hours>[-+]?\d+)H)?(?:(?P<minutes>[-+]?\d+)M)?(?:(?P<seconds>[-+]?\d+(?:\.\d{0,9})?)S)?)?",
    re.IGNORECASE,
)


NO_SCENARIO = (
    "Option '[reset-offsets]' requires one of the following scenarios: [[to-datetime], [by-duration], [to-latest], "
    "[to-current], [to-earliest], [to-offset], [shift-by], [from-file]]"
)


class NotUnderstood(KafkaFailure):
    """A value on the command line is invalid, and Apache's tool finds that out only while it works."""


# Reset.


def reset(cluster: Cluster, given: Given) -> None:
    chosen: dict[str, Offsets] = {}
    for group_id in group_ids(cluster, given):
        state = _state(cluster, group_id)
        if state in ("Empty", "Dead"):
            chosen[group_id] = _reset_group(cluster, given, group_id)
        else:
            error_line(
                f"Assignments can only be reset if the group '{group_id}' is inactive, but the current state is "
                f"{state}."
            )
            chosen[group_id] = {}
    if given.has("export"):
        print(csv_of(chosen, with_group=len(chosen) > 1))
    else:
        print_new_offsets(chosen)


def _state(cluster: Cluster, group_id: str) -> str:
    try:
        return describe_group(cluster, group_id).state
    except RequestFailed as failure:
        if failure.code is ErrorCode.GROUP_ID_NOT_FOUND:
            return "Dead"
        raise


def _reset_group(cluster: Cluster, given: Given, group_id: str) -> Offsets:
    from pessoa.client.group_admin import commit_offsets

    partitions = _partitions(cluster, given, group_id)
    offsets = _target(cluster, given, group_id, partitions)
    if given.has("execute") and offsets:
        commit_offsets(cluster, group_id, offsets)
    return offsets


def _partitions(cluster: Cluster, given: Given, group_id: str) -> list[TopicPartition]:
    if given.has("all-topics"):
        found = list(committed_offsets(cluster, group_id))
    elif given.has("topic"):
        found = parse_topics(cluster, given.values("topic"))
    elif given.has("from-file"):
        return []
    else:
        raise UsageError("One of the reset scopes should be defined: --all-topics, --topic.")
    return existing_partitions(cluster, found)


def existing_partitions(cluster: Cluster, found: list[TopicPartition]) -> list[TopicPartition]:
    """Return the partitions as they are given, or raise RequestFailed for those that do not exist or have no leader."""
    known = leaders(cluster, (topic for topic, _ in found))
    unknown = [f"{topic}-{partition}" for topic, partition in found if (topic, partition) not in known]
    if unknown:
        raise RequestFailed(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f'The partitions "{", ".join(unknown)}" do not exist')
    leaderless = [f"{topic}-{partition}" for topic, partition in found if known[topic, partition] < 0]
    if leaderless:
        raise RequestFailed(ErrorCode.LEADER_NOT_AVAILABLE, f'The partitions "{", ".join(leaderless)}" have no leader')
    return found


def parse_topics(cluster: Cluster, texts: list[str]) -> list[TopicPartition]:
    """Return the partitions of `topic` (all) or `topic:0,1` (these two)."""
    found: list[TopicPartition] = []
    for text in texts:
        topic, colon, numbers = text.partition(":")
        if colon:
            for number in numbers.split(","):
                if not number.isdecimal():
                    raise UsageError(f"Invalid partition '{number}' specified in topic arg '{text}''")
                found.append((topic, int(number)))
        else:
            # Apache does not wait for the topic to come into being either.
            topics = metadata(cluster, [topic], strict=False)
            if not topics:
                raise RequestFailed(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            found += [(topic, part.partition) for part in topics[0].partitions]
    return found


def _target(cluster: Cluster, given: Given, group_id: str, partitions: list[TopicPartition]) -> Offsets:
    if given.has("to-offset"):
        return clamp_offsets(cluster, dict.fromkeys(partitions, given.number("to-offset")))
    if given.has("to-earliest"):
        return offsets_at(cluster, partitions, EARLIEST)
    if given.has("to-latest"):
        return offsets_at(cluster, partitions, LATEST)
    if given.has("shift-by"):
        committed_at = {where: one.offset for where, one in committed_offsets(cluster, group_id).items()}
        return shift_offsets(cluster, committed_at, given.number("shift-by"), partitions)
    if given.has("to-datetime"):
        return offsets_at_time(cluster, partitions, milliseconds(given.value("to-datetime")))
    if given.has("by-duration"):
        return offsets_at_time(cluster, partitions, int(time.time() * 1000) - duration_ms(given.value("by-duration")))
    if given.has("from-file"):
        return clamp_offsets(cluster, offsets_in_file(given.value("from-file"), group_id))
    if given.has("to-current"):
        committed = committed_offsets(cluster, group_id)
        current = {partition: committed[partition].offset for partition in partitions if partition in committed}
        others = [partition for partition in partitions if partition not in committed]
        return current | offsets_at(cluster, others, LATEST)
    raise UsageError(NO_SCENARIO)


def offsets_at(cluster: Cluster, partitions: list[TopicPartition], when: int) -> Offsets:
    found = list_offsets(cluster, dict.fromkeys(partitions, when))
    offsets = {}
    for partition, one in found.items():
        offset = offset_or_none(one)
        if offset is None:
            raise UsageError(f"Error getting offset of topic partition: {partition[0]}-{partition[1]}")
        offsets[partition] = offset
    return offsets


def offsets_at_time(cluster: Cluster, partitions: list[TopicPartition], when: int) -> Offsets:
    found = list_offsets(cluster, dict.fromkeys(partitions, when))
    offsets = {}
    empty = []
    for partition in hash_order(partitions, partition_hash):
        one = found[partition]
        if isinstance(one, FoundOffset) and one.offset >= 0:
            offsets[partition] = one.offset
        else:
            empty.append(partition)
    for topic, number in empty:
        print(f"\nWarn: Partition {number} from topic {topic} is empty. Falling back to latest known offset.")
    return offsets | offsets_at(cluster, empty, LATEST)


def shift_offsets(cluster: Cluster, committed: Offsets, shift: int, partitions: list[TopicPartition]) -> Offsets:
    wanted = {}
    for partition in partitions:
        if partition not in committed:
            name = f"{partition[0]}-{partition[1]}"
            raise UsageError(f"Cannot shift offset for partition {name} since there is no current committed offset")
        wanted[partition] = committed[partition] + shift
    return clamp_offsets(cluster, wanted)


def clamp_offsets(cluster: Cluster, wanted: Offsets) -> Offsets:
    """Return the offsets, none below the log start offset or above the log end offset of its partition."""
    partitions = list(wanted)
    starts, ends = offsets_at(cluster, partitions, EARLIEST), offsets_at(cluster, partitions, LATEST)
    offsets = {}
    for partition, offset in wanted.items():
        name = f"{partition[0]}-{partition[1]}"
        if offset > ends[partition]:
            warn(f"WARN New offset ({offset}) is higher than latest offset for topic partition {name}. Value will be "
                 f"set to {ends[partition]}")  # fmt: skip
            offset = ends[partition]
        elif offset < starts[partition]:
            warn(f"WARN New offset ({offset}) is lower than earliest offset for topic partition {name}. Value will be "
                 f"set to {starts[partition]}")  # fmt: skip
            offset = starts[partition]
        offsets[partition] = offset
    return offsets


def milliseconds(text: str) -> int:
    """Return the milliseconds of a time in ISO 8601; without a zone it is UTC."""
    if "T" not in text:
        raise _parse_error("Error parsing timestamp. It does not contain a 'T' according to ISO8601 format")
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise _parse_error(f'Unparseable date: "{text}"') from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return round(moment.timestamp() * 1000)


def _parse_error(reason: str) -> NotUnderstood:
    return NotUnderstood(f"java.text.ParseException: {reason}")


def duration_ms(text: str) -> int:
    match = _DURATION.fullmatch(text)
    if match is None or text[-1] in "PpTt":
        raise NotUnderstood("Text cannot be parsed to a Duration")
    days, hours, minutes = (int(match[name] or 0) for name in ("days", "hours", "minutes"))
    total = ((days * 24 + hours) * 60 + minutes) * 60_000 + round(float(match["seconds"] or 0) * 1000)
    return -total if match["sign"] == "-" else total


def offsets_in_file(path: str, group_id: str) -> Offsets:
    """Return the offsets in the lines `[group,]topic,partition,offset` of a file."""
    import csv
    from pathlib import Path

    try:
        text = Path(path).read_text(encoding="utf-8")
    except OSError:
        raise NotUnderstood(f"java.io.IOException: Unable to read file {path}") from None
    offsets: Offsets = {}
    for row in csv.reader(text.splitlines()):
        # A column for the group is there if the file was exported for several of them.
        if not row or (len(row) == 4 and row[0] != group_id):
            continue
        topic, partition, offset = row[-3:]
        offsets[topic, int(partition)] = int(offset)
    return offsets


def csv_of(chosen: dict[str, Offsets], *, with_group: bool) -> str:
    lines = []
    for group_id, offsets in _groups(chosen):
        for topic, partition in hash_order(offsets, partition_hash):
            row = f"{topic},{partition},{offsets[topic, partition]}"
            lines.append(f"{group_id},{row}\n" if with_group else f"{row}\n")
    return "".join(lines)


def _groups(chosen: dict[str, Offsets]) -> list[tuple[str, Offsets]]:
    return [(group_id, chosen[group_id]) for group_id in hash_order(chosen, string_hash)]


def print_new_offsets(chosen: dict[str, Offsets]) -> None:
    rows = [
        (group_id, topic, str(partition), str(offsets[topic, partition]))
        for group_id, offsets in _groups(chosen)
        for topic, partition in hash_order(offsets, partition_hash)
    ]
    group_width = max([15, *(len(row[0]) for row in rows)])
    topic_width = max([15, *(len(row[1]) for row in rows)])
    for group_id, topic, partition, offset in (("GROUP", "TOPIC", "PARTITION", "NEW-OFFSET"), *rows):
        print(f"\n{group_id:<{group_width}} {topic:<{topic_width}} {partition:<10} {offset}", end="")
    print()


# Delete.


def delete(cluster: Cluster, given: Given) -> None:
    delete_named(cluster, given.value("group"), given.values("topic"))


def delete_named(cluster: Cluster, group_id: str, texts: list[str]) -> None:
    """Delete the offsets of topics, or of some of their partitions (`topic:0,1`), and print the result for each."""
    results: dict[TopicPartition, str] = {}
    partitions: list[TopicPartition] = []
    for text in texts:
        try:
            partitions += parse_topics(cluster, [text])
        except RequestFailed as failure:
            results[text, -1] = f"Error: {failure.java_text}"
    delete_partitions(cluster, group_id, partitions, results)


def delete_partitions(
    cluster: Cluster, group_id: str, partitions: list[TopicPartition], results: dict[TopicPartition, str]
) -> None:
    """Delete the offsets of partitions, add the result for each to `results`, and print these."""
    overall = _delete(cluster, group_id, partitions, results)
    if overall is ErrorCode.NONE:
        print(f"Request succeeded for deleting offsets from group {group_id}.")
    elif overall in (
        ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ):
        error_line("Encountered some partition-level error, see the follow-up details.")
    else:
        error_line(sentence(overall))
    width = max([15, *(len(topic) for topic, _ in results)])
    rows = sorted(results.items(), key=lambda item: f"{item[0][0]}{item[0][1]}")
    print(f"\n{'TOPIC':<{width}} {'PARTITION':<10} {'STATUS':<15}", end="")
    for (topic, number), status in rows:
        print(f"\n{topic:<{width}} {MISSING if number < 0 else number:<10} {status:<15}", end="")
    print()


def _delete(
    cluster: Cluster, group_id: str, partitions: list[TopicPartition], results: dict[TopicPartition, str]
) -> ErrorCode:
    """Delete the offsets and add the result for each partition. Return the error of the request, or the first of a
    partition."""
    try:
        outcome = delete_offsets(cluster, group_id, partitions)
    except RequestFailed as failure:
        results |= dict.fromkeys(partitions, f"Error: {failure.java_text}")
        return failure.code
    for partition, code in outcome.items():
        results[partition] = f"Error: {java_name(code)}: {sentence(code)}" if code.is_error else "Successful"
    return next((code for code in outcome.values() if code.is_error), ErrorCode.NONE)
