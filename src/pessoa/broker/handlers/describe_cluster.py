"""DescribeCluster: the cluster id, the controller and the nodes (KIP-700). v1: brokers or controllers; v2: fenced
ones too."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pessoa.wire.api.describe_cluster import DescribeClusterBroker, DescribeClusterRequest, DescribeClusterResponse
from pessoa.wire.errors import ErrorCode
from pessoa.wire.primitives import MIN_INT32

if TYPE_CHECKING:
    from pessoa.broker.context import RequestContext
    from pessoa.broker.services import BrokerServices

_BROKERS = 1
_CONTROLLERS = 2


def handle(broker: BrokerServices, context: RequestContext, request: DescribeClusterRequest) -> DescribeClusterResponse:
    if request.endpoint_type != _BROKERS:
        error = (
            ErrorCode.MISMATCHED_ENDPOINT_TYPE
            if request.endpoint_type == _CONTROLLERS
            else ErrorCode.UNSUPPORTED_ENDPOINT_TYPE
        )
        return DescribeClusterResponse(
            throttle_time_ms=0,
            error_code=error,
            error_message=f"this is a broker, and endpoint type {request.endpoint_type} was asked for",
            cluster_id="",
            brokers=[],
        )
    return DescribeClusterResponse(
        throttle_time_ms=0,
        error_code=ErrorCode.NONE,
        cluster_id=broker.cluster_id,
        controller_id=broker.controller_id,
        brokers=[
            DescribeClusterBroker(
                broker_id=node.id, host=node.host, port=node.port, rack=node.rack, is_fenced=node.is_fenced
            )
            for node in broker.nodes(context.listener)
            if request.include_fenced_brokers or not node.is_fenced
        ],
        cluster_authorized_operations=broker.cluster_operations
        if request.include_cluster_authorized_operations
        else MIN_INT32,
    )
