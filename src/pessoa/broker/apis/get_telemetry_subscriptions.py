"""GetTelemetrySubscriptions: which of its metrics a client should push, how often and how compressed (KIP-714).

A client without an id sends zeros and gets the id of its instance, which it keeps for as long as it lives. Asking again
before the push interval is over is THROTTLING_QUOTA_EXCEEDED, unless a push was answered with an error that tells the
client to ask (`broker/metrics/client_telemetry.py`).

As in Apache Kafka, where an exporter has to be configured, clients are told of this API only by a broker that can show
what they push: one with `pessoa.metrics.port`. Unlike there, a broker without it answers UNSUPPORTED_VERSION.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pessoa.broker.api_row import ApiRow
from pessoa.wire.catalogue import ApiKey
from pessoa.wire.errors import ErrorCode

if TYPE_CHECKING:
    from pessoa.broker.services import BrokerServices
    from pessoa.wire.api.get_telemetry_subscriptions import (
        GetTelemetrySubscriptionsRequest,
        GetTelemetrySubscriptionsResponse,
    )
    from pessoa.wire.request_context import RequestContext


def handle(
    broker: BrokerServices, context: RequestContext, request: GetTelemetrySubscriptionsRequest
) -> GetTelemetrySubscriptionsResponse:
    if broker.telemetry is None:
        return _error_response(ErrorCode.UNSUPPORTED_VERSION)
    instance = broker.telemetry.subscribe(request.client_instance_id, context)
    if isinstance(instance, ErrorCode):
        return _error_response(instance)
    from pessoa.broker.metrics.client_telemetry import ACCEPTED_CODECS
    from pessoa.wire.api.get_telemetry_subscriptions import GetTelemetrySubscriptionsResponse

    return GetTelemetrySubscriptionsResponse(
        throttle_time_ms=0,
        error_code=ErrorCode.NONE,
        client_instance_id=instance.id,
        subscription_id=instance.subscription_id,
        accepted_compression_types=[int(codec) for codec in ACCEPTED_CODECS],
        push_interval_ms=instance.wanted.interval_ms,
        telemetry_max_bytes=broker.telemetry.max_bytes,
        delta_temporality=True,
        requested_metrics=list(instance.wanted.metrics),
    )


def _error_response(error: ErrorCode) -> GetTelemetrySubscriptionsResponse:
    from pessoa.base.ids import ZERO_UUID
    from pessoa.wire.api.get_telemetry_subscriptions import GetTelemetrySubscriptionsResponse

    return GetTelemetrySubscriptionsResponse(
        throttle_time_ms=0,
        error_code=error,
        client_instance_id=ZERO_UUID,
        subscription_id=0,
        accepted_compression_types=[],
        push_interval_ms=0,
        telemetry_max_bytes=0,
        delta_temporality=False,
        requested_metrics=[],
    )


ROW = ApiRow(
    ApiKey.GET_TELEMETRY_SUBSCRIPTIONS,
    "0",
    handle=handle,
    is_offered=lambda broker: broker.telemetry is not None,
)
