"""A broker registers its incarnation with the controller (KIP-631)."""

from __future__ import annotations

from pessoa.base.ids import Uuid
from pessoa.wire.schema import ALL, Message, Struct, array, boolean, int16, int32, int64, string, uint16, uuid


class Listener(Struct):
    name: str = string()
    host: str = string()
    port: int = uint16()
    security_protocol: int = int16()


class Feature(Struct):
    name: str = string()
    min_supported_version: int = int16()
    max_supported_version: int = int16()


class BrokerRegistrationRequest(Message, versions="0-4", flexible="0+", api_key=62):
    broker_id: int = int32()
    cluster_id: str = string()
    incarnation_id: Uuid = uuid()
    listeners: list[Listener] = array(Listener)
    features: list[Feature] = array(Feature)
    rack: str | None = string(nullable=ALL)
    is_migrating_zk_broker: bool = boolean("1+", default=False)
    log_dirs: list[Uuid] = array("uuid", "2+", default=(), ignorable=True)
    previous_broker_epoch: int = int64("3+", default=-1, ignorable=True)


class BrokerRegistrationResponse(Message, versions="0-4", flexible="0+", api_key=62):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    broker_epoch: int = int64(default=-1)
