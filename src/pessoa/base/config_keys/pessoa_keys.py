"""Keys that are Pessoa's alone, which Apache Kafka does not have: the logs of a broker, its metrics, from where tokens
and the keys that verify them may come, and how many delegation tokens there may be.

They are internal, so DescribeConfigs lists a broker's keys as Apache Kafka does, and these where they are set.
"""

from __future__ import annotations

from pessoa.base.config_table import CLUSTER_WIDE, INT, LIST, LONG, STRING, ConfigKey, key
from pessoa.base.config_values import ENTRIES, NOT_EMPTY, any_of, at_least, between, one_of

LOGS = ("access", "agent", "audit", "authorizer", "error", "referrer")

# fmt: off
KEYS: tuple[ConfigKey, ...] = (
    key("pessoa.logs", LIST, (), any_of(*LOGS), CLUSTER_WIDE,
        "Which logs the broker writes.", is_internal=True),
    key("pessoa.logs.dir", STRING, None,
        "The directory of those logs, for this broker alone; unset, it is the first log directory with .logs behind "
        "its name.", is_internal=True),
    key("pessoa.logs.format", STRING, "json", one_of("json", "text"),
        "Whether a line of those logs is a JSON object or text.", is_internal=True),
    key("pessoa.logs.max.bytes", LONG, 16 * 1024 * 1024, at_least(4096),
        "The size at which a file of those logs is rotated.", is_internal=True),
    key("pessoa.logs.max.files", INT, 5, between(1, 1000),
        "How many files each of those logs has at most, with the one that is written to.", is_internal=True),
    key("pessoa.metrics.port", INT, -1, between(-1, 65535),
        "The port of /metrics and /health; -1 has none, 0 is any free one.", is_internal=True),
    key("pessoa.metrics.listener", STRING, None,
        "A listener with TLS: the pages are served with its TLS, and /metrics to users who may DESCRIBE the cluster.",
        is_internal=True),
    key("pessoa.metrics.names", STRING, "jmx-exporter", one_of("jmx-exporter", "confluent"),
        "Whether meters are called bytesin_total, as by Prometheus' JMX exporter, or bytesinpersec, as by Confluent.",
        is_internal=True),
    key("pessoa.sasl.oauthbearer.allowed.urls", LIST, (), ENTRIES,
        "The http(s) URLs that sasl.oauthbearer.*.endpoint.url may name.", is_internal=True),
    key("pessoa.sasl.oauthbearer.allowed.files", LIST, (), ENTRIES,
        "The files that sasl.oauthbearer.*.endpoint.url may name, as file: URLs or as paths.", is_internal=True),
    # In Apache Kafka these two are properties of the Java system.
    key("org.apache.kafka.sasl.oauthbearer.allowed.urls", LIST, (), ENTRIES,
        "Apache Kafka's name of pessoa.sasl.oauthbearer.allowed.urls.", is_internal=True),
    key("org.apache.kafka.sasl.oauthbearer.allowed.files", LIST, (), ENTRIES,
        "Apache Kafka's name of pessoa.sasl.oauthbearer.allowed.files.", is_internal=True),
    key("pessoa.delegation.token.max.per.owner", INT, 10_000, at_least(1),
        "How many delegation tokens one user has at most; each renewer of a token counts as one more.",
        is_internal=True),
    key("pessoa.metrics.host", STRING, "127.0.0.1", NOT_EMPTY, "The address of that port.", is_internal=True),
)
# fmt: on
