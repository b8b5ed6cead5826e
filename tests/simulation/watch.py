"""The invariants of the cluster, which are checked after every step of a node.

    one leader per partition and epoch        two brokers that both lead a partition do so in different epochs
    the high watermark never goes back        on one replica, within one incarnation of its broker
    committed batches never change            below the high watermark, an offset has the same batch on every replica,
                                              in every incarnation: of partitions and of the metadata log
    the ISR has all committed records         of every leader so far, since any member may be elected next
    the ISR is a subset of the replicas       and never empty, unless there are eligible leader replicas
    one leader per epoch of the quorum        and a node's epoch never goes back, also over restarts
    no append without authorization           by a user who has lost the ACL, or never had it: see `rights`
    no healthy disk is taken for damaged      such a voter neither votes nor is a candidate, and a power loss of all
                                              machines at once must not cause it
    compaction removes only what it may       see `compaction`; batches are the same but for removed records

A check is cheap, because only what has changed since the last check is compared. The last observed state of a node is
kept in a `_Glance`, so that a node without changes costs a few comparisons.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pessoa.log.partition_log import ReadUpTo
from pessoa.raft.memory import Memory
from pessoa.records.batch import batches
from pessoa.records.record import records
from pessoa.wire.stored.record_framing import SHARE_LOG
from tests.simulation.compaction import CommittedBatches
from tests.simulation.history import Violation
from tests.simulation.readers import identity

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    from pessoa.base.ids import Uuid
    from pessoa.broker.lifecycle import Broker
    from pessoa.broker.services import BrokerServices
    from pessoa.log.partition_log import PartitionLog
    from pessoa.quorum.raft_quorum import RaftQuorum
    from pessoa.replication.partition import Partition
    from tests.simulation.history import History
    from tests.simulation.node import Node
    from tests.simulation.rights import Rights
    from tests.simulation.share_watch import ShareWatch
    from tests.simulation.streams_tasks import StreamsWatch

_READ_BYTES = 1 << 20


@dataclass(slots=True, eq=False)
class _Place:
    """One partition of the cluster, with what was seen on any of its replicas."""

    name: object
    # The highest high watermark of any replica.
    reached: int = 0
    # Base offset → (last offset, leader epoch, checksum, node that had it first)
    committed: dict[int, tuple[int, int, int, str]] = field(default_factory=dict)
    # Used instead for a compacted partition, because compaction writes its batches again.
    memory: CommittedBatches | None = None
    is_share_state: bool = False


@dataclass(slots=True, eq=False)
class _SeenReplica:
    place: _Place
    # The last epoch in which it was seen to lead.
    led_epoch: int = -1
    log: PartitionLog | None = None
    high_watermark: int = 0
    # The offset up to which appends were checked, and the epoch in which it led then; -1 if it did not.
    appended: int = 0
    appended_epoch: int = -1


@dataclass(slots=True, eq=False)
class _Glance:
    """The last observed state of one node. A new incarnation has a new broker."""

    broker: Broker | None = None
    services: BrokerServices | None = None
    quorum: RaftQuorum | None = None
    election: Any = None
    metadata_log: PartitionLog | None = None
    metadata_high_watermark: int = 0
    image: Any = None
    replicas: dict[Partition, _SeenReplica] = field(default_factory=dict)


class Watch:
    """The checks of one run. `compacted` are the topics that the nodes compact; see `compaction` for `retention_s`."""

    def __init__(
        self,
        now_s: Callable[[], float] = lambda: 0.0,
        compacted: Collection[str] = (),
        retention_s: float | None = None,
    ) -> None:
        self._now_s = now_s
        self._compacted = compacted
        self._retention_s = retention_s
        # Of a secured cluster: ACLs of users, and what they wrote.
        self.rights: Rights | None = None
        self.history: History | None = None
        # Of a cluster with a share group.
        self.shares: ShareWatch | None = None
        # Of a cluster with a streams group.
        self.streams: StreamsWatch | None = None
        # (topic id, partition, leader epoch) → node
        self._leaders: dict[tuple[Uuid, int, int], int] = {}
        # quorum epoch → node
        self._quorum_leaders: dict[int, int] = {}
        # node → the newest quorum epoch that it has ever been in
        self._epochs: dict[int, int] = {}
        # Called when a node enters an epoch of the quorum.
        self.on_epoch: Callable[[Node], None] = lambda _: None
        self._glances: dict[int, _Glance] = {}
        # Log → the high watermark up to which it was compared
        self._high_watermarks: dict[PartitionLog, int] = {}
        # The newest metadata image that any node has.
        self._newest_image: Any = None
        self._metadata = _Place("the metadata log")
        self._places: dict[tuple[str, int, Uuid], _Place] = {}

    def __repr__(self) -> str:
        return f"<Watch: {len(self._leaders)} partition epochs, {len(self._quorum_leaders)} quorum epochs>"

    @property
    def quorum_epoch(self) -> int:
        """Return the newest epoch of the quorum that any node has been in."""
        return max(self._epochs.values(), default=-1)

    def look(self, node: Node) -> None:
        glance = self._glances.get(node.id)
        if glance is None:
            glance = self._glances[node.id] = _Glance()
        broker = node.broker
        if broker is None:
            return
        if broker is not glance.broker:
            glance.broker, glance.services, glance.quorum = broker, None, None
        quorum = glance.quorum
        if quorum is None:
            quorum = glance.quorum = node.quorum
        if quorum is not None:
            self._look_at_quorum(node, quorum, glance)
        services = glance.services
        if services is None:
            services = glance.services = getattr(broker, "services", None)
        # A node with only the controller role has the image before any broker.
        image = services.image if services is not None else broker.image
        if image is not glance.image:
            glance.image = image
            self._look_at_image(image)
            if self.rights is not None:
                self.rights.look_at_image(image)
            if self._newest_image is None or image.offset > self._newest_image.offset:
                self._newest_image = image
        if services is None:
            return
        known = glance.replicas
        for partitions in services.replicas.by_name.values():
            for partition in partitions.values():
                seen = known.get(partition)
                if seen is None:
                    seen = known[partition] = self._first_seen(partition)
                if partition.is_leader and partition.leader_epoch != seen.led_epoch:
                    self._look_at_leader(node, partition)
                    seen.led_epoch = partition.leader_epoch
                log = partition.log
                if log.is_released:
                    continue
                if self.rights is not None and log.log_end_offset != seen.appended:
                    self._look_at_appended(partition, seen)
                if log.high_watermark != seen.high_watermark or log is not seen.log:
                    self._look_at_committed(node, seen.place, log)
                    seen.log, seen.high_watermark = log, log.high_watermark
                if log.log_end_offset < seen.place.reached and not partition.is_offline and self._is_member(node):
                    self._look_at_laggard(node, partition, seen.place.reached)
        if self.shares is not None:
            self.shares.look(node, services.coordinators)
        if self.streams is not None:
            self.streams.look(node, services.coordinators)
        if node.cleaned:
            cleaned = [one for one in services.replicas.all() if one.log.directory in node.cleaned]
            self.look_at_compacted(node, cleaned)
            node.cleaned.clear()

    def _look_at_appended(self, partition: Partition, seen: _SeenReplica) -> None:
        """Check that the users whose records a leader has appended may write them."""
        log, offset = partition.log, seen.appended
        is_leader_as_before = partition.is_leader and partition.leader_epoch == seen.appended_epoch
        seen.appended = log.log_end_offset
        seen.appended_epoch = partition.leader_epoch if partition.is_leader else -1
        if not is_leader_as_before or partition.topic.startswith("__"):
            return
        assert self.rights is not None
        assert self.history is not None
        while offset < log.log_end_offset:
            data = log.read(offset, _READ_BYTES, ReadUpTo.LOG_END).data
            for batch in batches(data.read()) if data is not None else ():
                for one in () if batch.is_control else records(batch):
                    self.rights.check_append(
                        self.history, partition.topic, identity(one), is_transactional=batch.is_transactional
                    )
            offset = log.log_end_offset

    def reached(self, topic: str, index: int) -> int:
        """Return the highest high watermark that any replica of the partition has had."""
        return max((one.reached for name, one in self._places.items() if name[:2] == (topic, index)), default=0)

    def look_at_compacted(self, node: Node, replicas: Iterable[Partition]) -> None:
        """Check that compaction has removed from these replicas only what it may."""
        for partition in replicas:
            seen = self._glances[node.id].replicas.get(partition)
            if seen is not None and seen.place.memory is not None and not partition.log.is_released:
                seen.place.memory.check(partition.log, self._now_s(), node.host)

    def _first_seen(self, partition: Partition) -> _SeenReplica:
        name = (partition.topic, partition.index, partition.topic_id)
        place = self._places.get(name)
        if place is None:
            place = self._places[name] = _Place(f"{partition.topic}-{partition.index}")
            place.is_share_state = partition.topic == SHARE_LOG
            if partition.topic in self._compacted:
                place.memory = CommittedBatches(place.name, self._retention_s)
        return _SeenReplica(place)

    def _is_member(self, node: Node) -> bool:
        """Return whether the newest image has the node's present broker epoch. Until then the image is about its
        earlier incarnation, and the node may have fewer records."""
        known = self._newest_image.cluster.brokers.get(node.id) if self._newest_image is not None else None
        return known is not None and known.epoch == node.broker_epoch

    def _look_at_quorum(self, node: Node, quorum: Any, glance: _Glance) -> None:
        if quorum.failure is not None:
            # Its disk has failed and it sends nothing any more, so no other node learns of its state in memory.
            return
        election = quorum._raft.election
        if election is not glance.election:
            glance.election = election
            if quorum._raft.memory is Memory.DAMAGED and not node.has_rotten:
                raise Violation(f"{node.host} doubts its metadata log, and nothing has happened to it")
            self._look_at_election(node, quorum.epoch, quorum.leader_id)
        log = metadata_log(quorum)
        if log is not None and (log.high_watermark != glance.metadata_high_watermark or log is not glance.metadata_log):
            self._look_at_committed(node, self._metadata, log)
            glance.metadata_log, glance.metadata_high_watermark = log, log.high_watermark

    def _look_at_election(self, node: Node, epoch: int, leader: int) -> None:
        newest = self._epochs.get(node.id, -1)
        if epoch != newest:
            if epoch < newest:
                raise Violation(f"{node.host} was in epoch {newest} of the quorum, and is in {epoch}")
            self._epochs[node.id] = epoch
            self.on_epoch(node)
        if leader >= 0:
            known = self._quorum_leaders.setdefault(epoch, leader)
            if known != leader:
                raise Violation(f"two leaders in epoch {epoch} of the quorum: {known}, and {leader} for {node.host}")

    def _look_at_image(self, image: Any) -> None:
        for topic in image.topics.by_id.values():
            for index, partition in topic.partitions.items():
                name = f"{topic.name}-{index}"
                if not set(partition.isr) <= set(partition.replicas):
                    raise Violation(f"{name}: {partition.isr} in sync, of {partition.replicas}")
                if partition.leader >= 0 and partition.leader not in partition.isr:
                    raise Violation(f"{name}: led by {partition.leader}, in sync are {partition.isr}")
                if not partition.isr and not partition.elr and not partition.last_known_elr:
                    raise Violation(f"{name}: no replica is in sync, and no eligible one is remembered")

    def _look_at_leader(self, node: Node, partition: Partition) -> None:
        known = self._leaders.setdefault((partition.topic_id, partition.index, partition.leader_epoch), node.id)
        if known != node.id:
            raise Violation(
                f"two leaders of {partition.topic}-{partition.index} in epoch {partition.leader_epoch}: "
                f"{known} and {node.id}"
            )

    def _look_at_laggard(self, node: Node, partition: Partition, reached: int) -> None:
        """Check that a replica that lacks committed records is not in the ISR."""
        topic = self._newest_image.topics.by_id.get(partition.topic_id)
        wanted = topic.partitions.get(partition.index) if topic is not None else None
        if wanted is not None and node.id in wanted.isr:
            raise Violation(
                f"{partition.topic}-{partition.index} is committed up to {reached}, and {node.host}, in sync in "
                f"{wanted.isr}, has {partition.log!r}"
            )

    def _look_at_committed(self, node: Node, place: _Place, log: PartitionLog) -> None:
        """Compare the batches that have become committed since the last check with those that other nodes have
        committed."""
        name, committed = place.name, place.committed
        before, high_watermark = self._high_watermarks.get(log, 0), log.high_watermark
        if high_watermark < before:
            raise Violation(f"the high watermark of {name} on {node.host} went back from {before} to {high_watermark}")
        if high_watermark > log.log_end_offset:
            raise Violation(f"{log!r} on {node.host}: the high watermark is behind the end")
        self._high_watermarks[log] = high_watermark
        place.reached = max(place.reached, high_watermark)
        offset = max(before, log.log_start_offset)
        while offset < high_watermark:
            data = log.read(offset, _READ_BYTES, ReadUpTo.HIGH_WATERMARK).data
            if data is None and place.memory is not None:
                # Compaction has removed the batch at this offset.
                break
            if data is None:
                raise Violation(f"{log!r} on {node.host} has nothing at {offset}")
            for batch in batches(data.read()):
                offset = batch.last_offset + 1
                if place.memory is not None:
                    place.memory.commit(batch, self._now_s(), node.host)
                    continue
                found = (batch.last_offset, batch.partition_leader_epoch, batch.crc)
                if self.shares is not None and place.is_share_state and batch.base_offset not in committed:
                    self.shares.commit(batch)
                known = committed.setdefault(batch.base_offset, (*found, node.host))
                if known[:3] != found:
                    raise Violation(
                        f"inconsistent: at {batch.base_offset} of {name} {node.host} has committed {found} "
                        f"(last offset, epoch, checksum), and {known[3]} had {known[:3]}"
                    )
        if before == 0 and place.memory is not None:
            # The first check of this log since its broker started.
            place.memory.check(log, self._now_s(), node.host)


def metadata_log(quorum: Any) -> PartitionLog | None:
    """Return the log of a quorum, or None if it is not open."""
    log = getattr(quorum, "_log", None)
    found: PartitionLog | None = getattr(log, "partition", log)
    return found
