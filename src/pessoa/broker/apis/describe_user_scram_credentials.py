"""DescribeUserScramCredentials: which SCRAM credentials users have, never the secrets (KIP-554).

Answered from the metadata image, by brokers and controllers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pessoa.broker.api_row import ApiRow, Authorised
from pessoa.security.acl import CLUSTER, DESCRIBE
from pessoa.wire.catalogue import ApiKey

if TYPE_CHECKING:
    from pessoa.broker.api_row import AnyServices
    from pessoa.wire.api.describe_user_scram_credentials import (
        DescribeUserScramCredentialsRequest,
        DescribeUserScramCredentialsResponse,
    )
    from pessoa.wire.errors import Refusal
    from pessoa.wire.request_context import RequestContext
    from pessoa.wire.schema import Message


def handle(
    node: AnyServices, context: RequestContext, request: DescribeUserScramCredentialsRequest
) -> DescribeUserScramCredentialsResponse:
    from pessoa.controller.scram_decisions import describe_user_scram_credentials

    return describe_user_scram_credentials(node.image, request)


def refuse(request: DescribeUserScramCredentialsRequest, refusal: Refusal, version: int) -> Message:
    """Return the error for the whole response and for every user of the request."""
    from pessoa.wire.api.describe_user_scram_credentials import (
        DescribeUserScramCredentialsResponse,
        DescribeUserScramCredentialsResult,
    )

    results = [
        DescribeUserScramCredentialsResult(
            user=user.name, error_code=refusal.code, error_message=refusal.message, credential_infos=[]
        )
        for user in request.users or ()
    ]
    return DescribeUserScramCredentialsResponse(
        throttle_time_ms=0, error_code=refusal.code, error_message=refusal.message, results=results
    )


ROW = ApiRow(
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS,
    "0",
    handle=handle,
    handle_on_controller=handle,
    refuse=refuse,
    authorised=Authorised(DESCRIBE, CLUSTER),
)
