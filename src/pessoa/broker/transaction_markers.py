"""Writing the markers that end transactions, into the partitions that took part in them.

    Markers, the port of the transaction coordinator
      ├─▶ partitions that this broker leads ──▶ LocalMarkers
      └─▶ those that another leads ──▶ a queue for that broker ──▶ WriteTxnMarkers, one request at a time ──▶ its
                                                                   LocalMarkers

The leaders are those of the metadata image. Markers that come while a request is in flight go out with the next one. If
a broker cannot be reached, the markers of its partitions fail with a retriable error, and the coordinator sends them
again, to the leader of that time.

A marker in `__consumer_offsets` is written by the group coordinator, which has offsets of that transaction to decide.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TYPE_CHECKING

from pessoa.log.directory import DirectoryOffline
from pessoa.log.files import DiskError
from pessoa.log.producer_state import ProducerRefused
from pessoa.net.channel import ChannelFailed
from pessoa.records.control_records import ControlRecordType, build_transaction_marker
from pessoa.records.invalid_batch import InvalidBatch
from pessoa.wire.api.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from pessoa.wire.errors import ErrorCode, Refusal
from pessoa.wire.internal_topics import GROUP_TOPIC

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pessoa.broker.peers import Peers
    from pessoa.broker.services import BrokerServices
    from pessoa.coordinator.transactions.marker_writer import Marker
    from pessoa.replication.partition import Partition

TopicPartition = tuple[str, int]
Errors = dict[TopicPartition, ErrorCode]

_PURPOSE = "txn-markers"


class Markers:
    """`MarkerPort` for a broker of a cluster."""

    def __init__(self, broker: BrokerServices, peers: Peers) -> None:
        self._broker = broker
        self._peers = peers
        self._local = LocalMarkers(broker)
        self._remote: dict[int, _RemoteMarkers] = {}

    def __repr__(self) -> str:
        return f"<Markers of broker {self._broker.node_id}, also to {sorted(self._remote)}>"

    def is_gone(self, partition: TopicPartition) -> bool:
        topic = self._broker.image.topics.by_name.get(partition[0])
        return topic is None or partition[1] not in topic.partitions

    def write(
        self, marker: Marker, partitions: Sequence[TopicPartition]
    ) -> Mapping[TopicPartition, ErrorCode] | Awaitable[Mapping[TopicPartition, ErrorCode]]:
        by_leader: dict[int, list[TopicPartition]] = {}
        for partition in partitions:
            by_leader.setdefault(self._leader_of(partition), []).append(partition)
        here = by_leader.pop(self._broker.node_id, [])
        local = self._local.write(marker, here)
        if not by_leader:
            return local
        return self._everywhere(marker, local, by_leader)

    async def _everywhere(
        self,
        marker: Marker,
        local: Mapping[TopicPartition, ErrorCode] | Awaitable[Mapping[TopicPartition, ErrorCode]],
        by_leader: dict[int, list[TopicPartition]],
    ) -> Mapping[TopicPartition, ErrorCode]:
        asked: list[Awaitable[Mapping[TopicPartition, ErrorCode]]] = [
            self._remote_of(leader).write(marker, there) for leader, there in by_leader.items()
        ]
        found: Errors = {}
        if isinstance(local, Awaitable):
            asked.append(local)
        else:
            found |= local
        for answer in await asyncio.gather(*asked):
            found |= answer
        return found

    def _leader_of(self, partition: TopicPartition) -> int:
        topic = self._broker.image.topics.by_name.get(partition[0])
        known = topic.partitions.get(partition[1]) if topic is not None else None
        return known.leader if known is not None else -1

    def _remote_of(self, broker_id: int) -> _RemoteMarkers:
        found = self._remote.get(broker_id)
        if found is None:
            found = self._remote[broker_id] = _RemoteMarkers(self._broker, self._peers, broker_id)
        return found


class _Order:
    """A marker, and the partitions of one broker that it must be written to."""

    __slots__ = ("errors", "marker", "partitions")

    def __init__(self, marker: Marker, partitions: Sequence[TopicPartition]) -> None:
        self.marker = marker
        self.partitions = partitions
        self.errors: asyncio.Future[Errors] = asyncio.get_running_loop().create_future()

    def fulfil(self, errors: Errors) -> None:
        if not self.errors.done():
            self.errors.set_result({one: errors.get(one, ErrorCode.NETWORK_EXCEPTION) for one in self.partitions})

    def render(self) -> WritableTxnMarker:
        topics: dict[str, list[int]] = {}
        for topic, index in self.partitions:
            topics.setdefault(topic, []).append(index)
        return WritableTxnMarker(
            producer_id=self.marker.producer_id,
            producer_epoch=self.marker.producer_epoch,
            transaction_result=self.marker.commits,
            topics=[WritableTxnMarkerTopic(name=name, partition_indexes=indexes) for name, indexes in topics.items()],
            coordinator_epoch=self.marker.coordinator_epoch,
            transaction_version=max(self.marker.transaction_version, 0),
        )


class _RemoteMarkers:
    """The markers that another broker must write: one request at a time, with all that have been queued."""

    def __init__(self, broker: BrokerServices, peers: Peers, broker_id: int) -> None:
        self._broker = broker
        self._peers = peers
        self._broker_id = broker_id
        self._queued_orders: list[_Order] = []
        self._send_task: asyncio.Task[None] | None = None

    def write(self, marker: Marker, partitions: Sequence[TopicPartition]) -> asyncio.Future[Errors]:
        order = _Order(marker, partitions)
        self._queued_orders.append(order)
        if self._send_task is None:
            self._send_task = asyncio.get_running_loop().create_task(self._send_all())
        return order.errors

    async def _send_all(self) -> None:
        try:
            while self._queued_orders:
                orders, self._queued_orders = self._next_batch()
                found = await self._send(orders)
                for order in orders:
                    order.fulfil(found.get(order.marker.producer_id, {}))
        finally:
            self._send_task = None

    def _next_batch(self) -> tuple[list[_Order], list[_Order]]:
        """Return the orders of the next WriteTxnMarkers request, and the rest. A response identifies a marker by its
        producer id only, so a request has one marker of each producer."""
        batch: dict[int, _Order] = {}
        rest = []
        for order in self._queued_orders:
            if order.marker.producer_id in batch:
                rest.append(order)
            else:
                batch[order.marker.producer_id] = order
        return list(batch.values()), rest

    async def _send(self, orders: list[_Order]) -> dict[int, Errors]:
        """Send one WriteTxnMarkers request; return the errors of each producer. Orders that are not in the result must
        be sent again."""
        channel = self._peers.channel_to(self._broker_id, _PURPOSE)
        if channel is None:
            return {}
        request = WriteTxnMarkersRequest(markers=[order.render() for order in orders])
        try:
            response = await channel.send(request, request.versions.last, self._broker.config.request_timeout_ms)
        except ChannelFailed:
            return {}
        assert isinstance(response, WriteTxnMarkersResponse)
        return {
            result.producer_id: {
                (topic.name, one.partition_index): ErrorCode.of(one.error_code)
                for topic in result.topics
                for one in topic.partitions
            }
            for result in response.markers
        }


class LocalMarkers:
    """The markers of partitions that this broker leads."""

    def __init__(self, broker: BrokerServices) -> None:
        self._broker = broker

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
        partition = self._broker.replicas.ensure(topic, index)
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
        return _wait_for_replicas(partition, end)

    async def _complete(self, marker: Marker, index: int) -> ErrorCode:
        try:
            await self._broker.groups.complete_transaction(
                index, marker.producer_id, marker.producer_epoch, marker.coordinator_epoch, marker.commits
            )
        except Refusal as refusal:
            return refusal.code
        return ErrorCode.NONE


async def _wait_for_replicas(partition: Partition, end: int) -> ErrorCode:
    return ErrorCode.NONE if await partition.wait_until_replicated(end) else ErrorCode.NOT_LEADER_OR_FOLLOWER


async def _all_of(
    errors: dict[TopicPartition, ErrorCode], waiting: dict[TopicPartition, Awaitable[ErrorCode]]
) -> Mapping[TopicPartition, ErrorCode]:
    found = await asyncio.gather(*waiting.values())
    return errors | dict(zip(waiting, found, strict=True))
