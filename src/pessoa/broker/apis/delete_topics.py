"""DeleteTopics: delete topics, by name or by id.

    v4  flexible        v5  a sentence with each error        v6  topics by id (KIP-516)

Many topics are deleted in slices, unlike in Apache Kafka, which decides about them as one.

Authorised: DELETE on the cluster or on each topic. A topic that the client may not describe is denied whether it exists
or not; of one that the client knows by its id the name is not told.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pessoa.broker.api_row import ApiRow, Audited, Quota
from pessoa.broker.slices import Sliced
from pessoa.wire.catalogue import ApiKey

if TYPE_CHECKING:
    from pessoa.broker.api_row import AnyServices, Reply
    from pessoa.controller.decision import Decision, Situation
    from pessoa.wire.api.delete_topics import DeleteTopicsRequest
    from pessoa.wire.errors import Refusal
    from pessoa.wire.request_context import RequestContext
    from pessoa.wire.schema import Message


def handle(node: AnyServices, context: RequestContext, request: DeleteTopicsRequest) -> Reply:
    return node.controller.submit(request, context)


def decide(situation: Situation, request: DeleteTopicsRequest) -> Decision:
    from pessoa.controller.topic_decisions import delete_topics

    return delete_topics(situation, request)


def refuse(request: DeleteTopicsRequest, refusal: Refusal, version: int) -> Message:
    from pessoa.base.ids import ZERO_UUID
    from pessoa.wire.api.delete_topics import DeletableTopicResult, DeleteTopicsResponse

    wanted = [(topic.name, topic.topic_id) for topic in request.topics]
    wanted = wanted or [(name, ZERO_UUID) for name in request.topic_names]
    results = [
        DeletableTopicResult(name=name, topic_id=topic_id, error_code=refusal.code, error_message=refusal.message)
        for name, topic_id in wanted
    ]
    return DeleteTopicsResponse(throttle_time_ms=0, responses=results)


ROW = ApiRow(
    ApiKey.DELETE_TOPICS,
    "1-6",
    handle=handle,
    handle_on_controller=handle,
    is_forwarded=True,
    audited=Audited.YES,
    decide=decide,
    refuse=refuse,
    sliced=Sliced("topics", "responses", older="topic_names"),
    quota=Quota.CONTROLLER_MUTATION,
)
