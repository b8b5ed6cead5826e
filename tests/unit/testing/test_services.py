"""The schema registry and the REST proxy that run inside a test."""

from __future__ import annotations

import json
import threading

import httpx
import pytest

from pessoa.base.config_values import ConfigProblem
from pessoa.client.cluster_id import ATTEMPT_MS
from pessoa.client.topic_creation import TopicUnavailable
from pessoa.schema_registry.registry_config import make_config
from pessoa.testing import Broker, RestProxy, SchemaRegistry
from pessoa.web.serving import START_TIMEOUT_S

AVRO = {"Content-Type": "application/vnd.kafka.avro.v2+json"}
SCHEMA = json.dumps({"type": "record", "name": "Order", "fields": [{"name": "amount", "type": "int"}]})
TIMEOUT_S = 60


def test_a_proxy_writes_a_record_whose_schema_the_registry_keeps(
    kafka: Broker, kafka_topic: str, schema_registry: SchemaRegistry, rest_proxy: RestProxy
) -> None:
    body = {"value_schema": SCHEMA, "records": [{"value": {"amount": 7}}]}
    answer = httpx.post(
        f"{rest_proxy.url}/topics/{kafka_topic}", content=json.dumps(body), headers=AVRO, timeout=TIMEOUT_S
    )
    assert answer.status_code == 200, answer.text
    assert [each["offset"] for each in answer.json()["offsets"]] == [0]
    latest = f"{schema_registry.url}/subjects/{kafka_topic}-value/versions/latest"
    assert json.loads(httpx.get(latest, timeout=TIMEOUT_S).json()["schema"]) == json.loads(SCHEMA)


def test_a_registry_has_the_settings_it_was_given_and_leaves_no_thread(kafka_broker: Broker) -> None:
    before = set(threading.enumerate())
    registry = SchemaRegistry(kafka_broker.bootstrap_servers, {"schema.compatibility.level": "full"})
    assert repr(registry) == "<pessoa.testing.SchemaRegistry stopped>"
    with registry:
        assert repr(registry) == f"<pessoa.testing.SchemaRegistry on {registry.url}>"
        config = httpx.get(f"{registry.url}/config", timeout=TIMEOUT_S).json()
        assert config == {"compatibilityLevel": "FULL"}
    assert {one.name for one in set(threading.enumerate()) - before if one.name == "pessoa-web"} == set()


def test_a_service_that_cannot_start_raises_the_reason() -> None:
    with (
        pytest.raises(ConfigProblem, match=r"schema\.compatibility\.level=any"),
        SchemaRegistry("127.0.0.1:1", {"schema.compatibility.level": "any"}),
    ):
        pass


def test_a_registry_that_cannot_reach_kafka_raises_an_error_and_leaves_no_thread() -> None:
    before = set(threading.enumerate())
    impatient = {"kafkastore.init.timeout.ms": "100"}
    with pytest.raises(TopicUnavailable, match="does not answer"), SchemaRegistry("127.0.0.1:1", impatient):
        pass
    assert {one.name for one in set(threading.enumerate()) - before if one.name == "pessoa-web"} == set()


def test_a_registry_that_cannot_reach_kafka_fails_before_the_fixture_times_out() -> None:
    patience_s = make_config(SchemaRegistry("127.0.0.1:1")._settings).init_timeout_ms / 1000
    assert patience_s + ATTEMPT_MS / 1000 < START_TIMEOUT_S
