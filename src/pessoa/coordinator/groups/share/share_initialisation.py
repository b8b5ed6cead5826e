"""Which share partitions a group tells the share coordinator to begin, and what it remembers of that.

    subscribed, and not known ──► initialising ──► initialised ──► (assigned to members)
                                       └── the share coordinator refused: not known, the next heartbeat tries again

A heartbeat that finds such partitions writes them down as initialising. When that is committed, the shell asks the
share coordinator (`InitializeShares`), and its outcome comes back as a request (`SharesInitialised`), which is
written down again. Nothing is assigned before: a leader could not load the state of a partition that has none.

A coordinator that fails in between leaves partitions initialising for ever. So what has been for longer than
`group.share.initialize.retry.interval.ms` is asked for again; to initialise twice with one state epoch does no harm
before a member has fetched. When that time began is kept in memory: after a failover it has passed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from pessoa.base.ids import Uuid
from pessoa.coordinator.groups.group_config import is_within_interval
from pessoa.coordinator.groups.group_registry import Registry
from pessoa.coordinator.groups.share.share_group import NamedPartitions, NamedTopics, ShareGroup
from pessoa.coordinator.groups.share.share_group_replay import named_topics, shares_record
from pessoa.coordinator.shard import CoordinatorRecord, Output
from pessoa.wire.errors import ErrorCode
from pessoa.wire.schema import Message, array, int16, string
from pessoa.wire.stored.share_group_records import TopicPartitionsInfo


class InitializeShares(NamedTuple):
    """Asks the share coordinator to initialise these share partitions, at the offset of `share.auto.offset.reset`."""

    group_id: str
    state_epoch: int
    topics: NamedTopics


class SharesInitialised(Message, versions="0", flexible="none"):
    """The result of an `InitializeShares`. Never leaves the process."""

    group_id: str = string()
    error_code: int = int16()
    topics: list[TopicPartitionsInfo] = array(TopicPartitionsInfo)


class ShareInitialisation:
    """Initialises the share partitions of groups. `initialize` sends the request to the share coordinator, and returns
    at once."""

    def __init__(
        self,
        registry: Registry,
        groups: Mapping[str, ShareGroup],
        retry_interval_ms: int,
        initialize: Callable[[InitializeShares], None],
    ) -> None:
        self._registry = registry
        self._groups = groups
        self._retry_interval_ms = retry_interval_ms
        self._initialize = initialize
        # When the share coordinator was last asked about a topic of a group.
        self._requested_at_ms: dict[tuple[str, Uuid], int] = {}

    def begin(self, output: Output, group: ShareGroup, names: Iterable[str], epoch: int, now_ms: int) -> None:
        """Add a record of the share partitions of these topics that must be initialised, and initialise them when it is
        committed."""
        missing = self._uninitialised_partitions(group, names, now_ms)
        if not missing:
            return
        for topic_id in missing:
            self._requested_at_ms[group.id, topic_id] = now_ms
        begun = group.shares.begin(missing)
        if begun != group.shares:
            output.records.append(shares_record(group.id, begun))
        asked = InitializeShares(group.id, epoch, missing)

        def on_outcome(code: ErrorCode, _: int) -> Output:
            if code is ErrorCode.NONE:
                self._initialize(asked)
            else:
                self._forget(group.id, missing)
            return Output()

        output.on_outcome = on_outcome

    def _uninitialised_partitions(self, group: ShareGroup, names: Iterable[str], now_ms: int) -> NamedTopics:
        """Return the share partitions of these topics that are neither initialised nor initialising."""
        missing: dict[Uuid, NamedPartitions] = {}
        for name in sorted(names):
            topic = self._registry.topic(name)
            if topic is None or topic.id in group.shares.deleting:
                continue
            partitions = frozenset(topic.partitions)
            if topic.id in group.shares.initialised:
                partitions -= group.shares.initialised[topic.id].partitions
            asked_ms = self._requested_at_ms.get((group.id, topic.id))
            if asked_ms is not None and is_within_interval(asked_ms, self._retry_interval_ms, now_ms):
                underway = group.shares.initialising.get(topic.id)
                partitions -= underway.partitions if underway else partitions
            if partitions:
                missing[topic.id] = NamedPartitions(name, partitions)
        return missing

    def finish(self, request: SharesInitialised, token: int) -> Output:
        """Add a record of what the share coordinator has initialised, or of what it has not."""
        topics = named_topics(request.topics)
        self._forget(request.group_id, topics)
        group = self._groups.get(request.group_id)
        output = Output.reply(token, request)
        if group is None:
            return output
        # What is not initialising any more was deleted meanwhile.
        topics = {topic_id: named for topic_id, named in topics.items() if topic_id in group.shares.initialising}
        shares = group.shares.undo(topics) if request.error_code else group.shares.finish(topics)
        if shares != group.shares:
            output.records.append(shares_record(group.id, shares))
        return output

    def forget_topics(self, topic_ids: frozenset[Uuid]) -> list[CoordinatorRecord]:
        """Return the records that remove deleted topics, whose share partitions have no state any more."""
        return [
            shares_record(group.id, shares)
            for group in self._groups.values()
            if (shares := group.shares.without_topics(topic_ids)) != group.shares
        ]

    def _forget(self, group_id: str, topics: NamedTopics) -> None:
        for topic_id in topics:
            self._requested_at_ms.pop((group_id, topic_id), None)
