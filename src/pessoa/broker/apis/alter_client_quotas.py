"""AlterClientQuotas: set and remove client quotas (KIP-546). v1: flexible.

They are stored and described; nothing enforces them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pessoa.broker.api_row import ApiRow, Audited, Authorised
from pessoa.security.acl import ALTER_CONFIGS, CLUSTER
from pessoa.wire.catalogue import ApiKey

if TYPE_CHECKING:
    from pessoa.broker.api_row import AnyServices, Reply
    from pessoa.controller.decision import Decision, Situation
    from pessoa.wire.api.alter_client_quotas import AlterClientQuotasRequest
    from pessoa.wire.errors import Refusal
    from pessoa.wire.request_context import RequestContext
    from pessoa.wire.schema import Message


def handle(node: AnyServices, context: RequestContext, request: AlterClientQuotasRequest) -> Reply:
    return node.controller.submit(request, context)


def decide(situation: Situation, request: AlterClientQuotasRequest) -> Decision:
    from pessoa.controller.quotas import alter_client_quotas

    return alter_client_quotas(situation, request)


def refuse(request: AlterClientQuotasRequest, refusal: Refusal, version: int) -> Message:
    from pessoa.wire.api.alter_client_quotas import (
        AlterClientQuotasResponse,
        AlterClientQuotasResponseEntityData,
        AlterClientQuotasResponseEntryData,
    )

    entries = [
        AlterClientQuotasResponseEntryData(
            error_code=refusal.code,
            error_message=refusal.message,
            entity=[
                AlterClientQuotasResponseEntityData(entity_type=part.entity_type, entity_name=part.entity_name)
                for part in entry.entity
            ],
        )
        for entry in request.entries
    ]
    return AlterClientQuotasResponse(throttle_time_ms=0, entries=entries)


ROW = ApiRow(
    ApiKey.ALTER_CLIENT_QUOTAS,
    "0-1",
    handle=handle,
    handle_on_controller=handle,
    is_forwarded=True,
    audited=Audited.YES,
    decide=decide,
    refuse=refuse,
    authorised=Authorised(ALTER_CONFIGS, CLUSTER),
)
