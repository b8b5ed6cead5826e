"""The share partitions of one partition of `__share_group_state`: a pure shard (see `coordinator.shard`).

    request       refused if                                              written
    Initialize    the state epoch is older than the known one             a snapshot without batches, leader epoch 0
    Read          not initialised; the leader epoch is older              an update, if it raises the leader epoch
    Write         not initialised; one of the epochs is older             an update; after 500 of them a snapshot
    Summary       -                                                       -
    Delete        -                                                       a tombstone, if there is something

A read is what makes a leader the one that may write: from then on a write of an older leader is fenced. Hence
a read that writes nothing is confirmed by the replicas: a coordinator that was deposed without hearing of it would give
away an old state, and records that were acknowledged since would be delivered again.

Every request here is about one share partition, `share_coordinator` has cut it out. Errors are part of the response, as
clients of these APIs expect them.

**The log** is not compacted. Everything before the last snapshot of every share partition can be deleted
(`prunable_offset`). One share partition that nothing is written to would hold that back for all, so the *cold* ones
get a new snapshot from time to time, unless all of them are cold.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from pessoa.coordinator.shard import CoordinatorRecord, Delta, Image, Output
from pessoa.coordinator.share.share_config import ShareCoordinatorConfig
from pessoa.coordinator.share.share_state import (
    NO_COUNT,
    NO_OFFSET,
    ShareKey,
    ShareState,
    Update,
    WireBatch,
    from_wire,
    snapshot_record,
    state_of,
    tombstone,
    update_of,
    update_record,
)
from pessoa.coordinator.share.state_messages import DELETE, INITIALIZE, READ, SUMMARY, WRITE, StateApi, StateRequest
from pessoa.coordinator.timers import Timers
from pessoa.share.state_batches import StateBatch
from pessoa.wire.api.delete_share_group_state import DeleteShareGroupStateRequest
from pessoa.wire.api.initialize_share_group_state import InitializeShareGroupStateRequest
from pessoa.wire.api.read_share_group_state import ReadShareGroupStateRequest
from pessoa.wire.api.read_share_group_state import StateBatch as ReadStateBatch
from pessoa.wire.api.read_share_group_state_summary import ReadShareGroupStateSummaryRequest
from pessoa.wire.api.write_share_group_state import WriteShareGroupStateRequest
from pessoa.wire.errors import ErrorCode, Refusal
from pessoa.wire.request_context import Caller
from pessoa.wire.schema import Message
from pessoa.wire.stored.share_state_records import (
    ShareSnapshotKey,
    ShareSnapshotValue,
    ShareUpdateKey,
    ShareUpdateValue,
)

_COLD = "cold"


class ShareShard:
    def __init__(self, config: ShareCoordinatorConfig) -> None:
        self._config = config
        self._states: dict[ShareKey, ShareState] = {}
        self._image: Image | None = None
        self._timers = Timers()
        # Behind the last record that was replayed.
        self._end_offset = 0

    def __repr__(self) -> str:
        return f"<ShareShard: {len(self._states)} share partitions>"

    def state(self, key: ShareKey) -> ShareState | None:
        return self._states.get(key)

    def prunable_offset(self) -> int:
        """Return the offset of the earliest of the last snapshots: no record below it is needed once every record that
        was replayed is committed."""
        return min((state.snapshot_offset for state in self._states.values()), default=self._end_offset)

    # ── requests ──

    def initialize(self, request: InitializeShareGroupStateRequest, context: Caller, token: int, now_ms: int) -> Output:
        def decide(key: ShareKey) -> Output:
            asked = request.topics[0].partitions[0]
            known = self._states.get(key)
            if known is not None and asked.state_epoch < known.state_epoch:
                raise Refusal(ErrorCode.FENCED_STATE_EPOCH)
            if known is not None and asked.state_epoch == known.state_epoch and asked.start_offset == NO_OFFSET:
                # A group coordinator that had heard nothing asks again. The group may have begun since.
                return Output.reply(token, INITIALIZE.response(key))
            state = ShareState(
                0 if known is None else known.snapshot_epoch + 1,
                asked.state_epoch,
                0,
                asked.start_offset,
                NO_COUNT if asked.start_offset == NO_OFFSET else 0,
                now_ms if known is None else known.create_ms,
                now_ms,
            )
            return Output([snapshot_record(key, state)], [(token, INITIALIZE.response(key))])

        return self._decide(INITIALIZE, request, token, decide)

    def read(self, request: ReadShareGroupStateRequest, context: Caller, token: int, now_ms: int) -> Output:
        def decide(key: ShareKey) -> Output:
            leader_epoch = request.topics[0].partitions[0].leader_epoch
            state = self._initialised_state(key, "Read")
            if leader_epoch < state.leader_epoch:
                raise Refusal(ErrorCode.FENCED_LEADER_EPOCH)
            response = READ.response(
                key,
                state_epoch=state.state_epoch,
                start_offset=state.start_offset,
                state_batches=[
                    ReadStateBatch(
                        first_offset=first, last_offset=last, delivery_state=delivery_state, delivery_count=count
                    )
                    for first, last, delivery_state, count in state.batches
                ],
            )
            if leader_epoch == state.leader_epoch:
                return Output(replies=[(token, response)], is_confirmed=True)
            update = Update(leader_epoch, state.start_offset, state.delivery_complete_count, [])
            return Output([self._record(key, state, update, now_ms)], [(token, response)])

        return self._decide(READ, request, token, decide)

    def write(self, request: WriteShareGroupStateRequest, context: Caller, token: int, now_ms: int) -> Output:
        def decide(key: ShareKey) -> Output:
            asked = request.topics[0].partitions[0]
            state = self._initialised_state(key, "Write")
            if asked.leader_epoch < state.leader_epoch:
                raise Refusal(ErrorCode.FENCED_LEADER_EPOCH)
            if asked.state_epoch < state.state_epoch:
                raise Refusal(ErrorCode.FENCED_STATE_EPOCH)
            # Only a read makes a leader the one that writes: the leader epoch stays as it is.
            update = Update(
                state.leader_epoch,
                asked.start_offset,
                asked.delivery_complete_count,
                _checked_batches(asked.state_batches),
            )
            return Output([self._record(key, state, update, now_ms)], [(token, WRITE.response(key))])

        return self._decide(WRITE, request, token, decide)

    def summarize(self, request: ReadShareGroupStateSummaryRequest, context: Caller, token: int, now_ms: int) -> Output:
        def decide(key: ShareKey) -> Output:
            state = self._states.get(key)
            if state is None:
                return Output.reply(token, SUMMARY.response(key, start_offset=NO_OFFSET))
            response = SUMMARY.response(
                key,
                state_epoch=state.state_epoch,
                leader_epoch=state.leader_epoch,
                start_offset=state.start_offset,
                delivery_complete_count=state.delivery_complete_count,
            )
            return Output.reply(token, response)

        return self._decide(SUMMARY, request, token, decide)

    def delete(self, request: DeleteShareGroupStateRequest, context: Caller, token: int, now_ms: int) -> Output:
        def decide(key: ShareKey) -> Output:
            records = [tombstone(key)] if key in self._states else []
            return Output(records, [(token, DELETE.response(key))])

        return self._decide(DELETE, request, token, decide)

    def _decide(
        self, api: StateApi[Any], request: StateRequest, token: int, decide: Callable[[ShareKey], Output]
    ) -> Output:
        (topic,) = request.topics
        (partition,) = topic.partitions
        key = ShareKey(request.group_id, topic.topic_id, partition.partition)
        try:
            if api is READ or api is WRITE:
                self._initialised_state(key, "Read" if api is READ else "Write")
            self._check(key)
            return decide(key)
        except Refusal as refusal:
            return Output.reply(token, api.error(key, refusal.code, refusal.message))

    def _check(self, key: ShareKey) -> None:
        if key.partition < 0:
            raise Refusal(ErrorCode.INVALID_REQUEST, "The partition id cannot be a negative number.")
        topic = None if self._image is None else self._image.topics.by_id.get(key.topic_id)
        if topic is None or key.partition not in topic.partitions:
            raise Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    def _initialised_state(self, key: ShareKey, operation: str) -> ShareState:
        state = self._states.get(key)
        if state is None:
            raise Refusal(ErrorCode.INVALID_REQUEST, f"{operation} operation on uninitialized share partition.")
        return state

    # ── records ──

    def _record(self, key: ShareKey, state: ShareState, update: Update, now_ms: int) -> CoordinatorRecord:
        """Return the record of the update; if a snapshot is due, a snapshot record that includes it."""
        if state.update_count < self._config.share_coordinator_snapshot_update_records_per_snapshot:
            return update_record(key, state.snapshot_epoch, update)
        return snapshot_record(key, _next_snapshot(state.merge(update), now_ms))

    def replay(self, key: Message, value: Message | None, offset: int, producer_id: int, producer_epoch: int) -> None:
        self._end_offset = offset + 1
        if isinstance(key, ShareSnapshotKey):
            share_key = ShareKey(key.group_id, key.topic_id, key.partition)
            if value is None:
                self._states.pop(share_key, None)
                return
            assert isinstance(value, ShareSnapshotValue), f"no value of a snapshot: {value}"
            self._states[share_key] = state_of(value, offset)
            return
        assert isinstance(key, ShareUpdateKey), f"no key of this log: {key}"
        share_key = ShareKey(key.group_id, key.topic_id, key.partition)
        state = self._states.get(share_key)
        # Without a snapshot it is left from a share partition whose tombstone follows: pruning took the beginning.
        if state is not None and value is not None:
            assert isinstance(value, ShareUpdateValue), f"no value of an update: {value}"
            self._states[share_key] = state.merge(update_of(value))._replace(update_count=state.update_count + 1)

    def replay_end_transaction(self, producer_id: int, producer_epoch: int, committed: bool) -> None:
        raise AssertionError("no transaction writes to the log of share groups")

    # ── time ──

    def next_deadline_ms(self) -> int | None:
        return self._timers.next_deadline_ms()

    def expire(self, now_ms: int) -> Output:
        action = self._timers.pop_due(now_ms)
        return Output() if action is None else action(now_ms)

    def shift_deadlines(self, by_ms: int) -> None:
        self._timers.shift(by_ms)

    def _schedule_cold_snapshots(self, now_ms: int) -> None:
        interval_ms = self._config.share_coordinator_cold_partition_snapshot_interval_ms
        self._timers.schedule(_COLD, now_ms + interval_ms, self._snapshot_cold)

    def _snapshot_cold(self, now_ms: int) -> Output:
        self._schedule_cold_snapshots(now_ms)
        limit_ms = now_ms - self._config.share_coordinator_cold_partition_snapshot_interval_ms
        cold = [(key, state) for key, state in self._states.items() if state.write_ms <= limit_ms]
        if len(cold) == len(self._states):
            return Output()
        return Output([snapshot_record(key, _next_snapshot(state, now_ms)) for key, state in cold], is_atomic=False)

    # ── what the runtime calls: loaded, new image ──

    def on_loaded(self, image: Image, now_ms: int) -> Output:
        self._image = image
        self._schedule_cold_snapshots(now_ms)
        return Output()

    def on_image(self, image: Image, delta: Delta, now_ms: int) -> Output:
        self._image = image
        deleted = delta.deleted_topics
        gone = [key for key in self._states if key.topic_id in deleted] if deleted else []
        return Output([tombstone(key) for key in gone], is_atomic=False)


def _next_snapshot(state: ShareState, now_ms: int) -> ShareState:
    return state._replace(snapshot_epoch=state.snapshot_epoch + 1, write_ms=now_ms)


def _checked_batches(asked: Sequence[WireBatch]) -> list[StateBatch]:
    """Return the state batches of a write. Raises INVALID_REQUEST if they are not valid."""
    try:
        batches = from_wire(asked)
    except ValueError as error:
        raise Refusal(ErrorCode.INVALID_REQUEST, str(error)) from None
    if any(not 0 <= batch.first_offset <= batch.last_offset for batch in batches):
        raise Refusal(ErrorCode.INVALID_REQUEST, "A state batch has no offsets.")
    return batches
