"""How a member of a streams group gets from the tasks that it has to those that it shall have (KIP-1071).

    STABLE ──new target──► UNREVOKED_TASKS ──it says it has given up──► UNRELEASED_TASKS or STABLE
                 └─nothing to give up────────────────────────────────►      │        ▲
                                                                            └others──┘
                                                                          give up theirs

As in a consumer group (`consumer.reconciliation`) a member first gives up, at its old epoch, what is not in its target.
A task of its target is given when it is free: an active task when no process has it active and this process has it in
no role, a copy when this process has the task in no role: two copies of one state in one process would fight over its
directory.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from pessoa.coordinator.groups.streams.streams_group import (
    NOTHING_OWNED,
    ActiveTasks,
    OwnedTasks,
    StreamsMember,
    TaskOwners,
    TaskRoles,
    Tasks,
    TaskState,
)
from pessoa.wire.errors import ErrorCode, Refusal

IsFree = Callable[[tuple[str, int], str], bool]


@dataclass(frozen=True, slots=True)
class TaskSituation:
    """The inputs of a reconciliation, besides the member."""

    target_epoch: int
    target: TaskRoles
    owners: TaskOwners
    # What the member says that it has; None if it says nothing of it, which means: as before.
    reported: TaskRoles | None


def reconcile_tasks(member: StreamsMember, situation: TaskSituation) -> StreamsMember:
    """Return the member after its next step towards its target; the same object if there is nothing to do."""
    if member.state is TaskState.STABLE and member.epoch == situation.target_epoch:
        return member
    if member.state is TaskState.UNREVOKED_TASKS and _still_has(situation.reported, member.pending_revocation):
        return member
    if member.state is TaskState.UNKNOWN:
        if situation.reported is None or not situation.reported.is_empty:
            raise Refusal(
                ErrorCode.FENCED_MEMBER_EPOCH,
                "the state of the member is not known: it must give up all its tasks and join again",
            )
        moved = _toward_target(replace(member, epoch=situation.target_epoch), situation)
        return replace(moved, previous_epoch=member.epoch)
    return _toward_target(member, situation)


def _still_has(reported: TaskRoles | None, pending: OwnedTasks) -> bool:
    if reported is None:
        return True
    return any(
        not has.get(name, frozenset()).isdisjoint(partitions)
        for has, given_up in zip(reported, pending.roles(), strict=True)
        for name, partitions in given_up.items()
    )


def _toward_target(member: StreamsMember, situation: TaskSituation) -> StreamsMember:
    target, assigned, process_id = situation.target, member.assigned, member.process_id
    active_kept, active_revoked, active_new, waits_active = _difference(
        {name: frozenset(tasks) for name, tasks in assigned.active.items()},
        target.active,
        situation.owners.is_free_for_active,
        process_id,
    )
    standby_kept, standby_revoked, standby_new, waits_standby = _difference(
        assigned.standby, target.standby, situation.owners.is_free_for_copy, process_id
    )
    warmup_kept, warmup_revoked, warmup_new, waits_warmup = _difference(
        assigned.warmup, target.warmup, situation.owners.is_free_for_copy, process_id
    )
    kept = OwnedTasks(_with_epochs(assigned.active, active_kept), standby_kept, warmup_kept)
    revoked = OwnedTasks(_with_epochs(assigned.active, active_revoked), standby_revoked, warmup_revoked)
    if not revoked.is_empty and _still_has(situation.reported, revoked):
        # It stays at its epoch, and gets nothing new before it has given up.
        return member.step(member.epoch, TaskState.UNREVOKED_TASKS, kept, revoked)
    given = OwnedTasks(
        _joined_epochs(kept.active, active_new, situation.target_epoch),
        _union(standby_kept, standby_new),
        _union(warmup_kept, warmup_new),
    )
    waits = waits_active or waits_standby or waits_warmup
    state = TaskState.UNRELEASED_TASKS if waits else TaskState.STABLE
    return member.step(situation.target_epoch, state, given, NOTHING_OWNED)


def _difference(owned: Tasks, target: Tasks, is_free: IsFree, process_id: str) -> tuple[Tasks, Tasks, Tasks, bool]:
    """Return the tasks that are kept, revoked and newly assigned, and whether a task of the target is not free yet."""
    kept: dict[str, frozenset[int]] = {}
    revoked: dict[str, frozenset[int]] = {}
    new: dict[str, frozenset[int]] = {}
    waits = False
    for name in sorted({*owned, *target}):
        has, shall = owned.get(name, frozenset()), target.get(name, frozenset())
        if has & shall:
            kept[name] = has & shall
        if has - shall:
            revoked[name] = has - shall
        free = frozenset(partition for partition in shall - has if is_free((name, partition), process_id))
        if free:
            new[name] = free
        waits = waits or len(free) < len(shall - has)
    return kept, revoked, new, waits


def _with_epochs(epochs: ActiveTasks, tasks: Tasks) -> dict[str, dict[int, int]]:
    return {name: {each: epochs[name][each] for each in sorted(partitions)} for name, partitions in tasks.items()}


def _joined_epochs(kept: ActiveTasks, new: Tasks, epoch: int) -> Mapping[str, Mapping[int, int]]:
    names = sorted({*kept, *new})
    return {name: {**kept.get(name, {}), **dict.fromkeys(sorted(new.get(name, ())), epoch)} for name in names}


def _union(kept: Tasks, new: Tasks) -> Tasks:
    return {name: kept.get(name, frozenset()) | new.get(name, frozenset()) for name in sorted({*kept, *new})}
