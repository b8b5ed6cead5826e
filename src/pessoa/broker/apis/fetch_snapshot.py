"""FetchSnapshot: read a piece of a snapshot of the metadata log (KIP-630).

    v1  the directory of the replica, and where the leader is (KIP-853)

Served by controllers alone, by the one that leads.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pessoa.broker.api_row import BETWEEN_NODES, ApiRow, Quota
from pessoa.wire.catalogue import ApiKey

if TYPE_CHECKING:
    from pessoa.broker.api_row import Reply
    from pessoa.broker.controller_services import ControllerServices
    from pessoa.quorum.raft_quorum import RaftQuorum
    from pessoa.wire.api.fetch_snapshot import FetchSnapshotRequest
    from pessoa.wire.errors import Refusal
    from pessoa.wire.request_context import RequestContext
    from pessoa.wire.schema import Message


def handle_on_controller(node: ControllerServices, context: RequestContext, request: FetchSnapshotRequest) -> Reply:
    return node.quorum.handle(serve_in_quorum, request, context.version)


def serve_in_quorum(quorum: RaftQuorum, request: FetchSnapshotRequest, version: int) -> Message:
    from pessoa.quorum.quorum_requests import fetch_snapshot

    return fetch_snapshot(quorum, request)


def refuse(request: FetchSnapshotRequest, refusal: Refusal, version: int) -> Message:
    from pessoa.wire.api.fetch_snapshot import FetchSnapshotResponse

    return FetchSnapshotResponse(throttle_time_ms=0, error_code=refusal.code, topics=[])


ROW = ApiRow(
    ApiKey.FETCH_SNAPSHOT,
    "0-1",
    handle_on_controller=handle_on_controller,
    serve_in_quorum=serve_in_quorum,
    refuse=refuse,
    authorised=BETWEEN_NODES,
    quota=Quota.NONE,
)
