"""The access control entries that match a filter."""

from __future__ import annotations

from pessoa.wire.schema import ALL, Message, Struct, array, int8, int16, int32, string


class DescribeAclsRequest(Message, versions="1-3", flexible="2+", api_key=29):
    resource_type_filter: int = int8()
    resource_name_filter: str | None = string(nullable=ALL)
    pattern_type_filter: int = int8(default=3)
    principal_filter: str | None = string(nullable=ALL)
    host_filter: str | None = string(nullable=ALL)
    operation: int = int8()
    permission_type: int = int8()


class AclDescription(Struct):
    principal: str = string()
    host: str = string()
    operation: int = int8()
    permission_type: int = int8()


class DescribeAclsResource(Struct):
    resource_type: int = int8()
    resource_name: str = string()
    pattern_type: int = int8(default=3)
    acls: list[AclDescription] = array(AclDescription)


class DescribeAclsResponse(Message, versions="1-3", flexible="2+", api_key=29):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable=ALL)
    resources: list[DescribeAclsResource] = array(DescribeAclsResource)
