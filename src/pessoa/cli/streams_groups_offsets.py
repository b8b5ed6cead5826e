"""What `kafka-streams-groups` changes: offsets moved and deleted, groups deleted, and their internal topics with them.

An application that shall read its input anew must also lose what it has made of it: with --delete-all-internal-topics
its changelogs and repartition topics go, as the group's topology names them. A topic that is not named after the group
stays, for it may belong to others.
"""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING

from pessoa.base.java_order import hash_order, partition_hash, string_hash
from pessoa.cli import consumer_groups_offsets as moving
from pessoa.cli.command_line import UsageError
from pessoa.cli.consumer_groups import error_line, states_of_groups
from pessoa.cli.streams_groups import Wrapped, chosen_groups, described, source_offsets
from pessoa.client.client_errors import KafkaFailure, RequestFailed
from pessoa.client.group_admin import commit_offsets, committed_offsets, delete_group
from pessoa.client.offset_admin import EARLIEST, LATEST
from pessoa.client.streams_group_admin import describe_streams_group
from pessoa.wire.errors import ErrorCode

if TYPE_CHECKING:
    from pessoa.cli.command_line import Given
    from pessoa.cli.consumer_groups_offsets import Offsets
    from pessoa.client.cluster_client import Cluster
    from pessoa.client.offset_admin import TopicPartition

_INTERNAL = re.compile(
    r".*(-changelog|-repartition|-subscription-registration-topic|-subscription-response-topic"
    r"|.-KTABLE-FK-JOIN-SUBSCRIPTION-(REGISTRATION|RESPONSE)-\d+-topic)"
)


class _DoubleWrapped(KafkaFailure):
    java_name = "java.lang.RuntimeException"


# Reset.


def reset(cluster: Cluster, given: Given) -> None:
    chosen: dict[str, Offsets] = {}
    for group_id in chosen_groups(cluster, given):
        try:
            state = describe_streams_group(cluster, group_id).state
        except RequestFailed as failure:
            if failure.code is not ErrorCode.GROUP_ID_NOT_FOUND:
                raise _wrap_twice(failure) from failure
            # It may have offsets all the same.
            chosen[group_id] = _reset_group(cluster, given, group_id)
            continue
        if state in ("Empty", "Dead"):
            chosen[group_id] = _reset_group(cluster, given, group_id)
            if given.has("execute"):
                _delete_topics_after_reset(cluster, given, group_id)
        else:
            error_line(
                f"Assignments can only be reset if the group '{group_id}' is inactive, but the current state is "
                f"{state}."
            )
            chosen[group_id] = {}
    if given.has("export"):
        print(moving.csv_of(chosen, with_group=len(given.values("group")) != 1))
    else:
        _print_new_offsets(chosen)


def _wrap_twice(failure: RequestFailed) -> _DoubleWrapped:
    return _DoubleWrapped(f"{Wrapped.java_name}: {failure.java_text}")


def _print_new_offsets(chosen: dict[str, Offsets]) -> None:
    rows = [("GROUP", "TOPIC", "PARTITION", "NEW-OFFSET")] if chosen else []
    for group_id in hash_order(chosen, string_hash):
        offsets = chosen[group_id]
        rows += [
            (group_id, topic, str(partition), str(offsets[topic, partition]))
            for topic, partition in hash_order(offsets, partition_hash)
        ]
    for group_id, topic, partition, offset in rows:
        print(f"\n{group_id:<30} {topic:<30} {partition:<10} {offset:<15}", end="")
    print()


def _reset_group(cluster: Cluster, given: Given, group_id: str) -> Offsets:
    offsets = _target(cluster, given, group_id, _partitions(cluster, given, group_id))
    if given.has("execute") and offsets:
        commit_offsets(cluster, group_id, offsets)
    return offsets


def _fetch_committed(cluster: Cluster, group_id: str) -> Offsets:
    try:
        group = describe_streams_group(cluster, group_id)
    except RequestFailed as failure:
        raise _wrap_twice(failure) from failure
    return {where: one.offset for where, one in source_offsets(cluster, group).items()}


def _partitions(cluster: Cluster, given: Given, group_id: str) -> list[TopicPartition]:
    if given.has("all-input-topics"):
        return list(_fetch_committed(cluster, group_id))
    if given.has("input-topic"):
        found = moving.existing_partitions(cluster, moving.parse_topics(cluster, given.values("input-topic")))
        known = committed_offsets(cluster, group_id)
        if all(partition in known for partition in found):
            return found
        error_line(f"One or more topics are not part of the group '{group_id}'.")
        return []
    if given.has("from-file"):
        return []
    raise UsageError("One of the reset scopes should be defined: --all-topics, --topic.")


def _target(cluster: Cluster, given: Given, group_id: str, partitions: list[TopicPartition]) -> Offsets:
    if given.has("to-offset"):
        return moving.clamp_offsets(cluster, dict.fromkeys(partitions, given.number("to-offset")))
    if given.has("to-earliest"):
        return moving.offsets_at(cluster, partitions, EARLIEST)
    if given.has("to-latest"):
        return moving.offsets_at(cluster, partitions, LATEST)
    if given.has("shift-by"):
        return moving.shift_offsets(cluster, _fetch_committed(cluster, group_id), given.number("shift-by"), partitions)
    if given.has("to-datetime"):
        return moving.offsets_at_time(cluster, partitions, moving.milliseconds(given.value("to-datetime")))
    if given.has("by-duration"):
        since_ms = int(time.time() * 1000) - moving.duration_ms(given.value("by-duration"))
        return moving.offsets_at_time(cluster, partitions, since_ms)
    if given.has("from-file"):
        return moving.clamp_offsets(cluster, moving.offsets_in_file(given.value("from-file"), group_id))
    if given.has("to-current"):
        committed = _fetch_committed(cluster, group_id)
        others = [partition for partition in partitions if partition not in committed]
        current = {partition: committed[partition] for partition in partitions if partition in committed}
        return current | moving.offsets_at(cluster, others, LATEST)
    raise UsageError(moving.NO_SCENARIO)


# Internal topics.


def _internal_topics(cluster: Cluster, group_id: str) -> list[str]:
    group = described(cluster, group_id)
    sources = {topic for one in group.subtopologies for topic in one.sources}
    found = []
    for one in group.subtopologies:
        for topic in (*one.repartitions, *one.changelogs):
            if topic in sources:
                continue
            if topic.startswith(f"{group_id}-") and _INTERNAL.fullmatch(topic):
                found.append(topic)
            else:
                error_line(
                    f"The internal topic '{topic}' is not inferred as internal and thus will not be deleted with the "
                    f"group '{group_id}'."
                )
    return found


def _delete_topics_after_reset(cluster: Cluster, given: Given, group_id: str) -> None:
    from pessoa.client.topic_admin import delete_topics

    topics = given.values("delete-internal-topic")
    if given.has("delete-all-internal-topics"):
        topics = _internal_topics(cluster, group_id)
    failures: list[KafkaFailure] = []
    for topic in topics:
        try:
            delete_topics(cluster, [topic])
        except KafkaFailure as failure:
            failures.append(failure)
    if not failures:
        return
    first = failures[0]
    if isinstance(first, RequestFailed) and first.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        error_line(f"Deleting internal topics for group '{group_id}' failed because the topics do not exist.")
    else:
        error_line(f"Deleting internal topics for group '{group_id}' failed due to {first.java_text}", first)


# Delete.


def delete(cluster: Cluster, given: Given) -> None:
    group_id = given.value("group")
    if given.has("all-input-topics"):
        moving.delete_partitions(cluster, group_id, list(_fetch_committed(cluster, group_id)), {})
    else:
        moving.delete_named(cluster, group_id, given.values("input-topic"))


def delete_groups(cluster: Cluster, given: Given) -> None:
    known = states_of_groups(cluster, "Streams")
    wanted = list(dict.fromkeys(chosen_groups(cluster, given)))
    failures = {group_id: reason for group_id in wanted if (reason := _why_not(group_id, known)) is not None}
    left = [group_id for group_id in wanted if group_id not in failures]
    topics: dict[str, list[str]] = {}
    if given.has("delete-all-internal-topics"):
        topics = {group_id: names for group_id in left if (names := _internal_topics(cluster, group_id))}
    deleted = []
    for group_id in left:
        try:
            delete_group(cluster, group_id)
            deleted.append(group_id)
        except KafkaFailure as failure:
            failures[group_id] = failure.java_text
    not_deleted = _delete_topics_of(cluster, {group_id: topics[group_id] for group_id in deleted if group_id in topics})
    _print_deletion(hash_order(deleted, string_hash), failures)
    if topics and deleted:
        _print_deletion_of_topics([one for one in hash_order(deleted, string_hash) if one in topics], not_deleted)


def _why_not(group_id: str, known: dict[str, str]) -> str | None:
    state = known.get(group_id)
    if state is None:
        return f"java.lang.IllegalArgumentException: Group '{group_id}' does not exist or is not a streams group."
    if state == "Dead":
        return f"java.lang.IllegalStateException: Streams group '{group_id}' group state is DEAD."
    if state != "Empty":
        return RequestFailed(ErrorCode.NON_EMPTY_GROUP, f"Streams group '{group_id}' is not EMPTY.").java_text
    return None


def _print_deletion(deleted: list[str], failures: dict[str, str]) -> None:
    names = "', '".join(deleted)
    if not failures:
        print(f"Deletion of requested streams groups ('{names}') was successful.")
        return
    error_line("Deletion of some streams groups failed:")
    for group_id in hash_order(failures, string_hash):
        print(f"* Group '{group_id}' could not be deleted due to: {failures[group_id]}")
    if deleted:
        print(f"\nThese streams groups were deleted successfully: '{names}'.")


def _delete_topics_of(cluster: Cluster, topics: dict[str, list[str]]) -> dict[str, str]:
    """Delete the internal topics of these groups. Return the groups that still have a topic, with the error."""
    from pessoa.client.topic_admin import delete_topics

    failures: dict[str, str] = {}
    for group_id, names in topics.items():
        for name in names:
            try:
                delete_topics(cluster, [name])
            except KafkaFailure as failure:
                print(f"Failed to delete internal topic: {name}")
                failures.setdefault(group_id, failure.java_text)
    return failures


def _print_deletion_of_topics(groups: list[str], failures: dict[str, str]) -> None:
    if not failures:
        names = "', '".join(groups)
        print(f"Deletion of associated internal topics of the streams groups ('{names}') was successful.")
        return
    print("Deletion of some associated internal topics failed:")
    for group_id in hash_order(failures, string_hash):
        reason = failures[group_id]
        print(f"* Internal topics of the streams group '{group_id}' could not be deleted due to: {reason}")
