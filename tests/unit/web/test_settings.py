"""Tables of settings, and the settings that all services have."""

from __future__ import annotations

import logging
from dataclasses import dataclass

import pytest

from pessoa.base.config_values import ConfigProblem, at_least
from pessoa.connect.worker_config import WorkerConfig
from pessoa.connect.worker_config import make_config as connect_config
from pessoa.rest_proxy.proxy_config import Config as RestConfig
from pessoa.schema_registry.registry_config import Config as RegistryConfig
from pessoa.web.http_settings import HttpSettings, Listener, parse_listeners, read_http_settings
from pessoa.web.serving import Tls
from pessoa.web.settings import default_texts, log_unknown, read_settings, rows, setting, settings_below

HERE = Listener("http", "127.0.0.1", 80)


@dataclass(frozen=True, slots=True)
class Table:
    count: int = setting("count", 3, "A number.", rule=at_least(1))
    is_on: bool = setting("on", True, "A flag.", also="enabled")
    name: str | None = setting("name", None, "A text that need not be there.")
    words: tuple[str, ...] = setting("words", ("a",), "A list.")
    computed: str = "as it is"


def test_given_settings_are_read_and_others_have_their_default() -> None:
    assert read_settings(Table(), {}) == Table()
    found = read_settings(Table(), {"count": " 7 ", "enabled": "FALSE", "name": "n", "words": "b, c", "other": "x"})
    assert found == Table(7, False, "n", ("b", "c"))


def test_settings_below_a_prefix_have_its_keys_without_it() -> None:
    given = {"producer.acks": "1", "producer.override.acks": "all", "producers": "2", "acks": "0"}
    assert settings_below(given, "producer.") == {"acks": "1", "override.acks": "all"}
    assert settings_below(given, "producer.override.") == {"acks": "all"}


def test_the_newer_name_of_a_key_is_preferred_and_an_empty_value_counts_as_unset() -> None:
    assert read_settings(Table(), {"enabled": "false", "on": "true", "name": ""}) == Table()


@pytest.mark.parametrize(("key", "text"), [("count", "many"), ("count", "0"), ("enabled", "maybe")])
def test_a_wrong_value_is_named_with_its_key(key: str, text: str) -> None:
    with pytest.raises(ConfigProblem, match=f"{key}={text}: it must be"):
        read_settings(Table(), {key: text})


def test_default_settings_can_be_rendered() -> None:
    assert default_texts(Table) == {"count": "3", "on": "true", "words": "a"}
    assert read_settings(Table(), default_texts(Table)) == Table()


def test_unknown_keys_are_named_and_those_of_pessoa_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    log = logging.getLogger("pessoa.test")
    with caplog.at_level(logging.INFO, "pessoa.test"):
        log_unknown(log, {"count": "1", "pessoa.cuont": "1", "debug": "true", "kafka.x": "y"}, [Table], ("kafka.",))
    assert [(each.levelname, each.getMessage()) for each in caplog.records] == [
        ("INFO", "these settings change nothing here: debug"),
        ("WARNING", "there are no such settings: pessoa.cuont"),
    ]


@pytest.mark.parametrize("table", [HttpSettings, RegistryConfig, RestConfig, WorkerConfig])
def test_every_setting_of_a_service_is_documented_and_declared_once(table: type[HttpSettings]) -> None:
    names = [name for row in rows(table).values() for name in row.names]
    assert len(names) == len(set(names)) > 5
    assert [row.names for row in rows(table).values() if not row.doc.endswith((".", "…"))] == []


def test_a_listener_may_leave_out_its_host_and_where_there_is_a_default_its_port() -> None:
    assert parse_listeners("http://:1, https://b:2,") == [Listener("http", "0.0.0.0", 1), Listener("https", "b", 2)]
    assert parse_listeners("http://[::1]:1") == [Listener("http", "::1", 1)]
    assert parse_listeners("http://a", default_port=8083) == [Listener("http", "a", 8083)]


@pytest.mark.parametrize("text", ["a:1", "ftp://a:1", "http://a", "http://a:x", "http://a:70000"])
def test_the_error_for_an_invalid_listener_shows_it(text: str) -> None:
    with pytest.raises(ConfigProblem, match=f"listeners={text}: it must be http://host:port or https://host:port"):
        parse_listeners(text)


def test_connect_listens_by_http_or_https_and_knows_the_older_keys() -> None:
    assert connect_config({}).http.listener == Listener("http", "0.0.0.0", 8083)
    assert connect_config({"listeners": "HTTP://Host"}).http.listener == Listener("http", "host", 8083)
    assert connect_config({"rest.host.name": "h", "rest.port": "1"}).http.listener == Listener("http", "h", 1)
    of_https = {
        "listeners": "https://h:1",
        "listeners.https.ssl.keystore.location": "k",
        "ssl.keystore.location": "of clients",
    }
    assert connect_config(of_https).http.certificate == "k"
    with pytest.raises(ConfigProblem, match=r"ssl.keystore.location: an https listener needs it"):
        connect_config({"listeners": "https://h:1"})
    with pytest.raises(ConfigProblem, match=r"status\.storage\.partitions=0"):
        connect_config({"status.storage.partitions": "0"})


def test_a_service_listens_at_its_configured_address() -> None:
    assert read_http_settings({}, HERE).listener == HERE
    assert read_http_settings({"port": "81"}, HERE).listener == Listener("http", "127.0.0.1", 81)
    assert read_http_settings({"port": "81", "listeners": "http://b:0"}, HERE).listener == Listener("http", "b", 0)


def test_https_needs_a_certificate_and_certificates_of_callers_an_authority() -> None:
    https = {"listeners": "https://a:1"}
    with pytest.raises(ConfigProblem, match=r"ssl\.keystore\.location: an https listener needs it"):
        read_http_settings(https, HERE)
    for demand in ({"ssl.client.authentication": "required"}, {"ssl.client.auth": "true"}):
        with pytest.raises(ConfigProblem, match=r"ssl\.truststore\.location"):
            read_http_settings({**https, "ssl.keystore.location": "own.pem", **demand}, HERE)
        stores = {"ssl.keystore.location": "own.pem", "ssl.truststore.location": "ca.pem", "ssl.key.password": "p"}
        tls = read_http_settings({**https, **stores, **demand}, HERE).tls
        assert tls == Tls("own.pem", "own.pem", "p", "ca.pem")
    assert read_http_settings({"ssl.keystore.location": "own.pem"}, HERE).tls is None
