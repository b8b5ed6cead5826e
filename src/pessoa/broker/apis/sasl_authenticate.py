"""SaslAuthenticate: one step of a SASL exchange (KIP-152). v1: how long the session lasts (KIP-368); v2: flexible.

On a listener with SASL its gate answers (`broker/sasl_gate.py`, `security/sasl/server_session.py`). What comes here is
too late, behind a login, or on a listener without SASL: ILLEGAL_SASL_STATE.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pessoa.broker.api_row import ApiRow, Quota
from pessoa.wire.catalogue import ApiKey
from pessoa.wire.errors import ErrorCode

if TYPE_CHECKING:
    from pessoa.broker.api_row import AnyServices
    from pessoa.wire.api.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
    from pessoa.wire.request_context import RequestContext


def handle(node: AnyServices, context: RequestContext, request: SaslAuthenticateRequest) -> SaslAuthenticateResponse:
    from pessoa.wire.api.sasl_authenticate import SaslAuthenticateResponse

    return SaslAuthenticateResponse(
        error_code=ErrorCode.ILLEGAL_SASL_STATE,
        error_message="SaslAuthenticate request received after successful authentication",
        auth_bytes=b"",
    )


ROW = ApiRow(
    ApiKey.SASL_AUTHENTICATE,
    "0-2",
    handle=handle,
    handle_on_controller=handle,
    is_served_before_login=True,
    quota=Quota.NONE,
)
