"""A reader that continues at the end of its last read: its position is cached, and dropped when it becomes invalid."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

import pytest

from pessoa.log.partition_log import ReadUpTo
from tests.support.batches import NOW_MS, abort, offsets, plain, transactional
from tests.support.partition_logs import EVERY_BATCH, Home, produce

if TYPE_CHECKING:
    from pessoa.log.partition_log import PartitionLog
    from pessoa.log.simulated_disk import SimulatedDisk

EVERYTHING = 1 << 20


def fetched(log: PartitionLog, offset: int, up_to: ReadUpTo = ReadUpTo.LOG_END, max_bytes: int = EVERYTHING) -> bytes:
    data = log.read(offset, max_bytes, up_to).data
    return b"" if data is None else data.read()


@pytest.mark.parametrize("up_to", list(ReadUpTo))
def test_a_read_from_the_previous_log_end_finds_new_batches_without_an_index_lookup(
    shaky: Home, monkeypatch: pytest.MonkeyPatch, up_to: ReadUpTo
) -> None:
    log = shaky.open()
    for _ in range(5):
        produce(log, plain(3))
        log.update_high_watermark(log.log_end_offset)
    assert log.read(15, EVERYTHING, up_to).data is None
    for _ in range(2):
        produce(log, plain(3))
    log.update_high_watermark(log.log_end_offset)
    # What the fetch of committed records asks once, it asks here.
    assert not log.active.has_aborted_transactions
    monkeypatch.setattr(type(log.active), "find", lambda *_: pytest.fail("it was looked for"))
    assert offsets(fetched(log, 15, up_to)) == [(15, 17), (18, 20)]
    # And so does who was busy with those and comes back late.
    produce(log, plain(3))
    log.update_high_watermark(log.log_end_offset)
    assert offsets(fetched(log, 21, up_to)) == [(21, 23)]


def test_a_read_limited_by_max_bytes_begins_with_a_whole_batch(shaky: Home) -> None:
    log = shaky.open()
    produce(log, plain())
    assert log.read(1, EVERYTHING, ReadUpTo.LOG_END).data is None
    produce(log, plain(size=400))
    produce(log, plain(size=400))
    assert len(fetched(log, 1, max_bytes=10)) == 400
    assert len(fetched(log, 1, max_bytes=800)) == 800
    assert len(fetched(log, 1, max_bytes=500)) == 500


def test_a_read_committed_read_returns_an_aborted_transaction_as_soon_as_its_marker_is_appended(shaky: Home) -> None:
    log = shaky.open()
    produce(log, plain())
    log.update_high_watermark(1)
    assert log.read(0, EVERYTHING, ReadUpTo.LAST_STABLE_OFFSET).aborted == ()
    log.append_as_follower(transactional(9, 0, 2, at=1, epoch=0), NOW_MS)
    log.append_as_follower(abort(9, at=3, epoch=0), NOW_MS)
    log.update_high_watermark(4)
    aborted = log.read(0, EVERYTHING, ReadUpTo.LAST_STABLE_OFFSET).aborted
    assert [(one.producer_id, one.first_offset) for one in aborted] == [(9, 1)]


@pytest.mark.parametrize("seed", range(12))
def test_a_read_with_cached_read_positions_returns_the_same_as_one_without(simulated: SimulatedDisk, seed: int) -> None:
    rng = Random(seed)
    log = Home(simulated, "/data/orders-0").open(EVERY_BATCH.but(segment_bytes=2000, index_interval_bytes=600))
    for _ in range(300):
        match rng.randrange(12):
            case 0:
                log.truncate_to(rng.randint(log.log_start_offset, log.log_end_offset), NOW_MS)
                log.high_watermark = min(log.high_watermark, log.log_end_offset)
            case 1:
                log.roll(NOW_MS)
            case 2 | 3 | 4 | 5:
                produce(log, plain(rng.randint(1, 3), size=rng.choice((200, 300, 700))))
            case 6 | 7:
                log.update_high_watermark(rng.randint(log.high_watermark, log.log_end_offset))
            case _:
                offset = rng.choice((log.log_end_offset, log.high_watermark, rng.randint(0, log.log_end_offset)))
                question = (offset, rng.choice((0, 250, 900, EVERYTHING)), rng.choice(list(ReadUpTo)))
                found = log.read(*question)
                log.read(*question)
                again = log.read(*question)
                kept, log._ends = log._ends, None
                fresh = log.read(*question)
                log._ends = kept
                assert found == again == fresh, (seed, question)
