"""AddRaftVoter: add a controller to the voters of the metadata quorum (KIP-853).

v1  whether the answer waits until the change is committed
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pessoa.broker.api_row import ApiRow, Audited, Authorised
from pessoa.security.acl import ALTER, CLUSTER
from pessoa.wire.catalogue import ApiKey

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from pessoa.broker.api_row import Reply
    from pessoa.broker.controller_services import ControllerServices
    from pessoa.broker.services import BrokerServices
    from pessoa.quorum.raft_quorum import RaftQuorum
    from pessoa.wire.api.add_raft_voter import AddRaftVoterRequest
    from pessoa.wire.errors import Refusal
    from pessoa.wire.request_context import RequestContext
    from pessoa.wire.schema import Message


def handle(broker: BrokerServices, context: RequestContext, request: AddRaftVoterRequest) -> Reply:
    return broker.controller.submit(request, context)


def handle_on_controller(node: ControllerServices, context: RequestContext, request: AddRaftVoterRequest) -> Reply:
    return node.quorum.handle(serve_in_quorum, request, context.version)


def serve_in_quorum(quorum: RaftQuorum, request: AddRaftVoterRequest, version: int) -> Awaitable[Message]:
    from pessoa.quorum.reconfiguration import add_voter

    return add_voter(quorum, request)


def refuse(request: AddRaftVoterRequest, refusal: Refusal, version: int) -> Message:
    from pessoa.wire.api.add_raft_voter import AddRaftVoterResponse

    return AddRaftVoterResponse(throttle_time_ms=0, error_code=refusal.code, error_message=refusal.message)


ROW = ApiRow(
    ApiKey.ADD_RAFT_VOTER,
    "0-1",
    handle=handle,
    handle_on_controller=handle_on_controller,
    is_forwarded=True,
    audited=Audited.YES,
    serve_in_quorum=serve_in_quorum,
    refuse=refuse,
    authorised=Authorised(ALTER, CLUSTER),
)
