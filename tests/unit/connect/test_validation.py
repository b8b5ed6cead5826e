"""`validate` of connector configurations: for any invalid value it reports the key and the reason."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pessoa.base.config_values import ConfigType
from pessoa.connect.common_keys import connector_keys
from pessoa.connect.config_validation import validate
from pessoa.connect.definition import Key
from pessoa.connect.plugins import CONNECTORS, Plugins

WORKER = {"bootstrap.servers": "127.0.0.1:1"}
PLUGINS = Plugins()
MIRROR = {
    "source.cluster.alias": "a", "source.cluster.bootstrap.servers": "127.0.0.1:1",
    "target.cluster.bootstrap.servers": "127.0.0.1:1",
}  # fmt: skip
# Enough of each connector for nothing to be wrong.
RIGHT = {
    "FileStreamSink": {"topics": "t", "file": "/tmp/f"},
    "FileStreamSource": {"topic": "t", "file": "/tmp/f"},
    "Datagen": {"kafka.topic": "t", "quickstart": "users"},
    "JdbcSink": {"topics": "t", "connection.url": "jdbc:sqlite::memory:"},
    "JdbcSource": {"connection.url": "jdbc:sqlite::memory:", "mode": "bulk", "topic.prefix": "p"},
    "S3Sink": {"topics": "t", "s3.bucket.name": "b", "flush.size": "3", "format.class": "JsonFormat"},
    "FileSystemSink": {"topics": "t", "store.url": "/tmp/f", "flush.size": "3", "format.class": "JsonFormat"},
    # With a reference that is looked up where the task runs, no database is asked.
    "PostgresConnector": {
        "database.hostname": "127.0.0.1", "database.port": "1", "database.user": "u", "database.dbname": "d",
        "database.password": "${env:X}", "topic.prefix": "p",
    },
    "ElasticsearchSink": {"topics": "t", "connection.url": "http://localhost:9200"},
    "MqttSource": {"mqtt.server.uri": "tcp://localhost:1883", "mqtt.topics": "a"},
    "MongoSink": {"topics": "t", "database": "d"},
    "TableSink": {"topics": "t", "table.path": "/tmp/t", "table.schema": "id BIGINT"},
    "MirrorSource": MIRROR,
    "MirrorCheckpoint": MIRROR,
    "MirrorHeartbeat": MIRROR,
    "io.confluent.connect.http.HttpSinkConnector": {"topics": "t", "http.api.url": "http://localhost/"},
    "HttpSink": {"topics": "t", "http.url": "http://localhost/", "http.authorization.type": "none"},
}  # fmt: skip
ODD = ("", " ", "x", "-1", "0", "1.5", "99999999999999999999", "a,b,,c", "[", "${file:/none:x}", "é\u0000\n", "true")
NUMBERS = (ConfigType.INT, ConfigType.LONG, ConfigType.SHORT, ConfigType.DOUBLE)


def _keys(name: str) -> list[Key]:
    kind = PLUGINS.connector(name)
    return [*connector_keys(PLUGINS, WORKER, kind.TYPE, kind.VERSION), *kind.CONFIG]


def _errors(settings: dict[str, str]) -> dict[str, list[str]]:
    verdict = validate(PLUGINS, WORKER, {"name": "c", **settings})
    return {report.key.name: report.errors for report in verdict.reports if report.errors}


def test_every_connector_has_a_validation_case() -> None:
    assert {PLUGINS.connector(name) for name in CONNECTORS} == {PLUGINS.connector(name) for name in RIGHT}


@pytest.mark.parametrize("name", RIGHT)
def test_a_valid_connector_configuration_has_no_errors(name: str) -> None:
    assert _errors({"connector.class": name, **RIGHT[name]}) == {}


@pytest.mark.parametrize("name", RIGHT)
def test_every_odd_value_of_a_key_is_accepted_or_refused_with_a_sentence(name: str) -> None:
    for each in _keys(name):
        for text in ODD:
            found = _errors({**RIGHT[name], each.name: text, "connector.class": name})
            for errors in found.values():
                assert all(error.strip() for error in errors), (each.name, text)


@pytest.mark.parametrize("name", RIGHT)
def test_a_malformed_number_is_an_error_of_its_key(name: str) -> None:
    for each in _keys(name):
        if each.type in (*NUMBERS, ConfigType.BOOLEAN):
            found = _errors({"connector.class": name, **RIGHT[name], each.name: "many"})
            assert each.name in found, found
            assert "Invalid value many" in found[each.name][0]


@pytest.mark.parametrize("name", RIGHT)
def test_a_missing_required_setting_is_an_error_of_its_key(name: str) -> None:
    for each in PLUGINS.connector(name).CONFIG:
        if each.is_required:
            left = {key: text for key, text in PLUGINS.connector(name).adapted(RIGHT[name]).items() if key != each.name}
            assert list(_errors({"connector.class": name, **left})) == [each.name]


@pytest.mark.parametrize(
    ("settings", "key", "words"),
    [
        ({"connector.class": "JdbcSource", "connection.url": "postgres://h/d"}, "connection.url", "jdbc:postgresql"),
        (
            {"connector.class": "JdbcSource", "connection.url": "jdbc:postgresql://localhost:port/d"},
            "connection.url",
            "port",
        ),
        ({"connector.class": "JdbcSource", "mode": "timestamp"}, "timestamp.column.name", "mode=timestamp"),
        ({"connector.class": "JdbcSource", "query": "SELECT 1", "table.whitelist": "t"}, "query", "table.whitelist"),
        ({"connector.class": "JdbcSink", "insert.mode": "upsert"}, "insert.mode", "pk.mode"),
        ({"connector.class": "JdbcSink", "delete.enabled": "true"}, "delete.enabled", "record_key"),
        ({"connector.class": "Datagen", "quickstart": "unknown"}, "quickstart", "unknown"),
        ({"connector.class": "HttpSink", "http.url": "ftp://x"}, "http.url", "http"),
        (
            {"connector.class": "HttpSink", "http.authorization.type": "static"},
            "http.headers.authorization",
            "static",
        ),
        ({"connector.class": "FileSystemSink", "format.class": "OrcFormat"}, "format.class", "OrcFormat"),
        (
            {"connector.class": "FileSystemSink", "partitioner.class": "FieldPartitioner"},
            "partition.field.name",
            "FieldPartitioner",
        ),
        (
            {"connector.class": "io.confluent.connect.http.HttpSinkConnector", "batch.max.size": "some"},
            "batch.max.size",
            "some",
        ),
    ],
)
def test_contradicting_settings_are_an_error_of_the_key_to_change(
    settings: dict[str, str], key: str, words: str
) -> None:
    found = _errors({**RIGHT[settings["connector.class"]], **settings})
    assert key in found, found
    assert words in found[key][0]


# References to config providers: values are checked, and never shown.

SECRET = "hunter2-of-the-sea"
PROVIDERS = "org.apache.kafka.common.config.provider"
WITH_PROVIDERS = {
    **WORKER, "config.providers": "env,file",
    "config.providers.env.class": f"{PROVIDERS}.EnvVarConfigProvider",
    "config.providers.file.class": f"{PROVIDERS}.FileConfigProvider",
}  # fmt: skip


def _answer(settings: dict[str, str]) -> dict[str, Any]:
    answer: dict[str, Any] = json.loads(
        json.dumps(validate(PLUGINS, WITH_PROVIDERS, {"name": "c", **settings}).answer())
    )
    return {each["value"]["name"]: each["value"] for each in answer["configs"]}


def test_validation_checks_the_resolved_value_of_a_reference_and_returns_the_reference(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TASKS", "2")
    monkeypatch.setenv("FILE", SECRET)
    sink = {
        "connector.class": "FileStreamSink",
        "topics": "t",
        "file": "/data/${env:FILE}",
        "tasks.max": "${env:TASKS}",
    }
    found = _answer({**sink, "consumer.override.client.id": "${env:FILE}"})
    assert all(not each["errors"] for each in found.values())
    assert found["tasks.max"]["value"] == "${env:TASKS}"
    assert found["file"]["value"] == "/data/${env:FILE}"
    assert found["consumer.override.client.id"]["value"] == "${env:FILE}"
    assert SECRET not in json.dumps(found)


def test_an_invalid_resolved_value_is_an_error_of_its_key_that_does_not_show_the_value(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TASKS", SECRET)
    secrets = tmp_path / "db.properties"
    secrets.write_text(f"url=jdbc:postgresql://localhost:{SECRET}/d\nbatch={SECRET}\n")
    url, batch = f"${{file:{secrets}:url}}", f"${{file:{secrets}:batch}}"
    settings = {
        "connector.class": "JdbcSource", **RIGHT["JdbcSource"],
        "connection.url": url, "tasks.max": "${env:TASKS}", "batch.max.rows": batch, "mode": "${env:TASKS}",
        "transforms": "a", "transforms.a.type": batch, "key.converter": batch,
    }  # fmt: skip
    found = _answer(settings)
    assert found["tasks.max"]["errors"] == [
        "Invalid value ${env:TASKS} for configuration tasks.max: Not a number of type INT"
    ]
    for key in ("batch.max.rows", "mode", "transforms.a.type", "key.converter"):
        assert found[key]["errors"][0].startswith(f"Invalid value {settings[key]} for configuration {key}: "), key
    assert "hunter2" not in json.dumps(found)
    # A part of the value, in a check between keys.
    found = _answer({"connector.class": "JdbcSource", **RIGHT["JdbcSource"], "connection.url": url})
    assert found["connection.url"]["errors"] == [
        f"Invalid value {url} for configuration connection.url: what it refers to is not valid"
    ]


@pytest.mark.parametrize("reference", ["${env:NOT_THERE}", "${file:/nowhere/x:key}", "${vault:path:key}"])
def test_a_reference_that_cannot_be_resolved_is_validated_as_literal_text(
    reference: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NOT_THERE", raising=False)
    found = _answer({"connector.class": "FileStreamSink", "topics": "t", "file": reference})
    assert (found["file"]["value"], found["file"]["errors"]) == (reference, [])
    found = _answer({"connector.class": "FileStreamSink", "topics": "t", "tasks.max": reference})
    assert found["tasks.max"]["errors"] == [
        f"Invalid value {reference} for configuration tasks.max: Not a number of type INT"
    ]


def test_the_resolved_value_of_a_reference_is_not_used_in_key_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALIAS", SECRET)
    found = _answer({"connector.class": "FileStreamSink", "topics": "t", "transforms": "${env:ALIAS}"})
    assert "transforms.${env:ALIAS}.type" in found
    assert SECRET not in json.dumps(found)
