"""The checks of share acknowledgements and of stored share state report inconsistencies."""

from __future__ import annotations

import pytest

from pessoa.base.ids import Uuid
from pessoa.share.acknowledgement import AcknowledgeType
from pessoa.wire.stored.share_state_records import (
    ShareSnapshotKey,
    ShareSnapshotValue,
    ShareUpdateKey,
    ShareUpdateValue,
    ShareUpdateValueStateBatch,
    StateBatch,
)
from tests.simulation.history import TopicPartition, Violation
from tests.simulation.share_ledger import ShareLedger, StoredShares

PARTITION = TopicPartition("t", 0)
TOPIC_ID = Uuid.of(1)
AVAILABLE, ACKNOWLEDGED = 0, 2


def test_the_ledger_reports_a_record_that_no_member_has_accepted_or_rejected_as_lost() -> None:
    ledger = ShareLedger([PARTITION], 2)
    ledger.deliver("a", PARTITION, 0, 1)
    ledger.ask(PARTITION, {0: AcknowledgeType.ACCEPT, 1: AcknowledgeType.RELEASE})
    ledger.check_complete(PARTITION, [0], set(), [{}])
    ledger.check_complete(PARTITION, [0, 1], {1}, [{}])
    with pytest.raises(Violation, match=r"lost: .* t-0@1, which was delivered 0 times"):
        ledger.check_complete(PARTITION, [0, 1], set(), [{}])


def test_the_ledger_reports_deliveries_beyond_the_limit_after_what_each_leader_loaded() -> None:
    ledger = ShareLedger([PARTITION], 2)
    for count in (1, 2, 2):
        ledger.deliver("a", PARTITION, 0, count)
    ledger.ask(PARTITION, {0: AcknowledgeType.ACCEPT})
    ledger.check_complete(PARTITION, [0], set(), [{}, {0: 1}])
    too_few: tuple[list[dict[int, int]], ...] = ([{}], [{}, {0: 2}])
    for loads in too_few:
        with pytest.raises(Violation, match=r"delivered 3 times, .* leaders that loaded \[0"):
            ledger.check_complete(PARTITION, [0], set(), loads)
    with pytest.raises(Violation, match="as delivery 3"):
        ledger.deliver("a", PARTITION, 0, 3)


def snapshot(start_offset: int, leader_epoch: int = 0, state_epoch: int = 0, *done: int) -> ShareSnapshotValue:
    return ShareSnapshotValue(
        snapshot_epoch=0,
        state_epoch=state_epoch,
        leader_epoch=leader_epoch,
        start_offset=start_offset,
        delivery_complete_count=0,
        create_timestamp=0,
        write_timestamp=0,
        state_batches=[
            StateBatch(first_offset=one, last_offset=one, delivery_state=ACKNOWLEDGED, delivery_count=1) for one in done
        ],
    )


def update(start_offset: int, leader_epoch: int = 0, *done: int) -> ShareUpdateValue:
    return ShareUpdateValue(
        snapshot_epoch=0,
        leader_epoch=leader_epoch,
        start_offset=start_offset,
        delivery_complete_count=0,
        state_batches=[
            ShareUpdateValueStateBatch(first_offset=one, last_offset=one, delivery_state=ACKNOWLEDGED, delivery_count=1)
            for one in done
        ],
    )


def stored(*values: ShareSnapshotValue | ShareUpdateValue) -> StoredShares:
    shares = StoredShares()
    for value in values:
        kind = ShareSnapshotKey if isinstance(value, ShareSnapshotValue) else ShareUpdateKey
        shares.commit(kind(group_id="g", topic_id=TOPIC_ID, partition=0), value)
    return shares


def test_the_ledger_allows_a_start_offset_that_an_old_write_names_again() -> None:
    share = stored(snapshot(-1), update(3), update(0, 0, 1, 5)).get("g", 0)
    assert share is not None
    assert (share.start_offset, sorted(share.marks)) == (3, [5])
    assert [offset for offset in range(8) if share.is_done(offset)] == [0, 1, 2, 5]


@pytest.mark.parametrize(
    ("value", "complaint"),
    [
        (snapshot(2, 1, 0, 5), "start offset .* back from 3 to 2"),
        (snapshot(3, 1), "forgets that 5 was"),
        (snapshot(3, 0, 0, 5), "leader epoch .* back from 1 to 0"),
        (update(3, 0), "leader epoch .* back from 1 to 0"),
        (snapshot(-1, 0, -1), "state epoch .* back"),
    ],
)
def test_the_ledger_reports_stored_state_that_goes_back(
    value: ShareSnapshotValue | ShareUpdateValue, complaint: str
) -> None:
    with pytest.raises(Violation, match=complaint):
        stored(snapshot(-1), update(3, 1, 5), value)


def test_the_ledger_begins_with_new_state_at_a_new_state_epoch() -> None:
    share = stored(snapshot(0), update(3, 1, 5), snapshot(1, 0, 1)).get("g", 0)
    assert share is not None
    assert (share.start_offset, share.marks) == (1, {})
