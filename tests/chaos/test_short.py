"""Broker processes under load with faults: a selection that is short enough for every run. In one case the controllers
are three processes beside the brokers, and in one all connections use SASL_SSL with access control lists.

`make chaos MINUTES=30` draws from the whole table of faults for the given time.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.chaos.faults import FAULTS, play
from tests.chaos.guard import SECURITY_FAULTS
from tests.chaos.stage import under_load


@pytest.mark.parametrize(
    ("faults", "apart", "secured"),
    [
        (("kill a leader", "kill the controller", "kill all"), False, False),
        (("pause a leader", "replace certificates", "kill the coordinator"), False, True),
        (("flip a bit", "lose the disk"), False, False),
        (("kill the controller", "pause the controller", "kill all"), True, False),
    ],
    ids=lambda one: ", ".join(one) if isinstance(one, tuple) else None,
)
def test_no_record_is_lost_duplicated_or_torn_and_replicas_are_equal_after_faults(
    tmp_path: Path,
    record_property: Callable[[str, object], None],
    faults: tuple[str, ...],
    apart: bool,
    secured: bool,
) -> None:
    with under_load(tmp_path, seed=len(faults[0]), apart=apart, secured=secured) as stage:
        played = [play(stage, fault, {**FAULTS, **SECURITY_FAULTS}[fault]) for fault in faults]
        found = stage.finish()
        pauses = ", ".join(f"{one.name} {one.longest_pause_s:.1f} s" for one in played)
        record_property("summary", f"{found}; producing stood still at worst: {pauses}")
