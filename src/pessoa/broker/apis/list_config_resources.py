"""ListConfigResources: which resources have a configuration (KIP-1142).

v0 knew client metrics only; from v1 on the request names the types, and an empty list means all.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pessoa.broker.api_row import ApiRow, Authorised
from pessoa.metadata.image import ConfigResource as ResourceType
from pessoa.security.acl import CLUSTER, DESCRIBE_CONFIGS
from pessoa.wire.catalogue import ApiKey
from pessoa.wire.errors import ErrorCode

if TYPE_CHECKING:
    from pessoa.broker.services import BrokerServices
    from pessoa.wire.api.list_config_resources import ListConfigResourcesRequest, ListConfigResourcesResponse
    from pessoa.wire.errors import Refusal
    from pessoa.wire.request_context import RequestContext
    from pessoa.wire.schema import Message

_LISTED = (
    ResourceType.TOPIC,
    ResourceType.BROKER,
    ResourceType.BROKER_LOGGER,
    ResourceType.CLIENT_METRICS,
    ResourceType.GROUP,
)


def handle(
    broker: BrokerServices, context: RequestContext, request: ListConfigResourcesRequest
) -> ListConfigResourcesResponse:
    from pessoa.wire.api.list_config_resources import ConfigResource, ListConfigResourcesResponse

    wanted = set(request.resource_types or _LISTED) if context.version >= 1 else {ResourceType.CLIENT_METRICS}
    if not wanted <= set(_LISTED):
        return ListConfigResourcesResponse(
            throttle_time_ms=0, error_code=ErrorCode.UNSUPPORTED_VERSION, config_resources=[]
        )
    found = [(name, kind) for kind in _LISTED if kind in wanted for name in _names(broker, kind)]
    return ListConfigResourcesResponse(
        throttle_time_ms=0,
        error_code=ErrorCode.NONE,
        config_resources=[ConfigResource(resource_name=name, resource_type=kind) for name, kind in found],
    )


def _names(broker: BrokerServices, kind: ResourceType) -> list[str]:
    image = broker.image
    if kind is ResourceType.TOPIC:
        return sorted(image.topics.by_name)
    if kind in (ResourceType.BROKER, ResourceType.BROKER_LOGGER):
        return [str(node) for node in sorted(image.cluster.brokers)]
    return sorted(image.configs.names(kind))


def refuse(request: ListConfigResourcesRequest, refusal: Refusal, version: int) -> Message:
    from pessoa.wire.api.list_config_resources import ListConfigResourcesResponse

    return ListConfigResourcesResponse(throttle_time_ms=0, error_code=refusal.code, config_resources=[])


ROW = ApiRow(
    ApiKey.LIST_CONFIG_RESOURCES,
    "0-1",
    handle=handle,
    refuse=refuse,
    authorised=Authorised(DESCRIBE_CONFIGS, CLUSTER),
)
