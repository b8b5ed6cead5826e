"""The client quotas that match a filter (KIP-546)."""

from __future__ import annotations

from pessoa.wire.schema import ALL, Message, Struct, array, boolean, float64, int8, int16, int32, string


class ComponentData(Struct):
    entity_type: str = string()
    match_type: int = int8()
    match: str | None = string(nullable=ALL)


class DescribeClientQuotasRequest(Message, versions="0-1", flexible="1+", api_key=48):
    components: list[ComponentData] = array(ComponentData)
    strict: bool = boolean()


class EntityData(Struct):
    entity_type: str = string()
    entity_name: str | None = string(nullable=ALL)


class ValueData(Struct):
    key: str = string()
    value: float = float64()


class EntryData(Struct):
    entity: list[EntityData] = array(EntityData)
    values: list[ValueData] = array(ValueData)


class DescribeClientQuotasResponse(Message, versions="0-1", flexible="1+", api_key=48):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable=ALL)
    entries: list[EntryData] | None = array(EntryData, nullable=ALL)
