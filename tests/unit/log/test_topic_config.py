"""Topic configurations, their defaults, and the configuration of a log that follows from them."""

from __future__ import annotations

import logging

import pytest

from pessoa.base.config_keys.broker_keys import BROKER_CONFIGS
from pessoa.base.config_values import Value
from pessoa.log.log_config import LogConfig
from pessoa.log.topic_config import (
    BROKER_KEYS,
    TOPIC_CONFIGS,
    default_value,
    log_config,
    topic_value,
    validate_topic_configs,
)
from pessoa.records.batch import TimestampType

HOUR_MS = 60 * 60 * 1000


class Broker:
    def __init__(self, values: dict[str, Value]) -> None:
        self._values = values

    def value(self, name: str) -> Value:
        return self._values.get(name, BROKER_CONFIGS[name].default)


def test_a_log_without_settings_is_the_default_log() -> None:
    assert log_config({}) == LogConfig()


@pytest.mark.parametrize("name", BROKER_KEYS)
def test_the_defaults_of_broker_and_topic_agree(name: str) -> None:
    assert default_value(name) == TOPIC_CONFIGS[name].default
    assert BROKER_CONFIGS[BROKER_KEYS[name]].type is TOPIC_CONFIGS[name].type


@pytest.mark.parametrize(
    ("values", "expected_ms"),
    [
        ({"log.retention.hours": 2}, 2 * HOUR_MS),
        ({"log.retention.hours": -1}, -1),
        ({"log.retention.hours": 2, "log.retention.minutes": 3}, 3 * 60 * 1000),
        ({"log.retention.hours": 2, "log.retention.minutes": 3, "log.retention.ms": 4}, 4),
        ({"log.retention.ms": -2}, -1),
    ],
)
def test_retention_in_ms_is_preferred_to_minutes_and_minutes_to_hours(
    values: dict[str, Value], expected_ms: int
) -> None:
    assert log_config({}, Broker(values)).retention_ms == expected_ms


def test_a_topic_wins_over_its_broker() -> None:
    broker = Broker({"log.segment.bytes": 2 << 20, "log.cleanup.policy": ("compact",), "min.insync.replicas": 3})
    config = log_config({"cleanup.policy": "compact, delete"}, broker)
    assert config.segment_bytes == 2 << 20
    assert config.cleanup_policy == {"compact", "delete"}
    assert topic_value("min.insync.replicas", {}, broker) == 3
    assert topic_value("min.insync.replicas", {"min.insync.replicas": "2"}, broker) == 2


def test_every_setting_of_a_log_reaches_it() -> None:
    overrides = {
        "segment.ms": "11",
        "segment.jitter.ms": "12",
        "segment.index.bytes": "13",
        "index.interval.bytes": "14",
        "flush.messages": "15",
        "flush.ms": "16",
        "retention.bytes": "17",
        "retention.ms": "18",
        "cleanup.policy": "",
        "min.cleanable.dirty.ratio": "0.25",
        "min.compaction.lag.ms": "19",
        "max.compaction.lag.ms": "20",
        "delete.retention.ms": "21",
        "file.delete.delay.ms": "22",
        "max.message.bytes": "23",
        "message.timestamp.type": "LogAppendTime",
        "message.timestamp.before.max.ms": "24",
        "message.timestamp.after.max.ms": "25",
        "compression.type": "zstd",
        "compression.zstd.level": "7",
        "internal.segment.bytes": "10",
    }
    assert log_config(overrides) == LogConfig(
        segment_bytes=10,
        segment_ms=11,
        segment_jitter_ms=12,
        segment_index_bytes=13,
        index_interval_bytes=14,
        flush_messages=15,
        flush_ms=16,
        retention_bytes=17,
        retention_ms=18,
        cleanup_policy=frozenset(),
        min_cleanable_dirty_ratio=0.25,
        min_compaction_lag_ms=19,
        max_compaction_lag_ms=20,
        delete_retention_ms=21,
        file_delete_delay_ms=22,
        max_message_bytes=23,
        message_timestamp_type=TimestampType.LOG_APPEND_TIME,
        message_timestamp_before_max_ms=24,
        message_timestamp_after_max_ms=25,
        compression_type="zstd",
        compression_level=7,
    )


def test_a_stored_setting_that_makes_no_sense_is_passed_over_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        config = log_config({"retention.ms": "abc", "flush.ms": "5", "key.of.another.version": "1"})
    assert config == LogConfig(flush_ms=5)
    assert [record.getMessage().partition(": ")[2].partition("=")[0] for record in caplog.records] == [
        "retention.ms",
        "key.of.another.version",
    ]


@pytest.mark.parametrize(
    "configs",
    [
        {"retention.ms": "-1"},
        {"cleanup.policy": ""},
        {"cleanup.policy": "compact,compact"},
        {"preallocate": "TRUE"},
        {"leader.replication.throttled.replicas": "*"},
        {"leader.replication.throttled.replicas": "1:2,2:3"},
        {"leader.replication.throttled.replicas": ""},
        {"min.compaction.lag.ms": "9223372036854775807"},
        {"compression.gzip.level": "-1"},
    ],
)
def test_topic_configs_that_kafka_allows_are_valid(configs: dict[str, str | None]) -> None:
    assert validate_topic_configs(configs) is None


@pytest.mark.parametrize(
    ("configs", "key"),
    [
        ({"retention.ms": "-2"}, "retention.ms"),
        ({"retention.ms": ""}, "retention.ms"),
        ({"cleanup.policy": "foo"}, "cleanup.policy"),
        ({"compression.type": "x"}, "compression.type"),
        ({"compression.gzip.level": "0"}, "compression.gzip.level"),
        ({"segment.bytes": "1"}, "segment.bytes"),
        ({"nope": "1"}, "nope"),
        ({"leader.replication.throttled.replicas": "abc"}, "leader.replication.throttled.replicas"),
        ({"remote.storage.enable": "true"}, "remote.storage.enable"),
        ({"min.compaction.lag.ms": "2", "max.compaction.lag.ms": "1"}, "min.compaction.lag.ms"),
    ],
)
def test_what_kafka_refuses_is_an_invalid_config(configs: dict[str, str | None], key: str) -> None:
    problem = validate_topic_configs(configs)
    assert problem is not None
    assert problem.key == key
    assert not problem.is_invalid_request
