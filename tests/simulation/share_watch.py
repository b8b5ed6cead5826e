"""The invariants of share groups, which are checked after every step of a node.

    one leader's state of a partition        offsets are covered once, from start to end; the start only grows; nothing
                                             above the high watermark is in flight; counts stay within the limit
    from one check to the next               a final record stays final, its delivery count never falls, and an acquired
                                             record is acquired by another member only after its lock has expired
    the leader that read the state last      begins with everything that was stored, and acquires no record whose final
                                             acknowledgement was confirmed
    the share coordinator's log              see `share_ledger.StoredShare`; in the end memory and a replay equal it
    the group coordinator                    members are assigned initialised partitions that exist, in equal parts

A deposed leader that does not know of the new epoch may deliver records again, in Kafka as here: the share coordinator
refuses its writes. So the third line holds for the leader of the newest epoch only.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pessoa.broker.share.led_share_partition import LoadState
from pessoa.coordinator.record_batches import StoredRecord, decode_batch
from pessoa.coordinator.runtime import LoadState as ShardState
from pessoa.coordinator.share.share_shard import ShareShard
from pessoa.log.partition_log import ReadUpTo
from pessoa.records.batch import batches
from pessoa.wire.stored.record_framing import SHARE_LOG
from tests.simulation.history import TopicPartition, Violation
from tests.simulation.share_ledger import StoredShares

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pessoa.broker.broker_coordinators import BrokerCoordinators
    from pessoa.broker.share.led_share_partition import LedSharePartition
    from pessoa.coordinator.groups.share.share_group import ShareGroup
    from pessoa.log.partition_log import PartitionLog
    from pessoa.records.batch import RecordBatch
    from pessoa.share.in_flight import Run
    from tests.simulation.node import Node
    from tests.simulation.share_ledger import ShareLedger

# No process is paused for longer; without pauses timers fire in time.
_PAUSED_MS, _BUSY_MS = 10_000, 500
_READ_BYTES = 1 << 20


@dataclass(slots=True, eq=False)
class _Seen:
    """The last observed state of one leader of a share partition."""

    start_offset: int
    runs: list[Run] = field(default_factory=list)


class ShareWatch:
    def __init__(
        self, group_id: str, ledger: ShareLedger, reached: Callable[[str, int], int], *, may_pause: bool
    ) -> None:
        """Prepare the checks of one group. `reached` returns the highest high watermark that any replica of a partition
        has had."""
        self.stored = StoredShares()
        self._group_id = group_id
        self._ledger = ledger
        self._reached = reached
        self._late_ms = _PAUSED_MS if may_pause else _BUSY_MS
        self._seen: dict[LedSharePartition, _Seen] = {}
        self._groups: dict[int, object] = {}
        # For each load of a partition's state, the stored delivery counts by offset.
        self.loads: dict[TopicPartition, list[Mapping[int, int]]] = {}
        # Offsets that were seen at the delivery limit.
        self.given_up: dict[TopicPartition, set[int]] = {}

    def __repr__(self) -> str:
        return f"<ShareWatch: {self.stored!r}>"

    def commit(self, batch: RecordBatch) -> None:
        """Apply a committed batch of `__share_group_state`."""
        for one in decode_batch(SHARE_LOG, batch):
            if isinstance(one, StoredRecord):
                self.stored.commit(one.key, one.value)

    def look(self, node: Node, coordinators: BrokerCoordinators) -> None:
        led_partitions = coordinators._share_partitions
        if led_partitions is not None:
            now_ms = node.clock.monotonic_ms()
            for led in led_partitions._led_share_partitions.values():
                if led.state is LoadState.ACTIVE:
                    self._look_at(node, led, now_ms)
        if coordinators._groups is not None:
            for shard in coordinators._groups.runtime.led_partitions():
                group = shard.shard.registry.share_groups.get(self._group_id)
                if group is not None and shard.state is ShardState.ACTIVE:
                    self._look_at_group(node, group)

    # A share partition.

    def _look_at(self, node: Node, led: LedSharePartition, now_ms: int) -> None:
        machine = led._machine
        assert machine is not None
        runs, start_offset = machine.in_flight._runs, machine.start_offset
        seen = self._seen.get(led)
        if seen is None:
            seen = self._seen[led] = _Seen(start_offset)
            self._begin(node, led)
        elif seen.runs == runs and seen.start_offset == start_offset:
            return
        partition = TopicPartition(led.partition.topic, led.key.partition)
        name = f"{partition} on {node.host} in epoch {led.leader_epoch}"
        if start_offset < seen.start_offset:
            raise Violation(f"the start offset of {name} went back from {seen.start_offset} to {start_offset}")
        self._check_runs(name, partition, start_offset, runs, now_ms)
        self._compare(name, seen.runs, runs, start_offset, now_ms)
        stored = self.stored.get(self._group_id, led.key.partition)
        if stored is not None and stored.leader_epoch == led.leader_epoch:
            self._check_acquired(name, partition, seen.runs, runs)
        seen.start_offset, seen.runs = start_offset, list(runs)

    def _begin(self, node: Node, led: LedSharePartition) -> None:
        """Check that a leader that has loaded the state has everything that was stored."""
        partition = TopicPartition(led.partition.topic, led.key.partition)
        stored = self.stored.get(self._group_id, led.key.partition)
        loads = self.loads.setdefault(partition, [])
        if stored is None or stored.leader_epoch != led.leader_epoch:
            loads.append({})
            return
        loads.append({offset: count for offset, (count, _) in stored.marks.items()})
        machine = led._machine
        assert machine is not None
        if machine.start_offset < stored.start_offset:
            raise Violation(f"{led!r} on {node.host} begins before what is stored, {stored!r}")
        states = {one: run for run in machine.in_flight.runs for one in range(run.first_offset, run.last_offset + 1)}
        for offset, (count, state) in stored.marks.items():
            run = states.get(offset)
            is_done = offset < machine.start_offset if run is None else run.state.is_terminal
            if is_done != state.is_terminal or (run is not None and run.delivery_count != count):
                raise Violation(f"{led!r} on {node.host} has {run} at {offset}, and stored is {count} {state.name}")

    def _check_runs(
        self, name: str, partition: TopicPartition, start_offset: int, runs: list[Run], now_ms: int
    ) -> None:
        position, limit = start_offset, self._ledger.delivery_limit
        for run in runs:
            if run.first_offset != position or run.last_offset < position:
                raise Violation(f"{name}: {runs} do not follow each other from {start_offset}")
            position = run.last_offset + 1
            if run.delivery_count > limit:
                raise Violation(f"{name}: {run} was delivered more often than {limit} times")
            if run.delivery_count == limit:
                self.given_up.setdefault(partition, set()).update(range(run.first_offset, run.last_offset + 1))
            if run.is_acquired and (not run.member_id or run.deadline_ms + self._late_ms < now_ms):
                raise Violation(f"{name}: {run} has no member, or its lock has ended long before {now_ms}")
        if runs and position > self._reached(partition.topic, partition.number):
            raise Violation(f"{name}: {runs[-1]} is in flight, beyond what is committed")

    def _compare(self, name: str, before: list[Run], runs: list[Run], start_offset: int, now_ms: int) -> None:
        for old, new in _pairs(before, runs, start_offset):
            if old.is_done and not new.is_done:
                raise Violation(f"{name}: {old} was done with, and is {new}")
            if new.delivery_count < old.delivery_count:
                raise Violation(f"{name}: the deliveries of {old} are forgotten in {new}")
            is_held = old.is_acquired and old.deadline_ms > now_ms
            if is_held and new.is_acquired and new.delivery_count > old.delivery_count:
                raise Violation(f"{name}: {old} is locked, and was acquired again: {new}")
            if old.transition and new.is_acquired and new.delivery_count > old.delivery_count:
                raise Violation(f"{name}: {old} is in transition, and was acquired: {new}")

    def _check_acquired(self, name: str, partition: TopicPartition, before: list[Run], runs: list[Run]) -> None:
        """Check that no record is acquired whose final acknowledgement was confirmed."""
        done = self._ledger.done(partition)
        known = {
            (offset, run.delivery_count)
            for run in before
            if run.is_acquired
            for offset in range(run.first_offset, run.last_offset + 1)
        }
        for run in runs:
            if not run.is_acquired:
                continue
            for offset in range(run.first_offset, run.last_offset + 1):
                if offset in done and (offset, run.delivery_count) not in known:
                    raise Violation(f"{name}: {run} is delivered again; {done[offset]} was answered for {offset}")

    # The group.

    def _look_at_group(self, node: Node, group: ShareGroup) -> None:
        state = (group.epoch, group.assignment_epoch, group.shares, len(group.targets), len(group.members))
        if self._groups.get(node.id) == state:
            return
        self._groups[node.id] = state
        initialised = {
            (topic_id, index) for topic_id, named in group.shares.initialised.items() for index in named.partitions
        }
        sizes = []
        for member_id, target in group.targets.items():
            assigned = {(topic_id, index) for topic_id, indexes in target.items() for index in indexes}
            sizes.append(len(assigned))
            if not assigned <= initialised:
                raise Violation(f"{member_id} shall fetch from {assigned}, and initialised are {initialised}")
        if group.assignment_epoch == group.epoch and sizes and max(sizes) - min(sizes) > 1:
            raise Violation(f"members of {group!r} have {sizes} partitions")

    # At the end.

    def check_stored(self, coordinators: BrokerCoordinators, partition: int, log: PartitionLog) -> None:
        """Check that a share coordinator without pending writes has the state of its log in memory, also if that was
        pruned."""
        assert coordinators._shares is not None
        runtime = coordinators._shares.runtime
        led = runtime.led_partition(partition)
        assert led is not None
        again = ShareShard(led.shard._config)
        offset = log.log_start_offset
        while offset < log.high_watermark:
            data = log.read(offset, _READ_BYTES, ReadUpTo.HIGH_WATERMARK).data
            assert data is not None
            for batch in batches(data.read()):
                offset = batch.last_offset + 1
                for one in decode_batch(SHARE_LOG, batch):
                    if isinstance(one, StoredRecord) and one.offset >= log.log_start_offset:
                        again.replay(one.key, one.value, one.offset, -1, -1)
        if again._states.keys() != led.shard._states.keys():
            raise Violation(f"a replay has {again._states.keys()}, and memory {led.shard._states.keys()}")
        for key, state in led.shard._states.items():
            stored = self.stored.get(key.group_id, key.partition)
            assert stored is not None
            stored.check_memory(state)
            stored.check_memory(again._states[key])


def _pairs(before: list[Run], after: list[Run], start_offset: int) -> list[tuple[Run, Run]]:
    """Return pairs of runs, before and after, that cover the same offsets."""
    pairs = []
    index = 0
    for old in before:
        if old.last_offset < start_offset:
            continue
        while index < len(after) and after[index].last_offset < old.first_offset:
            index += 1
        at = index
        while at < len(after) and after[at].first_offset <= old.last_offset:
            pairs.append((old, after[at]))
            at += 1
    return pairs
