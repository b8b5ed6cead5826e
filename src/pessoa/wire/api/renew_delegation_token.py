"""Extends the life of a delegation token (KIP-48)."""

from __future__ import annotations

from pessoa.wire.schema import Message, binary, int16, int32, int64


class RenewDelegationTokenRequest(Message, versions="1-2", flexible="2+", api_key=39):
    hmac: bytes = binary()
    renew_period_ms: int = int64()


class RenewDelegationTokenResponse(Message, versions="1-2", flexible="2+", api_key=39):
    error_code: int = int16()
    expiry_timestamp_ms: int = int64()
    throttle_time_ms: int = int32()
