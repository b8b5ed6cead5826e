"""Committed offsets: what is stored, and OffsetCommit, TxnOffsetCommit, OffsetFetch and OffsetDelete.

    committed   group → topic → partition → offset
    pending     producer id → (group, topic, partition) → offset: committed by transactions that have not ended
    open        group → (topic, partition) → the producers with a pending offset there

A transactional commit is written like any other, in a batch of its producer, and stays pending until the marker of
that producer comes through the same log. Then it becomes the committed offset, unless a later record has taken its
partition in the meantime: the one that stands last in the log counts. A tombstone takes pending offsets with it.

OffsetFetch with `require_stable` answers UNSTABLE_OFFSET_COMMIT where something is pending, so that a consumer that
takes over from a transactional producer does not read again what the open transaction covers (KIP-447). For the same
reason what it answers is confirmed by the replicas (`runtime`): a producer that has fenced its predecessor and then
asks a coordinator without its replicas must not get the offset of before the predecessor's last transaction.

An offset remembers the topic id that it was committed for. One that was committed for a topic of the same name that
is gone is not shown to a client that asks by id.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

from pessoa.base.ids import ZERO_UUID, Uuid
from pessoa.coordinator.groups.classic.classic_group import ClassicGroup, ClassicMember, ClassicState
from pessoa.coordinator.groups.consumer.consumer_group import CommitCheck, ConsumerGroup, accept_any_partition
from pessoa.coordinator.groups.group_registry import Group, Registry
from pessoa.coordinator.groups.streams.streams_group import StreamsGroup
from pessoa.coordinator.shard import CoordinatorRecord, Output, Producer
from pessoa.wire.api.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from pessoa.wire.api.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from pessoa.wire.api.offset_fetch import (
    OffsetFetchRequestGroup,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from pessoa.wire.api.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from pessoa.wire.errors import ErrorCode, Refusal
from pessoa.wire.primitives import MAX_INT64
from pessoa.wire.request_context import Caller
from pessoa.wire.stored.group_records import OffsetCommitKey, OffsetCommitValue

INVALID_OFFSET = -1
NO_LEADER_EPOCH = -1
NO_TIMESTAMP = -1
NO_PRODUCER_ID = -1

_VALUE_VERSION = 4
# The only version that can say when an offset expires, which clients before 2.1 could ask for.
_VALUE_VERSION_WITH_EXPIRY = 1
# From this version on a consumer group's commits name member epochs.
_MEMBER_EPOCH_VERSION = 9


class CommittedOffset(NamedTuple):
    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp_ms: int
    # When it expires, if the client asked for a time; NO_TIMESTAMP otherwise.
    expire_timestamp_ms: int
    topic_id: Uuid
    # Where its record stands in the log.
    record_offset: int = -1


# Group, topic, partition.
GroupPartition = tuple[str, str, int]


class Offsets:
    """The committed and pending offsets of the groups of a shard. `heard_of` is called when a member of a classic group
    commits, which counts as a heartbeat."""

    def __init__(self, registry: Registry, heard_of: Callable[[ClassicGroup, ClassicMember, int], None]) -> None:
        self._registry = registry
        self._heard_of = heard_of
        self.committed: dict[str, dict[str, dict[int, CommittedOffset]]] = {}
        self.pending: dict[int, dict[GroupPartition, CommittedOffset]] = {}
        self.open: dict[str, dict[tuple[str, int], set[int]]] = {}

    def __repr__(self) -> str:
        return f"<Offsets of {len(self.committed)} groups, {len(self.pending)} producers with pending ones>"

    def get(self, group_id: str, topic: str, partition: int) -> CommittedOffset | None:
        return self.committed.get(group_id, {}).get(topic, {}).get(partition)

    def is_open(self, group_id: str, topic: str, partition: int) -> bool:
        """Whether an open transaction has a pending offset for the partition."""
        return (topic, partition) in self.open.get(group_id, {})

    # ── OffsetCommit ──

    def commit(self, request: OffsetCommitRequest, context: Caller, token: int, now_ms: int) -> Output:
        check = self._check_commit(request, context, now_ms)
        retention_ms = request.retention_time_ms
        # Some ask for the longest retention that there is.
        expire_timestamp_ms = NO_TIMESTAMP if retention_ms == NO_TIMESTAMP else min(now_ms + retention_ms, MAX_INT64)
        output = Output()
        response = OffsetCommitResponse(topics=[])
        for topic in request.topics:
            partitions = []
            for partition in topic.partitions:
                index = partition.partition_index
                code = self._metadata_error(partition.committed_metadata)
                if code is ErrorCode.NONE:
                    check(topic.name, topic.topic_id, index)
                    value = _offset_in(partition, now_ms, expire_timestamp_ms, topic.topic_id)
                    output.records.append(offset_record(request.group_id, topic.name, index, value))
                partitions.append(OffsetCommitResponsePartition(partition_index=index, error_code=code))
            response.topics.append(
                OffsetCommitResponseTopic(name=topic.name, topic_id=topic.topic_id, partitions=partitions)
            )
        output.replies.append((token, response))
        return output

    def _check_commit(self, request: OffsetCommitRequest, context: Caller, now_ms: int) -> CommitCheck:
        generation = request.generation_id_or_member_epoch
        group = self._registry.groups.get(request.group_id)
        if group is None:
            self._registry.check_not_share(request.group_id)
            if generation < 0:
                return accept_any_partition  # its record makes it a simple group
            if context.version >= _MEMBER_EPOCH_VERSION:
                raise Refusal(ErrorCode.GROUP_ID_NOT_FOUND, f"there is no group {request.group_id}")
            raise Refusal(ErrorCode.ILLEGAL_GENERATION)
        if isinstance(group, ConsumerGroup | StreamsGroup):
            speaks_epochs = context.version >= _MEMBER_EPOCH_VERSION
            return group.check_offset_commit(request.member_id, generation, speaks_epochs)
        group.check_offset_commit(request.member_id, request.group_instance_id, generation, False)
        member = group.members.get(request.member_id)
        if member is not None and group.state in (ClassicState.STABLE, ClassicState.PREPARING_REBALANCE):
            self._heard_of(group, member, now_ms)
        return accept_any_partition

    def _metadata_error(self, metadata: str | None) -> ErrorCode:
        # Kafka counts Java's characters here, whatever the key's name says.
        if metadata is not None and _java_length(metadata) > self._registry.config.offset_metadata_max_bytes:
            return ErrorCode.OFFSET_METADATA_TOO_LARGE
        return ErrorCode.NONE

    # ── TxnOffsetCommit ──

    def commit_in_transaction(self, request: TxnOffsetCommitRequest, token: int, now_ms: int) -> Output:
        check = self._check_transactional_commit(request)
        output = Output(producer=Producer(request.producer_id, request.producer_epoch))
        response = TxnOffsetCommitResponse(throttle_time_ms=0, topics=[])
        for topic in request.topics:
            known = self._registry.topic(topic.name)
            if known is None and check is not accept_any_partition:
                raise Refusal(ErrorCode.ILLEGAL_GENERATION)
            topic_id = ZERO_UUID if known is None else known.id
            partitions = []
            for partition in topic.partitions:
                index = partition.partition_index
                code = self._metadata_error(partition.committed_metadata)
                if code is ErrorCode.NONE:
                    _check_generation(check, topic.name, topic_id, index)
                    value = _offset_in(partition, now_ms, NO_TIMESTAMP, ZERO_UUID)
                    output.records.append(offset_record(request.group_id, topic.name, index, value))
                partitions.append(TxnOffsetCommitResponsePartition(partition_index=index, error_code=code))
            response.topics.append(TxnOffsetCommitResponseTopic(name=topic.name, partitions=partitions))
        output.replies.append((token, response))
        return output

    def _check_transactional_commit(self, request: TxnOffsetCommitRequest) -> CommitCheck:
        group = self._registry.groups.get(request.group_id)
        if group is None:
            self._registry.check_not_share(request.group_id)
            if request.generation_id < 0:
                return accept_any_partition
            raise Refusal(ErrorCode.ILLEGAL_GENERATION)
        if isinstance(group, ConsumerGroup | StreamsGroup):
            if request.generation_id == -1 and not request.member_id and request.group_instance_id is None:
                # A producer from before KIP-447 does not say which member it works for.
                return accept_any_partition
            try:
                return group.check_offset_commit(request.member_id, request.generation_id, True)
            except Refusal as refusal:
                raise _as_generation_error(refusal) from None
        group.check_offset_commit(request.member_id, request.group_instance_id, request.generation_id, True)
        return accept_any_partition

    # ── OffsetFetch ──

    def fetch(self, request: OffsetFetchRequestGroup, require_stable: bool) -> OffsetFetchResponseGroup:
        """Return the offsets of one group: of the topics that are named, or of all if `topics` is None."""
        group_id = request.group_id
        group = self._registry.groups.get(group_id)
        if group is None:
            self._registry.check_not_share(group_id)
        if isinstance(group, ConsumerGroup | StreamsGroup):
            group.check_offset_fetch(request.member_id, request.member_epoch)
        known = self.committed.get(group_id, {}) if group is not None else {}
        if request.topics is None:
            wanted: Iterable[tuple[str, Uuid, Iterable[int]]] = (
                (topic, ZERO_UUID, partitions) for topic, partitions in known.items()
            )
        else:
            wanted = ((topic.name, topic.topic_id, topic.partition_indexes) for topic in request.topics)
        pending = self.open.get(group_id, {}) if require_stable else {}
        topics = []
        for name, topic_id, indexes in wanted:
            offsets = known.get(name, {})
            partitions = []
            for index in indexes:
                if (name, index) in pending:
                    partitions.append(_fetch_response(index, None, ErrorCode.UNSTABLE_OFFSET_COMMIT))
                    continue
                found = offsets.get(index)
                if found is not None and ZERO_UUID not in (found.topic_id, topic_id) and found.topic_id != topic_id:
                    found = None
                partitions.append(_fetch_response(index, found))
            topics.append(OffsetFetchResponseTopics(name=name, topic_id=topic_id, partitions=partitions))
        return OffsetFetchResponseGroup(group_id=group_id, topics=topics)

    # ── OffsetDelete and other ways to go ──

    def delete(self, request: OffsetDeleteRequest, token: int) -> Output:
        group = self._registry.group(request.group_id)
        if isinstance(group, ClassicGroup):
            group.check_offset_delete()
        output = Output()
        response = OffsetDeleteResponse(error_code=ErrorCode.NONE, throttle_time_ms=0, topics=[])
        for topic in request.topics:
            subscribed = group.is_subscribed_to(topic.name)
            code = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if subscribed else ErrorCode.NONE
            indexes = [partition.partition_index for partition in topic.partitions]
            response.topics.append(
                OffsetDeleteResponseTopic(
                    name=topic.name,
                    partitions=[
                        OffsetDeleteResponsePartition(partition_index=index, error_code=code) for index in indexes
                    ],
                )
            )
            if not subscribed:
                output.records += (
                    offset_tombstone(group.id, topic.name, index)
                    for index in indexes
                    if self.get(group.id, topic.name, index) is not None or self.is_open(group.id, topic.name, index)
                )
        output.replies.append((token, response))
        return output

    def tombstones(self, group_id: str) -> list[CoordinatorRecord]:
        """Return the tombstones of all offsets of a group that is deleted."""
        partitions = {
            (topic, index): None
            for topic, partitions in self.committed.get(group_id, {}).items()
            for index in partitions
        } | dict.fromkeys(self.open.get(group_id, {}))
        return [offset_tombstone(group_id, topic, index) for topic, index in partitions]

    def tombstones_of_topics(self, deleted: Mapping[str, Uuid]) -> list[CoordinatorRecord]:
        """Return the tombstones of all offsets of deleted topics; not of offsets for another topic of the same name."""
        partitions: dict[GroupPartition, None] = {}
        for (group_id, topic, index), offset in self._all_partitions():
            if topic in deleted and offset.topic_id in (ZERO_UUID, deleted[topic]):
                partitions[group_id, topic, index] = None
        return [offset_tombstone(*partition) for partition in partitions]

    def _all_partitions(self) -> Iterator[tuple[GroupPartition, CommittedOffset]]:
        for group_id, topics in self.committed.items():
            for topic, partitions in topics.items():
                for index, offset in partitions.items():
                    yield (group_id, topic, index), offset
        for pending in self.pending.values():
            yield from pending.items()

    def expire(self, group: Group, now_ms: int) -> tuple[list[CoordinatorRecord], bool]:
        """Return the tombstones of the group's offsets that have expired, and whether none is left. Offsets of a group
        with members do not expire, except those of topics that no member is subscribed to any more (KIP-211). Those of
        a group that had members expire the retention after the last member left; those of a group that never had any,
        or of an unsubscribed topic, the retention after their commit."""
        has_open = group.id in self.open
        topics = self.committed.get(group.id)
        if topics is None:
            return [], not has_open
        since = _expiry_base(group)
        if since is None:
            return [], False
        retention_ms = self._registry.config.offsets_retention_ms
        expired = []
        count = 0
        for topic, partitions in topics.items():
            count += len(partitions)
            if group.is_subscribed_to(topic):
                continue
            for index, offset in partitions.items():
                if offset.expire_timestamp_ms != NO_TIMESTAMP:
                    is_expired = now_ms >= offset.expire_timestamp_ms
                else:
                    is_expired = now_ms - since(offset) >= retention_ms
                if is_expired and not self.is_open(group.id, topic, index):
                    expired.append(offset_tombstone(group.id, topic, index))
        return expired, len(expired) == count and not has_open

    # ── replay ──

    def replay(self, key: OffsetCommitKey, value: OffsetCommitValue | None, offset: int, producer_id: int) -> None:
        partition = (key.group, key.topic, key.partition)
        if value is None:
            self._forget(partition)
            for producer in self.open.get(key.group, {}).pop((key.topic, key.partition), ()):
                self.pending.get(producer, {}).pop(partition, None)
            self._drop_empty(key.group)
            return
        self._registry.find_or_create_simple(key.group)
        committed = CommittedOffset(
            value.offset,
            value.leader_epoch,
            value.metadata,
            value.commit_timestamp,
            value.expire_timestamp,
            value.topic_id,
            offset,
        )
        if producer_id == NO_PRODUCER_ID:
            self._remember(partition, committed)
        else:
            self.pending.setdefault(producer_id, {})[partition] = committed
            partitions = self.open.setdefault(key.group, {})
            partitions.setdefault((key.topic, key.partition), set()).add(producer_id)

    def replay_end_transaction(self, producer_id: int, committed: bool) -> None:
        for partition, offset in self.pending.pop(producer_id, {}).items():
            group_id, topic, index = partition
            producers = self.open.get(group_id, {}).get((topic, index))
            if producers is not None:
                producers.discard(producer_id)
                if not producers:
                    del self.open[group_id][topic, index]
                self._drop_empty(group_id)
            if committed:
                existing = self.get(group_id, topic, index)
                if existing is None or offset.record_offset > existing.record_offset:
                    self._remember(partition, offset)

    def _remember(self, partition: GroupPartition, offset: CommittedOffset) -> None:
        group_id, topic, index = partition
        self.committed.setdefault(group_id, {}).setdefault(topic, {})[index] = offset

    def _forget(self, partition: GroupPartition) -> None:
        group_id, topic, index = partition
        topics = self.committed.get(group_id)
        if topics is None or topic not in topics:
            return
        topics[topic].pop(index, None)
        if not topics[topic]:
            del topics[topic]
            if not topics:
                del self.committed[group_id]

    def _drop_empty(self, group_id: str) -> None:
        if not self.open.get(group_id, True):
            del self.open[group_id]


def are_unstable(groups: Iterable[OffsetFetchResponseGroup]) -> bool:
    """Whether a partition of the response is unstable: an open transaction may still change its offset."""
    return any(
        partition.error_code == ErrorCode.UNSTABLE_OFFSET_COMMIT
        for group in groups
        for topic in group.topics
        for partition in topic.partitions
    )


def offset_record(group_id: str, topic: str, partition: int, offset: CommittedOffset) -> CoordinatorRecord:
    expires = offset.expire_timestamp_ms != NO_TIMESTAMP
    return CoordinatorRecord(
        OffsetCommitKey(group=group_id, topic=topic, partition=partition),
        OffsetCommitValue(
            offset=offset.offset,
            leader_epoch=offset.leader_epoch,
            metadata=offset.metadata,
            commit_timestamp=offset.commit_timestamp_ms,
            expire_timestamp=offset.expire_timestamp_ms,
            topic_id=offset.topic_id,
        ),
        _VALUE_VERSION_WITH_EXPIRY if expires else _VALUE_VERSION,
    )


def offset_tombstone(group_id: str, topic: str, partition: int) -> CoordinatorRecord:
    return CoordinatorRecord(OffsetCommitKey(group=group_id, topic=topic, partition=partition), None)


def _offset_in(
    partition: OffsetCommitRequestPartition | TxnOffsetCommitRequestPartition,
    now_ms: int,
    expire_timestamp_ms: int,
    topic_id: Uuid,
) -> CommittedOffset:
    return CommittedOffset(
        partition.committed_offset,
        partition.committed_leader_epoch,
        partition.committed_metadata or "",
        now_ms,
        expire_timestamp_ms,
        topic_id,
    )


def _fetch_response(
    index: int, offset: CommittedOffset | None, code: ErrorCode = ErrorCode.NONE
) -> OffsetFetchResponsePartitions:
    return OffsetFetchResponsePartitions(
        partition_index=index,
        committed_offset=INVALID_OFFSET if offset is None else offset.offset,
        committed_leader_epoch=NO_LEADER_EPOCH if offset is None else offset.leader_epoch,
        metadata="" if offset is None else offset.metadata,
        error_code=code,
    )


def _check_generation(check: CommitCheck, topic: str, topic_id: Uuid, partition: int) -> None:
    try:
        check(topic, topic_id, partition)
    except Refusal as refusal:
        raise _as_generation_error(refusal) from None


def _as_generation_error(refusal: Refusal) -> Refusal:
    """Return the refusal with ILLEGAL_GENERATION for a member epoch error: transactional producers know generations
    only."""
    return Refusal(ErrorCode.ILLEGAL_GENERATION) if refusal.code is ErrorCode.STALE_MEMBER_EPOCH else refusal


def _expiry_base(group: Group) -> Callable[[CommittedOffset], int] | None:
    """Return a function that gives the time from which the retention of an offset counts; None while no offset of the
    group may expire."""
    if isinstance(group, ClassicGroup) and group.protocol_type is not None:
        if group.is_empty:
            since_ms = group.state_since_ms
            return _commit_time if since_ms is None else lambda _: since_ms
        if not (group.state is ClassicState.STABLE and group.subscribed_topics is not None):
            return None
    return _commit_time


def _commit_time(offset: CommittedOffset) -> int:
    return offset.commit_timestamp_ms


def _java_length(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-16-le", "surrogatepass")) // 2
