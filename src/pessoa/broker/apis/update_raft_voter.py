"""UpdateRaftVoter: a voter tells the leader where it listens, and which versions of the quorum it knows (KIP-853).

Served by controllers alone. Unlike in Apache Kafka the leader also corrects its own entry.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pessoa.broker.api_row import BETWEEN_NODES, ApiRow, Quota
from pessoa.wire.catalogue import ApiKey

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from pessoa.broker.api_row import Reply
    from pessoa.broker.controller_services import ControllerServices
    from pessoa.quorum.raft_quorum import RaftQuorum
    from pessoa.wire.api.update_raft_voter import UpdateRaftVoterRequest
    from pessoa.wire.errors import Refusal
    from pessoa.wire.request_context import RequestContext
    from pessoa.wire.schema import Message


def handle_on_controller(node: ControllerServices, context: RequestContext, request: UpdateRaftVoterRequest) -> Reply:
    return node.quorum.handle(serve_in_quorum, request, context.version)


def serve_in_quorum(quorum: RaftQuorum, request: UpdateRaftVoterRequest, version: int) -> Awaitable[Message]:
    from pessoa.quorum.reconfiguration import update_voter

    return update_voter(quorum, request)


def refuse(request: UpdateRaftVoterRequest, refusal: Refusal, version: int) -> Message:
    from pessoa.wire.api.update_raft_voter import UpdateRaftVoterResponse

    return UpdateRaftVoterResponse(throttle_time_ms=0, error_code=refusal.code)


ROW = ApiRow(
    ApiKey.UPDATE_RAFT_VOTER,
    "0",
    handle_on_controller=handle_on_controller,
    serve_in_quorum=serve_in_quorum,
    refuse=refuse,
    authorised=BETWEEN_NODES,
    quota=Quota.NONE,
)
