"""One broker for all attacks of a worker: each of them must leave it as it was."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

from tests.attacks.attack_stage import AttackStage


# Not for longer than a module: the client that behaves never rests, and would slow down every test that follows.
@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AttackStage]:
    if sys.platform != "linux":
        pytest.skip("the memory of a process is read from Linux's /proc")
    with AttackStage(tmp_path_factory.mktemp("attacks")) as stage:
        yield stage
