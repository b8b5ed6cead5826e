"""The coordinators' door to their internal topics, on the partitions that this broker leads."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pessoa.coordinator.record_batches import empty_batch
from pessoa.log.directory import DirectoryOffline
from pessoa.log.files import DiskError
from pessoa.log.partition_log import ReadUpTo
from pessoa.log.producer_state import ProducerRefused, VerificationGuard
from pessoa.records.batch import batches
from pessoa.records.invalid_batch import InvalidBatch
from pessoa.wire.errors import ErrorCode, Refusal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pessoa.broker.services import BrokerServices
    from pessoa.records.batch import RecordBatch
    from pessoa.replication.partition import Partition


class InternalTopicLog:
    """`CoordinatorLog` for one internal topic."""

    def __init__(self, broker: BrokerServices, topic: str, planned_partitions: int, load_buffer_bytes: int) -> None:
        self._broker = broker
        self._topic = topic
        # What the topic will have once it is created.
        self._planned_partitions = planned_partitions
        # How much of a partition is read at a time.
        self._load_buffer_bytes = load_buffer_bytes

    def __repr__(self) -> str:
        return f"<InternalTopicLog {self._topic}>"

    def partition_count(self) -> int:
        topic = self._broker.image.topics.by_name.get(self._topic)
        return len(topic.partitions) if topic is not None else self._planned_partitions

    def append(self, partition: int, batch: bytearray, guard: object = None) -> int:
        assert guard is None or isinstance(guard, VerificationGuard)
        return self._append(self._led_partition(partition), batch, guard)

    def append_barrier(self, partition: int) -> int:
        found = self._led_partition(partition)
        return found.log.log_end_offset if found.in_sync is None else self._append(found, empty_batch(), None)

    def _append(self, found: Partition, batch: bytearray, guard: VerificationGuard | None) -> int:
        try:
            found.append_own(batch, self._broker.clock.now_ms(), guard=guard)
        except (InvalidBatch, ProducerRefused) as refusal:
            raise Refusal(refusal.error, refusal.message) from refusal
        except DiskError as error:
            found.directory.fail(error)
            raise Refusal(ErrorCode.KAFKA_STORAGE_ERROR) from error
        except DirectoryOffline as error:
            raise Refusal(ErrorCode.KAFKA_STORAGE_ERROR) from error
        return found.log.log_end_offset

    def high_watermark(self, partition: int) -> int:
        return self._led_partition(partition).log.high_watermark

    async def wait_until_committed(self, partition: int, offset: int) -> None:
        if not await self._led_partition(partition).wait_until_replicated(offset):
            raise Refusal(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def read(self, partition: int) -> Iterator[RecordBatch]:
        # By offsets, because others have their turn in between: the log may be cleaned or moved to another directory.
        found = self._led_partition(partition)
        offset = found.log.log_start_offset
        while (offset := max(offset, found.log.log_start_offset)) < found.log.log_end_offset:
            fetched = found.log.read(offset, self._load_buffer_bytes, ReadUpTo.LOG_END)
            if fetched.data is None:
                return
            before = offset
            for batch in batches(fetched.data.read()):
                yield batch
                offset = batch.next_offset
            if offset == before:
                return

    def _led_partition(self, partition: int) -> Partition:
        found = self._broker.replicas.ensure(self._topic, partition)
        if found is None or not found.is_leader:
            raise Refusal(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return found
