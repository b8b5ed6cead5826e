"""The REST proxy with our schema registry: it and confluent-kafka's serialisers read each other's records."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

import httpx
import pytest
from confluent_kafka import Consumer as KafkaConsumer
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from tests.services.rest_proxy.stage import Rest, proxy_in_front_of
from tests.services.schema_registry.serving import registry

USER = json.dumps(
    {
        "type": "record",
        "name": "User",
        "fields": [{"name": "name", "type": "string"}, {"name": "age", "type": ["null", "int"]}],
    }
)
CITY = json.dumps(
    {"$schema": "http://json-schema.org/draft-07/schema#", "title": "City", "type": "object",
     "properties": {"size": {"type": "integer"}}, "required": ["size"]}
)  # fmt: skip
POINT = 'syntax = "proto3"; package example; message Point { int32 x = 1; string label = 2; }'
MEDIA = {kind: f"application/vnd.kafka.{kind}.v2+json" for kind in ("avro", "jsonschema", "protobuf")}


class Stage(NamedTuple):
    rest: Rest
    registry_url: str


@pytest.fixture(scope="module")
def stage(pessoa_cluster: str) -> Iterator[Stage]:
    with (
        registry(pessoa_cluster) as server,
        proxy_in_front_of(pessoa_cluster, schema_registry_url=server.url) as rest,
    ):
        yield Stage(rest, server.url)


def context(topic: str) -> SerializationContext:
    return SerializationContext(topic, MessageField.VALUE)


def read_by_proxy(rest: Rest, topic: str, kind: str) -> Any:
    consumer = rest.consumer(format=kind)
    consumer.post("/subscription", {"topics": [topic]})
    [record] = consumer.read(1, accept=MEDIA[kind])
    consumer.delete()
    return record["value"]


def produce_by_proxy(rest: Rest, topic: str, kind: str, schema: str, value: Any) -> bytes:
    body = {"value_schema": schema, "records": [{"value": value}]}
    answer = rest.send("POST", f"/topics/{topic}", body, MEDIA[kind])
    assert answer.status_code == 200, answer.text
    consumer = KafkaConsumer({"bootstrap.servers": rest.bootstrap_servers, "group.id": "reader"})
    consumer.assign([TopicPartition(topic, 0, 0)])
    [message] = consumer.consume(1, 30)
    consumer.close()
    data = message.value()
    assert data is not None
    return data


def produce_bytes(rest: Rest, topic: str, data: bytes | None) -> None:
    producer = Producer({"bootstrap.servers": rest.bootstrap_servers})
    producer.produce(topic, data)
    producer.flush()


def test_the_proxy_and_confluent_kafka_read_each_others_avro_records(stage: Stage) -> None:
    client = SchemaRegistryClient({"url": stage.registry_url})
    topic = stage.rest.topic()
    data = produce_by_proxy(stage.rest, topic, "avro", USER, {"name": "ann", "age": {"int": 7}})
    assert AvroDeserializer(client)(data, context(topic)) == {"name": "ann", "age": 7}
    other = stage.rest.topic()
    produce_bytes(stage.rest, other, AvroSerializer(client, USER)({"name": "bob", "age": None}, context(other)))
    assert read_by_proxy(stage.rest, other, "avro") == {"name": "bob", "age": None}


def test_the_proxy_and_confluent_kafka_read_each_others_json_schema_records(stage: Stage) -> None:
    client = SchemaRegistryClient({"url": stage.registry_url})
    topic = stage.rest.topic()
    data = produce_by_proxy(stage.rest, topic, "jsonschema", CITY, {"size": 3})
    assert JSONDeserializer(CITY, schema_registry_client=client)(data, context(topic)) == {"size": 3}
    other = stage.rest.topic()
    produce_bytes(stage.rest, other, JSONSerializer(CITY, client)({"size": 4}, context(other)))
    assert read_by_proxy(stage.rest, other, "jsonschema") == {"size": 4}


def test_a_protobuf_value_produced_by_the_proxy_is_consumed_as_the_same_value(stage: Stage) -> None:
    topic = stage.rest.topic()
    data = produce_by_proxy(stage.rest, topic, "protobuf", POINT, {"x": 5, "label": "a"})
    assert data[5:] == b"\0\x08\x05\x12\x01a"
    assert read_by_proxy(stage.rest, topic, "protobuf") == {"x": 5, "label": "a"}


def test_a_value_of_an_avro_schema_with_references_is_produced_and_consumed(stage: Stage) -> None:
    topic = stage.rest.topic()
    http = httpx.Client(base_url=stage.registry_url, trust_env=False, timeout=60)
    http.post(f"/subjects/{topic}-user/versions", json={"schema": USER}).raise_for_status()
    order = {"type": "record", "name": "Order", "fields": [{"name": "by", "type": "User"}]}
    reference = {"name": "User", "subject": f"{topic}-user", "version": 1}
    body = {"schema": json.dumps(order), "references": [reference]}
    schema_id = http.post(f"/subjects/{topic}-value/versions", json=body).raise_for_status().json()["id"]
    http.close()
    value = {"by": {"name": "a", "age": None}}
    sent = {"value_schema_id": schema_id, "records": [{"value": value}]}
    answer = stage.rest.send("POST", f"/topics/{topic}", sent, MEDIA["avro"])
    assert answer.status_code == 200, answer.text
    assert read_by_proxy(stage.rest, topic, "avro") == value


def test_producing_with_an_incompatible_schema_is_refused_with_the_message_of_the_registry(stage: Stage) -> None:
    topic = stage.rest.topic()
    produce_by_proxy(stage.rest, topic, "avro", '"string"', "x")
    body = {"value_schema": '"int"', "records": [{"value": 1}]}
    answer = stage.rest.send("POST", f"/topics/{topic}", body, MEDIA["avro"])
    assert (answer.status_code, answer.json()["error_code"]) == (422, 42207)
    assert "incompatible" in answer.json()["message"]
    assert stage.rest.get(f"/topics/{topic}/partitions/0/offsets").json()["end_offset"] == 1
