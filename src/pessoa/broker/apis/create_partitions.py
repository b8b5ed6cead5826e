"""CreatePartitions: raise the number of partitions of topics (KIP-195). v2: flexible.

Many topics are served in slices, unlike in Apache Kafka, which decides about them as one.

Authorised: ALTER on each topic.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pessoa.broker.api_row import ApiRow, Audited, Quota
from pessoa.broker.slices import Sliced
from pessoa.wire.catalogue import ApiKey

if TYPE_CHECKING:
    from pessoa.broker.api_row import AnyServices, Reply
    from pessoa.controller.decision import Decision, Situation
    from pessoa.wire.api.create_partitions import CreatePartitionsRequest
    from pessoa.wire.errors import Refusal
    from pessoa.wire.request_context import RequestContext
    from pessoa.wire.schema import Message


def handle(node: AnyServices, context: RequestContext, request: CreatePartitionsRequest) -> Reply:
    return node.controller.submit(request, context)


def decide(situation: Situation, request: CreatePartitionsRequest) -> Decision:
    from pessoa.controller.topic_decisions import create_partitions

    return create_partitions(situation, request)


def refuse(request: CreatePartitionsRequest, refusal: Refusal, version: int) -> Message:
    from pessoa.wire.api.create_partitions import CreatePartitionsResponse, CreatePartitionsTopicResult

    results = [
        CreatePartitionsTopicResult(name=topic.name, error_code=refusal.code, error_message=refusal.message)
        for topic in request.topics
    ]
    return CreatePartitionsResponse(throttle_time_ms=0, results=results)


ROW = ApiRow(
    ApiKey.CREATE_PARTITIONS,
    "0-3",
    handle=handle,
    handle_on_controller=handle,
    is_forwarded=True,
    audited=Audited.YES,
    decide=decide,
    refuse=refuse,
    sliced=Sliced("topics", "results"),
    quota=Quota.CONTROLLER_MUTATION,
)
