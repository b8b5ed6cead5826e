"""Records with schemas, in v2 and v3: which schema is used, which bytes are written, what a consumer reads."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest
from confluent_kafka import Consumer as KafkaConsumer
from confluent_kafka import Producer, TopicPartition

from pessoa.web.problems import HttpProblem
from pessoa.web.serving import ThreadedServer
from tests.services.rest_proxy.small_registry import SmallRegistry
from tests.services.rest_proxy.stage import Rest, proxy_in_front_of

AVRO = "application/vnd.kafka.avro.v2+json"
JSON_SCHEMA = "application/vnd.kafka.jsonschema.v2+json"
PROTOBUF = "application/vnd.kafka.protobuf.v2+json"

USER = json.dumps(
    {
        "type": "record",
        "name": "User",
        "namespace": "com.example",
        "fields": [{"name": "name", "type": "string"}, {"name": "age", "type": ["null", "int"], "default": None}],
    }
)
CITY = json.dumps(
    {"title": "City", "type": "object", "properties": {"size": {"type": "integer"}}, "required": ["size"]}
)
PROTO = 'syntax = "proto3"; package example; message Point { int32 x = 1; string label = 2; }'


class Stage(NamedTuple):
    rest: Rest
    registry: SmallRegistry


@pytest.fixture
def stage(pessoa_cluster: str) -> Iterator[Stage]:
    registry = SmallRegistry()
    with (
        ThreadedServer(registry.make) as server,
        proxy_in_front_of(pessoa_cluster, schema_registry_url=server.url) as rest,
    ):
        yield Stage(rest, registry)


def last_value(rest: Rest, topic: str) -> bytes:
    consumer = KafkaConsumer({"bootstrap.servers": rest.bootstrap_servers, "group.id": "reader"})
    consumer.assign([TopicPartition(topic, 0, 0)])
    messages = consumer.consume(1, 30)
    consumer.close()
    value = messages[-1].value()
    assert value is not None
    return value


def produce(rest: Rest, topic: str, content_type: str, body: dict[str, Any]) -> Any:
    return rest.send("POST", f"/topics/{topic}", body, content_type)


FORMATS = [
    (AVRO, "avro", USER, {"name": "ann", "age": {"int": 7}}, b"\x06ann\x02\x0e"),
    (JSON_SCHEMA, "jsonschema", CITY, {"size": 3}, b'{"size":3}'),
    (PROTOBUF, "protobuf", PROTO, {"x": 5, "label": "a"}, b"\0\x08\x05\x12\x01a"),
]


@pytest.mark.parametrize(("media", "name", "schema", "value", "payload"), FORMATS, ids=["avro", "json", "protobuf"])
def test_a_value_produced_with_its_schema_is_consumed_as_the_same_value(
    stage: Stage, media: str, name: str, schema: str, value: Any, payload: bytes
) -> None:
    topic = stage.rest.topic()
    answer = produce(stage.rest, topic, media, {"value_schema": schema, "records": [{"value": value}, {"value": None}]})
    assert answer.status_code == 200, answer.text
    assert (answer.json()["value_schema_id"], answer.json()["key_schema_id"]) == (1, None)
    assert last_value(stage.rest, topic) == b"\0\0\0\0\1" + payload
    assert list(stage.registry.subjects) == [f"{topic}-value"]
    consumer = stage.rest.consumer(format=name)
    consumer.post("/subscription", {"topics": [topic]})
    assert [each["value"] for each in consumer.read(2, accept=media)] == [value, None]


def test_a_second_produce_with_the_same_schema_sends_no_request_to_the_registry(stage: Stage) -> None:
    topic = stage.rest.topic()
    body = {"value_schema": USER, "records": [{"value": {"name": "a", "age": None}}]}
    produce(stage.rest, topic, AVRO, body)
    asked = list(stage.registry.requests)
    assert asked == [f"POST {topic}-value", f"POST {topic}-value versions", f"POST {topic}-value"]
    produce(stage.rest, topic, AVRO, body)
    assert stage.registry.requests == asked


def test_key_and_value_schemas_are_given_by_id_and_an_id_of_another_subject_is_refused(stage: Stage) -> None:
    topic = stage.rest.topic()
    key_id = stage.registry.register(f"{topic}-key", {"schema": '"long"'})
    value_id = stage.registry.register(f"{topic}-value", {"schema": USER})
    records = [{"key": 5, "value": {"name": "a", "age": None}}]
    body = {"key_schema_id": key_id, "value_schema_id": value_id, "records": records}
    answer = produce(stage.rest, topic, AVRO, body)
    assert (answer.json()["key_schema_id"], answer.json()["value_schema_id"]) == (key_id, value_id)
    # An id that is registered only under another subject is refused.
    elsewhere = stage.registry.register("other-value", {"schema": '"int"'})
    answer = produce(stage.rest, topic, AVRO, {"value_schema_id": elsewhere, "records": [{"value": 1}]})
    assert (answer.status_code, answer.json()["error_code"]) == (422, 42207)


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ({"value_schema": USER, "records": [{"value": {"nom": "a"}}]}, 422, 42203),
        ({"value_schema": USER, "records": [{"value": {"name": "a", "age": 7}}]}, 422, 42203),
        ({"value_schema": '{"type": "recrd"}', "records": [{"value": 1}]}, 422, 42205),
        ({"value_schema": "{", "records": [{"value": 1}]}, 422, 42205),
        ({"value_schema_id": 999, "records": [{"value": 1}]}, 422, 42207),
        ({"value_schema": USER, "records": [{"key": 1, "value": None}]}, 422, 42201),
    ],
)
def test_a_produce_request_with_an_unusable_schema_or_value_is_refused_and_writes_nothing(
    stage: Stage, body: dict[str, Any], status: int, code: int
) -> None:
    topic = stage.rest.topic()
    answer = produce(stage.rest, topic, AVRO, body)
    assert (answer.status_code, answer.json()["error_code"]) == (status, code), answer.text
    assert stage.rest.get(f"/topics/{topic}/partitions/0/offsets").json()["end_offset"] == 0


def test_the_error_message_of_the_registry_is_returned_to_the_producing_client(stage: Stage) -> None:
    topic = stage.rest.topic()
    stage.registry.refuse = HttpProblem(409, "Schema being registered is incompatible with an earlier schema", 409)
    answer = produce(stage.rest, topic, AVRO, {"value_schema": '"int"', "records": [{"value": 1}]})
    assert (answer.status_code, answer.json()["error_code"]) == (422, 42207)
    assert "incompatible" in answer.json()["message"]


def test_producing_with_a_schema_while_the_registry_is_unreachable_gets_40801(pessoa_rest: Rest) -> None:
    topic = pessoa_rest.topic()
    answer = produce(pessoa_rest, topic, AVRO, {"value_schema": '"int"', "records": [{"value": 1}]})
    assert (answer.status_code, answer.json()["error_code"]) == (408, 40801)


@pytest.mark.parametrize("value", [b"plain", b"\0\0\0\0\x63x", b"\0\0"])
def test_reading_a_record_without_a_known_schema_as_avro_gets_40801(stage: Stage, value: bytes) -> None:
    topic = stage.rest.topic()
    producer = Producer({"bootstrap.servers": stage.rest.bootstrap_servers})
    producer.produce(topic, value)
    producer.flush()
    consumer = stage.rest.consumer(format="avro")
    consumer.post("/assignments", {"partitions": [{"topic": topic, "partition": 0}]})
    for _ in range(60):
        answer = consumer.get("/records", accept=AVRO)
        if answer.status_code != 200:
            break
    assert (answer.status_code, answer.json()["error_code"]) == (408, 40801)


def test_references_are_fetched_with_the_schema(stage: Stage) -> None:
    topic = stage.rest.topic()
    stage.registry.register("user", {"schema": USER})
    order = {"type": "record", "name": "Order", "fields": [{"name": "by", "type": "com.example.User"}]}
    reference = {"name": "com.example.User", "subject": "user", "version": 1}
    schema_id = stage.registry.register(f"{topic}-value", {"schema": json.dumps(order), "references": [reference]})
    value = {"by": {"name": "a", "age": None}}
    answer = produce(stage.rest, topic, AVRO, {"value_schema_id": schema_id, "records": [{"value": value}]})
    assert answer.status_code == 200, answer.text
    consumer = stage.rest.consumer(format="avro")
    consumer.post("/subscription", {"topics": [topic]})
    assert [each["value"] for each in consumer.read(1, accept=AVRO)] == [value]


# v3.


def record(stage: Stage, topic: str, **value: Any) -> dict[str, Any]:
    path = f"{stage.rest.cluster}/topics/{topic}/records"
    found: dict[str, Any] = stage.rest.http.post(path, json={"value": value}).json()
    return found


def test_v3_uses_the_latest_schema_of_the_subject_when_the_request_has_none(stage: Stage) -> None:
    topic = stage.rest.topic()
    stage.registry.register(f"{topic}-value", {"schema": '"int"'})
    schema_id = stage.registry.register(f"{topic}-value", {"schema": USER})
    report = record(stage, topic, data={"name": "a", "age": None})
    assert report["error_code"] == 200
    assert report["value"] == {
        "type": "AVRO",
        "size": 8,
        "subject": f"{topic}-value",
        "schema_id": schema_id,
        "schema_version": 2,
    }


def test_v3_accepts_a_schema_by_version_by_id_or_as_text(stage: Stage) -> None:
    topic = stage.rest.topic()
    schema_id = stage.registry.register(f"{topic}-value", {"schema": '"int"'})
    assert record(stage, topic, schema_version=1, data=1)["value"]["schema_id"] == schema_id
    assert record(stage, topic, schema_id=schema_id, data=1)["value"]["schema_version"] == 1
    named = record(stage, topic, type="JSONSCHEMA", schema=CITY, subject="cities", data={"size": 1})
    assert (named["value"]["subject"], named["value"]["type"]) == ("cities", "JSONSCHEMA")


@pytest.mark.parametrize(
    ("kind", "schema", "data", "name"),
    [
        ("AVRO", USER, {"name": "a", "age": None}, "com.example.User"),
        ("JSONSCHEMA", CITY, {"size": 1}, "City"),
        ("PROTOBUF", PROTO, {"x": 1}, "example.Point"),
    ],
)
def test_v3_chooses_the_subject_by_the_subject_name_strategy(
    stage: Stage, kind: str, schema: str, data: Any, name: str
) -> None:
    topic = stage.rest.topic()
    for strategy, subject in (
        ("TOPIC_NAME", f"{topic}-value"),
        ("RECORD_NAME", name),
        ("TOPIC_RECORD_NAME", f"{topic}-{name}"),
    ):
        report = record(stage, topic, type=kind, schema=schema, subject_name_strategy=strategy, data=data)
        assert report["value"]["subject"] == subject, report


def test_v3_reports_an_error_code_for_an_unusable_schema_or_value(stage: Stage) -> None:
    topic = stage.rest.topic()
    assert record(stage, topic, data=1)["error_code"] == 42207
    stage.registry.register(f"{topic}-value", {"schema": USER})
    assert record(stage, topic, data=1)["error_code"] == 42203
    assert record(stage, topic, type="AVRO", schema="{", data=1)["error_code"] == 42205
    assert record(stage, topic, subject_name_strategy="RECORD_NAME", data=1)["error_code"] == 42206
