"""When the expressions of a consumer group are matched against the topics, and what comes of it.

A heartbeat only decides whether it is time. The matching itself is done by a timer that is due at once, so that it is
apart from the heartbeat, as it is in Kafka, and is seen by the heartbeats that follow. A group does it at most once
in ten seconds; new expressions within that time wait for the next heartbeat after it. Each expression is matched in a
turn of its own: a group may have as many as it has members, and all other requests wait meanwhile.

An expression matches no topic that is hidden from the member whose heartbeat has it matched: as in Kafka, where members
of one group are taken to have the same rights.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from enum import Enum

from pessoa.base.linear_regex import InvalidRegex
from pessoa.coordinator.bounded_regex import Regex
from pessoa.coordinator.groups.consumer.consumer_group import ConsumerGroup, ConsumerMember, ResolvedRegex
from pessoa.coordinator.groups.consumer.consumer_records import group_epoch_record, regex_record, regex_tombstone
from pessoa.coordinator.groups.group_config import METADATA_REFRESH_INTERVAL_MS, REGEX_REFRESH_MIN_INTERVAL_MS
from pessoa.coordinator.groups.group_registry import Registry
from pessoa.coordinator.shard import CoordinatorRecord, Output
from pessoa.wire.errors import ErrorCode, Refusal
from pessoa.wire.request_context import Caller


class RegexChange(Enum):
    NONE = 0
    # The member has another expression, whose topics are not known.
    UPDATED = 1
    # It has another one, whose topics are known, or none any more.
    RESOLVED = 2


def regex_key(group_id: str) -> tuple[str, str]:
    return ("consumer regex", group_id)


class RegexRefresh:
    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    def update(
        self,
        records: list[CoordinatorRecord],
        group: ConsumerGroup,
        member: ConsumerMember,
        updated: ConsumerMember,
        context: Caller,
        now_ms: int,
    ) -> RegexChange:
        """Record a change of the member's expression, and let the group's expressions be matched again if that is due.
        Return how the member's expression has changed."""
        change, is_new = self._note_regex(records, group, member, updated)
        if is_new or group.regex_counts:
            self._maybe_schedule(group, member, updated, is_new, context, now_ms)
        return change

    def _note_regex(
        self,
        records: list[CoordinatorRecord],
        group: ConsumerGroup,
        member: ConsumerMember,
        updated: ConsumerMember,
    ) -> tuple[RegexChange, bool]:
        """Return how the member's expression changed, and whether it is new to the group."""
        old, new = member.subscribed_regex, updated.subscribed_regex
        if old == new:
            return RegexChange.NONE, False
        if old and group.regex_counts[old] == 1:
            records.append(regex_tombstone(group.id, old))
        if not new:
            return RegexChange.RESOLVED, False
        if not group.regex_counts[new]:
            try:
                Regex(new)
            except InvalidRegex as error:
                message = f"the subscription {new!r} is not a valid expression: {error}"
                raise Refusal(ErrorCode.INVALID_REGULAR_EXPRESSION, message) from None
            return RegexChange.UPDATED, True
        return (RegexChange.RESOLVED if new in group.resolved_regexes else RegexChange.UPDATED), False

    def _maybe_schedule(
        self,
        group: ConsumerGroup,
        member: ConsumerMember,
        updated: ConsumerMember,
        is_new: bool,
        context: Caller,
        now_ms: int,
    ) -> None:
        timers = self._registry.timers
        resolved = next(iter(group.resolved_regexes.values()), None)
        if regex_key(group.id) in timers:
            return
        if resolved is not None and now_ms <= resolved.timestamp_ms + REGEX_REFRESH_MIN_INTERVAL_MS:
            return
        counts = Counter(group.regex_counts)
        counts[member.subscribed_regex] -= group.counts(member)
        counts[updated.subscribed_regex] += 1
        regexes = [regex for regex, count in counts.items() if regex and count > 0]
        interval_ms = self._registry.config.group_consumer_regex_refresh_interval_ms
        is_time = (
            is_new
            or resolved is None
            or len(regexes) != len(group.resolved_regexes)
            or resolved.version < self._registry.last_new_topics_version
            or now_ms > resolved.timestamp_ms + interval_ms
        )
        if is_time and regexes:
            self._match_next(group.id, regexes, {}, self._registry.image.offset, context, now_ms)

    def _match_next(
        self,
        group_id: str,
        regexes: list[str],
        found: dict[str, frozenset[str]],
        version: int,
        context: Caller,
        due_ms: int,
    ) -> None:
        def match(now_ms: int) -> Output:
            regex = regexes[len(found)]
            matching = _matching_topics(regex, self._registry.image.topics.by_name)
            found[regex] = frozenset(name for name in matching if self._registry.may_describe(context, name))
            if len(found) == len(regexes):
                return self._resolve(group_id, found, version, now_ms)
            # What is due now is done in this turn.
            self._match_next(group_id, regexes, found, version, context, now_ms + 1)
            return Output()

        self._registry.timers.schedule(regex_key(group_id), due_ms, match)

    def _resolve(self, group_id: str, found: dict[str, frozenset[str]], version: int, now_ms: int) -> Output:
        """Return the records of the topics that these expressions match, in an image of that version or a later one."""
        output = Output()
        group = self._registry.groups.get(group_id)
        if not isinstance(group, ConsumerGroup):
            return output
        topics = set(group.name_counts)
        has_changed = False
        for regex, resolved in group.resolved_regexes.items():
            if regex not in found:
                topics |= resolved.topics
        for regex, matching in found.items():
            if not group.regex_counts[regex]:
                continue  # the members that had it are gone
            topics |= matching
            known = group.resolved_regexes.get(regex)
            has_changed |= matching != (frozenset() if known is None else known.topics)
            output.records.append(regex_record(group_id, regex, ResolvedRegex(matching, version, now_ms)))
        metadata_hash = self._registry.metadata_hash(topics)
        if has_changed or metadata_hash != group.metadata_hash:
            epoch = group.epoch + 1
            output.records.append(group_epoch_record(group_id, epoch, metadata_hash))
            group.refresh_at_ms = now_ms + METADATA_REFRESH_INTERVAL_MS
            group.refresh_epoch = epoch
        return output


def _matching_topics(regex: str, names: Iterable[str]) -> frozenset[str]:
    try:
        compiled = Regex(regex)
    except InvalidRegex:
        # Another broker has accepted it, which takes larger ones than we do.
        return frozenset()
    return frozenset(name for name in names if compiled.matches(name))
