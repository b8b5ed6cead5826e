"""UnregisterBroker: remove a broker's registration (KIP-631)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pessoa.broker.api_row import ApiRow, Audited, Authorised
from pessoa.security.acl import ALTER, CLUSTER
from pessoa.wire.catalogue import ApiKey

if TYPE_CHECKING:
    from pessoa.broker.api_row import AnyServices, Reply
    from pessoa.controller.decision import Decision, Situation
    from pessoa.wire.api.unregister_broker import UnregisterBrokerRequest
    from pessoa.wire.errors import Refusal
    from pessoa.wire.request_context import RequestContext
    from pessoa.wire.schema import Message


def handle(node: AnyServices, context: RequestContext, request: UnregisterBrokerRequest) -> Reply:
    return node.controller.submit(request, context)


def decide(situation: Situation, request: UnregisterBrokerRequest) -> Decision:
    from pessoa.controller.brokers import unregister_broker

    return unregister_broker(situation, request)


def refuse(request: UnregisterBrokerRequest, refusal: Refusal, version: int) -> Message:
    from pessoa.wire.api.unregister_broker import UnregisterBrokerResponse

    return UnregisterBrokerResponse(throttle_time_ms=0, error_code=refusal.code, error_message=refusal.message)


ROW = ApiRow(
    ApiKey.UNREGISTER_BROKER,
    "0",
    handle=handle,
    handle_on_controller=handle,
    is_forwarded=True,
    audited=Audited.YES,
    decide=decide,
    refuse=refuse,
    authorised=Authorised(ALTER, CLUSTER),
)
