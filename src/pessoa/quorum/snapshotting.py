"""When a snapshot is taken, and of what (KIP-630).

Every node takes its own, of the image that it has: after so many bytes of records
(`metadata.log.max.record.bytes.between.snapshots`), or when the last one is old and something has come since
(`metadata.log.max.snapshot.interval.ms`). A snapshot ends where a batch does, and never within a metadata transaction:
the image shows nothing of a transaction that has not ended.

The image never changes, so a worker thread can write it while the node goes on. Then the log and the snapshots before
may go, as far as retention says.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from pessoa.log.files import DiskError
from pessoa.metadata.snapshot import snapshot_records
from pessoa.quorum.snapshot_file import render_snapshot, write_snapshot
from pessoa.raft.messages import OffsetAndEpoch

if TYPE_CHECKING:
    from pessoa.metadata.image import MetadataImage
    from pessoa.quorum.batches import MetadataBatch
    from pessoa.quorum.publishing import ImagePublisher
    from pessoa.quorum.raft_quorum import RaftQuorum

log = logging.getLogger("pessoa.quorum")


class SnapshotTaker:
    """Writes snapshots of the image when they are due. `listen` stands after the publisher's in `quorum.listeners`,
    since it needs the image that a batch has led to."""

    def __init__(self, quorum: RaftQuorum, publisher: ImagePublisher) -> None:
        self._quorum = quorum
        self._publisher = publisher
        self._bytes = 0
        self._last_ms: int | None = None
        self._write_task: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        return f"<SnapshotTaker: {self._bytes} bytes since the last>"

    def listen(self, batch: MetadataBatch) -> None:
        self._bytes += batch.size
        now_ms = self._quorum.monotonic_ms()
        if self._last_ms is None:
            self._last_ms = now_ms
        if self._write_task is not None or not self._is_due(now_ms):
            return
        image = self._publisher.loader.image
        if image.offset != batch.last_offset or self._publisher.loader.in_transaction:
            return
        self._bytes, self._last_ms = 0, now_ms
        self._write_task = asyncio.get_running_loop().create_task(self._write(image, batch.append_time_ms))

    def _is_due(self, now_ms: int) -> bool:
        settings = self._quorum.settings
        if self._bytes >= settings.metadata_log_max_record_bytes_between_snapshots:
            return True
        interval_ms = settings.metadata_log_max_snapshot_interval_ms
        return interval_ms > 0 and self._last_ms is not None and now_ms - self._last_ms >= interval_ms

    async def _write(self, image: MetadataImage, last_timestamp_ms: int) -> None:
        quorum = self._quorum
        snapshot = OffsetAndEpoch(image.offset + 1, image.epoch)
        history = quorum.log.history
        pieces = render_snapshot(
            snapshot,
            snapshot_records(image),
            quorum.now_ms(),
            last_timestamp_ms,
            history.version_before(snapshot.offset),
            history.voters_before(snapshot.offset),
        )
        loop = asyncio.get_running_loop()
        try:
            await loop.run_in_executor(None, write_snapshot, quorum.disk, quorum.log.directory, snapshot, pieces)
            quorum.snapshot_taken(snapshot)
        except DiskError as error:
            quorum.fail(error)
        finally:
            self._write_task = None

    async def close(self) -> None:
        """Wait for the snapshot that is being written; call it before the quorum is closed."""
        if self._write_task is not None:
            await asyncio.wait([self._write_task])
