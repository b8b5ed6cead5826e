"""The configuration of a topic or a broker with defaults and meanings, as its broker tells them (KIP-569)."""

from __future__ import annotations

from pessoa.client.client_errors import check
from pessoa.client.cluster_client import Cluster
from pessoa.client.config_admin import ResourceType, Source
from pessoa.control_center.views import ConfigRow
from pessoa.wire.api.describe_configs import DescribeConfigsRequest, DescribeConfigsResource, DescribeConfigsResponse

_OWN = {
    ResourceType.TOPIC: (Source.DYNAMIC_TOPIC_CONFIG,),
    ResourceType.BROKER: (Source.DYNAMIC_BROKER_CONFIG, Source.DYNAMIC_DEFAULT_BROKER_CONFIG),
}


def config_rows(cluster: Cluster, kind: ResourceType, name: str) -> list[ConfigRow]:
    """Return the configs of a topic or broker, those that were set first. Secrets have no value."""
    resource = DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=None)
    request = DescribeConfigsRequest(resources=[resource], include_synonyms=True, include_documentation=True)
    node = int(name) if kind is ResourceType.BROKER else None
    result = cluster.ask(request, DescribeConfigsResponse, node=node, name="describeConfigs").results[0]
    check(result.error_code, result.error_message)
    found = []
    for one in result.configs:
        default = _default(one.name, [(same.name, same.value) for same in one.synonyms
                                      if same.source == Source.DEFAULT_CONFIG])  # fmt: skip
        source = Source(one.config_source) if one.config_source in set(Source) else Source.UNKNOWN
        found.append(
            ConfigRow(
                one.name, None if one.is_sensitive else one.value, default, source.name, source not in _OWN[kind],
                one.is_sensitive, one.read_only, one.documentation or "",
            )
        )  # fmt: skip
    return sorted(found, key=lambda row: (row.is_default, row.name))


def _default(name: str, synonyms: list[tuple[str, str | None]]) -> str | None:
    """Return the default; if a key in another unit has it (log.roll.hours for segment.ms), with the name of that
    key."""
    found = next(((key, value) for key, value in synonyms if value is not None), None)
    if found is None:
        return None
    key, value = found
    return value if key.rpartition(".")[2] == name.rpartition(".")[2] else f"{value} ({key})"
