"""POST /topics/{topic}: written bytes, responses and refusals."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from confluent_kafka import Consumer as KafkaConsumer
from confluent_kafka import TopicPartition

from pessoa.testing import Broker
from tests.services.rest_proxy.stage import V2, V2_BINARY, V2_JSON, Rest, proxy_in_front_of


def read_partition(rest: Rest, topic: str, count: int, partition: int = 0) -> list[tuple[bytes | None, bytes | None]]:
    """Return the keys and values of the first `count` records of a partition, read with librdkafka."""
    consumer = KafkaConsumer({"bootstrap.servers": rest.bootstrap_servers, "group.id": "reader"})
    try:
        consumer.assign([TopicPartition(topic, partition, 0)])
        return [(each.key(), each.value()) for each in consumer.consume(count, 30)]
    finally:
        consumer.close()


def test_json_values_are_written_without_spaces_and_numbers_keep_their_digits(rest: Rest) -> None:
    topic = rest.topic()
    value = b'{"a": [1, 2.50, 1e3, 12345678901234567890], "b": "x y"}'
    body = b'{"records": [{"key": "k", "value": %s}, {"value": null}]}' % value
    answer = rest.send("POST", f"/topics/{topic}", body, V2_JSON)
    assert answer.headers["content-type"] == V2
    assert answer.json() == {
        "offsets": [
            {"partition": 0, "offset": 0, "error_code": None, "error": None},
            {"partition": 0, "offset": 1, "error_code": None, "error": None},
        ],
        "key_schema_id": None,
        "value_schema_id": None,
    }
    assert read_partition(rest, topic, 2) == [
        (b'"k"', b'{"a":[1,2.50,1e3,12345678901234567890],"b":"x y"}'),
        (None, None),
    ]


def test_base64_keys_and_values_are_written_as_their_bytes(rest: Rest) -> None:
    topic = rest.topic()
    data = bytes(range(256))
    records = [{"key": "AA==", "value": base64.b64encode(data).decode()}, {"value": ""}, {"key": "AQ=="}]
    rest.send("POST", f"/topics/{topic}", {"records": records}, V2_BINARY)
    assert read_partition(rest, topic, 3) == [(b"\0", data), (None, b""), (b"\1", None)]


def test_a_record_is_written_to_its_own_partition_or_else_to_that_of_the_path(rest: Rest) -> None:
    topic = rest.topic(3)
    body = {"records": [{"value": 1}, {"value": 2, "partition": 2}]}
    answer = rest.send("POST", f"/topics/{topic}/partitions/1", body, V2_JSON)
    assert [each["partition"] for each in answer.json()["offsets"]] == [1, 2]


def test_a_key_is_partitioned_as_by_the_java_producer(rest: Rest) -> None:
    topic = rest.topic(10)
    # murmur2("21") as Kafka's own producer computes it: partition 1 of 10 (its tests have -973932308).
    body = {"records": [{"key": base64.b64encode(b"21").decode(), "value": ""}]}
    [place] = rest.send("POST", f"/topics/{topic}", body, V2_BINARY).json()["offsets"]
    assert place["partition"] == (-973932308 & 0x7FFFFFFF) % 10


def test_the_records_of_one_body_are_written_in_order(rest: Rest) -> None:
    topic = rest.topic()
    offsets = rest.produce(topic, *range(1000))
    assert [each["offset"] for each in offsets] == list(range(1000))


WRONG: dict[str, tuple[Any, str, int, int]] = {
    "not JSON": (b'{"records":', V2_JSON, 400, 400),
    "not an object": (b"[]", V2_JSON, 400, 400),
    "nothing at all": (b" ", V2_JSON, 422, 422),
    "not UTF-8": (b'{"records":[{"value":"\xff"}]}', V2_JSON, 400, 400),
    "no records": ({}, V2_JSON, 422, 422),
    "an empty list of records": ({"records": []}, V2_JSON, 422, 422),
    "records that are no list": ({"records": 1}, V2_JSON, 400, 400),
    "an unknown field": ({"records": [{"value": 1, "header": 1}]}, V2_JSON, 422, 422),
    "a negative partition": ({"records": [{"value": 1, "partition": -1}]}, V2_JSON, 422, 422),
    "a partition that is too large": ({"records": [{"value": 1, "partition": 2**40}]}, V2_JSON, 422, 422),
    "a partition that does not exist": ({"records": [{"value": 1}, {"value": 1, "partition": 7}]}, V2_JSON, 404, 40402),
    "wrong base64": ({"records": [{"value": "AA=="}, {"value": "not base64!"}]}, V2_BINARY, 400, 400),
    "a number for base64": ({"records": [{"value": 5}]}, V2_BINARY, 400, 400),
    "plain JSON as content type": ({"records": [{"value": 1}]}, "application/json", 415, 415),
    "the general type, which has no format": ({"records": [{"value": 1}]}, V2, 415, 415),
    "a value without schema": (
        {"records": [{"value": 1}]}, "application/vnd.kafka.avro.v2+json", 422, 42202
    ),
    "a key without schema": (
        {"records": [{"key": 1}]}, "application/vnd.kafka.avro.v2+json", 422, 42201
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG)
def test_an_invalid_produce_body_is_refused_and_writes_nothing(rest: Rest, case: str) -> None:
    body, content_type, status, code = WRONG[case]
    topic = rest.topic()
    answer = rest.send("POST", f"/topics/{topic}", body, content_type)
    assert (answer.status_code, answer.json()["error_code"]) == (status, code), answer.text
    assert rest.get(f"/topics/{topic}/partitions/0/offsets").json()["end_offset"] == 0


def test_producing_to_an_unknown_partition_gets_40402(rest: Rest) -> None:
    topic = rest.topic()
    answer = rest.send("POST", f"/topics/{topic}/partitions/1", {"records": [{"value": 1}]}, V2_JSON)
    assert (answer.status_code, answer.json()["error_code"]) == (404, 40402)


def test_a_record_that_is_too_large_fails_and_the_next_one_is_written(rest: Rest) -> None:
    topic = rest.topic()
    first, second = rest.produce(topic, "x" * 2_000_000, "small")
    assert (first["partition"], first["offset"], first["error_code"]) == (None, None, 50002)
    assert second["offset"] == 0


def test_producing_to_an_invalid_topic_name_gets_40401(rest: Rest) -> None:
    answer = rest.send("POST", "/topics/no%20such%2Fname", {"records": [{"value": 1}]}, V2_JSON)
    assert (answer.status_code, answer.json()["error_code"]) == (404, 40401)


def test_producing_to_an_unknown_topic_creates_it_when_brokers_auto_create_topics(rest: Rest) -> None:
    topic = rest.topic()[:-1] + "-auto"
    assert rest.produce(topic, 1)[0]["offset"] == 0


def test_producing_to_an_unknown_topic_gets_40401_when_brokers_do_not_auto_create_topics() -> None:
    with (
        Broker({"auto.create.topics.enable": "false"}) as broker,
        proxy_in_front_of(broker.bootstrap_servers) as rest,
    ):
        answer = rest.send("POST", "/topics/missing", {"records": [{"value": 1}]}, V2_JSON)
        assert (answer.status_code, answer.json()["error_code"]) == (404, 40401)
        # Once it is created, it is found.
        rest.http.post(f"{rest.cluster}/topics", json={"topic_name": "missing"})
        assert rest.produce("missing", 1)[0]["offset"] == 0


def test_producing_to_a_deleted_topic_gets_40401() -> None:
    with (
        Broker({"auto.create.topics.enable": "false"}) as broker,
        proxy_in_front_of(broker.bootstrap_servers) as rest,
    ):
        topic = rest.topic()
        rest.produce(topic, 1)
        assert rest.http.delete(f"{rest.cluster}/topics/{topic}").status_code == 204
        answer = rest.send("POST", f"/topics/{topic}", {"records": [{"value": 1}]}, V2_JSON)
        assert (answer.status_code, answer.json()["error_code"]) == (404, 40401)


def test_a_body_above_the_size_limit_gets_413_and_the_next_produce_succeeds() -> None:
    with Broker() as broker, proxy_in_front_of(broker.bootstrap_servers, pessoa_request_max_bytes="1000") as rest:
        topic = rest.topic()
        answer = rest.send("POST", f"/topics/{topic}", {"records": [{"value": "x" * 1000}]}, V2_JSON)
        assert (answer.status_code, answer.json()["error_code"]) == (413, 413)
        assert rest.produce(topic, "x")[0]["offset"] == 0


def test_producing_to_an_unreachable_cluster_gets_50003_and_succeeds_after_its_restart() -> None:
    broker = Broker()
    broker.start()
    with proxy_in_front_of(broker.bootstrap_servers, producer_delivery_timeout_ms="2000") as rest:
        topic = rest.topic()
        rest.produce(topic, 1)
        broker.stop()
        [failed] = rest.produce(topic, 2)
        assert (failed["offset"], failed["error_code"]) == (None, 50003)
        broker.start()
        assert rest.produce(topic, 3)[0]["offset"] == 1
    broker.stop()
