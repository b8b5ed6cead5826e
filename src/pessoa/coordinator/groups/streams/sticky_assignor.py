"""Kafka's `sticky` assignor of streams groups: tasks to members, evenly, and where they were before.

Active tasks first, each to the first of these that has room:

    1. the member that has it active       2. a member that has it as a standby, the least loaded
    3. the least loaded member of the least loaded process (load: tasks per member of the process)

A member has room while it has fewer active tasks than its even share. Then, for tasks with state, as many standby tasks
as are asked for, each on a process that has the task in no role: on a member that had it, if its process is not above
its share, or the least loaded. A task for which no such process is left has fewer copies.

Ties go by the order of the names, so that the result follows from the input alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from pessoa.coordinator.groups.streams.streams_group import TaskRoles, Tasks, each_task

Task = tuple[str, int]


class StreamsMemberSpec(NamedTuple):
    process_id: str
    # What the member was to have before.
    target: TaskRoles


class _Loads:
    """How many tasks each member and each process has so far."""

    def __init__(self, specs: Mapping[str, StreamsMemberSpec]) -> None:
        self.members = {member_id: spec.process_id for member_id, spec in sorted(specs.items())}
        self.of_member = dict.fromkeys(self.members, 0)
        self.of_process = dict.fromkeys(self.members.values(), 0)
        self.size = dict.fromkeys(self.members.values(), 0)
        for process_id in self.members.values():
            self.size[process_id] += 1
        # The processes that have a task in some role.
        self.holders: dict[Task, set[str]] = {}

    def add(self, member_id: str, task: Task) -> None:
        self.of_member[member_id] += 1
        self.of_process[self.members[member_id]] += 1
        self.holders.setdefault(task, set()).add(self.members[member_id])

    def least_loaded(self, candidates: Iterable[str]) -> str | None:
        return min(candidates, key=self._load, default=None)

    def _load(self, member_id: str) -> tuple[float, int, str]:
        process_id = self.members[member_id]
        return self.of_process[process_id] / self.size[process_id], self.of_member[member_id], member_id


def assign_sticky(
    specs: Mapping[str, StreamsMemberSpec], task_counts: Mapping[str, int], stateful: frozenset[str], standbys: int
) -> dict[str, TaskRoles]:
    """Return the tasks that each member shall have."""
    loads = _Loads(specs)
    tasks = [(name, partition) for name, count in sorted(task_counts.items()) for partition in range(count)]
    active = _assign_active(specs, loads, tasks)
    copies = _assign_standbys(specs, loads, [task for task in tasks if task[0] in stateful], standbys)
    return {
        member_id: TaskRoles(_group_by_subtopology(active[member_id]), _group_by_subtopology(copies[member_id]))
        for member_id in specs
    }


def _assign_active(specs: Mapping[str, StreamsMemberSpec], loads: _Loads, tasks: list[Task]) -> dict[str, list[Task]]:
    assigned: dict[str, list[Task]] = {member_id: [] for member_id in specs}
    if not specs:
        return assigned
    share = -(-len(tasks) // len(specs))

    def give(member_id: str, task: Task) -> None:
        assigned[member_id].append(task)
        loads.add(member_id, task)

    was_active = {task: member_id for member_id in sorted(specs) for task in each_task(specs[member_id].target.active)}
    left = []
    for task in tasks:
        owner = was_active.get(task)
        if owner is not None and len(assigned[owner]) < share:
            give(owner, task)
        else:
            left.append(task)
    had_copy = _holders_of_copies(specs)
    for task in left:
        copies = [one for one in had_copy.get(task, ()) if len(assigned[one]) < share]
        chosen = loads.least_loaded(copies) or loads.least_loaded(one for one in specs if len(assigned[one]) < share)
        assert chosen is not None, "the shares of all members hold all tasks"
        give(chosen, task)
    return assigned


def _holders_of_copies(specs: Mapping[str, StreamsMemberSpec]) -> dict[Task, list[str]]:
    found: dict[Task, list[str]] = {}
    for member_id in sorted(specs):
        target = specs[member_id].target
        for task in (*each_task(target.standby), *each_task(target.warmup)):
            found.setdefault(task, []).append(member_id)
    return found


def _assign_standbys(
    specs: Mapping[str, StreamsMemberSpec], loads: _Loads, tasks: list[Task], standbys: int
) -> dict[str, list[Task]]:
    assigned: dict[str, list[Task]] = {member_id: [] for member_id in specs}
    if not standbys or not specs:
        return assigned
    total = sum(loads.of_member.values()) + len(tasks) * min(standbys, max(0, len(loads.size) - 1))
    share = -(-total // len(specs))
    had_copy = _holders_of_copies(specs)
    was_active = {task: member_id for member_id in sorted(specs) for task in each_task(specs[member_id].target.active)}
    for _ in range(standbys):
        for task in tasks:
            taken = loads.holders.get(task, set())
            free = [one for one in specs if loads.members[one] not in taken]
            before = [one for one in (*had_copy.get(task, ()), *filter(None, [was_active.get(task)])) if one in free]
            roomy = [one for one in before if loads.of_member[one] < share]
            chosen = loads.least_loaded(roomy) or loads.least_loaded(free)
            if chosen is not None:
                assigned[chosen].append(task)
                loads.add(chosen, task)
    return assigned


def _group_by_subtopology(tasks: Iterable[Task]) -> Tasks:
    found: dict[str, set[int]] = {}
    for name, partition in tasks:
        found.setdefault(name, set()).add(partition)
    return {name: frozenset(partitions) for name, partitions in sorted(found.items())}
