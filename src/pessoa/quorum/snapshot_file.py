"""Snapshots of the metadata log as files (KIP-630).

    00000000000000004711-0000000012.checkpoint      everything before offset 4711, the last of it of epoch 12

    control batch   SnapshotHeader; with kraft.version 1 also KRaftVersion and Voters
    batches         the records that make the image, at offsets that mean nothing
    control batch   SnapshotFooter

A file gets its name when it is whole and on the disk; until then it has a name that no start looks at. Kafka's own
nodes read these files, and we read theirs.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from pessoa.quorum.batches import MetadataBatch, VersionedRecord, decode_batch, encode_batch
from pessoa.raft.messages import OffsetAndEpoch
from pessoa.raft.voters import KRAFT_VERSION_STATIC, VoterSet, voters_of
from pessoa.records.batch import whole_batches
from pessoa.records.control_records import QuorumMessage, build_quorum_batch, control_records
from pessoa.records.invalid_batch import InvalidBatch
from pessoa.wire.errors import ErrorCode
from pessoa.wire.stored.control_record_bodies import (
    KRaftVersionRecord,
    SnapshotFooterRecord,
    SnapshotHeaderRecord,
    VotersRecord,
)

if TYPE_CHECKING:
    from pessoa.log.files import Disk

CHECKPOINT_SUFFIX = ".checkpoint"
PART_SUFFIX = ".checkpoint.part"
_NAME = re.compile(r"(\d{20})-(\d{10})\.checkpoint")
# Few enough for a batch of moderate size, whatever the records are.
_RECORDS_PER_BATCH = 500


def snapshot_name(snapshot: OffsetAndEpoch) -> str:
    return f"{snapshot.offset:020}-{snapshot.epoch:010}{CHECKPOINT_SUFFIX}"


def snapshots_among(names: Iterable[str]) -> list[OffsetAndEpoch]:
    """Return the snapshots that have a file among `names`, oldest first."""
    found = (match for name in names if (match := _NAME.fullmatch(name)))
    return sorted(OffsetAndEpoch(int(match[1]), int(match[2])) for match in found)


def render_snapshot(
    snapshot: OffsetAndEpoch,
    records: Iterable[VersionedRecord],
    now_ms: int,
    last_timestamp_ms: int,
    kraft_version: int = KRAFT_VERSION_STATIC,
    voters: VoterSet | None = None,
) -> Iterator[bytes | bytearray]:
    """Yield the pieces of a snapshot file, in order."""
    head: list[QuorumMessage] = [SnapshotHeaderRecord(version=0, last_contained_log_timestamp=last_timestamp_ms)]
    if kraft_version > KRAFT_VERSION_STATIC:
        head.append(KRaftVersionRecord(version=0, kraft_version=kraft_version))
        if voters is not None:
            head.append(voters.record())
    yield build_quorum_batch(head, timestamp=now_ms, partition_leader_epoch=snapshot.epoch)
    offset = len(head)
    gathered: list[VersionedRecord] = []
    for record in records:
        gathered.append(record)
        if len(gathered) == _RECORDS_PER_BATCH:
            yield encode_batch(gathered, now_ms, offset, snapshot.epoch)
            offset += len(gathered)
            gathered.clear()
    if gathered:
        yield encode_batch(gathered, now_ms, offset, snapshot.epoch)
        offset += len(gathered)
    foot: Sequence[QuorumMessage] = [SnapshotFooterRecord(version=0)]
    yield build_quorum_batch(foot, timestamp=now_ms, base_offset=offset, partition_leader_epoch=snapshot.epoch)


def write_snapshot(disk: Disk, directory: str, snapshot: OffsetAndEpoch, pieces: Iterable[bytes | bytearray]) -> None:
    """Write a snapshot file, which has its name only when all of it is durable. May be called in a worker thread."""
    part = f"{directory}/{snapshot_name(snapshot)}.part"
    disk.remove(part, missing_ok=True)
    file = disk.open(part, create=True, pooled=False)
    try:
        for piece in pieces:
            file.append(piece)
        file.sync()
    finally:
        file.close()
    adopt_part(disk, directory, snapshot)


def adopt_part(disk: Disk, directory: str, snapshot: OffsetAndEpoch) -> None:
    path = f"{directory}/{snapshot_name(snapshot)}"
    disk.rename(f"{path}.part", path)
    disk.sync_directory(directory)


class SnapshotReader:
    """A snapshot, read as batches. Its control records are read, and its CRCs checked, when it is opened: InvalidBatch
    if it is damaged."""

    def __init__(self, snapshot: OffsetAndEpoch, data: bytes) -> None:
        self.snapshot = snapshot
        self.kraft_version = KRAFT_VERSION_STATIC
        self.voters: VoterSet | None = None
        self.last_timestamp_ms = -1
        self.is_complete = False
        self._data = data
        for batch in whole_batches(data):
            if not batch.is_valid():
                # A topic of which one bit is another is another topic, and a broker that loads it deletes the first.
                raise InvalidBatch(ErrorCode.CORRUPT_MESSAGE, f"the checksum of {batch!r} is wrong")
            if batch.is_control:
                for control in control_records(batch):
                    self._learn_from_control_record(control.message)

    def _learn_from_control_record(self, message: object) -> None:
        match message:
            case SnapshotHeaderRecord():
                self.last_timestamp_ms = message.last_contained_log_timestamp
            case KRaftVersionRecord():
                self.kraft_version = message.kraft_version
            case VotersRecord():
                self.voters = voters_of(message)
            case SnapshotFooterRecord():
                self.is_complete = True

    def __repr__(self) -> str:
        return f"<SnapshotReader of {self.snapshot}, {len(self._data)} bytes>"

    def batches(self) -> Iterator[MetadataBatch]:
        """The batches of records. Their offsets are those within the file."""
        return (decode_batch(batch) for batch in whole_batches(self._data) if not batch.is_control)


def read_snapshot(disk: Disk, directory: str, snapshot: OffsetAndEpoch) -> SnapshotReader:
    return SnapshotReader(snapshot, disk.read_file(f"{directory}/{snapshot_name(snapshot)}"))
