"""Control records, compared with batches that Apache Kafka 4.3 wrote (tests/conformance checks it again)."""

from __future__ import annotations

import pytest

from pessoa.base.ids import Uuid
from pessoa.records.batch import RecordBatch
from pessoa.records.builder import build_batch
from pessoa.records.control_records import (
    ControlRecord,
    ControlRecordType,
    QuorumMessage,
    build_quorum_batch,
    build_transaction_marker,
    control_records,
    read_control_record,
    read_control_type,
)
from pessoa.records.invalid_batch import InvalidBatch
from pessoa.records.record import Record
from pessoa.wire.errors import ErrorCode
from pessoa.wire.stored.control_record_bodies import (
    Endpoint,
    EndTxnMarker,
    KRaftVersionFeature,
    KRaftVersionRecord,
    LeaderChangeMessage,
    SnapshotFooterRecord,
    SnapshotHeaderRecord,
    Voter,
    VotersRecord,
    VotersRecordVoter,
)

COMMIT_BYTES = bytes.fromhex(
    "0000000000000003 00000042 00000007 02 885eaaf0 0030 00000000 000000000000000b 000000000000000b"
    "0000000000000005 0002 ffffffff 00000001"
    "20 00 00 00 08 0000 0001 0c 0000 00000009 00"
)


def test_a_commit_marker_has_apaches_bytes() -> None:
    marker = build_transaction_marker(
        ControlRecordType.COMMIT,
        producer_id=5,
        producer_epoch=2,
        coordinator_epoch=9,
        timestamp=11,
        base_offset=3,
        partition_leader_epoch=7,
    )
    assert bytes(marker) == COMMIT_BYTES


def test_a_commit_marker_is_decoded() -> None:
    batch = RecordBatch(COMMIT_BYTES)
    assert (batch.is_control, batch.is_transactional, batch.base_sequence) == (True, True, -1)
    assert list(control_records(batch)) == [
        ControlRecord(3, 11, ControlRecordType.COMMIT, EndTxnMarker(coordinator_epoch=9))
    ]


def test_an_abort_marker_differs_from_a_commit_marker_in_its_type() -> None:
    marker = build_transaction_marker(
        ControlRecordType.ABORT, producer_id=5, producer_epoch=2, coordinator_epoch=9, timestamp=11
    )
    (record,) = control_records(RecordBatch(marker))
    assert record.type is ControlRecordType.ABORT


def test_a_leader_change_does_not_end_a_transaction() -> None:
    with pytest.raises(ValueError, match="LEADER_CHANGE"):
        build_transaction_marker(
            ControlRecordType.LEADER_CHANGE, producer_id=5, producer_epoch=2, coordinator_epoch=9, timestamp=11
        )


# What Apache wrote at offset 0 in leader epoch 0 at time 0; the rest of the header is the same in all of them.
QUORUM_RECORDS: list[tuple[QuorumMessage, ControlRecordType, str]] = [
    (
        LeaderChangeMessage(version=0, leader_id=1, voters=[Voter(voter_id=1)], granting_voters=[Voter(voter_id=1)]),
        ControlRecordType.LEADER_CHANGE,
        "3a 00 00 00 08 0000 0002 26 0000 00000001 02 00000001 00 02 00000001 00 00 00",
    ),
    (
        SnapshotHeaderRecord(version=0, last_contained_log_timestamp=77),
        ControlRecordType.SNAPSHOT_HEADER,
        "2a 00 00 00 08 0000 0003 16 0000 000000000000004d 00 00",
    ),
    (
        SnapshotFooterRecord(version=0),
        ControlRecordType.SNAPSHOT_FOOTER,
        "1a 00 00 00 08 0000 0004 06 0000 00 00",
    ),
    (
        KRaftVersionRecord(version=0, kraft_version=1),
        ControlRecordType.KRAFT_VERSION,
        "1e 00 00 00 08 0000 0005 0a 0000 0001 00 00",
    ),
    (
        VotersRecord(
            version=0,
            voters=[
                VotersRecordVoter(
                    voter_id=1,
                    voter_directory_id=Uuid.of(1),
                    endpoints=[Endpoint(name="C", host="h", port=9093)],
                    kraft_version_feature=KRaftVersionFeature(min_supported_version=0, max_supported_version=1),
                )
            ],
        ),
        ControlRecordType.KRAFT_VOTERS,
        (
            "60 00 00 00 08 0000 0006 4c 0000 02 00000001 00000000000000000000000000000001 02 02 43 02 68 2385 00"
            "0000 0001 00 00 00 00"
        ),
    ),
]


@pytest.mark.parametrize(
    ("message", "control_type", "expected"), QUORUM_RECORDS, ids=[case[1].name for case in QUORUM_RECORDS]
)
def test_a_quorum_control_record_has_apaches_bytes_and_is_decoded(
    message: QuorumMessage, control_type: ControlRecordType, expected: str
) -> None:
    data = build_quorum_batch([message], timestamp=0, partition_leader_epoch=0)
    assert data[61:] == bytes.fromhex(expected)
    batch = RecordBatch(data)
    assert batch.is_control
    assert not batch.is_transactional
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (-1, -1, -1)
    assert batch.partition_leader_epoch == 0
    assert list(control_records(batch)) == [ControlRecord(0, 0, control_type, message)]


def test_several_quorum_control_records_share_a_batch() -> None:
    messages = [case[0] for case in QUORUM_RECORDS]
    batch = RecordBatch(build_quorum_batch(messages, timestamp=8, base_offset=40, partition_leader_epoch=3))
    read = list(control_records(batch))
    assert [record.message for record in read] == messages
    assert [record.offset for record in read] == [40, 41, 42, 43, 44]
    assert {record.timestamp for record in read} == {8}


def test_a_leader_change_of_version_1_names_the_directories_of_the_voters() -> None:
    voter = Voter(voter_id=1, voter_directory_id=Uuid.of(200))
    message = LeaderChangeMessage(version=1, leader_id=1, voters=[voter], granting_voters=[voter])
    (record,) = control_records(RecordBatch(build_quorum_batch([message], timestamp=0)))
    assert record.message == message


class TestReading:
    COMMIT_KEY = b"\0\0\0\x01"
    HEADER_KEY = b"\0\0\0\x03"

    def test_an_unknown_control_record_type_is_skipped(self) -> None:
        record = Record(5, 6, b"\0\0\0\x63", b"opaque")
        assert read_control_record(record) == ControlRecord(5, 6, None, None)

    def test_the_type_of_a_control_record_key_of_a_newer_version_is_read(self) -> None:
        assert read_control_type(b"\0\x07\0\x01more") is ControlRecordType.COMMIT

    def test_a_control_record_value_of_a_newer_version_is_skipped(self) -> None:
        record = Record(5, 6, self.HEADER_KEY, b"\0\x07 opaque")
        assert read_control_record(record) == ControlRecord(5, 6, ControlRecordType.SNAPSHOT_HEADER, None)

    def test_a_transaction_marker_of_a_newer_version_is_read_by_its_first_field(self) -> None:
        record = Record(5, 6, self.COMMIT_KEY, b"\0\x07\0\0\0\x09 and more")
        assert read_control_record(record).message == EndTxnMarker(coordinator_epoch=9)

    @pytest.mark.parametrize("key", [None, b"", b"\0\0\0", b"\xff\xff\0\x01"])
    def test_a_malformed_control_record_key_is_refused(self, key: bytes | None) -> None:
        with pytest.raises(InvalidBatch) as refusal:
            read_control_record(Record(0, 0, key, b"\0\0\0\0\0\x09"))
        assert refusal.value.error is ErrorCode.INVALID_RECORD

    @pytest.mark.parametrize("key", [COMMIT_KEY, HEADER_KEY])
    @pytest.mark.parametrize(
        "value", [None, b"", b"\0", b"\0\0", b"\0\0\0", b"\xff\xff\0\0\0\x09", b"\0\0" + b"\0" * 30]
    )
    def test_a_malformed_control_record_value_is_refused(self, key: bytes, value: bytes | None) -> None:
        with pytest.raises(InvalidBatch) as refusal:
            read_control_record(Record(0, 0, key, value))
        assert refusal.value.error is ErrorCode.INVALID_RECORD

    @pytest.mark.parametrize(("message", "control_type", "expected"), QUORUM_RECORDS)
    def test_a_control_record_value_truncated_anywhere_is_refused(
        self, message: QuorumMessage, control_type: ControlRecordType, expected: str
    ) -> None:
        value = message.encode(0)
        for size in range(len(value)):
            with pytest.raises(InvalidBatch) as refusal:
                read_control_record(Record(0, 0, b"\0\0\0" + bytes([control_type]), value[:size]))
            assert refusal.value.error is ErrorCode.INVALID_RECORD

    def test_reading_control_records_of_a_data_batch_is_an_assertion_error(self) -> None:
        with pytest.raises(AssertionError, match="not a control batch"):
            control_records(RecordBatch(build_batch([Record(0, 0, None, b"v")])))
