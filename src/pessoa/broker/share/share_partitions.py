"""What share groups do with the partitions that this broker leads: the share partitions, and the sessions of members.

A share partition is made by the first fetch of a group, and dropped when this broker leads the partition no more, when
the group has no session left here, or when share groups are switched off (`share.version` 0). Nothing is lost with it:
what is stored is with the share coordinator.

A session ends with its connection. What its member has acquired is given back then, so that other members get it at
once and need not wait for the locks to end.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from typing import TYPE_CHECKING

from pessoa.broker.metrics.recent_average import RecentAverage
from pessoa.broker.share.led_share_partition import LedSharePartition
from pessoa.broker.share.share_settings import SettingsOfGroup
from pessoa.coordinator.share.share_state import ShareKey
from pessoa.metadata.supported_features import SHARE_VERSION
from pessoa.share.share_sessions import ShareSessions

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pessoa.broker.services import BrokerServices
    from pessoa.broker.share.state_persister import StatePersister
    from pessoa.metadata.image import MetadataImage
    from pessoa.replication.partition import Partition
    from pessoa.share.acknowledgement import Acknowledgement
    from pessoa.share.share_sessions import SessionKey
    from pessoa.wire.errors import ErrorCode

# For metrics.
_REMEMBERED_LOADS = 100
# The first share.version that has share groups.
_VERSION_WITH_SHARE_GROUPS = 1


def is_share_on(image: MetadataImage) -> bool:
    return image.features.level(SHARE_VERSION) >= _VERSION_WITH_SHARE_GROUPS


class GroupFetches:
    """The recent averages of a share group's fetches, for metrics: their waits, and the part of their partitions that
    could be acquired."""

    def __init__(self) -> None:
        # Of a hundred partitions of a fetch, how many could give records when it acquired.
        self.acquirable_percent = RecentAverage()
        # How long a fetch waited until it could acquire.
        self.wait_ms = RecentAverage()


class SharePartitions:
    """The share partitions of this broker. Invariant: none of them is gone."""

    def __init__(self, broker: BrokerServices, persister: StatePersister) -> None:
        self._broker = broker
        self._persister = persister
        self.sessions = ShareSessions(broker.config.group_share_max_share_sessions)
        self._led_share_partitions: dict[ShareKey, LedSharePartition] = {}
        self._by_partition: dict[Partition, dict[ShareKey, None]] = {}
        self._by_group: dict[str, dict[ShareKey, None]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_closed = False
        # How many records members have acknowledged, by the number of the acknowledge type.
        self.acknowledged: Counter[int] = Counter()
        # How long it took to load share partitions, the latest of them.
        self.load_times_ms: deque[int] = deque(maxlen=_REMEMBERED_LOADS)
        # Of groups that have a share partition here.
        self.fetches: dict[str, GroupFetches] = {}

    def __repr__(self) -> str:
        return f"<SharePartitions: {len(self._led_share_partitions)}, {self.sessions!r}>"

    def __len__(self) -> int:
        return len(self._led_share_partitions)

    def get(self, key: ShareKey) -> LedSharePartition | None:
        return self._led_share_partitions.get(key)

    def get_or_make(self, key: ShareKey, partition: Partition) -> LedSharePartition | None:
        """Return the share partition of a group, on a partition that this broker leads; None if the broker stops."""
        if self._is_closed:
            return None
        led = self._led_share_partitions.get(key)
        if led is not None and led.leader_epoch != partition.leader_epoch:
            led.drop()
            led = None
        if led is None:
            settings = SettingsOfGroup(self._broker, key.group_id)
            led = LedSharePartition(
                key, partition, self._persister, self._broker.clock, settings, self._forget, self.load_times_ms.append
            )
            self._led_share_partitions[key] = led
            self._by_partition.setdefault(partition, {})[key] = None
            self._by_group.setdefault(key.group_id, {})[key] = None
        return led

    def all(self) -> Iterator[LedSharePartition]:
        return iter(list(self._led_share_partitions.values()))

    def note_acknowledged(self, acknowledgements: Sequence[Acknowledgement]) -> None:
        """Count the acknowledged records by type; one type may stand for a whole range."""
        for first_offset, last_offset, types in acknowledgements:
            if len(types) == 1:
                self.acknowledged[types[0]] += last_offset - first_offset + 1
            else:
                self.acknowledged.update(types)

    def note_fetch(self, group_id: str, acquirable: int, asked: int, wait_ms: int) -> None:
        """Record, for the group's metrics, what part of the partitions of a ShareFetch could be acquired, and how long
        it waited."""
        if group_id not in self._by_group:
            return
        fetches = self.fetches.get(group_id)
        if fetches is None:
            fetches = self.fetches[group_id] = GroupFetches()
        now_ms = self._broker.clock.monotonic_ms()
        fetches.acquirable_percent.record(100 * acquirable // asked, now_ms)
        fetches.wait_ms.record(wait_ms, now_ms)

    def _forget(self, led: LedSharePartition) -> None:
        key, partition = led.key, led.partition
        del self._led_share_partitions[key]
        del self._by_partition[partition][key]
        if not self._by_partition[partition]:
            del self._by_partition[partition]
        del self._by_group[key.group_id][key]
        if not self._by_group[key.group_id]:
            del self._by_group[key.group_id]
            self.fetches.pop(key.group_id, None)

    # ── the ends of sessions ──

    def disconnect(self, connection_id: int) -> None:
        """End the sessions of a connection that has closed."""
        for session in self.sessions.disconnect(connection_id):
            self.end_session(session.key)

    def end_session(self, key: SessionKey) -> None:
        """Release what the member of a closed session has acquired, without waiting for the result."""
        task = asyncio.get_running_loop().create_task(self._release(key))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _release(self, key: SessionKey) -> None:
        outcomes: list[asyncio.Future[ErrorCode]] = []
        for led in self._of_group(key.group_id):
            outcome = led.release(key.member_id)
            if outcome is not None:
                outcomes.append(outcome)
        if outcomes:
            await asyncio.wait(outcomes)
        if not self.sessions.has_group(key.group_id):
            for led in self._of_group(key.group_id):
                led.drop()

    def _of_group(self, group_id: str) -> list[LedSharePartition]:
        return [self._led_share_partitions[key] for key in self._by_group.get(group_id, ())]

    # ── what the cluster does ──

    def on_leadership(self, partition: Partition) -> None:
        """Drop the share partitions of a partition that this broker does not lead any more, or leads in another
        epoch."""
        for key in list(self._by_partition.get(partition, ())):
            led = self._led_share_partitions[key]
            if not partition.is_leader or partition.leader_epoch != led.leader_epoch:
                led.drop()

    def publish(self, image: MetadataImage) -> None:
        if (self._led_share_partitions or len(self.sessions)) and not is_share_on(image):
            self.sessions.close_all()
            for led in list(self._led_share_partitions.values()):
                led.drop()

    def close(self) -> None:
        self._is_closed = True
        for led in list(self._led_share_partitions.values()):
            led.cancel()
        for task in self._tasks:
            task.cancel()
