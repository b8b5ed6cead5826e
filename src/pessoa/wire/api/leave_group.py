"""Members leave a classic group."""

from __future__ import annotations

from pessoa.wire.schema import ALL, Message, Struct, array, int16, int32, string


class MemberIdentity(Struct):
    member_id: str = string()
    group_instance_id: str | None = string(default=None, nullable=ALL)
    reason: str | None = string("5+", default=None, nullable=ALL, ignorable=True)


class LeaveGroupRequest(Message, versions="0-5", flexible="4+", api_key=13):
    group_id: str = string()
    member_id: str = string("0-2", default="")
    members: list[MemberIdentity] = array(MemberIdentity, "3+", default=())


class MemberResponse(Struct):
    member_id: str = string()
    group_instance_id: str | None = string(nullable=ALL)
    error_code: int = int16()


class LeaveGroupResponse(Message, versions="0-5", flexible="4+", api_key=13):
    throttle_time_ms: int = int32("1+", default=0, ignorable=True)
    error_code: int = int16()
    members: list[MemberResponse] = array(MemberResponse, "3+", default=())
