"""Envelope: a broker hands on what a client asked of it (KIP-590). Served by controllers alone.

The answer is NOT_CONTROLLER where this controller does not lead, and the broker tries another. What is inside must be
an API that brokers hand on, in a version that is served; anything else is answered with INVALID_REQUEST, or closes the
connection if it cannot be read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pessoa.broker.context import RequestContext
from pessoa.broker.dispatch import CONTROLLER_TABLE
from pessoa.broker.envelope import parse_principal, render_address
from pessoa.controller.decision import NotController
from pessoa.wire.api.envelope import EnvelopeRequest, EnvelopeResponse
from pessoa.wire.errors import ErrorCode
from pessoa.wire.frames import SIZE_BYTES, response_frame
from pessoa.wire.headers import RequestHeader, peek_api, request_header_version

if TYPE_CHECKING:
    from pessoa.broker.controller_node import ControllerServices
    from pessoa.wire.schema import Message

_FORWARDED = {int(row.key): row for row in CONTROLLER_TABLE if row.forwarded}


async def handle(node: ControllerServices, context: RequestContext, request: EnvelopeRequest) -> EnvelopeResponse:
    data = request.request_data
    key, version, correlation_id = peek_api(data, 0, len(data))
    row = _FORWARDED.get(key)
    if row is None or version not in row.versions:
        return _refused(ErrorCode.INVALID_REQUEST)
    kind = row.key.request
    header, pos = RequestHeader.decoder(request_header_version(kind, version))(data, 0, len(data))
    inner, _ = kind.decoder(version)(data, pos, len(data))
    try:
        response = await node.decide(
            inner,
            RequestContext(
                key,
                version,
                correlation_id,
                header.client_id,
                render_address(request.client_host_address),
                context.connection_id,
                context.listener,
                parse_principal(request.request_principal),
            ),
        )
    except NotController:
        return _refused(ErrorCode.NOT_CONTROLLER)
    return EnvelopeResponse(response_data=_rendered(response, version, correlation_id), error_code=ErrorCode.NONE)


def _rendered(response: Message, version: int, correlation_id: int) -> bytes:
    return b"".join(response_frame(response, version, correlation_id))[SIZE_BYTES:]


def _refused(code: ErrorCode) -> EnvelopeResponse:
    return EnvelopeResponse(response_data=None, error_code=code)
