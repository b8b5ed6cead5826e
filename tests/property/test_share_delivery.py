"""Leaders of a share partition and the share coordinator together, with faults: the promises of share groups hold.

Leaders change, and the deposed one does not always know. Requests to the coordinator are delayed, reordered,
duplicated, or lose their responses; the coordinator fails and is loaded from its log, which may be pruned. Always:

- at most one accept of a record is answered with success, and the leader that has loaded the state last never delivers
  that record again;
- no delivery count exceeds the limit;
- the stored start offset never moves back, and a deposed leader changes nothing;
- once the faults stop, the start offset passes every record.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from pessoa.coordinator.shard import CoordinatorRecord, Output
from pessoa.coordinator.share.share_config import ShareCoordinatorConfig
from pessoa.coordinator.share.share_shard import ShareShard
from pessoa.coordinator.share.share_state import ShareKey, from_wire
from pessoa.share.acknowledgement import Acknowledgement, AcknowledgeType, Limits
from pessoa.share.acquisition import AcquireRequest, FetchedBatch
from pessoa.share.share_partition import SharePartition, StateWrite
from pessoa.wire.api import initialize_share_group_state as initialize_api
from pessoa.wire.api import read_share_group_state as read_api
from pessoa.wire.api import write_share_group_state as write_api
from pessoa.wire.errors import ErrorCode
from pessoa.wire.request_context import OwnRequest
from tests.unit.coordinator.images import image, topic_id

KEY = ShareKey("g", topic_id("orders"), 0)
RECORDS = 60
LOG = [FetchedBatch(first, first + 4) for first in range(0, RECORDS, 5)]
LIMITS = Limits(delivery_count=4, record_locks=20, lock_duration_ms=100)
MEMBERS = ("a", "b")


@dataclass
class Leader:
    epoch: int
    state_epoch: int
    partition: SharePartition
    # The write that waits for its answer.
    sent: StateWrite | None = None
    # Accepted offsets by the write that decides about them.
    accepts: dict[int, set[int]] = field(default_factory=dict)

    def request(self, write: StateWrite) -> write_api.WriteShareGroupStateRequest:
        data = write_api.PartitionData(
            partition=0,
            state_epoch=self.state_epoch,
            leader_epoch=self.epoch,
            start_offset=write.start_offset,
            delivery_complete_count=write.delivery_complete_count,
            state_batches=[
                write_api.StateBatch(first_offset=first, last_offset=last, delivery_state=state, delivery_count=count)
                for first, last, state, count in write.batches
            ],
        )
        topic = write_api.WriteStateData(topic_id=KEY.topic_id, partitions=[data])
        return write_api.WriteShareGroupStateRequest(group_id=KEY.group_id, topics=[topic])


class World:
    def __init__(self, random: Random) -> None:
        self.random = random
        self.now_ms = 0
        self.config = ShareCoordinatorConfig(random.choice([0, 3, 500]))
        self.log: list[CoordinatorRecord] = []
        self.log_start = 0
        self.shard = self.load()
        self.accepted: set[int] = set()
        self.stored_start = 0
        # Writes that are still on the way, though no share-partition leader waits for them.
        self.late: list[write_api.WriteShareGroupStateRequest] = []
        data = initialize_api.PartitionData(partition=0, state_epoch=1, start_offset=0)
        topic = initialize_api.InitializeStateData(topic_id=KEY.topic_id, partitions=[data])
        request = initialize_api.InitializeShareGroupStateRequest(group_id=KEY.group_id, topics=[topic])
        self.perform(self.shard.initialize(request, OwnRequest(0), 1, self.now_ms))
        self.leaders: list[Leader] = []
        self.change_leader()

    # ── the share coordinator ──

    def load(self) -> ShareShard:
        shard = ShareShard(self.config)
        for offset in range(self.log_start, len(self.log)):
            shard.replay(self.log[offset].key, self.log[offset].value, offset, -1, -1)
        shard.on_loaded(image(orders=1), self.now_ms)
        return shard

    def perform(self, output: Output) -> Any:
        for record in output.records:
            self.log.append(record)
            self.shard.replay(record.key, record.value, len(self.log) - 1, -1, -1)
        state = self.shard.state(KEY)
        assert state is not None
        assert state.start_offset >= self.stored_start, "the stored start offset moves back"
        self.stored_start = state.start_offset
        return output.replies[0][1].results[0].partitions[0] if output.replies else None  # type: ignore[union-attr]

    def store(self, request: write_api.WriteShareGroupStateRequest) -> ErrorCode:
        before = self.shard.state(KEY)
        answer = self.perform(self.shard.write(request, OwnRequest(0), 1, self.now_ms))
        is_deposed = request.topics[0].partitions[0].leader_epoch < self.current.epoch
        assert not is_deposed or self.shard.state(KEY) == before, "a deposed leader has changed the state"
        return ErrorCode.of(answer.error_code)

    def restart_coordinator(self) -> None:
        if self.random.random() < 0.5:
            self.log_start = max(self.log_start, self.shard.prunable_offset())
        before = self.shard.state(KEY)
        self.shard = self.load()
        assert self.shard.state(KEY) == before

    def deliver_late_write(self) -> None:
        if self.late:
            self.store(self.late.pop(self.random.randrange(len(self.late))))

    # ── leaders ──

    @property
    def current(self) -> Leader:
        return self.leaders[-1]

    def change_leader(self) -> None:
        epoch = self.leaders[-1].epoch + 1 if self.leaders else 0
        data = read_api.PartitionData(partition=0, leader_epoch=epoch)
        topic = read_api.ReadStateData(topic_id=KEY.topic_id, partitions=[data])
        request = read_api.ReadShareGroupStateRequest(group_id=KEY.group_id, topics=[topic])
        answer = self.perform(self.shard.read(request, OwnRequest(0), 1, self.now_ms))
        assert answer.error_code == ErrorCode.NONE
        partition = SharePartition(answer.start_offset, from_wire(answer.state_batches), LIMITS)
        self.leaders = [*self.leaders[-1:], Leader(epoch, answer.state_epoch, partition)]

    def any_leader(self) -> Leader:
        return self.random.choice([*self.leaders, self.current])

    def acquire(self) -> None:
        leader = self.any_leader()
        offset = leader.partition.next_fetch_offset()
        batches = [batch for batch in LOG if batch.last_offset >= offset][:3]
        request = AcquireRequest(self.random.choice(MEMBERS), self.random.randint(1, 8), 5)
        for first, last, count in leader.partition.acquire(request, batches, self.now_ms):
            assert count <= LIMITS.delivery_count
            if leader is self.current:
                assert not self.accepted & set(range(first, last + 1)), "what was accepted is delivered again"

    def acknowledge(self) -> None:
        leader = self.any_leader()
        member = self.random.choice(MEMBERS)
        runs = [run for run in leader.partition.in_flight.runs if run.is_acquired and run.member_id == member]
        if not runs or leader.partition.fenced_by is not None:
            return
        run = self.random.choice(runs)
        kind = self.random.choice([AcknowledgeType.ACCEPT, AcknowledgeType.ACCEPT, AcknowledgeType.RELEASE])
        last = self.random.randint(run.first_offset, run.last_offset)
        number = leader.partition.acknowledge(member, [Acknowledgement(run.first_offset, last, [kind])], self.now_ms)
        if kind is AcknowledgeType.ACCEPT:
            assert number is not None
            leader.accepts.setdefault(number, set()).update(range(run.first_offset, last + 1))

    def send(self) -> None:
        leader = self.any_leader()
        if leader.sent is None:
            leader.sent = leader.partition.take_write()

    def answer(self) -> None:
        """Let a leader's write arrive and be answered; or arrive late or lose its response, so that the leader gives
        up."""
        leader = self.any_leader()
        if leader.sent is None:
            return
        write, leader.sent = leader.sent, None
        fault = self.random.choice(["none", "none", "none", "late", "lost answer", "twice"])
        request = leader.request(write)
        if fault == "late":
            self.late.append(request)
            error = ErrorCode.COORDINATOR_NOT_AVAILABLE
        else:
            error = self.store(request)
            if fault == "twice":
                self.late.append(request)
            if fault == "lost answer" and error is ErrorCode.NONE:
                error = ErrorCode.REQUEST_TIMED_OUT
        leader.partition.finish_write(error, self.now_ms)
        accepted = leader.accepts.pop(write.number, set())
        if error is ErrorCode.NONE:
            assert not accepted & self.accepted, "two accepts of one record succeed"
            self.accepted |= accepted

    def pass_time(self) -> None:
        self.now_ms += self.random.choice([1, 50, 100])
        for leader in self.leaders:
            leader.partition.tick(self.now_ms)

    def leave(self) -> None:
        self.any_leader().partition.release(self.random.choice(MEMBERS))

    def step(self) -> None:
        often = (self.acquire, self.acknowledge, self.send, self.answer)
        self.random.choice(
            (*often, *often, *often, self.pass_time, self.leave, self.deliver_late_write, self.restart_coordinator,
             self.change_leader)
        )()  # fmt: skip

    def finish(self) -> None:
        """Stop the faults: one leader, a coordinator that answers, members that accept everything."""
        self.late.clear()
        self.change_leader()
        leader = self.current
        for _ in range(1_000):
            if leader.partition.start_offset >= RECORDS:
                return
            self.now_ms += 10
            leader.partition.tick(self.now_ms)
            offset = leader.partition.next_fetch_offset()
            batches = [batch for batch in LOG if batch.last_offset >= offset]
            for first, last, _ in leader.partition.acquire(AcquireRequest("a", 10, 5), batches, self.now_ms):
                assert not self.accepted & set(range(first, last + 1))
                leader.partition.acknowledge("a", [Acknowledgement(first, last, [1])], self.now_ms)
            write = leader.partition.take_write()
            if write is not None:
                leader.partition.finish_write(self.store(leader.request(write)), self.now_ms)
        raise AssertionError(f"stuck: {leader}")


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 2**32))
def test_share_group_guarantees_hold_while_leaders_and_coordinators_fail(seed: int) -> None:
    world = World(Random(seed))
    for _ in range(250):
        world.step()
    world.finish()
