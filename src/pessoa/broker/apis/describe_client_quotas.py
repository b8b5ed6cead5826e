"""DescribeClientQuotas: the client quotas that match a filter (KIP-546). v1: flexible.

Answered from the metadata image; `controller/quotas.py` has the filter beside what sets the quotas.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pessoa.broker.api_row import ApiRow, Authorised
from pessoa.security.acl import CLUSTER, DESCRIBE_CONFIGS
from pessoa.wire.catalogue import ApiKey

if TYPE_CHECKING:
    from pessoa.broker.services import BrokerServices
    from pessoa.wire.api.describe_client_quotas import DescribeClientQuotasRequest, DescribeClientQuotasResponse
    from pessoa.wire.errors import Refusal
    from pessoa.wire.request_context import RequestContext
    from pessoa.wire.schema import Message


def handle(
    broker: BrokerServices, context: RequestContext, request: DescribeClientQuotasRequest
) -> DescribeClientQuotasResponse:
    from pessoa.controller.quotas import describe_client_quotas

    return describe_client_quotas(broker.image, request)


def refuse(request: DescribeClientQuotasRequest, refusal: Refusal, version: int) -> Message:
    from pessoa.wire.api.describe_client_quotas import DescribeClientQuotasResponse

    return DescribeClientQuotasResponse(
        throttle_time_ms=0, error_code=refusal.code, error_message=refusal.message, entries=None
    )


ROW = ApiRow(
    ApiKey.DESCRIBE_CLIENT_QUOTAS,
    "0-1",
    handle=handle,
    refuse=refuse,
    authorised=Authorised(DESCRIBE_CONFIGS, CLUSTER),
)
