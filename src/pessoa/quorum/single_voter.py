"""A metadata quorum of one: the log of `__cluster_metadata`, led by the only node that could lead it.

    append(records) ──▶ log, one batch ──▶ fsync ──▶ committed: listeners, in order ──▶ the future has the offset

With one voter a record is committed when it is on this node's disk. Writers that wait share one fsync (`Flusher`).

Starting is an election that nobody contests: the epoch goes up by one, `quorum-state` remembers that before anything
else happens, and a LeaderChange record opens the epoch in the log. Everything in the log is committed then, and
listeners get it from the first batch on, before `start` returns.

A disk that refuses a write or a sync ends it all: nobody can say what is on that disk. What waits fails with
`QuorumFailed`, `on_failure` is told once, and every later append fails at once.

The interface (`start`, `append`, `listeners`, `log_end_offset`, `high_watermark`, `leader_id`, `epoch`, `voters`) is
that of any quorum; with more voters, committing takes more than a disk.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from pessoa.base.ids import Uuid
from pessoa.log.config import UNLIMITED, LogConfig
from pessoa.log.files import DiskError
from pessoa.log.flushing import Flusher
from pessoa.log.loading import load_partition
from pessoa.log.properties import PARTITION_METADATA_FILE, render_partition_metadata
from pessoa.quorum.batches import CommittedBatch, VersionedRecord, decode_batch, encode_batch
from pessoa.quorum.state_file import QUORUM_STATE_FILE, read_quorum_state, write_quorum_state
from pessoa.records.control import build_quorum_batch
from pessoa.wire.stored.control import LeaderChangeMessage, Voter
from pessoa.wire.stored.quorum_state import QuorumStateData
from pessoa.wire.stored.quorum_state import Voter as StateVoter

if TYPE_CHECKING:
    from pessoa.base.clock import Clock
    from pessoa.log.files import Disk
    from pessoa.log.partition_log import PartitionLog

log = logging.getLogger("pessoa.quorum")

METADATA_TOPIC = "__cluster_metadata"
# KIP-595: the topic that must exist before topics have ids.
METADATA_TOPIC_ID = Uuid.of(1)
METADATA_DIRECTORY = f"{METADATA_TOPIC}-0"
# The whole log is the picture of the cluster, so nothing of it is dropped.
_KEEP_ALL = LogConfig(retention_ms=UNLIMITED)


class QuorumFailed(Exception):
    """The metadata log cannot be written any more; the cause says why."""


class _Pending(NamedTuple):
    batch: CommittedBatch
    committed: asyncio.Future[int]


class SingleVoterQuorum:
    """`start` it, then `append`. Invariant: listeners have seen exactly the batches below `high_watermark`."""

    def __init__(self, disk: Disk, directory: str, node_id: int, clock: Clock, flusher: Flusher | None = None) -> None:
        """`directory` is the metadata log directory; the log is in a folder of it."""
        self.node_id = node_id
        self.leader_id = node_id
        self.epoch = -1
        self.voters = (node_id,)
        # Called with every committed batch, in order. Whoever should see all of them is here before `start`.
        self.listeners: list[Callable[[CommittedBatch], None]] = []
        self.on_failure: Callable[[BaseException], None] = lambda _: None
        self._disk = disk
        self._directory = f"{directory}/{METADATA_DIRECTORY}"
        self._clock = clock
        self._flusher = flusher if flusher is not None else Flusher()
        self._pending: deque[_Pending] = deque()
        self._committing: asyncio.Task[None] | None = None
        self._failure: BaseException | None = None
        self._log: PartitionLog | None = None

    def __repr__(self) -> str:
        return f"<SingleVoterQuorum of node {self.node_id} in epoch {self.epoch}: {self._log!r}>"

    @property
    def log(self) -> PartitionLog:
        assert self._log is not None, "the quorum has not been started"
        return self._log

    @property
    def log_end_offset(self) -> int:
        """Where the next record will stand."""
        return self.log.log_end_offset

    @property
    def high_watermark(self) -> int:
        return self.log.high_watermark

    # Starting and stopping.

    def start(self) -> None:
        """Open the log, begin an epoch, and hand everything to the listeners. DiskError passes."""
        now_ms = self._clock.now_ms()
        self._disk.make_directory(self._directory)
        self._write_partition_metadata()
        # The log is read whole in any case, so checking it on the way costs little more.
        self._log = load_partition(self._disk, self._directory, _KEEP_ALL, now_ms, was_clean=False)
        self._begin_epoch(now_ms)
        self._log.flush()
        self._log.update_high_watermark(self._log.log_end_offset)
        for batch in self._committed_batches():
            self._deliver(batch)

    def _begin_epoch(self, now_ms: int) -> None:
        path = f"{self._directory}/{QUORUM_STATE_FILE}"
        known = read_quorum_state(self._disk, path)
        latest = self.log.epochs.latest_epoch
        self.epoch = max(known.leader_epoch if known is not None else 0, latest if latest is not None else 0, 0) + 1
        voters = [StateVoter(voter_id=voter) for voter in self.voters]
        state = QuorumStateData(leader_id=self.node_id, leader_epoch=self.epoch, current_voters=voters)
        write_quorum_state(self._disk, path, state)
        everybody = [Voter(voter_id=voter) for voter in self.voters]
        change = LeaderChangeMessage(version=0, leader_id=self.node_id, voters=everybody, granting_voters=everybody)
        self.log.append_own(memoryview(build_quorum_batch([change], timestamp=now_ms)), self.epoch, now_ms)

    def _write_partition_metadata(self) -> None:
        path = f"{self._directory}/{PARTITION_METADATA_FILE}"
        if not self._disk.exists(path):
            self._disk.write_file(path, render_partition_metadata(METADATA_TOPIC_ID).encode())

    def _committed_batches(self) -> Iterator[CommittedBatch]:
        for segment in self.log.segments:
            for _, batch in segment.batches():
                yield decode_batch(batch)

    async def close(self) -> None:
        """Wait for what is being committed, and close the log."""
        while self._committing is not None:
            await asyncio.wait([self._committing])
        if self._log is not None and self._failure is None:
            self._log.close()

    # Writing.

    def append(self, records: Sequence[VersionedRecord]) -> asyncio.Future[int]:
        """Append the records as one batch; the future has the offset of the last one when it is committed."""
        assert records, "an empty batch says nothing"
        if self._failure is not None:
            raise QuorumFailed("the metadata log has failed") from self._failure
        now_ms = self._clock.now_ms()
        try:
            appended = self.log.append_own(memoryview(encode_batch(records, now_ms)), self.epoch, now_ms)
        except DiskError as error:
            self._fail(error)
            raise QuorumFailed(str(error)) from error
        loop = asyncio.get_running_loop()
        batch = CommittedBatch(appended.last_offset, self.epoch, now_ms, [record for record, _ in records])
        pending = _Pending(batch, loop.create_future())
        self._pending.append(pending)
        if self._committing is None:
            self._committing = loop.create_task(self._commit())
        return pending.committed

    async def _commit(self) -> None:
        """Runs as long as something waits to be committed."""
        try:
            while self._pending:
                end = self.log.log_end_offset
                await self._flusher.wait_until_durable(self.log, end)
                self.log.update_high_watermark(end)
                while self._pending and self._pending[0].batch.last_offset < end:
                    batch, committed = self._pending.popleft()
                    self._deliver(batch)
                    if not committed.done():
                        committed.set_result(batch.last_offset)
        except BaseException as error:
            self._fail(error)
            if not isinstance(error, DiskError):
                raise
        finally:
            self._committing = None

    def _deliver(self, batch: CommittedBatch) -> None:
        for listener in self.listeners:
            listener(batch)

    def _fail(self, error: BaseException) -> None:
        if self._failure is not None:
            return
        self._failure = error
        log.error("the metadata log in %s has failed: %s", self._directory, error)
        while self._pending:
            committed = self._pending.popleft().committed
            if not committed.done():
                committed.set_exception(QuorumFailed(str(error)))
        self.on_failure(error)
