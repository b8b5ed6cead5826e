"""Lenient parsing that clients of other REST proxies expect: scalars of another type, every Unicode encoding."""

from __future__ import annotations

import json

import pytest

from tests.services.rest_proxy.stage import V2, V2_BINARY, V2_JSON, Consumer, Rest


def test_v2_accepts_numbers_and_booleans_as_strings(pessoa_rest: Rest) -> None:
    topic = pessoa_rest.topic(2)
    body = {"records": [{"value": "1", "partition": "1"}], "value_schema_id": ""}
    answer = pessoa_rest.send("POST", f"/topics/{topic}", body, V2_JSON)
    assert answer.status_code == 200, answer.text
    assert answer.json()["offsets"][0] == {"partition": 1, "offset": 0, "error_code": None, "error": None}
    consumer = pessoa_rest.consumer(**{"consumer.request.timeout.ms": "1000", "auto.commit.enable": "false"})
    place = {"topic": topic, "partition": "1"}
    assert consumer.post("/assignments", {"partitions": [place]}).status_code == 204
    assert consumer.post("/positions", {"offsets": [{**place, "offset": "0"}]}).status_code == 204
    [record] = consumer.read(1)
    assert (record["partition"], record["value"]) == (1, "1")
    assert consumer.post("/offsets", {"offsets": [{**place, "offset": "0"}]}).status_code == 200
    committed = pessoa_rest.send("GET", f"{consumer.uri}/offsets", {"partitions": [place]})
    assert [each["offset"] for each in committed.json()["offsets"]] == [1]
    assert consumer.delete().status_code == 204


def test_v3_accepts_numbers_booleans_and_strings_in_place_of_each_other(pessoa_rest: Rest) -> None:
    cluster, name = pessoa_rest.cluster, f"{pessoa_rest.topic()}-v3"
    configs = [{"name": "retention.ms", "value": 1000}, {"name": "preallocate", "value": True}]
    body = {"topic_name": name, "partitions_count": "2", "replication_factor": "1", "configs": configs}
    created = pessoa_rest.send("POST", f"{cluster}/topics", body, "application/json")
    assert created.status_code == 201, created.text
    pessoa_rest.wait_for_topic(name)
    assert len(pessoa_rest.get(f"/topics/{name}/partitions").json()) == 2
    assert pessoa_rest.get(f"{cluster}/topics/{name}/configs/retention.ms").json()["value"] == "1000"
    altered = {"data": [{"name": "retention.ms", "value": 2000}], "validate_only": "false"}
    assert (
        pessoa_rest.send("POST", f"{cluster}/topics/{name}/configs:alter", altered, "application/json").status_code
        == 204
    )
    record = {"partition_id": "1", "value": {"type": "JSON", "data": 7}, "timestamp": 1_700_000_000}
    report = pessoa_rest.send("POST", f"{cluster}/topics/{name}/records", record, "application/json").json()
    assert (report["error_code"], report["partition_id"]) == (200, 1)
    assert report["timestamp"].startswith("2023-11-14T22:13:20")


@pytest.mark.parametrize("charset", ["utf-16", "utf-16-be", "utf-16-le", "utf-32", "utf-32-le", "utf-8-sig"])
def test_request_bodies_are_accepted_in_every_unicode_encoding(pessoa_rest: Rest, charset: str) -> None:
    topic = pessoa_rest.topic()
    body = json.dumps({"records": [{"value": {"name": "Zoë €"}}]}, ensure_ascii=False).encode(charset)
    answer = pessoa_rest.send("POST", f"/topics/{topic}", body, f"{V2_JSON}; charset={charset}")
    assert answer.status_code == 200, answer.text
    record = json.dumps({"value": {"type": "STRING", "data": "Zoë €"}}, ensure_ascii=False)
    stream = (record + "\n" + record).encode(charset)
    answered = pessoa_rest.send("POST", f"{pessoa_rest.cluster}/topics/{topic}/records", stream, "application/json")
    assert [json.loads(line)["error_code"] for line in answered.text.splitlines()] == [200, 200]
    consumer = pessoa_rest.consumer(format="binary")
    consumer.post("/assignments", {"partitions": [{"topic": topic, "partition": 0}]})
    values = [each["value"] for each in consumer.read(3, V2_BINARY)]
    # {"name":"Zoë €"} and twice Zoë €, in UTF-8.
    assert values == ["eyJuYW1lIjoiWm/DqyDigqwifQ==", "Wm/DqyDigqw=", "Wm/DqyDigqw="]
    consumer.delete()


def test_a_request_body_that_is_invalid_in_its_encoding_gets_400(pessoa_rest: Rest) -> None:
    topic = pessoa_rest.topic()
    body = '{"records":[{"value":1}]}'.encode("utf-16-le") + b"x"
    for path, content_type in (
        (f"/topics/{topic}", V2_JSON),
        (f"{pessoa_rest.cluster}/topics/{topic}/records:batch", "application/json"),
    ):
        assert pessoa_rest.send("POST", path, body, content_type).status_code == 400


@pytest.mark.parametrize("text", ["foo", "99999999999", "1.5", "%20"])
def test_a_path_with_a_partition_that_is_not_an_int32_gets_404(pessoa_rest: Rest, text: str) -> None:
    topic = pessoa_rest.topic()
    for path in (f"/topics/{topic}/partitions/{text}", f"/topics/{topic}/partitions/{text}/offsets"):
        answer = pessoa_rest.get(path)
        assert (answer.status_code, answer.json()["error_code"]) == (404, 404), path
    answer = pessoa_rest.get(f"{pessoa_rest.cluster}/topics/{topic}/partitions/{text}")
    assert (answer.status_code, answer.json()["error_code"]) == (404, 404)


def _is_assigned(consumer: Consumer) -> bool:
    assert consumer.get("/records?timeout=100", accept=V2_JSON).status_code == 200
    return bool(consumer.get("/assignments").json()["partitions"])


def test_changing_between_topic_names_and_a_pattern_is_refused_until_the_consumer_unsubscribes(
    pessoa_rest: Rest,
) -> None:
    topic = pessoa_rest.topic()
    consumer = pessoa_rest.consumer()
    # If both are given, the topic names count.
    assert consumer.post("/subscription", {"topics": [topic], "topic_pattern": "baz"}).status_code == 204
    assert consumer.post("/subscription", {"topics": [topic]}).status_code == 204
    for first, second in (
        ({"topics": [topic]}, {"topic_pattern": topic}),
        ({"topic_pattern": topic}, {"topics": [topic]}),
    ):
        assert consumer.post("/subscription", first).status_code == 204
        # Join first: librdkafka's close() may never return when a subscription ends before the group was joined.
        pessoa_rest.until(lambda: _is_assigned(consumer), "the consumer has joined its group")
        refused = pessoa_rest.send("POST", f"{consumer.uri}/subscription", second, V2)
        assert (refused.status_code, refused.json()["error_code"]) == (409, 40903)
        assert refused.json()["message"].endswith("topics, partitions and pattern are mutually exclusive")
        assert consumer.delete("/subscription").status_code == 204
    consumer.delete()
