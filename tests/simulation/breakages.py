"""Deliberate bugs, one at a time, which show that the simulation detects them.

Each function patches the code so that it has the bug that its docstring describes; real systems have had all of them.
`broken(name)` is a context in which the code has that bug.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from unittest.mock import patch
from weakref import WeakKeyDictionary

from pessoa.broker import envelope_format
from pessoa.broker.apis import produce
from pessoa.broker.sasl_gate import SaslGate, SaslListener
from pessoa.broker.share import share_requests
from pessoa.broker.share.state_persister import StatePersister
from pessoa.coordinator.groups.streams import task_reconciliation
from pessoa.coordinator.groups.streams.streams_group import TaskOwners
from pessoa.coordinator.share.share_shard import ShareShard
from pessoa.coordinator.share.share_state import ShareState
from pessoa.coordinator.share.state_messages import WRITE, split
from pessoa.log.compaction import log_cleaner, log_to_clean
from pessoa.log.compaction.cleaning_pass import CleaningPass
from pessoa.quorum import ready_steps
from pessoa.quorum.metadata_log import MetadataLog
from pessoa.quorum.state_file import STATIC_VOTERS, render_quorum_state
from pessoa.raft.machine import Raft
from pessoa.replication.isr import UNKNOWN, InSyncReplicas
from pessoa.replication.partition import Partition
from pessoa.security.authorizer import Authorizer
from pessoa.share import share_partition
from pessoa.share.acquisition import AcquireMode
from pessoa.share.in_flight import Run
from pessoa.share.share_partition import SharePartition
from pessoa.share.share_sessions import ShareSessions
from pessoa.share.state_batches import DeliveryState
from pessoa.wire.catalogue import ApiKey
from pessoa.wire.errors import ErrorCode
from pessoa.wire.message_headers import peek_api


def _forget_the_epoch_check() -> Any:
    """A deposed leader answers fetches, and counts fetches that were meant for another leader epoch (KIP-320)."""
    return patch.object(Partition, "check_epoch", lambda self, epoch: ErrorCode.NONE)


def _count_acknowledgements_of_any_replica() -> Any:
    """The high watermark is the largest log end offset of any replica, in sync or not."""

    def high_watermark(
        self: InSyncReplicas, log_end_offset: int, own_offset: int, min_insync_replicas: int, *_: object
    ) -> int:
        if not self.has_enough(min_insync_replicas):
            return UNKNOWN
        return min(own_offset, max((one.log_end_offset for one in self.followers.values()), default=own_offset))

    return patch.object(InSyncReplicas, "high_watermark", high_watermark)


def _tell_an_end_that_is_not_known() -> Any:
    """A new leader answers ListOffsets before its high watermark has reached its epoch (KIP-207)."""
    return patch.object(Partition, "is_high_watermark_behind_epoch", False)


def _skip_the_sync_of_the_vote() -> Any:
    """A voter answers before its epoch and vote are synced."""

    def write(disk: Any, path: str, state: Any, version: int = STATIC_VOTERS) -> None:
        file = disk.open(f"{path}.tmp", create=True, pooled=False)
        file.truncate(0)
        file.append(render_quorum_state(state, version))
        file.sync()
        file.close()
        # The directory is not synced, so a power loss may restore the old file.
        disk.rename(f"{path}.tmp", path)

    return patch.object(ready_steps, "write_quorum_state", write)


def _truncate_to_the_high_watermark() -> Any:
    """A follower of a new leader truncates to its own high watermark, which lags behind the leader's (KIP-101)."""
    follow = Partition.follow

    def follow_and_truncate(self: Partition, wanted: Any) -> None:
        is_new = wanted.leader_epoch != self.leader_epoch
        follow(self, wanted)
        if is_new:
            self.truncate_to(self.log.high_watermark, self._broker.clock.now_ms())

    return patch.object(Partition, "follow", follow_and_truncate)


def _forget_the_pre_vote() -> Any:
    """A voter whose fetch timeout expires starts a new epoch without a pre-vote, which deposes a live leader
    (KIP-996)."""
    return patch.object(Raft, "_become_prospective", Raft._become_candidate)


def _clean_what_is_undecided() -> Any:
    """The cleaner works beyond the last stable offset, so that a record is removed for one that is aborted later."""

    def first_uncleanable(partition_log: Any, *_: object) -> int:
        bound = min(partition_log.high_watermark, partition_log.recovery_point)
        starts: list[int] = [segment.base_offset for segment in partition_log.segments]
        return max(start for start in starts if start <= bound)

    return patch.object(log_to_clean, "_first_uncleanable", first_uncleanable)


def _take_aborted_for_committed() -> Any:
    """The cleaner ignores that transactions were aborted, so that aborted records replace committed ones."""
    return patch.object(
        log_cleaner, "make_plan", lambda *details: replace(log_to_clean.make_plan(*details), aborted=())
    )


def _forget_the_last_of_a_producer() -> Any:
    """Compaction removes the last batch of a producer, and its sequence numbers with it."""
    return patch.object(CleaningPass, "_is_last_of_producer", lambda *_: False)


def _drop_tombstones_at_once() -> Any:
    """Tombstones are removed at once, so that a slow consumer never reads that a key was deleted (KIP-534)."""

    def without_retention(*details: Any) -> Any:
        plan = log_to_clean.make_plan(*details)
        return replace(plan, config=plan.config._replace(delete_retention_ms=0))

    return patch.object(log_cleaner, "make_plan", without_retention)


def _believe_made_up_epochs() -> Any:
    """A voter whose disk has flipped a bit in the epoch of a batch uses that epoch, and wins elections by it."""
    return patch.object(MetadataLog, "_first_damage", lambda *_: (None, False))


def _keep_what_is_damaged() -> Any:
    """A replica whose disk has flipped a bit in an epoch keeps the batch and fetches from its log end."""
    return patch.object(Partition, "resolve_impossible_epochs", lambda *_: False)


def _let_everybody_produce() -> Any:
    """Produce does not authorize topics."""
    return patch.object(produce, "denied_topics", lambda *_: frozenset())


def _let_everybody_share() -> Any:
    """ShareFetch and ShareAcknowledge do not authorize topics."""
    return patch.object(share_requests, "denied_topics", lambda *_: frozenset())


def _keep_the_first_entries() -> Any:
    """The authorizer ignores changes of ACLs while a node runs."""
    load = Authorizer.load

    def load_once(self: Authorizer, entries: Any) -> None:
        if self._entries is None:
            load(self, entries)

    return patch.object(Authorizer, "load", load_once)


def _forward_as_the_broker() -> Any:
    """A request that a broker forwards to the controller has the broker's principal instead of the client's."""
    seal = envelope_format.seal

    def seal_as_node(request: Any, version: int, client_id: str | None, _: str, client_host: str) -> Any:
        return seal(request, version, client_id, "User:node", client_host)

    return patch.object(envelope_format, "seal", seal_as_node)


def _forget_that_sessions_end() -> Any:
    """A client's session never expires (KIP-368)."""

    def begins_again(self: SaslGate, data: bytearray, start: int, end: int) -> bool:
        session, now_ms = self._session, self._settings.clock.monotonic_ms()
        if peek_api(data, start, end)[0] != ApiKey.SASL_HANDSHAKE or not session.may_begin_again(now_ms):
            return False
        session.begin_again(now_ms)
        return True

    return patch.object(SaslGate, "_begins_again", begins_again)


def _keep_old_passwords() -> Any:
    """The credentials of a user are cached at its first login and never replaced."""
    find, known = SaslListener._find_user, dict[tuple[int, str], Any]()

    def find_once(self: SaslListener, mechanism: int, name: str) -> Any:
        return known.setdefault((mechanism, name), find(self, mechanism, name))

    return patch.object(SaslListener, "_find_user", find_once)


def _let_any_leader_write() -> Any:
    """The share coordinator accepts writes of deposed share-partition leaders."""
    write = ShareShard.write

    def write_in_newest_epoch(self: ShareShard, request: Any, *details: Any) -> Any:
        for topic in request.topics:
            for one in topic.partitions:
                one.leader_epoch = 1 << 30
        return write(self, request, *details)

    return patch.object(ShareShard, "write", write_in_newest_epoch)


def _answer_before_it_is_stored() -> Any:
    """An acknowledgement is answered when it is sent to the share coordinator, before it is stored."""
    ask = StatePersister.ask

    async def ask_without_waiting(self: StatePersister, api: Any, request: Any) -> Any:
        answer = ask(self, api, request)
        if api is not WRITE:
            return await answer
        task = asyncio.get_running_loop().create_task(answer)
        task.add_done_callback(lambda _: None)
        return WRITE.join([WRITE.response(key) for key, _ in split(request)])

    return patch.object(StatePersister, "ask", ask_without_waiting)


def _acquire_in_transition() -> Any:
    """A record is acquired while its release is being stored, and the result of that write is then applied to it
    (KAFKA-18084)."""
    return patch.object(Run, "is_available", property(lambda self: self.state is DeliveryState.AVAILABLE))


def _deliver_without_limit() -> Any:
    """A record that no member can process is delivered without a limit."""
    return patch.object(share_partition, "released_state", lambda *_: DeliveryState.AVAILABLE)


def _forget_deliveries_when_a_session_closes() -> Any:
    """The delivery counts of records that a closed session releases are decremented (KAFKA-19972)."""
    release = SharePartition.release

    def release_uncounted(self: SharePartition, member_id: str) -> Any:
        self.in_flight.change_all(
            lambda run: (
                run._replace(delivery_count=run.delivery_count - 1)
                if run.is_acquired and run.member_id == member_id
                else run
            )
        )
        return release(self, member_id)

    return patch.object(SharePartition, "release", release_uncounted)


def _take_holes_for_done() -> Any:
    """A new leader takes records that lie between stored ranges for acknowledged, although they were in flight."""
    load = share_partition._load_runs

    def load_without_holes(*details: Any) -> Any:
        return [
            run._replace(state=DeliveryState.ACKNOWLEDGED) if not run.delivery_count else run for run in load(*details)
        ]

    return patch.object(share_partition, "_load_runs", load_without_holes)


def _keep_locks_for_ever() -> Any:
    """Acquisition locks do not expire, so that a silent member keeps its records."""
    return patch.object(SharePartition, "next_deadline_ms", lambda _: None)


def _share_slowly() -> Any:
    """A share partition delivers one record a second."""
    acquire = SharePartition.acquire
    next_ms: WeakKeyDictionary[SharePartition, int] = WeakKeyDictionary()

    def acquire_slowly(self: SharePartition, request: Any, batches: Any, now_ms: int) -> Any:
        if now_ms < next_ms.get(self, 0):
            return []
        next_ms[self] = now_ms + 1_000
        one = request._replace(max_records=1, batch_size=1, mode=AcquireMode.RECORD_LIMIT)
        return acquire(self, one, batches, now_ms)

    return patch.object(SharePartition, "acquire", acquire_slowly)


def _prune_to_the_newest_snapshot() -> Any:
    """The share coordinator deletes its log up to the newest snapshot, also records that other share partitions
    need."""

    def newest(self: ShareShard) -> int:
        return max((state.snapshot_offset for state in self._states.values()), default=self._end_offset)

    return patch.object(ShareShard, "prunable_offset", newest)


def _let_old_writes_win() -> Any:
    """A late write sets the start offset back to its value when the write was sent (KAFKA-19954)."""
    merge = ShareState.merge

    def merge_last(self: ShareState, update: Any) -> ShareState:
        return merge(self, update)._replace(start_offset=update.start_offset, batches=tuple(update.batches))

    return patch.object(ShareState, "merge", merge_last)


def _accept_any_session_epoch() -> Any:
    """Any share session epoch is accepted, so that a duplicated request is executed twice."""
    advance = ShareSessions._advance

    def advance_always(self: ShareSessions, key: Any, epoch: int) -> Any:
        session = self.get(key)
        return advance(self, key, epoch if session is None or epoch < 0 else session.epoch)

    return patch.object(ShareSessions, "_advance", advance_always)


def _give_tasks_before_they_are_free() -> Any:
    """The coordinator assigns an active task to a member before the previous owner has revoked it."""
    return patch.object(TaskOwners, "is_free_for_active", lambda *_: True)


def _take_tasks_for_given_up() -> Any:
    """The coordinator takes tasks for revoked as soon as it asks a member to revoke them."""
    return patch.object(task_reconciliation, "_still_has", lambda *_: False)


BREAKAGES: dict[str, Callable[[], Any]] = {
    "no epoch check": _forget_the_epoch_check,
    "acknowledgement by any replica": _count_acknowledgements_of_any_replica,
    "end told before it is known": _tell_an_end_that_is_not_known,
    "vote not synced": _skip_the_sync_of_the_vote,
    "truncate to the high watermark": _truncate_to_the_high_watermark,
    "no pre-vote": _forget_the_pre_vote,
    "cleaning past the last stable offset": _clean_what_is_undecided,
    "aborted records supersede": _take_aborted_for_committed,
    "last batch of a producer compacted": _forget_the_last_of_a_producer,
    "tombstones dropped at once": _drop_tombstones_at_once,
    "made-up epochs believed": _believe_made_up_epochs,
    "damaged batches kept": _keep_what_is_damaged,
    "no authorizer in produce": _let_everybody_produce,
    "no authorizer in share fetch": _let_everybody_share,
    "first entries kept": _keep_the_first_entries,
    "forwarded as the broker": _forward_as_the_broker,
    "sessions without end": _forget_that_sessions_end,
    "old passwords kept": _keep_old_passwords,
    "writes of deposed share leaders": _let_any_leader_write,
    "acknowledged before it is stored": _answer_before_it_is_stored,
    "acquired in transition": _acquire_in_transition,
    "delivered without limit": _deliver_without_limit,
    "deliveries forgotten": _forget_deliveries_when_a_session_closes,
    "holes taken for done": _take_holes_for_done,
    "locks without end": _keep_locks_for_ever,
    "one record a second": _share_slowly,
    "pruned to the newest snapshot": _prune_to_the_newest_snapshot,
    "start offset taken back": _let_old_writes_win,
    "any session epoch": _accept_any_session_epoch,
    "tasks given before they are free": _give_tasks_before_they_are_free,
    "tasks taken for given up": _take_tasks_for_given_up,
}


@contextmanager
def broken(name: str) -> Iterator[None]:
    with BREAKAGES[name]():
        yield
