"""Replica fetchers: one task, or `num.replica.fetchers`, for every broker that leads partitions which this one follows.

    positions of all partitions ──▶ Fetch, in a session ──▶ append, truncate, follow the high watermark ──▶ again

What the leader's answer means for a log is decided by `divergence`; which partitions a fetch names, by
`follower_session`. Here is what is left: waiting, and keeping trouble where it belongs.

- A partition with an error pauses alone, for longer each time, up to `replica.fetch.backoff.ms`. So does one whose
  fetched batches are damaged: they are fetched again.
- A partition whose disk has failed is left alone, and the others go on.
- If the connection fails, all partitions pause, and the next fetch begins a new session on a new connection.

A fetch that is on its way answers for the epochs in which it was sent: for a partition that has changed meanwhile its
answer is void.

An in-sync replica vouches for what it has with its next fetch. Where a topic asks for its records to be on the disk
before they are acknowledged (`flush.messages`), the next fetch therefore waits for the disk.

When partitions are added while a fetch waits for news, it is given up, so that a new partition does not begin with half
a second in which it is not replicated.

A fetch costs both sides a look at every partition of its session, and a partition waits for the round of all that share
its fetcher. More fetchers make rounds shorter for brokers with many partitions; they do not use more cores.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, cast

from pessoa.log.files import DiskError
from pessoa.net.channel import ChannelFailed
from pessoa.records.invalid_batch import InvalidBatch
from pessoa.replication.backoff import Backoff
from pessoa.replication.divergence import reset_for_range, truncation_offset
from pessoa.replication.follower_session import FollowerSession, Position
from pessoa.wire.api.fetch import FetchRequest, FetchResponse, ReplicaState
from pessoa.wire.api.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from pessoa.wire.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pessoa.log.flusher import Flusher
    from pessoa.net.channel import Channel
    from pessoa.replication.follower_session import Key
    from pessoa.replication.partition import LocalBroker, Partition
    from pessoa.wire.api.fetch import PartitionData

log = logging.getLogger("pessoa.replication")

_Place = tuple[int, int]

_LATEST = -1
_EARLIEST_LOCAL = -4
_NO_EPOCH = -1
# A waiting fetch is given up for new partitions at most this often: creating many topics must not keep all busy.
_INTERRUPTION_INTERVAL_MS = 100

# The leader has thrown our session away: that is no trouble, the next fetch opens another.
_SESSION_ERRORS = (
    ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
    ErrorCode.INVALID_FETCH_SESSION_EPOCH,
    ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
)
# While metadata travels these are to be expected.
_PASSING_ERRORS = (
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.UNKNOWN_LEADER_EPOCH,
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
)


class _Following:
    __slots__ = ("backoff", "lag", "partition")

    def __init__(self, partition: Partition) -> None:
        self.partition = partition
        self.backoff = Backoff()
        # How many offsets that are committed the leader had more when it last answered; before that, one at least.
        self.lag = 1


class ReplicaFetcher:
    """Fetches partitions from one leader until it is stopped."""

    def __init__(
        self, leader_id: int, broker: LocalBroker, channel_to: Callable[[int], Channel | None], flusher: Flusher
    ) -> None:
        self.leader_id = leader_id
        self._broker = broker
        self._channel_to = channel_to
        self._flusher = flusher
        self._following: dict[Key, _Following] = {}
        self._session = FollowerSession()
        self._channel: Channel | None = None
        self._backoff = Backoff()
        self._is_waiting = False
        self._was_interrupted = False
        self._interrupted_ms = -_INTERRUPTION_INTERVAL_MS
        self._wakeup: asyncio.Future[None] | None = None
        self._task: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        return f"<ReplicaFetcher from broker {self.leader_id}: {len(self._following)} partitions, {self._session!r}>"

    def __len__(self) -> int:
        return len(self._following)

    def max_lag(self) -> int:
        """The largest lag of its partitions: how many committed offsets one lacks."""
        return max([0, *(one.lag for one in self._following.values())])

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run(), name=f"fetcher-{self.leader_id}")
        self._task.add_done_callback(_report)

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        self._close_channel()

    def follow(self, partition: Partition) -> None:
        key = (partition.topic_id, partition.index)
        known = self._following.get(key)
        self._resolve_impossible_epochs(partition)
        if known is not None and known.partition is partition:
            # Another epoch of the same leader; what paused for the last one need not pause for this.
            known.backoff.succeeded()
        else:
            self._following[key] = _Following(partition)
        self._wake()

    def unfollow(self, partition: Partition) -> None:
        known = self._following.get((partition.topic_id, partition.index))
        if known is not None and known.partition is partition:
            del self._following[partition.topic_id, partition.index]

    def _wake(self) -> None:
        """Wake the fetcher for partitions that the Fetch in flight does not name; interrupt that Fetch if it only
        waits."""
        if self._wakeup is not None and not self._wakeup.done():
            self._wakeup.set_result(None)
        now_ms = self._broker.clock.monotonic_ms()
        if self._is_waiting and now_ms - self._interrupted_ms >= _INTERRUPTION_INTERVAL_MS:
            self._interrupted_ms = now_ms
            self._was_interrupted = True
            self._close_channel()

    def _close_channel(self) -> None:
        if self._channel is not None:
            self._channel.close()
            self._channel = None
        self._session.reset()

    # The loop.

    async def _run(self) -> None:
        while True:
            now_ms = self._broker.clock.monotonic_ms()
            unflushed = [one.partition for one in self._following.values() if one.partition.log.is_flush_due]
            for partition in unflushed:
                await self._flush(partition)
            wanted = self._positions(now_ms) if self._backoff.until_ms <= now_ms else {}
            if wanted:
                await self._fetch(wanted)
            else:
                await self._pause(now_ms)

    def _positions(self, now_ms: int) -> dict[Key, Position]:
        found = {}
        throttled_ms = self._broker.follower_throttle.wait_ms(now_ms)
        for key, following in self._following.items():
            partition = following.partition
            if throttled_ms and partition.is_follower_throttled and following.lag > 0:
                following.backoff.until_ms = now_ms + throttled_ms
            if following.backoff.until_ms <= now_ms and not partition.log.is_flush_due and not partition.is_offline:
                epoch = partition.log.epochs.latest_epoch
                found[key] = Position(
                    partition.leader_epoch,
                    partition.log.log_end_offset,
                    _NO_EPOCH if epoch is None else epoch,
                    partition.log.log_start_offset,
                )
        return found

    async def _pause(self, now_ms: int) -> None:
        """Wait until the backoff of a partition is over, or there is a new partition to follow."""
        if self._backoff.until_ms > now_ms:
            await self._broker.clock.wait_ms(self._backoff.until_ms - now_ms)
            return
        self._wakeup = asyncio.get_running_loop().create_future()
        due = (one.backoff.until_ms for one in self._following.values() if one.backoff.until_ms > now_ms)
        due_ms = min(due, default=None)
        if due_ms is None:
            await self._wakeup
            return
        alarm = asyncio.get_running_loop().create_task(self._broker.clock.wait_ms(due_ms - now_ms))
        try:
            await asyncio.wait((alarm, self._wakeup), return_when=asyncio.FIRST_COMPLETED)
        finally:
            alarm.cancel()

    async def _fetch(self, wanted: dict[Key, Position]) -> None:
        settings = self._broker.settings
        if self._channel is None:
            self._channel = self._channel_to(self.leader_id)
            if self._channel is None:
                self._fail("its address is not known")
                return
        topics, forgotten = self._session.next_fetch_topics(wanted, settings.replica_fetch_max_bytes)
        request = FetchRequest(
            replica_state=ReplicaState(replica_id=self._broker.node_id, replica_epoch=self._broker.broker_epoch()),
            max_wait_ms=settings.replica_fetch_wait_max_ms,
            min_bytes=settings.replica_fetch_min_bytes,
            max_bytes=settings.replica_fetch_response_max_bytes,
            session_id=self._session.id,
            session_epoch=self._session.epoch,
            topics=topics,
            forgotten_topics_data=forgotten,
        )
        self._is_waiting, self._was_interrupted = True, False
        try:
            response = await self._channel.send(request, FetchRequest.versions.last, settings.replica_socket_timeout_ms)
        except ChannelFailed as problem:
            if not self._was_interrupted:
                self._fail(str(problem))
            return
        finally:
            self._is_waiting = False
        if self._was_interrupted:
            # The session was given up while this answer was on its way, and new partitions wait.
            return
        await self._take_response(cast("FetchResponse", response), wanted)

    def _fail(self, why: str) -> None:
        # Once for each outage: it is tried again many times.
        level = logging.DEBUG if self._backoff.has_failed else logging.INFO
        log.log(level, "broker %s cannot fetch from broker %s: %s", self._broker.node_id, self.leader_id, why)
        self._backoff.failed(self._broker.clock.monotonic_ms(), self._broker.settings.replica_fetch_backoff_ms)
        self._close_channel()

    # The answer.

    async def _take_response(self, response: FetchResponse, sent: dict[Key, Position]) -> None:
        error = ErrorCode.of(response.error_code)
        self._session.apply_response(error, response.session_id)
        if error is not ErrorCode.NONE:
            if error not in _SESSION_ERRORS:
                self._fail(error.name)
            return
        self._backoff.succeeded()
        out_of_range: list[Partition] = []
        for topic in response.responses:
            for data in topic.partitions:
                key = (topic.topic_id, data.partition_index)
                following, position = self._following.get(key), sent.get(key)
                if following is None or position is None:
                    continue
                if data.diverging_epoch is not None or not self._is_current(following.partition, position):
                    # The high watermark was not applied, and the leader would not send it again in this fetch session.
                    self._session.reset()
                if not self._is_current(following.partition, position):
                    continue
                if data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
                    out_of_range.append(following.partition)
                else:
                    self._take_partition(following, position, data)
        if out_of_range:
            await self._find_range(out_of_range)

    def _is_current(self, partition: Partition, position: Position) -> bool:
        return (
            partition.leader_id == self.leader_id
            and partition.leader_epoch == position.leader_epoch
            and partition.log.log_end_offset == position.fetch_offset
            and not partition.is_offline
        )

    def _take_partition(self, following: _Following, position: Position, data: PartitionData) -> None:
        partition = following.partition
        now_ms = self._broker.clock.now_ms()
        if data.error_code:
            self._pause_partition(following, ErrorCode.of(data.error_code))
            return
        try:
            if data.diverging_epoch is not None:
                self._truncate(partition, data.diverging_epoch.epoch, data.diverging_epoch.end_offset, now_ms)
                return
            if data.records:
                size = partition.append_fetched(data.records, now_ms, position.leader_epoch)
                if not size:
                    # All batches have an epoch above the leader's: it does not lead any more, or its disk has changed
                    # them. A fetch at once would get the same batches.
                    self._pause_partition(following, ErrorCode.CORRUPT_MESSAGE)
                    return
                if partition.is_follower_throttled:
                    self._broker.follower_throttle.take(size, self._broker.clock.monotonic_ms())
                self._broker.fetched_bytes += size
            following.lag = data.high_watermark - partition.log.log_end_offset
            partition.follow_high_watermark(data.high_watermark)
            self._follow_log_start(partition, data.log_start_offset)
        except InvalidBatch as problem:
            log.warning("%s-%s: %s", partition.topic, partition.index, problem)
            self._pause_partition(following, problem.error)
            return
        except DiskError as problem:
            partition.directory.fail(problem)
            return
        following.backoff.succeeded()

    def _pause_partition(self, following: _Following, error: ErrorCode) -> None:
        partition = following.partition
        log.log(
            logging.DEBUG if error in _PASSING_ERRORS else logging.WARNING,
            "%s-%s of broker %s: %s", partition.topic, partition.index, self.leader_id, error.name,
        )  # fmt: skip
        following.backoff.failed(self._broker.clock.monotonic_ms(), self._broker.settings.replica_fetch_backoff_ms)

    def _truncate(self, partition: Partition, epoch: int, end_offset: int, now_ms: int) -> None:
        own = partition.log
        offset = truncation_offset(own.epochs, own.log_end_offset, own.high_watermark, epoch, end_offset)
        log.info(
            "%s-%s parts from its leader %s in epoch %s, which ends there at %s: %s..%s goes",
            partition.topic, partition.index, self.leader_id, epoch, end_offset, offset, own.log_end_offset,
        )  # fmt: skip
        if offset < own.high_watermark:
            log.warning(
                "%s-%s is truncated below its high watermark %s", partition.topic, partition.index, own.high_watermark
            )
        partition.truncate_to(offset, now_ms)

    def _follow_log_start(self, partition: Partition, leader_start_offset: int) -> None:
        own = partition.log
        start = min(leader_start_offset, own.high_watermark)
        if start > own.log_start_offset:
            own.delete_records_before(start)

    async def _flush(self, partition: Partition) -> None:
        if partition.is_offline:
            return
        directory = partition.directory
        try:
            await self._flusher.wait_until_durable(partition.log, partition.log.log_end_offset)
        except DiskError as problem:
            directory.fail(problem)

    # What the leader does not have.

    async def _find_range(self, partitions: list[Partition]) -> None:
        """Ask the leader for the start and end offsets of its logs, and truncate these logs or restart them there."""
        epochs = {partition: partition.leader_epoch for partition in partitions}
        ends = await self._list_offsets(partitions, _LATEST)
        starts = await self._list_offsets(ends, _EARLIEST_LOCAL)
        for partition in partitions:
            key = (partition.topic_id, partition.index)
            following = self._following.get(key)
            if following is None or following.partition is not partition:
                # The partition was removed meanwhile, and may have been added again as another object.
                continue
            if partition.leader_epoch != epochs[partition] or partition.is_offline:
                continue
            if partition not in starts or partition not in ends:
                self._pause_partition(following, ErrorCode.OFFSET_OUT_OF_RANGE)
                continue
            own = partition.log
            if self._resolve_impossible_epochs(partition):
                continue
            reset = reset_for_range(own.log_end_offset, starts[partition], ends[partition])
            log.warning(
                "%s-%s has offsets %s..%s and its leader %s has %s..%s: it goes on at %s",
                partition.topic, partition.index, own.log_start_offset, own.log_end_offset,
                self.leader_id, starts[partition], ends[partition], reset.offset,
            )  # fmt: skip
            try:
                if reset.drops_all:
                    partition.restart_at(reset.offset, self._broker.clock.now_ms())
                elif reset.offset < own.log_end_offset:
                    partition.truncate_to(reset.offset, self._broker.clock.now_ms())
                else:
                    self._pause_partition(following, ErrorCode.OFFSET_OUT_OF_RANGE)
            except InvalidBatch as problem:
                log.warning("%s-%s: %s", partition.topic, partition.index, problem)
                self._pause_partition(following, problem.error)
            except DiskError as problem:
                partition.directory.fail(problem)

    def _resolve_impossible_epochs(self, partition: Partition) -> bool:
        try:
            return partition.resolve_impossible_epochs(self._broker.clock.now_ms())
        except DiskError as problem:
            partition.directory.fail(problem)
        except InvalidBatch as problem:
            log.warning("%s-%s: %s", partition.topic, partition.index, problem)
        return False

    async def _list_offsets(self, partitions: Iterable[Partition], timestamp: int) -> dict[Partition, int]:
        asked = {(one.topic, one.index): one for one in partitions}
        if not asked or self._channel is None:
            return {}
        topics: dict[str, ListOffsetsTopic] = {}
        for (topic, index), partition in asked.items():
            topics.setdefault(topic, ListOffsetsTopic(name=topic, partitions=[])).partitions.append(
                ListOffsetsPartition(
                    partition_index=index, current_leader_epoch=partition.leader_epoch, timestamp=timestamp
                )
            )
        request = ListOffsetsRequest(replica_id=self._broker.node_id, topics=list(topics.values()))
        try:
            answer = await self._channel.send(
                request, ListOffsetsRequest.versions.last, self._broker.settings.replica_socket_timeout_ms
            )
        except ChannelFailed as problem:
            self._fail(str(problem))
            return {}
        return {
            asked[topic.name, one.partition_index]: one.offset
            for topic in cast("ListOffsetsResponse", answer).topics
            for one in topic.partitions
            if one.error_code == ErrorCode.NONE and (topic.name, one.partition_index) in asked
        }


class ReplicaFetchers:
    """One fetcher, or `num.replica.fetchers` of them, for every leader that this broker follows."""

    def __init__(self, broker: LocalBroker, channel_to: Callable[[int], Channel | None], flusher: Flusher) -> None:
        self._broker = broker
        self._channel_to = channel_to
        self._flusher = flusher
        # By leader, and by their number among those of one leader.
        self._running: dict[_Place, ReplicaFetcher] = {}
        self._place_of: dict[Partition, _Place] = {}
        self._stopping: dict[asyncio.Task[None], None] = {}

    def __repr__(self) -> str:
        return f"<ReplicaFetchers: {list(self._running.values())}>"

    def follow(self, partition: Partition) -> None:
        """Fetch the partition from its present leader, in its present leader epoch, and from no other broker."""
        number = (partition.topic_id[-1] + partition.index) % self._broker.settings.num_replica_fetchers
        place = (partition.leader_id, number)
        if self._place_of.get(partition, place) != place:
            self.unfollow(partition)
        fetcher = self._running.get(place)
        if fetcher is None:
            leader_id = partition.leader_id
            fetcher = self._running[place] = ReplicaFetcher(leader_id, self._broker, self._channel_to, self._flusher)
            fetcher.start()
        self._place_of[partition] = place
        fetcher.follow(partition)

    def max_lag(self) -> int:
        return max([0, *(one.max_lag() for one in self._running.values())])

    def spread(self) -> None:
        """Assign every partition to its fetcher anew: the number of fetchers has changed."""
        for partition in list(self._place_of):
            self.follow(partition)

    def unfollow(self, partition: Partition) -> None:
        place = self._place_of.pop(partition, None)
        if place is None:
            return
        fetcher = self._running[place]
        fetcher.unfollow(partition)
        if not len(fetcher):
            del self._running[place]
            task = asyncio.get_running_loop().create_task(fetcher.stop())
            self._stopping[task] = None
            task.add_done_callback(self._stopping.pop)

    async def close(self) -> None:
        fetchers = list(self._running.values())
        self._running.clear()
        self._place_of.clear()
        await asyncio.gather(*(one.stop() for one in fetchers), *self._stopping)


def _report(task: asyncio.Task[None]) -> None:
    """Pass the exception of a fetcher task, which is a bug, to the event loop's exception handler at once."""
    if not task.cancelled() and (error := task.exception()) is not None:
        task.get_loop().call_exception_handler({"message": "a fetcher failed", "exception": error, "task": task})
