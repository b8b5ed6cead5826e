"""Adds access control entries."""

from __future__ import annotations

from pessoa.wire.schema import ALL, Message, Struct, array, int8, int16, int32, string


class AclCreation(Struct):
    resource_type: int = int8()
    resource_name: str = string()
    resource_pattern_type: int = int8(default=3)
    principal: str = string()
    host: str = string()
    operation: int = int8()
    permission_type: int = int8()


class CreateAclsRequest(Message, versions="1-3", flexible="2+", api_key=30):
    creations: list[AclCreation] = array(AclCreation)


class AclCreationResult(Struct):
    error_code: int = int16()
    error_message: str | None = string(nullable=ALL)


class CreateAclsResponse(Message, versions="1-3", flexible="2+", api_key=30):
    throttle_time_ms: int = int32()
    results: list[AclCreationResult] = array(AclCreationResult)
