"""Avro and Protobuf with a schema registry: compatible with confluent-kafka's serialisers and google.protobuf."""

from __future__ import annotations

import json
import uuid
from pathlib import Path
from typing import Any

import httpx
import pytest
from confluent_kafka import Message, Producer
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from pessoa.pipelines import compiler
from pessoa.pipelines.in_memory import KafkaRecord, frame_of
from pessoa.pipelines.plan import Errors, Filter, Format, KafkaSettings, Node, PlanRefused, Sink, Source
from pessoa.pipelines.registry_formats import resolve_schemas
from pessoa.serde.framing import frame
from pessoa.streams import App, avro
from pessoa.streams.running import PipelineFailed
from pessoa.testing import Broker
from tests.streams.test_running import DEADLINE_S, consume

OLD = {"type": "record", "name": "Venda", "fields": [{"name": "valor", "type": "double"}]}
NEW = {**OLD, "fields": [*OLD["fields"], {"name": "moeda", "type": "string", "default": "EUR"}]}
OTHER = {**OLD, "fields": [{"name": "valor", "type": "string"}]}
PROTO = """
syntax = "proto3";
message Venda {
  double valor = 1;
  optional string moeda = 2;
  repeated int64 partes = 3;
  enum Tipo { VAZIO = 0; CHEIO = 1; }
  Tipo tipo = 4;
}
"""


@pytest.fixture
def topic() -> str:
    return f"t{uuid.uuid4().hex[:8]}"


def serialised(client: SchemaRegistryClient, topic: str, schema: Any, value: Any) -> bytes:
    made = AvroSerializer(client, json.dumps(schema))(value, SerializationContext(topic, MessageField.VALUE))
    assert isinstance(made, bytes)
    return made


def run(plan: Node, spark: Any, url: str, topic: str, *values: bytes | None) -> list[tuple[str, Any]]:
    settings = KafkaSettings("", schema_registry_url=url)
    rows = {topic: frame_of(spark, [KafkaRecord(topic, b"k", value, 0) for value in values])}
    written = compiler.compile(resolve_schemas(plan, settings), spark, kafka=settings, rows=rows)
    return [(row.topic, None if row.value is None else bytes(row.value)) for row in written.collect()]


def test_avro_of_older_versions_is_read_with_the_latest_schema_and_output_is_readable_by_confluent_kafka(
    spark: Any, registry_url: str, topic: str
) -> None:
    with SchemaRegistryClient({"url": registry_url}) as client:
        values = [
            serialised(client, topic, OLD, {"valor": 1.5}),
            serialised(client, topic, NEW, {"valor": 2.5, "moeda": "BRL"}),
        ]
        source = Source(topic, value=Format("avro"), errors=Errors("dead-letter", "cartas"))
        plan = Sink(Filter(source, "valor > 1"), f"{topic}-saida", value=Format("avro"))
        bad = [b"lixo", frame(999_999, b"\0" * 8), values[0] + b"\0"]
        found = run(plan, spark, registry_url, topic, *values, None, *bad)
        read = AvroDeserializer(client)
        context = SerializationContext(f"{topic}-saida", MessageField.VALUE)
        good = [read(value, context) for name, value in found if name == f"{topic}-saida" and value is not None]
    assert good == [{"valor": 1.5, "moeda": "EUR"}, {"valor": 2.5, "moeda": "BRL"}]
    assert [value for name, value in found if name == "cartas"] == bad


def test_protobuf_is_read_by_its_registered_schema_and_written_with_a_schema_made_from_the_columns(
    spark: Any, registry_url: str, topic: str
) -> None:
    from google.protobuf.message_factory import GetMessageClass

    from pessoa.serde.protobuf.linking import link, read_proto

    with httpx.Client(base_url=registry_url) as http:
        body = {"schema": PROTO, "schemaType": "PROTOBUF"}
        schema_id = http.post(f"/subjects/{topic}-value/versions", json=body).json()["id"]
        made = GetMessageClass(link(read_proto(PROTO), {}).descriptor.message_types_by_name["Venda"])
        message = made(valor=2.5, partes=[1, 2], tipo=1)
        source = Source(topic, value=Format("protobuf"))
        plan = Sink(source, f"{topic}-saida", value=Format("protobuf"))
        ((_, value),) = run(plan, spark, registry_url, topic, frame(schema_id, b"\0" + message.SerializeToString()))
        answer = http.get(f"/subjects/{topic}-saida-value/versions/latest").json()
    assert answer["schemaType"] == "PROTOBUF"
    written = link(read_proto(answer["schema"]), {})
    (descriptor,) = written.descriptor.message_types_by_name.values()
    read: Any = GetMessageClass(descriptor).FromString(value[6:])
    assert int.from_bytes(value[1:5], "big") == answer["id"]
    assert (read.valor, read.HasField("moeda"), list(read.partes), read.tipo) == (2.5, False, [1, 2], "CHEIO")


def test_a_plan_whose_schema_or_registry_is_missing_is_refused_with_the_reason(registry_url: str, topic: str) -> None:
    plan = Source(topic, value=Format("avro"))
    with pytest.raises(PlanRefused, match=f"the schema of {topic}-value is not to be had"):
        resolve_schemas(plan, KafkaSettings("", schema_registry_url=registry_url))
    with pytest.raises(PlanRefused, match="needs the address of a schema registry"):
        resolve_schemas(plan, KafkaSettings(""))


def test_a_running_app_keeps_its_columns_when_a_schema_changes_and_unreadable_values_are_bad_records(
    broker: Broker, registry_url: str, spark_address: str, topic: str, tmp_path: Path
) -> None:
    def send(schema: Any, value: Any) -> None:
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
        with SchemaRegistryClient({"url": registry_url}) as client:
            producer.produce(topic, key="ana", value=serialised(client, topic, schema, value))
        assert producer.flush(DEADLINE_S) == 0

    def app(name: str, **more: Any) -> App:
        made = App(f"{topic}-{name}", broker.bootstrap_servers, schema_registry=registry_url, spark=spark_address,
                   home=tmp_path / name, **more)  # fmt: skip
        made.stream(topic, value=avro()).to(f"{topic}-{name}-out")
        return made

    def written(records: list[Message], topic: str) -> list[Any]:
        return [json.loads(record.value() or b"") for record in records if record.topic() == topic]

    send(OLD, {"valor": 1.5})
    tolerant, strict = app("a", on_error="dead-letter"), app("b", delivery="exactly-once")
    with tolerant.start() as first, strict.start() as second:
        send(NEW, {"valor": 2.5, "moeda": "BRL"})
        good = [{"valor": 1.5}, {"valor": 2.5}]
        outs = [f"{topic}-a-out", f"{topic}-b-out"]

        def check() -> None:
            first.check()
            second.check()

        found = consume(broker, outs, lambda records: len(records) == 4, check)
        assert [written(found, out) for out in outs] == [good, good]
        with httpx.Client(base_url=registry_url) as http:
            assert http.put(f"/config/{topic}-value", json={"compatibility": "NONE"}).is_success
        send(OTHER, {"valor": "muito"})
        send(NEW, {"valor": 3.5, "moeda": "EUR"})
        letters = f"{topic}-a-dead-letters"
        found = consume(broker, [outs[0], letters], lambda records: len(records) == 4, first.check)
        assert written(found, outs[0]) == [*good, {"valor": 3.5}]
        (letter,) = [record for record in found if record.topic() == letters]
        message = dict(letter.headers() or [])["__streams.errors.message"]
        assert isinstance(message, bytes)
        assert message.startswith(b"its value is not avro: "), message
        with pytest.raises(
            PipelineFailed, match=f"a bad record stopped the pipeline: {topic}-0@2: its value is not avro"
        ):
            consume(broker, [outs[1]], lambda records: len(records) > 2, second.check)
        (status,) = second.status()
        assert status.state == "FAILED"
