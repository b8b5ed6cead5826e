"""DescribeCluster: the cluster id, the controller and the nodes (KIP-700). v1: brokers or controllers; v2: fenced
ones too.

Brokers answer every client, controllers only clients that may alter the cluster, as in Apache Kafka.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pessoa.broker.api_row import ApiRow, Authorised
from pessoa.broker.authorization import cluster_operations
from pessoa.security.acl import ALTER, CLUSTER
from pessoa.wire.catalogue import ApiKey
from pessoa.wire.errors import ErrorCode
from pessoa.wire.primitives import MIN_INT32

if TYPE_CHECKING:
    from pessoa.broker.controller_services import ControllerServices
    from pessoa.broker.services import BrokerServices
    from pessoa.wire.api.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
    from pessoa.wire.errors import Refusal
    from pessoa.wire.request_context import RequestContext
    from pessoa.wire.schema import Message

    AnyServices = BrokerServices | ControllerServices

_BROKERS = 1
_CONTROLLERS = 2
_NAMES = {_BROKERS: "broker", _CONTROLLERS: "controller"}


def handle(node: AnyServices, context: RequestContext, request: DescribeClusterRequest) -> DescribeClusterResponse:
    """Return the brokers if a broker is asked, the controllers if a controller is (KIP-919)."""
    from pessoa.wire.api.describe_cluster import DescribeClusterBroker, DescribeClusterResponse

    if request.endpoint_type != node.endpoint_type:
        error = (
            ErrorCode.MISMATCHED_ENDPOINT_TYPE
            if request.endpoint_type in _NAMES
            else ErrorCode.UNSUPPORTED_ENDPOINT_TYPE
        )
        return DescribeClusterResponse(
            throttle_time_ms=0,
            error_code=error,
            error_message=f"this is a {_NAMES[node.endpoint_type]}, not endpoint type {request.endpoint_type}",
            cluster_id="",
            brokers=[],
        )
    return DescribeClusterResponse(
        throttle_time_ms=0,
        error_code=ErrorCode.NONE,
        # A version 0 that came as far as this asked for brokers, which is the default that version 0 stands for.
        endpoint_type=node.endpoint_type,
        cluster_id=node.cluster_id,
        controller_id=node.controller_id,
        brokers=[
            DescribeClusterBroker(
                broker_id=one.id, host=one.host, port=one.port, rack=one.rack, is_fenced=one.is_fenced
            )
            for one in node.nodes(context.listener)
            if request.include_fenced_brokers or not one.is_fenced
        ],
        cluster_authorized_operations=cluster_operations(node, context)
        if request.include_cluster_authorized_operations
        else MIN_INT32,
    )


def refuse(request: DescribeClusterRequest, refusal: Refusal, version: int) -> Message:
    from pessoa.wire.api.describe_cluster import DescribeClusterResponse

    return DescribeClusterResponse(
        throttle_time_ms=0, error_code=refusal.code, error_message=refusal.message, cluster_id="", brokers=[]
    )


ROW = ApiRow(
    ApiKey.DESCRIBE_CLUSTER,
    "0-2",
    handle=handle,
    handle_on_controller=handle,
    refuse=refuse,
    authorised_on_controller=Authorised(ALTER, CLUSTER),
)
