"""DescribeQuorum: the leader of the metadata quorum, its voters and observers, and how far they are (KIP-836).

    v1  when each replica fetched last, and when it had caught up
    v2  directories of replicas, listeners of voters, and sentences with errors (KIP-853)

Only the leader of the quorum can answer: brokers forward it, and a controller that is asked directly answers by itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pessoa.broker.api_row import ApiRow, Authorised
from pessoa.security.acl import CLUSTER, DESCRIBE
from pessoa.wire.catalogue import ApiKey

if TYPE_CHECKING:
    from pessoa.broker.api_row import Reply
    from pessoa.broker.controller_services import ControllerServices
    from pessoa.broker.services import BrokerServices
    from pessoa.quorum.raft_quorum import RaftQuorum
    from pessoa.wire.api.describe_quorum import DescribeQuorumRequest
    from pessoa.wire.errors import Refusal
    from pessoa.wire.request_context import RequestContext
    from pessoa.wire.schema import Message


def handle(broker: BrokerServices, context: RequestContext, request: DescribeQuorumRequest) -> Reply:
    return broker.controller.submit(request, context)


def handle_on_controller(node: ControllerServices, context: RequestContext, request: DescribeQuorumRequest) -> Reply:
    return node.quorum.handle(serve_in_quorum, request, context.version)


def serve_in_quorum(quorum: RaftQuorum, request: DescribeQuorumRequest, version: int) -> Message:
    from pessoa.quorum.describe import describe_quorum

    return describe_quorum(quorum, request, version)


def refuse(request: DescribeQuorumRequest, refusal: Refusal, version: int) -> Message:
    from pessoa.wire.api.describe_quorum import DescribeQuorumResponse

    return DescribeQuorumResponse(error_code=refusal.code, error_message=refusal.message, topics=[])


ROW = ApiRow(
    ApiKey.DESCRIBE_QUORUM,
    "0-2",
    handle=handle,
    handle_on_controller=handle_on_controller,
    is_forwarded=True,
    serve_in_quorum=serve_in_quorum,
    refuse=refuse,
    authorised=Authorised(DESCRIBE, CLUSTER),
)
