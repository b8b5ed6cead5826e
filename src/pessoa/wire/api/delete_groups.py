"""Deletes groups that have no members."""

from __future__ import annotations

from pessoa.wire.schema import Message, Struct, array, int16, int32, string


class DeleteGroupsRequest(Message, versions="0-2", flexible="2+", api_key=42):
    groups_names: list[str] = array("string")


class DeletableGroupResult(Struct):
    group_id: str = string()
    error_code: int = int16()


class DeleteGroupsResponse(Message, versions="0-2", flexible="2+", api_key=42):
    throttle_time_ms: int = int32()
    results: list[DeletableGroupResult] = array(DeletableGroupResult)
