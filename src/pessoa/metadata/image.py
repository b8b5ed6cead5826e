"""The content of the metadata log as one immutable value.

    committed records ──▶ MetadataDelta ──▶ the next MetadataImage ──▶ publishers: replicas, coordinators, handlers

A broker holds one image and replaces it whole with one assignment; a request takes it once at its start, so what it
sees never changes under it. No code changes a mapping that an image holds, at any depth: the next image shares
everything that stayed the same with the one before. `offset` is that of the last record it contains, and `epoch` the
epoch of the quorum leader that wrote it; an image without records has -1.

For the changes from one image to the next, and what every record means, see `pessoa.metadata.delta`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from pessoa.metadata.cluster_image import NO_CLUSTER, BrokerImage, ClusterImage, ControllerImage, Endpoint
from pessoa.metadata.table_images import (
    AclsImage,
    ConfigResource,
    ConfigsImage,
    DelegationTokensImage,
    FeaturesImage,
    ProducerIdsImage,
    QuotasImage,
    ScramImage,
)
from pessoa.metadata.topics_image import NO_LEADER, NO_TOPICS, PartitionImage, TopicImage, TopicsImage

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pessoa.wire.schema import Message

__all__ = [
    "NO_LEADER",
    "AclsImage",
    "BrokerImage",
    "ClusterImage",
    "ConfigResource",
    "ConfigsImage",
    "ControllerImage",
    "DelegationTokensImage",
    "Endpoint",
    "FeaturesImage",
    "MetadataImage",
    "PartitionImage",
    "ProducerIdsImage",
    "QuotasImage",
    "ScramImage",
    "TopicImage",
    "TopicsImage",
]


@dataclass(frozen=True, slots=True, repr=False)
class MetadataImage:
    EMPTY: ClassVar[MetadataImage]

    offset: int
    epoch: int
    features: FeaturesImage
    cluster: ClusterImage
    topics: TopicsImage
    configs: ConfigsImage
    quotas: QuotasImage
    scram: ScramImage
    acls: AclsImage
    producer_ids: ProducerIdsImage
    delegation_tokens: DelegationTokensImage

    def __repr__(self) -> str:
        return (
            f"<MetadataImage at offset {self.offset} of epoch {self.epoch}: {len(self.cluster.brokers)} brokers, "
            f"{len(self.topics.by_name)} topics>"
        )

    def apply(self, records: Iterable[Message], offset: int, epoch: int) -> MetadataImage:
        """Return the image after these records, of which the last has this `offset`."""
        from pessoa.metadata.delta import MetadataDelta

        delta = MetadataDelta(self)
        for record in records:
            delta.replay(record)
        return delta.finish(offset, epoch)


MetadataImage.EMPTY = MetadataImage(
    offset=-1,
    epoch=-1,
    features=FeaturesImage(),
    cluster=NO_CLUSTER,
    topics=NO_TOPICS,
    configs=ConfigsImage(),
    quotas=QuotasImage(),
    scram=ScramImage(),
    acls=AclsImage(),
    producer_ids=ProducerIdsImage(),
    delegation_tokens=DelegationTokensImage(),
)
