"""Which SCRAM credentials users have, never the secrets (KIP-554)."""

from __future__ import annotations

from pessoa.wire.schema import ALL, Message, Struct, array, int8, int16, int32, string


class UserName(Struct):
    name: str = string()


class DescribeUserScramCredentialsRequest(Message, versions="0", flexible="0+", api_key=50):
    users: list[UserName] | None = array(UserName, nullable=ALL)


class CredentialInfo(Struct):
    mechanism: int = int8()
    iterations: int = int32()


class DescribeUserScramCredentialsResult(Struct):
    user: str = string()
    error_code: int = int16()
    error_message: str | None = string(nullable=ALL)
    credential_infos: list[CredentialInfo] = array(CredentialInfo)


class DescribeUserScramCredentialsResponse(Message, versions="0", flexible="0+", api_key=50):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable=ALL)
    results: list[DescribeUserScramCredentialsResult] = array(DescribeUserScramCredentialsResult)
