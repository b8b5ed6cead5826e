"""Replaces the whole dynamic configuration of a resource. Superseded by IncrementalAlterConfigs."""

from __future__ import annotations

from pessoa.wire.schema import ALL, Message, Struct, array, boolean, int8, int16, int32, string


class AlterableConfig(Struct):
    name: str = string()
    value: str | None = string(nullable=ALL)


class AlterConfigsResource(Struct):
    resource_type: int = int8()
    resource_name: str = string()
    configs: list[AlterableConfig] = array(AlterableConfig)


class AlterConfigsRequest(Message, versions="0-2", flexible="2+", api_key=33):
    resources: list[AlterConfigsResource] = array(AlterConfigsResource)
    validate_only: bool = boolean()


class AlterConfigsResourceResponse(Struct):
    error_code: int = int16()
    error_message: str | None = string(nullable=ALL)
    resource_type: int = int8()
    resource_name: str = string()


class AlterConfigsResponse(Message, versions="0-2", flexible="2+", api_key=33):
    throttle_time_ms: int = int32()
    responses: list[AlterConfigsResourceResponse] = array(AlterConfigsResourceResponse)
