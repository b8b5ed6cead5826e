"""Produce in a transaction: what its request must name, and what may change while the coordinator verifies it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from pessoa.base.ids import Uuid
from pessoa.broker.apis import produce
from pessoa.coordinator.transactions.verification import Verifier
from pessoa.metadata.table_images import Acl
from pessoa.metadata.topics_image import TopicsImage
from pessoa.security.acl import ALLOW, LITERAL, TOPIC, TRANSACTIONAL_ID, WRITE
from pessoa.security.authorizer import Authorizer
from pessoa.testing import Broker
from pessoa.wire.api.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from pessoa.wire.catalogue import ApiKey
from pessoa.wire.errors import ErrorCode
from pessoa.wire.request_context import RequestContext
from tests.support.batches import plain, transactional

ALICE = "User:alice"
TIMEOUT_S = 60
FIRST_VERSION_WITH_TOPIC_IDS = 13


def right(kind: int, name: str) -> Acl:
    return Acl(kind, name, LITERAL, ALICE, "*", WRITE, ALLOW)


def without(topics: TopicsImage, name: str) -> TopicsImage:
    return TopicsImage(
        {key: one for key, one in topics.by_name.items() if key != name},
        {key: one for key, one in topics.by_id.items() if one.name != name},
    )


def one_batch(topic_id: Uuid, records: memoryview) -> TopicProduceData:
    return TopicProduceData(topic_id=topic_id, partition_data=[PartitionProduceData(index=0, records=records)])


def run(answer: Any) -> Any:
    """Return the result of a coroutine that does not wait."""
    try:
        answer.send(None)
    except StopIteration as end:
        return end.value
    raise AssertionError("it waits")


def test_a_topic_that_appears_during_verification_needs_the_right_to_write_to_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with Broker() as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        for made in admin.create_topics([NewTopic("mine", 1, 1), NewTopic("hidden", 1, 1)]).values():
            made.result(TIMEOUT_S)

        def produce_to_both(inside: Any) -> tuple[list[ErrorCode], int]:
            services = inside.services
            services.authorizer = Authorizer()
            services.authorizer.load(
                {Uuid.of(1): right(TOPIC, "mine"), Uuid.of(2): right(TRANSACTIONAL_ID, "alices")},
            )
            image = services.image
            mine, hidden = (image.topics.by_name[name].id for name in ("mine", "hidden"))
            request = ProduceRequest(
                transactional_id="alices",
                acks=1,
                timeout_ms=5_000,
                topic_data=[one_batch(mine, transactional(7, 0)), one_batch(hidden, plain())],
            )
            services.image = replace(image, topics=without(image.topics, "hidden"))

            async def verify(*_: object, **__: object) -> dict[tuple[str, int], ErrorCode]:
                services.image = image
                return {}

            monkeypatch.setattr(Verifier, "verify", verify)
            context = RequestContext(
                ApiKey.PRODUCE, FIRST_VERSION_WITH_TOPIC_IDS, 1, None, "127.0.0.1", 1, principal=ALICE
            )
            response = run(produce.handle(services, context, request))
            codes = [ErrorCode.of(one.partition_responses[0].error_code) for one in response.responses]
            return codes, services.replicas.ensure("hidden", 0).log.log_end_offset

        codes, log_end_offset = broker.inspect(produce_to_both)
    assert codes == [ErrorCode.NONE, ErrorCode.TOPIC_AUTHORIZATION_FAILED]
    assert log_end_offset == 0


@pytest.mark.parametrize("version", [3, 11, 12])
def test_a_transactional_batch_without_a_transactional_id_is_refused_without_an_authorizer_too(version: int) -> None:
    with Broker() as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        admin.create_topics([NewTopic("mine", 1, 1)])["mine"].result(TIMEOUT_S)
        topics = [
            TopicProduceData(name="mine", partition_data=[PartitionProduceData(index=0, records=records)])
            for records in (plain(), transactional(7, 0))
        ]
        request = ProduceRequest(transactional_id=None, acks=1, timeout_ms=5_000, topic_data=topics)

        def produce_both(inside: Any) -> tuple[list[int], int]:
            context = RequestContext(ApiKey.PRODUCE, version, 1, None, "127.0.0.1", 1)
            response: Any = produce.handle(inside.services, context, request)
            codes = [one.partition_responses[0].error_code for one in response.responses]
            return codes, inside.services.replicas.ensure("mine", 0).log.log_end_offset

        codes, log_end_offset = broker.inspect(produce_both)
    assert codes == [ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED] * 2
    assert log_end_offset == 0
