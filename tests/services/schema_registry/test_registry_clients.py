"""confluent-kafka's registry client and serialisers with our registry."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any
from uuid import uuid4

import pytest
from confluent_kafka.schema_registry import (
    ConfigCompatibilityLevel,
    Metadata,
    MetadataProperties,
    Schema,
    SchemaReference,
    SchemaRegistryClient,
    ServerConfig,
    record_subject_name_strategy,
    topic_record_subject_name_strategy,
    topic_subject_name_strategy,
)
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.error import SchemaRegistryError
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf.message_factory import GetMessageClass

from pessoa.serde.framing import unframe
from pessoa.serde.protobuf.linking import link, read_proto
from pessoa.web.serving import ThreadedServer

Strategy = Callable[[SerializationContext, str], str]
STRATEGIES = [
    (topic_subject_name_strategy, "{topic}-value"),
    (record_subject_name_strategy, "{record}"),
    (topic_record_subject_name_strategy, "{topic}-{record}"),
]


@pytest.fixture
def client(server: ThreadedServer) -> Iterator[SchemaRegistryClient]:
    with SchemaRegistryClient({"url": server.url}) as client:
        yield client


@pytest.fixture
def topic() -> str:
    return f"t{uuid4().hex[:12]}"


def context(topic: str) -> SerializationContext:
    return SerializationContext(topic, MessageField.VALUE)


@pytest.mark.parametrize(("strategy", "wanted"), STRATEGIES)
def test_confluent_kafka_serialises_avro_with_references_under_every_subject_name_strategy(
    client: SchemaRegistryClient, topic: str, strategy: Strategy, wanted: str
) -> None:
    record = f"n.Outer{topic}"
    inner = f'{{"type":"record","name":"n.Inner{topic}","fields":[{{"name":"x","type":"int"}}]}}'
    client.register_schema(f"inner-{topic}", Schema(inner, "AVRO"))
    outer = (
        f'{{"type":"record","name":"{record}","fields":[{{"name":"i","type":"n.Inner{topic}"}},'
        '{"name":"s","type":["null","string"],"default":null}]}'
    )
    schema = Schema(outer, "AVRO", [SchemaReference(f"n.Inner{topic}", f"inner-{topic}", 1)])
    serialise = AvroSerializer(client, schema, conf={"subject.name.strategy": strategy})
    data = serialise({"i": {"x": 5}, "s": "hello"}, context(topic))
    assert AvroDeserializer(client)(data, context(topic)) == {"i": {"x": 5}, "s": "hello"}
    subject = wanted.format(topic=topic, record=record)
    assert client.get_latest_version(subject).schema_id == unframe(data).schema


@pytest.mark.parametrize(("strategy", "wanted"), STRATEGIES)
def test_confluent_kafka_serialises_json_with_references_under_every_subject_name_strategy(
    client: SchemaRegistryClient, topic: str, strategy: Strategy, wanted: str
) -> None:
    record = f"Outer{topic}"
    inner = (
        '{"$schema":"http://json-schema.org/draft-07/schema#","type":"object","properties":{"x":{"type":"integer"}}}'
    )
    client.register_schema(f"inner-{topic}", Schema(inner, "JSON"))
    outer = f'{{"title":"{record}","type":"object","properties":{{"i":{{"$ref":"inner.json"}}}}}}'
    schema = Schema(outer, "JSON", [SchemaReference("inner.json", f"inner-{topic}", 1)])
    serialise = JSONSerializer(schema, client, conf={"subject.name.strategy": strategy})
    data = serialise({"i": {"x": 5}}, context(topic))
    assert JSONDeserializer(schema, schema_registry_client=client)(data, context(topic)) == {"i": {"x": 5}}
    subject = wanted.format(topic=topic, record=record)
    assert client.get_latest_version(subject).schema_id == unframe(data).schema


def protobuf_class(topic: str) -> Any:
    text = f"""
    syntax = "proto3";
    package p{topic};
    import "google/protobuf/timestamp.proto";
    import "other{topic}.proto";
    message Unused {{ }}
    message Outer {{ message Nested {{ int32 x = 1; google.protobuf.Timestamp at = 2; Other other = 3; }} }}
    """
    other = read_proto(f'syntax = "proto3"; package p{topic}; message Other {{ string q = 1; }}', f"other{topic}.proto")
    file = link(read_proto(text, f"outer{topic}.proto"), {f"other{topic}.proto": other})
    return GetMessageClass(file.pool.FindMessageTypeByName(f"p{topic}.Outer.Nested"))


@pytest.mark.parametrize(("strategy", "wanted"), STRATEGIES)
def test_confluent_kafka_serialises_protobuf_with_references_under_every_subject_name_strategy(
    client: SchemaRegistryClient, topic: str, strategy: Strategy, wanted: str
) -> None:
    kind = protobuf_class(topic)
    conf = {"use.deprecated.format": False}
    serialise = ProtobufSerializer(kind, client, conf={**conf, "subject.name.strategy": strategy})
    message = kind(x=5)
    message.at.seconds = 7
    message.other.q = "z"
    data = serialise(message, context(topic))
    back = ProtobufDeserializer(kind, conf, client)(data, context(topic))
    assert back == message
    subject = wanted.format(topic=topic, record=f"p{topic}.Outer.Nested")
    latest = client.get_latest_version(subject)
    assert latest.schema_id == unframe(data).schema
    schema = latest.schema
    assert [each.name for each in schema.references or []] == [f"other{topic}.proto"]
    assert "message Nested" in (schema.schema_str or "")


def test_every_call_of_confluent_kafkas_registry_client_is_answered(client: SchemaRegistryClient, topic: str) -> None:
    subject = f"{topic}-value"
    head = f'{{"type":"record","name":"{topic}","fields":['
    first = Schema(head + '{"name":"x","type":"int"}]}', "AVRO")
    second = Schema(
        head + '{"name":"x","type":"int"},{"name":"y","type":"int","default":0}]}',
        "AVRO",
        metadata=Metadata(None, MetadataProperties({"owner": "me"}), None),
    )
    narrow = Schema(head + '{"name":"z","type":"int"}]}', "AVRO")
    first_id = client.register_schema(subject, first)
    full = client.register_schema_full_response(subject, second)
    assert client.register_schema(subject, first) == first_id
    assert client.get_schema(first_id).schema_str == first.schema_str
    assert full.guid is not None
    assert client.get_schema_by_guid(full.guid).schema_str == second.schema_str
    assert set(client.get_schema_types()) == {"AVRO", "JSON", "PROTOBUF"}
    assert client.get_subjects_by_schema_id(first_id) == [subject]
    assert [(each.subject, each.version) for each in client.get_schema_versions(first_id)] == [(subject, 1)]
    assert client.lookup_schema(subject, first).version == 1
    assert subject in client.get_subjects()
    assert client.get_versions(subject) == [1, 2]
    assert client.get_version(subject, 1).schema_id == first_id
    assert client.get_latest_version(subject).version == 2
    assert client.get_latest_with_metadata(subject, {"owner": "me"}).version == 2
    assert client.test_compatibility(subject, second)
    assert not client.test_compatibility(subject, narrow)
    assert not client.test_compatibility_all_versions(subject, narrow)
    client.set_compatibility(subject, "FULL")
    assert client.get_compatibility(subject) == "FULL"
    client.set_config(subject, ServerConfig(compatibility=ConfigCompatibilityLevel.NONE))
    assert client.get_config(subject).compatibility_level == "NONE"
    assert client.register_schema(subject, narrow) > first_id
    client.delete_config(subject)
    assert client.update_mode(subject, "READONLY") == "READONLY"
    assert client.get_mode(subject) == "READONLY"
    with pytest.raises(SchemaRegistryError) as refused:
        client.register_schema(subject, Schema('"string"', "AVRO"))
    assert refused.value.error_code == 42205
    assert client.delete_mode(subject) == "READONLY"
    assert client.get_global_mode() == "READWRITE"
    assert client.get_contexts()[0] == "."
    assert client.get_referenced_by(subject, 1) == []
    assert client.delete_version(subject, 3) == 3
    assert client.delete_version(subject, 3, permanent=True) == 3
    assert client.delete_subject(subject) == [1, 2]
    assert client.delete_subject(subject, permanent=True) == [1, 2]
    assert subject not in client.get_subjects(deleted=True)
