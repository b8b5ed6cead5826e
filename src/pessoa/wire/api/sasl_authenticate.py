"""Carries one step of a SASL exchange (KIP-152)."""

from __future__ import annotations

from pessoa.wire.schema import ALL, Message, binary, int16, int64, string


class SaslAuthenticateRequest(Message, versions="0-2", flexible="2+", api_key=36):
    auth_bytes: bytes = binary()


class SaslAuthenticateResponse(Message, versions="0-2", flexible="2+", api_key=36):
    error_code: int = int16()
    error_message: str | None = string(nullable=ALL)
    auth_bytes: bytes = binary()
    session_lifetime_ms: int = int64("1+", default=0, ignorable=True)
