"""A voter updates its endpoints and versions (KIP-853)."""

from __future__ import annotations

from pessoa.base.ids import Uuid
from pessoa.wire.schema import ALL, Message, Struct, array, int16, int32, string, struct, uint16, uuid


class Listener(Struct):
    name: str = string()
    host: str = string()
    port: int = uint16()


class KRaftVersionFeature(Struct):
    min_supported_version: int = int16()
    max_supported_version: int = int16()


class UpdateRaftVoterRequest(Message, versions="0", flexible="0+", api_key=82):
    cluster_id: str | None = string(nullable=ALL)
    current_leader_epoch: int = int32()
    voter_id: int = int32()
    voter_directory_id: Uuid = uuid()
    listeners: list[Listener] = array(Listener)
    kraft_version_feature: KRaftVersionFeature = struct(KRaftVersionFeature)


class CurrentLeader(Struct):
    leader_id: int = int32(default=-1)
    leader_epoch: int = int32(default=-1)
    host: str = string()
    port: int = int32()


class UpdateRaftVoterResponse(Message, versions="0", flexible="0+", api_key=82):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    current_leader: CurrentLeader | None = struct(CurrentLeader, default=None, tag=0)
