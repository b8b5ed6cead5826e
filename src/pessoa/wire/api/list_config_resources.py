"""The resources that have a configuration (KIP-1142)."""

from __future__ import annotations

from pessoa.wire.schema import Message, Struct, array, int8, int16, int32, string


class ListConfigResourcesRequest(Message, versions="0-1", flexible="0+", api_key=74):
    resource_types: list[int] = array("int8", "1+", default=())


class ConfigResource(Struct):
    resource_name: str = string()
    resource_type: int = int8("1+", default=16, ignorable=True)


class ListConfigResourcesResponse(Message, versions="0-1", flexible="0+", api_key=74):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    config_resources: list[ConfigResource] = array(ConfigResource)
