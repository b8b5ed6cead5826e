"""Removes the access control entries that match filters."""

from __future__ import annotations

from pessoa.wire.schema import ALL, Message, Struct, array, int8, int16, int32, string


class DeleteAclsFilter(Struct):
    resource_type_filter: int = int8()
    resource_name_filter: str | None = string(nullable=ALL)
    pattern_type_filter: int = int8(default=3)
    principal_filter: str | None = string(nullable=ALL)
    host_filter: str | None = string(nullable=ALL)
    operation: int = int8()
    permission_type: int = int8()


class DeleteAclsRequest(Message, versions="1-3", flexible="2+", api_key=31):
    filters: list[DeleteAclsFilter] = array(DeleteAclsFilter)


class DeleteAclsMatchingAcl(Struct):
    error_code: int = int16()
    error_message: str | None = string(nullable=ALL)
    resource_type: int = int8()
    resource_name: str = string()
    pattern_type: int = int8(default=3)
    principal: str = string()
    host: str = string()
    operation: int = int8()
    permission_type: int = int8()


class DeleteAclsFilterResult(Struct):
    error_code: int = int16()
    error_message: str | None = string(nullable=ALL)
    matching_acls: list[DeleteAclsMatchingAcl] = array(DeleteAclsMatchingAcl)


class DeleteAclsResponse(Message, versions="1-3", flexible="2+", api_key=31):
    throttle_time_ms: int = int32()
    filter_results: list[DeleteAclsFilterResult] = array(DeleteAclsFilterResult)
