"""PushTelemetry: a client pushes its metrics (KIP-714), which /metrics of this broker then shows.

The metrics are OTLP's `MetricsData`, compressed as the broker said. What is wrong with a push is answered in Kafka's
order:

    INVALID_REQUEST                a reserved instance id, or the push before this one was the client's last
    THROTTLING_QUOTA_EXCEEDED      it came before the interval was over; a client's last push may
    UNKNOWN_SUBSCRIPTION_ID        the subscriptions have changed: the client asks for them again
    UNSUPPORTED_COMPRESSION_TYPE
    TELEMETRY_TOO_LARGE            above telemetry.max.bytes, as it came or when it is decompressed
    INVALID_RECORD                 what was pushed cannot be read

As in Apache Kafka, clients are told of this API only by a broker that can show what they push: one with
`pessoa.metrics.port`. Unlike there, a broker without it answers UNSUPPORTED_VERSION.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pessoa.broker.api_row import ApiRow
from pessoa.wire.catalogue import ApiKey
from pessoa.wire.errors import ErrorCode

if TYPE_CHECKING:
    from pessoa.broker.services import BrokerServices
    from pessoa.wire.api.push_telemetry import PushTelemetryRequest, PushTelemetryResponse
    from pessoa.wire.request_context import RequestContext


async def handle(
    broker: BrokerServices, context: RequestContext, request: PushTelemetryRequest
) -> PushTelemetryResponse:
    from pessoa.wire.api.push_telemetry import PushTelemetryResponse

    error = ErrorCode.UNSUPPORTED_VERSION
    if broker.telemetry is not None:
        error = await broker.telemetry.push(request, context)
    return PushTelemetryResponse(throttle_time_ms=0, error_code=error)


ROW = ApiRow(
    ApiKey.PUSH_TELEMETRY,
    "0",
    handle=handle,
    is_offered=lambda broker: broker.telemetry is not None,
)
