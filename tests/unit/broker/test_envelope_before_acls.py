"""A controller that leads before its node has read the access control lists."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

from pessoa.broker.apis.envelope import handle_on_controller
from pessoa.broker.envelope_format import open_response, seal
from pessoa.security.authorizer import Authorizer
from pessoa.wire.api.delete_topics import DeletableTopicResult, DeleteTopicsRequest, DeleteTopicsResponse
from pessoa.wire.errors import ErrorCode
from pessoa.wire.request_context import RequestContext

if TYPE_CHECKING:
    from pessoa.broker.controller_services import ControllerServices
    from pessoa.wire.api.envelope import EnvelopeResponse
    from pessoa.wire.schema import Message

NODE, ALICE = "User:node", "User:alice"
REQUEST = DeleteTopicsRequest(topic_names=["t"], timeout_ms=1)
VERSION = 4


class Controller:
    async def decide(self, request: Message, caller: RequestContext) -> Message:
        result = DeletableTopicResult(name="t", error_code=ErrorCode.NONE)
        return DeleteTopicsResponse(throttle_time_ms=0, responses=[result])


def forward(authorizer: Authorizer, principal: str) -> EnvelopeResponse:
    node = cast("ControllerServices", SimpleNamespace(authorizer=authorizer, controller=Controller()))
    context = RequestContext(58, 0, 1, "broker-1", "127.0.0.1", 1, "CONTROLLER", NODE)
    envelope = seal(REQUEST, VERSION, "c", principal, "127.0.0.1")
    return asyncio.run(handle_on_controller(node, context, envelope))


def test_an_envelope_is_answered_not_controller_until_the_acls_are_loaded() -> None:
    authorizer = Authorizer(frozenset((NODE,)))
    assert forward(authorizer, ALICE).error_code == ErrorCode.NOT_CONTROLLER
    authorizer.load({})
    assert forward(authorizer, ALICE).error_code == ErrorCode.NONE


def test_super_users_are_served_before_the_acls_are_loaded() -> None:
    answer = forward(Authorizer(frozenset((NODE,))), NODE)
    assert answer.error_code == ErrorCode.NONE
    assert answer.response_data is not None
    response = open_response(REQUEST, VERSION, answer.response_data)
    assert isinstance(response, DeleteTopicsResponse)
    assert response.responses[0].error_code == ErrorCode.NONE
