"""Removes a controller from the voters of the metadata quorum (KIP-853)."""

from __future__ import annotations

from pessoa.base.ids import Uuid
from pessoa.wire.schema import ALL, Message, int16, int32, string, uuid


class RemoveRaftVoterRequest(Message, versions="0", flexible="0+", api_key=81):
    cluster_id: str | None = string(nullable=ALL)
    voter_id: int = int32()
    voter_directory_id: Uuid = uuid()


class RemoveRaftVoterResponse(Message, versions="0", flexible="0+", api_key=81):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable=ALL)
