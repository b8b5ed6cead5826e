"""The metadata quorum on a node: the raft machine with a log, a clock and peers.

    append ──▶ log ──▶ fsync, and the followers' fsyncs ──▶ committed: listeners, in order ──▶ the future has the offset

Whatever happens (a request, an answer, a timer, a sync that is done) goes to the machine, and then `_obey` does what
`Ready` says, in its order: epoch and vote reach the disk before a word leaves, a cut comes before what is written after
it. Then the high watermark may have moved, and what is committed goes to the listeners; and the leader may be another,
which `on_leadership` is told. A node that begins to lead hears of it when it has applied everything from before: its
own LeaderChange record is committed then, and with it all that is older.

Syncs run in a worker thread, shared by all who wait (`Flusher`), while followers fetch the same records: a leader
counts itself when its disk has them, like everybody else. With one voter there is nobody else; such a node leads, and
its listeners have everything, when `start` returns.

A disk that refuses ends it all: nobody can say what is on that disk. So does what an `assert` calls impossible. What
waits fails with `QuorumFailed`, and `on_failure` is told once, so that the process ends and is started again: a node
that stayed would be counted on, and do nothing. What waits when the lead is lost fails with `NotLeader`: it may be
committed all the same, by whoever leads next.

A node that is no voter observes: it fetches like the others, and counts for nothing.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from pessoa.base.entropy import below
from pessoa.log.files import DiskError
from pessoa.log.flushing import Flusher
from pessoa.quorum.batches import CommittedBatch, VersionedRecord, decode_batch
from pessoa.quorum.metadata_log import METADATA_DIRECTORY, MetadataLog
from pessoa.quorum.remembering import memory_of
from pessoa.quorum.settings import DEFAULT_SETTINGS, LeaderAndEpoch, QuorumSettings, Send
from pessoa.quorum.state_file import (
    QUORUM_STATE_FILE,
    election_of,
    read_quorum_state,
    state_of,
    write_quorum_state,
)
from pessoa.quorum.waiting import Waiters
from pessoa.raft.machine import Raft
from pessoa.raft.memory import Memory
from pessoa.raft.messages import NO_NODE, ElectionState, ReplicaKey, Request, Unanswered
from pessoa.raft.roles import NEVER, Follower, Leader, Resigned
from pessoa.raft.voters import Address, VoterSet
from pessoa.records.errors import InvalidBatch

if TYPE_CHECKING:
    from pessoa.base.clock import Clock
    from pessoa.base.entropy import Entropy
    from pessoa.base.ids import Uuid
    from pessoa.log.files import Disk
    from pessoa.quorum.snapshot_file import SnapshotReader
    from pessoa.raft.messages import OffsetAndEpoch
    from pessoa.records.control import QuorumMessage
    from pessoa.wire.schema import Message

log = logging.getLogger("pessoa.quorum")

# Bootstrap servers have no ids that anybody knows; these are below every id and every "none".
_FIRST_BOOTSTRAP_ID = -2
# How long a leader that stops waits for the others to hear of it.
_FAREWELL_MS = 1_000


class QuorumFailed(Exception):
    """The metadata log cannot be written any more; the cause says why."""


class NotLeader(Exception):
    """This node does not lead the quorum, or has stopped while somebody waited for it."""


class _Pending(NamedTuple):
    base_offset: int
    batch: CommittedBatch
    committed: asyncio.Future[int]


class RaftQuorum:
    """`start` it, then `append` while it leads. Listeners have seen exactly the batches below `applied_offset`."""

    def __init__(
        self,
        disk: Disk,
        directory: str,
        node_id: int,
        cluster_id: str,
        directory_id: Uuid,
        voters: VoterSet,
        clock: Clock,
        entropy: Entropy,
        flusher: Flusher | None = None,
        send: Send | None = None,
        settings: QuorumSettings = DEFAULT_SETTINGS,
        bootstrap_servers: Sequence[tuple[str, int]] = (),
        *,
        is_controller: bool = True,
        listeners: Mapping[str, tuple[str, int]] | None = None,
        auto_join: bool = False,
    ) -> None:
        """`directory` is the metadata log directory; the log is in a folder of it. `voters` are those of the
        configuration, none where they stand in the log. Only a quorum of one does without `send`. `listeners` are
        where this controller listens: a voter in the log keeps the others informed, and with `auto_join` it becomes one
        by itself."""
        self.node_id = node_id
        self.cluster_id = cluster_id
        self.settings = settings
        # Called with every committed batch, in order, and with a snapshot that takes the place of all before it.
        self.listeners: list[Callable[[CommittedBatch], None]] = []
        self.on_snapshot: list[Callable[[SnapshotReader], None]] = []
        self.on_leadership: list[Callable[[LeaderAndEpoch], None]] = []
        self.on_failure: Callable[[BaseException], None] = lambda _: None
        self.applied_offset = 0
        self.disk = disk
        self._directory = f"{directory}/{METADATA_DIRECTORY}"
        self._key = ReplicaKey(node_id, directory_id)
        self._static_voters = voters
        self._clock = clock
        self._random_below = partial(below, entropy)
        self._flusher = flusher if flusher is not None else Flusher()
        self._send = send
        self._is_controller = is_controller
        self.own_listeners = {name: Address(*address) for name, address in (listeners or {}).items()}
        self.auto_join = auto_join
        self._bootstrap = {
            _FIRST_BOOTSTRAP_ID - number: Address(host, port) for number, (host, port) in enumerate(bootstrap_servers)
        }
        # Where nodes are that no voter set tells of, as their peers have said.
        self._addresses: dict[int, Address] = {}
        self._pending: deque[_Pending] = deque()
        self._flushing: asyncio.Task[None] | None = None
        self._alarm: tuple[int, asyncio.Task[None]] | None = None
        # Exchanges under way, in the order in which they began.
        self._tasks: dict[asyncio.Task[None], None] = {}
        self._waiters = Waiters(clock)
        self._told = LeaderAndEpoch(NO_NODE, -1)
        self._is_obeying = False
        self._is_downloading = False
        self._is_closed = False
        self._failure: BaseException | None = None
        self._log: MetadataLog | None = None
        self._raft: Raft | None = None

    def __repr__(self) -> str:
        return f"<RaftQuorum of node {self.node_id}: {self._raft!r}>"

    # What others may know.

    @property
    def log(self) -> MetadataLog:
        assert self._log is not None, "the quorum has not been started"
        return self._log

    @property
    def raft(self) -> Raft:
        assert self._raft is not None, "the quorum has not been started"
        return self._raft

    @property
    def leader_id(self) -> int:
        return self.raft.leader_id

    @property
    def epoch(self) -> int:
        return self.raft.epoch

    @property
    def is_leader(self) -> bool:
        return self.raft.is_leader

    @property
    def voters(self) -> tuple[int, ...]:
        return self.raft.voters.ids

    @property
    def log_end_offset(self) -> int:
        """Where the next record will stand."""
        return self.log.log_end_offset

    @property
    def high_watermark(self) -> int:
        return self.raft.high_watermark

    def endpoint_of(self, node_id: int) -> tuple[str, int] | None:
        """Where a member listens for controllers, if anybody has said so."""
        if node_id == self.node_id and self.own_listeners:
            return next(iter(self.own_listeners.values()))
        voter = self.raft.voters.by_id.get(node_id)
        if voter is not None and voter.address is not None:
            return voter.address
        return self._addresses.get(node_id) or self._bootstrap.get(node_id)

    # Starting and stopping.

    async def start(self) -> None:
        """Open the log and take one's place. DiskError, CorruptQuorumState and CorruptMetadataLog pass."""
        now_ms = self._clock.monotonic_ms()
        stored = read_quorum_state(self.disk, f"{self._directory}/{QUORUM_STATE_FILE}")
        election = None if stored is None else election_of(stored)
        latest_epoch = None if election is None else election.epoch
        self._log = MetadataLog(
            self.disk, self._directory, self.settings, self._static_voters, self._clock.now_ms(), latest_epoch
        )
        memory = memory_of(self.log, self._key, latest_epoch, self._clock.now_ms())
        self._raft = Raft(
            self._key,
            self.log.history.voters,
            self.log,
            self.settings.timeouts,
            self._random_below,
            tuple(self._bootstrap),
            can_vote=self._is_controller,
            memory=memory,
        )
        self._load_latest_snapshot()
        self._raft.start(now_ms, election)
        self._obey()
        if self._raft.is_leader:
            # Nobody is served yet, so nobody is kept waiting.
            self.log.partition.flush()
            self._raft.flushed(now_ms)
            self._obey()
        if self._is_controller and self.own_listeners:
            self._spawn(self._keep_membership())

    async def _keep_membership(self) -> None:
        from pessoa.quorum.membership import keep_membership

        await keep_membership(self)

    def _load_latest_snapshot(self) -> None:
        latest = self.log.latest_snapshot
        if latest is not None and latest.offset > 0:
            reader = self.log.read_snapshot(latest)
            for listener in self.on_snapshot:
                listener(reader)
            self.applied_offset = latest.offset
            self.raft.high_watermark = latest.offset
            self.log.partition.update_high_watermark(latest.offset)

    async def close(self) -> None:
        """Hand over the lead if there is somebody to take it, wait for what is being written, and close the log."""
        await self._finish_flushing()
        if self._raft is not None and self._failure is None and self._raft.voters.ids != (self.node_id,):
            self._raft.resign(self._clock.monotonic_ms(), self._raft.epoch)
            self._obey()
            await self._say_farewell()
        self._stop()
        await self._finish_flushing()
        if self._log is not None and self._failure is None:
            if self._is_controller and self._raft is not None and self._raft.memory is Memory.WHOLE:
                self._log.mark.settle(self._log.durable_end_offset)
            self._log.close()

    def abandon(self) -> None:
        """Stop as a process that is killed: nothing more is said or written."""
        self._stop()
        if self._flushing is not None:
            self._flushing.cancel()
        if self._log is not None:
            self._log.partition.release()

    def _stop(self) -> None:
        self._is_closed = True
        if self._alarm is not None:
            self._alarm[1].cancel()
        for task in list(self._tasks):
            task.cancel()
        self._fail_pending(NotLeader(f"node {self.node_id} has left the metadata quorum"))
        self._waiters.wake()

    async def _finish_flushing(self) -> None:
        while self._flushing is not None:
            await asyncio.wait([self._flushing])

    async def _say_farewell(self) -> None:
        deadline_ms = self._clock.monotonic_ms() + _FAREWELL_MS
        while isinstance(role := self.raft.role, Resigned) and role.requests.due_ms:
            if not await self.wait_for_change(deadline_ms):
                return

    # Writing.

    def append(self, records: Sequence[VersionedRecord]) -> asyncio.Future[int]:
        """Append the records as one batch; the future has the offset of the last one when it is committed."""
        assert records, "an empty batch says nothing"
        self._check_leading()
        now_ms, base_offset, size = self._clock.now_ms(), self.log_end_offset, self.log.partition.size
        try:
            last_offset = self.log.append(records, self.epoch, now_ms)
        except DiskError as error:
            self.fail(error)
            raise QuorumFailed(str(error)) from error
        size = self.log.partition.size - size
        batch = CommittedBatch(last_offset, self.epoch, now_ms, [record for record, _ in records], size=size)
        pending = _Pending(base_offset, batch, asyncio.get_running_loop().create_future())
        self._pending.append(pending)
        self._flush_later()
        self._waiters.wake()
        return pending.committed

    def append_control(self, messages: Sequence[QuorumMessage]) -> int:
        """What the quorum says of itself; the offset of the last message."""
        self._check_leading()
        last_offset = self.log.append_control(messages, self.epoch, self._clock.now_ms())
        self._note_voters()
        self._obey()
        self._waiters.wake()
        return last_offset

    def append_kraft_version(self, level: int) -> asyncio.Future[int]:
        """Raise the level of `kraft.version`; done when it is committed. `kraft_version_problem` says whether."""
        from pessoa.quorum.upgrading import upgrade_messages

        messages = upgrade_messages(self, level)
        base_offset, committed = self.log_end_offset, asyncio.get_running_loop().create_future()
        batch = CommittedBatch(base_offset + len(messages) - 1, self.epoch, self._clock.now_ms(), [], level)
        self._check_leading()
        self._pending.append(_Pending(base_offset, batch, committed))
        self.append_control(messages)
        return committed

    def kraft_version_problem(self) -> str | None:
        """Why the level cannot be raised at this moment, if it cannot."""
        from pessoa.quorum.upgrading import upgrade_problem

        return upgrade_problem(self)

    def _check_leading(self) -> None:
        if self._failure is not None:
            raise QuorumFailed("the metadata log has failed") from self._failure
        if self._is_closed or not self.raft.is_leader:
            raise NotLeader(f"node {self.node_id} does not lead the metadata quorum")

    def resign(self, epoch: int) -> None:
        """Stop leading that epoch, if this node does."""
        if self._failure is None and not self._is_closed:
            self.raft.resign(self._clock.monotonic_ms(), epoch)
            self._obey()

    def _flush_later(self) -> None:
        if self._flushing is None and self.log.durable_end_offset < self.log_end_offset:
            self._flushing = asyncio.get_running_loop().create_task(self._flush())

    async def _flush(self) -> None:
        """Runs as long as something is not on the disk."""
        try:
            while self._failure is None and self.log.durable_end_offset < self.log_end_offset:
                await self._flusher.wait_until_durable(self.log.partition, self.log_end_offset)
                if not self._is_closed:
                    self.raft.flushed(self._clock.monotonic_ms())
                    self._obey()
                    self._mark_durable()
        except BaseException as error:
            self.fail(error)
            if not isinstance(error, DiskError):
                raise
        finally:
            self._flushing = None

    def _mark_durable(self) -> None:
        if self._is_controller and self._failure is None and self.raft.memory is Memory.WHOLE:
            self.log.mark.follow(self.log.durable_end_offset, self._clock.monotonic_ms())

    # Requests of other members.

    def handle(self, request: Message, context: Any) -> Message | Awaitable[Message]:
        """Answer one of the quorum's own requests; `context.version` is the version it came in."""
        from pessoa.quorum.serving import serve

        if self._failure is not None:
            raise QuorumFailed("the metadata log has failed") from self._failure
        try:
            return serve(self, request, context.version)
        except AssertionError as impossible:
            self.fail(impossible)
            raise

    # Doing what the machine says.

    def step(self) -> None:
        """Something went into the machine: carry out what comes of it."""
        if self._failure is None and not self._is_closed:
            self._obey()

    def _obey(self) -> None:
        if self._is_obeying:
            # A listener has come back here; the round that called it goes on with what it left.
            return
        self._is_obeying = True
        try:
            while self._carry_out() or self._deliver() or self._tell_leadership():
                pass
        except DiskError as error:
            self.fail(error)
        except BaseException as error:
            self.fail(error)
            raise
        finally:
            self._is_obeying = False
        if self._failure is None:
            self._flush_later()
            self._set_alarm()

    def _carry_out(self) -> bool:
        """Whether there was something to do."""
        raft, metadata_log, now_ms = self.raft, self.log, self._clock.now_ms()
        ready = raft.take_ready()
        if ready.persist is not None:
            self._persist(ready.persist)
        if ready.truncate_to is not None:
            metadata_log.truncate_to(ready.truncate_to, now_ms)
            self._note_voters()
            raft.appended(self._clock.monotonic_ms())
        if ready.records is not None:
            try:
                metadata_log.append_fetched(ready.records, raft.epoch, now_ms)
            except InvalidBatch as problem:
                log.warning("node %s has sent damaged records: %s", raft.leader_id, problem)
                raft.fetch_again(self._clock.monotonic_ms())
            else:
                self._note_voters()
                raft.appended(self._clock.monotonic_ms())
        if ready.opens_epoch is not None:
            self._open_epoch(ready.opens_epoch, now_ms)
        if ready.snapshot is not None and not self._is_downloading:
            self._is_downloading = True
            self._spawn(self._download(ready.snapshot))
        elif ready.snapshot is not None:
            # One file is written at a time; the download that is under way will see that its leader is gone.
            raft.fetch_again(self._clock.monotonic_ms())
        for peer, request in ready.sends:
            self._spawn(self._exchange(peer, request))
        if ready.is_empty:
            return False
        self._waiters.wake()
        return True

    def _persist(self, election: ElectionState) -> None:
        state, version = state_of(election, self.node_id, self.log.history)
        write_quorum_state(self.disk, f"{self._directory}/{QUORUM_STATE_FILE}", state, version)

    def _open_epoch(self, granting: Sequence[int], now_ms: int) -> None:
        from pessoa.quorum.opening import opening_messages

        messages = opening_messages(self.node_id, self.log.history, granting)
        self.log.append_control(messages, self.epoch, now_ms)
        self._note_voters()

    def _note_voters(self) -> None:
        voters = self.log.history.voters
        if voters is not self.raft.voters:
            self.raft.voters_changed(self._clock.monotonic_ms(), voters)

    def _deliver(self) -> bool:
        """Hand on what is committed. Whether there was something."""
        end = self.raft.high_watermark
        if self.applied_offset >= end:
            return False
        self.log.partition.update_high_watermark(end)
        while self._pending and self._pending[0].base_offset == self.applied_offset < end:
            _, batch, committed = self._pending.popleft()
            self._apply(batch)
            if not committed.done():
                committed.set_result(batch.last_offset)
        if self.applied_offset < end:
            until = self._pending[0].base_offset if self._pending else end
            for raw in self.log.committed_from(self.applied_offset):
                self._apply(decode_batch(raw))
                if self.applied_offset >= until:
                    break
        self._waiters.wake()
        return True

    def _apply(self, batch: CommittedBatch) -> None:
        self.applied_offset = batch.last_offset + 1
        for listener in self.listeners:
            listener(batch)

    def _tell_leadership(self) -> bool:
        raft = self.raft
        if self._pending and (not raft.is_leader or self._pending[0].batch.epoch != raft.epoch):
            self._fail_pending(NotLeader(f"node {self.node_id} does not lead the metadata quorum any more"))
        current = LeaderAndEpoch(raft.leader_id, raft.epoch)
        if current == self._told:
            return False
        if isinstance(raft.role, Leader) and self.applied_offset <= raft.role.progress.epoch_start_offset:
            return False
        self._told = current
        self._waiters.wake()
        for listener in self.on_leadership:
            listener(current)
        return True

    # Talking to others.

    def _spawn(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks[task] = None
        task.add_done_callback(self._on_task_done)

    def _on_task_done(self, task: asyncio.Task[None]) -> None:
        self._tasks.pop(task, None)
        if not task.cancelled() and (error := task.exception()) is not None:
            self.fail(error)

    async def _exchange(self, peer: int, request: Request) -> None:
        from pessoa.quorum.exchange import exchange

        reply = await exchange(self, peer, request)
        if self._is_closed or self._failure is not None:
            return
        now_ms = self._clock.monotonic_ms()
        if isinstance(reply, Unanswered):
            self.raft.failed(now_ms, peer, request, reply)
        else:
            self.raft.replied(now_ms, peer, request, reply)
        self._obey()
        self._waiters.wake()

    async def _download(self, snapshot: OffsetAndEpoch) -> None:
        from pessoa.quorum.exchange import download_snapshot

        try:
            is_whole = await download_snapshot(self, snapshot)
        finally:
            self._is_downloading = False
        if self._is_closed or self._failure is not None or not isinstance(self.raft.role, Follower):
            return
        now_ms = self._clock.monotonic_ms()
        if is_whole and snapshot.offset > self.high_watermark:
            reader = self.log.restart_at(snapshot, self._clock.now_ms())
            self._note_voters()
            self.applied_offset = snapshot.offset
            for listener in self.on_snapshot:
                listener(reader)
            self.raft.snapshot_loaded(now_ms)
        else:
            self.raft.fetch_again(now_ms)
        self._obey()

    def snapshot_taken(self, snapshot: OffsetAndEpoch) -> None:
        """A file for it has been written: what it makes superfluous may go. DiskError passes."""
        if not self._is_closed:
            self.log.snapshot_taken(snapshot)
            self.log.clean(self._clock.now_ms())

    def snapshot_progressed(self) -> None:
        self.raft.snapshot_progressed(self._clock.monotonic_ms())
        self._set_alarm()

    def monotonic_ms(self) -> int:
        return self._clock.monotonic_ms()

    def now_ms(self) -> int:
        return self._clock.now_ms()

    async def wait_ms(self, duration_ms: int) -> None:
        await self._clock.wait_ms(duration_ms)

    def learn_address(self, node_id: int, address: Address) -> None:
        self._addresses[node_id] = address

    async def send(self, host: str, port: int, request: Message) -> Message:
        """In the newest version that we have."""
        assert self._send is not None, "a quorum of more than one needs a way to the others"
        version = max(type(request).versions)
        return await self._send(host, port, request, version, self.settings.request_timeout_ms)

    # Waiting.

    async def wait_for_change(self, deadline_ms: int) -> bool:
        """Until something has happened; False if nothing has, up to the deadline on the monotonic clock."""
        return not self._is_closed and await self._waiters.wait(deadline_ms)

    def _set_alarm(self) -> None:
        deadline_ms = self.raft.deadline_ms
        if deadline_ms == NEVER or self._is_closed:
            return
        if self._alarm is not None:
            if self._alarm[0] <= deadline_ms:
                # It rings early enough, and is set again then.
                return
            self._alarm[1].cancel()
        self._alarm = (deadline_ms, asyncio.get_running_loop().create_task(self._ring(deadline_ms)))

    async def _ring(self, deadline_ms: int) -> None:
        await self._clock.wait_ms(max(0, deadline_ms - self._clock.monotonic_ms()))
        self._alarm = None
        if not self._is_closed and self._failure is None:
            try:
                self.raft.tick(self._clock.monotonic_ms())
            except AssertionError as impossible:
                self.fail(impossible)
                raise
            self._obey()

    # Failing.

    def _fail_pending(self, error: Exception) -> None:
        while self._pending:
            committed = self._pending.popleft().committed
            if not committed.done():
                committed.set_exception(error)
                # Whoever has given up does not have to look at it.
                committed.exception()

    def fail(self, error: BaseException) -> None:
        if self._failure is not None or isinstance(error, asyncio.CancelledError):
            return
        self._failure = error
        log.error("the metadata log in %s has failed: %s", self._directory, error)
        self._fail_pending(QuorumFailed(str(error)))
        self._waiters.wake()
        if isinstance(error, DiskError):
            failure = QuorumFailed("this node cannot go on without its metadata log, and ends")
            failure.__cause__ = error
            self.on_failure(failure)
        else:
            self.on_failure(error)
