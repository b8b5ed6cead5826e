"""The last stable offset: the high watermark, or the first offset of the oldest open transaction if that is lower."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pessoa.log.partition_log import ReadUpTo
from tests.support.batches import NOW_MS, commit, plain, transactional
from tests.support.partition_logs import EVERY_BATCH, read_offsets

if TYPE_CHECKING:
    from tests.support.partition_logs import Home


def test_a_read_committed_reader_stops_at_the_high_watermark_below_an_open_transaction(home: Home) -> None:
    log = home.open(EVERY_BATCH)
    log.append_as_follower(
        b"".join((plain(2, at=0), plain(2, at=2), transactional(7, 0, at=4), commit(7, at=5), plain(at=6))), NOW_MS
    )
    assert log.log_end_offset == 7
    for high_watermark in range(1, 8):
        log.update_high_watermark(high_watermark)
        # The transaction counts as open until its marker is replicated.
        assert log.last_stable_offset == (4 if high_watermark == 5 else high_watermark)
        seen = read_offsets(log, up_to=ReadUpTo.LAST_STABLE_OFFSET)
        assert all(last < high_watermark for _, last in seen)
