"""The settings of `pessoa pipelines serve`: which part gets which key."""

from __future__ import annotations

from pathlib import Path

import pytest

from pessoa.pipelines.engine_config import make_config
from pessoa.web.http_settings import Listener


def test_engine_without_settings_listens_on_the_loopback_and_lets_everyone_in(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PESSOA_HOME", str(tmp_path))
    config = make_config({})
    assert config.http.listener == Listener("http", "127.0.0.1", 8084)
    assert (config.http.tls, config.http.authenticator(config.bootstrap_servers, {})) == (None, None)
    assert (config.bootstrap_servers, config.home) == ("localhost:9092", tmp_path / "pipelines")
    assert (config.spark_master, config.spark_memory, config.spark_remote) == ("local[*]", "1g", None)
    assert config.kafka_options == config.spark_options == {}


def test_each_key_goes_to_the_client_it_is_for() -> None:
    config = make_config(
        {
            "security.protocol": "SASL_SSL",
            "ssl.truststore.location": "/kafka.pem",
            "schema.registry.url": "https://r:1",
            "basic.auth.user.info": "ada:secret",
            "listeners": "https://127.0.0.1:0",
            "listeners.https.ssl.keystore.location": "/engine.pem",
            "listeners.https.ssl.truststore.location": "/callers.pem",
            "listeners.https.ssl.client.authentication": "REQUIRED",
            "spark.sql.shuffle.partitions": "2",
            "spark.remote": "sc://s:1",
        }
    )
    assert config.kafka_options == {
        "security.protocol": "SASL_SSL",
        "ssl.truststore.location": "/kafka.pem",
        "schema.registry.url": "https://r:1",
        "basic.auth.user.info": "ada:secret",
    }
    assert (config.registry_url, config.spark_remote) == ("https://r:1", "sc://s:1")
    assert config.spark_options == {"spark.sql.shuffle.partitions": "2"}
    tls = config.http.tls
    assert tls is not None
    assert (tls.certificate, tls.client_authority) == ("/engine.pem", "/callers.pem")
