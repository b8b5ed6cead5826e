"""OffsetCommit, TxnOffsetCommit, OffsetFetch and OffsetDelete on their way to the shards.

Topics are resolved here. Offsets are committed and deleted only for partitions that exist, and the versions that
speak of topic ids get ids back. What a shard never saw because its topic is unknown and what the shard answered are
put together again in one response; a topic that is in both stands in it once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, Protocol, TypeVar

from pessoa.base.ids import ZERO_UUID, Uuid
from pessoa.coordinator.groups.group_shard import GroupShard
from pessoa.coordinator.runtime import CoordinatorRuntime
from pessoa.coordinator.shard import Image
from pessoa.coordinator.shard_answers import all_of, ask, then
from pessoa.wire.api.offset_commit import (
    FIRST_OFFSET_COMMIT_WITH_TOPIC_IDS,
    OffsetCommitRequest,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from pessoa.wire.api.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from pessoa.wire.api.offset_fetch import (
    FIRST_OFFSET_FETCH_WITH_ERROR,
    FIRST_OFFSET_FETCH_WITH_GROUPS,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from pessoa.wire.api.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from pessoa.wire.errors import ErrorCode
from pessoa.wire.request_context import Answer, Caller

# From this version on OffsetFetch names topics by id.
_FETCH_BY_ID_VERSION = 10
# Producers from before this version of TxnOffsetCommit do not expect a coordinator that loads.
_TXN_LOADING_VERSION = 2

# What a log that is slow or short of replicas means to an OffsetFetch, which only reads.
_FETCH_ERRORS = {ErrorCode.COORDINATOR_NOT_AVAILABLE: ErrorCode.NOT_COORDINATOR}


class _HasIndex(Protocol):
    @property
    def partition_index(self) -> int: ...


P = TypeVar("P", bound=_HasIndex)


class _KnownTopic(NamedTuple):
    name: str
    id: Uuid
    partition_count: int

    def split(self, partitions: Iterable[P]) -> tuple[list[P], list[P]]:
        """Return the partitions that exist, and those that do not."""
        there: list[P] = []
        missing: list[P] = []
        for partition in partitions:
            (there if 0 <= partition.partition_index < self.partition_count else missing).append(partition)
        return there, missing


class OffsetService:
    """The offset APIs of a group coordinator. `image` returns the present metadata image."""

    def __init__(self, runtime: CoordinatorRuntime[GroupShard], image: Callable[[], Image]) -> None:
        self._runtime = runtime
        self._image = image

    def _by_name(self, name: str) -> _KnownTopic | None:
        topic = self._image().topics.by_name.get(name)
        return None if topic is None else _KnownTopic(topic.name, topic.id, len(topic.partitions))

    def _by_id(self, topic_id: Uuid) -> _KnownTopic | None:
        topic = self._image().topics.by_id.get(topic_id)
        return None if topic is None else _KnownTopic(topic.name, topic.id, len(topic.partitions))

    # ── OffsetCommit ──

    def commit(self, request: OffsetCommitRequest, context: Caller) -> Answer[OffsetCommitResponse]:
        by_id = context.version >= FIRST_OFFSET_COMMIT_WITH_TOPIC_IDS
        refused: list[OffsetCommitResponseTopic] = []
        accepted: list[OffsetCommitRequestTopic] = []
        for topic in request.topics:
            known = self._by_id(topic.topic_id) if by_id else self._by_name(topic.name)
            if known is None:
                code = ErrorCode.UNKNOWN_TOPIC_ID if by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                refused.append(_commit_error(topic, code))
                continue
            there, missing = known.split(topic.partitions)
            if missing:
                lost = OffsetCommitRequestTopic(name=known.name, topic_id=known.id, partitions=missing)
                refused.append(_commit_error(lost, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
            if there:
                accepted.append(OffsetCommitRequestTopic(name=known.name, topic_id=known.id, partitions=there))
        if not accepted:
            return OffsetCommitResponse(topics=refused)
        answer = ask(
            self._runtime,
            self._runtime.partition_for(request.group_id),
            GroupShard.commit_offsets,
            OffsetCommitRequest(
                group_id=request.group_id,
                generation_id_or_member_epoch=request.generation_id_or_member_epoch,
                member_id=request.member_id,
                group_instance_id=request.group_instance_id,
                retention_time_ms=request.retention_time_ms,
                topics=accepted,
            ),
            context,
            OffsetCommitResponse,
            lambda code, _: OffsetCommitResponse(topics=[_commit_error(topic, code) for topic in accepted]),
        )
        if not refused:
            return answer
        return then(answer, lambda response: OffsetCommitResponse(topics=_merge_topics(refused, response.topics)))

    # ── TxnOffsetCommit ──

    def commit_in_transaction(
        self, request: TxnOffsetCommitRequest, context: Caller, guard: object = None
    ) -> Answer[TxnOffsetCommitResponse]:
        """Commit offsets in a transaction. `guard` is the result of its verification, for `CoordinatorLog.append`."""

        def failed(topics: Iterable[TxnOffsetCommitRequestTopic], code: ErrorCode) -> TxnOffsetCommitResponse:
            if code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS and context.version < _TXN_LOADING_VERSION:
                code = ErrorCode.COORDINATOR_NOT_AVAILABLE
            return TxnOffsetCommitResponse(
                throttle_time_ms=0, topics=[_txn_commit_error(topic, code) for topic in topics]
            )

        if not request.group_id:
            return failed(request.topics, ErrorCode.INVALID_GROUP_ID)
        refused: list[TxnOffsetCommitResponseTopic] = []
        accepted: list[TxnOffsetCommitRequestTopic] = []
        for topic in request.topics:
            known = self._by_name(topic.name) or _KnownTopic(topic.name, ZERO_UUID, 0)
            there, missing = known.split(topic.partitions)
            if missing:
                lost = TxnOffsetCommitRequestTopic(name=topic.name, partitions=missing)
                refused.append(_txn_commit_error(lost, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
            if there:
                accepted.append(TxnOffsetCommitRequestTopic(name=topic.name, partitions=there))
        if not accepted:
            return TxnOffsetCommitResponse(throttle_time_ms=0, topics=refused)
        answer = ask(
            self._runtime,
            self._runtime.partition_for(request.group_id),
            GroupShard.commit_offsets_in_transaction,
            TxnOffsetCommitRequest(
                transactional_id=request.transactional_id,
                group_id=request.group_id,
                producer_id=request.producer_id,
                producer_epoch=request.producer_epoch,
                generation_id=request.generation_id,
                member_id=request.member_id,
                group_instance_id=request.group_instance_id,
                topics=accepted,
            ),
            context,
            TxnOffsetCommitResponse,
            lambda code, _: failed(accepted, code),
            guard,
        )
        if not refused:
            return answer
        return then(
            answer,
            lambda response: TxnOffsetCommitResponse(
                throttle_time_ms=0, topics=_merge_topics(refused, response.topics)
            ),
        )

    # ── OffsetFetch ──

    def fetch(self, request: OffsetFetchRequest, context: Caller) -> Answer[OffsetFetchResponse]:
        if context.version >= FIRST_OFFSET_FETCH_WITH_GROUPS:
            groups = _drop_repeated_groups(request.groups)
            answers = [self._fetch_group(group, request.require_stable, context) for group in groups]
            return all_of(answers, lambda groups: OffsetFetchResponse(groups=groups))
        topics = request.topics
        group = OffsetFetchRequestGroup(
            group_id=request.group_id,
            topics=None
            if topics is None
            else [
                OffsetFetchRequestTopics(name=topic.name, partition_indexes=topic.partition_indexes) for topic in topics
            ],
        )
        return then(self._fetch_group(group, request.require_stable, context), _single_group_response)

    def _fetch_group(
        self, group: OffsetFetchRequestGroup, require_stable: bool, context: Caller
    ) -> Answer[OffsetFetchResponseGroup]:
        by_id = context.version >= _FETCH_BY_ID_VERSION
        unknown: list[OffsetFetchResponseTopics] = []
        topics: list[OffsetFetchRequestTopics] | None = None
        if group.topics is not None:
            topics = []
            for topic in group.topics:
                if not by_id:
                    topics.append(topic)
                elif (known := self._by_id(topic.topic_id)) is None:
                    unknown.append(_fetch_error(topic, ErrorCode.UNKNOWN_TOPIC_ID))
                else:
                    topics.append(
                        OffsetFetchRequestTopics(
                            name=known.name, topic_id=known.id, partition_indexes=topic.partition_indexes
                        )
                    )

        def failed(code: ErrorCode, _: str | None) -> OffsetFetchResponse:
            code = _FETCH_ERRORS.get(code, code)
            if context.version >= FIRST_OFFSET_FETCH_WITH_ERROR:
                answered = OffsetFetchResponseGroup(group_id=group.group_id, topics=[], error_code=code)
            else:
                partitions = [_fetch_error(topic, code) for topic in topics or ()]
                answered = OffsetFetchResponseGroup(group_id=group.group_id, topics=partitions)
            return OffsetFetchResponse(groups=[answered])

        answer = ask(
            self._runtime,
            self._runtime.partition_for(group.group_id),
            GroupShard.fetch_offsets,
            OffsetFetchRequest(
                groups=[
                    OffsetFetchRequestGroup(
                        group_id=group.group_id,
                        member_id=group.member_id,
                        member_epoch=group.member_epoch,
                        topics=topics,
                    )
                ],
                require_stable=require_stable,
            ),
            context,
            OffsetFetchResponse,
            failed,
        )
        return then(answer, lambda response: self._finish_fetch(response.groups[0], unknown, by_id))

    def _finish_fetch(
        self, group: OffsetFetchResponseGroup, unknown: list[OffsetFetchResponseTopics], by_id: bool
    ) -> OffsetFetchResponseGroup:
        if group.error_code != ErrorCode.NONE:
            return group
        topics = group.topics
        if by_id:
            # Asked for all topics, the shard knows names only; one that is gone has no id to be named by.
            for topic in topics:
                if topic.topic_id == ZERO_UUID and (known := self._by_name(topic.name)) is not None:
                    topic.topic_id = known.id
            topics = [topic for topic in topics if topic.topic_id != ZERO_UUID]
        return OffsetFetchResponseGroup(group_id=group.group_id, topics=topics + unknown)

    # ── OffsetDelete ──

    def delete(self, request: OffsetDeleteRequest, context: Caller) -> Answer[OffsetDeleteResponse]:
        def failed(code: ErrorCode, _: str | None) -> OffsetDeleteResponse:
            return OffsetDeleteResponse(error_code=code, throttle_time_ms=0, topics=[])

        if not request.group_id:
            return failed(ErrorCode.INVALID_GROUP_ID, None)
        refused: list[OffsetDeleteResponseTopic] = []
        accepted: list[OffsetDeleteRequestTopic] = []
        for topic in request.topics:
            known = self._by_name(topic.name) or _KnownTopic(topic.name, ZERO_UUID, 0)
            there, missing = known.split(topic.partitions)
            if missing:
                code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                partitions = [
                    OffsetDeleteResponsePartition(partition_index=each.partition_index, error_code=code)
                    for each in missing
                ]
                refused.append(OffsetDeleteResponseTopic(name=topic.name, partitions=partitions))
            if there:
                accepted.append(OffsetDeleteRequestTopic(name=topic.name, partitions=there))
        # A group that does not exist is an error whatever the topics are, so the shard is asked in any case.
        answer = ask(
            self._runtime,
            self._runtime.partition_for(request.group_id),
            GroupShard.delete_offsets,
            OffsetDeleteRequest(group_id=request.group_id, topics=accepted),
            context,
            OffsetDeleteResponse,
            failed,
        )

        def merge(response: OffsetDeleteResponse) -> OffsetDeleteResponse:
            if response.error_code == ErrorCode.NONE:
                response.topics = _merge_topics(refused, response.topics)
            return response

        return then(answer, merge) if refused else answer


T = TypeVar("T", OffsetCommitResponseTopic, TxnOffsetCommitResponseTopic, OffsetDeleteResponseTopic)


def _merge_topics(refused: Sequence[T], answered: Sequence[T]) -> list[T]:
    # A topic that is known by its id alone has no name to be found by.
    merged: list[T] = [topic for topic in refused if not topic.name]
    by_name: dict[str, T] = {topic.name: topic for topic in refused if topic.name}
    for topic in answered:
        existing = by_name.setdefault(topic.name, topic)
        if existing is not topic:
            existing.partitions.extend(topic.partitions)
    merged.extend(by_name.values())
    return merged


def _commit_error(topic: OffsetCommitRequestTopic, code: ErrorCode) -> OffsetCommitResponseTopic:
    return OffsetCommitResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        partitions=[
            OffsetCommitResponsePartition(partition_index=each.partition_index, error_code=code)
            for each in topic.partitions
        ],
    )


def _txn_commit_error(topic: TxnOffsetCommitRequestTopic, code: ErrorCode) -> TxnOffsetCommitResponseTopic:
    return TxnOffsetCommitResponseTopic(
        name=topic.name,
        partitions=[
            TxnOffsetCommitResponsePartition(partition_index=each.partition_index, error_code=code)
            for each in topic.partitions
        ],
    )


def _drop_repeated_groups(groups: list[OffsetFetchRequestGroup]) -> list[OffsetFetchRequestGroup]:
    """Drop the entries that ask again for all topics of a group whose topics were all asked for."""
    whole: set[str] = set()
    kept = []
    for group in groups:
        if group.topics is None:
            if group.group_id in whole:
                continue
            whole.add(group.group_id)
        kept.append(group)
    return kept


def _fetch_error(topic: OffsetFetchRequestTopics, code: ErrorCode) -> OffsetFetchResponseTopics:
    return OffsetFetchResponseTopics(
        name=topic.name,
        topic_id=topic.topic_id,
        partitions=[
            OffsetFetchResponsePartitions(
                partition_index=index, committed_offset=-1, committed_leader_epoch=-1, metadata="", error_code=code
            )
            for index in topic.partition_indexes
        ],
    )


def _single_group_response(group: OffsetFetchResponseGroup) -> OffsetFetchResponse:
    """Return the response in the form of the versions that ask for one group."""
    return OffsetFetchResponse(
        error_code=group.error_code,
        topics=[
            OffsetFetchResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetFetchResponsePartition(
                        partition_index=partition.partition_index,
                        committed_offset=partition.committed_offset,
                        committed_leader_epoch=partition.committed_leader_epoch,
                        metadata=partition.metadata,
                        error_code=partition.error_code,
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in group.topics
        ],
    )
