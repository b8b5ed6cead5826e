"""What must hold at every moment, looked at after every step of a node.

    one leader per partition and epoch        whoever believes to lead, says so in an epoch of its own
    the high watermark never goes back        on one replica, within one life
    in-sync replicas are replicas             and never none, unless eligible ones are remembered
    one leader per epoch of the quorum        and epochs never go back, also over restarts
    what is committed is committed            an offset of the metadata log has the same records on every node, for ever

The looks are cheap, so they are taken after every step: only what has changed since the last look is checked.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.simulation.history import Violation

if TYPE_CHECKING:
    from pessoa.base.ids import Uuid
    from pessoa.quorum.batches import CommittedBatch
    from pessoa.replication.partition import Partition
    from tests.simulation.node import Node


class Watch:
    def __init__(self) -> None:
        # (topic id, partition, leader epoch) → node
        self._leaders: dict[tuple[Uuid, int, int], int] = {}
        # quorum epoch → node
        self._quorum_leaders: dict[int, int] = {}
        # Last offset of a committed metadata batch → what is in it
        self._committed: dict[int, str] = {}
        # node → the newest quorum epoch that it has ever been in
        self._epochs: dict[int, int] = {}
        self._images: dict[int, Any] = {}
        self._high_watermarks: dict[Partition, int] = {}

    def __repr__(self) -> str:
        return f"<Watch: {len(self._leaders)} partition epochs, {len(self._quorum_leaders)} quorum epochs>"

    def look(self, node: Node) -> None:
        broker = node.broker
        services = getattr(broker, "services", None)
        if services is None:
            return
        self._look_at_quorum(node, services.quorum)
        if services.image is not self._images.get(node.id):
            self._images[node.id] = services.image
            self._look_at_image(services.image)
        for partition in services.replicas.all():
            self._look_at_partition(node, partition)

    def _look_at_quorum(self, node: Node, quorum: Any) -> None:
        epoch, leader = quorum.epoch, quorum.leader_id
        if epoch != self._epochs.get(node.id):
            newest = self._epochs.get(node.id, -1)
            if epoch < newest:
                raise Violation(f"{node.host} was in epoch {newest} of the quorum, and is in {epoch}")
            self._epochs[node.id] = epoch
        if leader >= 0:
            known = self._quorum_leaders.setdefault(epoch, leader)
            if known != leader:
                raise Violation(f"two leaders in epoch {epoch} of the quorum: {known}, and {leader} for {node.host}")

    def _look_at_image(self, image: Any) -> None:
        for topic in image.topics.by_id.values():
            for index, partition in topic.partitions.items():
                if not set(partition.isr) <= set(partition.replicas):
                    raise Violation(f"{topic.name}-{index}: {partition.isr} in sync, of {partition.replicas}")
                if partition.leader >= 0 and partition.leader not in partition.isr:
                    raise Violation(f"{topic.name}-{index}: led by {partition.leader}, in sync are {partition.isr}")
                if not partition.isr and not partition.elr and not partition.last_known_elr:
                    raise Violation(f"{topic.name}-{index}: nobody is in sync, and nobody eligible is remembered")

    def _look_at_partition(self, node: Node, partition: Partition) -> None:
        if partition.is_leader:
            key = (partition.topic_id, partition.index, partition.leader_epoch)
            known = self._leaders.setdefault(key, node.id)
            if known != node.id:
                raise Violation(
                    f"two leaders of {partition.topic}-{partition.index} in epoch {partition.leader_epoch}: "
                    f"{known} and {node.id}"
                )
        high_watermark = partition.log.high_watermark
        before = self._high_watermarks.get(partition, 0)
        if high_watermark != before:
            if high_watermark < before and not partition.log.is_released:
                raise Violation(
                    f"the high watermark of {partition.topic}-{partition.index} on {node.host} went back "
                    f"from {before} to {high_watermark}"
                )
            if high_watermark > partition.log.log_end_offset:
                raise Violation(f"{partition!r} on {node.host}: the high watermark is behind the end")
            self._high_watermarks[partition] = high_watermark

    def committed(self, node: Node, batch: CommittedBatch) -> None:
        """For the listeners of a quorum."""
        content = f"{batch.epoch} {batch.records!r}"
        known = self._committed.setdefault(batch.last_offset, content)
        if known != content:
            raise Violation(
                f"the metadata log at {batch.last_offset} was\n  {known}\nand is on {node.host}\n  {content}"
            )
