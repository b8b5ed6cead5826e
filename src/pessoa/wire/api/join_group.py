"""Joins a classic group, or joins it again for the next generation."""

from __future__ import annotations

from pessoa.wire.schema import ALL, Message, Struct, array, binary, boolean, int16, int32, string

FIRST_JOIN_WITH_NULL_PROTOCOL = 7


class JoinGroupRequestProtocol(Struct):
    name: str = string()
    metadata: bytes = binary()


class JoinGroupRequest(Message, versions="0-9", flexible="6+", api_key=11):
    group_id: str = string()
    session_timeout_ms: int = int32()
    rebalance_timeout_ms: int = int32("1+", default=-1, ignorable=True)
    member_id: str = string()
    group_instance_id: str | None = string("5+", default=None, nullable=ALL)
    protocol_type: str = string()
    protocols: list[JoinGroupRequestProtocol] = array(JoinGroupRequestProtocol)
    reason: str | None = string("8+", default=None, nullable=ALL, ignorable=True)


class JoinGroupResponseMember(Struct):
    member_id: str = string()
    group_instance_id: str | None = string("5+", default=None, nullable=ALL, ignorable=True)
    metadata: bytes = binary()


class JoinGroupResponse(Message, versions="0-9", flexible="6+", api_key=11):
    throttle_time_ms: int = int32("2+", default=0, ignorable=True)
    error_code: int = int16()
    generation_id: int = int32(default=-1)
    protocol_type: str | None = string("7+", default=None, nullable=ALL, ignorable=True)
    protocol_name: str | None = string(nullable="7+")
    leader: str = string()
    skip_assignment: bool = boolean("9+", default=False)
    member_id: str = string()
    members: list[JoinGroupResponseMember] = array(JoinGroupResponseMember)
