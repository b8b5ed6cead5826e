"""Envelopes: a client's request inside a broker's, so that the controller can act for the client (KIP-590).

    EnvelopeRequest
      request_data        header and body of the client's request, as on the wire but without the size
      request_principal   who the client is: a version (int16), then a DefaultPrincipalData
      client_host_address the client's address: 4 or 16 bytes
    EnvelopeResponse
      error_code          of the envelope itself: NOT_CONTROLLER sends the broker elsewhere
      response_data       header and body of the client's response

The principal's form is that of Apache Kafka's default principal builder, so brokers of either kind understand it.
"""

from __future__ import annotations

import ipaddress
from typing import TYPE_CHECKING

from pessoa.wire.api.envelope import EnvelopeRequest
from pessoa.wire.catalogue import ApiKey
from pessoa.wire.errors import ProtocolViolation
from pessoa.wire.frames import SIZE_BYTES, request_frame
from pessoa.wire.message_headers import ResponseHeader, response_header_version
from pessoa.wire.request_context import ANONYMOUS
from pessoa.wire.stored.principal import DefaultPrincipalData

if TYPE_CHECKING:
    from pessoa.wire.schema import Message

_PRINCIPAL_VERSION = 0
_VERSION_BYTES = 2
# The controller's answer says whose request it answers; there is one request in an envelope.
_CORRELATION_ID = 1


def seal(request: Message, version: int, client_id: str | None, principal: str, client_host: str) -> EnvelopeRequest:
    frame = b"".join(request_frame(request, version, _CORRELATION_ID, client_id))
    return EnvelopeRequest(
        request_data=frame[SIZE_BYTES:],
        request_principal=render_principal(principal),
        client_host_address=_address(client_host),
    )


def open_response(request: Message, version: int, data: bytes) -> Message:
    """Return the response inside an envelope. Raises ProtocolViolation."""
    _, pos = ResponseHeader.decoder(response_header_version(type(request), version))(data, 0, len(data))
    response, _ = ApiKey(request.api_key).response.decoder(version)(data, pos, len(data))
    return response  # type: ignore[no-any-return]


def render_principal(principal: str) -> bytes:
    """Return the principal, such as `User:alice`, as Kafka serialises it."""
    kind, _, name = principal.partition(":")
    data = DefaultPrincipalData(type=kind, name=name, token_authenticated=False)
    return _PRINCIPAL_VERSION.to_bytes(_VERSION_BYTES, "big") + data.encode(_PRINCIPAL_VERSION)


def parse_principal(data: bytes | None) -> str:
    if data is None:
        return ANONYMOUS
    version = int.from_bytes(data[:_VERSION_BYTES], "big", signed=True)
    if len(data) < _VERSION_BYTES or version not in DefaultPrincipalData.versions:
        raise ProtocolViolation("the principal in an envelope is of an unknown form")
    found = DefaultPrincipalData.decode(data[_VERSION_BYTES:], version)
    return f"{found.type}:{found.name}"


def render_address(address: bytes) -> str:
    try:
        return str(ipaddress.ip_address(address))
    except ValueError as error:
        raise ProtocolViolation(f"an address of {len(address)} bytes is none") from error


def _address(host: str) -> bytes:
    try:
        return ipaddress.ip_address(host).packed
    except ValueError:
        # What a broker asks for itself comes from nowhere.
        return ipaddress.IPv4Address("127.0.0.1").packed
