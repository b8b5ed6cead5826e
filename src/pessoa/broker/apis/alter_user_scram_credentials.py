"""AlterUserScramCredentials: add, change and delete SCRAM credentials (KIP-554)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pessoa.broker.api_row import ApiRow, Audited, Authorised
from pessoa.security.acl import ALTER, CLUSTER
from pessoa.wire.catalogue import ApiKey

if TYPE_CHECKING:
    from pessoa.broker.api_row import AnyServices, Reply
    from pessoa.controller.decision import Decision, Situation
    from pessoa.wire.api.alter_user_scram_credentials import AlterUserScramCredentialsRequest
    from pessoa.wire.errors import Refusal
    from pessoa.wire.request_context import RequestContext
    from pessoa.wire.schema import Message


def handle(node: AnyServices, context: RequestContext, request: AlterUserScramCredentialsRequest) -> Reply:
    return node.controller.submit(request, context)


def decide(situation: Situation, request: AlterUserScramCredentialsRequest) -> Decision:
    from pessoa.controller.scram_decisions import alter_user_scram_credentials

    return alter_user_scram_credentials(situation, request)


def refuse(request: AlterUserScramCredentialsRequest, refusal: Refusal, version: int) -> Message:
    """Return the error for every user of the request, each once."""
    from pessoa.wire.api.alter_user_scram_credentials import (
        AlterUserScramCredentialsResponse,
        AlterUserScramCredentialsResult,
    )

    names = [*(one.name for one in request.deletions), *(one.name for one in request.upsertions)]
    results = [
        AlterUserScramCredentialsResult(user=user, error_code=refusal.code, error_message=refusal.message)
        for user in dict.fromkeys(names)
    ]
    return AlterUserScramCredentialsResponse(throttle_time_ms=0, results=results)


ROW = ApiRow(
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
    "0",
    handle=handle,
    handle_on_controller=handle,
    is_forwarded=True,
    audited=Audited.YES,
    decide=decide,
    refuse=refuse,
    authorised=Authorised(ALTER, CLUSTER),
)
