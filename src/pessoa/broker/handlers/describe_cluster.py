"""DescribeCluster: the cluster id, the controller and the nodes (KIP-700). v1: brokers or controllers; v2: fenced
ones too."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pessoa.wire.api.describe_cluster import DescribeClusterBroker, DescribeClusterRequest, DescribeClusterResponse
from pessoa.wire.errors import ErrorCode
from pessoa.wire.primitives import MIN_INT32

if TYPE_CHECKING:
    from pessoa.broker.context import RequestContext
    from pessoa.broker.controller_node import ControllerServices
    from pessoa.broker.services import BrokerServices

    AnyServices = BrokerServices | ControllerServices

_BROKERS = 1
_CONTROLLERS = 2
_NAMES = {_BROKERS: "broker", _CONTROLLERS: "controller"}


def handle(node: AnyServices, context: RequestContext, request: DescribeClusterRequest) -> DescribeClusterResponse:
    """Brokers tell of brokers, controllers of controllers (KIP-919)."""
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
        cluster_id=node.cluster_id,
        controller_id=node.controller_id,
        brokers=[
            DescribeClusterBroker(
                broker_id=one.id, host=one.host, port=one.port, rack=one.rack, is_fenced=one.is_fenced
            )
            for one in node.nodes(context.listener)
            if request.include_fenced_brokers or not one.is_fenced
        ],
        cluster_authorized_operations=node.cluster_operations
        if request.include_cluster_authorized_operations
        else MIN_INT32,
    )
