"""GET /topics, /topics/{topic}, partitions, offsets and /brokers."""

from __future__ import annotations

import pytest

from tests.services.rest_proxy.stage import V2, Rest


def test_the_root_path_of_the_proxy_answers_with_an_empty_object(rest: Rest) -> None:
    answer = rest.get("/")
    assert (answer.status_code, answer.json()) == (200, {})
    assert rest.send("POST", "/", {"a": "b"}).json() == {}


def test_topics_are_listed_by_name(rest: Rest) -> None:
    topic = rest.topic()
    answer = rest.get("/topics")
    assert answer.headers["content-type"] == V2
    assert topic in answer.json()


def test_a_topic_has_its_configuration_as_strings_and_its_partitions(rest: Rest) -> None:
    topic = rest.topic(2, retention_ms="12345")
    found = rest.get(f"/topics/{topic}").json()
    assert found["name"] == topic
    assert found["configs"]["retention.ms"] == "12345"
    assert found["configs"]["cleanup.policy"] == "delete"
    assert [each["partition"] for each in found["partitions"]] == [0, 1]


def test_a_partition_names_its_leader_and_its_replicas(rest: Rest) -> None:
    topic = rest.topic(3)
    [broker] = rest.get("/brokers").json()["brokers"]
    whole = {"partition": 2, "leader": broker, "replicas": [{"broker": broker, "leader": True, "in_sync": True}]}
    assert rest.get(f"/topics/{topic}/partitions").json()[2] == whole
    assert rest.get(f"/topics/{topic}/partitions/2").json() == whole


def test_the_end_offset_of_a_partition_grows_with_its_records(rest: Rest) -> None:
    topic = rest.topic()
    path = f"/topics/{topic}/partitions/0/offsets"
    assert rest.get(path).json() == {"beginning_offset": 0, "end_offset": 0}
    rest.produce(topic, 1, 2, 3)
    assert rest.get(path).json() == {"beginning_offset": 0, "end_offset": 3}


@pytest.mark.parametrize("path", ["", "/partitions", "/partitions/0", "/partitions/0/offsets"])
@pytest.mark.parametrize("name", ["there-is-no-such-topic", "no%20such%2Fname", "%00", "a" * 300])
def test_an_unknown_topic_gets_40401(rest: Rest, name: str, path: str) -> None:
    answer = rest.get(f"/topics/{name}{path}")
    assert (answer.status_code, answer.json()) == (404, {"error_code": 40401, "message": "Topic not found."})


@pytest.mark.parametrize("number", ["1", "2147483647", "-1"])
def test_an_unknown_partition_gets_40402(rest: Rest, number: str) -> None:
    topic = rest.topic()
    for path in ("", "/offsets"):
        answer = rest.get(f"/topics/{topic}/partitions/{number}{path}")
        assert (answer.status_code, answer.json()["error_code"]) == (404, 40402)


def test_an_unknown_path_gets_404_and_an_unsupported_method_405(rest: Rest) -> None:
    assert rest.get("/nothing/here").json()["error_code"] == 404
    answer = rest.send("DELETE", "/topics")
    assert (answer.status_code, answer.json()["error_code"]) == (405, 405)


def test_an_unsupported_accept_header_gets_406(rest: Rest) -> None:
    assert rest.get("/topics", accept="text/csv").status_code == 406


def test_health_metrics_openapi_document_and_docs_are_served(rest: Rest) -> None:
    assert rest.get("/health").json() == {"status": "ok"}
    assert "http_requests_total" in rest.get("/metrics").text
    assert "/topics/{topic}" in rest.get("/openapi.json").json()["paths"]
    assert "/consumers/{group}" in rest.get("/docs").text
