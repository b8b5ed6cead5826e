"""EndQuorumEpoch: the leader of the metadata quorum steps down, and names who should follow (KIP-595).

    v1  flexible; candidates with their directories, and where the leader is (KIP-853)

Served by controllers alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pessoa.broker.api_row import BETWEEN_NODES, ApiRow, Quota
from pessoa.wire.catalogue import ApiKey

if TYPE_CHECKING:
    from pessoa.broker.api_row import Reply
    from pessoa.broker.controller_services import ControllerServices
    from pessoa.quorum.raft_quorum import RaftQuorum
    from pessoa.wire.api.end_quorum_epoch import EndQuorumEpochRequest
    from pessoa.wire.errors import Refusal
    from pessoa.wire.request_context import RequestContext
    from pessoa.wire.schema import Message


def handle_on_controller(node: ControllerServices, context: RequestContext, request: EndQuorumEpochRequest) -> Reply:
    return node.quorum.handle(serve_in_quorum, request, context.version)


def serve_in_quorum(quorum: RaftQuorum, request: EndQuorumEpochRequest, version: int) -> Message:
    from pessoa.quorum.quorum_requests import end_quorum_epoch

    return end_quorum_epoch(quorum, request, version)


def refuse(request: EndQuorumEpochRequest, refusal: Refusal, version: int) -> Message:
    from pessoa.wire.api.end_quorum_epoch import EndQuorumEpochResponse

    return EndQuorumEpochResponse(error_code=refusal.code, topics=[])


ROW = ApiRow(
    ApiKey.END_QUORUM_EPOCH,
    "0-1",
    handle_on_controller=handle_on_controller,
    serve_in_quorum=serve_in_quorum,
    refuse=refuse,
    authorised=BETWEEN_NODES,
    quota=Quota.NONE,
)
