"""Whole clusters from seeds: under all faults of a plan no acknowledged record is lost, duplicated or out of order.

`plan` has what a seed stands for, `history` and `watch` have the invariants. A failure prints its seed and the command
that replays it, event by event.
`make test` runs the first 200, `make sim` 2,000, and `make sim SEEDS=1-100000` more.
"""

from __future__ import annotations

import os

import pytest

from tests.simulation.cluster import run
from tests.simulation.cpu_limit import CPU_LIMIT_S, OutOfTime, cpu_limit
from tests.simulation.history import Violation
from tests.simulation.plan import FAULTS, SECURITY_FAULTS, SHARE_FAULTS, Plan
from tests.simulation.streams_members import SUBTOPOLOGIES

SEEDS = int(os.environ.get("PESSOA_SIM_SEEDS", "200"))
SEEDS_PER_TEST = 50
SECURED_SEED = 6
SHARING_SEED = 10
STREAMING_SEED = 10


@pytest.mark.parametrize("first", range(1, SEEDS + 1, SEEDS_PER_TEST))
def test_no_acknowledged_record_is_lost_in_any_seed(first: int) -> None:
    for seed in range(first, min(first + SEEDS_PER_TEST, SEEDS + 1)):
        try:
            with cpu_limit(CPU_LIMIT_S):
                run(Plan.of(seed))
        except (Violation, OutOfTime) as failure:
            pytest.fail(f"seed {seed}: {failure}\n\n    make sim SEED={seed} TRACE=1\n")


@pytest.mark.parametrize("seed", [1, 3, 14, SECURED_SEED, SHARING_SEED])
def test_running_a_seed_twice_gives_the_same_run(seed: int) -> None:
    first, second = run(Plan.of(seed)), run(Plan.of(seed))
    assert first == second


def test_different_seeds_are_different_runs() -> None:
    assert run(Plan.of(1)).fingerprint != run(Plan.of(2)).fingerprint


def test_one_seed_in_six_is_secured_and_the_others_have_their_earlier_plans() -> None:
    plans = [Plan.of(seed) for seed in range(1, 3_001)]
    secured = [plan for plan in plans if plan.is_secured]
    assert 400 < len(secured) < 600
    assert {fault for plan in secured for fault in plan.faults} >= {*FAULTS, *SECURITY_FAULTS}
    assert {plan.reauth_ms for plan in secured} == {0, 1_500, 3_000}
    assert any(plan.is_split for plan in secured)
    assert any(plan.is_dynamic and plan.has_snapshots for plan in secured)
    for plan in plans:
        plain = Plan.of(plan.seed, may_be_secured=False)
        assert not plain.is_secured
        assert plan.is_secured or plan == plain
        assert {*plan.faults} - {*SECURITY_FAULTS} == {*plain.faults}


def test_one_seed_in_seven_has_a_share_group() -> None:
    plans = [Plan.of(seed) for seed in range(1, 3_001)]
    sharing = [plan for plan in plans if plan.share_members and not plan.is_secured]
    assert 350 < len(sharing) < 500
    assert {fault for plan in sharing for fault in plan.faults} >= {*FAULTS, *SHARE_FAULTS}
    assert {plan.share_members for plan in sharing} == {1, 2, 3}
    assert {plan.is_share_committed for plan in sharing} == {True, False}
    assert any(plan.is_compacted for plan in sharing)


def test_one_secured_seed_in_four_has_a_share_group_and_the_others_have_their_earlier_plans() -> None:
    plans = [Plan.of(seed) for seed in range(1, 3_001)]
    secured = [plan for plan in plans if plan.is_secured]
    sharing = [plan for plan in secured if plan.share_members]
    assert 90 < len(sharing) < 160
    assert {plan.share_members for plan in sharing} == {1, 2, 3}
    assert {plan.is_share_committed for plan in sharing} == {True, False}
    assert {fault for plan in sharing for fault in plan.faults} >= {*FAULTS, *SECURITY_FAULTS}
    assert not any(Plan.of(plan.seed, may_be_secured=False).share_members for plan in secured)


def test_one_seed_in_twelve_has_a_streams_group() -> None:
    plans = [Plan.of(seed) for seed in range(1, 3_001)]
    streaming = [plan for plan in plans if plan.streams_members]
    assert 200 < len(streaming) < 320
    assert {fault for plan in streaming for fault in plan.faults} >= {*FAULTS}
    assert {plan.streams_members for plan in streaming} == {1, 2, 3}
    assert any(plan.share_members for plan in streaming)
    assert not any(plan.is_secured for plan in streaming)


def test_tasks_move_between_members_of_a_streams_group() -> None:
    plan = Plan.of(STREAMING_SEED)
    assert run(plan).tasks_given > 2 * len(SUBTOPOLOGIES) * plan.partitions


def test_members_of_a_share_group_acknowledge_records_finally() -> None:
    assert run(Plan.of(SHARING_SEED)).shared > 0


def test_seeds_vary_in_shape_and_faults() -> None:
    plans = [Plan.of(seed) for seed in range(1, 501)]
    assert {plan.nodes for plan in plans} == {1, 2, 3, 4, 5}
    assert {plan.voters for plan in plans} == {1, 2, 3, 4, 5}
    assert {plan.replication_factor for plan in plans} == {1, 2, 3}
    assert any(not plan.faults for plan in plans)
    assert any(plan.is_split for plan in plans)
    assert any(plan.is_dynamic for plan in plans)
    assert any(plan.is_compacted and plan.drops_tombstones for plan in plans)
    assert any(plan.is_compacted and plan.has_directories and "moving" in plan.faults for plan in plans)
    assert any(plan.is_compacted and plan.copiers and plan.group_members and plan.admin for plan in plans)
    assert any(plan.copiers and plan.has_snapshots and "rot" in plan.faults for plan in plans)
