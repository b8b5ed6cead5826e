"""The state and members of classic groups."""

from __future__ import annotations

from pessoa.wire.primitives import MIN_INT32
from pessoa.wire.schema import ALL, Message, Struct, array, binary, boolean, int16, int32, string


class DescribeGroupsRequest(Message, versions="0-6", flexible="5+", api_key=15):
    groups: list[str] = array("string")
    include_authorized_operations: bool = boolean("3+", default=False)


class DescribedGroupMember(Struct):
    member_id: str = string()
    group_instance_id: str | None = string("4+", default=None, nullable=ALL, ignorable=True)
    client_id: str = string()
    client_host: str = string()
    member_metadata: bytes = binary()
    member_assignment: bytes = binary()


class DescribedGroup(Struct):
    error_code: int = int16()
    error_message: str | None = string("6+", default=None, nullable=ALL)
    group_id: str = string()
    group_state: str = string()
    protocol_type: str = string()
    protocol_data: str = string()
    members: list[DescribedGroupMember] = array(DescribedGroupMember)
    authorized_operations: int = int32("3+", default=MIN_INT32)


class DescribeGroupsResponse(Message, versions="0-6", flexible="5+", api_key=15):
    throttle_time_ms: int = int32("1+", default=0, ignorable=True)
    groups: list[DescribedGroup] = array(DescribedGroup)
