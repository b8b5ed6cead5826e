"""A partition on disk, compared with Apache Kafka in both directions.

    ours → Apache's tool     kafka-dump-log reads every file that we write without an error and prints what we wrote
    Apache's → ours          we open Apache's data directory, after a clean stop and after a kill, and find what it had
                             acknowledged; our recovery leaves the same bytes as its own
    ours → Apache's broker   Apache starts on a directory to which we appended, and serves all of it
    tool ↔ tool              our kafka-dump-log prints what Apache's prints, line for line

Nothing is normalised but the order of error messages about several files, which Apache keeps in a hash map. Apache
Kafka runs in one place: it is killed, started again and stopped, and the tests work on copies of what it left.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from random import Random
from types import ModuleType
from typing import Any, NamedTuple, get_args

import pytest
from confluent_kafka import Consumer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from pessoa.log.checkpoints import RECOVERY_POINT_FILE, REPLICATION_OFFSET_FILE, parse_offsets
from pessoa.log.directory import CLEAN_SHUTDOWN_FILE, LogDirectory
from pessoa.log.index import OFFSET_ENTRY, TIME_ENTRY
from pessoa.log.leader_epoch_cache import LEADER_EPOCH_FILE, LeaderEpochCache
from pessoa.log.log_config import LogConfig
from pessoa.log.log_loader import load_partition
from pessoa.log.os_disk import OsDisk
from pessoa.log.partition_log import PartitionLog, ReadUpTo
from pessoa.log.producer_snapshot_format import decode_snapshot
from pessoa.records.batch import RecordBatch, TimestampType
from pessoa.records.builder import build_batch
from pessoa.records.compression import Codec
from pessoa.records.control_records import ControlRecordType, QuorumMessage, build_quorum_batch
from pessoa.records.record import Record, records
from pessoa.wire.schema import Message
from pessoa.wire.stored import (
    group_records,
    metadata_records,
    share_group_records,
    share_state_records,
    streams_group_records,
    transaction_records,
)
from pessoa.wire.stored.record_framing import encode_coordinator_key, encode_coordinator_value, encode_metadata_record
from tests.apache.broker import ApacheKafka, run_tool
from tests.support.apache_logs import (
    CONSUME_DEADLINE_S,
    START_MS,
    ApacheScribe,
    LogScribe,
    batches_in,
    consume,
    dumped_records,
    fields,
    read_dump,
    records_in,
    write_history,
)
from tests.support.wire_values import random_message

pytestmark = pytest.mark.apache

INDEX_INTERVAL_BYTES = 1024
SMALL_SEGMENTS = LogConfig(segment_bytes=6_000, index_interval_bytes=INDEX_INTERVAL_BYTES)
FIRST_SEGMENT = "00000000000000000000"
# The configs of Apache's topics, with which we open them too. Records from 2023 must not expire.
TOPIC_CONFIG = {
    "index.interval.bytes": str(INDEX_INTERVAL_BYTES),
    "segment.bytes": "1048576",
    "retention.ms": "-1",
}
APACHES_CONFIG = LogConfig(segment_bytes=1_048_576, index_interval_bytes=INDEX_INTERVAL_BYTES, retention_ms=-1)
INTERNAL_TOPICS = {"offsets.topic.num.partitions": 1, "transaction.state.log.num.partitions": 1}
TOPICS = ("mixed", "bulky", "empty")


# ---- the tools ----


def apaches_dump(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return run_tool("kafka-dump-log", *arguments)


def our_dump(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pessoa.cli.tools", "kafka-dump-log", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, encoding="utf-8", timeout=120)


def assert_both_tools_print_the_same(files: Iterable[Path], *options: str) -> str:
    names = ",".join(map(str, files))
    apaches, ours = apaches_dump("--files", names, *options), our_dump("--files", names, *options)
    assert ours.stdout.splitlines() == apaches.stdout.splitlines()
    assert sorted(ours.stderr.splitlines()) == sorted(apaches.stderr.splitlines())
    assert ours.returncode == apaches.returncode == 0
    return ours.stdout


@pytest.fixture(autouse=True)
def _utf8_for_java(monkeypatch: pytest.MonkeyPatch) -> None:
    # Java prints question marks for characters that the locale lacks.
    monkeypatch.setenv("LC_ALL", "C.UTF-8")


def files_of(directory: Path, *suffixes: str) -> list[Path]:
    wanted = suffixes or (".log", ".index", ".timeindex", ".txnindex", ".snapshot")
    return sorted(path for path in directory.iterdir() if path.suffix in wanted)


# ---- ours → Apache's tool ----


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> dict[str, LogScribe]:
    """Return logs that we wrote and closed cleanly."""
    base = tmp_path_factory.mktemp("ours")
    append_time = SMALL_SEGMENTS.but(message_timestamp_type=TimestampType.LOG_APPEND_TIME)
    scribes = {}
    for name, config in (("create-time", SMALL_SEGMENTS), ("append-time", append_time)):
        log = load_partition(OsDisk(), str(base / f"{name}-0"), config, START_MS, was_clean=False)
        scribes[name] = scribe = LogScribe(log)
        write_history(scribe, leader_epochs=(0, 1, 4))
        log.update_high_watermark(log.log_end_offset)
        log.close()
        assert len(log.segments) > 2
    return scribes


@pytest.mark.parametrize("name", ["create-time", "append-time"])
def test_apaches_dump_tool_prints_the_records_that_we_wrote(ours: dict[str, LogScribe], name: str) -> None:
    scribe = ours[name]
    logs = files_of(Path(scribe.log.directory), ".log")
    done = apaches_dump("--deep-iteration", "--print-data-log", "--files", ",".join(map(str, logs)))
    assert done.returncode == 0
    # The only message, also about Apache's own segments: every segment but the first begins after offset 0.
    assert sorted(done.stderr.splitlines()) == sorted(
        line
        for path in logs[1:]
        for line in (f"Non-consecutive offsets in {path}", f"  -1 is followed by {int(path.stem)}")
    )
    lines = [line for printed in read_dump(done.stdout).values() for line in printed]
    batches = [fields(line) for line in lines if line.startswith("baseOffset")]
    assert {batch["isvalid"] for batch in batches} == {"true"}
    assert [batch["compresscodec"] for batch in batches] == [codec.name.lower() for codec in scribe.codecs]
    printed = dumped_records(lines)
    time_name = "CreateTime" if name == "create-time" else "LogAppendTime"
    assert [
        (one["offset"], one["type"], one["timestamp"], one["headers"], one["key"], one["payload"])
        for one in printed
        if one["marker"] is None
    ] == [
        (
            str(record.offset),
            time_name,
            str(record.timestamp),
            ",".join(header for header, _ in record.headers),
            None if record.key is None else record.key.decode(),
            None if record.value is None else record.value.decode(),
        )
        for record in scribe.records
    ]
    markers = [(one["offset"], one["marker"]) for one in printed if one["marker"] is not None]
    assert markers == [(str(marker.offset), marker.kind) for marker in scribe.markers]


def test_apaches_dump_tool_prints_our_leader_epochs_of_the_batches(ours: dict[str, LogScribe]) -> None:
    scribe = ours["create-time"]
    done = apaches_dump("--files", ",".join(map(str, files_of(Path(scribe.log.directory), ".log"))))
    batches = [fields(line) for line in done.stdout.splitlines() if line.startswith("baseOffset")]
    starts: dict[int, int] = {}
    for batch in batches:
        starts.setdefault(int(batch["partitionLeaderEpoch"]), int(batch["baseOffset"]))
    assert list(starts.items()) == scribe.epochs == scribe.log.epochs.entries()


def test_apaches_dump_tool_finds_no_fault_in_our_indexes(ours: dict[str, LogScribe]) -> None:
    indexes = [
        path for scribe in ours.values() for path in files_of(Path(scribe.log.directory), ".index", ".timeindex")
    ]
    names = ",".join(map(str, indexes))
    verified = apaches_dump("--verify-index-only", "--files", names)
    assert (verified.returncode, verified.stderr) == (0, "")
    assert not any(read_dump(verified.stdout).values()), "every index has entries, and none of them is printed"
    checked = apaches_dump("--index-sanity-check", "--files", names)
    assert (checked.returncode, checked.stderr) == (0, "")
    assert read_dump(checked.stdout) == {path: [f"{path} passed sanity check."] for path in indexes}
    printed = read_dump(apaches_dump("--files", names).stdout)
    for path in indexes:
        entry = OFFSET_ENTRY if path.suffix == ".index" else TIME_ENTRY
        assert len(printed[path]) == path.stat().st_size // entry.size > 0


def test_apaches_dump_tool_reads_our_transaction_indexes_and_producer_snapshots(ours: dict[str, LogScribe]) -> None:
    scribe = ours["create-time"]
    directory = Path(scribe.log.directory)
    done = apaches_dump("--files", ",".join(map(str, files_of(directory, ".txnindex", ".snapshot"))))
    assert (done.returncode, done.stderr) == (0, "")
    printed = read_dump(done.stdout)
    aborted = [fields(line) for path, lines in printed.items() if path.suffix == ".txnindex" for line in lines]
    assert [(int(one["producerId"]), int(one["firstOffset"]), int(one["lastOffset"])) for one in aborted] == [
        tuple(one) for one in scribe.aborted
    ]
    producers = [fields(line) for line in printed[directory / f"{scribe.log.log_end_offset:020d}.snapshot"]]
    by_id = {int(one["producerId"]): one for one in producers}
    assert sorted(by_id) == [1000, 1001, 1002, 1003, 1004, 2000, 2001, 2002]
    assert by_id[2002]["currentTxnFirstOffset"] == f"OptionalLong[{scribe.records[-2].offset}]"
    assert by_id[2000]["currentTxnFirstOffset"] == "OptionalLong.empty"
    assert by_id[2000]["coordinatorEpoch"] == "3"


# ---- Apache's → ours ----


class ApachesData(NamedTuple):
    """Apache's data directories: right after it was killed (with a torn batch that the test appended), and after it was
    started again and stopped cleanly."""

    crashed: Path
    clean: Path
    scribes: dict[str, ApacheScribe]


@pytest.fixture(scope="module")
def apaches(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApachesData]:
    base = tmp_path_factory.mktemp("apaches")
    data = base / "data"
    with ApacheKafka(data=[data], properties=INTERNAL_TOPICS) as kafka:
        scribes = produce_with_apache(kafka.bootstrap_servers)
        kafka.stop(kill=True)
        tear_the_end(data / "mixed-0" / f"{FIRST_SEGMENT}.log")
        crashed = Path(shutil.copytree(data, base / "crashed"))
        kafka.start()
        kafka.stop()
        clean = Path(shutil.copytree(data, base / "clean"))
    assert (clean / CLEAN_SHUTDOWN_FILE).exists()
    assert not (crashed / CLEAN_SHUTDOWN_FILE).exists()
    yield ApachesData(crashed, clean, scribes)
    shutil.rmtree(base)


def produce_with_apache(bootstrap_servers: str) -> dict[str, ApacheScribe]:
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    wanted = [NewTopic(name, 1, 1, config=TOPIC_CONFIG) for name in TOPICS]
    for created in admin.create_topics(wanted).values():
        created.result(CONSUME_DEADLINE_S)
    scribes = {name: ApacheScribe(bootstrap_servers, name) for name in TOPICS}
    mixed = scribes["mixed"]
    for codec in Codec:
        name = codec.name.lower()
        plain = mixed.producer(compression_type=name, enable_idempotence=False)
        idempotent = mixed.producer(compression_type=name, enable_idempotence=True)
        for count in (1, 40, 25):
            mixed.produce(plain, count)
            mixed.produce(idempotent, count)
    # The timeout of the transaction that stays open must be longer than the tests, or the coordinator aborts it.
    settings: dict[str, Any] = {"compression_type": "lz4", "transaction_timeout_ms": 900_000}
    first, second = (mixed.producer(transactional_id=f"t{number}", **settings) for number in (1, 2))
    for producer in (first, second):
        producer.init_transactions(CONSUME_DEADLINE_S)
    for number in range(5):
        mixed.transaction(first, 3, commit=number % 2 == 0)
        mixed.transaction(second, 2, commit=number % 3 == 0)
    first.begin_transaction()
    mixed.produce(first, 2)
    bulky = scribes["bulky"]
    big = bulky.producer(batch_size=200_000)
    for _ in range(25):
        bulky.produce(big, 1000)
    commit_an_offset(bootstrap_servers, "mixed")
    return scribes


def commit_an_offset(bootstrap_servers: str, topic: str) -> None:
    consumer = Consumer({"bootstrap.servers": bootstrap_servers, "group.id": "g", "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    assert len(consumer.consume(10, timeout=CONSUME_DEADLINE_S)) == 10
    consumer.commit(asynchronous=False)
    consumer.close()


def tear_the_end(log: Path) -> None:
    """Append most of a batch, as a crash in the middle of a write leaves it."""
    batch = build_batch([Record(0, START_MS, b"never", b"acknowledged" * 20)])
    append_to(log, bytes(batch[:-7]))


def append_to(path: Path, data: bytes) -> None:
    with path.open("ab") as file:
        file.write(data)


def copy_of(partition: Path, target: Path) -> Path:
    return Path(shutil.copytree(partition, target / partition.name))


def load(directory: Path, *, was_clean: bool) -> PartitionLog:
    return load_partition(OsDisk(), str(directory), APACHES_CONFIG, START_MS, was_clean=was_clean)


@pytest.mark.parametrize("state", ["clean", "crashed"])
@pytest.mark.parametrize("topic", ["mixed", "bulky"])
def test_our_log_reads_every_record_that_apache_acknowledged(
    apaches: ApachesData, tmp_path: Path, topic: str, state: str
) -> None:
    left = apaches.clean if state == "clean" else apaches.crashed
    log = load(copy_of(left / f"{topic}-0", tmp_path), was_clean=state == "clean")
    scribe = apaches.scribes[topic]
    assert records_in(log) == scribe.records
    assert all(batch.is_valid() for _, batch in batches_in(log))
    if topic == "bulky":
        assert len(log.segments) > 2
        for record in scribe.records[::97]:
            assert_it_can_be_found(log, record)
    else:
        assert {batch.codec for _, batch in batches_in(log)} == set(Codec)
        found = [(one.first_offset, one.last_offset) for one in log.segments[0].aborted_transactions()]
        assert found == [(offsets[0], offsets[-1] + 1) for offsets in scribe.aborted]
        log.update_high_watermark(log.log_end_offset)
        assert log.last_stable_offset == scribe.records[-2].offset
    log.close()


def assert_it_can_be_found(log: PartitionLog, record: Record) -> None:
    fetched = log.read(record.offset, 1, ReadUpTo.LOG_END).data
    assert fetched is not None
    assert record in records(RecordBatch(fetched.read()))
    found = log.find_by_timestamp(record.timestamp)
    assert found is not None
    assert (found.timestamp, found.offset <= record.offset) == (record.timestamp, True)


def test_our_log_recovery_after_a_kill_leaves_the_same_bytes_as_apaches(apaches: ApachesData, tmp_path: Path) -> None:
    for topic in ("mixed", "bulky"):
        directory = copy_of(apaches.crashed / f"{topic}-0", tmp_path)
        log = load(directory, was_clean=False)
        log.close()
        recovered = apaches.clean / f"{topic}-0"
        names = [path.name for path in files_of(recovered)]
        assert names == [path.name for path in files_of(directory)]
        for name in names:
            read = producers_in if name.endswith(".snapshot") else Path.read_bytes
            assert read(directory / name) == read(recovered / name), f"{topic}-0/{name}"


def producers_in(snapshot: Path) -> dict[int, tuple[object, ...]]:
    """Return the producers of a snapshot without their order, which is that of Java's hash map."""
    return {
        entry.producer_id: (
            entry.epoch,
            entry.coordinator_epoch,
            entry.current_txn_first_offset,
            entry.last_timestamp,
            tuple(entry.batches),
        )
        for entry in decode_snapshot(snapshot.read_bytes())
    }


def test_indexes_that_we_rebuild_equal_apaches_byte_for_byte(apaches: ApachesData, tmp_path: Path) -> None:
    for topic in ("mixed", "bulky"):
        directory = copy_of(apaches.clean / f"{topic}-0", tmp_path)
        indexes = {path.name: path.read_bytes() for path in files_of(directory, ".index", ".timeindex")}
        assert any(indexes.values())
        for name in indexes:
            (directory / name).unlink()
        load(directory, was_clean=True).close()
        assert {path.name: path.read_bytes() for path in files_of(directory, ".index", ".timeindex")} == indexes


def test_our_log_manager_opens_a_whole_log_directory_of_apache(apaches: ApachesData, tmp_path: Path) -> None:
    path = Path(shutil.copytree(apaches.clean, tmp_path / "data"))
    directory = LogDirectory(OsDisk(), str(path))
    directory.open(lambda _: APACHES_CONFIG, START_MS)
    assert directory.was_clean
    assert directory.meta is not None
    assert directory.meta.node_id == 1
    meta = dict(line.split("=", 1) for line in (path / "meta.properties").read_text().splitlines() if "=" in line)
    assert (directory.meta.cluster_id, str(directory.meta.directory_id)) == (meta["cluster.id"], meta["directory.id"])
    assert {topic for topic, _ in directory.partitions} == {*TOPICS, "__consumer_offsets", "__transaction_state"}
    for (topic, partition), log in directory.partitions.items():
        written = (path / f"{topic}-{partition}" / "partition.metadata").read_text()
        assert written.endswith(f"topic_id: {directory.topic_ids[topic, partition]}")
        # Without the epoch of the last start, in which nothing was written: we drop it on opening, as Apache does.
        stored = LeaderEpochCache.parse((path / f"{topic}-{partition}" / LEADER_EPOCH_FILE).read_text())
        stored.truncate_from_end(log.log_end_offset)
        assert log.epochs == stored
    for name in (RECOVERY_POINT_FILE, REPLICATION_OFFSET_FILE):
        offsets = parse_offsets((path / name).read_text(), name)
        assert {key: log.log_end_offset for key, log in directory.partitions.items()} == offsets


# ---- ours → Apache's broker ----


@pytest.mark.parametrize("is_closed", [True, False], ids=["after a clean stop", "after a crash"])
def test_apache_serves_what_we_appended_to_its_directory(
    apaches: ApachesData, tmp_path: Path, *, is_closed: bool
) -> None:
    path = Path(shutil.copytree(apaches.clean, tmp_path / "data"))
    marker = (path / CLEAN_SHUTDOWN_FILE).read_text()
    disk = OsDisk()
    directory = LogDirectory(disk, str(path))
    directory.open(lambda _: APACHES_CONFIG, START_MS)
    expected: dict[str, tuple[list[Record], list[Record]]] = {}
    for topic in TOPICS:
        log = directory.partitions[topic, 0]
        scribe = LogScribe(log)
        # Apache leads in higher epochs when it starts, so these epochs are of earlier leaders.
        latest_epoch = log.epochs.latest_epoch or 0
        write_history(scribe, leader_epochs=(latest_epoch, latest_epoch + 1))
        for producer_id in scribe.open_transactions:
            scribe.end(producer_id, ControlRecordType.COMMIT)
        log.update_high_watermark(log.log_end_offset)
        theirs = apaches.scribes[topic]
        aborted = {offset for offsets in theirs.aborted for offset in offsets}
        committed = [record for record in theirs.records if record.offset not in aborted]
        expected[topic] = ([*theirs.records, *scribe.records], [*committed, *scribe.committed])
    if is_closed:
        directory.close()
        (path / CLEAN_SHUTDOWN_FILE).write_text(marker)
    else:
        tear_the_end(path / "empty-0" / f"{FIRST_SEGMENT}.log")
    with ApacheKafka(data=[path]) as kafka:
        for topic, (every, committed) in expected.items():
            assert consume(kafka.bootstrap_servers, topic, isolation="read_uncommitted") == every
            assert consume(kafka.bootstrap_servers, topic, isolation="read_committed") == committed
        complaints = [line for line in kafka.log_text().splitlines() if " WARN [LogLoader " in line]
    for topic in TOPICS:
        # Our epochs, and then the epoch in which Apache served the log.
        *known, _ = LeaderEpochCache.parse((path / f"{topic}-0" / LEADER_EPOCH_FILE).read_text()).entries()
        assert known == directory.partitions[topic, 0].epochs.entries()
    # Apache reports only the torn end.
    assert [line.split()[4].removeprefix("partition=") for line in complaints] == ([] if is_closed else ["empty-0,"])


# ---- tool ↔ tool ----


OPTIONS = [
    (),
    ("--deep-iteration",),
    ("--print-data-log",),
    ("--print-data-log", "--skip-record-metadata"),
    ("--deep-iteration", "--skip-record-metadata"),
    ("--max-bytes", "3000"),
    ("--verify-index-only",),
    ("--key-decoder-class", "--value-decoder-class", "org.apache.kafka.tools.api.StringDecoder"),
]


@pytest.mark.parametrize("options", OPTIONS, ids=" ".join)
def test_our_dump_tool_prints_the_files_of_a_partition_as_apaches_does(
    ours: dict[str, LogScribe], apaches: ApachesData, options: tuple[str, ...]
) -> None:
    directories = [
        *(Path(scribe.log.directory) for scribe in ours.values()),
        apaches.crashed / "mixed-0",
        apaches.clean / "mixed-0",
    ]
    output = assert_both_tools_print_the_same((path for one in directories for path in one.iterdir()), *options)
    assert len(output.splitlines()) > 50


def test_our_dump_tool_checks_the_sanity_of_indexes_as_apaches_does(
    ours: dict[str, LogScribe], apaches: ApachesData
) -> None:
    directories = [*(Path(scribe.log.directory) for scribe in ours.values()), apaches.clean / "mixed-0"]
    files = [path for one in directories for path in files_of(one)]
    assert "passed sanity check" in assert_both_tools_print_the_same(files, "--index-sanity-check")


def test_both_dump_tools_report_the_time_index_of_a_killed_broker_as_corrupt(apaches: ApachesData) -> None:
    arguments = ("--index-sanity-check", "--files", apaches.crashed / "mixed-0" / f"{FIRST_SEGMENT}.timeindex")
    theirs, mine = apaches_dump(*arguments), our_dump(*arguments)
    assert mine.stdout == theirs.stdout
    assert mine.returncode == theirs.returncode == 1
    assert "is older than its first" in mine.stderr


def test_our_dump_tool_prints_apaches_internal_topics_as_apaches_does(apaches: ApachesData) -> None:
    for topic, option, sign in (
        ("__consumer_offsets", "--offsets-decoder", '"subscription":{"topics":["mixed"]'),
        ("__transaction_state", "--transaction-log-decoder", '"data":{"transactionalId":"t1"}'),
        ("__cluster_metadata", "--cluster-metadata-decoder", '"type":"PARTITION_RECORD"'),
    ):
        output = assert_both_tools_print_the_same(files_of(apaches.clean / f"{topic}-0", ".log"), option)
        assert sign in output
    assert_both_tools_print_the_same([apaches.clean / "bootstrap.checkpoint"], "--cluster-metadata-decoder")


@pytest.mark.parametrize(
    ("module", "option"),
    [
        (group_records, "--offsets-decoder"),
        (transaction_records, "--transaction-log-decoder"),
        (share_state_records, "--share-group-state-decoder"),
        (share_group_records, "--offsets-decoder"),
        (streams_group_records, "--offsets-decoder"),
    ],
    ids=["groups", "transactions", "share state", "share groups", "streams groups"],
)
def test_our_dump_tool_prints_every_coordinator_record_in_every_version_as_apaches_does(
    tmp_path: Path, module: ModuleType, option: str
) -> None:
    messages = vars(module)
    rng = Random(7)
    path = write_segment(tmp_path, [
        Record(0, START_MS, encode_coordinator_key(random_message(kind, 0, rng)), value)
        for name, kind in messages.items()
        if name.endswith("Key")
        for value in (None, *random_values(messages[f"{name.removesuffix('Key')}Value"], rng))
    ] + [Record(0, START_MS, b"\x7f\x00unknown", b"")])  # fmt: skip
    output = assert_both_tools_print_the_same([path], option)
    assert "<DELETE>" in output
    assert "Unknown record type 32512 at offset" in output


def random_values(kind: type[Message], rng: Random) -> Iterator[bytes]:
    for version in kind.versions.each():
        for _ in range(5):
            yield encode_coordinator_value(random_message(kind, version, rng), version)


def test_our_dump_tool_prints_every_metadata_record_in_every_version_as_apaches_does(tmp_path: Path) -> None:
    rng = Random(8)
    kinds = [kind for name, kind in vars(metadata_records).items() if name.endswith("Record")]
    path = write_segment(tmp_path, [
        Record(0, START_MS, None, encode_metadata_record(random_message(kind, version, rng), version))
        for kind in kinds
        for version in kind.versions.each()
        for _ in range(5)
    ])  # fmt: skip
    output = assert_both_tools_print_the_same([path], "--cluster-metadata-decoder")
    assert output.count("payload: {") == RecordBatch(path.read_bytes()).records_count


def test_our_dump_tool_prints_the_control_records_of_the_quorum_as_apaches_does(tmp_path: Path) -> None:
    rng = Random(9)
    messages: list[QuorumMessage] = []
    for kind in get_args(QuorumMessage):
        # Apache writes version 0. Of LeaderChangeMessage it declares another version, and reads it as version 0.
        for _ in range(10):
            messages.append(message := random_message(kind, 0, rng))
            message.version = 0
    path = tmp_path / f"{FIRST_SEGMENT}-0000000001.checkpoint"
    path.write_bytes(build_quorum_batch(messages, timestamp=START_MS))
    output = assert_both_tools_print_the_same([path], "--deep-iteration")
    assert '"kRaftVersion"' in output


def test_our_dump_tool_decodes_integer_keys_and_long_values_as_apaches_does(tmp_path: Path) -> None:
    path = write_segment(tmp_path, [
        Record(0, START_MS, number.to_bytes(4, "big", signed=True), (number << 32).to_bytes(8, "big", signed=True))
        for number in (0, 1, -1, 2**31 - 1, -(2**31))
    ])  # fmt: skip
    classes = ("--key-decoder-class", "org.apache.kafka.tools.api.IntegerDecoder",
               "--value-decoder-class", "org.apache.kafka.tools.api.LongDecoder")  # fmt: skip
    assert "key: -2147483648 payload: -9223372036854775808" in assert_both_tools_print_the_same([path], *classes)


def test_our_dump_tool_finds_the_same_faults_as_apaches_does(ours: dict[str, LogScribe], tmp_path: Path) -> None:
    directory = copy_of(Path(ours["create-time"].log.directory), tmp_path)
    first, second, *_, last = files_of(directory, ".log")
    damage(first, 61, b"\xff")
    tear_the_end(last)
    index, times = first.with_suffix(".index"), first.with_suffix(".timeindex")
    offset, position = OFFSET_ENTRY.unpack_from(index.read_bytes(), 8)
    timestamp, last_offset = TIME_ENTRY.unpack_from(times.read_bytes(), 24)
    damage(index, 8, OFFSET_ENTRY.pack(offset + 1, position))
    damage(times, 12, TIME_ENTRY.pack(timestamp + 1, last_offset))
    damage(times, 48, TIME_ENTRY.pack(timestamp, last_offset + 1))
    # A killed Apache broker leaves indexes with preallocated room.
    append_to(second.with_suffix(".index"), bytes(800))
    append_to(second.with_suffix(".timeindex"), bytes(1200))
    output = assert_both_tools_print_the_same(files_of(directory))
    complaints = our_dump("--files", ",".join(map(str, files_of(directory)))).stderr
    assert "isvalid: false" in output
    assert "invalid bytes at the end of" in output
    assert f"Mismatches in :{index}" in complaints
    assert f"Found timestamp mismatch in :{times}" in complaints
    assert f"Found out of order timestamp in :{times}" in complaints
    assert f"The following indexed offsets are not found in :{times}" in complaints


def damage(path: Path, position: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(position)
        file.write(data)


def write_segment(directory: Path, contents: list[Record]) -> Path:
    path = directory / f"{FIRST_SEGMENT}.log"
    path.write_bytes(build_batch([record._replace(offset=offset) for offset, record in enumerate(contents)]))
    return path
