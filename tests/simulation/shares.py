"""What a cluster with a share group has in addition: its configuration, its members, and the checks at the end.

The plan says whether a seed has one (`Plan.share_members`). What its members draw comes from a generator of their own,
so the other clients of a seed are the same without them.
"""

from __future__ import annotations

import asyncio
from random import Random
from typing import TYPE_CHECKING

from pessoa.coordinator.runtime import LoadState
from pessoa.log.partition_log import ReadUpTo
from pessoa.metadata.image import ConfigResource
from pessoa.wire.stored.metadata_records import ConfigRecord
from pessoa.wire.stored.record_framing import SHARE_LOG
from tests.simulation.history import TopicPartition, Violation
from tests.simulation.plan import DELIVERY_LIMIT
from tests.simulation.readers import READ_COMMITTED, READ_UNCOMMITTED
from tests.simulation.share_consumers import SHARE_GROUP, ShareMember
from tests.simulation.share_ledger import ShareLedger
from tests.simulation.share_watch import ShareWatch

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pessoa.broker.broker_coordinators import BrokerCoordinators
    from pessoa.replication.partition import Partition
    from pessoa.share.share_partition import SharePartition
    from tests.simulation.client import Client
    from tests.simulation.cluster import Cluster

# After healing: locks expire, released records are delivered (one by one near the delivery limit), and the group reads
# on. That takes a few seconds; a group that needs longer has failed too.
_DONE_WITHIN_S = 60.0
_LOOK_EVERY_S = 0.25


class Shares:
    def __init__(self, cluster: Cluster, partitions: Sequence[TopicPartition]) -> None:
        self._cluster = cluster
        self._partitions = partitions
        self._rng = Random(cluster.plan.seed ^ 0x5A2E0)
        self.ledger = ShareLedger(partitions, DELIVERY_LIMIT)
        self.watch = cluster.watch.shares = ShareWatch(
            SHARE_GROUP, self.ledger, cluster.watch.reached, may_pause="pause" in cluster.plan.faults
        )
        isolation = "read_committed" if cluster.plan.is_share_committed else "read_uncommitted"
        configs = {"share.auto.offset.reset": "earliest", "share.isolation.level": isolation}
        for node in cluster.nodes:
            node.first_records = [
                *node.first_records,
                *(
                    ConfigRecord(resource_type=ConfigResource.GROUP, resource_name=SHARE_GROUP, name=key, value=value)
                    for key, value in configs.items()
                ),
            ]

    def __repr__(self) -> str:
        return f"<Shares: {self.ledger!r}>"

    def start(self) -> list[Client]:
        return [self._member(f"s{number}") for number in range(self._cluster.plan.share_members)]

    def _member(self, name: str) -> ShareMember:
        member: ShareMember = self._cluster.client(ShareMember, name, Random(self._rng.random()))
        member.topic, member.ledger = self._partitions[0].topic, self.ledger
        member.is_committed = self._cluster.plan.is_share_committed
        return member

    # Checks at the end.

    async def finish(self) -> None:
        """Let one more member read until the group has reached the end of every log, and check everything."""
        cluster = self._cluster
        member = self._member("last")
        member.is_last = True
        work = cluster.run_client(member)
        end_s = cluster.loop.now_s + _DONE_WITHIN_S
        while not self._is_at_end():
            if cluster.loop.now_s > end_s or work.done():
                raise Violation(f"the share group is stuck or too slow: {self._states()}")
            await asyncio.sleep(_LOOK_EVERY_S)
        await self._check_lags(member, cluster.loop.now_s + _DONE_WITHIN_S)
        member.is_stopping = True
        await asyncio.wait([work], timeout=_DONE_WITHIN_S)
        # Not before: the group cannot get records that compaction removes meanwhile.
        records = await cluster.read(READ_COMMITTED if cluster.plan.is_share_committed else READ_UNCOMMITTED)
        for partition in self._partitions:
            self.ledger.check_complete(
                partition,
                records[partition],
                self.watch.given_up.get(partition, set()),
                self.watch.loads.get(partition, ()),
            )
        await self._check_stored()

    def _is_at_end(self) -> bool:
        """Return whether the start offset of every leader has reached the end of its log, and is stored."""
        up_to = ReadUpTo.LAST_STABLE_OFFSET if self._cluster.plan.is_share_committed else ReadUpTo.HIGH_WATERMARK
        states = self._states()
        for partition in self._partitions:
            end = max(
                replica.log.readable_end(up_to)
                for _, replica in self._cluster.led()
                if (replica.topic, replica.index) == partition
            )
            if end == 0:
                continue
            state = states.get(partition)
            if state is None or state.start_offset < end or state._current_write is not None or state._changed_batches:
                return False
        return True

    def _states(self) -> Mapping[TopicPartition, SharePartition]:
        found: dict[TopicPartition, SharePartition] = {}
        for node in self._cluster.brokers:
            assert node.broker is not None
            shares = node.broker.services.coordinators._share_partitions
            for led in shares._led_share_partitions.values() if shares is not None else ():
                if led._machine is not None and led.partition.is_leader:
                    found[TopicPartition(led.partition.topic, led.key.partition)] = led._machine
        return found

    async def _check_lags(self, member: ShareMember, end_s: float) -> None:
        plan = self._cluster.plan
        # Removed and aborted records are skipped in memory only, and count as lag until the next write of share state.
        is_exact = not plan.is_compacted and not plan.is_share_committed
        asking = self._member("lag")
        while True:
            lags = await self._cluster.run_as(asking, asking.lags())
            if any(lag < -1 for lag in lags.values()):
                raise Violation(f"the share group has the lags {lags}")
            begun = {one for one in self._partitions if one in lags}
            if begun and all(lags[one] == 0 or (not is_exact and lags[one] > 0) for one in begun):
                return
            if self._cluster.loop.now_s > end_s:
                raise Violation(f"the share group has read everything, and its lags are {lags}")
            await asyncio.sleep(_LOOK_EVERY_S)

    async def _check_stored(self) -> None:
        end_s = self._cluster.loop.now_s + _DONE_WITHIN_S
        while not all(_is_at_rest(*one) for one in self._share_logs()):
            if self._cluster.loop.now_s > end_s:
                raise Violation(f"share coordinators do not come to rest: {self._share_logs()}")
            await asyncio.sleep(_LOOK_EVERY_S)
        for coordinators, replica in self._share_logs():
            self.watch.check_stored(coordinators, replica.index, replica.log)

    def _share_logs(self) -> list[tuple[BrokerCoordinators, Partition]]:
        found = []
        for node, replica in self._cluster.led():
            assert node.broker is not None
            coordinators = node.broker.services.coordinators
            if replica.topic == SHARE_LOG and coordinators._shares is not None:
                found.append((coordinators, replica))
        return found


def _is_at_rest(coordinators: BrokerCoordinators, replica: Partition) -> bool:
    """Return whether the coordinator of this partition has loaded its state, and the log has no uncommitted records."""
    assert coordinators._shares is not None
    led = coordinators._shares.runtime.led_partition(replica.index)
    is_loaded = led is not None and led.state is LoadState.ACTIVE
    return is_loaded and replica.log.high_watermark == replica.log.log_end_offset
