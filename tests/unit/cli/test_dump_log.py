"""Our kafka-dump-log; tests/differential/test_log_against_apache.py compares it with Apache's."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path
from struct import pack

import pytest

from pessoa.cli.dump_log.dump_log import main
from pessoa.cli.dump_log.message_json import as_json, json_text
from pessoa.log.aborted_transactions import AbortedTransaction, encode_aborted_transaction
from pessoa.log.producer_entry import BatchMetadata, ProducerStateEntry
from pessoa.log.producer_snapshot_format import encode_snapshot
from pessoa.records.batch import RecordBatch
from pessoa.records.builder import build_batch
from pessoa.records.compression import Codec
from pessoa.records.control_records import ControlRecordType, build_transaction_marker
from pessoa.records.record import Record
from pessoa.wire.stored.group_records import GroupMetadataKey, GroupMetadataValue, MemberMetadata
from pessoa.wire.stored.metadata_records import NoOpRecord
from pessoa.wire.stored.record_framing import encode_coordinator_key, encode_coordinator_value, encode_metadata_record

ROOT = Path(__file__).resolve().parents[3]
NAME = "00000000000000000005"


def segment(directory: Path, *batches: bytes | bytearray) -> Path:
    path = directory / f"{NAME}.log"
    path.write_bytes(b"".join(batches))
    return path


def batch_at(offset: int, *values: bytes | None, **options: object) -> bytearray:
    made = [Record(offset + delta, 1000 + delta, b"k", value) for delta, value in enumerate(values)]
    return build_batch(made, partition_leader_epoch=2, **options)  # type: ignore[arg-type]


def crc_of(batch: bytes | bytearray) -> int:
    return RecordBatch(batch).crc


def test_every_batch_is_one_line_and_with_print_data_log_every_record_is_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = build_batch(
        [Record(5, 1000, None, b"v\xff", (("a", b"1"), ("b", None))), Record(6, 1004, b"k", None)],
        codec=Codec.ZSTD,
        producer_id=7,
        producer_epoch=1,
        base_sequence=2**31 - 1,
        partition_leader_epoch=3,
    )
    marker = build_transaction_marker(
        ControlRecordType.ABORT, producer_id=7, producer_epoch=1, coordinator_epoch=9, timestamp=1005, base_offset=7
    )
    path = segment(tmp_path, data, marker)
    assert main(["--files", str(path), "--print-data-log"]) == 0
    captured = capsys.readouterr()
    assert captured.out.splitlines() == [
        f"Dumping {path}",
        "Log starting offset: 5",
        (
            "baseOffset: 5 lastOffset: 6 count: 2 baseSequence: 2147483647 lastSequence: 0 producerId: 7"
            " producerEpoch: 1"
            " partitionLeaderEpoch: 3 isTransactional: false isControl: false deleteHorizonMs: OptionalLong.empty"
            f" position: 0 CreateTime: 1004 size: {len(data)} magic: 2 compresscodec: zstd crc: {crc_of(data)}"
            " isvalid: true"
        ),
        "| offset: 5 CreateTime: 1000 keySize: -1 valueSize: 2 sequence: 2147483647 headerKeys: [a,b] payload: v�",
        "| offset: 6 CreateTime: 1004 keySize: 1 valueSize: -1 sequence: 0 headerKeys: [] key: k",
        (
            "baseOffset: 7 lastOffset: 7 count: 1 baseSequence: -1 lastSequence: -1 producerId: 7 producerEpoch: 1"
            " partitionLeaderEpoch: -1 isTransactional: true isControl: true deleteHorizonMs: OptionalLong.empty"
            f" position: {len(data)} CreateTime: 1005 size: 78 magic: 2 compresscodec: none crc: {crc_of(marker)}"
            " isvalid: true"
        ),
        (
            "| offset: 7 CreateTime: 1005 keySize: 4 valueSize: 6 sequence: -1 headerKeys: [] endTxnMarker: ABORT"
            " coordinatorEpoch: 9"
        ),
    ]
    assert captured.err.splitlines() == [f"Non-consecutive offsets in {path}", "  -1 is followed by 5"]


def test_batches_alone_are_printed_unless_records_are_asked_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = segment(tmp_path, batch_at(5, b"a", b"b", delete_horizon_ms=900))
    main(["--files", str(path)])
    shallow = capsys.readouterr().out
    assert len(shallow.splitlines()) == 3
    assert "deleteHorizonMs: OptionalLong[900]" in shallow
    main(["--files", str(path), "--deep-iteration"])
    deep = capsys.readouterr().out
    assert [line.count("payload") for line in deep.splitlines()] == [0] * 5
    main(["--files", str(path), "--print-data-log", "--skip-record-metadata"])
    assert capsys.readouterr().out.splitlines()[3:] == ["| key: k payload: a", "| key: k payload: b"]


def test_an_option_may_be_shortened_and_a_decoder_may_come_without_its_class(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = segment(tmp_path, batch_at(5, b"a"))
    assert main(["--print", "--files", str(path)]) == 0
    printed = capsys.readouterr().out
    assert main([f"--files={path}", "--value-decoder-class"]) == 0
    assert capsys.readouterr().out == printed
    assert "key: k payload: a" in printed


def test_decoders_turn_bytes_into_numbers_and_hex(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = segment(tmp_path, batch_at(5, pack(">q", -2)))
    classes = ["--key-decoder-class", "DefaultDecoder", "--value-decoder-class", "kafka.serializer.LongDecoder"]
    assert main(["--files", str(path), *classes]) == 0
    assert capsys.readouterr().out.splitlines()[-1].endswith("key: 6b payload: -2")
    assert main(["--files", str(path), "--key-decoder-class", "IntegerDecoder"]) == 1
    assert "a number of 4 bytes was expected, and a record has only 1: 6b" in capsys.readouterr().err
    assert main(["--files", str(path), "--key-decoder-class", "com.example.Mine"]) == 1
    assert "there is no decoder com.example.Mine; the known ones are StringDecoder" in capsys.readouterr().err


def test_max_bytes_ends_the_dump_before_a_batch_that_does_not_fit(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = batch_at(5, b"a")
    path = segment(tmp_path, first, batch_at(6, b"b"))
    main(["--files", str(path), "--max-bytes", str(2 * len(first) - 1)])
    assert [line for line in capsys.readouterr().out.splitlines() if "baseOffset" in line][-1].startswith(
        "baseOffset: 5 "
    )


def test_an_incomplete_batch_at_the_end_is_counted_and_a_wrong_checksum_is_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    damaged = batch_at(5, b"a")
    damaged[-2] ^= 1
    path = segment(tmp_path, damaged, batch_at(6, b"b")[:-1])
    assert main(["--files", str(path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[2].endswith("isvalid: false")
    assert lines[3] == f"Found {len(damaged) - 1} invalid bytes at the end of {path.name}"


@pytest.mark.parametrize(
    ("garbage", "problem"),
    [
        (bytes(100), "this is a message of format 0"),
        (bytes(16) + b"\x07" + bytes(100), "no record batch has the magic byte 7"),
        (bytes(8) + b"\xff\xff\xff\xf0" + bytes(4) + b"\x02" + bytes(100), "the batch says it has -4 bytes"),
    ],
)
def test_bytes_that_are_no_batch_end_the_dump_with_an_error_message(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], garbage: bytes, problem: str
) -> None:
    first = batch_at(5, b"a")
    path = segment(tmp_path, first, garbage)
    assert main(["--files", str(path)]) == 1
    captured = capsys.readouterr()
    assert captured.out.splitlines()[-1].startswith("baseOffset: 5 ")
    assert captured.err.startswith(f"kafka-dump-log: {path}, position {len(first)}: {problem}")


def test_a_damaged_record_is_named_by_the_position_of_its_batch(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    damaged = batch_at(5, b"a")
    damaged[61] = 0x7E
    path = segment(tmp_path, damaged)
    assert main(["--files", str(path), "--deep-iteration"]) == 1
    assert f"{path}, in the batch at position 0: a record claims 63 bytes" in capsys.readouterr().err


def test_offset_index_entries_that_contradict_the_log_are_reported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = batch_at(5, b"a", b"b")
    segment(tmp_path, first, batch_at(7, b"c"), batch_at(8, b"d"))
    index = tmp_path / f"{NAME}.index"
    # The last entry is room that was made and not used.
    index.write_bytes(pack(">iiiiii", 1, 0, 4, len(first), 0, 0))
    assert main(["--files", str(index)]) == 0
    captured = capsys.readouterr()
    assert captured.out.splitlines() == [
        f"Dumping {index}",
        "offset: 6 position: 0",
        f"offset: 9 position: {len(first)}",
    ]
    assert captured.err.splitlines() == [f"Mismatches in :{index}", "  Index offset: 9, log offset: 7"]
    assert main(["--files", str(index), "--verify-index-only"]) == 0
    assert capsys.readouterr().out.splitlines() == [f"Dumping {index}"]
    assert main(["--files", str(index), "--max-message-size", "20"]) == 1
    assert "entry 0: the batch has" in capsys.readouterr().err
    index.write_bytes(b"")
    assert main(["--files", str(index)]) == 0
    assert capsys.readouterr().out.splitlines()[1] == f"{index} is empty."


@pytest.mark.parametrize(
    ("position", "problem"), [(100_000, "it points behind the end of the log"), (3, "it points to no batch")]
)
def test_an_index_entry_with_a_position_outside_the_log_ends_the_dump(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], position: int, problem: str
) -> None:
    segment(tmp_path, batch_at(5, b"a"))
    index = tmp_path / f"{NAME}.index"
    index.write_bytes(pack(">ii", 1, position))
    assert main(["--files", str(index)]) == 1
    assert capsys.readouterr().err == f"kafka-dump-log: {index}, entry 0: {problem}\n"


def test_time_index_entries_that_contradict_the_log_are_reported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    segment(tmp_path, batch_at(5, b"a", b"b"), batch_at(7, b"c"), batch_at(8, b"d", b"e"))
    index = tmp_path / f"{NAME}.timeindex"
    entries = ((1001, 1), (1005, 2), (1000, 3), (1001, 4), (1002, 9))
    index.write_bytes(b"".join(pack(">qi", *entry) for entry in entries))
    assert main(["--files", str(index)]) == 0
    captured = capsys.readouterr()
    assert captured.out.splitlines()[1:] == [
        f"timestamp: {timestamp} offset: {5 + relative}" for timestamp, relative in entries
    ]
    assert captured.err.splitlines() == [
        f"Found timestamp mismatch in :{index}",
        "  Index timestamp: 1005, log timestamp: 1000",
        f"The following indexed offsets are not found in :{index}",
        "Indexed offset: 8, found log offset: 9",
        "Indexed offset: 14, found log offset: -1",
    ]


def test_a_time_index_that_goes_back_is_out_of_order(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    segment(tmp_path, batch_at(5, b"a", b"b"), batch_at(7, b"c"))
    index = tmp_path / f"{NAME}.timeindex"
    index.write_bytes(pack(">qi", 1000, 2) + pack(">qi", 1001, 1) + pack(">qi", 1000, 2))
    assert main(["--files", str(index)]) == 0
    assert capsys.readouterr().err.splitlines() == [
        f"Found out of order timestamp in :{index}",
        "  Index timestamp: 1000, Previously indexed timestamp: 1001",
    ]


def test_index_sanity_check_makes_the_checks_of_a_starting_broker(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    segment(tmp_path, batch_at(5, b"a"))
    index, times = tmp_path / f"{NAME}.index", tmp_path / f"{NAME}.timeindex"
    index.write_bytes(pack(">ii", 3, 1))
    times.write_bytes(pack(">qi", 9, 3))
    check = ["--index-sanity-check", "--files"]
    assert main([*check, f"{index},{times}"]) == 0
    assert capsys.readouterr().out.splitlines()[1::2] == [f"{path} passed sanity check." for path in (index, times)]
    for path, data, problem in (
        (index, pack(">ii", 3, 1) + b"\0", "9 bytes are not a whole number of entries of 8"),
        (index, pack(">ii", -3, 1), "its last offset, 2, lies before its base offset 5"),
        (times, pack(">qi", 9, 3) + pack(">qi", 8, 4), "its last timestamp, 8, is older than its first, 9"),
    ):
        path.write_bytes(data)
        assert main([*check, str(path)]) == 1
        assert capsys.readouterr().err == f"kafka-dump-log: {path}: {problem}\n"


def test_aborted_transactions_and_producers_are_printed_one_to_a_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    transactions, snapshot = tmp_path / f"{NAME}.txnindex", tmp_path / f"{NAME}.snapshot"
    transactions.write_bytes(encode_aborted_transaction(AbortedTransaction(7, 3, 8, 9)))
    entries = [
        ProducerStateEntry(7, 1, 2, 1000, 3, [BatchMetadata(4, 9, 2, 1000)]),
        ProducerStateEntry(8, 0, 5, 2000),
    ]
    snapshot.write_bytes(encode_snapshot(entries))
    assert main(["--files", f"{transactions},{snapshot}"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        f"Dumping {transactions}",
        "version: 0 producerId: 7 firstOffset: 3 lastOffset: 8 lastStableOffset: 9",
        f"Dumping {snapshot}",
        (
            "producerId: 7 producerEpoch: 1 coordinatorEpoch: 2 currentTxnFirstOffset: OptionalLong[3]"
            " lastTimestamp: 1000 firstSequence: 2 lastSequence: 4 lastOffset: 9 offsetDelta: 2 timestamp: 1000"
        ),
        (
            "producerId: 8 producerEpoch: 0 coordinatorEpoch: 5 currentTxnFirstOffset: OptionalLong.empty"
            " lastTimestamp: 2000"
        ),
    ]


def test_a_damaged_producer_snapshot_is_reported_and_a_damaged_transaction_index_ends_the_dump(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    snapshot, transactions = tmp_path / f"{NAME}.snapshot", tmp_path / f"{NAME}.txnindex"
    snapshot.write_bytes(encode_snapshot([])[:-1] + b"\x01")
    assert main(["--files", str(snapshot)]) == 0
    assert "the checksum is" in capsys.readouterr().err
    transactions.write_bytes(bytes(33))
    assert main(["--files", str(transactions)]) == 1
    assert "33 bytes are not a whole number of entries of 34" in capsys.readouterr().err


def test_group_metadata_is_printed_with_the_subscriptions_of_its_members(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    subscription = pack(">hi", 0, 1) + pack(">h", 1) + b"t" + pack(">i", -1)
    member = MemberMetadata(
        member_id="m", client_id="c", client_host="h", session_timeout=1, subscription=subscription, assignment=b"\x00?"
    )
    value = GroupMetadataValue(protocol_type="consumer", generation=1, protocol=None, leader="m", members=[member])
    key = encode_coordinator_key(GroupMetadataKey(group="g"))
    path = segment(
        tmp_path,
        build_batch([
            Record(5, 0, key, encode_coordinator_value(value, 0)),
            Record(6, 0, key, None),
            Record(7, 0, key, pack(">h", 99)),
            Record(8, 0, b"\x00", None),
        ]),
    )  # fmt: skip
    assert main(["--offsets-decoder", "--skip-record-metadata", "--files", str(path)]) == 0
    key_text = 'key: {"type":"2","data":{"group":"g"}}'
    assert capsys.readouterr().out.splitlines()[3:] == [
        (
            f'| {key_text} payload: {{"version":"0","data":{{"protocolType":"consumer","generation":1,"protocol":null,'
            '"leader":"m","members":[{"memberId":"m","clientId":"c","clientHost":"h","sessionTimeout":1,'
            '"subscription":{"topics":["t"],"userData":null},"assignment":"AD8="}]}}'
        ),
        f"| {key_text} payload: <DELETE>",
        "| key: Error at offset 7, skipping. Version 99 of its value is not known",
        "| key: Error at offset 8, skipping. a coordinator record of 1 bytes has no type",
    ]


def test_an_unknown_metadata_record_does_not_end_the_dump(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    values = (b"\x01\x7f\x00\x00", b"\x01", encode_metadata_record(NoOpRecord(), 0))
    path = segment(tmp_path, build_batch([Record(5 + n, 0, None, value) for n, value in enumerate(values)]))
    assert main(["--cluster-metadata-decoder", "--skip-record-metadata", "--files", str(path)]) == 0
    assert capsys.readouterr().out.splitlines()[3:] == [
        "| payload: Error at 5, skipping. Its type or its version is not known",
        "| payload: Error at 6, skipping. a metadata record ends within its frame",
        '| payload: {"type":"NO_OP_RECORD","version":0,"data":{}}',
    ]


def test_a_record_without_a_key_is_refused_by_coordinator_decoders_and_tiered_storage_is_not_offered(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = segment(tmp_path, build_batch([Record(5, 0, None, b"")]))
    assert main(["--transaction-log-decoder", "--files", str(path)]) == 1
    assert "the record at offset 5 has no key" in capsys.readouterr().err
    assert main(["--remote-log-metadata-decoder", "--files", str(path)]) == 1
    assert "--remote-log-metadata-decoder is not offered" in capsys.readouterr().err


def test_the_dump_of_a_metadata_snapshot_prints_its_end_offset_and_epoch(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, headline in (
        ("00000000000000000012-0000000003.checkpoint", "Snapshot end offset: 12, epoch: 3"),
        ("bootstrap.checkpoint", "KRaft bootstrap snapshot"),
    ):
        path = tmp_path / name
        path.write_bytes(b"")
        assert main(["--files", str(path)]) == 0
        assert capsys.readouterr().out.splitlines() == [f"Dumping {path}", headline]


@pytest.mark.parametrize("name", ["orders.log", "orders.index", "orders.checkpoint"])
def test_a_file_whose_name_has_no_offset_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    path = tmp_path / name
    path.write_bytes(b"")
    assert main(["--files", str(path)]) == 1
    assert capsys.readouterr().err.startswith(f"kafka-dump-log: {path}: ")


def test_unknown_files_are_skipped_and_missing_ones_end_the_dump(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = segment(tmp_path)
    assert main(["--files", f"{tmp_path}/partition.metadata,{path},"]) == 0
    captured = capsys.readouterr()
    assert captured.err == f"Ignoring unknown file {tmp_path}/partition.metadata\n"
    assert captured.out.splitlines()[-1] == "Log starting offset: 5"
    path.unlink()
    assert main(["--files", str(path)]) == 1
    assert capsys.readouterr().err == f"kafka-dump-log: {path}: No such file or directory\n"


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["--deep-iteration"], 'Missing required argument "[files]"'),
        (["--files", "x.log", "--frob"], "frob is not a recognized option"),
        (["--files", "x.log", "--max", "7"], "max is not a recognized option"),
        (["--files", "x.log", "--max-bytes", "many"], "Cannot parse argument 'many' of option max-bytes"),
    ],
)
def test_a_wrong_command_line_exits_with_code_1_and_a_reason(
    capsys: pytest.CaptureFixture[str], arguments: list[str], problem: str
) -> None:
    assert main(arguments) == 1
    assert capsys.readouterr().err.splitlines()[0] == problem


def test_help_has_every_option_of_apaches_tool_and_examples(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 1
    text = capsys.readouterr().err
    for option in """cluster-metadata-decoder deep-iteration files help index-sanity-check key-decoder-class max-bytes
        max-message-size offsets-decoder print-data-log remote-log-metadata-decoder share-group-state-decoder
        skip-record-metadata transaction-log-decoder value-decoder-class verify-index-only version""".split():
        assert f"--{option}" in text
    assert "kafka-dump-log --files " in text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0.0"),
        (1.5, "1.5"),
        (0.001, "0.001"),
        (9999999.0, "9999999.0"),
        (1e7, "1.0E7"),
        (-12345678.5, "-1.23456785E7"),
        (0.00012, "1.2E-4"),
        (1e300, "1.0E300"),
        (float("nan"), '"NaN"'),
        (float("-inf"), '"-Infinity"'),
        ('a"b\\c\n\x1b\x7fé', '"a\\"b\\\\c\\n\\u001B\x7fé"'),
        (b"\xff\xfe", '"//4="'),
        ([None, True, -1, {}], "[null,true,-1,{}]"),
    ],
)
def test_json_is_printed_as_by_apaches_library(value: object, text: str) -> None:
    assert json_text(value) == text


def test_a_message_has_only_the_fields_of_its_version() -> None:
    value = GroupMetadataValue(protocol_type="p", generation=1, protocol="x", leader=None, members=[])
    fields = '{"protocolType":"p","generation":1,"protocol":"x","leader":null,'
    assert as_json(value, 1) == fields + '"members":[]}'
    assert as_json(value, 2) == fields + '"currentStateTimestamp":-1,"members":[]}'


def test_a_dump_into_a_closed_pipe_ends_without_an_error_message(tmp_path: Path) -> None:
    path = segment(tmp_path, *(batch_at(offset, b"v" * 100) for offset in range(5, 2000)))
    with subprocess.Popen(
        [sys.executable, "-m", "pessoa.cli.tools", "kafka-dump-log", "--print-data-log", "--files", str(path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as dump:
        assert dump.stdout is not None
        assert dump.stderr is not None
        assert dump.stdout.readline() == f"Dumping {path}\n".encode()
        dump.stdout.close()
        assert dump.stderr.read() == b""
        assert dump.wait(120) == 1


def test_dumping_a_segment_imports_no_broker_and_no_slow_module(tmp_path: Path) -> None:
    path = segment(tmp_path, batch_at(5, b"a"))
    heavy = ("pessoa.log", "click", "asyncio", "cramjam", "argparse", "pathlib", "shutil")
    code = (
        f"import sys; from pessoa.cli.dump_log.dump_log import main; main(['--files', {str(path)!r}]); "
        f"print(sorted(name for name in sys.modules if name.startswith({heavy})))"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.splitlines()[-1] == "[]"


def test_the_tool_is_installed_under_both_of_its_names() -> None:
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    assert scripts["kafka-dump-log"] == scripts["kafka-dump-log.sh"] == "pessoa.cli.dump_log.dump_log:main"
