"""Making empty directories those of a node: what `kafka-storage format` does.

    meta.properties         in every log directory: cluster, node, and an id of the directory itself
    bootstrap.checkpoint    in the metadata log directory: the records that a new cluster begins with
    __cluster_metadata-0/00000000000000000000-0000000000.checkpoint
                            only where the voters are to stand in the log (KIP-853): the first of them

The bootstrap file is a snapshot in Kafka's format (a header, the records, a footer). The first controller that finds
an empty metadata log copies its records there; every node of a new cluster has the same ones. After that no node needs
it, so a damaged one stops no node whose cluster has begun.

A directory counts as formatted when it has its `meta.properties`, so that is written last. A crash before that leaves
a directory that is formatted again, from the beginning and with other ids; no other node has seen the first ones. One
that has logs in it has lost the file: with new ids its partitions would belong to no node, so it is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from pessoa.log.files import DiskError
from pessoa.log.meta_properties import (
    META_PROPERTIES_FILE,
    PARTITION_METADATA_FILE,
    CorruptProperties,
    MetaProperties,
    parse_meta_properties,
    render_meta_properties,
)
from pessoa.metadata.supported_features import METADATA_4_3_IV0, bootstrap_records, record_version
from pessoa.metadata.table_images import METADATA_VERSION
from pessoa.quorum.batches import UnknownMetadataRecord, decode_batch, encode_batch
from pessoa.quorum.metadata_log import METADATA_DIRECTORY
from pessoa.quorum.snapshot_file import render_snapshot, write_snapshot
from pessoa.raft.messages import OffsetAndEpoch
from pessoa.raft.voters import KRAFT_VERSION_DYNAMIC, VoterSet
from pessoa.records.batch import whole_batches
from pessoa.records.control_records import build_quorum_batch
from pessoa.records.invalid_batch import InvalidBatch
from pessoa.wire.errors import ProtocolViolation
from pessoa.wire.stored.control_record_bodies import SnapshotFooterRecord, SnapshotHeaderRecord
from pessoa.wire.stored.metadata_records import FeatureLevelRecord

if TYPE_CHECKING:
    from pessoa.base.ids import Uuid
    from pessoa.log.files import Disk
    from pessoa.wire.schema import Message

BOOTSTRAP_FILE = "bootstrap.checkpoint"
_BOOTSTRAP_EPOCH = 0


class WrongDirectory(Exception):
    """A log directory belongs to another node or cluster, or two directories contradict each other."""


def render_bootstrap(records: Sequence[Message], now_ms: int) -> bytes:
    header = SnapshotHeaderRecord(version=0, last_contained_log_timestamp=0)
    footer = SnapshotFooterRecord(version=0)
    versioned = [(record, record_version(record, METADATA_4_3_IV0)) for record in records]
    first, last = 1, len(records) + 1
    return bytes(
        build_quorum_batch([header], timestamp=now_ms, partition_leader_epoch=_BOOTSTRAP_EPOCH)
        + encode_batch(versioned, now_ms, first, _BOOTSTRAP_EPOCH)
        + build_quorum_batch([footer], timestamp=now_ms, base_offset=last, partition_leader_epoch=_BOOTSTRAP_EPOCH)
    )


def read_bootstrap(disk: Disk, directory: str) -> list[Message]:
    """Return the records that the directory was formatted with; those of this release if it has no bootstrap file.
    Raises WrongDirectory if that file is damaged: a cluster that began with other records would be another one."""
    path = f"{directory}/{BOOTSTRAP_FILE}"
    if not disk.exists(path):
        return bootstrap_records()
    try:
        found = list(whole_batches(disk.read_file(path)))
        if not all(batch.is_valid() for batch in found):
            raise WrongDirectory(f"{path} is damaged: a checksum is wrong")
        records = [record for batch in found for record in decode_batch(batch).records]
    except (DiskError, InvalidBatch, ProtocolViolation, UnknownMetadataRecord) as problem:
        raise WrongDirectory(f"{path} is damaged: {problem}") from problem
    if not any(isinstance(one, FeatureLevelRecord) and one.name == METADATA_VERSION for one in records):
        raise WrongDirectory(f"{path} is damaged: it names no {METADATA_VERSION}")
    return records


def format_metadata(
    disk: Disk,
    directories: Iterable[str],
    metadata_directory: str,
    node_id: int,
    new_uuid: Callable[[], Uuid],
    now_ms: int,
    cluster_id: str | None = None,
    initial_voters: VoterSet | None = None,
    first_records: Sequence[Message] = (),
) -> dict[str, MetaProperties]:
    """Format the directories that are not formatted, and return the `meta.properties` of each. All directories must be
    of one cluster, the given one if one is given, and of this node. Without a cluster id the directories' own is taken,
    or a new one made. `initial_voters` are the first of a quorum whose voters stand in the log; if this node is one of
    them, its metadata log directory is the one that they name. `first_records` are written into the bootstrap file of a
    new cluster, besides those that every cluster has."""
    paths = list(dict.fromkeys([*directories, metadata_directory]))
    known = {path: meta for path in paths if (meta := _read_meta(disk, path)) is not None}
    for path, meta in known.items():
        _check_owner(path, meta, node_id, cluster_id)
        cluster_id = meta.cluster_id
    if cluster_id is None:
        cluster_id = str(new_uuid())
    for path in paths:
        if path in known:
            continue
        disk.make_directory(path)
        _check_empty(disk, path)
        directory_id = new_uuid()
        if path == metadata_directory:
            disk.write_file(
                f"{path}/{BOOTSTRAP_FILE}", render_bootstrap([*bootstrap_records(), *first_records], now_ms)
            )
            if initial_voters is not None:
                _write_voters(disk, path, initial_voters, now_ms)
                if node_id in initial_voters.by_id:
                    directory_id = initial_voters.by_id[node_id].key.directory_id
        meta = known[path] = MetaProperties(cluster_id, node_id, directory_id)
        disk.write_file(f"{path}/{META_PROPERTIES_FILE}", render_meta_properties(meta, now_ms).encode())
    return {path: known[path] for path in paths}


def _check_empty(disk: Disk, path: str) -> None:
    for name in disk.list(path):
        if disk.exists(f"{path}/{name}/{PARTITION_METADATA_FILE}"):
            raise WrongDirectory(
                f"{path} has no {META_PROPERTIES_FILE}, and is not empty: {name} is in it. Restore the file from a "
                "copy; or empty the directory, if others have what is in it"
            )


def _write_voters(disk: Disk, metadata_directory: str, voters: VoterSet, now_ms: int) -> None:
    directory = f"{metadata_directory}/{METADATA_DIRECTORY}"
    disk.make_directory(directory)
    beginning = OffsetAndEpoch(0, 0)
    pieces = render_snapshot(beginning, (), now_ms, now_ms, KRAFT_VERSION_DYNAMIC, voters)
    write_snapshot(disk, directory, beginning, pieces)


def _read_meta(disk: Disk, directory: str) -> MetaProperties | None:
    path = f"{directory}/{META_PROPERTIES_FILE}"
    if not disk.exists(path):
        return None
    try:
        return parse_meta_properties(disk.read_file(path).decode("utf-8", "replace"), path)
    except (DiskError, CorruptProperties) as problem:
        raise WrongDirectory(f"{directory} cannot be used: {problem}") from problem


def _check_owner(path: str, meta: MetaProperties, node_id: int, cluster_id: str | None) -> None:
    if meta.node_id != node_id:
        raise WrongDirectory(f"{path} belongs to node {meta.node_id}, but node.id is {node_id}")
    if cluster_id is not None and meta.cluster_id != cluster_id:
        raise WrongDirectory(f"{path} belongs to the cluster {meta.cluster_id}, not to {cluster_id}")
