"""Removes a broker's registration."""

from __future__ import annotations

from pessoa.wire.schema import ALL, Message, int16, int32, string


class UnregisterBrokerRequest(Message, versions="0", flexible="0+", api_key=64):
    broker_id: int = int32()


class UnregisterBrokerResponse(Message, versions="0", flexible="0+", api_key=64):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable=ALL)
