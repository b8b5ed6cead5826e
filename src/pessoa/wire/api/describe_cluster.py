"""The cluster id, the controller and the nodes (KIP-700)."""

from __future__ import annotations

from pessoa.wire.primitives import MIN_INT32
from pessoa.wire.schema import ALL, Message, Struct, array, boolean, int8, int16, int32, string


class DescribeClusterRequest(Message, versions="0-2", flexible="0+", api_key=60):
    include_cluster_authorized_operations: bool = boolean()
    endpoint_type: int = int8("1+", default=1)
    include_fenced_brokers: bool = boolean("2+", default=False)


class DescribeClusterBroker(Struct):
    broker_id: int = int32()
    host: str = string()
    port: int = int32()
    rack: str | None = string(default=None, nullable=ALL)
    is_fenced: bool = boolean("2+", default=False)


class DescribeClusterResponse(Message, versions="0-2", flexible="0+", api_key=60):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(default=None, nullable=ALL)
    endpoint_type: int = int8("1+", default=1)
    cluster_id: str = string()
    controller_id: int = int32(default=-1)
    brokers: list[DescribeClusterBroker] = array(DescribeClusterBroker)
    cluster_authorized_operations: int = int32(default=MIN_INT32)
