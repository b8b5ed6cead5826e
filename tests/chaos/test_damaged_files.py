"""Every file that a node reads when it starts, damaged in every way: the node serves every acknowledged record, or it
ends with a message that names the file; never with a traceback, never with fewer records.

There is one node, so that no replica can replace lost records. Its directory is made once, with several segments,
committed and aborted transactions, deleted records and snapshots of the metadata; as a kill leaves it, and as a clean
shutdown does. Each case works on a copy. The files that can be rebuilt from the log are damaged all at once, since each
has to be rebuilt even if the others are damaged; the others are damaged one at a time.

    rebuilt         indexes, producer snapshots, leader epochs, the checkpoints of the directory, the marks of a clean
                    stop and of the metadata log, the bootstrap file of a cluster that has begun
    an end          meta.properties, the vote, the latest snapshot of the metadata and its log; and any file that is a
                    directory, or cannot be opened

Damage to the records themselves is tested with replicas (`faults.py`) and in tests/property.
"""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from pessoa.broker.assembly import make_broker
from pessoa.broker.lifecycle import Broker
from pessoa.log.files import DiskError
from pessoa.log.meta_properties import CorruptProperties
from pessoa.log.os_disk import OsDisk, OsFile
from pessoa.log.partition_log import PartitionLog, ReadUpTo
from pessoa.quorum.formatting import WrongDirectory
from pessoa.quorum.metadata_log import CorruptMetadataLog
from pessoa.quorum.state_file import CorruptQuorumState
from pessoa.quorum.uncommitted_appends import QuorumFailed
from pessoa.records.batch import batches
from pessoa.testing import Broker as BrokerInThread
from tests.chaos.processes import TIMEOUT_S
from tests.support.clients import until
from tests.tools.stage import run_ours

SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "metadata.log.max.record.bytes.between.snapshots": "2000",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
}
STATES = ("killed", "stopped")
# The errors that `pessoa broker` prints in one line before it ends.
SENTENCES = (CorruptProperties, CorruptQuorumState, CorruptMetadataLog, QuorumFailed, WrongDirectory, DiskError)

MADE_AGAIN = (
    ".kafka_cleanshutdown",
    "*-checkpoint",
    "bootstrap.checkpoint",
    "*/*.index",
    "*/*.timeindex",
    "*/*.txnindex",
    "*/*.snapshot",
    "*/leader-epoch-checkpoint",
    "*/partition.metadata",
    "*/pessoa.durable-offset",
)
METADATA = "__cluster_metadata-0"
AN_END = ("meta.properties", f"{METADATA}/quorum-state", f"{METADATA}/*.checkpoint")

Change = Callable[[bytes], bytes]


def another_version(content: bytes) -> bytes:
    for old in (b"version=1", b"version: 0", b'version":0'):
        if old in content:
            return content.replace(old, old[:-1] + b"9", 1)
    # Checkpoints of the directory and producer snapshots begin with their version.
    return b"9" + content[1:] if content.startswith(b"0\n") else b"\x00\x09" + content[2:]


def a_bit(content: bytes) -> bytes:
    middle = len(content) // 2
    return content[:middle] + bytes([content[middle] ^ 0x80]) + content[middle + 1 :] if content else b"\x80"


CHANGES: dict[str, Change] = {
    "empty": lambda content: b"",
    "cut in half": lambda content: content[: len(content) // 2],
    "without its last byte": lambda content: content[:-1],
    "random": lambda content: Random(len(content)).randbytes(200),
    "zeros": lambda content: bytes(len(content) or 10),
    "of another version": another_version,
    "not UTF-8": lambda content: b"\xff\xfe\xc3\x28" + content[4:],
    "a bit": a_bit,
    "numbers that cannot be": lambda content: b"0\n2\nt 0 99999999999999999999\nt -1 5\n",
}


class Found(NamedTuple):
    """The records of a partition, from the log start offset up to the high watermark."""

    end_offset: int
    records: bytes


class Template(NamedTuple):
    directory: Path
    # Topic and partition → its expected records
    expected: dict[tuple[str, int], Found]


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Template]:
    directory = tmp_path_factory.mktemp("damaged")
    data = directory / "stopped"
    with BrokerInThread(SETTINGS, directory=data) as broker:
        fill(broker.bootstrap_servers)
        expected = broker.inspect(lambda running: killed_now(running, data, directory / "killed"))
    assert len(expected[("t", 0)].records) > 1_000
    names = {path.suffix or path.name for path in (directory / "stopped").rglob("*")}
    assert names >= {".txnindex", ".snapshot", ".checkpoint", "quorum-state", ".kafka_cleanshutdown"}
    yield Template(directory, expected)
    shutil.rmtree(directory)


def fill(servers: str) -> None:
    admin = AdminClient({"bootstrap.servers": servers})
    topics = [NewTopic("t", 2, 1, config={"segment.ms": "1"}), *(NewTopic(f"x{one}", 1, 1) for one in range(10))]
    for created in admin.create_topics(topics).values():
        created.result(TIMEOUT_S)
    # Deleted topics: their directories are removed a minute later, and are not compared.
    for deleted in admin.delete_topics([one.topic for one in topics[1:]]).values():
        deleted.result(TIMEOUT_S)
    producer = Producer({"bootstrap.servers": servers, "transactional.id": "one", "linger.ms": 0})
    producer.init_transactions(TIMEOUT_S)
    for transaction in range(6):
        producer.begin_transaction()
        for number in range(10):
            producer.produce("t", f"{transaction}-{number}-{'v' * 50}", partition=number % 2)
        producer.flush(TIMEOUT_S)
        end = producer.abort_transaction if transaction % 3 == 2 else producer.commit_transaction
        end(TIMEOUT_S)
    for kept in admin.delete_records([TopicPartition("t", 0, 3)]).values():
        kept.result(TIMEOUT_S)

    # EndTxn is answered before the markers are written, and a broker that starts would write them.
    until(
        lambda: (
            run_ours("kafka-transactions", "--bootstrap-server", servers, "describe", "--transactional-id", "one").out
        ),
        lambda shown: "CompleteAbort" in shown,
        "the end of the last transaction",
    )


def killed_now(broker: Broker, data: Path, copy: Path) -> dict[tuple[str, int], Found]:
    """Copy the data directory and return its records. This runs in the broker's thread, so that nothing is appended
    meanwhile. Files that the broker's workers may rename or remove are not copied; a starting broker needs none."""
    shutil.copytree(data, copy, ignore=shutil.ignore_patterns("*.tmp", "*-delete"))
    return contents(broker)


def contents(broker: Broker) -> dict[tuple[str, int], Found]:
    partitions = {key: one for directory in broker.directories for key, one in directory.partitions.items()}
    return {key: Found(one.log_end_offset, records(one)) for key, one in partitions.items() if key[0][0] != "x"}


def records(log: PartitionLog) -> bytes:
    """Return the bytes of the batches with records that were not deleted."""
    found, offset = b"", max(3, log.log_start_offset)
    while offset < log.high_watermark:
        data = log.read(offset, 1 << 20, ReadUpTo.HIGH_WATERMARK).data
        assert data is not None
        for batch in batches(data.read()):
            offset = batch.next_offset
            found += batch.view
    return found


class Unreadable(OsDisk):
    """A disk on which one file cannot be opened, as without permission; root, as which tests may run, could open it."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = str(path)

    def open(self, path: str, *, create: bool = False, pooled: bool = True, read_only: bool = False) -> OsFile:
        if path == self._path:
            raise DiskError("open", path, PermissionError(13, "Permission denied"))
        return super().open(path, create=create, pooled=pooled, read_only=read_only)


class Attempt(NamedTuple):
    """A start of a node: the records that it found, or the error that ended it; and errors of the event loop."""

    found: dict[tuple[str, int], Found] | None
    problem: BaseException | None
    complaints: list[dict[str, Any]]


def start(data: Path, disk: OsDisk | None = None) -> Attempt:
    complaints: list[dict[str, Any]] = []

    async def attempt() -> dict[tuple[str, int], Found]:
        asyncio.get_running_loop().set_exception_handler(lambda _, complaint: complaints.append(complaint))
        settings = {**SETTINGS, "listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": str(data)}
        broker = make_broker(settings, disk)
        try:
            async with asyncio.timeout(TIMEOUT_S):
                await broker.start()
            return contents(broker)
        finally:
            await broker.stop()

    try:
        return Attempt(asyncio.run(attempt()), None, complaints)
    except SENTENCES as problem:
        return Attempt(None, problem, complaints)


def copy(template: Template, state: str, tmp_path: Path) -> Path:
    return Path(shutil.copytree(template.directory / state, tmp_path / "data"))


def matching(data: Path, *patterns: str) -> list[Path]:
    return sorted(path for pattern in patterns for path in data.glob(pattern) if path.is_file())


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("state", STATES)
def test_a_node_keeps_every_record_when_all_files_that_can_be_rebuilt_are_damaged(
    template: Template, tmp_path: Path, state: str, change: str
) -> None:
    data = copy(template, state, tmp_path)
    damaged = 0
    for path in matching(data, *MADE_AGAIN):
        before = path.read_bytes()
        path.write_bytes(CHANGES[change](before))
        damaged += path.read_bytes() != before
    assert damaged >= len(MADE_AGAIN), f"only {damaged} files were changed"
    assert start(data) == Attempt(template.expected, None, [])
    # Also at the next start.
    assert start(data) == Attempt(template.expected, None, [])


@pytest.mark.parametrize("pattern", AN_END)
def test_a_node_exits_with_an_error_message_when_a_file_that_cannot_be_rebuilt_is_damaged(
    template: Template, tmp_path: Path, pattern: str
) -> None:
    accepted = []
    for name, change in CHANGES.items():
        data = copy(template, "stopped", tmp_path / name)
        path = matching(data, pattern)[-1]
        path.write_bytes(change(path.read_bytes()))
        attempt = start(data)
        assert attempt.complaints == [], name
        if attempt.problem is not None:
            assert str(path) in str(attempt.problem), f"{name}: {attempt.problem}"
        else:
            assert attempt.found == template.expected, name
            accepted.append(name)
    # Harmless damage: a comment, the end of the last line, an unused offset.
    assert {*accepted} <= {"without its last byte", "of another version", "not UTF-8"}


def test_a_log_directory_without_its_meta_properties_is_not_taken_for_an_empty_one(
    template: Template, tmp_path: Path
) -> None:
    data = copy(template, "killed", tmp_path)
    (data / "meta.properties").rename(data / "aside")
    problem = start(data).problem
    assert isinstance(problem, WrongDirectory)
    assert f"{data} has no meta.properties, and is not empty" in str(problem)
    (data / "aside").rename(data / "meta.properties")
    assert start(data).found == template.expected


@pytest.mark.parametrize("pattern", [*MADE_AGAIN, *AN_END, f"{METADATA}/*.log"])
def test_a_node_exits_with_an_error_message_when_a_file_is_a_directory_or_cannot_be_opened(
    template: Template, tmp_path: Path, pattern: str
) -> None:
    data = copy(template, "stopped", tmp_path)
    path = matching(data, pattern)[-1]
    good = path.read_bytes()
    attempts = {"unreadable": start(data, Unreadable(path))}
    if path.exists():
        path.unlink()
    path.mkdir()
    attempts["a directory"] = start(data)
    path.rmdir()
    path.write_bytes(good)
    for name, attempt in attempts.items():
        assert attempt.complaints == [], name
        if attempt.problem is not None:
            assert str(path) in str(attempt.problem), f"{name}: {attempt.problem}"
        else:
            assert attempt.found == template.expected, name
    assert start(data).found == template.expected


@pytest.mark.parametrize(
    ("name", "sentence"),
    [("meta.properties", "version is missing"), ("bootstrap.checkpoint", "it names no metadata.version")],
)
def test_the_process_of_a_node_with_a_damaged_file_prints_one_error_line_and_exits_with_1(
    template: Template, tmp_path: Path, name: str, sentence: str
) -> None:
    data = copy(template, "killed", tmp_path)
    (data / name).write_bytes(b"")
    if name == "bootstrap.checkpoint":
        # Without the metadata log the node reads this file.
        shutil.rmtree(data / METADATA)
    settings = {**SETTINGS, "listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": str(data)}
    command = [sys.executable, "-m", "pessoa", "broker"]
    for key, value in settings.items():
        command += ["--set", f"{key}={value}"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S)
    assert ended.returncode == 1
    assert f"{data / name}" in ended.stderr
    assert sentence in ended.stderr
    assert "Traceback" not in ended.stderr
