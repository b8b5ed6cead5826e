"""Settings: the JVM registry's file, and the errors for invalid values."""

from __future__ import annotations

import pytest

from pessoa.base.config_values import ConfigProblem
from pessoa.base.properties import parse_properties
from pessoa.schema_registry.compatibility.levels import Level
from pessoa.schema_registry.registry_config import make_config
from pessoa.web.http_settings import Listener

FILE = """
# as it comes with the JVM registry
listeners=http://127.0.0.1:9081
kafkastore.bootstrap.servers = PLAINTEXT://a:1,\\
b:2
kafkastore.topic=_mine
kafkastore.security.protocol=SASL_SSL
debug=false
schema.compatibility.level: full
leader.eligibility=false
"""


def test_a_file_of_the_jvm_registry_is_read() -> None:
    config = make_config(parse_properties(FILE))
    assert config.http.listener == Listener("http", "127.0.0.1", 9081)
    assert config.bootstrap_servers == "PLAINTEXT://a:1,b:2"
    assert config.client_settings == {"security.protocol": "SASL_SSL"}
    assert (config.topic, config.default_level, config.is_eligible) == ("_mine", Level.FULL, False)


def test_the_defaults_are_those_of_the_jvm_registry() -> None:
    config = make_config({})
    assert (config.topic, config.http.listener.port, config.group_id) == ("_schemas", 8081, "schema-registry")
    assert (config.default_level, config.replication_factor) == (Level.BACKWARD, 3)


@pytest.mark.parametrize(
    ("properties", "names"),
    [
        ({"listeners": "8081"}, "listeners"),
        ({"listeners": "http://host"}, "port"),
        ({"listeners": "http://host:99999"}, "port"),
        ({"listeners": "https://host:1"}, "ssl.keystore.location"),
        ({"kafkastore.timeout.ms": "soon"}, "kafkastore.timeout.ms"),
        ({"mode.mutability": "maybe"}, "mode.mutability"),
        ({"schema.compatibility.level": "sideways"}, "schema.compatibility.level"),
        ({"authentication.method": "BASIC"}, "pessoa.authentication.users.file"),
        ({"authentication.method": "BEARER"}, "authentication.method"),
    ],
)
def test_a_setting_that_cannot_be_used_is_named(properties: dict[str, str], names: str) -> None:
    with pytest.raises(ConfigProblem, match=names):
        make_config(properties)
