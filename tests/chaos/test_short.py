"""Three broker processes under load while they are hurt: the selection that is short enough for every run.

`make chaos MINUTES=30` draws from the whole table, for as long as it is told.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

import pytest

from tests.chaos.checks import check_everything
from tests.chaos.faults import Stage, play
from tests.chaos.load import IN, OUT, PARTITIONS, Load
from tests.chaos.processes import BrokerProcesses


@contextmanager
def under_load(directory: Path, seed: int) -> Iterator[Stage]:
    with BrokerProcesses(directory) as brokers:
        for topic in (IN, OUT):
            brokers.create_topic(topic, PARTITIONS)
        load = Load(brokers.bootstrap_servers, seed)
        load.start()
        try:
            load.wait_for(20)
            yield Stage(brokers, load, Random(seed))
        finally:
            load.abandon()


@pytest.mark.parametrize(
    "faults",
    [
        ("kill a leader", "kill the controller", "kill all"),
        ("pause a leader", "bounce a leader", "kill the coordinator"),
        ("flip a bit", "lose the disk"),
    ],
    ids=", ".join,
)
def test_nothing_is_lost_doubled_torn_or_different_on_another_replica_after(
    tmp_path: Path, record_property: Callable[[str, object], None], faults: tuple[str, ...]
) -> None:
    with under_load(tmp_path, seed=len(faults[0])) as stage:
        played = [play(stage, fault) for fault in faults]
        stage.load.finish()
        found = check_everything(stage.brokers, stage.load)
        pauses = ", ".join(f"{one.name} {one.longest_pause_s:.1f} s" for one in played)
        record_property("summary", f"{found}; producing stood still at worst: {pauses}")
