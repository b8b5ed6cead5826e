"""A broker forwards a client's request, with its principal, to the controller (KIP-590)."""

from __future__ import annotations

from pessoa.wire.schema import ALL, Message, binary, int16


class EnvelopeRequest(Message, versions="0", flexible="0+", api_key=58):
    request_data: bytes = binary()
    request_principal: bytes | None = binary(nullable=ALL)
    client_host_address: bytes = binary()


class EnvelopeResponse(Message, versions="0", flexible="0+", api_key=58):
    response_data: bytes | None = binary(default=None, nullable=ALL)
    error_code: int = int16()
