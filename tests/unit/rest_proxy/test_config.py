"""kafka-rest.properties: which part of the proxy gets which key."""

from __future__ import annotations

import logging

import pytest

from pessoa.base.config_values import ConfigProblem
from pessoa.rest_proxy.proxy_app import is_offered
from pessoa.rest_proxy.proxy_config import from_properties
from pessoa.web.http_settings import Listener


def test_defaults_are_those_of_the_jvm_proxy() -> None:
    config = from_properties({})
    assert config.http.listener == Listener("http", "127.0.0.1", 8082)
    assert (config.consumer_request_timeout_ms, config.consumer_instance_timeout_ms) == (1000, 300_000)
    assert (config.consumer_request_max_bytes, config.consumer_threads, config.fetch_min_bytes) == (67_108_864, 50, -1)
    assert config.registry_settings["schema.registry.url"] == "http://localhost:8081"
    assert config.batch_maximum_entries == 10
    assert config.producer == config.consumer == config.admin == {"bootstrap.servers": "localhost:9092"}


def test_prefixed_keys_apply_to_one_client_and_override_general_ones() -> None:
    config = from_properties(
        {
            "bootstrap.servers": "PLAINTEXT://a:1,SASL_SSL://b:2",
            "client.security.protocol": "SASL_SSL",
            "client.linger.ms": "1",
            "producer.linger.ms": "7",
            "consumer.session.timeout.ms": "6000",
            "consumer.request.timeout.ms": "250",
            "admin.security.protocol": "PLAINTEXT",
        }
    )
    assert config.bootstrap_servers == "a:1,b:2"
    assert config.producer == {"bootstrap.servers": "a:1,b:2", "security.protocol": "SASL_SSL", "linger.ms": "7"}
    assert config.consumer["session.timeout.ms"] == "6000"
    # This one looks like the consumer's and is the proxy's.
    assert config.consumer_request_timeout_ms == 250
    assert "request.timeout.ms" not in config.consumer
    assert config.admin["security.protocol"] == "PLAINTEXT"
    assert config.java_admin["security.protocol"] == "PLAINTEXT"


def test_login_at_the_registry_is_taken_with_and_without_the_prefix_and_not_called_unknown(
    caplog: pytest.LogCaptureFixture,
) -> None:
    login = {"schema.registry.url": "http://r:1", "basic.auth.user.info": "ada:x", "bearer.auth.token": "t"}
    with caplog.at_level(logging.INFO):
        config = from_properties({**login, "schema.registry.ssl.truststore.location": "/ca.pem"})
    assert config.registry_settings == {**login, "schema.registry.ssl.truststore.location": "/ca.pem"}
    assert caplog.text == ""


def test_security_settings_have_the_names_of_the_jvm_proxy() -> None:
    config = from_properties(
        {
            "client.security.protocol": "SASL_SSL",
            "client.sasl.mechanism": "SCRAM-SHA-256",
            "client.sasl.jaas.config": "org.apache.kafka.common.security.scram.ScramLoginModule required "
            'username="al\\"ice" password="a;b=c";',
            "client.ssl.truststore.location": "/ca.pem",
            "client.ssl.truststore.type": "PEM",
            "client.ssl.truststore.password": "x",
            "client.ssl.keystore.location": "/me.pem",
            "client.ssl.keystore.type": "PEM",
            "client.ssl.endpoint.identification.algorithm": "",
            "client.ssl.keystore.password": "y",
            "client.request.timeout.ms": "7000",
            "producer.key.serializer": "org.apache.kafka.Serializer",
            "producer.schema.registry.url": "http://elsewhere",
            "producer.partitioner.class": "org.apache.kafka.clients.producer.RoundRobinPartitioner",
            "producer.batch.size": "0",
        }
    )
    assert config.consumer == {
        "bootstrap.servers": "localhost:9092",
        "security.protocol": "SASL_SSL",
        "sasl.mechanisms": "SCRAM-SHA-256",
        "sasl.username": 'al"ice',
        "sasl.password": "a;b=c",
        "ssl.ca.location": "/ca.pem",
        "ssl.certificate.location": "/me.pem",
        "ssl.key.location": "/me.pem",
        "ssl.endpoint.identification.algorithm": "none",
        "socket.timeout.ms": "7000",
    }
    assert config.producer == {**config.consumer, "batch.num.messages": "1"}


@pytest.mark.parametrize(
    ("text", "listener"),
    [
        ("http://0.0.0.0:8082", Listener("http", "0.0.0.0", 8082)),
        ("https://host:1, http://other:2", Listener("https", "host", 1)),
        ("http://:8082", Listener("http", "0.0.0.0", 8082)),
    ],
)
def test_the_listeners_setting_is_parsed(text: str, listener: Listener) -> None:
    assert from_properties({"listeners": text, "ssl.keystore.location": "own.pem"}).http.listener == listener


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("listeners", "tcp://a:1"),
        ("listeners", "http://a"),
        ("port", "x"),
        ("api.v2.enable", "maybe"),
        ("producer.batch.size", "many"),
        ("client.broker.address.family", "v7"),
        ("listeners", "http://a:99999999"),
    ],
)
def test_the_error_for_a_wrong_value_names_the_value(key: str, value: str) -> None:
    with pytest.raises(ConfigProblem, match=value):
        from_properties({key: value})


def test_an_endpoint_is_offered_unless_it_or_its_family_is_blocked() -> None:
    assert is_offered("api.v3.acls.create", (), ())
    assert not is_offered("api.v3.acls.create", (), ("api.v3.acls",))
    assert not is_offered("api.v3.acls.create", (), ("api.v3.acls.create",))
    assert is_offered("api.v3.acls.create", (), ("api.v3.acl",))
    assert is_offered("api.v3.acls.create", ("api.v3",), ())
    assert not is_offered("api.v2.topics.list", ("api.v3",), ())
