"""The answering side of the quorum: what other members, observers and tools ask a node.

    Vote, BeginQuorumEpoch, EndQuorumEpoch     any voter, at once; what they change is on the disk before the answer
    Fetch, FetchSnapshot                       the leader; a fetch that finds nothing new waits

`describe` has DescribeQuorum, `reconfiguration` has AddRaftVoter, RemoveRaftVoter and UpdateRaftVoter.

A fetch has something new when there are records for it, or when more is committed than its sender knows of.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING

from pessoa.quorum import translation
from pessoa.quorum.metadata_log import METADATA_TOPIC
from pessoa.quorum.snapshot_file import snapshot_name
from pessoa.raft.messages import NO_NODE, Fetch, FetchReply, OffsetAndEpoch, ReplicaKey
from pessoa.raft.voters import Address
from pessoa.wire.api import fetch_snapshot as snapshot_api
from pessoa.wire.api.begin_quorum_epoch import BeginQuorumEpochRequest, BeginQuorumEpochResponse
from pessoa.wire.api.end_quorum_epoch import EndQuorumEpochRequest, EndQuorumEpochResponse
from pessoa.wire.api.fetch import FetchRequest, FetchResponse
from pessoa.wire.api.fetch_snapshot import FetchSnapshotRequest, FetchSnapshotResponse
from pessoa.wire.api.vote import VoteRequest, VoteResponse
from pessoa.wire.errors import ErrorCode, Refusal
from pessoa.wire.schema import Message

if TYPE_CHECKING:
    from pessoa.quorum.raft_quorum import RaftQuorum

# The first in which an answer can name a leader, a snapshot, or where the logs part (KIP-595).
_FIRST_FETCH_OF_REPLICAS = 12


def vote(quorum: RaftQuorum, request: VoteRequest, version: int) -> Message:
    raft = quorum.raft
    try:
        translation.check_cluster(request.cluster_id, quorum.cluster_id)
        reply = raft.vote(quorum.monotonic_ms(), translation.vote_of(request, raft.own))
    except Refusal as refusal:
        return VoteResponse(error_code=refusal.code, topics=[])
    quorum.step()
    return translation.vote_response(reply, _leader_of(quorum, version, 1))


def begin_quorum_epoch(quorum: RaftQuorum, request: BeginQuorumEpochRequest, version: int) -> Message:
    raft = quorum.raft
    try:
        translation.check_cluster(request.cluster_id, quorum.cluster_id)
        begin = translation.begin_of(request, raft.own)
        if request.leader_endpoints and begin.epoch >= raft.epoch:
            first = request.leader_endpoints[0]
            quorum.learn_address(begin.leader_id, Address(first.host, first.port))
        reply = raft.begin_epoch(quorum.monotonic_ms(), begin)
    except Refusal as refusal:
        return BeginQuorumEpochResponse(error_code=refusal.code, topics=[])
    quorum.step()
    return translation.begin_response(reply, _leader_of(quorum, version, 1))


def end_quorum_epoch(quorum: RaftQuorum, request: EndQuorumEpochRequest, version: int) -> Message:
    try:
        translation.check_cluster(request.cluster_id, quorum.cluster_id)
        reply = quorum.raft.end_epoch(quorum.monotonic_ms(), translation.end_of(request))
    except Refusal as refusal:
        return EndQuorumEpochResponse(error_code=refusal.code, topics=[])
    quorum.step()
    return translation.end_response(reply, _leader_of(quorum, version, 1))


def _leader_of(quorum: RaftQuorum, version: int, first_version: int) -> translation.Endpoints:
    """The leader and its address, for a response in this version; nothing if they are not known, or before the first
    version that can name them."""
    leader_id = quorum.leader_id
    address = quorum.endpoint_of(leader_id) if version >= first_version and leader_id != NO_NODE else None
    return [] if address is None else [(leader_id, Address(*address))]


# Fetching.


def fetch(quorum: RaftQuorum, request: FetchRequest, version: int) -> Message | Awaitable[Message]:
    if version < _FIRST_FETCH_OF_REPLICAS:
        return _no_fetch(ErrorCode.UNSUPPORTED_VERSION)
    try:
        translation.check_cluster(request.cluster_id, quorum.cluster_id)
        wanted = translation.fetch_of(request)
    except Refusal as refusal:
        return _no_fetch(refusal.code)
    reply = quorum.raft.fetch(quorum.monotonic_ms(), wanted)
    quorum.step()
    if reply.is_readable:
        reply = _read_records(quorum, wanted, reply)
        if not reply.records and quorum.high_watermark <= wanted.high_watermark and request.max_wait_ms > 0:
            return _fetch_later(quorum, wanted, reply, request.max_wait_ms, version)
    return _fetch_response(quorum, reply, version)


def _no_fetch(error: ErrorCode) -> FetchResponse:
    return FetchResponse(throttle_time_ms=0, error_code=error, session_id=0, responses=[])


async def _fetch_later(quorum: RaftQuorum, fetch: Fetch, reply: FetchReply, max_wait_ms: int, version: int) -> Message:
    deadline_ms = quorum.monotonic_ms() + max_wait_ms
    raft = quorum.raft
    while True:
        # Also before the first wait: this coroutine starts one turn of the event loop after `fetch` found no records,
        # and a wake-up that came in between is lost.
        if not raft.is_leader or raft.epoch != fetch.epoch:
            # It says who leads instead, and counts for nothing.
            reply = raft.fetch(quorum.monotonic_ms(), fetch)
            break
        reply = _read_records(quorum, fetch, reply)
        if reply.records or quorum.high_watermark > fetch.high_watermark:
            break
        if not await quorum.wait_for_change(deadline_ms):
            break
    return _fetch_response(quorum, reply, version)


def _read_records(quorum: RaftQuorum, fetch: Fetch, reply: FetchReply) -> FetchReply:
    if fetch.offset >= quorum.log_end_offset:
        return reply._replace(high_watermark=quorum.high_watermark)
    records = quorum.log.read(fetch.offset, quorum.settings.fetch_max_bytes)
    return reply._replace(high_watermark=quorum.high_watermark, records=records)


def _fetch_response(quorum: RaftQuorum, reply: FetchReply, version: int) -> Message:
    leader = [] if reply.is_readable else _leader_of(quorum, version, 16)
    return translation.fetch_response(reply, quorum.log.log_start_offset, leader)


def fetch_snapshot(quorum: RaftQuorum, request: FetchSnapshotRequest) -> Message:
    try:
        translation.check_cluster(request.cluster_id, quorum.cluster_id)
        wanted = translation.snapshot_of(request)
    except Refusal as refusal:
        return FetchSnapshotResponse(throttle_time_ms=0, error_code=refusal.code, topics=[])
    error, data, size = _read_snapshot(quorum, wanted, request.max_bytes)
    if error is ErrorCode.NONE:
        key = ReplicaKey(request.replica_id, wanted.replica_directory_id)
        quorum.raft.fetched_snapshot(quorum.monotonic_ms(), key)
    found = snapshot_api.FetchSnapshotResponsePartitionSnapshot(
        index=wanted.partition,
        error_code=error,
        snapshot_id=snapshot_api.FetchSnapshotResponseSnapshotId(
            end_offset=wanted.snapshot_id.end_offset, epoch=wanted.snapshot_id.epoch
        ),
        current_leader=snapshot_api.LeaderIdAndEpoch(leader_id=quorum.leader_id, leader_epoch=quorum.epoch),
        size=size,
        position=wanted.position,
        unaligned_records=memoryview(data),
    )
    topic = snapshot_api.FetchSnapshotResponseTopicSnapshot(name=METADATA_TOPIC, partitions=[found])
    return FetchSnapshotResponse(throttle_time_ms=0, error_code=ErrorCode.NONE, topics=[topic])


def _read_snapshot(
    quorum: RaftQuorum, wanted: snapshot_api.PartitionSnapshot, max_bytes: int
) -> tuple[ErrorCode, bytes, int]:
    raft = quorum.raft
    if wanted.partition != 0:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, b"", 0
    if wanted.current_leader_epoch < raft.epoch:
        return ErrorCode.FENCED_LEADER_EPOCH, b"", 0
    if wanted.current_leader_epoch > raft.epoch:
        return ErrorCode.UNKNOWN_LEADER_EPOCH, b"", 0
    if not raft.is_leader:
        return ErrorCode.NOT_LEADER_OR_FOLLOWER, b"", 0
    snapshot = OffsetAndEpoch(wanted.snapshot_id.end_offset, wanted.snapshot_id.epoch)
    if snapshot not in quorum.log.snapshots:
        return ErrorCode.SNAPSHOT_NOT_FOUND, b"", 0
    file = quorum.disk.open(f"{quorum.log.directory}/{snapshot_name(snapshot)}", pooled=False, read_only=True)
    try:
        if not 0 <= wanted.position < file.size:
            return ErrorCode.POSITION_OUT_OF_RANGE, b"", file.size
        room = min(max_bytes, quorum.settings.fetch_snapshot_max_bytes, file.size - wanted.position)
        return ErrorCode.NONE, file.read(wanted.position, max(room, 1)), file.size
    finally:
        file.close()
