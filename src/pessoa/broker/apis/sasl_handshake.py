"""SaslHandshake: choose the SASL mechanism. v1: the exchange goes on in SaslAuthenticate requests (KIP-152).

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
    from pessoa.wire.api.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
    from pessoa.wire.request_context import RequestContext


def handle(node: AnyServices, context: RequestContext, request: SaslHandshakeRequest) -> SaslHandshakeResponse:
    from pessoa.wire.api.sasl_handshake import SaslHandshakeResponse

    return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE, mechanisms=[])


ROW = ApiRow(
    ApiKey.SASL_HANDSHAKE,
    "0-1",
    handle=handle,
    handle_on_controller=handle,
    is_served_before_login=True,
    quota=Quota.NONE,
)
