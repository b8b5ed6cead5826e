"""Client quotas: AlterClientQuotas and DescribeClientQuotas (KIP-546, KIP-599, KIP-612).

A quota belongs to an entity: a user, a client id, both together, or an IP address; a null name is the default of its
type. What can be limited depends on the entity:

    user, client-id   producer_byte_rate, consumer_byte_rate, request_percentage, controller_mutation_rate
    ip                connection_creation_rate
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import IntEnum
from math import isfinite
from typing import TYPE_CHECKING

from pessoa.controller.decision import Decision
from pessoa.metadata.delta import quota_entity
from pessoa.wire.api.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    AlterClientQuotasResponseEntityData,
    AlterClientQuotasResponseEntryData,
    OpData,
)
from pessoa.wire.api.alter_client_quotas import EntryData as AlterEntry
from pessoa.wire.api.describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    EntityData,
    EntryData,
    ValueData,
)
from pessoa.wire.errors import ErrorCode, Refusal
from pessoa.wire.stored.metadata_records import ClientQuotaRecord
from pessoa.wire.stored.metadata_records import EntityData as RecordEntity

if TYPE_CHECKING:
    from pessoa.controller.decision import Situation
    from pessoa.metadata.image import MetadataImage
    from pessoa.metadata.table_images import QuotaEntity
    from pessoa.wire.schema import Message

USER, CLIENT_ID, IP = "user", "client-id", "ip"
# Whether a limit is a whole number.
_CLIENT_KEYS = {
    "producer_byte_rate": True,
    "consumer_byte_rate": True,
    "request_percentage": False,
    "controller_mutation_rate": False,
}
_IP_KEYS = {"connection_creation_rate": True}
# An address or the name of a host; whether it can be resolved is known only where it is used.
_HOST = re.compile(r"[A-Za-z0-9.:_-]+")


# ---- AlterClientQuotas ----


def alter_client_quotas(situation: Situation, request: AlterClientQuotasRequest) -> Decision:
    records: list[Message] = []
    entries: list[AlterClientQuotasResponseEntryData] = []
    for entry in request.entries:
        result = AlterClientQuotasResponseEntryData(
            error_code=ErrorCode.NONE,
            error_message=None,
            entity=[
                AlterClientQuotasResponseEntityData(entity_type=one.entity_type, entity_name=one.entity_name)
                for one in entry.entity
            ],
        )
        entries.append(result)
        try:
            records += _alter(situation, entry)
        except Refusal as refusal:
            result.error_code, result.error_message = refusal.code, refusal.text
    response = AlterClientQuotasResponse(throttle_time_ms=0, entries=entries)
    return Decision([] if request.validate_only else records, response)


def _alter(situation: Situation, entry: AlterEntry) -> list[Message]:
    parts = {one.entity_type: one.entity_name for one in entry.entity}
    _check_entity(parts)
    keys = _IP_KEYS if IP in parts else _CLIENT_KEYS
    key = quota_entity(parts)
    present = situation.image.quotas.by_entity.get(key, {})
    entity = [RecordEntity(entity_type=kind, entity_name=name) for kind, name in key]
    records: list[Message] = []
    for operation in entry.ops:
        _check_operation(operation, keys)
        value = present.get(operation.key)
        if operation.remove:
            if value is not None:
                records.append(ClientQuotaRecord(entity=entity, key=operation.key, value=0.0, remove=True))
        elif value != operation.value:
            records.append(ClientQuotaRecord(entity=entity, key=operation.key, value=operation.value, remove=False))
    return records


def _check_entity(parts: Mapping[str, str | None]) -> None:
    if not parts:
        raise _refusal("The entity of a quota is empty.")
    for kind, name in parts.items():
        if kind not in (USER, CLIENT_ID, IP):
            raise _refusal(f"{kind!r} is not a kind of entity; there are {USER}, {CLIENT_ID} and {IP}.")
        if name == "":
            raise _refusal(f"The name of the {kind} is empty.")
    if IP in parts:
        if len(parts) > 1:
            raise _refusal(f"A quota of an {IP} cannot be combined with others.")
        address = parts[IP]
        if address is not None and not _HOST.fullmatch(address):
            raise _refusal(f"{address!r} is not an IP address.")


def _check_operation(operation: OpData, keys: Mapping[str, bool]) -> None:
    if operation.key not in keys:
        raise _refusal(f"{operation.key!r} cannot be limited for this entity; it is one of {', '.join(keys)}.")
    if operation.remove:
        return
    if not isfinite(operation.value) or operation.value <= 0:
        raise _refusal(f"{operation.key} is {operation.value}; it must be greater than 0.")
    if keys[operation.key] and not operation.value.is_integer():
        raise _refusal(f"{operation.key} is {operation.value}; it must be a whole number.")


def _refusal(message: str) -> Refusal:
    return Refusal(ErrorCode.INVALID_REQUEST, message)


# ---- DescribeClientQuotas ----


class MatchType(IntEnum):
    EXACT = 0
    DEFAULT = 1
    SPECIFIED = 2


def describe_client_quotas(image: MetadataImage, request: DescribeClientQuotasRequest) -> DescribeClientQuotasResponse:
    try:
        filters = _filters(request.components)
    except Refusal as refusal:
        return DescribeClientQuotasResponse(
            throttle_time_ms=0, error_code=refusal.code, error_message=refusal.text, entries=None
        )
    entries = [
        EntryData(
            entity=[EntityData(entity_type=kind, entity_name=name) for kind, name in entity],
            values=[ValueData(key=key, value=value) for key, value in values.items()],
        )
        for entity, values in image.quotas.by_entity.items()
        if _matches(entity, filters, request.strict)
    ]
    return DescribeClientQuotasResponse(
        throttle_time_ms=0, error_code=ErrorCode.NONE, error_message="", entries=entries
    )


def _filters(components: list[ComponentData]) -> dict[str, ComponentData]:
    filters: dict[str, ComponentData] = {}
    for component in components:
        kind = component.entity_type
        if not kind:
            raise _refusal("The kind of an entity is empty.")
        if kind in filters:
            raise _refusal(f"{kind} is named more than once.")
        if kind not in (USER, CLIENT_ID, IP):
            raise Refusal(ErrorCode.UNSUPPORTED_VERSION, f"{kind!r} is not a kind of entity.")
        if component.match_type not in MatchType._value2member_map_:
            raise _refusal(f"There is no way {component.match_type} to match an entity.")
        if (component.match_type == MatchType.EXACT) != (component.match is not None):
            raise _refusal(f"A name goes with an exact match, and only with that ({kind}).")
        filters[kind] = component
    if IP in filters and len(filters) > 1:
        raise _refusal(f"{IP} cannot be combined with other kinds of entities.")
    return filters


def _matches(entity: QuotaEntity, filters: Mapping[str, ComponentData], is_strict: bool) -> bool:
    parts = dict(entity)
    if is_strict and len(parts) != len(filters):
        return False
    for kind, component in filters.items():
        if kind not in parts:
            return False
        # SPECIFIED means any name, and the default too.
        if component.match_type != MatchType.SPECIFIED and parts[kind] != component.match:
            return False
    return True
