"""How stored records have their type and version: in the metadata log, and in keys and values of coordinators."""

from __future__ import annotations

import pytest

from pessoa.base.ids import Uuid
from pessoa.wire.errors import ProtocolViolation
from pessoa.wire.schema import Message
from pessoa.wire.stored.group_records import GroupMetadataKey, OffsetCommitKey, OffsetCommitValue
from pessoa.wire.stored.metadata_records import NoOpRecord, TopicRecord
from pessoa.wire.stored.record_framing import (
    GROUP_LOG,
    MODULES,
    SHARE_LOG,
    TRANSACTION_LOG,
    decode_coordinator_key,
    decode_coordinator_value,
    decode_metadata_record,
    encode_coordinator_key,
    encode_coordinator_value,
    encode_metadata_record,
)
from pessoa.wire.stored.share_state_records import ShareUpdateKey
from pessoa.wire.stored.transaction_records import TransactionLogKey, TransactionLogValue

TOPIC = TopicRecord(name="t", topic_id=Uuid.of(1))
OFFSET_KEY = OffsetCommitKey(group="g", topic="t", partition=2)
OFFSET_VALUE = OffsetCommitValue(offset=5, metadata="", commit_timestamp=7)


def test_a_metadata_record_has_frame_version_type_and_version_before_it() -> None:
    data = bytes.fromhex("01 02 00" + "02 74" + "00" * 15 + "01" + "00")
    assert encode_metadata_record(TOPIC, 0) == data
    assert decode_metadata_record(data) == TOPIC


def test_a_metadata_record_with_nothing_in_it_still_has_tagged_fields() -> None:
    assert encode_metadata_record(NoOpRecord(), 0).hex(" ") == "01 14 00 00"
    assert decode_metadata_record(bytes.fromhex("01 14 00 00")) == NoOpRecord()


@pytest.mark.parametrize("data", ["01 7f 00", "01 80 01 00", "01 02 05 00", "01 ff ff ff ff 0f 00"])
def test_decoding_a_metadata_record_of_an_unknown_type_or_version_returns_none(data: str) -> None:
    assert decode_metadata_record(bytes.fromhex(data)) is None


@pytest.mark.parametrize("version", ["00", "02", "80 01"])
def test_a_metadata_record_in_another_frame_version_is_a_violation(version: str) -> None:
    with pytest.raises(ProtocolViolation, match="frame version"):
        decode_metadata_record(bytes.fromhex(version + "14 00 00"))


@pytest.mark.parametrize("cut", range(3))
def test_a_metadata_record_that_ends_within_its_frame_header_is_a_violation(cut: int) -> None:
    with pytest.raises(ProtocolViolation, match="ends within its frame"):
        decode_metadata_record(encode_metadata_record(TOPIC, 0)[:cut])


def test_a_metadata_record_with_bytes_left_over_or_missing_is_a_violation() -> None:
    data = encode_metadata_record(TOPIC, 0)
    for wrong in (data + b"\x00", data[:-1], data[:3]):
        with pytest.raises(ProtocolViolation):
            decode_metadata_record(wrong)


def test_a_coordinator_key_has_its_type_before_it_and_no_version() -> None:
    data = bytes.fromhex("0001 0001 67 0001 74 00000002")
    assert encode_coordinator_key(OFFSET_KEY) == data
    assert decode_coordinator_key(GROUP_LOG, data) == OFFSET_KEY


def test_a_coordinator_value_has_its_version_before_it() -> None:
    data = bytes.fromhex("0003 0000000000000005 ffffffff 0000 0000000000000007")
    assert encode_coordinator_value(OFFSET_VALUE, 3) == data
    assert decode_coordinator_value(GROUP_LOG, OFFSET_KEY, data) == OFFSET_VALUE


def test_the_same_key_type_has_another_meaning_in_each_coordinator_log() -> None:
    assert decode_coordinator_key(GROUP_LOG, bytes.fromhex("0002 0001 67")) == GroupMetadataKey(group="g")
    assert decode_coordinator_key(TRANSACTION_LOG, bytes.fromhex("0000 0001 67")) == TransactionLogKey(
        transactional_id="g"
    )
    share = bytes.fromhex("0001 0001 67" + "00" * 15 + "01" + "00000003")
    assert decode_coordinator_key(SHARE_LOG, share) == ShareUpdateKey(group_id="g", topic_id=Uuid.of(1), partition=3)


def test_a_transaction_value_survives_both_its_versions() -> None:
    key = TransactionLogKey(transactional_id="x")
    value = TransactionLogValue(
        producer_id=1,
        producer_epoch=2,
        transaction_timeout_ms=3,
        transaction_status=4,
        transaction_partitions=None,
        transaction_last_update_timestamp_ms=5,
        transaction_start_timestamp_ms=6,
    )
    for version in (0, 1):
        data = encode_coordinator_value(value, version)
        assert decode_coordinator_value(TRANSACTION_LOG, key, data) == value


@pytest.mark.parametrize("log", [GROUP_LOG, TRANSACTION_LOG, SHARE_LOG])
@pytest.mark.parametrize("number", [99, 0x7FFF, -1])
def test_decoding_a_key_of_an_unknown_type_returns_none(log: str, number: int) -> None:
    assert decode_coordinator_key(log, number.to_bytes(2, "big", signed=True) + b"anything") is None


@pytest.mark.parametrize("version", [5, 0x7FFF, -1])
def test_decoding_a_value_of_an_unknown_version_returns_none(version: int) -> None:
    data = version.to_bytes(2, "big", signed=True) + b"anything"
    assert decode_coordinator_value(GROUP_LOG, OFFSET_KEY, data) is None


@pytest.mark.parametrize("data", [b"", b"\x00"])
def test_a_record_too_short_for_its_type_is_a_violation(data: bytes) -> None:
    with pytest.raises(ProtocolViolation, match="has no type"):
        decode_coordinator_key(GROUP_LOG, data)
    with pytest.raises(ProtocolViolation, match="has no type"):
        decode_coordinator_value(GROUP_LOG, OFFSET_KEY, data)


def test_a_key_or_value_with_bytes_left_over_or_missing_is_a_violation() -> None:
    key, value = encode_coordinator_key(OFFSET_KEY), encode_coordinator_value(OFFSET_VALUE, 3)
    for wrong in (key + b"\x00", key[:-1], key[:2]):
        with pytest.raises(ProtocolViolation):
            decode_coordinator_key(GROUP_LOG, wrong)
    for wrong in (value + b"\x00", value[:-1], value[:2]):
        with pytest.raises(ProtocolViolation):
            decode_coordinator_value(GROUP_LOG, OFFSET_KEY, wrong)


@pytest.mark.parametrize("log", [GROUP_LOG, TRANSACTION_LOG, SHARE_LOG])
def test_every_key_has_a_value_of_its_own_type(log: str) -> None:
    # A tombstone is a null value: it has no bytes, so it is the caller who meets it and no decoder.
    from importlib import import_module

    declared = [
        value
        for module in MODULES[log]
        for value in vars(import_module(module)).values()
        if isinstance(value, type) and issubclass(value, Message) and value is not Message
    ]
    keys = {kind.api_key: kind for kind in declared if kind.__name__.endswith("Key")}
    values = {kind.api_key: kind for kind in declared if kind.__name__.endswith("Value")}
    assert len(keys) + len(values) == len(declared)
    assert {number: kind.__name__.removesuffix("Key") for number, kind in keys.items()} == {
        number: kind.__name__.removesuffix("Value") for number, kind in values.items()
    }
    assert all(list(kind.versions.each()) == [0] for kind in keys.values())
