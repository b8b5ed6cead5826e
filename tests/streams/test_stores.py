"""Stores of an app (interactive queries): named state by key, range and window, in Python and over HTTP."""

from __future__ import annotations

import datetime
import json
import shutil
import time
from pathlib import Path
from uuid import uuid4

import httpx
import pytest
from confluent_kafka import Producer
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from pessoa.pipelines.api import pipelines_app
from pessoa.pipelines.engine import Engine
from pessoa.serde.framing import frame
from pessoa.streams import App, PlanRefused, avro, protobuf, tumbling
from pessoa.testing import Broker
from pessoa.web.asgi_app import App as WebApp
from pessoa.web.serving import ThreadedServer
from tests.streams.test_running import DEADLINE_S, produce


def eventually(app_check: object, holds: object) -> None:
    assert callable(app_check)
    assert callable(holds)
    deadline_s = time.monotonic() + DEADLINE_S
    while not holds():
        app_check()
        assert time.monotonic() < deadline_s
        time.sleep(0.05)


def test_stores_are_read_by_key_range_and_window_while_the_app_runs_and_are_restored_from_the_changelog(
    broker: Broker, spark_address: str, tmp_path: Path
) -> None:
    name = f"t{uuid4().hex[:8]}"
    minute_ms = (int(time.time()) // 60 - 60) * 60_000
    app = App(name, broker.bootstrap_servers, spark=spark_address, home=tmp_path / "home")
    sales = app.stream(f"{name}-vendas", value="valor DOUBLE")
    sales.group_by_key().sum("valor", "total").stored("totais")
    sales.group_by_key().window(tumbling("1 min")).count().to(f"{name}-janelas")
    for position, (key, value) in enumerate([("ana", 1), ("rui", 5), ("ana", 2), ("eva", 4)]):
        produce(broker, f"{name}-vendas", (key, {"valor": value}), timestamp_ms=minute_ms + position * 30_000)
    with app.start() as running:
        totals = app.store("totais")
        eventually(running.check, lambda: totals.get("ana") == {"total": 3.0} and totals.count() == 3)
        assert totals.get("zé", fresh=True) is None
        assert list(totals.range("b", "f")) == [("eva", {"total": 4.0})]
        assert [key for key, _ in totals.all()] == ["ana", "eva", "rui"]
        windows = app.store(f"{name}-janelas")
        eventually(running.check, lambda: len(list(windows.windows("ana"))) == 2)
        first, second = windows.windows("ana")
        assert (first.key, first.value["count"], second.value["count"]) == ("ana", 1, 1)
        assert (first.start.timestamp() * 1000, second.start - first.start) == (
            minute_ms,
            datetime.timedelta(minutes=1),
        )
        assert list(windows.windows("ana", second.start)) == [second]
        with pytest.raises(PlanRefused, match="a row for each window"):
            windows.get("ana")
        url = running.serve(0)
        (row,) = httpx.get(f"{url}/tables/{name}-totais-changelog/rows?key=ana").json()["rows"]
        assert row["value"] == {"total": 3.0}
        assert len(httpx.get(f"{url}/queries").json()) == 2
    # The store can be read after the app has stopped; without its files it is restored from the changelog.
    assert app.store("totais").get("ana") == {"total": 3.0}
    app.close_tables()
    shutil.rmtree(tmp_path / "home" / "tables")
    assert app.store("totais").get("ana", fresh=True) == {"total": 3.0}
    app.close_tables()


CLIENT = {"type": "record", "name": "Cliente", "fields": [{"name": "id", "type": "long"}]}
ADDRESS = 'syntax = "proto3"; message Morada { string cidade = 1; repeated int64 andares = 2; }'


def test_a_store_reads_avro_and_protobuf_with_the_schema_registry(
    broker: Broker, registry_url: str, tmp_path: Path
) -> None:
    topic = f"t{uuid4().hex[:8]}"
    with httpx.Client(base_url=registry_url) as http:
        key = {"schema": json.dumps(CLIENT)}
        assert http.post(f"/subjects/{topic}-key/versions", json=key).is_success
        body = {"schema": ADDRESS, "schemaType": "PROTOBUF"}
        address_id = http.post(f"/subjects/{topic}-value/versions", json=body).json()["id"]
    with SchemaRegistryClient({"url": registry_url}) as client:
        serialise = AvroSerializer(client, json.dumps(CLIENT), conf={"auto.register.schemas": False})
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
        for number, city in enumerate((b"Lisboa", b"Faro"), 1):
            made = serialise({"id": number}, SerializationContext(topic, MessageField.KEY))
            # The message as encoded by protoc: field 1, then two packed numbers in field 2.
            data = b"\x0a" + bytes([len(city)]) + city + b"\x12\x02\x03" + bytes([number])
            producer.produce(topic, key=made, value=frame(address_id, b"\0" + data))
        producer.produce(topic, key=b"\0\0\x0f\xff\xff\0", value=b"lixo")
        assert producer.flush(DEADLINE_S) == 0
    app = App("loja", broker.bootstrap_servers, schema_registry=registry_url, home=tmp_path)
    app.table(topic, key=avro(), value=protobuf()).to("copia")
    store = app.store(topic)
    assert store.get(2, fresh=True) == {"cidade": "Faro", "andares": [3, 2]}
    assert store.get({"id": 1}) == {"cidade": "Lisboa", "andares": [3, 1]}
    assert store.get(7) is None
    with pytest.raises(PlanRefused, match="does not fit its schema"):
        store.get("ana")
    with pytest.raises(PlanRefused, match="the registry has no schema with the id 1048575"):
        list(store.all())
    engine = Engine(broker.bootstrap_servers, home=tmp_path / "e", state_topic=None, schema_registry_url=registry_url)

    async def make() -> WebApp:
        return pipelines_app(engine, app.tables)

    with ThreadedServer(make, port=0) as server:
        rows = httpx.get(f"{server.url}/tables/{topic}/rows").json()["rows"]
    assert [(row["key"], row["value"]) for row in rows] == [
        ({"id": 1}, {"cidade": "Lisboa", "andares": [3, 1]}), ({"id": 2}, {"cidade": "Faro", "andares": [3, 2]}),
        ({"base64": "AAAP__8A"}, "lixo"),
    ]  # fmt: skip


def test_an_unknown_or_unreadable_store_is_refused_with_the_reason(tmp_path: Path) -> None:
    app = App("loja", "127.0.0.1:1", home=tmp_path)
    app.table("clientes", value="nome STRING").to("copia", value=avro())
    app.stream("vendas", value="valor DOUBLE").group_by_key().count().to("totais")
    with pytest.raises(PlanRefused, match="loja has no store vendas: it has clientes, copia, totais"):
        app.store("vendas")
    with pytest.raises(PlanRefused, match=r"are avro, which is read with a schema registry: name it with App\("):
        app.store("copia")
    with pytest.raises(PlanRefused, match="totais has no windows: ask for get"):
        next(app.store("totais").windows("ana"))
    with pytest.raises(PlanRefused, match="cannot be the name of a store"):
        app.table("clientes", value="nome STRING").stored("a b")
    app.close_tables()
