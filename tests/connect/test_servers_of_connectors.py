"""The MQTT source and the MongoDB sink on real servers, called as their tasks would call them: no Kafka, no Spark."""

from __future__ import annotations

import time
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pytest

from pessoa.connect.connector import Offsets, RetriableFailure
from pessoa.connect.connectors.mongo_sink import MongoSinkConnector
from pessoa.connect.connectors.mqtt_source import MqttSourceConnector
from pessoa.connect.data import Record
from tests.apache.broker import reserve_port
from tests.connect.servers import Mosquitto, mongo, mosquitto, mosquitto_program, publish
from tests.connect.serving import wait_until

KEY_ID = "com.mongodb.kafka.connect.sink.processor.id.strategy.FullKeyStrategy"


@pytest.fixture(scope="module")
def mqtt() -> Iterator[Mosquitto]:
    if mosquitto_program() is None:
        pytest.skip("there is no mosquitto on this machine")
    with mosquitto() as server:
        yield server


def started(server: Mosquitto, name: str, **settings: str) -> MqttSourceConnector:
    source = MqttSourceConnector()
    given = {
        "name": name, "mqtt.server.uri": server.url, "mqtt.topics": f"{name}/#", "kafka.topic": "leituras",
        "mqtt.qos": "1", "mqtt.clean.session.enabled": "false",
        **{key.replace("_", "."): text for key, text in settings.items()},
    }  # fmt: skip
    source.start(MqttSourceConnector.CONFIG.parse(given), Offsets())
    return source


def read(source: MqttSourceConnector, count: int) -> list[Record]:
    found: list[Record] = []

    def enough() -> bool:
        found.extend(source.poll())
        return len(found) >= count

    wait_until(enough, f"{count} messages came", 60)
    assert len(found) == count
    return found


def subscribed(source: MqttSourceConnector) -> None:
    def ready() -> bool:
        assert list(source.poll()) == []
        return source._has_connected.is_set()

    wait_until(ready, "the source is connected", 60)


def test_mqtt_messages_become_records_and_are_delivered_again_until_they_are_committed(mqtt: Mosquitto) -> None:
    source = started(mqtt, "casa")
    subscribed(source)
    # The server keeps the subscription under the client's name, and queues messages for it.
    publish(mqtt, ("casa/sala", "21.5"), ("casa/quarto", "19"), ("outra/sala", "3"))
    first, second = read(source, 2)
    assert (first.topic, first.key, first.value) == ("leituras", "casa/sala", b"21.5")
    assert {each.key: each.value for each in first.headers}["mqtt.qos"] == 1
    source.stop()
    again = started(mqtt, "casa")
    assert [each.value for each in read(again, 2)] == [first.value, second.value]
    again.commit(Offsets())
    again.stop()
    publish(mqtt, ("casa/sala", "22"))
    last = started(mqtt, "casa")
    assert [each.value for each in read(last, 1)] == [b"22"]
    last.stop()


def test_an_mqtt_source_reconnects_after_a_server_restart_and_receives_later_messages(mqtt: Mosquitto) -> None:
    source = started(mqtt, "rua")
    subscribed(source)
    mqtt.process.stop()
    mqtt.start()
    publish(mqtt, ("rua/norte", "1"))
    assert [each.key for each in read(source, 1)] == ["rua/norte"]
    source.commit(Offsets())
    source.stop()


def test_an_mqtt_source_fails_with_the_address_of_a_server_that_cannot_be_reached() -> None:
    source = MqttSourceConnector()
    url = f"tcp://127.0.0.1:{reserve_port()}"
    settings = {"mqtt.server.uri": url, "mqtt.topics": "a", "mqtt.connect.timeout.seconds": "1"}
    source.start(MqttSourceConnector.CONFIG.parse(settings), Offsets())
    deadline = time.monotonic() + 60

    def poll_for_ever() -> None:
        while time.monotonic() < deadline:
            source.poll()

    with pytest.raises(ConnectionError, match=url):
        poll_for_ever()
    source.stop()


# MongoDB.


@pytest.fixture(scope="module")
def mongo_url() -> Iterator[str]:
    with mongo() as url:
        yield url


def sink_of(url: str, **settings: str) -> Any:
    sink = MongoSinkConnector()
    refused: list[tuple[Record, Exception]] = []
    sink.report = lambda record, error: refused.append((record, error))
    given = {name.replace("_", "."): text for name, text in settings.items()}
    sink.start(MongoSinkConnector.CONFIG.parse({"connection.uri": url, "database": "loja", **given}))
    sink.refused = refused  # type: ignore[attr-defined]
    return sink


def documents(url: str, collection: str) -> dict[Any, Any]:
    from pymongo import MongoClient

    with MongoClient[dict[str, Any]](url) as client:
        return {each.pop("_id"): each for each in client["loja"][collection].find()}


def row(number: int, value: Any, key: Any = None) -> Record:
    return Record("pedidos", 0, key=number if key is None else key, value=value, offset=number)


@pytest.mark.apache
def test_the_mongo_sink_replaces_documents_by_key_and_deletes_them_on_tombstones(mongo_url: str) -> None:
    sink = sink_of(mongo_url, document_id_strategy=KEY_ID, delete_on_null_values="true", max_batch_size="3")
    rows = [row(n, {"n": n, "preco": Decimal("1.50")}) for n in range(10)]
    sink.put(rows)
    sink.put([*rows, row(10, None, key=4), row(11, {"n": "outro"}, key=5), row(12, "sem campos", key=6)])
    found = documents(mongo_url, "pedidos")
    assert set(found) == set(range(10)) - {4}
    assert found[5] == {"n": "outro"}
    assert str(found[3]["preco"]) == "1.50"
    ((refused, why),) = sink.refused
    assert refused.key == 6
    assert "HoistField" in str(why)
    sink.stop()


@pytest.mark.apache
def test_the_mongo_sink_writes_a_repeated_batch_once_and_writes_the_documents_after_a_refused_one(
    mongo_url: str,
) -> None:
    insert = "InsertOneDefaultStrategy"
    sink = sink_of(mongo_url, collection="eventos", writemodel_strategy=insert)
    rows = [row(n, {"n": n}) for n in range(5)]
    sink.put(rows)
    sink.put(rows)
    assert len(documents(mongo_url, "eventos")) == 5
    assert sink.refused == []
    keyed = sink_of(mongo_url, collection="eventos", writemodel_strategy=insert, document_id_strategy=KEY_ID)
    keyed.put([row(1, {"n": 1}), row(2, {"n": 1}, key=1), row(3, {"n": 3})])
    assert [record.offset for record, _ in keyed.refused] == [2]
    assert documents(mongo_url, "eventos")[3] == {"n": 3}
    sink.stop()
    keyed.stop()


@pytest.mark.apache
def test_the_mongo_sink_raises_a_retriable_failure_while_its_server_is_unreachable(mongo_url: str) -> None:
    url = f"mongodb://127.0.0.1:{reserve_port()}"
    sink = sink_of(url, server_selection_timeout_ms="100")
    with pytest.raises(RetriableFailure, match="does not answer"):
        sink.put([row(1, {"n": 1})])
    sink.stop()
