"""The broker's configuration: files, command lines, precedence, and changes while it runs."""

from __future__ import annotations

import logging
import typing
from collections.abc import Mapping
from pathlib import Path
from types import UnionType

import pytest

from pessoa.base.config_keys.broker_keys import BROKER_CONFIGS
from pessoa.base.config_values import ConfigProblem, ConfigType
from pessoa.broker.config import _DERIVED_ATTRIBUTES, BrokerConfig, load, parse_settings, single_node_properties
from pessoa.broker.config_listeners import ListenerEndpoint, SecurityProtocol

HOME = Path("/home")

# What Kafka's own quick start has its single node read.
QUICK_START = """
process.roles=broker,controller
node.id=7
controller.quorum.bootstrap.servers=localhost:9093
listeners=PLAINTEXT://:9092,CONTROLLER://:9093
inter.broker.listener.name=PLAINTEXT
advertised.listeners=PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL
log.dirs=/data/a, /data/b
num.partitions = 3
"""

PYTHON_TYPES: dict[ConfigType, object] = {
    ConfigType.BOOLEAN: bool,
    ConfigType.INT: int,
    ConfigType.SHORT: int,
    ConfigType.LONG: int,
    ConfigType.DOUBLE: float,
    ConfigType.LIST: tuple[str, ...],
    ConfigType.STRING: str,
    ConfigType.CLASS: str,
    ConfigType.PASSWORD: str,
}


def single(**settings: str) -> BrokerConfig:
    return load(None, {name.replace("_", "."): text for name, text in settings.items()}, HOME)


def test_every_declared_attribute_has_the_type_of_its_key() -> None:
    declared = typing.get_type_hints(BrokerConfig)
    for attribute, annotation in declared.items():
        if attribute in _DERIVED_ATTRIBUTES:
            continue
        key = BROKER_CONFIGS[attribute.replace("_", ".")]
        expected = PYTHON_TYPES[key.type]
        if isinstance(annotation, UnionType):
            assert set(typing.get_args(annotation)) == {expected, type(None)}, attribute
            assert key.default is None
        else:
            assert annotation == expected, attribute
            assert key.default is not None or key.is_required, f"{attribute} may be None"


# ---- From a file ----


def test_a_file_is_read_as_kafka_reads_it() -> None:
    config = load(QUICK_START, {}, HOME)
    assert (config.node_id, config.num_partitions, config.log_dirs) == (7, 3, ("/data/a", "/data/b"))
    assert config.metadata_log_dir == "/data/a"
    assert config.value("broker.id") == 7
    assert config.is_broker
    assert config.is_controller
    assert config.listeners == (
        ListenerEndpoint("PLAINTEXT", "", 9092, SecurityProtocol.PLAINTEXT),
        ListenerEndpoint("CONTROLLER", "", 9093, SecurityProtocol.PLAINTEXT),
    )
    assert [str(one) for one in config.advertised_listeners] == [
        "PLAINTEXT://localhost:9092",
        "CONTROLLER://localhost:9093",
    ]
    assert config.offsets_topic_replication_factor == 3


def test_the_command_line_wins_over_the_file() -> None:
    assert load(QUICK_START, {"num.partitions": "5"}, HOME).num_partitions == 5


def test_an_unknown_key_gives_one_warning_with_a_suggestion(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        # The last is in no table of Kafka's, but the authorizer's own.
        known = "allow.everyone.if.no.acl.found=true\n"
        config = load(QUICK_START + "num.partition=4\nmy.own.key=5\n" + known, {}, HOME)
    assert config.unknown_keys == ["num.partition", "my.own.key"]
    first, second = (record.getMessage() for record in caplog.records)
    assert "num.partition " in first
    assert "is num.partitions meant?" in first
    assert "my.own.key " in second
    assert "meant" not in second


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("num.partitions=0", "num.partitions=0: it must be at least 1"),
        ("log.retention.ms=week", "log.retention.ms=week: it must be a whole number of 64 bits"),
        ("listener.name.plaintext.max.connections=x", "max.connections=x: it must be a whole number of 32 bits"),
        ("broker.id=8", "broker.id=8: it is the old name of node.id, which is 7"),
        ("listeners=PLAINTEXT://:9092", "controller.listener.names=CONTROLLER: a controller listens there"),
        ("listeners=PLAINTEXT://:9092,CONTROLLER://:9092", "two listeners have the same address"),
        ("listeners=PLAINTEXT://:9092,PLAINTEXT://:9094", "the listener PLAINTEXT is there twice"),
        ("listeners=localhost:9092", "listeners=localhost:9092: it must be NAME://host:port"),
        ("listeners=A://h:" + "1" * 5_000, "it must be NAME://host:port"),
        ("listeners=PLAINTEXT://:70000", "with a port of at most 65535"),
        ("listeners=MINE://:9092,CONTROLLER://:9093", "does not say what the listener MINE speaks"),
        ("listener.security.protocol.map=PLAINTEXT:TLS", "it must be a list of NAME:PROTOCOL"),
        ("listener.security.protocol.map=A:SSL,a:SSL", "the listener a is there twice"),
        ("max.connections.per.ip.overrides=localhost", "it must be a list of host:count"),
        ("max.connections.per.ip=0", "only max.connections.per.ip.overrides lets anybody in"),
        ("log.roll.ms=0", "log.roll.ms=0: it must be at least 1"),
        ("log.roll.jitter.ms=-1", "log.roll.jitter.ms=-1: it must be at least 0"),
        ("log.retention.minutes=0", "log.retention.ms=0: it must be at least 1, or -1"),
        ("advertised.listeners=PLAINTEXT://0.0.0.0:9092", "clients need an address that they can reach"),
        ("advertised.listeners=SSL://a:1", "brokers reach each other through PLAINTEXT"),
        ("inter.broker.listener.name=CONTROLLER", "brokers reach each other through another listener"),
        ("security.inter.broker.protocol=SSL", "inter.broker.listener.name is set"),
        ("process.roles=broker", "only a controller has the controller's listener"),
        ("process.roles=controller", "a node that is no broker listens for controllers alone"),
        ("controller.quorum.bootstrap.servers=", "must name the controllers"),
        ("controller.quorum.voters=1@a:1", "this controller, 7, is not among them"),
        ("controller.quorum.voters=7", "it must be a list of id@host:port"),
        ("broker.session.timeout.ms=3000", "broker.heartbeat.interval.ms=2000: it must not be more than half of"),
        ("group.coordinator.rebalance.protocols=consumer", "classic groups cannot be switched off"),
        ("replica.lag.time.max.ms=100", "replica.fetch.wait.max.ms=500: it must not be more than replica.lag"),
        (
            "group.consumer.session.timeout.ms=100000",
            "it must not be more than group.consumer.max.session.timeout.ms, which is 60000",
        ),
    ],
)
def test_a_wrong_value_stops_with_the_key_the_value_and_what_is_allowed(line: str, sentence: str) -> None:
    with pytest.raises(ConfigProblem) as problem:
        load(QUICK_START + line, {}, HOME)
    assert sentence in str(problem.value)


@pytest.mark.parametrize("missing", ["process.roles", "node.id", "controller.listener.names"])
def test_a_missing_required_key_is_named_in_the_error(missing: str) -> None:
    lines = [line for line in QUICK_START.splitlines() if not line.startswith(missing)]
    with pytest.raises(ConfigProblem, match=f"{missing}: it must be set"):
        load("\n".join(lines), {}, HOME)


def test_a_file_that_is_no_properties_file_is_named() -> None:
    with pytest.raises(ConfigProblem, match=r"^a\.properties: "):
        load("a=\\u12", {}, HOME, file_name="a.properties")


def test_an_ipv6_address_stands_in_brackets() -> None:
    config = load(QUICK_START, {"listeners": "PLAINTEXT://[::1]:9092,CONTROLLER://:9093"}, HOME)
    assert config.listeners[0].host == "::1"
    assert str(config.listeners[0]) == "PLAINTEXT://[::1]:9092"


def test_listeners_without_a_host_are_advertised_under_the_name_of_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("socket.gethostname", lambda: "machine")
    text = "\n".join(line for line in QUICK_START.splitlines() if not line.startswith("advertised"))
    assert load(text, {}, HOME).advertised_listeners[0].host == "machine"


# ---- Without a file ----


def test_without_a_properties_file_a_broker_is_a_single_node_cluster() -> None:
    config = load(None, {}, HOME)
    assert config.node_id == 1
    assert config.process_roles == ("broker", "controller")
    assert [str(one) for one in config.listeners] == ["PLAINTEXT://127.0.0.1:9092", "CONTROLLER://127.0.0.1:9093"]
    assert config.log_dirs == (str(HOME / "broker-1"),)
    assert config.controller_quorum_voters == ("1@127.0.0.1:9093",)
    assert config.offsets_topic_replication_factor == 1
    assert config.transaction_state_log_replication_factor == 1
    assert config.transaction_state_log_min_isr == 1


def test_a_single_node_keeps_explicit_settings() -> None:
    config = single(node_id="4", listeners="PLAINTEXT://127.0.0.1:0", offsets_topic_replication_factor="2")
    assert config.log_dirs == (str(HOME / "broker-4"),)
    assert [str(one) for one in config.listeners] == ["PLAINTEXT://127.0.0.1:0", "CONTROLLER://127.0.0.1:0"]
    assert config.offsets_topic_replication_factor == 2
    assert config.controller_quorum_voters == ("4@127.0.0.1:0",)


def test_the_default_quorum_voter_is_the_address_of_the_controller_listener() -> None:
    config = single(listeners="PLAINTEXT://127.0.0.1:1,CONTROLLER://127.0.0.1:2")
    assert config.controller_quorum_voters == ("1@127.0.0.1:2",)


def test_internal_topics_keep_three_replicas_where_there_are_other_voters() -> None:
    properties = single_node_properties({"controller.quorum.voters": "1@a:1,2@b:1,3@c:1"}, HOME)
    assert "offsets.topic.replication.factor" not in properties


def test_settings_are_key_and_value() -> None:
    assert parse_settings(["a.b = 1", "c=x=y", "a.b=2"]) == {"a.b": "2", "c": "x=y"}
    with pytest.raises(ConfigProblem, match="a setting is written key=value"):
        parse_settings(["num.partitions"])


# ---- While it runs ----


def test_this_broker_wins_over_all_brokers_and_both_over_the_file() -> None:
    config = single(log_cleaner_threads="2", message_max_bytes="1000", max_connections="5")
    changed = config.with_overrides(
        {"log.cleaner.threads": "3", "message.max.bytes": "2000"}, {"log.cleaner.threads": "4"}
    )
    assert (changed.value("log.cleaner.threads"), changed.message_max_bytes, changed.max_connections) == (4, 2000, 5)
    assert (config.value("log.cleaner.threads"), config.message_max_bytes) == (2, 1000)
    assert changed.with_overrides({}, {}).value("log.cleaner.threads") == 2


@pytest.mark.parametrize(
    ("for_all", "for_one"),
    [
        ({"log.cleaner.threads": "x"}, {}),
        ({"node.id": "9"}, {}),
        ({}, {"log.cleaner.threads": "-1"}),
        ({"listeners": "PLAINTEXT://:1"}, {}),
    ],
)
def test_a_dynamic_setting_that_is_invalid_or_static_is_ignored_with_a_warning(
    for_all: Mapping[str, str], for_one: Mapping[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    config = single()
    with caplog.at_level(logging.WARNING):
        changed = config.with_overrides({"message.max.bytes": "2000", **for_all}, for_one)
    assert changed.message_max_bytes == 2000
    assert (changed.node_id, changed.value("log.cleaner.threads"), changed.listeners) == (1, 1, config.listeners)
    assert len(caplog.records) == 1


def test_dynamic_settings_that_contradict_each_other_are_ignored(caplog: pytest.LogCaptureFixture) -> None:
    config = single()
    with caplog.at_level(logging.WARNING):
        changed = config.with_overrides({"group.consumer.assignment.interval.ms": "20000"}, {})
    assert changed is config
    assert "contradict" in caplog.text


def test_settings_of_plug_ins_are_kept() -> None:
    assert single().with_overrides({"my.key": "1"}, {}).cluster_defaults == {"my.key": "1"}


def test_repr_of_a_broker_config_shows_node_listeners_and_log_directory() -> None:
    assert repr(single()) == (
        "<BrokerConfig of node 1: PLAINTEXT://127.0.0.1:9092, CONTROLLER://127.0.0.1:9093 in /home/broker-1>"
    )
