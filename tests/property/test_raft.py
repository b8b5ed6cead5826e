"""A quorum loses no committed record, under all faults of members and network; and a bug that loses one is detected.

`RAFT_SEEDS` sets how many seeds are run. A failure prints its seed, and `python -m tests.property.test_raft 123` runs
it again.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from itertools import count
from random import Random

import pytest

from pessoa.base.ids import Uuid
from pessoa.raft import machine
from pessoa.raft.machine import Raft
from pessoa.raft.messages import ElectionState, ReplicaKey
from pessoa.raft.progress import Progress
from pessoa.raft.roles import Leader
from pessoa.raft.voters import Voter, VoterSet
from tests.property.raft_world import Entry, Member, World

SEEDS = int(os.environ.get("RAFT_SEEDS", "100"))
ROUNDS = 40


def agrees_on_a_leader(world: World, limit_ms: int = 30_000) -> bool:
    """Return whether the healed quorum elects one leader that can commit."""

    def all_agree() -> bool:
        leader = world.leader
        return (
            leader is not None
            and leader.raft.high_watermark == leader.log.log_end_offset
            and leader.raft.high_watermark > 0
            and all(
                one.raft.leader_id == leader.key.id and one.applied == leader.raft.high_watermark
                for one in world.members
            )
        )

    return world.run_until(all_agree, limit_ms)


def can_elect(world: World) -> bool:
    """Return whether enough voters have kept their disks for an election."""
    furthest = max(world.members, key=lambda one: (one.log.last_epoch, one.log.log_end_offset))
    voters = furthest.raft.voters
    return sum(voters.has(one.key) for one in world.members) >= voters.majority


def play(seed: int) -> World:
    """Run rounds of faults and writes, then heal everything. The invariants are checked after every event."""
    random = Random(seed)
    world = World(seed, voters=random.choice((1, 2, 3, 3, 3, 4, 5)), observers=random.choice((0, 0, 1)))
    has_wiped = False
    values = count()
    for _ in range(ROUNDS):
        disturb(world, random)
        fault = random.randrange(10)
        member = random.choice(world.members)
        if fault <= 3:
            crash(world, random, 0.7 if fault == 3 else 0.3)
        elif fault == 4:
            world.isolate(*random.sample(sorted(world.by_id), random.randrange(len(world.by_id))))
        elif fault == 5:
            world.cut = {(random.choice(list(world.by_id)), random.choice(list(world.by_id))) for _ in range(3)}
        elif fault == 6 and world.leader is not None:
            leader = world.leader
            leader.raft.resign(world.now_ms, leader.raft.epoch)
            leader.obey()
        elif fault == 7 and world.leader is not None:
            change_voters(world, world.leader, random)
        elif fault == 8 and not has_wiped and member.is_up and len(world.members) > 2:
            has_wiped = True
            member.crash(0)
            member.wipe(Uuid.of(next(world.directories)))
        if random.random() < 0.5:
            world.cut = set()
        recover_and_write(world, random, values)
        world.run(random.choice((1, 5, 20, 100, 400, 1_000)))
    return world


def storm(seed: int) -> World:
    """Run with constant crashes and therefore elections, which interrupt replication."""
    random = Random(seed)
    world = World(seed, voters=random.choice((3, 5)))
    world.longest_fetch = 1
    values = count()
    for _ in range(ROUNDS):
        disturb(world, random)
        crash(world, random, 0.4)
        if random.random() < 0.5:
            world.isolate(*random.sample(sorted(world.by_id), len(world.by_id) // 2))
        recover_and_write(world, random, values)
        world.run(random.choice((1, 5, 20, 60, 150)))
    return world


def disturb(world: World, random: Random) -> None:
    world.drop = random.choice((0.0, 0.0, 0.05, 0.3))
    world.duplicate = random.choice((0.0, 0.1, 0.3))
    world.longest_delay_ms = random.choice((2, 5, 30, 100))


def crash(world: World, random: Random, share: float) -> None:
    for member in world.members:
        if member.is_up and random.random() < share:
            member.crash(random.randrange(4))


def recover_and_write(world: World, random: Random, values: Iterator[int]) -> None:
    for member in world.members:
        if not member.is_up and random.random() < 0.5:
            member.boot()
    for member in world.members:
        if member.is_up and member.raft.is_leader:
            for _ in range(random.randrange(4)):
                member.append(next(values))


def change_voters(world: World, leader: Member, random: Random) -> None:
    """Add or remove a voter, if the leader may: its own epoch and the last change are committed (KIP-853)."""
    role, voters = leader.raft.role, leader.raft.voters
    assert isinstance(role, Leader)
    if leader.raft.high_watermark <= max(role.progress.epoch_start_offset, leader.history.voters_offset):
        return
    outside = [one.key for one in world.members if not voters.has(one.key)]
    replaced = [key for key in outside if key.id in voters.by_id]
    if replaced:
        leader.append(voters.without(replaced[0].id))
    elif outside and random.random() < 0.7:
        leader.append(voters.with_voter(Voter(random.choice(outside), {})))
    elif len(voters) > 1:
        leader.append(voters.without(random.choice(voters.ids)))


@pytest.mark.parametrize("run", [play, storm])
def test_under_random_faults_no_committed_record_changes(run: Callable[[int], World]) -> None:
    for seed in range(SEEDS):
        try:
            world = run(seed)
            world.heal()
            assert agrees_on_a_leader(world) or not can_elect(world), f"no leader comes out of {world.members}"
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error


def test_a_quorum_of_one_leads_as_soon_as_it_starts() -> None:
    world = World(0, voters=1)
    (member,) = world.members
    assert member.raft.is_leader
    member.append(7)
    assert agrees_on_a_leader(world)
    assert world.committed == [(1, None), (1, 7)]


@pytest.mark.parametrize("voters", [2, 3, 4, 5])
def test_a_new_quorum_elects_a_leader_within_a_fraction_of_the_election_timeout(voters: int) -> None:
    slow = 0
    for seed in range(20):
        world = World(seed, voters)
        slow += not world.run_until(lambda world=world: world.leader is not None, 100)  # type: ignore[misc]
    assert slow <= 2


def test_the_death_of_a_leader_is_detected_by_broken_connections_before_the_fetch_timeout() -> None:
    slow = 0
    for seed in range(20):
        world = World(seed, voters=3)
        assert agrees_on_a_leader(world)
        leader = world.leader
        assert leader is not None
        leader.crash(0)
        slow += not world.run_until(lambda world=world: world.leader is not None, 60)  # type: ignore[misc]
    assert slow <= 6, "two that think of it in the same moment have to try again"


def leader_is_deposed_by_a_returning_member(seed: int) -> bool:
    """Return whether a member that was cut off for long causes an election when it is connected again."""
    world = World(seed, voters=3)
    assert agrees_on_a_leader(world)
    leader = world.leader
    assert leader is not None
    epoch = leader.raft.epoch
    away = next(one for one in world.members if one is not leader)
    world.isolate(away.key.id)
    world.run(5_000)
    world.heal()
    assert agrees_on_a_leader(world)
    assert world.leader is not None
    return world.leader.raft.epoch != epoch


def test_a_voter_that_was_isolated_causes_no_election_when_it_is_back() -> None:
    assert not any(leader_is_deposed_by_a_returning_member(seed) for seed in range(20))


def test_an_isolated_leader_resigns() -> None:
    world = World(1, voters=3)
    assert agrees_on_a_leader(world)
    leader = world.leader
    assert leader is not None
    world.isolate(leader.key.id)
    world.run(400)
    assert not leader.raft.is_leader


def replace_what_only_counts() -> World:
    """Run figure 8 of the Raft paper: a record of epoch 1 reaches a majority in epoch 3, and a member with a record of
    epoch 2 is elected before a record of epoch 3 has reached a majority."""
    world = World(5, voters=3)
    world.longest_fetch = 1
    first, second, third = world.members
    logs: list[list[Entry]] = [[(1, None), (1, "old")], [(1, None)], [(1, None), (2, None), (2, "new")]]
    for member, entries in zip(world.members, logs, strict=True):
        member.crash(0)
        member.disk.entries, member.disk.state = entries, ElectionState(2)
    first.boot()
    second.boot()
    assert world.run_until(lambda: first.raft.high_watermark > 1 or len(second.log.entries) > 2, 10_000)
    first.crash(0)
    world.isolate(first.key.id)
    third.boot()
    assert world.run_until(lambda: second.raft.is_leader or third.raft.is_leader, 10_000)
    world.heal()
    assert agrees_on_a_leader(world)
    return world


def test_a_record_of_an_earlier_epoch_is_committed_with_one_of_the_leaders_own() -> None:
    assert (1, "old") in replace_what_only_counts().committed


# The same with the code broken on purpose: it must be seen.


def first_failing_seed(run: Callable[[int], World], seeds: int = 3_000) -> int | None:
    for seed in range(seeds):
        try:
            run(seed)
        except AssertionError:
            return seed
    return None


def test_the_test_detects_a_vote_that_is_not_synced(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every second write of the state is lost with the power. Epochs may then go back, so only leaders are compared."""

    def forgetful(member: Member, state: ElectionState) -> None:
        if state.voted is None or state.leader_id >= 0:
            member.disk.state = state

    def only_leaders(world: World, member: Member) -> None:
        if member.raft.is_leader:
            known = world.leaders.setdefault(member.raft.epoch, member.key)
            assert known == member.key, f"{known} and {member.key} lead epoch {member.raft.epoch}"

    monkeypatch.setattr("tests.property.raft_world._persist", forgetful)
    monkeypatch.setattr(World, "check", only_leaders)
    assert first_failing_seed(storm) is not None


def test_the_test_detects_a_missing_pre_vote(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Raft, "_become_prospective", Raft._become_candidate)
    assert any(leader_is_deposed_by_a_returning_member(seed) for seed in range(20))


def test_the_test_detects_commits_by_counting_replicas_of_an_earlier_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = Progress.committed

    def by_count_alone(self: Progress, voters: VoterSet, own_durable_end_offset: int) -> int:
        start, self.epoch_start_offset = self.epoch_start_offset, -1
        try:
            return honest(self, voters, own_durable_end_offset)
        finally:
            self.epoch_start_offset = start

    monkeypatch.setattr(Progress, "committed", by_count_alone)
    with pytest.raises(AssertionError, match="leads without what was committed at 1"):
        replace_what_only_counts()


def test_the_test_detects_a_follower_that_reports_records_that_are_not_on_its_disk(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    honest = Raft._fetch_when_durable

    def hasty(self: Raft, now_ms: int, fetching: object) -> None:
        durable, self._log.durable_end_offset = self._log.durable_end_offset, self._log.log_end_offset  # type: ignore[misc]
        honest(self, now_ms, fetching)  # type: ignore[arg-type]
        self._send_due(now_ms)
        self._log.durable_end_offset = durable  # type: ignore[misc]

    monkeypatch.setattr(Raft, "_fetch_when_durable", hasty)
    assert first_failing_seed(storm) is not None


def test_the_test_detects_votes_for_any_candidate(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "reaches", lambda *_: True)
    assert first_failing_seed(storm) is not None


def test_the_test_detects_a_replaced_disk_with_the_old_directory_id(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without directory ids an emptied member would count as the one that it replaces."""
    monkeypatch.setattr(ReplicaKey, "matches", lambda self, other: self.id == other.id)
    assert first_failing_seed(play) is not None


if __name__ == "__main__":
    for argument in sys.argv[1:]:
        for run in (play, storm):
            healed = run(int(argument))
            healed.heal()
            print(run.__name__, argument, agrees_on_a_leader(healed), *healed.members, sep="\n  ")
