"""Writing the markers that end transactions, into partitions that this broker leads.

The transaction coordinator asks for it (`LocalMarkers`, its port), and so does another broker's with WriteTxnMarkers. A
marker in `__consumer_offsets` is written by the group coordinator, which has offsets of that transaction to decide.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TYPE_CHECKING

from pessoa.broker.topic_listing import GROUP_TOPIC
from pessoa.coordinator.shard import Refusal
from pessoa.log.directory import DirectoryOffline
from pessoa.log.files import DiskError
from pessoa.log.producer_state import ProducerRefused
from pessoa.records.control import ControlRecordType, build_transaction_marker
from pessoa.records.errors import InvalidBatch
from pessoa.wire.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pessoa.broker.services import BrokerServices
    from pessoa.coordinator.transactions.markers import Marker

TopicPartition = tuple[str, int]


class LocalMarkers:
    """`MarkerPort` for a broker that leads every partition there is."""

    def __init__(self, broker: BrokerServices) -> None:
        self._broker = broker

    def is_gone(self, partition: TopicPartition) -> bool:
        topic = self._broker.image.topics.by_name.get(partition[0])
        return topic is None or partition[1] not in topic.partitions

    def write(
        self, marker: Marker, partitions: Sequence[TopicPartition]
    ) -> Mapping[TopicPartition, ErrorCode] | Awaitable[Mapping[TopicPartition, ErrorCode]]:
        errors: dict[TopicPartition, ErrorCode] = {}
        waiting: dict[TopicPartition, Awaitable[ErrorCode]] = {}
        for topic, index in partitions:
            one = self._complete(marker, index) if topic == GROUP_TOPIC else self._append(marker, topic, index)
            if isinstance(one, ErrorCode):
                errors[topic, index] = one
            else:
                waiting[topic, index] = one
        return errors if not waiting else _all_of(errors, waiting)

    def _append(self, marker: Marker, topic: str, index: int) -> ErrorCode | Awaitable[ErrorCode]:
        partition = self._broker.replicas.get(topic, index)
        if partition is None:
            return self._broker.replicas.why_missing(self._broker.image, topic, index)
        if not partition.is_leader:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        now_ms = self._broker.clock.now_ms()
        batch = build_transaction_marker(
            ControlRecordType.COMMIT if marker.commits else ControlRecordType.ABORT,
            producer_id=marker.producer_id,
            producer_epoch=marker.producer_epoch,
            coordinator_epoch=marker.coordinator_epoch,
            timestamp=now_ms,
        )
        try:
            appended = partition.append_own(batch, now_ms, marker.transaction_version)
        except (InvalidBatch, ProducerRefused) as refusal:
            return refusal.error
        except (DiskError, DirectoryOffline) as error:
            if isinstance(error, DiskError):
                partition.directory.fail(error)
            return ErrorCode.KAFKA_STORAGE_ERROR
        end = appended.last_offset + 1
        if partition.log.high_watermark >= end:
            return ErrorCode.NONE
        return _replicated(partition.wait_until_replicated(end))

    async def _complete(self, marker: Marker, index: int) -> ErrorCode:
        try:
            await self._broker.groups.complete_transaction(
                index, marker.producer_id, marker.producer_epoch, marker.coordinator_epoch, marker.commits
            )
        except Refusal as refusal:
            return refusal.code
        return ErrorCode.NONE


async def _replicated(waiting: Awaitable[bool]) -> ErrorCode:
    return ErrorCode.NONE if await waiting else ErrorCode.NOT_LEADER_OR_FOLLOWER


async def _all_of(
    errors: dict[TopicPartition, ErrorCode], waiting: dict[TopicPartition, Awaitable[ErrorCode]]
) -> Mapping[TopicPartition, ErrorCode]:
    found = await asyncio.gather(*waiting.values())
    return errors | dict(zip(waiting, found, strict=True))
