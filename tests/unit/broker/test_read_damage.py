"""Damaged data that is read many times, and the number of log lines about it."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any

import pytest

from pessoa.base.ids import Uuid
from pessoa.broker.read_damage import ReadDamage


def partition(index: int) -> Any:
    return SimpleNamespace(topic="t", topic_id=Uuid(bytes(16)), index=index)


def test_a_damaged_batch_is_logged_once_until_it_is_repaired_or_deleted(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "pessoa.broker")
    damage = ReadDamage()
    assert not damage
    for _ in range(3):
        damage.report(partition(0), 7, ValueError("a bit"))
        damage.report(partition(1), 7, ValueError("a bit"))
        damage.report_repaired(partition(0), 8)
    assert damage
    damage.report_repaired(partition(0), 7)
    damage.report(partition(0), 7, ValueError("another bit"))
    damage.report_deleted(partition(0), 7)
    damage.report_deleted(partition(0), 7)
    assert caplog.messages == [
        "t-0 cannot be read at 7: a bit",
        "t-1 cannot be read at 7: a bit",
        "t-0 can be read at 7 again",
        "t-0 cannot be read at 7: another bit",
        "t-0 has nothing at 7 any more, damaged as it was",
    ]


def test_very_many_damaged_batches_are_logged_in_a_bounded_number_of_lines(caplog: pytest.LogCaptureFixture) -> None:
    damage = ReadDamage()
    for offset in range(5_000):
        damage.report(partition(0), offset, ValueError("a bit"))
    assert len(caplog.messages) == 1_000
