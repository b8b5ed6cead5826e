"""The asking side of the quorum: one request to a peer and its answer, and the download of a snapshot."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from pessoa.net.channel import ChannelFailed, ChannelTimedOut
from pessoa.quorum.metadata_log import METADATA_TOPIC
from pessoa.quorum.snapshot_file import SnapshotReader, adopt_part, snapshot_name
from pessoa.quorum.translation import Introduction, addresses_in, reply_of, request_of
from pessoa.raft.messages import Unanswered
from pessoa.raft.voters import Address
from pessoa.records.invalid_batch import InvalidBatch
from pessoa.wire.api.fetch_snapshot import (
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    PartitionSnapshot,
    SnapshotId,
    TopicSnapshot,
)
from pessoa.wire.errors import Refusal

if TYPE_CHECKING:
    from pessoa.quorum.raft_quorum import RaftQuorum
    from pessoa.raft.messages import OffsetAndEpoch, Reply, Request

log = logging.getLogger("pessoa.quorum")


async def exchange(quorum: RaftQuorum, peer: int, request: Request) -> Reply | Unanswered:
    """Return the peer's reply, or why there is none that can be used."""
    address = quorum.endpoint_of(peer)
    if address is None:
        return Unanswered.GONE
    own = quorum.raft.voters.by_id.get(quorum.node_id)
    introduction = Introduction(
        quorum.cluster_id,
        quorum.node.listeners or (own.listeners if own is not None else {}),
        quorum.settings.fetch_max_bytes,
        quorum.settings.fetch_max_wait_ms,
    )
    try:
        response = await quorum.send(*address, request_of(request, introduction))
    except ChannelFailed as failure:
        log.debug("node %s: %s", peer, failure)
        return Unanswered.LATE if isinstance(failure, ChannelTimedOut) else Unanswered.GONE
    for node_id, known in addresses_in(response):
        quorum.learn_address(node_id, known)
    try:
        return reply_of(response)
    except Refusal as refusal:
        log.warning("node %s refuses %s: %s", peer, type(request).__name__, refusal)
        return Unanswered.GONE


async def download_snapshot(quorum: RaftQuorum, snapshot: OffsetAndEpoch) -> bool:
    """Fetch a snapshot from the leader, piece by piece, into a file. Return whether the file is complete and has its
    name."""
    metadata_log, raft = quorum.log, quorum.raft
    leader_id, epoch = raft.leader_id, raft.epoch
    part = f"{metadata_log.directory}/{snapshot_name(snapshot)}.part"
    quorum.disk.remove(part, missing_ok=True)
    file = quorum.disk.open(part, create=True, pooled=False)
    try:
        while True:
            address = quorum.endpoint_of(leader_id)
            if address is None or (raft.leader_id, raft.epoch) != (leader_id, epoch):
                return False
            piece = await _fetch_piece(quorum, Address(*address), snapshot, file.size)
            if piece is None or (raft.leader_id, raft.epoch) != (leader_id, epoch):
                return False
            data, size = piece
            file.append(data)
            quorum.snapshot_progressed()
            if file.size >= size:
                break
        file.sync()
        if not _is_whole(snapshot, file.read(0, file.size)):
            return False
    finally:
        file.close()
    adopt_part(quorum.disk, metadata_log.directory, snapshot)
    return True


def _is_whole(snapshot: OffsetAndEpoch, data: bytes) -> bool:
    try:
        return SnapshotReader(snapshot, data).is_complete
    except InvalidBatch as problem:
        log.warning("the snapshot %s came damaged: %s", snapshot, problem)
        return False


async def _fetch_piece(
    quorum: RaftQuorum, address: Address, snapshot: OffsetAndEpoch, position: int
) -> tuple[memoryview, int] | None:
    """Return the bytes of the snapshot from a position on, and its whole size; None if the leader does not have it."""
    partition = PartitionSnapshot(
        partition=0,
        current_leader_epoch=quorum.epoch,
        snapshot_id=SnapshotId(end_offset=snapshot.offset, epoch=snapshot.epoch),
        position=position,
        replica_directory_id=quorum.raft.own.directory_id,
    )
    request = FetchSnapshotRequest(
        cluster_id=quorum.cluster_id,
        replica_id=quorum.node_id,
        max_bytes=quorum.settings.fetch_snapshot_max_bytes,
        topics=[TopicSnapshot(name=METADATA_TOPIC, partitions=[partition])],
    )
    try:
        response = await quorum.send(*address, request)
    except ChannelFailed as failure:
        log.debug("the snapshot %s: %s", snapshot, failure)
        return None
    assert isinstance(response, FetchSnapshotResponse)
    if response.error_code or not response.topics or not response.topics[0].partitions:
        return None
    found = response.topics[0].partitions[0]
    if found.error_code or found.position != position or not found.unaligned_records:
        return None
    return found.unaligned_records, found.size
