"""The shell that has the markers of a transaction written.

For every prepared transaction one task runs:

    ask the leaders of the partitions ──► report those that are written ──► the rest again, after a while ──► …

until each has its marker. What a leader says means:

    written                     NONE, and UNSUPPORTED_*, from leaders too old to know transactions
    gone                        the topic is deleted, so that nothing is left to end
    not now                     no leader, no replicas, a broken disk, a coordinator of groups that still loads
    fenced                      a newer coordinator, or a newer producer epoch: this one is a zombie, and stops

The task is bound to the epoch in which this broker leads the partition of `__transaction_state`. When that ends, so
does the task: the next leader finds the outcome in the log and begins anew. Marking a partition twice is harmless as
long as the transaction is not complete, and that is for the coordinator of the present epoch to say.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol

from pessoa.base.clock import Clock
from pessoa.coordinator.transactions.marker_messages import MarkersWritten, WriteMarkers
from pessoa.coordinator.transactions.transaction import TopicPartition
from pessoa.wire.api.write_txn_markers import WritableTxnMarkerTopic
from pessoa.wire.errors import NO_COORDINATOR, ErrorCode, Refusal
from pessoa.wire.schema import Message

logger = logging.getLogger(__name__)

_FIRST_RETRY_MS = 20
_LONGEST_RETRY_MS = 1_000

WRITTEN = frozenset({ErrorCode.NONE, ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT, ErrorCode.UNSUPPORTED_VERSION})
NOT_NOW = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.NETWORK_EXCEPTION,
        # Of the group whose offsets the transaction commits.
        *NO_COORDINATOR,
    }
)
FENCED = frozenset({ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_COORDINATOR_FENCED})


class Marker(NamedTuple):
    """The content of a marker, and the version of the transaction that it ends, by which leaders check epochs."""

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    commits: bool
    transaction_version: int


Errors = Mapping[TopicPartition, ErrorCode]


class MarkerPort(Protocol):
    def write(self, marker: Marker, partitions: Sequence[TopicPartition]) -> Errors | Awaitable[Errors]:
        """Have the leader of each partition write the marker, and, for `__consumer_offsets`, the group coordinator
        apply it. Returns when the markers are committed."""

    def is_gone(self, partition: TopicPartition) -> bool:
        """Return whether the partition's topic was deleted."""


class _Origin(NamedTuple):
    """The shard that wants the markers."""

    partition: int
    epoch: int


class MarkerWriter:
    """Writes the markers of prepared transactions. `report` gives the result to a shard, and its awaitable is done when
    what follows is committed. `epoch_of` returns the epoch in which this broker leads a partition of
    `__transaction_state`, None if it does not."""

    def __init__(
        self,
        port: MarkerPort,
        report: Callable[[int, MarkersWritten], Message | Awaitable[Message]],
        epoch_of: Callable[[int], int | None],
        clock: Clock,
    ) -> None:
        self._port = port
        self._report_to = report
        self._epoch_of = epoch_of
        self._clock = clock
        self._tasks: set[asyncio.Task[None]] = set()

    def __repr__(self) -> str:
        return f"<MarkerWriter: {len(self._tasks)} transactions>"

    def start(self, partition: int, wanted: WriteMarkers) -> None:
        epoch = self._epoch_of(partition)
        if epoch is None:
            return
        task = asyncio.get_running_loop().create_task(self._run(_Origin(partition, epoch), wanted))
        self._tasks.add(task)
        task.add_done_callback(self._on_task_done)

    def close(self) -> None:
        for task in self._tasks:
            task.cancel()

    def _on_task_done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            task.get_loop().call_exception_handler(
                {"message": "the markers of a transaction cannot be written", "exception": error, "task": task}
            )

    async def _run(self, origin: _Origin, wanted: WriteMarkers) -> None:
        marker = Marker(*wanted.producer, origin.epoch, wanted.commits, wanted.transaction_version)
        missing: list[TopicPartition] = list(wanted.partitions)
        unreported: list[TopicPartition] = []
        retry_ms = _FIRST_RETRY_MS
        while self._epoch_of(origin.partition) == origin.epoch:
            errors = await self._write(marker, missing)
            if fenced := sorted({code.name for code in errors.values() if code in FENCED}):
                logger.error("the markers of %r are given up: %s", wanted.transactional_id, ", ".join(fenced))
                return
            unreported += [partition for partition in missing if errors[partition] in WRITTEN]
            missing = [partition for partition in missing if errors[partition] not in WRITTEN]
            if (unreported or not missing) and await self._report(origin, wanted, unreported):
                unreported = []
                if not missing:
                    return
            await self._clock.wait_ms(retry_ms)
            retry_ms = min(2 * retry_ms, _LONGEST_RETRY_MS)

    async def _write(self, marker: Marker, partitions: Collection[TopicPartition]) -> Errors:
        errors = {partition: ErrorCode.NONE for partition in partitions if self._port.is_gone(partition)}
        asked = [partition for partition in partitions if partition not in errors]
        if asked:
            answer = self._port.write(marker, asked)
            errors.update(answer if isinstance(answer, Mapping) else await answer)
        for partition, code in errors.items():
            known = code in WRITTEN or code in NOT_NOW or code in FENCED
            assert known, f"a marker for {partition} cannot meet {code.name}"
        return errors

    async def _report(self, origin: _Origin, wanted: WriteMarkers, done: Iterable[TopicPartition]) -> bool:
        """Report the written markers to the shard; return whether it has recorded them."""
        by_topic: dict[str, list[int]] = {}
        for topic, partition in done:
            by_topic.setdefault(topic, []).append(partition)
        told = MarkersWritten(
            transactional_id=wanted.transactional_id,
            producer_id=wanted.producer.id,
            producer_epoch=wanted.producer.epoch,
            topics=[WritableTxnMarkerTopic(name=topic, partition_indexes=ids) for topic, ids in by_topic.items()],
        )
        if self._epoch_of(origin.partition) != origin.epoch:
            return False
        try:
            answer = self._report_to(origin.partition, told)
            if not isinstance(answer, Message):
                await answer
        except Refusal as refusal:
            logger.warning(
                "transaction of %r: %s while its markers are recorded", wanted.transactional_id, refusal.code.name
            )
            return False
        return True
