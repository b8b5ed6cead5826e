"""Broker processes under load while they are hurt: the selection that is short enough for every run. Once the
controllers are three processes beside the brokers.

`make chaos MINUTES=30` draws from the whole table, for as long as it is told.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.chaos.faults import play
from tests.chaos.stage import under_load


@pytest.mark.parametrize(
    ("faults", "apart"),
    [
        (("kill a leader", "kill the controller", "kill all"), False),
        (("pause a leader", "bounce a leader", "kill the coordinator"), False),
        (("flip a bit", "lose the disk"), False),
        (("kill the controller", "pause the controller", "kill all"), True),
    ],
    ids=lambda one: ", ".join(one) if isinstance(one, tuple) else ("combined", "apart")[one],
)
def test_nothing_is_lost_doubled_torn_or_different_on_another_replica_after(
    tmp_path: Path, record_property: Callable[[str, object], None], faults: tuple[str, ...], apart: bool
) -> None:
    with under_load(tmp_path, seed=len(faults[0]), apart=apart) as stage:
        played = [play(stage, fault) for fault in faults]
        found = stage.finish()
        pauses = ", ".join(f"{one.name} {one.longest_pause_s:.1f} s" for one in played)
        record_property("summary", f"{found}; producing stood still at worst: {pauses}")
