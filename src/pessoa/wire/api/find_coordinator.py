"""Which broker coordinates a group, a transactional id or a share partition."""

from __future__ import annotations

from pessoa.wire.schema import ALL, Message, Struct, array, int8, int16, int32, string


class FindCoordinatorRequest(Message, versions="0-6", flexible="3+", api_key=10):
    key: str = string("0-3", default="")
    key_type: int = int8("1+", default=0)
    coordinator_keys: list[str] = array("string", "4+", default=())


class Coordinator(Struct):
    key: str = string()
    node_id: int = int32()
    host: str = string()
    port: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable=ALL)


class FindCoordinatorResponse(Message, versions="0-6", flexible="3+", api_key=10):
    throttle_time_ms: int = int32("1+", default=0, ignorable=True)
    error_code: int = int16("0-3", default=0)
    error_message: str | None = string("1-3", default="", nullable=ALL, ignorable=True)
    node_id: int = int32("0-3", default=0)
    host: str = string("0-3", default="")
    port: int = int32("0-3", default=0)
    coordinators: list[Coordinator] = array(Coordinator, "4+", default=())
