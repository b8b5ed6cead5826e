"""DescribeConfigs, and the controller's rules for changes of a configuration."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pessoa.base.ids import Uuid
from pessoa.base.log_levels import logger_levels, problem, set_level
from pessoa.broker.apis.describe_configs import handle
from pessoa.broker.config import BrokerConfig, load
from pessoa.broker.config_entries import ConfigSource, topic_entries
from pessoa.broker.config_rules import ConfigRules
from pessoa.metadata.image import ConfigResource, MetadataImage
from pessoa.wire.api.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from pessoa.wire.errors import ErrorCode
from pessoa.wire.request_context import RequestContext
from pessoa.wire.stored.metadata_records import ConfigRecord, TopicRecord

BROKER, TOPIC, GROUP = ConfigResource.BROKER, ConfigResource.TOPIC, ConfigResource.GROUP
LOGGER, CLIENT_METRICS = ConfigResource.BROKER_LOGGER, ConfigResource.CLIENT_METRICS


def config(**settings: str) -> BrokerConfig:
    return load(None, {name.replace("_", "."): text for name, text in settings.items()}, Path("/home"))


def image(*configs: tuple[ConfigResource, str, str, str]) -> MetadataImage:
    records: list[Any] = [TopicRecord(name="t", topic_id=Uuid(bytes(range(16))))]
    for kind, resource, name, value in configs:
        records.append(ConfigRecord(resource_type=kind, resource_name=resource, name=name, value=value))
    return MetadataImage.EMPTY.apply(records, offset=1, epoch=1)


def describe(
    *resources: tuple[int, str, list[str] | None],
    broker: BrokerConfig | None = None,
    cluster: MetadataImage | None = None,
    include_documentation: bool = True,
    include_synonyms: bool = True,
) -> list[DescribeConfigsResult]:
    services: Any = SimpleNamespace(node_id=1, config=broker or config(), image=cluster or image(), authorizer=None)
    request = DescribeConfigsRequest(
        resources=[
            DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=keys)
            for kind, name, keys in resources
        ],
        include_synonyms=include_synonyms,
        include_documentation=include_documentation,
    )
    response = handle(services, RequestContext(32, 4, 1, "c", "h", 1), request)
    assert isinstance(response, DescribeConfigsResponse)
    return response.results


def one(kind: ConfigResource, resource: str, name: str, **options: Any) -> DescribeConfigsResourceResult:
    [result] = describe((kind, resource, [name]), **options)
    [entry] = result.configs
    return entry


def synonyms(entry: DescribeConfigsResourceResult) -> list[tuple[str, str | None, int]]:
    return [(each.name, each.value, each.source) for each in entry.synonyms]


# ---- Sources and synonyms ----


def test_the_synonyms_of_a_topic_go_down_from_its_own_setting_to_the_default() -> None:
    broker = config(log_retention_ms="9").with_overrides({"log.retention.ms": "5000"}, {"log.retention.ms": "6000"})
    entry = one(TOPIC, "t", "retention.ms", broker=broker, cluster=image((TOPIC, "t", "retention.ms", " +7 ")))
    assert (entry.value, entry.config_source) == ("7", ConfigSource.TOPIC)
    assert synonyms(entry) == [
        ("retention.ms", "7", ConfigSource.TOPIC),
        ("log.retention.ms", "6000", ConfigSource.BROKER),
        ("log.retention.ms", "5000", ConfigSource.ALL_BROKERS),
        ("log.retention.ms", "9", ConfigSource.STATIC),
        ("log.retention.hours", "168", ConfigSource.DEFAULT),
    ]


def test_a_retention_that_is_set_in_hours_only_is_described_as_a_default_without_synonyms() -> None:
    entry = one(TOPIC, "t", "retention.ms", broker=config(log_retention_hours="24"))
    assert (entry.value, entry.config_source, synonyms(entry)) == ("86400000", ConfigSource.DEFAULT, [])


def test_a_static_setting_is_listed_among_the_synonyms_with_its_original_text() -> None:
    entry = one(BROKER, "1", "log.preallocate", broker=config(log_preallocate="TRUE"))
    assert (entry.value, entry.read_only) == ("true", False)
    assert synonyms(entry) == [
        ("log.preallocate", "TRUE", ConfigSource.STATIC),
        ("log.preallocate", "false", ConfigSource.DEFAULT),
    ]


def test_a_group_takes_from_the_broker_what_it_does_not_set() -> None:
    broker = config(group_consumer_session_timeout_ms="50000")
    entry = one(GROUP, "g", "consumer.session.timeout.ms", broker=broker)
    assert (entry.value, entry.config_source) == ("50000", ConfigSource.STATIC)
    own = one(GROUP, "g", "share.auto.offset.reset", cluster=image((GROUP, "g", "share.auto.offset.reset", "earliest")))
    assert synonyms(own) == [
        ("share.auto.offset.reset", "earliest", ConfigSource.GROUP),
        ("share.auto.offset.reset", "latest", ConfigSource.DEFAULT),
    ]


def test_a_subscription_of_client_metrics_has_no_synonyms_but_its_own_setting() -> None:
    entry = one(CLIENT_METRICS, "s", "interval.ms", cluster=image((CLIENT_METRICS, "s", "interval.ms", "100")))
    assert synonyms(entry) == [("interval.ms", "100", ConfigSource.CLIENT_METRICS)]
    assert synonyms(one(CLIENT_METRICS, "other", "interval.ms")) == []


def test_the_cluster_wide_broker_resource_describes_only_cluster_wide_settings() -> None:
    broker = config(message_max_bytes="1").with_overrides({"message.max.bytes": "2"}, {"message.max.bytes": "3"})
    [result] = describe((BROKER, "", None), broker=broker)
    assert [(entry.name, entry.value, synonyms(entry)) for entry in result.configs] == [
        ("message.max.bytes", "2", [("message.max.bytes", "2", ConfigSource.ALL_BROKERS)])
    ]


def test_synonyms_and_documentation_come_only_if_asked_for() -> None:
    entry = one(TOPIC, "t", "max.message.bytes", include_documentation=False, include_synonyms=False)
    assert (entry.documentation, entry.synonyms) == (None, [])
    assert one(TOPIC, "t", "max.message.bytes").documentation == "The largest batch that is accepted."


# ---- Secrets, and unknown keys ----


def test_a_secret_is_never_shown() -> None:
    entry = one(BROKER, "1", "ssl.key.password", broker=config(ssl_key_password="hunter2"))
    assert (entry.value, entry.is_sensitive) == (None, True)
    assert synonyms(entry) == [("ssl.key.password", None, ConfigSource.STATIC)]


def test_an_unknown_key_is_described_without_its_value() -> None:
    entry = one(BROKER, "1", "my.own.key", broker=config(my_own_key="v"))
    assert (entry.value, entry.is_sensitive, entry.read_only, entry.config_type) == (None, True, True, 0)


def test_a_key_of_one_listener_has_the_type_of_its_key_and_its_value_behind_it() -> None:
    name = "listener.name.plaintext.max.connections"
    entry = one(BROKER, "1", name, broker=config(listener_name_plaintext_max_connections="77"))
    assert (entry.value, entry.config_type, entry.read_only) == ("77", 3, True)
    assert synonyms(entry) == [
        (name, "77", ConfigSource.STATIC),
        ("max.connections", "2147483647", ConfigSource.DEFAULT),
    ]


def test_internal_keys_are_described_only_where_they_are_set() -> None:
    [result] = describe((TOPIC, "t", ["internal.segment.bytes"]))
    assert result.configs == []
    assert (
        one(TOPIC, "t", "internal.segment.bytes", cluster=image((TOPIC, "t", "internal.segment.bytes", "5"))).value
        == "5"
    )


# ---- Resources ----


@pytest.mark.parametrize(
    ("kind", "name", "error"),
    [
        (TOPIC, "nope", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (TOPIC, "", ErrorCode.INVALID_TOPIC_EXCEPTION),
        (TOPIC, "bad name!", ErrorCode.INVALID_TOPIC_EXCEPTION),
        (BROKER, "2", ErrorCode.INVALID_REQUEST),
        (BROKER, "x", ErrorCode.INVALID_REQUEST),
        (LOGGER, "", ErrorCode.INVALID_REQUEST),
        (LOGGER, "2", ErrorCode.INVALID_REQUEST),
        (CLIENT_METRICS, "", ErrorCode.INVALID_REQUEST),
        (GROUP, "", ErrorCode.INVALID_REQUEST),
    ],
)
def test_a_resource_that_cannot_be_described_gets_its_own_error(
    kind: ConfigResource, name: str, error: ErrorCode
) -> None:
    wrong, right = describe((kind, name, None), (TOPIC, "t", ["retention.ms"]))
    assert (wrong.error_code, wrong.configs, wrong.resource_name) == (error, [], name)
    assert (right.error_code, len(right.configs)) == (ErrorCode.NONE, 1)


def test_a_resource_type_that_does_not_exist_fails_the_whole_request() -> None:
    results = describe((3, "t", None), (TOPIC, "t", None))
    assert [result.error_code for result in results] == [ErrorCode.INVALID_REQUEST] * 2


def test_null_keys_and_an_empty_list_of_keys_describe_all_configs() -> None:
    [everything], [empty], [some] = (
        describe((TOPIC, "t", keys)) for keys in (None, [], ["nope", "flush.ms", "flush.ms"])
    )
    assert len(everything.configs) == len(empty.configs) == 33
    assert [entry.name for entry in some.configs] == ["flush.ms"]


def test_the_describe_configs_response_can_be_encoded_in_every_version() -> None:
    results = describe((TOPIC, "t", None), (BROKER, "1", None), (LOGGER, "1", None), (TOPIC, "nope", None))
    response = DescribeConfigsResponse(throttle_time_ms=0, results=results)
    for version in DescribeConfigsResponse.versions.each():
        assert DescribeConfigsResponse.decode(response.encode(version), version).results[1].configs


# ---- Loggers ----


@pytest.fixture
def a_logger() -> Iterator[logging.Logger]:
    logger = logging.getLogger("pessoa.test.levels")
    yield logger
    logger.setLevel(logging.NOTSET)


def test_loggers_are_described_with_their_effective_level_in_kafkas_names(a_logger: logging.Logger) -> None:
    a_logger.setLevel(logging.CRITICAL)
    assert one(LOGGER, "1", a_logger.name).value == "FATAL"
    a_logger.setLevel(3)
    assert one(LOGGER, "1", a_logger.name).value == "TRACE"
    set_level(a_logger.name, "WARN")
    assert a_logger.level == logging.WARNING
    set_level(a_logger.name, None)
    assert logger_levels()[a_logger.name] == logger_levels()["root"]


@pytest.mark.parametrize(
    ("name", "level", "is_invalid_request"),
    [("pessoa.nope", "INFO", False), ("root", "LOUD", False), ("root", None, True)],
)
def test_an_invalid_logger_level_change_is_refused(name: str, level: str | None, is_invalid_request: bool) -> None:
    found = problem(name, level)
    assert found is not None
    assert found.is_invalid_request == is_invalid_request


def test_a_logger_level_can_be_set_and_deleted(a_logger: logging.Logger) -> None:
    assert problem(a_logger.name, "DEBUG") is None
    assert problem(a_logger.name, None) is None


# ---- The controller's rules ----


def test_the_controller_answers_with_kafkas_error_codes() -> None:
    rules = ConfigRules(config())
    assert rules.problem(TOPIC, {"retention.ms": "5"}) is None
    assert rules.problem(TOPIC, {"retention.ms": "x"}) == (
        ErrorCode.INVALID_CONFIG,
        "retention.ms=x: it must be a whole number of 64 bits, at least -1",
    )
    for kind, name, error in (
        (BROKER, "node.id", ErrorCode.INVALID_REQUEST),
        (GROUP, "nope", ErrorCode.INVALID_CONFIG),
        (CLIENT_METRICS, "nope", ErrorCode.INVALID_REQUEST),
    ):
        found = rules.problem(kind, {name: "1"})
        assert found is not None
        assert found[0] == error


@pytest.mark.parametrize(
    "configs",
    [
        {"group.consumer.assignment.interval.ms": "20000"},
        {"log.retention.ms": "5000", "log.local.retention.ms": "5001"},
        {"log.retention.ms": "5000", "log.local.retention.ms": "-1"},
        {"log.retention.ms": "0"},
    ],
)
def test_settings_of_a_broker_that_contradict_each_other_are_an_invalid_request(configs: dict[str, str]) -> None:
    found = ConfigRules(config()).problem(BROKER, configs)
    assert found is not None
    assert found[0] == ErrorCode.INVALID_REQUEST


def test_the_controller_does_not_validate_the_listeners_of_another_broker() -> None:
    rules = ConfigRules(config())
    assert rules.problem(BROKER, {"listeners": "PLAINTEXT://b:1", "log.retention.ms": "5"}) is None


def test_the_controllers_config_rules_know_list_types_and_defaults() -> None:
    rules = ConfigRules(config(log_cleanup_policy="compact", group_consumer_session_timeout_ms="46000"))
    assert rules.is_list(TOPIC, "cleanup.policy")
    assert not rules.is_list(TOPIC, "retention.ms")
    assert not rules.is_list(TOPIC, "nope")
    assert rules.default(TOPIC, "cleanup.policy") == "compact"
    assert rules.default(BROKER, "log.cleanup.policy") == "compact"
    assert rules.default(GROUP, "consumer.session.timeout.ms") == "46000"
    assert rules.default(CLIENT_METRICS, "metrics") == ""
    assert rules.broker_value("num.partitions") == "1"
    assert rules.broker_value("broker.rack") == ""


def test_a_created_topic_is_shown_with_all_its_settings() -> None:
    rules = ConfigRules(config(log_retention_hours="24", log_segment_bytes="2000000"))
    cluster = image((BROKER, "", "message.max.bytes", "77"), (BROKER, "1", "log.cleaner.threads", "x"))
    shown = {each.name: each for each in rules.topic_configs(cluster, {"flush.ms": "5"})}
    assert len(shown) == 33
    assert {
        name: (shown[name].value, shown[name].config_source)
        for name in ("flush.ms", "max.message.bytes", "retention.ms", "segment.bytes", "preallocate")
    } == {
        "flush.ms": ("5", ConfigSource.TOPIC),
        "max.message.bytes": ("77", ConfigSource.ALL_BROKERS),
        "retention.ms": ("86400000", ConfigSource.STATIC),
        "segment.bytes": ("2000000", ConfigSource.STATIC),
        "preallocate": ("false", ConfigSource.DEFAULT),
    }


def test_a_stored_topic_config_with_an_unknown_value_or_key_is_described_unchanged() -> None:
    entries = {entry.name: entry for entry in topic_entries({"retention.ms": "abc", "other": "1"}, config())}
    assert entries["retention.ms"].value == "abc"
    assert (entries["other"].value, entries["other"].is_sensitive) == (None, True)
