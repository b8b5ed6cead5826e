"""The groups that a broker coordinates."""

from __future__ import annotations

from pessoa.wire.schema import Message, Struct, array, int16, int32, string


class ListGroupsRequest(Message, versions="0-5", flexible="3+", api_key=16):
    states_filter: list[str] = array("string", "4+", default=())
    types_filter: list[str] = array("string", "5+", default=())


class ListedGroup(Struct):
    group_id: str = string()
    protocol_type: str = string()
    group_state: str = string("4+", default="", ignorable=True)
    group_type: str = string("5+", default="", ignorable=True)


class ListGroupsResponse(Message, versions="0-5", flexible="3+", api_key=16):
    throttle_time_ms: int = int32("1+", default=0, ignorable=True)
    error_code: int = int16()
    groups: list[ListedGroup] = array(ListedGroup)
