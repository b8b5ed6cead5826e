"""CreateTopics: create topics, by counts of partitions and replicas or by an explicit assignment.

    v4  counts may be left to the cluster's defaults (KIP-464)
    v5  flexible; the answer has the configuration, the counts, or why they cannot be shown (KIP-525)
    v7  the answer has the topic's id (KIP-516)

Each topic stands for itself: `controller/topic_decisions.py` decides, `controller/placement.py` places the replicas.

Authorised: CREATE on the cluster or on each topic; DESCRIBE_CONFIGS on the topic to hear its configuration and counts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pessoa.broker.api_row import ApiRow, Audited, Quota
from pessoa.wire.catalogue import ApiKey

if TYPE_CHECKING:
    from pessoa.broker.api_row import AnyServices, Reply
    from pessoa.controller.decision import Decision, Situation
    from pessoa.wire.api.create_topics import CreateTopicsRequest
    from pessoa.wire.errors import Refusal
    from pessoa.wire.request_context import RequestContext
    from pessoa.wire.schema import Message


def handle(node: AnyServices, context: RequestContext, request: CreateTopicsRequest) -> Reply:
    return node.controller.submit(request, context)


def decide(situation: Situation, request: CreateTopicsRequest) -> Decision:
    from pessoa.controller.topic_decisions import create_topics

    return create_topics(situation, request)


def refuse(request: CreateTopicsRequest, refusal: Refusal, version: int) -> Message:
    """Return the error for every topic of the request, each name once."""
    from pessoa.wire.api.create_topics import CreatableTopicResult, CreateTopicsResponse

    names = dict.fromkeys(topic.name for topic in request.topics)
    results = [
        CreatableTopicResult(name=name, error_code=refusal.code, error_message=refusal.message) for name in names
    ]
    return CreateTopicsResponse(throttle_time_ms=0, topics=results)


ROW = ApiRow(
    ApiKey.CREATE_TOPICS,
    "2-7",
    handle=handle,
    handle_on_controller=handle,
    is_forwarded=True,
    audited=Audited.YES,
    decide=decide,
    refuse=refuse,
    quota=Quota.CONTROLLER_MUTATION,
)
