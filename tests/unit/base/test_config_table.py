"""The tables of configuration keys, and the checks of values with them."""

from __future__ import annotations

import pytest

from pessoa.base.config_keys.broker_keys import (
    BROKER_CONFIGS,
    base_name,
    find,
    synonyms,
    validate_broker_configs,
)
from pessoa.base.config_keys.client_metrics_keys import CLIENT_METRICS_CONFIGS, validate_client_metrics_configs
from pessoa.base.config_keys.group_keys import GROUP_CONFIGS, group_value, validate_group_configs
from pessoa.base.config_table import (
    INT,
    PASSWORD,
    ConfigTable,
    key,
)
from pessoa.base.config_values import ConfigProblem, ConfigType, Value, at_least, render
from pessoa.log.topic_config import TOPIC_CONFIGS

TABLES = [TOPIC_CONFIGS, BROKER_CONFIGS, GROUP_CONFIGS, CLIENT_METRICS_CONFIGS]
PYTHON_TYPES = {
    ConfigType.BOOLEAN: bool,
    ConfigType.INT: int,
    ConfigType.SHORT: int,
    ConfigType.LONG: int,
    ConfigType.DOUBLE: float,
    ConfigType.LIST: tuple,
    ConfigType.STRING: str,
    ConfigType.CLASS: str,
    ConfigType.PASSWORD: str,
}


@pytest.mark.parametrize("table", TABLES, ids=repr)
def test_defaults_are_of_their_type_and_survive_being_written_and_read(table: ConfigTable) -> None:
    for one in table:
        if one.default is None:
            continue
        assert type(one.default) is PYTHON_TYPES[one.type], one.name
        text = render(one.default)
        assert text is not None
        assert one.parse(text) == one.default, one.name


@pytest.mark.parametrize("table", TABLES, ids=repr)
def test_every_key_is_explained_in_a_sentence(table: ConfigTable) -> None:
    assert [one.name for one in table if not (one.doc.endswith(".") and one.doc[0].isupper())] == []


def test_a_key_that_is_declared_twice_in_a_table_is_an_error() -> None:
    with pytest.raises(AssertionError):
        ConfigTable("test", [key("a", INT, 1)], [key("a", INT, 2)])


def test_a_table_names_the_first_wrong_setting() -> None:
    table = ConfigTable("test", [key("a", INT, 1, at_least(1)), key("b", INT, 1, at_least(1))])
    assert table.problem({"a": "2", "b": "3"}) is None
    assert str(table.problem({"a": "2", "b": "0"})) == "b=0: it must be at least 1"
    assert str(table.problem({"c": "0"})) == "c=0: there is no such test configuration"
    missing = table.problem({"a": None})
    assert missing is not None
    assert missing.is_invalid_request


def test_only_passwords_are_secrets() -> None:
    assert [one.name for one in BROKER_CONFIGS if one.is_sensitive] == [
        one.name for one in BROKER_CONFIGS if one.type is PASSWORD
    ]
    assert BROKER_CONFIGS["ssl.key.password"].is_sensitive


# ---- Names of a broker's keys ----


@pytest.mark.parametrize(
    ("name", "base"),
    [
        ("max.connections", "max.connections"),
        ("listener.name.internal.max.connections", "max.connections"),
        ("listener.name.sasl_ssl.scram-sha-256.sasl.jaas.config", "sasl.jaas.config"),
        ("listener.name.x", "listener.name.x"),
        ("listener.name.x.my.own.key", "my.own.key"),
    ],
)
def test_base_name_removes_the_listener_prefix_of_a_key(name: str, base: str) -> None:
    assert base_name(name) == base


def test_synonyms_go_from_the_finest_unit_to_the_coarsest() -> None:
    everything = ("log.retention.ms", "log.retention.minutes", "log.retention.hours")
    assert [synonyms(name) for name in everything] == [everything] * 3
    assert synonyms("log.flush.interval.ms") == ("log.flush.interval.ms", "log.flush.scheduler.interval.ms")
    assert synonyms("log.flush.scheduler.interval.ms") == ("log.flush.scheduler.interval.ms",)
    assert synonyms("listener.name.a.max.connections") == ("listener.name.a.max.connections", "max.connections")
    assert synonyms("num.partitions") == ("num.partitions",)


def test_a_key_with_a_listener_prefix_is_found() -> None:
    assert find("listener.name.a.max.connections") is BROKER_CONFIGS["max.connections"]
    assert find("my.own.key") is None


# ---- What may change while a broker runs ----


@pytest.mark.parametrize(
    ("name", "text", "is_default"),
    [
        ("log.retention.ms", "5", False),
        ("log.retention.ms", "5", True),
        ("my.own.key", "x", True),
        ("listener.name.internal.ssl.key.password", "secret", False),
        ("listener.name.internal.max.connections", "7", True),
        ("leader.replication.throttled.rate", "1000", True),
        ("listener.security.protocol.map", "A:PLAINTEXT", False),
    ],
)
def test_a_dynamic_key_can_be_set(name: str, text: str, is_default: bool) -> None:
    assert validate_broker_configs({name: text}, is_default=is_default) is None


@pytest.mark.parametrize(
    ("name", "text", "is_default", "why"),
    [
        ("node.id", "2", False, "cannot change while"),
        ("log.retention.hours", "2", True, "cannot change while"),
        ("ssl.key.password", "x", False, "listener.name.<listener>.ssl.key.password"),
        ("sasl.jaas.config", "x", True, "one broker only"),
        ("listener.name.internal.ssl.key.password", "x", True, "one broker only"),
        ("log.retention.ms", "x", False, "a whole number"),
        ("listener.name.internal.max.connections", "-1", False, "at least 0"),
    ],
)
def test_any_other_change_of_a_broker_is_an_invalid_request(name: str, text: str, is_default: bool, why: str) -> None:
    problem = validate_broker_configs({name: text}, is_default=is_default)
    assert problem is not None
    assert problem.is_invalid_request
    assert problem.key == name
    assert why in str(problem)


def test_a_setting_without_a_value_is_an_invalid_request() -> None:
    problem = validate_broker_configs({"log.retention.ms": None})
    assert problem is not None
    assert problem.is_invalid_request


# ---- Groups ----


class Bounds:
    """The broker's defaults, with other values for some keys."""

    def __init__(self, **values: int) -> None:
        self._values: dict[str, Value] = {name.replace("_", "."): value for name, value in values.items()}

    def value(self, name: str) -> Value:
        return self._values.get(name, BROKER_CONFIGS[name].default)


def test_group_configs_must_be_within_the_bounds_of_the_broker() -> None:
    assert validate_group_configs({"consumer.session.timeout.ms": "46000"}) is None
    below = validate_group_configs({"consumer.session.timeout.ms": "1"})
    assert str(below) == (
        "consumer.session.timeout.ms=1: it must be at least group.consumer.min.session.timeout.ms, which is 45000"
    )
    assert validate_group_configs({"streams.num.standby.replicas": "3"}) is not None
    wide = Bounds(group_streams_max_standby_replicas=3)
    assert validate_group_configs({"streams.num.standby.replicas": "3"}, wide) is None


def test_the_session_timeout_of_a_group_must_exceed_its_heartbeat_interval() -> None:
    wide = Bounds(group_consumer_max_heartbeat_interval_ms=100_000)
    problem = validate_group_configs({"consumer.heartbeat.interval.ms": "45000"}, wide)
    assert problem is not None
    assert problem.key == "consumer.session.timeout.ms"
    both = {"consumer.heartbeat.interval.ms": "45000", "consumer.session.timeout.ms": "45001"}
    assert validate_group_configs(both, wide) is None


def test_a_group_takes_its_defaults_from_the_broker() -> None:
    broker = Bounds(group_consumer_session_timeout_ms=50_000)
    assert group_value("consumer.session.timeout.ms", {}, broker) == 50_000
    assert group_value("consumer.session.timeout.ms", {"consumer.session.timeout.ms": "47000"}, broker) == 47_000
    assert group_value("share.auto.offset.reset", {}, broker) == "latest"


@pytest.mark.parametrize("text", ["earliest", "latest", "by_duration:PT1H", "by_duration:P7DT1M", "by_duration:PT0.5S"])
def test_share_auto_offset_reset_is_earliest_latest_or_a_duration(text: str) -> None:
    assert validate_group_configs({"share.auto.offset.reset": text}) is None


@pytest.mark.parametrize("text", ["", "first", "by_duration:", "by_duration:P", "by_duration:PT", "by_duration:-PT1H"])
def test_other_values_of_share_auto_offset_reset_are_refused(text: str) -> None:
    assert validate_group_configs({"share.auto.offset.reset": text}) is not None


# ---- Client metrics ----


@pytest.mark.parametrize(
    ("name", "text", "is_invalid_request"),
    [
        ("interval.ms", "99", True),
        ("interval.ms", "3600001", True),
        ("interval.ms", "x", False),
        ("nope", "1", True),
        ("match", "client_id", False),
        ("match", "colour=red", False),
        ("match", "client_id=[", False),
        ("match", "client_id=", False),
        ("match", "client_id=a=b", False),
        ("match", "client_id=(?=a)", False),
    ],
)
def test_an_invalid_client_metrics_subscription_is_refused_as_by_apache_kafka(
    name: str, text: str, is_invalid_request: bool
) -> None:
    problem = validate_client_metrics_configs({name: text})
    assert problem is not None
    assert problem.is_invalid_request == is_invalid_request


def test_a_valid_client_metrics_subscription_is_accepted() -> None:
    configs = {
        "interval.ms": "100",
        "metrics": "org.apache.kafka.producer.,*",
        "match": "client_id=a.*,client_source_port = 9=",
    }
    assert validate_client_metrics_configs(configs) is None


def test_a_config_problem_is_a_value_error() -> None:
    assert issubclass(ConfigProblem, ValueError)
