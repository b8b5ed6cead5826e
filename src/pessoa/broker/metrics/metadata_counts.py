"""What is counted when the metadata changes: replicas that left or joined the in-sync ones, and unclean elections."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pessoa.metadata.delta import MetadataDelta
    from pessoa.metadata.topics_image import PartitionImage


class MetadataCounts:
    """Counts the ISR shrinks, ISR expands and unclean elections in the metadata deltas of a node."""

    def __init__(self, node_id: int) -> None:
        self._node_id = node_id
        self.isr_shrinks = 0
        self.isr_expands = 0
        self.unclean_elections = 0

    def __repr__(self) -> str:
        return f"<MetadataCounts: {self.isr_shrinks} shrinks, {self.isr_expands} expands>"

    def follow(self, delta: MetadataDelta) -> None:
        old, new = delta.old.topics.by_id, delta.new.topics.by_id
        for topic_id in delta.changed_topics:
            before, after = old.get(topic_id), new.get(topic_id)
            if before is None or after is None or before is after:
                continue
            for index, partition in after.partitions.items():
                previous = before.partitions.get(index)
                if previous is not None and previous is not partition:
                    self._compare(previous, partition)

    def _compare(self, old: PartitionImage, new: PartitionImage) -> None:
        if new.leader == self._node_id:
            self.isr_shrinks += not set(old.isr) <= set(new.isr)
            self.isr_expands += not set(new.isr) <= set(old.isr)
        if new.leader != old.leader and new.leader >= 0:
            self.unclean_elections += new.leader not in old.isr and new.leader not in old.elr
