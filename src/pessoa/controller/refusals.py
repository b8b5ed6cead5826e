"""The response to a request that is refused as a whole: the error stands wherever the API has a place for one."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pessoa.wire.api.alter_configs import AlterConfigsRequest, AlterConfigsResourceResponse, AlterConfigsResponse
from pessoa.wire.api.create_topics import CreatableTopicResult, CreateTopicsRequest, CreateTopicsResponse
from pessoa.wire.api.elect_leaders import ElectLeadersRequest, ElectLeadersResponse
from pessoa.wire.api.incremental_alter_configs import (
    AlterConfigsResourceResponse as IncrementalResourceResponse,
)
from pessoa.wire.api.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

if TYPE_CHECKING:
    from pessoa.controller.decision import Refusal
    from pessoa.wire.schema import Message


def refused_response(request: Message, refusal: Refusal) -> Message:
    return _RESPONSES[type(request)](request, refusal)


def _create_topics(request: CreateTopicsRequest, refusal: Refusal) -> Message:
    names = dict.fromkeys(topic.name for topic in request.topics)
    results = [
        CreatableTopicResult(name=name, error_code=refusal.code, error_message=refusal.message) for name in names
    ]
    return CreateTopicsResponse(throttle_time_ms=0, topics=results)


def _elect_leaders(_request: ElectLeadersRequest, refusal: Refusal) -> Message:
    return ElectLeadersResponse(throttle_time_ms=0, error_code=refusal.code, replica_election_results=[])


def _alter_configs(request: AlterConfigsRequest, refusal: Refusal) -> Message:
    responses = [
        AlterConfigsResourceResponse(
            error_code=refusal.code,
            error_message=refusal.message,
            resource_type=resource.resource_type,
            resource_name=resource.resource_name,
        )
        for resource in request.resources
    ]
    return AlterConfigsResponse(throttle_time_ms=0, responses=responses)


def _incremental_alter_configs(request: IncrementalAlterConfigsRequest, refusal: Refusal) -> Message:
    responses = [
        IncrementalResourceResponse(
            error_code=refusal.code,
            error_message=refusal.message,
            resource_type=resource.resource_type,
            resource_name=resource.resource_name,
        )
        for resource in request.resources
    ]
    return IncrementalAlterConfigsResponse(throttle_time_ms=0, responses=responses)


_RESPONSES: dict[type[Message], Callable[[Any, Refusal], Message]] = {
    CreateTopicsRequest: _create_topics,
    ElectLeadersRequest: _elect_leaders,
    AlterConfigsRequest: _alter_configs,
    IncrementalAlterConfigsRequest: _incremental_alter_configs,
}
