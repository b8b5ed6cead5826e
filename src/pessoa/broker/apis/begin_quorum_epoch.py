"""BeginQuorumEpoch: a new leader of the metadata quorum announces itself to a voter (KIP-595).

    v1  flexible; directories of replicas, and where the leader is (KIP-853)

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
    from pessoa.wire.api.begin_quorum_epoch import BeginQuorumEpochRequest
    from pessoa.wire.errors import Refusal
    from pessoa.wire.request_context import RequestContext
    from pessoa.wire.schema import Message


def handle_on_controller(node: ControllerServices, context: RequestContext, request: BeginQuorumEpochRequest) -> Reply:
    return node.quorum.handle(serve_in_quorum, request, context.version)


def serve_in_quorum(quorum: RaftQuorum, request: BeginQuorumEpochRequest, version: int) -> Message:
    from pessoa.quorum.quorum_requests import begin_quorum_epoch

    return begin_quorum_epoch(quorum, request, version)


def refuse(request: BeginQuorumEpochRequest, refusal: Refusal, version: int) -> Message:
    from pessoa.wire.api.begin_quorum_epoch import BeginQuorumEpochResponse

    return BeginQuorumEpochResponse(error_code=refusal.code, topics=[])


ROW = ApiRow(
    ApiKey.BEGIN_QUORUM_EPOCH,
    "0-1",
    handle_on_controller=handle_on_controller,
    serve_in_quorum=serve_in_quorum,
    refuse=refuse,
    authorised=BETWEEN_NODES,
    quota=Quota.NONE,
)
