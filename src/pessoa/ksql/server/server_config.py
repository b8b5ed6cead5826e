"""The settings of a ksql server, under the names of Confluent's `ksql-server.properties`.

A setting of statements has up to three names: `ksql.streams.auto.offset.reset` in the file, `auto.offset.reset` in SET
and in `streamsProperties`, and either of them works in all places. `query_property_name` knows them.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from pessoa.base.config_values import at_least, one_of
from pessoa.base.home_folder import pessoa_home
from pessoa.client.librdkafka import security_settings
from pessoa.web.http_settings import ANY_ADDRESS, LISTENERS, HttpSettings, Listener, read_http_settings
from pessoa.web.settings import default_texts, log_unknown, read_settings, setting, settings_below

log = logging.getLogger("pessoa.ksql")

DEFAULT_PORT = 8088
_STREAMS = "ksql.streams."
_OF_HTTPS = "listeners.https."
REGISTRY = "ksql.schema.registry."
CONNECT = "ksql.connect."
_ELSEWHERE = ("security.", "sasl.", "ssl.", _STREAMS, REGISTRY, CONNECT, LISTENERS, "producer.", "consumer.",
              "ksql.functions.", "ksql.logging.", "confluent.")  # fmt: skip


@dataclass(frozen=True, slots=True)
class KsqlConfig:
    # Everything as text, with defaults filled in.
    settings: Mapping[str, str] = field(default_factory=dict)
    http: HttpSettings = HttpSettings(Listener("http", ANY_ADDRESS, DEFAULT_PORT))  # noqa: RUF009 - frozen
    bootstrap_servers: str = setting("bootstrap.servers", "localhost:9092", "Where Kafka is: host:port,…")
    service_id: str = setting("ksql.service.id", "default_", "Servers with the same id share statements and queries.")
    registry_url: str | None = setting(
        "ksql.schema.registry.url", None, "The schema registry, for formats that need it."
    )
    connect_url: str = setting("ksql.connect.url", "http://localhost:8083", "Where Connect is.")
    key_format: str = setting("ksql.persistence.default.format.key", "KAFKA", "Of sources that name none.")
    value_format: str | None = setting("ksql.persistence.default.format.value", None, "Of sources that name none.")
    topic_prefix: str = setting("ksql.output.topic.name.prefix", "", "Before the names of topics of AS SELECT.")
    scans_tables: bool = setting("ksql.query.pull.table.scan.enabled", True, "Whether pull queries may read all keys.")
    substitutes: bool = setting("ksql.variable.substitution.enable", True, "Whether ${name} stands for a variable.")
    queries_file: str | None = setting(
        "ksql.queries.file", None, "Statements of a headless server: it takes no others."
    )
    extension_dir: str = setting("ksql.extension.dir", "", "Where user functions are (*.py).")
    offset_reset: str = setting(
        "ksql.streams.auto.offset.reset", "latest", "Where queries begin.", rule=one_of("latest", "earliest")
    )
    fails_on_bad_records: bool = setting(
        "ksql.fail.on.deserialization.error", False, "Whether a record that cannot be read ends a query."
    )
    max_push_queries: int = setting("max.push.queries", 100, "How many push queries may run at once.", rule=at_least(1))
    max_persistent: int = setting(
        "ksql.query.persistent.active.limit", 2**31 - 1, "How many persistent queries there may be.", rule=at_least(1)
    )
    internal_replicas: int = setting("ksql.internal.topic.replicas", 3, "Of internal topics, if they are new.")
    terminate_enabled: bool = setting("ksql.terminate.enabled", True, "Whether POST /ksql/terminate is obeyed.")
    home_path: str | None = setting("pessoa.home", None, "Checkpoints, and Spark's files.")
    spark_remote: str | None = setting(
        "pessoa.spark.remote", None, "A Spark cluster, sc://host:15002.", also="spark.remote"
    )

    @property
    def home(self) -> Path:
        return Path(self.settings["pessoa.home"])

    @property
    def command_topic(self) -> str:
        return f"_confluent-ksql-{self.service_id}_command_topic"

    @property
    def internal_prefix(self) -> str:
        return f"_confluent-ksql-{self.service_id}"

    @property
    def kafka_security(self) -> dict[str, str]:
        """The security settings of the server's Kafka clients, under the Java clients' names."""
        return security_settings(self.settings)

    def below(self, prefix: str) -> dict[str, str]:
        return settings_below(self.settings, prefix)

    @property
    def registry_settings(self) -> dict[str, str] | None:
        """The settings of the registry's client, under the names that serialisers use; None without a registry."""
        if self.registry_url is None:
            return None
        return self.below(REGISTRY)


def make_config(given: Mapping[str, str]) -> KsqlConfig:
    config = read_settings(KsqlConfig(), given)
    log_unknown(log, given, (KsqlConfig, HttpSettings), _ELSEWHERE)
    # An https listener's settings may stand behind this prefix; those without it are the Kafka clients' as well.
    of_listener = {**given, **settings_below(given, _OF_HTTPS)}
    http = read_http_settings(of_listener, Listener("http", ANY_ADDRESS, DEFAULT_PORT), realm="ksql")
    settings = {**default_texts(config), **given}
    settings["pessoa.home"] = str(Path(config.home_path or pessoa_home() / "ksql").expanduser())
    extensions = config.extension_dir or str(Path(settings["pessoa.home"]) / "ext")
    return replace(config, settings=settings, http=http, extension_dir=extensions)


# The properties that SET and streamsProperties may name, with a note about values; without `ksql.streams.`.
QUERY_PROPERTIES: dict[str, str] = {
    "auto.offset.reset": "latest",
    "commit.interval.ms": "2000",
    "cache.max.bytes.buffering": "10000000",
    "statestore.cache.max.bytes": "10000000",
    "num.stream.threads": "4",
    "processing.guarantee": "at_least_once",
    "max.task.idle.ms": "0",
    "producer.linger.ms": "",
    "producer.acks": "all",
    "consumer.max.poll.records": "500",
    "ksql.query.pull.table.scan.enabled": "true",
    "ksql.query.pull.max.qps": "2147483647",
    "ksql.query.pull.consistency.token.enabled": "false",
    "ksql.query.push.v2.enabled": "false",
    "ksql.query.retry.backoff.initial.ms": "15000",
    "ksql.query.retry.backoff.max.ms": "900000",
    "ksql.persistence.default.format.key": "KAFKA",
    "ksql.persistence.default.format.value": "",
    "ksql.persistence.wrap.single.values": "true",
    "ksql.output.topic.name.prefix": "",
    "ksql.fail.on.deserialization.error": "false",
    "ksql.fail.on.production.error": "true",
    "ksql.timestamp.throw.on.invalid": "false",
    "ksql.insert.into.values.enabled": "true",
    "ksql.variable.substitution.enable": "true",
    "ksql.functions.collect_list.limit": "2147483647",
    "ksql.functions.collect_set.limit": "2147483647",
    "ksql.streams.shutdown.timeout.ms": "300000",
    "pessoa.every.change": "true",
    "pessoa.speed": "",
}
_ALLOWED = {
    "auto.offset.reset": ("earliest", "latest"),
    "processing.guarantee": ("at_least_once", "exactly_once", "exactly_once_v2", "exactly_once_beta"),
}


def query_property_name(name: str) -> str | None:
    """Return the canonical name of a statement's property; None if there is no such property."""
    short = name.removeprefix(_STREAMS)
    for one in (name, short):
        if one in QUERY_PROPERTIES or one.startswith(("ksql.functions.", "producer.", "consumer.", "main.consumer.")):
            return one
    return None


def check_query_property(name: str, value: str) -> str:
    """Return why the property cannot have this value; "" if it can."""
    known = query_property_name(name)
    if known is None:
        return f"Not recognizable as ksql, streams, consumer, or producer property: '{name}'"
    allowed = _ALLOWED.get(known)
    if allowed is not None and value.lower() not in allowed:
        return f"Invalid value {value} for configuration {known}: it must be one of {', '.join(allowed)}"
    return ""
