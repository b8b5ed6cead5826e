"""The judge itself: it agrees with bytes written by hand, and refuses invalid ones."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.apache.judge import Judge, JudgeError

pytestmark = pytest.mark.apache

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
# ApiVersionsRequest v3: two compact strings and no tagged fields.
API_VERSIONS_REQUEST = b"\x05name" + b"\x041.0" + b"\x00"


@pytest.fixture(scope="module")
def judge() -> Iterator[Judge]:
    with Judge() as judge:
        yield judge


def test_the_judge_decodes_a_message_to_json_and_encodes_it_to_the_same_bytes(judge: Judge) -> None:
    data, json = judge.roundtrip("ApiVersionsRequest", 3, API_VERSIONS_REQUEST)
    assert data == API_VERSIONS_REQUEST
    assert json == {"clientSoftwareName": "name", "clientSoftwareVersion": "1.0"}


def test_the_judge_decodes_a_message_of_zero_bytes(judge: Judge) -> None:
    assert judge.roundtrip("ApiVersionsRequest", 0, b"") == (b"", {})


@pytest.mark.parametrize(
    ("name", "version", "data", "error"),
    [
        ("ApiVersionsRequest", 3, API_VERSIONS_REQUEST + b"\x00", "1 bytes are left over"),
        ("ApiVersionsRequest", 3, API_VERSIONS_REQUEST[:4], "only 3 byte"),
        ("ApiVersionsRequest", 99, b"", "Apache has versions 0 to 4"),
        ("NoSuchRequest", 0, b"", "Apache has no message NoSuchRequest"),
    ],
)
def test_the_judge_refuses_wrong_bytes_unknown_versions_and_unknown_messages(
    judge: Judge, name: str, version: int, data: bytes, error: str
) -> None:
    with pytest.raises(JudgeError, match=error):
        judge.roundtrip(name, version, data)


def test_a_refusal_among_many_questions_to_the_judge_does_not_affect_the_others(judge: Judge) -> None:
    good, bad = ("ApiVersionsRequest", 3, API_VERSIONS_REQUEST), ("ApiVersionsRequest", 3, b"\xff")
    verdicts = judge.roundtrip_many([good, bad] * 5_000)
    assert [verdict.error is None for verdict in verdicts] == [True, False] * 5_000
    assert {verdict.data for verdict in verdicts[::2]} == {API_VERSIONS_REQUEST}


def test_a_message_is_translated_to_another_version_or_refused_with_apaches_exception(judge: Judge) -> None:
    # LeaveGroupRequest v3: a group, one member with an id and an instance id. Version 0 knows no instance id.
    one_member = b"\x00\x01g" + b"\x00\x00\x00\x01" + b"\x00\x01m" + b"\x00\x01i"
    to_the_same, to_the_oldest = judge.translate_many(
        [("LeaveGroupRequest", 3, 3, one_member), ("LeaveGroupRequest", 3, 0, one_member)]
    )
    assert (to_the_same.data, to_the_same.error) == (one_member, None)
    assert to_the_oldest.error is not None
    assert "UnsupportedVersionException" in to_the_oldest.error


def test_the_judge_lists_fields_with_their_defaults_and_nested_structs(judge: Judge) -> None:
    [fetch] = judge.fields(["FetchRequest"])
    assert fetch["maxBytes"] == {"default": 2_147_483_647}
    assert fetch["clusterId"] == {"default": None}
    partition = fetch["topics"]["of"]["partitions"]["of"]
    assert partition["currentLeaderEpoch"] == {"default": -1}
    assert fetch["forgottenTopicsData"]["of"]["partitions"] == {"default": []}


def test_the_judge_knows_messages_of_every_package(judge: Judge) -> None:
    versions = judge.versions()
    assert versions["FetchRequest"] == (4, 18)
    assert versions["RequestHeader"] == (1, 2)
    assert versions["ConsumerProtocolSubscription"] == (0, 3)
    assert versions["VotersRecord"] == (0, 0)
    for stored in (
        "TopicRecord",
        "OffsetCommitKey",
        "TransactionLogValue",
        "ShareSnapshotValue",
        "QuorumStateData",
        "ProducerSnapshot",
    ):
        assert stored in versions


@pytest.mark.parametrize("codec", CODECS)
def test_the_judge_reads_back_a_batch_that_it_wrote_with_any_codec(judge: Judge, codec: str) -> None:
    records: list[dict[str, object]] = [
        {"timestamp": 5, "key": b"k", "value": b"v" * 500, "headers": [("a", b"1"), ("b", None)]},
        {"timestamp": 7, "key": None, "value": None, "headers": []},
    ]
    batch = judge.write_batch(
        codec, records, baseOffset=10, producerId=4, producerEpoch=1, baseSequence=2, leaderEpoch=3
    )
    [read] = judge.read_batches(batch)
    assert read["codec"] == codec
    assert (read["baseOffset"], read["lastOffset"], read["leaderEpoch"]) == (10, 11, 3)
    assert (read["producerId"], read["producerEpoch"], read["baseSequence"]) == (4, 1, 2)
    assert [{key: record[key] for key in records[0]} for record in read["records"]] == records


def test_the_judge_reads_several_batches_and_refuses_a_truncated_one(judge: Judge) -> None:
    batch = judge.write_batch("none", [{"value": b"v"}])
    assert len(judge.read_batches(batch * 3)) == 3
    with pytest.raises(JudgeError, match="bytes are left over"):
        judge.read_batches(batch + batch[:-1])


def test_the_judge_refuses_a_batch_with_a_flipped_bit(judge: Judge) -> None:
    batch = bytearray(judge.write_batch("none", [{"value": b"v"}]))
    batch[-2] ^= 1
    with pytest.raises(JudgeError, match="corrupt"):
        judge.read_batches(bytes(batch))


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("COMMIT", {"coordinatorEpoch": 3}),
        ("ABORT", {"coordinatorEpoch": 4}),
        ("LEADER_CHANGE", {"version": 0, "leaderId": 1, "voters": [{"voterId": 1}], "grantingVoters": []}),
        ("SNAPSHOT_HEADER", {"version": 0, "lastContainedLogTimestamp": 9}),
        ("SNAPSHOT_FOOTER", {"version": 0}),
        ("KRAFT_VERSION", {"version": 0, "kRaftVersion": 1}),
        ("KRAFT_VOTERS", {"version": 0, "voters": []}),
    ],
)
def test_the_judge_writes_and_reads_control_batches(judge: Judge, kind: str, message: dict[str, object]) -> None:
    batch = judge.write_control_batch(
        kind, message, baseOffset=7, timestamp=5, leaderEpoch=2, producerId=1, producerEpoch=0
    )
    [read] = judge.read_batches(batch)
    assert read["isControl"]
    assert (read["baseOffset"], read["leaderEpoch"]) == (7, 2)
    [record] = read["records"]
    assert (record["controlType"], record["control"]) == (kind, message)


def test_a_question_to_a_killed_judge_fails_at_once(judge: Judge) -> None:
    with Judge() as mortal:
        mortal.kill()
        with pytest.raises(JudgeError, match="before it had answered everything"):
            mortal.versions()
