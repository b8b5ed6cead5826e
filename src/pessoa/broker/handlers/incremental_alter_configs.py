"""IncrementalAlterConfigs: set and delete single keys of topics, brokers, groups, and of this broker's loggers.

Loggers are this process's own (KIP-412): they are changed here, and nobody else hears of it. Everything else is the
controller's to decide, though a broker passes on no change that is another broker's to hear: clients ask each broker
about itself. A request may ask for both, and is answered as one, in the order in which it asked.

The controller answers when a change is committed, which this broker may hear of a little later. Whoever sets a rate
and then begins what it is to slow down must not overtake it, so the answer to a change of brokers waits for a moment
until it holds here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pessoa.base import log_levels
from pessoa.metadata.image import ConfigResource
from pessoa.wire.api.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from pessoa.wire.errors import ErrorCode

if TYPE_CHECKING:
    from pessoa.broker.context import RequestContext
    from pessoa.broker.dispatch import Reply
    from pessoa.broker.services import BrokerServices
    from pessoa.metadata.image import MetadataImage

# So long an answer waits until this broker hears of its own change.
_NEWS_MS = 1_000
_SET, _DELETE = 0, 1
_OPERATIONS = range(4)


def handle(broker: BrokerServices, context: RequestContext, request: IncrementalAlterConfigsRequest) -> Reply:
    if not any(_is_answered_here(broker.node_id, one) for one in request.resources):
        return _submit(broker, context, request)
    return _both(broker, context, request)


async def _submit(
    broker: BrokerServices, context: RequestContext, request: IncrementalAlterConfigsRequest
) -> IncrementalAlterConfigsResponse:
    """The controller's answer, as soon as what it has changed about brokers holds here."""
    response: IncrementalAlterConfigsResponse = await broker.controller.submit(request, context)
    if request.validate_only:
        return response
    done = {one.resource_name for one in response.responses if _is_broker(one) and not one.error_code}
    changed = [one for one in request.resources if _is_broker(one) and one.resource_name in done]
    if changed:
        await broker.progress.wait_until(lambda: all(_is_shown(broker.image, one) for one in changed), _NEWS_MS)
    return response


def _is_broker(resource: AlterConfigsResource | AlterConfigsResourceResponse) -> bool:
    return bool(resource.resource_type == ConfigResource.BROKER)


def _is_shown(image: MetadataImage, resource: AlterConfigsResource) -> bool:
    """What became of a list that was added to or taken from depends on what it was, so nobody waits for that."""
    present = image.configs.of(ConfigResource.BROKER, resource.resource_name)
    return all(
        present.get(config.name) == (config.value if config.config_operation == _SET else None)
        for config in resource.configs
        if config.config_operation in (_SET, _DELETE)
    )


async def _both(
    broker: BrokerServices, context: RequestContext, request: IncrementalAlterConfigsRequest
) -> IncrementalAlterConfigsResponse:
    others = [one for one in request.resources if not _is_answered_here(broker.node_id, one)]
    answers = []
    if others:
        rest = IncrementalAlterConfigsRequest(resources=others, validate_only=request.validate_only)
        answers = (await _submit(broker, context, rest)).responses
    by_resource = {(one.resource_type, one.resource_name): one for one in answers}
    return IncrementalAlterConfigsResponse(
        throttle_time_ms=0,
        responses=[
            _alter_here(broker.node_id, one, is_dry=request.validate_only)
            if _is_answered_here(broker.node_id, one)
            else by_resource[one.resource_type, one.resource_name]
            for one in request.resources
        ],
    )


def _is_answered_here(node_id: int, resource: AlterConfigsResource) -> bool:
    """Loggers, and brokers other than this one; what is no broker's id at all is the controller's to refuse."""
    if resource.resource_type == ConfigResource.BROKER_LOGGER:
        return True
    name = resource.resource_name
    return resource.resource_type == ConfigResource.BROKER and name.isdecimal() and int(name) != node_id


def _alter_here(node_id: int, resource: AlterConfigsResource, *, is_dry: bool) -> AlterConfigsResourceResponse:
    code, message = _problem(node_id, resource)
    if code is ErrorCode.NONE and not is_dry:
        for config in resource.configs:
            log_levels.set_level(config.name, config.value if config.config_operation == _SET else None)
    return AlterConfigsResourceResponse(
        error_code=code,
        error_message=message,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
    )


def _problem(node_id: int, resource: AlterConfigsResource) -> tuple[ErrorCode, str | None]:
    """Nothing is changed if anything is wrong."""
    if resource.resource_name.strip() != str(node_id):
        return ErrorCode.INVALID_REQUEST, f"This is broker {node_id}, which can only change itself and its loggers."
    names = [config.name for config in resource.configs]
    if len(set(names)) != len(names):
        return ErrorCode.INVALID_REQUEST, "A logger is named more than once."
    for config in resource.configs:
        code, message = _problem_of(config)
        if code is not ErrorCode.NONE:
            return code, message
    return ErrorCode.NONE, None


def _problem_of(config: AlterableConfig) -> tuple[ErrorCode, str | None]:
    if config.config_operation not in (_SET, _DELETE):
        what = "does not exist" if config.config_operation not in _OPERATIONS else "is for lists, and a level is none"
        return ErrorCode.INVALID_REQUEST, f"Operation {config.config_operation} {what}."
    if config.config_operation == _SET and config.value is None:
        return ErrorCode.INVALID_REQUEST, f"The logger {config.name} needs a level."
    found = log_levels.problem(config.name, config.value if config.config_operation == _SET else None)
    if found is None:
        return ErrorCode.NONE, None
    return ErrorCode.INVALID_REQUEST if found.is_invalid_request else ErrorCode.INVALID_CONFIG, str(found)
