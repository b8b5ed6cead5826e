"""One partition as the replica on this broker sees it, as leader or as follower.

The leader appends what producers send. Followers fetch it, and each fetch tells the leader how far that follower is;
`isr` says what follows from it for the high watermark and the in-sync replicas:

    append ──▶ log end moves ──▶ followers that wait are woken ──▶ they fetch ──▶ … append, fetch again from further on
           ──▶ high watermark moves ──▶ consumers and producers whose need is met are woken (`purgatory`)

A partition whose only replica is this one leaves all of that out: what is appended is replicated, and nothing waits.

The follower appends what its fetcher brings (`replica_fetcher`), and follows the leader's high watermark and log start.

Where a topic asks for records to be on the disk before they are acknowledged (`flush.messages`), every replica vouches
for what is on its own disk only: the leader counts itself that far, and a follower flushes before it fetches again. So
what lies below the high watermark survives a loss of power everywhere at once, for readers and coordinators as for
producers.

Leadership comes with an epoch. A request that names an older epoch is fenced, one that names a newer epoch knows of a
leader that this broker has not heard of (KIP-320). A leader's epoch begins where its log ends at that moment, whether
or not it ever writes anything: the log notes an epoch only with its first batch, so questions about epochs come here.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from pessoa.log.files import DiskError
from pessoa.log.leader_epoch_cache import UNDEFINED_EPOCH, EpochEndOffset
from pessoa.records.invalid_batch import InvalidBatch
from pessoa.replication.isr import UNKNOWN, InSyncReplicas
from pessoa.replication.purgatory import AwaitedWaiter, CommitQueue, CommitWaiter, FetchWaiter
from pessoa.replication.replication_throttle import Throttle
from pessoa.wire.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable

    from pessoa.base.clock import Clock
    from pessoa.base.ids import Uuid
    from pessoa.log.directory import LogDirectory
    from pessoa.log.future_log import FutureLog
    from pessoa.log.partition_log import Appended, PartitionLog
    from pessoa.log.producer_state import VerificationGuard
    from pessoa.metadata.image import MetadataImage
    from pessoa.metadata.topics_image import PartitionImage
    from pessoa.replication.isr import Follower, IsrAnswer, IsrChange
    from pessoa.replication.refused_batches import RefusedBatches
    from pessoa.replication.replication_settings import ReplicationSettings

__all__ = ["NO_LEADER", "CommitWaiter", "FetchWaiter", "LocalBroker", "NotEnoughReplicas", "Partition"]

log = logging.getLogger("pessoa.replication")

NO_LEADER = -1


class NotEnoughReplicas(InvalidBatch):
    """Fewer replicas are in sync than `min.insync.replicas` asks for, so nothing was appended."""

    def __init__(self, partition: Partition) -> None:
        super().__init__(
            ErrorCode.NOT_ENOUGH_REPLICAS,
            f"{partition.topic}-{partition.index} has {len(partition.isr)} replicas in sync, "
            f"and min.insync.replicas is {partition.min_insync_replicas}",
        )


class LocalBroker:
    """What the partitions of this broker share: its id, clock, image, broker epoch and throttles."""

    def __init__(
        self,
        node_id: int,
        clock: Clock,
        settings: ReplicationSettings,
        image: MetadataImage,
        broker_epoch: Callable[[], int],
    ) -> None:
        self.node_id = node_id
        self.clock = clock
        self.image = image
        self.broker_epoch = broker_epoch
        self.leader_throttle = Throttle()
        self.follower_throttle = Throttle()
        self.directory_throttle = Throttle()
        # Bytes of records that replicas of this broker have fetched from their leaders.
        self.fetched_bytes = 0
        self.configure(settings)
        # Sends a change of the ISR to the controller, whose answer comes back through `apply_isr_answer`.
        self.propose: Callable[[Partition, IsrChange], None] = lambda _partition, _change: None
        # Syncs the log of a partition, and lets its high watermark follow.
        self.flush: Callable[[Partition], None] = lambda _partition: None

    def __repr__(self) -> str:
        return f"<LocalBroker {self.node_id}>"

    def configure(self, settings: ReplicationSettings) -> None:
        self.settings = settings
        now_ms = self.clock.monotonic_ms()
        self.leader_throttle.limit(settings.leader_replication_throttled_rate, now_ms)
        self.follower_throttle.limit(settings.follower_replication_throttled_rate, now_ms)
        self.directory_throttle.limit(settings.replica_alter_log_dirs_io_max_bytes_per_second, now_ms)

    def is_alive(self, broker_id: int) -> bool:
        broker = self.image.cluster.brokers.get(broker_id)
        return broker is not None and not broker.fenced

    def epoch_of(self, follower: Follower) -> int:
        """The broker epoch of the follower's broker by the image, or by its fetch if the image has no such broker. A
        forged fetch may name a higher epoch, and must not fence the broker that is registered."""
        broker = self.image.cluster.brokers.get(follower.broker_id)
        return follower.broker_epoch if broker is None else broker.epoch

    def is_eligible(self, follower: Follower) -> bool:
        """Whether a follower may join the ISR: its broker is alive and has the broker epoch of its fetch (KIP-903)."""
        broker = self.image.cluster.brokers.get(follower.broker_id)
        return (
            broker is not None
            and not broker.fenced
            and not broker.in_controlled_shutdown
            # Fetches of older versions do not name a broker epoch.
            and follower.broker_epoch in (UNKNOWN, broker.epoch)
        )


class Partition:
    """Invariant: `is_leader` only if `leader_id` is this broker; `in_sync` only if it leads and is not alone."""

    __slots__ = (
        "_broker",
        "_commits",
        "_epoch_start_offset",
        "_log_start_waiters",
        "_uncommitted",
        "directory",
        "elr",
        "fetch_waiters",
        "follower_waiters",
        "future",
        "in_sync",
        "index",
        "is_follower_throttled",
        "is_leader",
        "is_leader_throttled",
        "isr",
        "leader_epoch",
        "leader_id",
        "log",
        "min_insync_replicas",
        "partition_epoch",
        "refused",
        "replicas",
        "topic",
        "topic_id",
    )

    def __init__(
        self, topic: str, topic_id: Uuid, index: int, log: PartitionLog, directory: LogDirectory, broker: LocalBroker
    ) -> None:
        self.topic = topic
        self.topic_id = topic_id
        self.index = index
        self.log = log
        self.directory = directory
        # The copy of the log, while it moves to another directory. Truncating the log truncates the copy.
        self.future: FutureLog | None = None
        self.leader_id = NO_LEADER
        self.leader_epoch = -1
        self.partition_epoch = -1
        self.is_leader = False
        self.replicas: tuple[int, ...] = ()
        # As committed by the controller.
        self.isr: tuple[int, ...] = ()
        self.elr: tuple[int, ...] = ()
        self.in_sync: InSyncReplicas | None = None
        self.min_insync_replicas = 1
        # Whether this replica is held to the rate of throttled replication, as leader and as follower.
        self.is_leader_throttled = False
        self.is_follower_throttled = False
        self.fetch_waiters: list[FetchWaiter] = []
        self.follower_waiters: list[FetchWaiter] = []
        # None until the first batch is refused: most partitions never refuse any.
        self.refused: RefusedBatches | None = None
        self._broker = broker
        self._commits = CommitQueue()
        self._log_start_waiters: list[CommitWaiter] = []
        self._epoch_start_offset = 0
        # What was appended above the high watermark: (log end offset after it, its size), so that it is known how many
        # bytes become visible when the watermark moves.
        self._uncommitted: list[tuple[int, int]] = []

    def __repr__(self) -> str:
        role = "leader" if self.is_leader else f"follower of {self.leader_id}"
        return f"<Partition {self.topic}-{self.index}: {role} in epoch {self.leader_epoch}, {self.log!r}>"

    @property
    def is_offline(self) -> bool:
        """Whether the disk of its log directory has failed: nothing is read or written any more."""
        return self.directory.offline is not None

    # Following the metadata.

    def lead(self, wanted: PartitionImage) -> None:
        """Lead, or go on leading, with the replicas of the image."""
        is_new_epoch = not self.is_leader or wanted.leader_epoch > self.leader_epoch
        if is_new_epoch:
            self._epoch_start_offset = self.log.log_end_offset
            self._forget_epochs_above(wanted.leader_epoch)
        self._adopt(wanted)
        self.leader_id, self.is_leader = self._broker.node_id, True
        if len(wanted.replicas) > 1:
            if self.in_sync is None:
                self.in_sync = InSyncReplicas(self._broker.node_id)
            self.in_sync.update(
                wanted.leader_epoch,
                wanted.partition_epoch,
                wanted.replicas,
                tuple(wanted.isr),
                self.log.log_end_offset,
                self._broker.clock.monotonic_ms(),
            )
        else:
            self.in_sync = None
        self.maybe_advance_high_watermark()

    def _forget_epochs_above(self, leader_epoch: int) -> None:
        """Remove epochs above the leader's from the leader epoch cache. No CRC covers the epoch of a batch, so a disk
        may have changed it; followers that were told of such an epoch would truncate their logs from there on."""
        impossible_from = self.log.epochs.truncate_above(leader_epoch)
        if impossible_from is not None:
            log.warning(
                "%s-%s has batches from %s on of epochs above %s, its leader's: they are damaged",
                self.topic, self.index, impossible_from, leader_epoch,
            )  # fmt: skip

    def follow(self, wanted: PartitionImage) -> None:
        """Follow another leader, or none. Requests that wait here are woken, to be answered with the new leader."""
        had_epoch, was_leader = self.leader_epoch, self.is_leader
        self._adopt(wanted)
        self.leader_id, self.is_leader, self.in_sync = wanted.leader, False, None
        if was_leader or wanted.leader_epoch != had_epoch:
            self.wake_all()

    def resolve_impossible_epochs(self, now_ms: int) -> bool:
        """Truncate a follower's log where its epochs exceed the leader's; return whether anything has changed.

        No CRC covers an epoch, so a disk has changed it, and the leader has what was there. A replica that may be
        elected next keeps its records: one in the ISR changes nothing until it has left it, one in the ELR removes the
        epochs only. DiskError and InvalidBatch pass."""
        known_from, hidden_from = self.log.epochs.start_offset_above(self.leader_epoch), self.log.impossible_from
        found = [one for one in (known_from, hidden_from) if one is not None and one >= self.log.log_start_offset]
        if not found or self._broker.node_id in self.isr:
            return False
        if self._broker.node_id in self.elr:
            self._forget_epochs_above(self.leader_epoch)
            return known_from is not None
        log.warning(
            "%s-%s is damaged: it is truncated to %s, and fetches from its leader", self.topic, self.index, min(found)
        )
        self.truncate_to(min(found), now_ms)
        return True

    def leave(self) -> None:
        """Neither lead nor follow any more: the replica was removed from this broker, or its disk has failed."""
        self.leader_id, self.is_leader, self.in_sync = NO_LEADER, False, None
        self.wake_all()

    def _adopt(self, wanted: PartitionImage) -> None:
        self.leader_epoch, self.partition_epoch = wanted.leader_epoch, wanted.partition_epoch
        self.replicas, self.isr = tuple(wanted.replicas), tuple(wanted.isr)
        self.elr = tuple(wanted.elr)

    # Epochs.

    def check_epoch(self, requested_epoch: int) -> ErrorCode:
        """NONE if the request names this leader epoch, or none (-1); otherwise the error that fences it."""
        if requested_epoch < 0 or requested_epoch == self.leader_epoch:
            return ErrorCode.NONE
        if requested_epoch < self.leader_epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        return ErrorCode.UNKNOWN_LEADER_EPOCH

    def end_offset_for(self, epoch: int) -> EpochEndOffset:
        """The largest epoch up to the requested one, and the offset at which it ends in this log."""
        latest = self.log.epochs.latest_epoch
        if self.is_leader and epoch != UNDEFINED_EPOCH and (latest is None or latest < self.leader_epoch):
            # This leader's epoch has begun and written nothing, so the log does not have it.
            end = self.log.log_end_offset
            if epoch == self.leader_epoch:
                return EpochEndOffset(epoch, end)
            if epoch < self.leader_epoch and (latest is None or epoch > latest):
                return EpochEndOffset(epoch if latest is None else latest, end)
        return self.log.epochs.end_offset_for(epoch, self.log.log_end_offset)

    def epoch_for_offset(self, offset: int) -> int:
        if self.is_leader and offset >= self._epoch_start_offset:
            return self.leader_epoch
        epoch = self.log.epochs.epoch_for_offset(offset)
        return UNDEFINED_EPOCH if epoch is None else epoch

    @property
    def is_high_watermark_behind_epoch(self) -> bool:
        """Whether the high watermark is below the start of this leader's epoch. A new leader may know less of what is
        committed than the old one did, and cannot tell the latest offset until then (KIP-207)."""
        return self.log.high_watermark < self._epoch_start_offset

    # Appending as leader.

    @property
    def has_enough_replicas(self) -> bool:
        """Whether the ISR has `min.insync.replicas` replicas, so that acks=all can be promised."""
        return self.in_sync is None or self.in_sync.has_enough(self.min_insync_replicas)

    def append(
        self,
        data: memoryview,
        now_ms: int,
        produce_version: int,
        guard: VerificationGuard | None = None,
        is_opened: bool = False,
    ) -> Appended:
        """Append as leader what a producer sent; raises what `PartitionLog.append_as_leader` raises."""
        appended = self.log.append_as_leader(data, self.leader_epoch, now_ms, produce_version, guard, is_opened)
        self.after_append(len(data))
        return appended

    def append_own(
        self,
        batch: bytearray,
        now_ms: int,
        transaction_version: int = -1,
        guard: VerificationGuard | None = None,
    ) -> Appended:
        """Append as leader a batch that this broker made, and that all in-sync replicas must have."""
        if not self.has_enough_replicas:
            raise NotEnoughReplicas(self)
        appended = self.log.append_own(memoryview(batch), self.leader_epoch, now_ms, transaction_version, guard)
        self.after_append(len(batch))
        return appended

    def after_append(self, size: int) -> None:
        log = self.log
        if self.in_sync is None and not (log.has_flush_messages and log.is_flush_due):
            if log.update_high_watermark(log.log_end_offset):
                if self._commits.waiting:
                    self._commits.reached(log.high_watermark)
                for waiter in tuple(self.fetch_waiters):
                    waiter.arrived(size)
            return
        self._uncommitted.append((log.log_end_offset, size))
        for waiter in tuple(self.follower_waiters):
            waiter.arrived(size)
        self.maybe_advance_high_watermark()

    # The high watermark.

    def maybe_advance_high_watermark(self) -> bool:
        log, broker = self.log, self._broker
        own_offset = log.log_end_offset
        if log.is_flush_due:
            own_offset = log.recovery_point
            broker.flush(self)
        if self.in_sync is None:
            return self._advance_to(own_offset)
        return self._advance_to(
            self.in_sync.high_watermark(
                log.log_end_offset,
                own_offset,
                self.min_insync_replicas,
                broker.clock.monotonic_ms(),
                broker.settings.replica_lag_time_max_ms,
                broker.is_eligible,
            )
        )

    def _advance_to(self, offset: int) -> bool:
        log = self.log
        if not log.update_high_watermark(offset):
            return False
        reached, size, count = log.high_watermark, 0, 0
        for end, one_size in self._uncommitted:
            if end > reached:
                break
            size += one_size
            count += 1
        del self._uncommitted[:count]
        if self._commits.waiting:
            self._commits.reached(reached)
        for waiter in tuple(self.fetch_waiters):
            waiter.arrived(size)
        return True

    def when_replicated(self, offset: int, waiter: CommitWaiter) -> None:
        """Wake the waiter when the high watermark has reached `offset`, or this broker does not lead any more."""
        if not self.is_leader:
            waiter.lost()
        elif self.log.high_watermark >= offset:
            waiter.arrived()
        else:
            self._commits.add(offset, waiter)

    def commit_error(self, offset: int) -> ErrorCode | None:
        """The error code for a produce with acks=all whose batch ends at `offset`; None while it has to wait."""
        if self.is_offline:
            return ErrorCode.KAFKA_STORAGE_ERROR
        if not self.is_leader:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        if self.log.high_watermark < offset:
            return None
        return ErrorCode.NONE if self.has_enough_replicas else ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND

    async def wait_until_replicated(self, offset: int) -> bool:
        """Return True when the high watermark has reached `offset`; False if this broker stops leading before."""
        if self.is_leader and self.log.high_watermark < offset:
            waiter = AwaitedWaiter()
            self._commits.add(offset, waiter)
            await waiter.wait()
        return self.is_leader and self.log.high_watermark >= offset

    def wake_all(self) -> None:
        for waiter in (*self.fetch_waiters, *self.follower_waiters):
            waiter.wake()
        self._commits.lose_all()
        self._wake_log_start_waiters()

    # Followers.

    def check_follower(self, replica_id: int, broker_epoch: int, *, knows_epoch: bool) -> ErrorCode:
        """Return NONE if a fetch of this replica counts, otherwise the error for it. `knows_epoch`: the fetch named a
        leader epoch."""
        follower = None if self.in_sync is None else self.in_sync.followers.get(replica_id)
        if follower is None:
            # It may have heard before this broker that it is a replica of the partition; then it asks again.
            return ErrorCode.UNKNOWN_LEADER_EPOCH if knows_epoch else ErrorCode.NOT_LEADER_OR_FOLLOWER
        if broker_epoch != UNKNOWN and broker_epoch < self._broker.epoch_of(follower):
            # A fetch under an earlier broker epoch: that incarnation may have had what the present one has lost.
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        return ErrorCode.NONE

    def follower_fetched(self, replica_id: int, broker_epoch: int, offset: int, log_start_offset: int) -> None:
        """Note that a follower, which has passed `check_follower`, has everything below `offset` in this leader epoch;
        move the high watermark, or propose that the follower joins the ISR, where that follows from it."""
        in_sync, broker, log = self.in_sync, self._broker, self.log
        assert in_sync is not None
        follower = in_sync.followers[replica_id]
        had_offset, had_start = follower.log_end_offset, follower.log_start_offset
        now_ms = broker.clock.monotonic_ms()
        follower.note_fetch(offset, log_start_offset, log.log_end_offset, broker_epoch, now_ms)
        if replica_id not in in_sync.isr:
            change = in_sync.propose_joining(follower, log.high_watermark, broker.broker_epoch(), broker.is_eligible)
            if change is not None:
                broker.propose(self, change)
        if offset != had_offset:
            self.maybe_advance_high_watermark()
        if log_start_offset != had_start:
            self._wake_log_start_waiters()

    def is_throttled_for(self, replica_id: int) -> bool:
        """Whether a follower gets nothing just now, because replication has used up its rate (KIP-73)."""
        if not self.is_leader_throttled or replica_id in self.isr:
            return False
        return self._broker.leader_throttle.wait_ms(self._broker.clock.monotonic_ms()) > 0

    def count_sent(self, size: int) -> None:
        """Count bytes sent to a follower against the rate. One in the ISR is never throttled, but its bytes count."""
        if self.is_leader_throttled:
            self._broker.leader_throttle.take(size, self._broker.clock.monotonic_ms())

    def maybe_shrink_isr(self) -> None:
        """Propose an ISR without the followers that lag."""
        in_sync, broker = self.in_sync, self._broker
        if in_sync is None or self.is_offline:
            return
        change = in_sync.propose_leaving(
            self.log.log_end_offset,
            broker.clock.monotonic_ms(),
            broker.settings.replica_lag_time_max_ms,
            broker.broker_epoch(),
        )
        if change is not None:
            broker.propose(self, change)

    def apply_isr_answer(self, change: IsrChange, answer: IsrAnswer) -> bool:
        """Take over what the controller answered; return whether the change must be sent again."""
        in_sync = self.in_sync
        if in_sync is None:
            return False
        outcome = in_sync.apply_answer(change, answer)
        if outcome.has_changed:
            self.isr, self.partition_epoch = in_sync.isr, in_sync.partition_epoch
            self.maybe_advance_high_watermark()
        return outcome.try_again

    def low_watermark(self) -> int:
        """The offset below which no live replica has records; -1 while that is not known."""
        if self.in_sync is None:
            return self.log.log_start_offset
        return min(
            self.log.log_start_offset, self.in_sync.low_watermark(self.log.log_start_offset, self._broker.is_alive)
        )

    def wait_for_followers_start(self, waiter: CommitWaiter) -> None:
        """Wake the waiter when a follower's log start has moved: DeleteRecords waits for the starts of all replicas."""
        self._log_start_waiters.append(waiter)
        # Their fetches would otherwise wait for records before they hear of the new start.
        for fetch in tuple(self.follower_waiters):
            fetch.wake()

    def _wake_log_start_waiters(self) -> None:
        while self._log_start_waiters:
            self._log_start_waiters.pop().wake()

    # Appending as follower.

    def append_fetched(self, data: memoryview, now_ms: int, leader_epoch: int) -> int:
        """Append what the leader of this epoch sent; return the number of bytes. Raises what `append_as_follower`
        raises."""
        before = self.log.log_end_offset
        if not self.log.append_as_follower(data, now_ms, leader_epoch):
            return 0
        size = len(data)
        if self.log.log_end_offset > before:
            self._uncommitted.append((self.log.log_end_offset, size))
        return size

    def follow_high_watermark(self, high_watermark: int) -> None:
        """Move the high watermark to the leader's, at most to the log end."""
        self._advance_to(high_watermark)

    def truncate_to(self, offset: int, now_ms: int) -> None:
        """Drop what the leader does not have. `InvalidBatch` if the log is damaged before `offset` and this replica may
        be elected next: it keeps its records while it is in the ISR or the ELR, and drops the damaged ones after."""
        may_be_elected = self._broker.node_id in self.isr or self._broker.node_id in self.elr
        self.log.truncate_to(offset, now_ms, drops_damaged=not may_be_elected)
        self._uncommitted.clear()
        self._truncate_future(self.log.log_end_offset, now_ms)

    def restart_at(self, offset: int, now_ms: int) -> None:
        self._uncommitted.clear()
        self.log.restart_at(offset, now_ms)
        self._truncate_future(0, now_ms)

    def _truncate_future(self, offset: int, now_ms: int) -> None:
        future = self.future
        if future is not None and future.directory.offline is None:
            try:
                future.truncate_to(offset, now_ms)
            except DiskError as error:
                future.directory.fail(error)
