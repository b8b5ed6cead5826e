"""The metadata quorum on a node: the raft machine with a log, a clock and peers.

    append ──▶ log ──▶ fsync, and the followers' fsyncs ──▶ committed: listeners, in order ──▶ the future has the offset

Every event goes to the machine, and then `_carry_out_ready` does what it says:

    events       requests (`quorum_requests`), responses (`ready_steps`), timers (`alarm`), syncs (`log_sync`), appends
    ready        `ready_steps` carries it out in its order: epoch and vote are on the disk before a message leaves
    committed    the high watermark has moved: batches go to the listeners, and `uncommitted_appends` are answered
    leadership   the leader has changed: `on_leadership` is called. On a new leader, when it has applied all records of
                 earlier epochs: its own LeaderChange record is committed then, and with it all that is older

A leader counts towards the majority when its disk has the records, as a follower does; so its sync runs while followers
fetch. A quorum of one voter has a leader, and its listeners have every batch, when `start` returns.

A disk error fails the quorum, since it is unknown what is on that disk. So does a failed `assert`. Waiting appends then
raise `QuorumFailed`, and `on_failure` is called once, so that the process ends and is started again: a voter that
stayed would be counted on, and do nothing. Appends that wait when the node stops leading raise `NotLeader`: the next
leader may commit them all the same.

A node that is no voter is an observer: it fetches as followers do, and does not count towards a majority.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from pessoa.base.entropy import below
from pessoa.log.files import DiskError
from pessoa.log.flusher import Flusher
from pessoa.quorum.alarm import Alarm
from pessoa.quorum.batches import MetadataBatch, VersionedRecord
from pessoa.quorum.committed_delivery import CommittedDelivery
from pessoa.quorum.log_sync import LogSync
from pessoa.quorum.metadata_log import METADATA_DIRECTORY, MetadataLog
from pessoa.quorum.peer_addresses import PeerAddresses
from pessoa.quorum.quorum_settings import DEFAULT_SETTINGS, QuorumNode, QuorumSettings, Send
from pessoa.quorum.ready_steps import ReadySteps
from pessoa.quorum.state_file import QUORUM_STATE_FILE, election_of, read_quorum_state
from pessoa.quorum.uncommitted_appends import NotLeader, QuorumFailed, UncommittedAppends
from pessoa.quorum.voter_memory import memory_of
from pessoa.quorum.waiting import Waiters
from pessoa.raft.machine import Raft
from pessoa.raft.messages import ReplicaKey
from pessoa.raft.roles import NEVER, Resigned

if TYPE_CHECKING:
    from pessoa.base.clock import Clock
    from pessoa.base.entropy import Entropy
    from pessoa.log.files import Disk
    from pessoa.raft.messages import OffsetAndEpoch
    from pessoa.raft.voters import Address, VoterSet
    from pessoa.records.control_records import QuorumMessage
    from pessoa.wire.schema import Message

log = logging.getLogger("pessoa.quorum")

R = TypeVar("R", bound="Message")

# How long a leader that stops waits until the other voters have its EndQuorumEpoch.
_RESIGN_MS = 1_000


class RaftQuorum:
    """One member of the metadata quorum. `start` it, then `append` while it leads. Listeners have seen exactly the
    batches below `applied_offset`."""

    def __init__(
        self,
        disk: Disk,
        directory: str,
        node: QuorumNode,
        voters: VoterSet,
        clock: Clock,
        entropy: Entropy,
        flusher: Flusher | None = None,
        send: Send | None = None,
        settings: QuorumSettings = DEFAULT_SETTINGS,
        bootstrap_servers: Sequence[tuple[str, int]] = (),
    ) -> None:
        """`directory` is the metadata log directory; the log is in a folder of it. `voters` are those of the
        configuration, none where they stand in the log. Only a quorum of one does without `send`."""
        self.node = node
        self.settings = settings
        self.on_failure: Callable[[BaseException], None] = lambda _: None
        self.disk = disk
        self.is_closed = False
        self.failure: BaseException | None = None
        self._directory = f"{directory}/{METADATA_DIRECTORY}"
        self._static_voters = voters
        self._clock = clock
        self._random_below = partial(below, entropy)
        self._send = send
        self._addresses = PeerAddresses(bootstrap_servers)
        self._uncommitted = UncommittedAppends()
        self._delivery = CommittedDelivery(self._uncommitted)
        # Called with every committed batch, in order, and with a snapshot that takes the place of all before it.
        self.listeners = self._delivery.listeners
        self.on_snapshot = self._delivery.on_snapshot
        self.on_leadership = self._delivery.on_leadership
        self.on_commit = self._delivery.on_commit
        self._sync = LogSync(self, flusher if flusher is not None else Flusher())
        self._alarm = Alarm(clock, self._tick)
        self._steps = ReadySteps(self)
        # Exchanges under way, in the order in which they began.
        self._tasks: dict[asyncio.Task[None], None] = {}
        self._waiters = Waiters(clock)
        self._is_carrying_out = False
        self._log: MetadataLog | None = None
        self._raft: Raft | None = None

    def __repr__(self) -> str:
        return f"<RaftQuorum of node {self.node_id}: {self._raft!r}>"

    # What others may know.

    @property
    def node_id(self) -> int:
        return self.node.node_id

    @property
    def cluster_id(self) -> str:
        return self.node.cluster_id

    @property
    def is_working(self) -> bool:
        return self.failure is None and not self.is_closed

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
        """The offset that the next record will get."""
        return self.log.log_end_offset

    @property
    def applied_offset(self) -> int:
        return self._delivery.applied_offset

    @property
    def high_watermark(self) -> int:
        return self.raft.high_watermark

    def endpoint_of(self, node_id: int) -> tuple[str, int] | None:
        """Return the controller listener of a member; None if it is unknown."""
        if node_id == self.node_id and self.node.listeners:
            return next(iter(self.node.listeners.values()))
        return self._addresses.of(node_id, self.raft.voters)

    def learn_address(self, node_id: int, address: Address) -> None:
        self._addresses.learn(node_id, address)

    # Starting and stopping.

    async def start(self) -> None:
        """Open the log and join the quorum. Raises DiskError, CorruptQuorumState and CorruptMetadataLog."""
        now_ms = self._clock.monotonic_ms()
        stored = read_quorum_state(self.disk, f"{self._directory}/{QUORUM_STATE_FILE}")
        election = None if stored is None else election_of(stored)
        latest_epoch = None if election is None else election.epoch
        self._log = MetadataLog(
            self.disk, self._directory, self.settings, self._static_voters, self._clock.now_ms(), latest_epoch
        )
        key = ReplicaKey(self.node_id, self.node.directory_id)
        memory = memory_of(self.log, key, latest_epoch, self._clock.now_ms())
        self._raft = Raft(
            key,
            self.log.history.voters,
            self.log,
            self.settings.timeouts,
            self._random_below,
            self._addresses.bootstrap_ids,
            can_vote=self.node.is_controller,
            memory=memory,
        )
        self._load_latest_snapshot()
        self._raft.start(now_ms, election)
        self._carry_out_ready()
        if self._raft.is_leader:
            # No request is served yet, so none waits for this sync.
            self.log.partition.flush()
            self._raft.flushed(now_ms)
            self._carry_out_ready()
        if self.node.is_controller and self.node.listeners:
            self.spawn(self._keep_membership())

    async def _keep_membership(self) -> None:
        from pessoa.quorum.voter_membership import keep_membership

        await keep_membership(self)

    def _load_latest_snapshot(self) -> None:
        latest = self.log.latest_snapshot
        if latest is not None and latest.offset > 0:
            self._delivery.load_snapshot(self.log.read_snapshot(latest))
            self.raft.high_watermark = latest.offset
            self.log.partition.update_high_watermark(latest.offset)

    async def close(self) -> None:
        """Resign if another voter can lead, wait for the sync that is under way, and close the log."""
        await self._sync.finish()
        if self._raft is not None and self.failure is None and self._raft.voters.ids != (self.node_id,):
            self._raft.resign(self._clock.monotonic_ms(), self._raft.epoch)
            self._carry_out_ready()
            await self._wait_until_resigned()
        self._stop()
        await self._sync.finish()
        if self._log is not None and self.failure is None:
            if self._raft is not None:
                self._sync.write_durable_offset_on_shutdown()
            self._log.close()

    def abandon(self) -> None:
        """Stop as a killed process does: nothing more is sent or written."""
        self._stop()
        self._sync.cancel()
        if self._log is not None:
            self._log.partition.release()

    def _stop(self) -> None:
        self.is_closed = True
        self._alarm.cancel()
        for task in list(self._tasks):
            task.cancel()
        self._uncommitted.fail(NotLeader(f"node {self.node_id} has left the metadata quorum"))
        self.wake()

    async def _wait_until_resigned(self) -> None:
        deadline_ms = self._clock.monotonic_ms() + _RESIGN_MS
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
        batch = MetadataBatch(last_offset, self.epoch, now_ms, [record for record, _ in records], size=size)
        committed = self._uncommitted.add(base_offset, batch)
        self._sync.maybe_begin()
        self.wake()
        return committed

    def append_control(self, messages: Sequence[QuorumMessage]) -> int:
        """Append control records (LeaderChange, KRaftVersion, Voters); return the offset of the last one."""
        self._check_leading()
        last_offset = self.log.append_control(messages, self.epoch, self._clock.now_ms())
        self.note_voters()
        self._carry_out_ready()
        self.wake()
        return last_offset

    def append_kraft_version(self, level: int) -> asyncio.Future[int]:
        """Raise the level of `kraft.version`; done when it is committed. Call it if `kraft_version_problem` is None."""
        from pessoa.quorum.upgrading import upgrade_messages

        messages = upgrade_messages(self, level)
        base_offset = self.log_end_offset
        batch = MetadataBatch(base_offset + len(messages) - 1, self.epoch, self._clock.now_ms(), [], level)
        self._check_leading()
        committed = self._uncommitted.add(base_offset, batch)
        self.append_control(messages)
        return committed

    def kraft_version_problem(self) -> str | None:
        """Return why kraft.version cannot be raised at this moment; None if it can."""
        from pessoa.quorum.upgrading import upgrade_problem

        return upgrade_problem(self)

    def _check_leading(self) -> None:
        if self.failure is not None:
            raise QuorumFailed("the metadata log has failed") from self.failure
        if self.is_closed or not self.raft.is_leader:
            raise NotLeader(f"node {self.node_id} does not lead the metadata quorum")

    def resign(self, epoch: int) -> None:
        """Stop leading that epoch, if this node does."""
        if self.is_working:
            self.raft.resign(self._clock.monotonic_ms(), epoch)
            self._carry_out_ready()

    # Requests of other members.

    def handle(
        self, serve: Callable[[RaftQuorum, R, int], Message | Awaitable[Message]], request: R, version: int
    ) -> Message | Awaitable[Message]:
        """Answer one of the quorum's own requests with `serve`; `version` is the version it came in."""
        if self.failure is not None:
            raise QuorumFailed("the metadata log has failed") from self.failure
        try:
            return serve(self, request, version)
        except AssertionError as impossible:
            self.fail(impossible)
            raise

    # Doing what the machine says.

    def step(self) -> None:
        """Carry out `Ready` after an input to the machine."""
        if self.is_working:
            self._carry_out_ready()

    def _carry_out_ready(self) -> None:
        if self._is_carrying_out:
            # Called by a listener: the round that called the listener goes on with what is left.
            return
        self._is_carrying_out = True
        try:
            while self._steps.carry_out() or self._deliver() or self._announce_leadership():
                self.wake()
        except DiskError as error:
            self.fail(error)
        except BaseException as error:
            self.fail(error)
            raise
        finally:
            self._is_carrying_out = False
        if self.failure is None:
            self._sync.maybe_begin()
            self._set_alarm()

    def _deliver(self) -> bool:
        return self._delivery.deliver(self.log, self.raft.high_watermark)

    def _announce_leadership(self) -> bool:
        raft = self.raft
        if self._uncommitted and not (raft.is_leader and self._uncommitted.are_of_epoch(raft.epoch)):
            self._uncommitted.fail(NotLeader(f"node {self.node_id} does not lead the metadata quorum any more"))
        return self._delivery.announce_leadership(raft)

    def note_voters(self) -> None:
        """Give the machine the voters of the log, if they have changed."""
        voters = self.log.history.voters
        if voters is not self.raft.voters:
            self.raft.voters_changed(self._clock.monotonic_ms(), voters)

    # Requests to other members.

    def spawn(self, work: Coroutine[None, None, None]) -> None:
        """Run a coroutine until it ends or the quorum is closed. An exception fails the quorum."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks[task] = None
        task.add_done_callback(self._on_task_done)

    def _on_task_done(self, task: asyncio.Task[None]) -> None:
        self._tasks.pop(task, None)
        if not task.cancelled() and (error := task.exception()) is not None:
            self.fail(error)

    async def send(self, host: str, port: int, request: Message) -> Message:
        """Send a request in the newest version that this node knows; return the response."""
        assert self._send is not None, "a quorum of more than one needs a way to the others"
        version = max(type(request).versions)
        return await self._send(host, port, request, version, self.settings.request_timeout_ms)

    # Snapshots.

    def restart_at(self, snapshot: OffsetAndEpoch) -> None:
        """Replace the log by a snapshot that has been downloaded, and give it to the listeners."""
        reader = self.log.restart_at(snapshot, self._clock.now_ms())
        self.note_voters()
        self._delivery.load_snapshot(reader)

    def snapshot_taken(self, snapshot: OffsetAndEpoch) -> None:
        """Add a snapshot whose file was written, and delete what it makes superfluous. Raises DiskError."""
        if not self.is_closed:
            self.log.snapshot_taken(snapshot)
            self.log.clean(self._clock.now_ms())

    def snapshot_progressed(self) -> None:
        self.raft.snapshot_progressed(self._clock.monotonic_ms())
        self._set_alarm()

    # Time.

    def monotonic_ms(self) -> int:
        return self._clock.monotonic_ms()

    def now_ms(self) -> int:
        return self._clock.now_ms()

    async def wait_ms(self, duration_ms: int) -> None:
        await self._clock.wait_ms(duration_ms)

    async def wait_for_change(self, deadline_ms: int) -> bool:
        """Wait until `wake` is called. Return False if it is not called before the deadline on the monotonic clock."""
        return not self.is_closed and await self._waiters.wait(deadline_ms)

    def wake(self) -> None:
        """Wake every coroutine that waits in `wait_for_change`."""
        self._waiters.wake()

    def _set_alarm(self) -> None:
        deadline_ms = self.raft.deadline_ms
        if deadline_ms != NEVER and not self.is_closed:
            self._alarm.set(deadline_ms)

    def _tick(self) -> None:
        if self.is_working:
            try:
                self.raft.tick(self._clock.monotonic_ms())
            except AssertionError as impossible:
                self.fail(impossible)
                raise
            self._carry_out_ready()

    # Failing.

    def fail(self, error: BaseException) -> None:
        if self.failure is not None or isinstance(error, asyncio.CancelledError):
            return
        self.failure = error
        log.error("the metadata log in %s has failed: %s", self._directory, error)
        self._uncommitted.fail(QuorumFailed(str(error)))
        self.wake()
        if isinstance(error, DiskError):
            failure = QuorumFailed("this node cannot go on without its metadata log, and ends")
            failure.__cause__ = error
            self.on_failure(failure)
        else:
            self.on_failure(error)
