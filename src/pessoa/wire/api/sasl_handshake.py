"""Chooses the SASL mechanism."""

from __future__ import annotations

from pessoa.wire.schema import Message, array, int16, string


class SaslHandshakeRequest(Message, versions="0-1", flexible="none", api_key=17):
    mechanism: str = string()


class SaslHandshakeResponse(Message, versions="0-1", flexible="none", api_key=17):
    error_code: int = int16()
    mechanisms: list[str] = array("string")
