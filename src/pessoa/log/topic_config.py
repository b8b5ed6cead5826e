"""What can be set for one topic, where its default comes from, and the log's view of it.

A topic's own setting wins; otherwise the broker's key that stands for it decides (`retention.ms` and
`log.retention.ms`), which may be given in coarser units (`log.retention.hours`).

    the topic's settings ──┐
    the broker's ──────────┴──► topic_values: every key with its value ──► log_config: what a log needs of it
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping

from pessoa.base.config_keys.broker_keys import BROKER_DEFAULTS
from pessoa.base.config_table import (
    BOOLEAN,
    DOUBLE,
    INT,
    LIST,
    LONG,
    MAX_LONG,
    STRING,
    ConfigKey,
    ConfigTable,
    Settings,
    int_value,
    key,
)
from pessoa.base.config_values import GZIP_LEVEL, ConfigProblem, Rule, Value, any_of, at_least, between, one_of
from pessoa.log.log_config import LogConfig
from pessoa.records.batch import TimestampType

log = logging.getLogger("pessoa.log")

_REPLICA = re.compile(r"[0-9]+:[0-9]+")
THROTTLED_REPLICAS = Rule(
    "* or a list of partition:broker",
    lambda value: value == ("*",) or (isinstance(value, tuple) and all(map(_REPLICA.fullmatch, value))),
)

# fmt: off
KEYS: tuple[ConfigKey, ...] = (
    key("cleanup.policy", LIST, ("delete",), any_of("compact", "delete"),
        "What becomes of old data: delete, compact, both, or neither."),
    key("compression.type", STRING, "producer", one_of("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"),
        "How batches are compressed on disk: with a codec, not at all, or as the producer sent them."),
    key("compression.gzip.level", INT, -1, GZIP_LEVEL, "How hard gzip tries, where the broker compresses."),
    key("compression.lz4.level", INT, 9, between(1, 17), "How hard lz4 tries, where the broker compresses."),
    key("compression.zstd.level", INT, 3, between(-131_072, 22), "How hard zstd tries, where the broker compresses."),
    key("retention.ms", LONG, 604_800_000, at_least(-1), "How long records are kept at least; -1 is for ever."),
    key("retention.bytes", LONG, -1, "The size of a partition above which its oldest segments go; -1 is no limit."),
    key("local.retention.ms", LONG, -2, at_least(-2),
        "How long segments that are also in remote storage stay on local disks; -2 is retention.ms."),
    key("local.retention.bytes", LONG, -2, at_least(-2),
        "How much of a partition stays on local disks beside remote storage; -2 is retention.bytes."),
    key("delete.retention.ms", LONG, 86_400_000, at_least(0),
        "How long a compacted log keeps the marks of deleted keys."),
    key("min.cleanable.dirty.ratio", DOUBLE, 0.5, between(0, 1),
        "The share of uncompacted bytes from which a log is compacted."),
    key("min.compaction.lag.ms", LONG, 0, at_least(0), "How long a record is safe from compaction."),
    key("max.compaction.lag.ms", LONG, MAX_LONG, at_least(1),
        "After what time a record is compacted, however small the share."),
    key("segment.bytes", INT, 1_073_741_824, at_least(1_048_576), "The size at which the log begins a new segment."),
    key("segment.ms", LONG, 604_800_000, at_least(1), "The age at which the log begins a new segment."),
    key("segment.jitter.ms", LONG, 0, at_least(0),
        "By how much at most that age is shortened at random, so that not all partitions roll at once."),
    key("segment.index.bytes", INT, 10_485_760, at_least(4), "The size at which an index is full."),
    key("index.interval.bytes", INT, 4096, at_least(0),
        "After how many bytes of records the index gets its next entry."),
    key("internal.segment.bytes", INT, None,
        "The same as segment.bytes without its lower limit, for tests.", is_internal=True),
    key("preallocate", BOOLEAN, False, "Whether a new segment takes its space on disk at once."),
    key("file.delete.delay.ms", LONG, 60000, at_least(0),
        "How long files stay on disk after they were deleted from the log."),
    key("flush.messages", LONG, MAX_LONG, at_least(1), "After how many records the log is flushed to disk."),
    key("flush.ms", LONG, MAX_LONG, at_least(0), "After what time the log is flushed to disk."),
    key("max.message.bytes", INT, 1_048_588, at_least(0), "The largest batch that is accepted."),
    key("message.timestamp.type", STRING, "CreateTime", one_of("CreateTime", "LogAppendTime"),
        "Whose time a record carries: its producer's or the broker's."),
    key("message.timestamp.before.max.ms", LONG, MAX_LONG, at_least(0),
        "How far behind the broker's clock a record's timestamp may be."),
    key("message.timestamp.after.max.ms", LONG, 3_600_000, at_least(0),
        "How far ahead of the broker's clock a record's timestamp may be."),
    key("min.insync.replicas", INT, 1, at_least(1),
        "How many replicas must have a record before acks=all is answered."),
    key("unclean.leader.election.enable", BOOLEAN, False,
        "Whether a replica that lacks records may become leader, if no other can."),
    key("leader.replication.throttled.replicas", LIST, (), THROTTLED_REPLICAS,
        "Replicas that leaders serve at a limited rate, as partition:broker; * is all of them."),
    key("follower.replication.throttled.replicas", LIST, (), THROTTLED_REPLICAS,
        "Replicas that fetch at a limited rate, as partition:broker; * is all of them."),
    key("remote.storage.enable", BOOLEAN, False, "Whether the topic's segments are moved to remote storage."),
    key("remote.log.copy.disable", BOOLEAN, False,
        "Whether the topic's data stays in remote storage without anything being added."),
    key("remote.log.delete.on.disable", BOOLEAN, False,
        "Whether the topic's data in remote storage is deleted when remote storage is switched off."),
)
# fmt: on

TOPIC_CONFIGS = ConfigTable("topic", KEYS)

# The broker's key for each topic's key; those that are missing here have no default but their own.
BROKER_KEYS = {
    "cleanup.policy": "log.cleanup.policy",
    "compression.gzip.level": "compression.gzip.level",
    "compression.lz4.level": "compression.lz4.level",
    "compression.type": "compression.type",
    "compression.zstd.level": "compression.zstd.level",
    "delete.retention.ms": "log.cleaner.delete.retention.ms",
    "file.delete.delay.ms": "log.segment.delete.delay.ms",
    "flush.messages": "log.flush.interval.messages",
    "flush.ms": "log.flush.interval.ms",
    "index.interval.bytes": "log.index.interval.bytes",
    "local.retention.bytes": "log.local.retention.bytes",
    "local.retention.ms": "log.local.retention.ms",
    "max.compaction.lag.ms": "log.cleaner.max.compaction.lag.ms",
    "max.message.bytes": "message.max.bytes",
    "message.timestamp.after.max.ms": "log.message.timestamp.after.max.ms",
    "message.timestamp.before.max.ms": "log.message.timestamp.before.max.ms",
    "message.timestamp.type": "log.message.timestamp.type",
    "min.cleanable.dirty.ratio": "log.cleaner.min.cleanable.ratio",
    "min.compaction.lag.ms": "log.cleaner.min.compaction.lag.ms",
    "min.insync.replicas": "min.insync.replicas",
    "preallocate": "log.preallocate",
    "retention.bytes": "log.retention.bytes",
    "retention.ms": "log.retention.ms",
    "segment.bytes": "log.segment.bytes",
    "segment.index.bytes": "log.index.size.max.bytes",
    "segment.jitter.ms": "log.roll.jitter.ms",
    "segment.ms": "log.roll.ms",
    "unclean.leader.election.enable": "unclean.leader.election.enable",
}

_MINUTE_MS = 60 * 1000
_HOUR_MS = 60 * _MINUTE_MS
# Broker's keys that may be unset, and what then stands for them, with its unit.
_COARSER = {
    "log.retention.ms": (("log.retention.minutes", _MINUTE_MS), ("log.retention.hours", _HOUR_MS)),
    "log.roll.ms": (("log.roll.hours", _HOUR_MS),),
    "log.roll.jitter.ms": (("log.roll.jitter.hours", _HOUR_MS),),
    "log.flush.interval.ms": (("log.flush.scheduler.interval.ms", 1),),
}


def default_value(name: str, broker: Settings = BROKER_DEFAULTS) -> Value:
    """Return the value of a key for a topic that does not set it."""
    broker_key = BROKER_KEYS.get(name)
    if broker_key is None:
        return TOPIC_CONFIGS[name].default
    value = broker.value(broker_key)
    for coarser, unit in _COARSER.get(broker_key, ()):
        if value is not None:
            break
        coarse = broker.value(coarser)
        assert coarse is None or isinstance(coarse, int)
        value = None if coarse is None else coarse * unit
    if name == "retention.ms":
        assert isinstance(value, int)
        # Any negative number means without an end, in every unit.
        value = max(value, -1)
    return value


def topic_value(name: str, overrides: Mapping[str, str], broker: Settings = BROKER_DEFAULTS) -> Value:
    """Return the value of a key for a topic with these overrides."""
    if name in overrides:
        return TOPIC_CONFIGS.parse(name, overrides[name])
    return default_value(name, broker)


def topic_values(overrides: Mapping[str, str], broker: Settings = BROKER_DEFAULTS) -> dict[str, Value]:
    """Return every key of a topic with its value. An override that is invalid here is ignored with a warning: it was
    checked when it was set, but another version or broker may have allowed it, and the topic must stay readable."""
    values = {one.name: default_value(one.name, broker) for one in TOPIC_CONFIGS}
    for name, text in overrides.items():
        try:
            values[name] = TOPIC_CONFIGS.parse(name, text)
        except ConfigProblem as problem:
            log.warning("a topic's setting is passed over: %s", problem)
    return values


def log_config(overrides: Mapping[str, str], broker: Settings = BROKER_DEFAULTS) -> LogConfig:
    """Return the configuration of the logs of a topic with these overrides."""
    values = topic_values(overrides, broker)

    def number(name: str) -> int:
        value = values[name]
        assert isinstance(value, int), name
        return value

    ratio, policy = values["min.cleanable.dirty.ratio"], values["cleanup.policy"]
    assert isinstance(ratio, int | float)
    assert isinstance(policy, tuple)
    is_append_time = values["message.timestamp.type"] == "LogAppendTime"
    compression = str(values["compression.type"])
    level = values.get(f"compression.{compression}.level")
    assert level is None or isinstance(level, int)
    return LogConfig(
        segment_bytes=number("segment.bytes" if values["internal.segment.bytes"] is None else "internal.segment.bytes"),
        segment_ms=number("segment.ms"),
        segment_jitter_ms=number("segment.jitter.ms"),
        segment_index_bytes=number("segment.index.bytes"),
        index_interval_bytes=number("index.interval.bytes"),
        flush_messages=number("flush.messages"),
        flush_ms=number("flush.ms"),
        retention_bytes=number("retention.bytes"),
        retention_ms=number("retention.ms"),
        cleanup_policy=frozenset(policy),
        min_cleanable_dirty_ratio=float(ratio),
        min_compaction_lag_ms=number("min.compaction.lag.ms"),
        max_compaction_lag_ms=number("max.compaction.lag.ms"),
        delete_retention_ms=number("delete.retention.ms"),
        file_delete_delay_ms=number("file.delete.delay.ms"),
        max_message_bytes=number("max.message.bytes"),
        message_timestamp_type=TimestampType.LOG_APPEND_TIME if is_append_time else TimestampType.CREATE_TIME,
        message_timestamp_before_max_ms=number("message.timestamp.before.max.ms"),
        message_timestamp_after_max_ms=number("message.timestamp.after.max.ms"),
        compression_type=compression,
        compression_level=level,
        producer_id_expiration_ms=int_value(broker, "producer.id.expiration.ms"),
        transaction_partition_verification_enable=bool(broker.value("transaction.partition.verification.enable")),
    )


def validate_topic_configs(
    configs: Mapping[str, str | None], broker: Settings = BROKER_DEFAULTS
) -> ConfigProblem | None:
    """Return what is wrong with the overrides of one topic, taken together; None if nothing is."""
    problem = TOPIC_CONFIGS.problem(configs)
    if problem is not None:
        return problem
    given = {name: text for name, text in configs.items() if text is not None}
    if topic_value("remote.storage.enable", given, broker):
        return ConfigProblem("remote.storage.enable", given["remote.storage.enable"], "there is no remote storage here")
    least = topic_value("min.compaction.lag.ms", given, broker)
    most = topic_value("max.compaction.lag.ms", given, broker)
    assert isinstance(least, int)
    assert isinstance(most, int)
    if least > most:
        why = f"it must not be more than max.compaction.lag.ms, which is {most}"
        return ConfigProblem("min.compaction.lag.ms", str(least), why)
    return None
