"""A client pushes its metrics (KIP-714)."""

from __future__ import annotations

from pessoa.base.ids import Uuid
from pessoa.wire.schema import Message, binary, boolean, int8, int16, int32, uuid


class PushTelemetryRequest(Message, versions="0", flexible="0+", api_key=72):
    client_instance_id: Uuid = uuid()
    subscription_id: int = int32()
    terminating: bool = boolean()
    compression_type: int = int8()
    metrics: bytes = binary()


class PushTelemetryResponse(Message, versions="0", flexible="0+", api_key=72):
    throttle_time_ms: int = int32()
    error_code: int = int16()
