"""Records of a Fetch response that are read from their file when they are sent."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pytest

from pessoa.broker.file_records import FileRecords
from pessoa.log.os_disk import OsDisk
from pessoa.log.partition_log import ReadUpTo
from pessoa.net.file_sending import RangeLost
from tests.support.batches import NOW_MS
from tests.support.partition_logs import Home, fill

if TYPE_CHECKING:
    from pathlib import Path

    from pessoa.log.partition_log import PartitionLog
    from pessoa.replication.partition import Partition


@pytest.fixture
def log(tmp_path: Path) -> PartitionLog:
    log = Home(OsDisk(), f"{tmp_path}/t-0").open()
    fill(log, 4, size=1000)
    return log


def found(log: PartitionLog, offset: int) -> FileRecords:
    data = log.read(offset, 1 << 20, ReadUpTo.LOG_END).data
    assert data is not None
    return FileRecords(cast("Partition", SimpleNamespace(log=log, directory=None)), data)


def test_records_are_read_whole_and_in_parts(log: PartitionLog) -> None:
    records = found(log, 1)
    whole = records.read()
    assert (len(records), len(whole)) == (3000, 3000)
    rest = records.behind(1200)
    assert (len(rest), rest.read(100), rest.read()) == (1800, whole[1200:1300], whole[1200:])
    first, second = records.place(), rest.place()
    assert first is not None
    assert second is not None
    assert second.position == first.position + 1200


def test_file_records_of_a_truncated_log_raise_range_lost(log: PartitionLog) -> None:
    records = found(log, 1)
    rest = records.behind(1200)
    log.truncate_to(2, NOW_MS)
    fill(log, 9, size=1000, epoch=3)
    for one in (records, rest, records.behind(100)):
        with pytest.raises(RangeLost, match="truncated"):
            one.read()
        with pytest.raises(RangeLost, match="truncated"):
            one.place()
    assert len(found(log, 1).read()) == 10_000


def test_file_records_of_a_closed_segment_raise_range_lost(log: PartitionLog) -> None:
    records = found(log, 1)
    log.close()
    with pytest.raises(RangeLost, match="deleted"):
        records.read()
    with pytest.raises(RangeLost, match="deleted"):
        records.place()
