"""IncrementalAlterConfigs: set and delete single keys of topics, brokers, groups, and of this broker's loggers.
v1: flexible.

Loggers are this process's own (KIP-412): they are changed here, and on no other node. Everything else is decided by the
controller, though a broker does not forward a change of another broker's loggers or settings: clients send that to the
broker itself. A request may have both, and gets one response, in the order of the request.

The controller answers when a change is committed, and this broker may apply it a little later. A client that sets a
throttle rate and then starts the reassignment must not overtake it, so the response to a change of brokers waits until
the change holds here, for a second at most.

A controller that is asked directly (`--bootstrap-controller`) changes its own loggers in the same way. It decides about
every other change, whichever broker it is for, and need not wait for itself.

Authorised: ALTER_CONFIGS on each topic and group, and on the cluster for all others, which the controller checks before
it looks at the settings. What is answered here is checked here, before anything is said about it, too: in Apache Kafka
a client without that right learns from a broker what is wrong with its settings. A controller's loggers need
CLUSTER_ACTION.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pessoa.base import log_levels
from pessoa.broker.api_row import ApiRow, Audited
from pessoa.broker.authorization import may_in_cluster
from pessoa.broker.slices import Sliced
from pessoa.metadata.image import ConfigResource
from pessoa.metadata.table_images import MAX_BROKER_ID_DIGITS
from pessoa.security.acl import ALTER_CONFIGS, CLUSTER_ACTION
from pessoa.wire.catalogue import ApiKey
from pessoa.wire.errors import ErrorCode, Refusal

if TYPE_CHECKING:
    from pessoa.broker.api_row import AnyServices
    from pessoa.broker.services import BrokerServices
    from pessoa.controller.decision import Decision, Situation
    from pessoa.metadata.image import MetadataImage
    from pessoa.wire.api.incremental_alter_configs import (
        AlterableConfig,
        AlterConfigsResource,
        AlterConfigsResourceResponse,
        IncrementalAlterConfigsRequest,
        IncrementalAlterConfigsResponse,
    )
    from pessoa.wire.request_context import Answer, RequestContext
    from pessoa.wire.schema import Message

# How long a response waits until this broker has applied its own change.
_NEWS_MS = 1_000
_SET, _DELETE, _APPEND = range(3)
_OPERATIONS = range(4)


def handle(
    node: AnyServices, context: RequestContext, request: IncrementalAlterConfigsRequest
) -> Answer[Message | None]:
    if not any(_is_answered_here(node, one) for one in request.resources):
        return _submit(node, context, request)
    return _both(node, context, request)


async def _submit(
    node: AnyServices, context: RequestContext, request: IncrementalAlterConfigsRequest
) -> IncrementalAlterConfigsResponse:
    """Return the controller's response, as soon as its changes of broker configs hold on this broker."""
    refused = await _refused_here(node, context, request)
    if refused is not None:
        return refused
    return await _submit_checked(node, context, request)


async def _refused_here(
    node: AnyServices, context: RequestContext, request: IncrementalAlterConfigsRequest
) -> IncrementalAlterConfigsResponse | None:
    """Return the error response if this broker cannot have these configs, or cannot use these TLS stores; None if it
    can. It is returned, and files are read, only if the controller would accept the change, so that an unauthorised
    client learns nothing from it."""
    from pessoa.broker.controller_services import ControllerServices
    from pessoa.wire.api.incremental_alter_configs import (
        IncrementalAlterConfigsRequest,
        IncrementalAlterConfigsResponse,
    )

    mine = [one for one in request.resources if _is_broker(one) and one.resource_name == str(node.node_id)]
    if not mine or isinstance(node, ControllerServices):
        return None
    overrides = _overrides_after(node, mine)
    problem = node.config.contradiction(node.config.cluster_defaults, overrides)
    if problem is None and not any(".ssl." in config.name for one in mine for config in one.configs):
        return None
    dry_run = IncrementalAlterConfigsRequest(resources=mine, validate_only=True)
    answer = await node.controller.submit(dry_run, context)
    assert isinstance(answer, IncrementalAlterConfigsResponse)
    if any(one.error_code for one in answer.responses):
        return None
    if problem is None:
        problem = node.store_problem(node.config.with_overrides(node.config.cluster_defaults, overrides))
    if problem is None:
        return None
    refusal = Refusal(ErrorCode.INVALID_REQUEST, str(problem))
    refused = refuse(IncrementalAlterConfigsRequest(resources=mine, validate_only=False), refusal, context.version)
    assert isinstance(refused, IncrementalAlterConfigsResponse)
    others = [one for one in request.resources if one not in mine]
    if others:
        rest = IncrementalAlterConfigsRequest(resources=others, validate_only=request.validate_only)
        refused.responses += (await _submit_checked(node, context, rest)).responses
    return refused


def _overrides_after(node: BrokerServices, resources: list[AlterConfigsResource]) -> dict[str, str]:
    """Return the dynamic configs of this broker alone after these changes."""
    overrides = dict(node.image.configs.of(ConfigResource.BROKER, str(node.node_id)))
    for config in (config for one in resources for config in one.configs):
        name, value = config.name, config.value
        present = overrides.pop(name, None)
        if config.config_operation == _SET and value is not None:
            overrides[name] = value
        elif config.config_operation == _APPEND and value is not None:
            overrides[name] = f"{present},{value}" if present else value
    return overrides


async def _submit_checked(
    node: AnyServices, context: RequestContext, request: IncrementalAlterConfigsRequest
) -> IncrementalAlterConfigsResponse:
    from pessoa.broker.controller_services import ControllerServices
    from pessoa.wire.api.incremental_alter_configs import IncrementalAlterConfigsResponse

    response = await node.controller.submit(request, context)
    assert isinstance(response, IncrementalAlterConfigsResponse)
    if request.validate_only or isinstance(node, ControllerServices):
        return response
    done = {one.resource_name for one in response.responses if _is_broker(one) and not one.error_code}
    changed = [one for one in request.resources if _is_broker(one) and one.resource_name in done]
    if changed:
        await node.progress.wait_until(lambda: all(_is_shown(node.image, one) for one in changed), _NEWS_MS)
    return response


def _is_broker(resource: AlterConfigsResource | AlterConfigsResourceResponse) -> bool:
    return bool(resource.resource_type == ConfigResource.BROKER)


def _is_shown(image: MetadataImage, resource: AlterConfigsResource) -> bool:
    """Return whether the image has the values of a change. Appended and subtracted lists are not compared: the result
    depends on the value before."""
    present = image.configs.of(ConfigResource.BROKER, resource.resource_name)
    return all(
        present.get(config.name) == (config.value if config.config_operation == _SET else None)
        for config in resource.configs
        if config.config_operation in (_SET, _DELETE)
    )


async def _both(
    node: AnyServices, context: RequestContext, request: IncrementalAlterConfigsRequest
) -> IncrementalAlterConfigsResponse:
    from pessoa.wire.api.incremental_alter_configs import (
        IncrementalAlterConfigsRequest,
        IncrementalAlterConfigsResponse,
    )

    others = [one for one in request.resources if not _is_answered_here(node, one)]
    answers = []
    if others:
        rest = IncrementalAlterConfigsRequest(resources=others, validate_only=request.validate_only)
        answers = (await _submit(node, context, rest)).responses
    by_resource = {(one.resource_type, one.resource_name): one for one in answers}
    return IncrementalAlterConfigsResponse(
        throttle_time_ms=0,
        responses=[
            _alter_here(node, context, one, is_dry=request.validate_only)
            if _is_answered_here(node, one)
            else by_resource[one.resource_type, one.resource_name]
            for one in request.resources
        ],
    )


def _is_answered_here(node: AnyServices, resource: AlterConfigsResource) -> bool:
    """Return whether this node answers for the resource itself: loggers, and on a broker the configs of other brokers,
    which it refuses. A name that is no broker id is left to the controller."""
    from pessoa.broker.controller_services import ControllerServices

    if resource.resource_type == ConfigResource.BROKER_LOGGER:
        return True
    name = resource.resource_name
    is_id = len(name) <= MAX_BROKER_ID_DIGITS and name.isdecimal()
    is_broker = resource.resource_type == ConfigResource.BROKER and is_id
    return is_broker and not isinstance(node, ControllerServices) and int(name) != node.node_id


def _alter_here(
    node: AnyServices, context: RequestContext, resource: AlterConfigsResource, *, is_dry: bool
) -> AlterConfigsResourceResponse:
    from pessoa.wire.api.incremental_alter_configs import AlterConfigsResourceResponse

    code, message = _problem(node, context, resource)
    if code is ErrorCode.NONE and not is_dry:
        for config in resource.configs:
            log_levels.set_level(config.name, config.value if config.config_operation == _SET else None)
    return AlterConfigsResourceResponse(
        error_code=code,
        error_message=message,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
    )


def _problem(
    node: AnyServices, context: RequestContext, resource: AlterConfigsResource
) -> tuple[ErrorCode, str | None]:
    """Return the error of a resource with loggers, NONE if there is none. All loggers are checked before any is
    changed."""
    from pessoa.broker.controller_services import ControllerServices

    operation = CLUSTER_ACTION if isinstance(node, ControllerServices) else ALTER_CONFIGS
    if not may_in_cluster(node, context, operation):
        return ErrorCode.CLUSTER_AUTHORIZATION_FAILED, ErrorCode.CLUSTER_AUTHORIZATION_FAILED.text
    node_id = node.node_id
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


def decide(situation: Situation, request: IncrementalAlterConfigsRequest) -> Decision:
    from pessoa.controller.config_decisions import incremental_alter_configs

    return incremental_alter_configs(situation, request)


def refuse(request: IncrementalAlterConfigsRequest, refusal: Refusal, version: int) -> Message:
    from pessoa.wire.api.incremental_alter_configs import AlterConfigsResourceResponse, IncrementalAlterConfigsResponse

    responses = [
        AlterConfigsResourceResponse(
            error_code=refusal.code,
            error_message=refusal.message,
            resource_type=resource.resource_type,
            resource_name=resource.resource_name,
        )
        for resource in request.resources
    ]
    return IncrementalAlterConfigsResponse(throttle_time_ms=0, responses=responses)


ROW = ApiRow(
    ApiKey.INCREMENTAL_ALTER_CONFIGS,
    "0-1",
    handle=handle,
    handle_on_controller=handle,
    is_forwarded=True,
    audited=Audited.YES,
    decide=decide,
    refuse=refuse,
    sliced=Sliced("resources", "responses"),
)
