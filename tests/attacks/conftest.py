"""One broker for all attacks of a module: each attack must leave it as it was."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

from tests.attacks.attack_stage import AttackStage


# Only for a module: the well-behaved client works all the time, and would slow down the tests of other modules.
@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AttackStage]:
    if sys.platform != "linux":
        pytest.skip("the memory of a process is read from Linux's /proc")
    with AttackStage(tmp_path_factory.mktemp("attacks")) as stage:
        yield stage
