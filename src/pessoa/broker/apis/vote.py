"""Vote: a candidate asks a voter for its vote (KIP-595).

    v1  directories of replicas, and where the leader is (KIP-853)
    v2  whether it would give it: pre-votes (KIP-996)

Served by controllers alone; what it changes is on the disk before the answer leaves.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pessoa.broker.api_row import BETWEEN_NODES, ApiRow, Quota
from pessoa.wire.catalogue import ApiKey

if TYPE_CHECKING:
    from pessoa.broker.api_row import Reply
    from pessoa.broker.controller_services import ControllerServices
    from pessoa.quorum.raft_quorum import RaftQuorum
    from pessoa.wire.api.vote import VoteRequest
    from pessoa.wire.errors import Refusal
    from pessoa.wire.request_context import RequestContext
    from pessoa.wire.schema import Message


def handle_on_controller(node: ControllerServices, context: RequestContext, request: VoteRequest) -> Reply:
    return node.quorum.handle(serve_in_quorum, request, context.version)


def serve_in_quorum(quorum: RaftQuorum, request: VoteRequest, version: int) -> Message:
    from pessoa.quorum.quorum_requests import vote

    return vote(quorum, request, version)


def refuse(request: VoteRequest, refusal: Refusal, version: int) -> Message:
    from pessoa.wire.api.vote import VoteResponse

    return VoteResponse(error_code=refusal.code, topics=[])


ROW = ApiRow(
    ApiKey.VOTE,
    "0-2",
    handle_on_controller=handle_on_controller,
    serve_in_quorum=serve_in_quorum,
    refuse=refuse,
    authorised=BETWEEN_NODES,
    quota=Quota.NONE,
)
