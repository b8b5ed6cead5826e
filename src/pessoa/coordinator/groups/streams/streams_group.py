"""A streams group of KIP-1071: its topology, its members, and the tasks that they have and shall have.

A Kafka Streams application is a topology of subtopologies. A task is one subtopology on one partition number of its
source topics, written `<subtopology>_<partition>`. A member (a thread of the application) has tasks in three roles:
active ones process, standby ones keep a copy of the state, warm-up ones build such a copy up.

The epochs turn as in a consumer group (`consumer.consumer_group`): the group epoch rises when something changed that
assignments depend on, the assignment epoch follows it, and members follow that.

    Empty: no members   NotReady: topics are missing or do not fit   Assigning: group epoch > assignment epoch
    Reconciling: some member is behind   Stable: none is

Everything here is stored, and changes by replay alone (`streams_replay`), except what stands under "soft".

Invariants: an active task is with one member at most; a process (several members of one program) has a task in one
role at most. Both hold because `task_reconciliation` gives a task only when `TaskOwners` says that it is free.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum, IntEnum
from typing import NamedTuple

from pessoa.coordinator.groups.consumer.consumer_group import FIRST_EPOCH, CommitCheck, accept_any_partition
from pessoa.coordinator.groups.streams.topology_configuration import ConfiguredTopology
from pessoa.wire.errors import ErrorCode, Refusal
from pessoa.wire.stored.streams_group_records import StreamsGroupTopologyValue

# The type of these groups, and of their protocol, in ListGroups.
STREAMS_PROTOCOL_TYPE = "streams"
NO_TOPOLOGY_EPOCH = -1

# subtopology → partitions
Tasks = Mapping[str, frozenset[int]]
# subtopology → partition → the assignment epoch that gave the task to the member
ActiveTasks = Mapping[str, Mapping[int, int]]
NO_TASKS: Tasks = {}
NO_ACTIVE_TASKS: ActiveTasks = {}


class TaskRoles(NamedTuple):
    """The tasks of a member as an assignment names them."""

    active: Tasks = NO_TASKS
    standby: Tasks = NO_TASKS
    warmup: Tasks = NO_TASKS

    @property
    def is_empty(self) -> bool:
        return not (self.active or self.standby or self.warmup)


class OwnedTasks(NamedTuple):
    """The tasks that a member has."""

    active: ActiveTasks = NO_ACTIVE_TASKS
    standby: Tasks = NO_TASKS
    warmup: Tasks = NO_TASKS

    @property
    def is_empty(self) -> bool:
        return not (self.active or self.standby or self.warmup)

    def roles(self) -> TaskRoles:
        return TaskRoles({name: frozenset(tasks) for name, tasks in self.active.items()}, self.standby, self.warmup)


NOTHING_OWNED = OwnedTasks()


class TaskState(IntEnum):
    """The state of a member; the values are those of the record."""

    STABLE = 1
    # It must give up tasks before it can go on.
    UNREVOKED_TASKS = 2
    # It waits for tasks that others have not given up.
    UNRELEASED_TASKS = 3
    # Written by a newer coordinator.
    UNKNOWN = 127

    @classmethod
    def of(cls, value: int) -> TaskState:
        try:
            return cls(value)
        except ValueError:
            return cls.UNKNOWN


class StreamsState(Enum):
    EMPTY = "Empty"
    NOT_READY = "NotReady"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"


class UserEndpoint(NamedTuple):
    """Where the application answers interactive queries."""

    host: str
    port: int


@dataclass(frozen=True, slots=True)
class StreamsMember:
    id: str
    epoch: int = 0
    previous_epoch: int = -1
    state: TaskState = TaskState.STABLE
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    rebalance_timeout_ms: int = -1
    topology_epoch: int = 0
    process_id: str = ""
    user_endpoint: UserEndpoint | None = None
    client_tags: tuple[tuple[str, str], ...] = ()
    assigned: OwnedTasks = field(default=NOTHING_OWNED)
    pending_revocation: OwnedTasks = field(default=NOTHING_OWNED)

    def is_reconciled_to(self, assignment_epoch: int) -> bool:
        return self.state is TaskState.STABLE and self.epoch == assignment_epoch

    def step(self, epoch: int, state: TaskState, assigned: OwnedTasks, pending: OwnedTasks) -> StreamsMember:
        return replace(
            self, epoch=epoch, previous_epoch=self.epoch, state=state, assigned=assigned, pending_revocation=pending
        )


class TaskOwners:
    """The processes that have a task, by role, counted over all members; tasks to be revoked count too."""

    def __init__(self) -> None:
        self._active: dict[tuple[str, int], Counter[str]] = {}
        self._other: dict[tuple[str, int], Counter[str]] = {}

    def __repr__(self) -> str:
        return f"<TaskOwners of {len(self._active)} active tasks>"

    def is_free_for_active(self, task: tuple[str, int], process_id: str) -> bool:
        """Whether no process has the task active, and this process has it in no role."""
        return not self._active.get(task) and process_id not in self._other.get(task, ())

    def is_free_for_copy(self, task: tuple[str, int], process_id: str) -> bool:
        """Whether this process has the task in no role."""
        return process_id not in self._active.get(task, ()) and process_id not in self._other.get(task, ())

    def count(self, member: StreamsMember, by: int) -> None:
        for owned in (member.assigned, member.pending_revocation):
            for task in each_task(owned.active):
                _add(self._active, task, member.process_id, by)
            for task in (*each_task(owned.standby), *each_task(owned.warmup)):
                _add(self._other, task, member.process_id, by)


def _add(owners: dict[tuple[str, int], Counter[str]], task: tuple[str, int], process_id: str, by: int) -> None:
    counts = owners.setdefault(task, Counter())
    counts[process_id] += by
    if not counts[process_id]:
        del counts[process_id]
    if not counts:
        del owners[task]


def each_task(tasks: Mapping[str, Iterable[int]]) -> Iterator[tuple[str, int]]:
    for name, partitions in tasks.items():
        for partition in partitions:
            yield name, partition


class StreamsGroup:
    def __init__(self, group_id: str) -> None:
        self.id = group_id
        self.epoch = FIRST_EPOCH
        self.metadata_hash = 0
        # The epoch of the topology whose topics were all there; NO_TOPOLOGY_EPOCH if some are missing.
        self.validated_topology_epoch = NO_TOPOLOGY_EPOCH
        # The settings of the group that the last assignment was made with.
        self.assignment_configs: tuple[tuple[str, str], ...] = ()
        self.assignment_epoch = FIRST_EPOCH
        self.assignment_timestamp_ms = 0
        self.topology: StreamsGroupTopologyValue | None = None
        self.members: dict[str, StreamsMember] = {}
        self.targets: dict[str, TaskRoles] = {}
        self.owners = TaskOwners()
        # Soft: what the topics make of the topology, and when to look at them again.
        self.configured: ConfiguredTopology | None = None
        self.refresh_at_ms = 0
        # Soft: rises with every change of who answers interactive queries for what.
        self.endpoint_epoch = 0
        # Soft: the member that asked all others to shut down.
        self.shutdown_asked_by: str | None = None

    def __repr__(self) -> str:
        return (
            f"<StreamsGroup {self.id}: {self.state.value}, epoch {self.epoch}, assignment epoch "
            f"{self.assignment_epoch}, {len(self.members)} members>"
        )

    @property
    def is_empty(self) -> bool:
        return not self.members

    @property
    def state(self) -> StreamsState:
        if not self.members:
            return StreamsState.EMPTY
        if self.topology is None or self.topology.epoch != self.validated_topology_epoch:
            return StreamsState.NOT_READY
        if self.epoch > self.assignment_epoch:
            return StreamsState.ASSIGNING
        if all(member.is_reconciled_to(self.assignment_epoch) for member in self.members.values()):
            return StreamsState.STABLE
        return StreamsState.RECONCILING

    def member(self, member_id: str) -> StreamsMember:
        member = self.members.get(member_id)
        if member is None:
            raise Refusal(ErrorCode.UNKNOWN_MEMBER_ID, f"{member_id} is not a member of group {self.id}")
        return member

    def target_of(self, member_id: str) -> TaskRoles:
        return self.targets.get(member_id, TaskRoles())

    def is_subscribed_to(self, topic: str) -> bool:
        return bool(self.members) and topic in source_topics(self.topology)

    # ── what others ask of any group ──

    def check_offset_commit(self, member_id: str, epoch: int, speaks_epochs: bool) -> CommitCheck:
        """Return the check of the partitions that the member commits for. `speaks_epochs`: the API and version have
        member epochs. Raises `Refusal`."""
        if epoch < 0 and not self.members:
            return accept_any_partition
        member = self.member(member_id)
        if not speaks_epochs:
            raise Refusal(
                ErrorCode.UNSUPPORTED_VERSION,
                "members that use the streams protocol commit with OffsetCommit version 9 or newer",
            )
        if epoch == member.epoch:
            return accept_any_partition
        if epoch > member.epoch:
            raise Refusal(ErrorCode.STALE_MEMBER_EPOCH, f"epoch {epoch} is newer than the member's, {member.epoch}")
        return lambda topic, _, partition: self._check_owner(member, epoch, topic, partition)

    def _check_owner(self, member: StreamsMember, epoch: int, topic: str, partition: int) -> None:
        """Raise a Refusal for a commit with an older epoch, unless the member has had the task of this partition since
        that epoch."""
        for name in subtopologies_reading(self.topology, topic):
            for owned in (member.assigned, member.pending_revocation):
                assigned_at = owned.active.get(name, {}).get(partition)
                if assigned_at is not None and epoch >= assigned_at:
                    return
        raise Refusal(
            ErrorCode.STALE_MEMBER_EPOCH,
            f"the member is at epoch {member.epoch}, and has had no task of {topic}-{partition} since epoch {epoch}",
        )

    def check_offset_fetch(self, member_id: str | None, epoch: int) -> None:
        if member_id is None and epoch < 0:
            return  # an administrator asks
        member = self.member(member_id or "")
        if epoch != member.epoch:
            raise Refusal(ErrorCode.STALE_MEMBER_EPOCH, f"the member is at epoch {member.epoch}, not {epoch}")

    def check_delete(self) -> None:
        if self.members:
            raise Refusal(ErrorCode.NON_EMPTY_GROUP)

    # ── replay ──

    def put_member(self, member: StreamsMember) -> None:
        old = self.members.get(member.id)
        if old is not None:
            self.owners.count(old, -1)
        self.members[member.id] = member
        self.owners.count(member, 1)
        self.endpoint_epoch += 1

    def remove_member(self, member_id: str) -> None:
        member = self.members.pop(member_id, None)
        if member is not None:
            self.owners.count(member, -1)
            self.endpoint_epoch += 1
        if self.shutdown_asked_by == member_id or not self.members:
            self.shutdown_asked_by = None


def source_topics(topology: StreamsGroupTopologyValue | None) -> set[str]:
    """Return the topics that tasks read: sources and repartition topics."""
    if topology is None:
        return set()
    return {
        name
        for one in topology.subtopologies
        for name in (*one.source_topics, *(info.name for info in one.repartition_source_topics))
    }


def subtopologies_reading(topology: StreamsGroupTopologyValue | None, topic: str) -> Iterator[str]:
    for one in () if topology is None else topology.subtopologies:
        if topic in one.source_topics or any(info.name == topic for info in one.repartition_source_topics):
            yield one.subtopology_id
