"""Readers: a consumer without a group that reads partitions from their first offset, at either isolation level, and the
read of everything at the end.

A fetch with read_committed returns records of aborted transactions too, with a list of these transactions.
`visible_records` filters them, as every client has to (KIP-98).
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import NamedTuple

from pessoa.net.channel import ChannelFailed
from pessoa.records.batch import batches
from pessoa.records.control_records import ControlRecordType, control_records
from pessoa.records.record import Record, records
from pessoa.wire.api.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData
from pessoa.wire.api.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from pessoa.wire.errors import ErrorCode
from tests.simulation.client import TRANSIENT, Client
from tests.simulation.history import TopicPartition, Violation

READ_UNCOMMITTED, READ_COMMITTED = 0, 1
LATEST = -1
# The header that identifies a tombstone, which has no value.
IDENTITY = "id"
_FETCH_VERSION = 12
_LIST_OFFSETS_VERSION = 7
_FETCH_WAIT_MS = 300
_FETCH_BYTES = 1 << 16


class Seen(NamedTuple):
    offset: int
    value: bytes


def identity(record: Record) -> bytes:
    """Return what distinguishes a record from all others: its value, or what a tombstone has instead."""
    return record.value if record.value is not None else (dict(record.headers).get(IDENTITY) or b"")


def visible_records(data: PartitionData, start: int, isolation: int) -> tuple[list[Seen], int]:
    """Return the records from `start` on that a consumer sees, and the offset of its next fetch."""
    if data.records is None:
        return [], start
    aborted = sorted(data.aborted_transactions or (), key=lambda one: one.first_offset)
    open_aborts: set[int] = set()
    shown, position = [], start
    for batch in batches(data.records):
        if not batch.is_valid():
            raise Violation(f"a batch at {batch.base_offset} was served with a wrong checksum")
        while aborted and aborted[0].first_offset <= batch.last_offset:
            open_aborts.add(aborted.pop(0).producer_id)
        position = max(position, batch.last_offset + 1)
        if batch.is_control:
            # Compaction may have left only the header of the batch.
            marker = next(control_records(batch), None)
            if marker is not None and marker.type is ControlRecordType.ABORT:
                open_aborts.discard(batch.producer_id)
        elif isolation == READ_UNCOMMITTED or not batch.is_transactional or batch.producer_id not in open_aborts:
            shown += [Seen(one.offset, identity(one)) for one in records(batch) if one.offset >= start]
    return shown, position


class Reader(Client):
    """A consumer that reads its partitions from the beginning until it is stopped."""

    partitions: Sequence[TopicPartition] = ()
    isolation = READ_UNCOMMITTED

    async def run(self) -> None:
        async with asyncio.TaskGroup() as followers:
            for partition in self.partitions:
                followers.create_task(self._follow(partition))

    async def _follow(self, partition: TopicPartition) -> None:
        offset = 0
        while not self.is_stopping:
            offset = await self._read_once(partition, offset)
            if self.rng.random() < 0.2:
                await self.latest(partition)

    async def _read_once(self, partition: TopicPartition, offset: int) -> int:
        data = await self.fetch(partition, offset)
        if data is None:
            return offset
        shown, following = visible_records(data, offset, self.isolation)
        for one in shown:
            self.history.see(self.name, partition, one.offset, one.value, is_committed=self.isolation == READ_COMMITTED)
        return following

    async def fetch(self, partition: TopicPartition, offset: int) -> PartitionData | None:
        """Fetch from the leader and return the data of the partition, or None if the fetch must be retried."""
        if self.leader_epoch(partition) < self.read_epochs.get(partition, -1):
            await self.refresh([partition.topic])
            await self.back_off()
            return None
        request = FetchRequest(
            max_wait_ms=_FETCH_WAIT_MS,
            min_bytes=1,
            max_bytes=_FETCH_BYTES,
            isolation_level=self.isolation,
            session_epoch=-1,
            topics=[
                FetchTopic(
                    topic=partition.topic,
                    partitions=[
                        FetchPartition(
                            partition=partition.number,
                            current_leader_epoch=self.leader_epoch(partition),
                            fetch_offset=offset,
                            partition_max_bytes=_FETCH_BYTES,
                        )
                    ],
                )
            ],
        )
        try:
            response = await self.ask_leader(partition, request, FetchResponse, _FETCH_VERSION)
        except ChannelFailed:
            await self.refresh([partition.topic])
            await self.back_off()
            return None
        if response.error_code == ErrorCode.NONE and response.responses:
            data = response.responses[0].partitions[0]
            error = ErrorCode.of(data.error_code)
        else:
            error = ErrorCode.of(response.error_code)
        if error is ErrorCode.NONE:
            if data.records is not None:
                self.know_epoch(
                    partition, max((one.partition_leader_epoch for one in batches(data.records)), default=-1)
                )
            return data
        self.trace("fetch of %s@%s: %s", partition, offset, error.name)
        if error not in TRANSIENT:
            raise Violation(f"{self.name} read {partition} up to {offset}, and then {error.name}")
        await self.refresh([partition.topic])
        await self.back_off()
        return None

    def know_epoch(self, partition: TopicPartition, epoch: int) -> None:
        self.read_epochs[partition] = max(epoch, self.read_epochs.get(partition, -1))

    async def latest(self, partition: TopicPartition, *, has_healed: bool = False) -> int | None:
        """Return the end offset of the partition for this isolation level, or None without a response of its leader."""
        if has_healed:
            floor = self.history.latest_floor_of_all(partition, self.isolation)
        else:
            floor = self.history.latest_floor(self.name, partition, self.isolation)
        request = ListOffsetsRequest(
            replica_id=-1,
            isolation_level=self.isolation,
            topics=[
                ListOffsetsTopic(
                    name=partition.topic,
                    partitions=[
                        ListOffsetsPartition(
                            partition_index=partition.number,
                            current_leader_epoch=self.leader_epoch(partition),
                            timestamp=LATEST,
                        )
                    ],
                )
            ],
        )
        try:
            response = await self.ask_leader(partition, request, ListOffsetsResponse, _LIST_OFFSETS_VERSION)
        except ChannelFailed:
            return None
        one = response.topics[0].partitions[0]
        error = ErrorCode.of(one.error_code)
        if error is not ErrorCode.NONE:
            if error not in TRANSIENT:
                raise Violation(f"{self.name} asks where {partition} ends: {error.name}")
            return None
        self.history.see_latest(self.name, partition, self.isolation, one.offset, floor)
        return one.offset

    async def read_all(self, partition: TopicPartition) -> dict[int, bytes]:
        """Return all visible values up to the present end of the partition, by offset; the cluster must be healthy."""
        while (end := await self.latest(partition, has_healed=True)) is None:
            await self.refresh([partition.topic])
            await self.back_off()
        found: dict[int, bytes] = {}
        offset = 0
        while offset < end:
            data = await self.fetch(partition, offset)
            if data is not None:
                shown, offset = visible_records(data, offset, self.isolation)
                for one in shown:
                    found[one.offset] = one.value
        return found
