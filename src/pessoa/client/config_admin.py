"""Configurations of topics, brokers, groups and client metrics: describe, alter, list."""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, NamedTuple

from pessoa.client.client_errors import check

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pessoa.client.cluster_client import Cluster


class ResourceType(IntEnum):
    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class Source(IntEnum):
    UNKNOWN = 0
    DYNAMIC_TOPIC_CONFIG = 1
    DYNAMIC_BROKER_CONFIG = 2
    DYNAMIC_DEFAULT_BROKER_CONFIG = 3
    STATIC_BROKER_CONFIG = 4
    DEFAULT_CONFIG = 5
    DYNAMIC_BROKER_LOGGER_CONFIG = 6
    DYNAMIC_CLIENT_METRICS_CONFIG = 7
    DYNAMIC_GROUP_CONFIG = 8


class Operation(IntEnum):
    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class Synonym(NamedTuple):
    name: str
    value: str | None
    source: Source


class Entry(NamedTuple):
    name: str
    value: str | None
    source: Source
    is_sensitive: bool
    is_read_only: bool
    synonyms: list[Synonym]


class Change(NamedTuple):
    name: str
    value: str | None
    operation: Operation = Operation.SET


Resource = tuple[ResourceType, str]


def describe_configs(
    cluster: Cluster, resources: Sequence[Resource], *, synonyms: bool = False
) -> dict[Resource, list[Entry]]:
    """Return the entries of each resource in the broker's order. Configs of a broker are requested from that broker."""
    found: dict[Resource, list[Entry]] = {}
    for node, part in _by_node(resources).items():
        found |= _describe(cluster, part, node, synonyms)
    return found


def _by_node(resources: Iterable[Resource]) -> dict[int | None, list[Resource]]:
    parts: dict[int | None, list[Resource]] = {}
    for resource in resources:
        parts.setdefault(_node_of(resource), []).append(resource)
    return parts


def _node_of(resource: Resource) -> int | None:
    kind, name = resource
    return int(name) if kind in (ResourceType.BROKER, ResourceType.BROKER_LOGGER) and name else None


def _describe(
    cluster: Cluster, resources: Sequence[Resource], node: int | None, synonyms: bool
) -> dict[Resource, list[Entry]]:
    from pessoa.wire.api.describe_configs import (
        DescribeConfigsRequest,
        DescribeConfigsResource,
        DescribeConfigsResponse,
    )

    wanted = [
        DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=None)
        for kind, name in resources
    ]
    request = DescribeConfigsRequest(resources=wanted, include_synonyms=synonyms)
    answer = cluster.ask(request, DescribeConfigsResponse, node=node, name="describeConfigs")
    found: dict[Resource, list[Entry]] = {}
    for result in answer.results:
        check(result.error_code, result.error_message)
        found[ResourceType(result.resource_type), result.resource_name] = [
            Entry(
                one.name,
                one.value,
                _source(one.config_source),
                one.is_sensitive,
                one.read_only,
                [Synonym(same.name, same.value, _source(same.source)) for same in one.synonyms],
            )
            for one in result.configs
        ]
    return found


def _source(number: int) -> Source:
    return Source(number) if number in set(Source) else Source.UNKNOWN


def alter_configs(cluster: Cluster, resource: Resource, changes: Iterable[Change]) -> None:
    from pessoa.wire.api.incremental_alter_configs import (
        AlterableConfig,
        AlterConfigsResource,
        IncrementalAlterConfigsRequest,
        IncrementalAlterConfigsResponse,
    )

    kind, name = resource
    configs = [AlterableConfig(name=key, config_operation=how, value=value) for key, value, how in changes]
    wanted = AlterConfigsResource(resource_type=kind, resource_name=name, configs=configs)
    request = IncrementalAlterConfigsRequest(resources=[wanted], validate_only=False)
    # Controllers decide for every node; only its loggers are a node's own affair.
    is_decided = cluster.asks_controllers and kind is not ResourceType.BROKER_LOGGER
    node = None if is_decided else _node_of(resource)
    answer = cluster.ask(request, IncrementalAlterConfigsResponse, node=node, name="incrementalAlterConfigs")
    for result in answer.responses:
        check(result.error_code, result.error_message)


def list_resources(cluster: Cluster, kind: ResourceType) -> list[str]:
    """Return the names of the resources of this type that have a configuration of their own."""
    from pessoa.wire.api.list_config_resources import ListConfigResourcesRequest, ListConfigResourcesResponse

    request = ListConfigResourcesRequest(resource_types=[kind])
    answer = cluster.ask(request, ListConfigResourcesResponse, name="listConfigResources")
    check(answer.error_code)
    return [one.resource_name for one in answer.config_resources if one.resource_type == kind]
