"""Envelope: a broker hands on what a client asked of it (KIP-590). Served by controllers alone.

The answer is NOT_CONTROLLER where this controller does not lead, and the broker tries another; and where the node has
not read its access control lists, as one that has just started and leads at once: the broker then tries again, where
Kafka answers the client with an error that it does not expect. What is inside must be
an API that brokers hand on, in a version that is served. The request inside is checked with the principal and the
address that the envelope names, so an envelope is taken only from a node of the cluster (CLUSTER_ACTION).

    INVALID_REQUEST                    an API that is not handed on (an envelope among them), or no address
    PRINCIPAL_DESERIALIZATION_FAILURE  no principal of Kafka's default form
    UNSUPPORTED_VERSION                a version that is not served, or bytes that do not decode
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from pessoa.broker.api_row import BETWEEN_NODES, ApiRow, Quota
from pessoa.broker.api_table import find_row
from pessoa.broker.authorization import denial_response
from pessoa.controller.decision import NotController
from pessoa.wire.catalogue import ApiKey
from pessoa.wire.errors import ErrorCode, ProtocolViolation, Refusal
from pessoa.wire.frames import SIZE_BYTES, response_frame
from pessoa.wire.message_headers import RequestHeader, peek_api, request_header_version
from pessoa.wire.request_context import RequestContext

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pessoa.broker.api_row import AnyRow
    from pessoa.broker.controller_services import ControllerServices
    from pessoa.wire.api.envelope import EnvelopeRequest, EnvelopeResponse
    from pessoa.wire.schema import Message


async def handle_on_controller(
    node: ControllerServices, context: RequestContext, request: EnvelopeRequest
) -> EnvelopeResponse:
    from pessoa.wire.api.envelope import EnvelopeResponse

    try:
        row, inner, caller = _open(context, request)
    except Refusal as refusal:
        return _error_response(refusal.code)
    if node.authorizer is not None and not node.authorizer.can_decide_about(caller.principal):
        return _error_response(ErrorCode.NOT_CONTROLLER)
    response = denial_response(node.authorizer, row, inner, caller, on_controller=True)
    if response is None:
        try:
            response = await node.controller.decide(inner, caller)
        except NotController:
            return _error_response(ErrorCode.NOT_CONTROLLER)
    return EnvelopeResponse(
        response_data=_render_response(response, caller.version, caller.correlation_id), error_code=ErrorCode.NONE
    )


def _open(context: RequestContext, request: EnvelopeRequest) -> tuple[AnyRow, Message, RequestContext]:
    """Return the request inside the envelope, its row, and the context of its client. Raises a `Refusal` with the error
    that Kafka has for each part."""
    from pessoa.broker.envelope_format import parse_principal, render_address

    with _refuse_violations_as(ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE):
        principal = parse_principal(request.request_principal)
    with _refuse_violations_as(ErrorCode.INVALID_REQUEST):
        client_host = render_address(request.client_host_address)
    data = request.request_data
    with _refuse_violations_as(ErrorCode.UNSUPPORTED_VERSION):
        key, version, correlation_id = peek_api(data, 0, len(data))
        row = find_row(key)
        if row is None or not row.is_forwarded:
            raise Refusal(ErrorCode.INVALID_REQUEST)
        if version not in row.versions:
            raise Refusal(ErrorCode.UNSUPPORTED_VERSION)
        kind = row.key.request
        header, pos = RequestHeader.decoder(request_header_version(kind, version))(data, 0, len(data))
        inner, _ = kind.decoder(version)(data, pos, len(data))
    caller = RequestContext(
        key,
        version,
        correlation_id,
        header.client_id,
        client_host,
        context.connection_id,
        context.listener,
        principal,
    )
    return row, inner, caller


@contextmanager
def _refuse_violations_as(code: ErrorCode) -> Iterator[None]:
    try:
        yield
    except ProtocolViolation as violation:
        raise Refusal(code, str(violation)) from violation


def _render_response(response: Message, version: int, correlation_id: int) -> bytes:
    return b"".join(response_frame(response, version, correlation_id))[SIZE_BYTES:]


def _error_response(code: ErrorCode) -> EnvelopeResponse:
    from pessoa.wire.api.envelope import EnvelopeResponse

    return EnvelopeResponse(response_data=None, error_code=code)


def refuse(request: EnvelopeRequest, refusal: Refusal, version: int) -> Message:
    return _error_response(refusal.code)


ROW = ApiRow(
    ApiKey.ENVELOPE,
    "0",
    handle_on_controller=handle_on_controller,
    refuse=refuse,
    authorised=BETWEEN_NODES,
    quota=Quota.NONE,
)
