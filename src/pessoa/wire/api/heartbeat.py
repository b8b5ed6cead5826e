"""A member of a classic group says that it is still there."""

from __future__ import annotations

from pessoa.wire.schema import ALL, Message, int16, int32, string


class HeartbeatRequest(Message, versions="0-4", flexible="4+", api_key=12):
    group_id: str = string()
    generation_id: int = int32()
    member_id: str = string()
    group_instance_id: str | None = string("3+", default=None, nullable=ALL)


class HeartbeatResponse(Message, versions="0-4", flexible="4+", api_key=12):
    throttle_time_ms: int = int32("1+", default=0, ignorable=True)
    error_code: int = int16()
