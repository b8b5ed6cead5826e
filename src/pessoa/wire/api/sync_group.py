"""The leader of a classic group hands in the assignment; every member receives its own."""

from __future__ import annotations

from pessoa.wire.schema import ALL, Message, Struct, array, binary, int16, int32, string


class SyncGroupRequestAssignment(Struct):
    member_id: str = string()
    assignment: bytes = binary()


class SyncGroupRequest(Message, versions="0-5", flexible="4+", api_key=14):
    group_id: str = string()
    generation_id: int = int32()
    member_id: str = string()
    group_instance_id: str | None = string("3+", default=None, nullable=ALL)
    protocol_type: str | None = string("5+", default=None, nullable=ALL, ignorable=True)
    protocol_name: str | None = string("5+", default=None, nullable=ALL, ignorable=True)
    assignments: list[SyncGroupRequestAssignment] = array(SyncGroupRequestAssignment)


class SyncGroupResponse(Message, versions="0-5", flexible="4+", api_key=14):
    throttle_time_ms: int = int32("1+", default=0, ignorable=True)
    error_code: int = int16()
    protocol_type: str | None = string("5+", default=None, nullable=ALL, ignorable=True)
    protocol_name: str | None = string("5+", default=None, nullable=ALL, ignorable=True)
    assignment: bytes = binary()
