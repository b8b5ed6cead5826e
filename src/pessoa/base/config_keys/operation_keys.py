"""Quotas, plug-ins and metrics.

The three rates at the end of the quotas can be set while a broker runs and in no other way, so they are described only
where they are set. Unset they are no limit.
"""

from __future__ import annotations

from pessoa.base.config_table import CLASS, CLUSTER_WIDE, INT, LIST, LONG, LOW, STRING, ConfigKey, key
from pessoa.base.config_values import ENTRIES, at_least

# fmt: off
KEYS: tuple[ConfigKey, ...] = (
    key("quota.window.num", INT, 11, at_least(1), LOW,
        "How many samples are kept to measure clients against their quotas."),
    key("quota.window.size.seconds", INT, 1, at_least(1), LOW, "The length of each of those samples."),
    key("replication.quota.window.num", INT, 11, at_least(1), LOW,
        "How many samples are kept to measure throttled replication."),
    key("replication.quota.window.size.seconds", INT, 1, at_least(1), LOW, "The length of each of those samples."),
    key("alter.log.dirs.replication.quota.window.num", INT, 11, at_least(1), LOW,
        "How many samples are kept to measure moves between log directories."),
    key("alter.log.dirs.replication.quota.window.size.seconds", INT, 1, at_least(1), LOW,
        "The length of each of those samples."),
    key("controller.quota.window.num", INT, 11, at_least(1), LOW,
        "How many samples are kept to measure changes of the cluster against their quotas."),
    key("controller.quota.window.size.seconds", INT, 1, at_least(1), LOW, "The length of each of those samples."),
    key("leader.replication.throttled.rate", LONG, None, at_least(0), CLUSTER_WIDE,
        "The most bytes each second that leaders of throttled replicas send.", is_internal=True),
    key("follower.replication.throttled.rate", LONG, None, at_least(0), CLUSTER_WIDE,
        "The most bytes each second that followers with throttled replicas fetch.", is_internal=True),
    key("replica.alter.log.dirs.io.max.bytes.per.second", LONG, None, at_least(0), CLUSTER_WIDE,
        "The most bytes each second that are moved between log directories.", is_internal=True),
    key("client.quota.callback.class", CLASS, None, LOW, "A class that decides about client quotas."),
    key("create.topic.policy.class.name", CLASS, None, LOW, "A class that may refuse to create a topic."),
    key("alter.config.policy.class.name", CLASS, None, LOW, "A class that may refuse a change of configuration."),
    key("config.providers", LIST, (), ENTRIES, LOW, CLUSTER_WIDE, "Names of providers that fill in ${…} in values."),
    key("metric.reporters", LIST, ("org.apache.kafka.common.metrics.JmxReporter",), ENTRIES, LOW, CLUSTER_WIDE,
        "Classes that are told of every metric."),
    key("metrics.num.samples", INT, 2, at_least(1), LOW, "How many samples make up a metric."),
    key("metrics.sample.window.ms", LONG, 30000, at_least(1), LOW, "How long a sample of a metric is."),
    key("metrics.recording.level", STRING, "INFO", LOW, "How much is measured: INFO, DEBUG or TRACE."),
    key("kafka.metrics.reporters", LIST, (), ENTRIES, LOW, "Reporter classes for the server's older metrics."),
    key("kafka.metrics.polling.interval.secs", INT, 10, at_least(1), LOW, "How often those reporters are called."),
    key("telemetry.max.bytes", INT, 1_048_576, at_least(1), LOW,
        "The most bytes of metrics that a client may push at once."),
)
# fmt: on
