"""Committed offsets, compared with a simple model: a list of all records, which is read from the beginning each time.

The shard keeps tables; the model has only the log. Both get the same commits, transactions, markers and deletions, and
must agree on every offset, on unstable offsets, and after a reload.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from pessoa.wire.api.delete_groups import DeleteGroupsRequest
from pessoa.wire.api.offset_fetch import OffsetFetchRequestGroup, OffsetFetchRequestTopics
from pessoa.wire.errors import ErrorCode
from tests.unit.coordinator.groups.bench import Bench
from tests.unit.coordinator.groups.test_offsets import OffsetClient

GROUPS = ("g1", "g2")
PARTITIONS = (0, 1, 2)
PRODUCERS = (11, 12)


@dataclass
class Model:
    """The model's log: ("commit" | "pending", place, producer, offset), ("delete", place), ("end", producer, how)."""

    log: list[tuple[object, ...]] = field(default_factory=list)

    def read(self) -> tuple[dict[tuple[str, int], int], set[tuple[str, int]]]:
        """Return offsets by (group, partition), and the keys that have pending transactional offsets."""
        offsets: dict[tuple[str, int], tuple[int, int]] = {}
        pending: dict[object, dict[tuple[str, int], tuple[int, int]]] = {}
        for position, (kind, *details) in enumerate(self.log):
            if kind == "commit":
                place, offset = details
                offsets[place] = (position, offset)  # type: ignore[index, assignment]
            elif kind == "pending":
                place, producer, offset = details
                pending.setdefault(producer, {})[place] = (position, offset)  # type: ignore[index, assignment]
            elif kind == "delete":
                (place,) = details
                offsets.pop(place, None)  # type: ignore[call-overload]
                for places in pending.values():
                    places.pop(place, None)  # type: ignore[call-overload]
            else:
                producer, committed = details
                for place, entry in pending.pop(producer, {}).items():
                    if committed and (place not in offsets or offsets[place][0] < entry[0]):
                        offsets[place] = entry
        unstable = {place for places in pending.values() for place in places}
        return {place: offset for place, (_, offset) in offsets.items()}, unstable


class OffsetsMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.bench = Bench()
        self.clients = {name: OffsetClient(self.bench, name) for name in GROUPS}
        self.model = Model()
        # Markers are no records of the shard's own, so a reload is told of them apart.
        self.markers: list[tuple[int, int, bool]] = []

    groups = st.sampled_from(GROUPS)
    partitions = st.sampled_from(PARTITIONS)
    producers = st.sampled_from(PRODUCERS)
    offsets = st.integers(0, 1_000)

    @rule(group=groups, partition=partitions, offset=offsets)
    def commit(self, group: str, partition: int, offset: int) -> None:
        self.clients[group].commit(offset, partition=partition)
        self.model.log.append(("commit", (group, partition), offset))

    @rule(group=groups, partition=partitions, producer=producers, offset=offsets)
    def commit_in_transaction(self, group: str, partition: int, producer: int, offset: int) -> None:
        self.clients[group].commit_in_transaction(offset, partition=partition, producer=producer)
        self.model.log.append(("pending", (group, partition), producer, offset))

    @rule(producer=producers, committed=st.booleans())
    def end_transaction(self, producer: int, committed: bool) -> None:
        self.bench.end_transaction(producer, committed)
        self.markers.append((self.bench.end_offset, producer, committed))
        self.model.log.append(("end", producer, committed))

    @rule(group=groups, partition=partitions)
    def delete(self, group: str, partition: int) -> None:
        if group in self.bench.shard.registry.groups:
            self.bench.send(self.clients[group].delete(partition))
            self.model.log.append(("delete", (group, partition)))

    @rule(group=groups)
    def delete_group(self, group: str) -> None:
        if group in self.bench.shard.registry.groups:
            self.bench.send(DeleteGroupsRequest(groups_names=[group]))
            self.model.log += (("delete", (group, partition)) for partition in PARTITIONS)

    @rule()
    def reload(self) -> None:
        self.bench.reload(self.markers)

    @invariant()
    def agrees_with_the_model(self) -> None:
        offsets, unstable = self.model.read()
        for group in GROUPS:
            known = group in self.bench.shard.registry.groups
            for require_stable in (False, True):
                wanted = OffsetFetchRequestTopics(name="orders", partition_indexes=list(PARTITIONS))
                request = OffsetFetchRequestGroup(group_id=group, topics=[wanted])
                answered = self.bench.shard.offsets.fetch(request, require_stable).topics[0].partitions
                for partition in PARTITIONS:
                    place = (group, partition)
                    if require_stable and place in unstable:
                        assert answered[partition].error_code == ErrorCode.UNSTABLE_OFFSET_COMMIT
                    else:
                        assert answered[partition].committed_offset == (offsets.get(place, -1) if known else -1)


TestOffsets = OffsetsMachine.TestCase
