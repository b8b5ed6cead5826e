"""Which metrics a client should push (KIP-714)."""

from __future__ import annotations

from pessoa.base.ids import Uuid
from pessoa.wire.schema import Message, array, boolean, int16, int32, uuid


class GetTelemetrySubscriptionsRequest(Message, versions="0", flexible="0+", api_key=71):
    client_instance_id: Uuid = uuid()


class GetTelemetrySubscriptionsResponse(Message, versions="0", flexible="0+", api_key=71):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    client_instance_id: Uuid = uuid()
    subscription_id: int = int32()
    accepted_compression_types: list[int] = array("int8")
    push_interval_ms: int = int32()
    telemetry_max_bytes: int = int32()
    delta_temporality: bool = boolean()
    requested_metrics: list[str] = array("string")
