"""Sets and removes client quotas (KIP-546)."""

from __future__ import annotations

from pessoa.wire.schema import ALL, Message, Struct, array, boolean, float64, int16, int32, string


class EntityData(Struct):
    entity_type: str = string()
    entity_name: str | None = string(nullable=ALL)


class OpData(Struct):
    key: str = string()
    value: float = float64()
    remove: bool = boolean()


class EntryData(Struct):
    entity: list[EntityData] = array(EntityData)
    ops: list[OpData] = array(OpData)


class AlterClientQuotasRequest(Message, versions="0-1", flexible="1+", api_key=49):
    entries: list[EntryData] = array(EntryData)
    validate_only: bool = boolean()


class AlterClientQuotasResponseEntityData(Struct):
    entity_type: str = string()
    entity_name: str | None = string(nullable=ALL)


class AlterClientQuotasResponseEntryData(Struct):
    error_code: int = int16()
    error_message: str | None = string(nullable=ALL)
    entity: list[AlterClientQuotasResponseEntityData] = array(AlterClientQuotasResponseEntityData)


class AlterClientQuotasResponse(Message, versions="0-1", flexible="1+", api_key=49):
    throttle_time_ms: int = int32()
    entries: list[AlterClientQuotasResponseEntryData] = array(AlterClientQuotasResponseEntryData)
