"""The disks of the log's tests: the real and the simulated one, or only the simulated one."""

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
    """Return a partition directory on the simulated disk or on a real one, for tests that run on both."""
    if request.param == "os":
        # Few enough that files are evicted and come back all the time.
        return Home(OsDisk(max_open_files=4), f"{tmp_path}/orders-0")
    return Home(SimulatedDisk(now_ms=lambda: NOW_MS), "/data/orders-0")


@pytest.fixture
def simulated() -> SimulatedDisk:
    """Return a simulated disk, on which a test plans faults."""
    return SimulatedDisk(now_ms=lambda: NOW_MS)


@pytest.fixture
def shaky(simulated: SimulatedDisk) -> Home:
    """Return a partition directory on the disk with planned faults."""
    return Home(simulated, "/data/orders-0")
