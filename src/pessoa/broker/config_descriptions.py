"""The answer to DescribeConfigs: resources, each with its entries (`config_entries`).

A broker has some three hundred keys with their synonyms, so a few bytes of a request make much of an answer. A resource
that a request names several times is described once, a request gets no more than `_MAX_RESOURCES`, and an answer that
takes long to make lets other requests be served in between.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from pessoa.broker.api_row import DENIED
from pessoa.broker.authorization import may
from pessoa.broker.config_entries import (
    Entry,
    broker_entries,
    client_metrics_entries,
    cluster_default_entries,
    group_entries,
    logger_entries,
    topic_entries,
)
from pessoa.controller.topic_names import why_illegal
from pessoa.metadata.image import ConfigResource
from pessoa.security.acl import CLUSTER, CLUSTER_NAME, DESCRIBE_CONFIGS, GROUP, TOPIC, ResourceType
from pessoa.wire.api.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)
from pessoa.wire.errors import ErrorCode, Refusal

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pessoa.broker.api_row import AnyServices
    from pessoa.wire.request_context import Answer, Caller

_TYPES = frozenset(ConfigResource)
# Those that have access control lists of their own; all others are the cluster's.
_RESOURCES: dict[int, ResourceType] = {ConfigResource.TOPIC: TOPIC, ConfigResource.GROUP: GROUP}
_MAX_RESOURCES = 10_000
# So many take some milliseconds; then others have their turn.
_AT_A_TIME = 10


def describe_configs(
    broker: AnyServices, caller: Caller, request: DescribeConfigsRequest
) -> Answer[DescribeConfigsResponse]:
    resources = _distinct(request.resources)
    strange = next((one.resource_type for one in resources if one.resource_type not in _TYPES), None)
    if strange is not None:
        return _refused_all(resources, f"There are no resources of type {strange}.")
    if len(resources) > _MAX_RESOURCES:
        return _refused_all(resources, f"A request describes at most {_MAX_RESOURCES} resources.")
    if len(resources) > _AT_A_TIME:
        return _describe_in_turns(broker, caller, request, resources)
    results = [_describe(broker, caller, request, one) for one in resources]
    return DescribeConfigsResponse(throttle_time_ms=0, results=results)


def _distinct(resources: list[DescribeConfigsResource]) -> list[DescribeConfigsResource]:
    """Return each resource once, with all the keys that were requested of it."""
    found: dict[tuple[int, str], list[DescribeConfigsResource]] = {}
    for one in resources:
        found.setdefault((one.resource_type, one.resource_name), []).append(one)
    return [same[0] if len(same) == 1 else _merge_resources(same) for same in found.values()]


def _merge_resources(same: list[DescribeConfigsResource]) -> DescribeConfigsResource:
    keys: list[str] | None = None
    if all(one.configuration_keys for one in same):
        keys = list({key: None for one in same for key in one.configuration_keys or ()})
    return DescribeConfigsResource(
        resource_type=same[0].resource_type, resource_name=same[0].resource_name, configuration_keys=keys
    )


async def _describe_in_turns(
    broker: AnyServices, caller: Caller, request: DescribeConfigsRequest, resources: list[DescribeConfigsResource]
) -> DescribeConfigsResponse:
    results = []
    for number, one in enumerate(resources, 1):
        results.append(_describe(broker, caller, request, one))
        if number % _AT_A_TIME == 0:
            await asyncio.sleep(0)
    return DescribeConfigsResponse(throttle_time_ms=0, results=results)


def _refused_all(resources: list[DescribeConfigsResource], message: str) -> DescribeConfigsResponse:
    refusal = Refusal(ErrorCode.INVALID_REQUEST, message)
    return DescribeConfigsResponse(throttle_time_ms=0, results=[_error_result(one, refusal) for one in resources])


def _describe(
    broker: AnyServices, caller: Caller, request: DescribeConfigsRequest, resource: DescribeConfigsResource
) -> DescribeConfigsResult:
    try:
        _check_allowed(broker, caller, resource.resource_type, resource.resource_name)
        entries = _entries(broker, resource.resource_type, resource.resource_name)
    except Refusal as refusal:
        return _error_result(resource, refusal)
    wanted = set(resource.configuration_keys or ())
    return DescribeConfigsResult(
        error_code=ErrorCode.NONE,
        error_message="",
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
        configs=[_result(entry, request) for entry in entries if not wanted or entry.name in wanted],
    )


def _check_allowed(broker: AnyServices, caller: Caller, kind: int, name: str) -> None:
    resource, name = _RESOURCES.get(kind, CLUSTER), name if kind in _RESOURCES else CLUSTER_NAME
    if not may(broker, caller, DESCRIBE_CONFIGS, resource, name):
        raise Refusal(DENIED[resource], DENIED[resource].text)


def _entries(broker: AnyServices, kind: int, name: str) -> Iterable[Entry]:
    overrides = broker.image.configs.of(kind, name)
    match kind:
        case ConfigResource.TOPIC:
            problem = why_illegal(name)
            if problem is not None:
                raise Refusal(ErrorCode.INVALID_TOPIC_EXCEPTION, problem)
            if name not in broker.image.topics.by_name:
                raise Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            return topic_entries(overrides, broker.config)
        case ConfigResource.BROKER:
            if not name:
                return cluster_default_entries(broker.config)
            _check_that_it_is_me(broker, name)
            return broker_entries(broker.config)
        case ConfigResource.BROKER_LOGGER:
            _check_that_it_is_me(broker, name)
            return logger_entries()
        case _:
            if not name:
                raise Refusal(ErrorCode.INVALID_REQUEST, "The name of the resource is empty.")
            if kind == ConfigResource.GROUP:
                return group_entries(overrides, broker.config)
            return client_metrics_entries(overrides)


def _check_that_it_is_me(broker: AnyServices, name: str) -> None:
    if name.strip() != str(broker.node_id):
        message = f"This is broker {broker.node_id}, which can only describe itself and not {name!r}."
        raise Refusal(ErrorCode.INVALID_REQUEST, message)


def _result(entry: Entry, request: DescribeConfigsRequest) -> DescribeConfigsResourceResult:
    synonyms = entry.synonyms if request.include_synonyms else []
    return DescribeConfigsResourceResult(
        name=entry.name,
        value=entry.value,
        read_only=entry.is_read_only,
        config_source=entry.source,
        is_sensitive=entry.is_sensitive,
        synonyms=[DescribeConfigsSynonym(name=one.name, value=one.value, source=one.source) for one in synonyms],
        config_type=entry.type,
        documentation=entry.doc if request.include_documentation else None,
    )


def _error_result(resource: DescribeConfigsResource, refusal: Refusal) -> DescribeConfigsResult:
    return DescribeConfigsResult(
        error_code=refusal.code,
        error_message=refusal.message or "",
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
        configs=[],
    )
