"""A controller registers its endpoints and features (KIP-919)."""

from __future__ import annotations

from pessoa.base.ids import Uuid
from pessoa.wire.schema import ALL, Message, Struct, array, boolean, int16, int32, string, uint16, uuid


class Listener(Struct):
    name: str = string()
    host: str = string()
    port: int = uint16()
    security_protocol: int = int16()


class Feature(Struct):
    name: str = string()
    min_supported_version: int = int16()
    max_supported_version: int = int16()


class ControllerRegistrationRequest(Message, versions="0", flexible="0+", api_key=70):
    controller_id: int = int32()
    incarnation_id: Uuid = uuid()
    zk_migration_ready: bool = boolean()
    listeners: list[Listener] = array(Listener)
    features: list[Feature] = array(Feature)


class ControllerRegistrationResponse(Message, versions="0", flexible="0+", api_key=70):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable=ALL)
