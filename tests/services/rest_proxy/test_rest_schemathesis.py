"""Neither valid nor invalid requests of our OpenAPI document make the proxy answer with 5xx.

schemathesis draws the requests from the document. Half of them name a cluster, a topic and a consumer instance that
exist, so that they pass the first checks.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any, cast

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis import GenerationMode

from pessoa.testing import Broker
from tests.services.rest_proxy.stage import Rest, proxy_in_front_of

EXAMPLES = int(os.environ.get("PESSOA_SCHEMATHESIS_EXAMPLES", "5"))


@pytest.fixture(scope="module")
def disposable_rest() -> Iterator[Rest]:
    """Start a proxy with its own cluster, because the requests create, change and delete topics."""
    with (
        Broker() as broker,
        proxy_in_front_of(
            broker.bootstrap_servers, consumer_request_timeout_ms="20", consumer_instance_timeout_ms="5000"
        ) as rest,
    ):
        yield rest


def real_parameters(rest: Rest, path: str) -> dict[str, Any]:
    """Return path parameters of resources that exist; create them."""
    topic = rest.topic()
    rest.produce(topic, 1)
    known: dict[str, Any] = {
        "cluster_id": rest.cluster.rpartition("/")[2],
        "topic": topic,
        "topic_name": topic,
        "partition": "0",
        "partition_id": 0,
        "broker_id": rest.get("/brokers").json()["brokers"][0],
    }
    if "{instance}" in path:
        consumer = rest.consumer()
        known |= {"group": consumer.group, "instance": consumer.name}
    return {name: value for name, value in known.items() if "{" + name + "}" in path}


@pytest.mark.parametrize("mode", list(GenerationMode), ids=["valid", "invalid"])
@pytest.mark.parametrize("is_real", [True, False], ids=["real", "random"])
def test_no_request_to_the_rest_proxy_drawn_from_its_openapi_document_gets_a_5xx_response(
    disposable_rest: Rest, mode: GenerationMode, is_real: bool, record_property: Callable[[str, object], None]
) -> None:
    rest = disposable_rest
    schema = schemathesis.openapi.from_dict(rest.get("/openapi.json").json())
    statuses: dict[int, int] = {}
    operations: list[Any] = [result.ok() for result in cast(Any, schema).get_all_operations()]
    for operation in operations:
        if mode is GenerationMode.NEGATIVE and not (operation.body or operation.query):
            # An operation without body and query has no invalid request.
            continue
        fixed = real_parameters(rest, operation.path) if is_real else {}

        @settings(
            max_examples=EXAMPLES,
            derandomize=True,
            deadline=None,
            database=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        @given(case=operation.as_strategy(mode, path_parameters=fixed or None))
        def answers(case: Any) -> None:
            answer = case.call(base_url=rest.url, timeout=60)
            statuses[answer.status_code] = statuses.get(answer.status_code, 0) + 1
            assert answer.status_code < 500, f"{case.as_curl_command()}\n{answer.text}"

        answers()
    assert len(operations) > 65
    record_property("summary", f"schemathesis: {sum(statuses.values())} requests, {dict(sorted(statuses.items()))}")
