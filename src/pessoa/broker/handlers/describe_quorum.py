"""DescribeQuorum: the state of the metadata quorum (KIP-836). v1: when replicas fetched last; v2: nodes.

What there is to say is `pessoa.quorum.describe`'s to say; here the voters get their addresses.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pessoa.metadata.cluster import Endpoint
from pessoa.quorum.describe import describe_quorum
from pessoa.wire.api.describe_quorum import DescribeQuorumRequest, DescribeQuorumResponse

if TYPE_CHECKING:
    from pessoa.broker.context import RequestContext
    from pessoa.broker.services import BrokerServices

_FIRST_VERSION_WITH_NODES = 2


def handle(broker: BrokerServices, context: RequestContext, request: DescribeQuorumRequest) -> DescribeQuorumResponse:
    endpoints = {voter: _controller_endpoints(broker) for voter in broker.quorum.voters}
    response = describe_quorum(broker.quorum, request, endpoints, broker.clock.now_ms())
    if context.version < _FIRST_VERSION_WITH_NODES:
        response.nodes = []
    return response


def _controller_endpoints(broker: BrokerServices) -> dict[str, Endpoint]:
    names = broker.config.controller_listener_names
    return {
        one.name: Endpoint(one.host, one.port, one.security_protocol)
        for one in broker.config.advertised_listeners
        if one.name in names
    }
