"""Streams groups under random joins, crashes, members that revoke late, time and reloads: at every moment an active
task has one member at most and a process has a task in one role at most; at the end every task has a member."""

from __future__ import annotations

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from pessoa.coordinator.groups.streams.sticky_assignor import StreamsMemberSpec, assign_sticky
from pessoa.coordinator.groups.streams.streams_group import StreamsGroup, StreamsState, TaskRoles, each_task
from pessoa.coordinator.groups.streams.streams_group_config import StreamsGroupConfig
from pessoa.wire.errors import ErrorCode, Refusal
from pessoa.wire.schema import Message
from tests.unit.coordinator.groups.bench import Bench
from tests.unit.coordinator.groups.streams_client import StreamsClient, settle, subtopology, topic_info, topology
from tests.unit.coordinator.images import image

SHAPE = topology(
    subtopology("0", "orders", writes=("app-r",)),
    subtopology("1", changelogs=(topic_info("app-c"),), repartition=(topic_info("app-r"),)),
)
NAMES = ("a", "b", "c", "d", "e")
STEPS = st.lists(
    st.tuples(
        st.sampled_from(("beat", "beat", "beat", "join", "leave", "cling", "time", "death", "reload")),
        st.sampled_from(NAMES),
    ),
    min_size=10,
    max_size=60,
)


def processes_of(members: dict[str, StreamsClient]) -> None:
    """Assign process ids to the members: two members share a process, three have their own."""
    for name, member in members.items():
        member.process = "shared" if name in ("a", "b") else name


def check(group: StreamsGroup) -> None:
    active: Counter[tuple[str, int]] = Counter()
    roles: Counter[tuple[str, tuple[str, int]]] = Counter()
    for member in group.members.values():
        for owned in (member.assigned, member.pending_revocation):
            active.update(each_task(owned.active))
            for tasks in owned:
                roles.update((member.process_id, task) for task in each_task(tasks))
    assert all(count == 1 for count in active.values()), active
    assert all(count == 1 for count in roles.values()), roles


@settings(max_examples=150, deadline=None)
@given(STEPS, st.integers(0, 2), st.integers(1, 4))
def test_tasks_never_have_two_owners_and_all_have_one_at_rest(
    steps: list[tuple[str, str]], standbys: int, partitions: int
) -> None:
    bench = Bench(metadata=image(**{"orders": partitions, "app-r": partitions, "app-c": partitions}))
    config = StreamsGroupConfig(group_streams_num_standby_replicas=standbys)
    bench.shard.streams.config = config
    members = {name: StreamsClient(bench, name, SHAPE) for name in NAMES[:2]}
    processes_of(members)
    settle(bench, *members.values(), rounds=4)
    for what, name in steps:
        if what == "join" and name not in members:
            members[name] = StreamsClient(bench, name, SHAPE)
            processes_of(members)
        elif what == "time":
            bench.pass_time(20_000)
        elif what == "reload":
            bench.reload()
            bench.shard.streams.config = config
        elif name in members:
            act(members, name, what)
        for group in bench.shard.registry.groups.values():
            assert isinstance(group, StreamsGroup)
            check(group)
    for member in members.values():
        member.clings = False
    if not members:
        return
    for _ in range(40):
        bench.pass_time(3_000)
        for name in list(members):
            act(members, name, "beat")
    settle(bench, *members.values(), rounds=4)
    group = bench.shard.registry.streams_group("app")
    assert group.state is StreamsState.STABLE, group
    check(group)
    given_out = Counter(task for member in members.values() for task in each_task(member.tasks))
    assert given_out == Counter((name, number) for name in ("0", "1") for number in range(partitions))


def act(members: dict[str, StreamsClient], name: str, what: str) -> None:
    member = members[name]
    if what == "death":
        del members[name]
    elif what == "cling":
        member.clings = not member.clings
    elif what == "leave":
        if member.epoch > 0 and not isinstance(reply_to(member), Refusal):
            member.leave()
        del members[name]
    elif what == "beat" and isinstance(reply := reply_to(member), Refusal):
        # It was fenced: it gives up everything and joins again.
        assert reply.code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.GROUP_ID_NOT_FOUND)
        member.epoch, member.tasks, member.standbys = 0, {}, {}


def reply_to(member: StreamsClient) -> Message | Refusal:
    """Send a heartbeat, whose response the member follows; return the response or the refusal."""
    token = member.bench.send(member.request(), 0)
    reply = member.bench.replies[token]
    if not isinstance(reply, Refusal):
        member.follow(reply)
    return reply


TASKS = st.dictionaries(st.sampled_from(("0", "1")), st.frozensets(st.integers(0, 6), max_size=4))
SPECS = st.dictionaries(
    st.sampled_from(NAMES),
    st.builds(StreamsMemberSpec, st.sampled_from(("p", "q", "r")), st.builds(TaskRoles, TASKS, TASKS, TASKS)),
    min_size=1,
)


@settings(max_examples=300, deadline=None)
@given(SPECS, st.integers(0, 6), st.integers(0, 6), st.integers(0, 2))
def test_the_streams_assignor_is_balanced_complete_and_stable(
    specs: dict[str, StreamsMemberSpec], first: int, second: int, standbys: int
) -> None:
    counts = {"0": first, "1": second}
    result = assign_sticky(specs, counts, frozenset(("1",)), standbys)
    active = Counter(task for roles in result.values() for task in each_task(roles.active))
    assert active == Counter((name, number) for name, count in counts.items() for number in range(count))
    sizes = [sum(map(len, roles.active.values())) for roles in result.values()]
    assert max(sizes) <= -(-(first + second) // len(specs))
    roles_of_process: Counter[tuple[str, tuple[str, int]]] = Counter()
    for member_id, roles in result.items():
        assert set(roles.standby) <= {"1"}
        for tasks in (roles.active, roles.standby):
            roles_of_process.update((specs[member_id].process_id, task) for task in each_task(tasks))
    assert all(count == 1 for count in roles_of_process.values())
    copies = Counter(task for roles in result.values() for task in each_task(roles.standby))
    others = len({spec.process_id for spec in specs.values()}) - 1
    assert all(copies["1", number] == min(standbys, others) for number in range(second))
    again = assign_sticky(
        {member_id: spec._replace(target=result[member_id]) for member_id, spec in specs.items()},
        counts,
        frozenset(("1",)),
        standbys,
    )
    assert {name: roles.active for name, roles in again.items()} == {
        name: roles.active for name, roles in result.items()
    }, "active tasks move without a reason"
