"""AlterConfigs: replace the whole dynamic configuration of resources. v2: flexible.

Authorised: ALTER_CONFIGS on each topic and group, and on the cluster for all others.

IncrementalAlterConfigs has superseded it. Each resource stands for itself; within one it is all or nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pessoa.broker.api_row import ApiRow, Audited
from pessoa.broker.slices import Sliced
from pessoa.wire.catalogue import ApiKey

if TYPE_CHECKING:
    from pessoa.broker.api_row import AnyServices, Reply
    from pessoa.controller.decision import Decision, Situation
    from pessoa.wire.api.alter_configs import AlterConfigsRequest
    from pessoa.wire.errors import Refusal
    from pessoa.wire.request_context import RequestContext
    from pessoa.wire.schema import Message


def handle(node: AnyServices, context: RequestContext, request: AlterConfigsRequest) -> Reply:
    return node.controller.submit(request, context)


def decide(situation: Situation, request: AlterConfigsRequest) -> Decision:
    from pessoa.controller.config_decisions import alter_configs

    return alter_configs(situation, request)


def refuse(request: AlterConfigsRequest, refusal: Refusal, version: int) -> Message:
    from pessoa.wire.api.alter_configs import AlterConfigsResourceResponse, AlterConfigsResponse

    responses = [
        AlterConfigsResourceResponse(
            error_code=refusal.code,
            error_message=refusal.message,
            resource_type=resource.resource_type,
            resource_name=resource.resource_name,
        )
        for resource in request.resources
    ]
    return AlterConfigsResponse(throttle_time_ms=0, responses=responses)


ROW = ApiRow(
    ApiKey.ALTER_CONFIGS,
    "0-2",
    handle=handle,
    handle_on_controller=handle,
    is_forwarded=True,
    audited=Audited.YES,
    decide=decide,
    refuse=refuse,
    sliced=Sliced("resources", "responses"),
)
