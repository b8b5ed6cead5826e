"""Issues a delegation token (KIP-48)."""

from __future__ import annotations

from pessoa.wire.schema import ALL, Message, Struct, array, binary, int16, int32, int64, string

# From this version on a token may be asked for on behalf of another user.
FIRST_CREATE_TOKEN_WITH_REQUESTER = 3


class CreatableRenewers(Struct):
    principal_type: str = string()
    principal_name: str = string()


class CreateDelegationTokenRequest(Message, versions="1-3", flexible="2+", api_key=38):
    owner_principal_type: str | None = string("3+", default="", nullable=ALL)
    owner_principal_name: str | None = string("3+", default="", nullable=ALL)
    renewers: list[CreatableRenewers] = array(CreatableRenewers)
    max_lifetime_ms: int = int64()


class CreateDelegationTokenResponse(Message, versions="1-3", flexible="2+", api_key=38):
    error_code: int = int16()
    principal_type: str = string()
    principal_name: str = string()
    token_requester_principal_type: str = string("3+", default="")
    token_requester_principal_name: str = string("3+", default="")
    issue_timestamp_ms: int = int64()
    expiry_timestamp_ms: int = int64()
    max_timestamp_ms: int = int64()
    token_id: str = string()
    hmac: bytes = binary()
    throttle_time_ms: int = int32()
