"""Where the tests of the log keep their files: on the real disk and on the simulated one, or on the latter alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pessoa.log.os_disk import OsDisk
from pessoa.log.simulated_disk import SimulatedDisk
from tests.support.batches import NOW_MS
from tests.support.partition_logs import Home

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(params=["os", "simulated"])
def home(request: pytest.FixtureRequest, tmp_path: Path) -> Home:
    """A directory on the simulated disk and on a real one, for what must hold on both."""
    if request.param == "os":
        # Few enough that files are evicted and come back all the time.
        return Home(OsDisk(max_open_files=4), f"{tmp_path}/orders-0")
    return Home(SimulatedDisk(now_ms=lambda: NOW_MS), "/data/orders-0")


@pytest.fixture
def simulated() -> SimulatedDisk:
    """A disk on which a test plans faults."""
    return SimulatedDisk(now_ms=lambda: NOW_MS)


@pytest.fixture
def shaky(simulated: SimulatedDisk) -> Home:
    """A partition on the disk that faults come from."""
    return Home(simulated, "/data/orders-0")
