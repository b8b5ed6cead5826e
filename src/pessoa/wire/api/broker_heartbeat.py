"""A broker tells the controller that it runs, how far its metadata is, and whether it asks to be fenced or to stop."""

from __future__ import annotations

from pessoa.base.ids import Uuid
from pessoa.wire.schema import ALL, Message, array, boolean, int16, int32, int64


class BrokerHeartbeatRequest(Message, versions="0-2", flexible="0+", api_key=63):
    broker_id: int = int32()
    broker_epoch: int = int64(default=-1)
    current_metadata_offset: int = int64()
    want_fence: bool = boolean()
    want_shut_down: bool = boolean()
    offline_log_dirs: list[Uuid] = array("uuid", "1+", default=(), tag=0)
    cordoned_log_dirs: list[Uuid] | None = array("uuid", "2+", default=None, nullable=ALL, tag=1)


class BrokerHeartbeatResponse(Message, versions="0-2", flexible="0+", api_key=63):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    is_caught_up: bool = boolean(default=False)
    is_fenced: bool = boolean(default=True)
    should_shut_down: bool = boolean()
