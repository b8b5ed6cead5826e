"""The settings of a registry, under the names that the JVM registry has for them.

A file of properties, and overrides of single keys. Settings for the connection to Kafka have the prefix `kafkastore.`:
`kafkastore.bootstrap.servers`, `kafkastore.security.protocol`, `kafkastore.sasl.*`, `kafkastore.ssl.*`. The rest is
about the service itself. A key that means nothing here (the JVM registry has some two hundred) is accepted and ignored,
so that an existing file can be used; what is ours alone starts with `pessoa.`.

`Config` is the table of them; what all services have (listeners, HTTPS, users) is in web/http_settings.py.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from pessoa.base.config_values import ConfigProblem, one_of_ignoring_case
from pessoa.schema_registry.compatibility.levels import Level, parse_level
from pessoa.web.http_settings import ANY_ADDRESS, LISTENERS, HttpSettings, Listener, read_http_settings
from pessoa.web.settings import log_unknown, read_settings, setting, settings_below

log = logging.getLogger("pessoa.schema_registry")

DEFAULT_PORT = 8081
_PREFIX = "kafkastore."
# Under kafkastore., but not settings of a Kafka client.
_STORE_KEYS = frozenset(
    """
    kafkastore.topic kafkastore.topic.replication.factor kafkastore.timeout.ms kafkastore.init.timeout.ms
    kafkastore.connection.url kafkastore.group.id kafkastore.zk.session.timeout.ms kafkastore.write.max.retries
    kafkastore.checkpoint.dir kafkastore.checkpoint.version kafkastore.update.handlers kafkastore.bootstrap.servers
    """.split()
)
_REALM = "SchemaRegistry"


@dataclass(frozen=True, slots=True)
class Config:
    http: HttpSettings = HttpSettings(Listener("http", ANY_ADDRESS, DEFAULT_PORT), realm=_REALM)  # noqa: RUF009 - frozen
    bootstrap_servers: str = setting(
        "kafkastore.bootstrap.servers", "localhost:9092", "Where Kafka is: host:port,…", also="bootstrap.servers"
    )
    # For Kafka clients, under the names of the Java clients.
    client_settings: Mapping[str, str] = field(default_factory=dict)
    topic: str = setting("kafkastore.topic", "_schemas", "Where schemas are kept.")
    replication_factor: int = setting("kafkastore.topic.replication.factor", 3, "The replicas of a new topic.")
    timeout_ms: int = setting("kafkastore.timeout.ms", 500, "How long a write to the topic may take.")
    init_timeout_ms: int = setting("kafkastore.init.timeout.ms", 60_000, "How long a start waits for Kafka.")
    group_id: str = setting(
        "schema.registry.group.id", "schema-registry", "Instances with the same group share the work and one leader.",
        also="kafkastore.group.id",
    )  # fmt: skip
    session_timeout_ms: int = setting(
        "pessoa.group.session.timeout.ms", 10_000, "How long a leader that says nothing stays leader."
    )
    host_name: str = setting("host.name", socket.gethostname(), "How other instances reach this one.")
    is_eligible: bool = setting(
        "leader.eligibility", True, "Whether this instance may become leader.", also="master.eligibility"
    )
    leader_timeout_ms: int = setting("pessoa.leader.timeout.ms", 30_000, "How long a write waits for a leader.")
    level: str = setting(
        "schema.compatibility.level", "backward", "What a new version must be compatible with.",
        also="avro.compatibility.level", rule=one_of_ignoring_case(*Level),
    )  # fmt: skip
    mode_mutability: bool = setting("mode.mutability", True, "Whether the mode may be changed.")
    authentication: str = setting(
        "authentication.method", "NONE", "BASIC: callers must be in the file of users, or users of the cluster.",
        rule=one_of_ignoring_case("NONE", "BASIC"),
    )  # fmt: skip

    @property
    def default_level(self) -> Level:
        found = parse_level(self.level)
        assert found is not None, "the rule of its row has let it through"
        return found


def make_config(properties: Mapping[str, str]) -> Config:
    config = read_settings(Config(), properties)
    http = read_http_settings(properties, config.http.listener, realm=_REALM)
    if config.authentication.upper() != "BASIC":
        http = replace(http, users_file=None, kafka_users=False)
    elif not http.demands_logins:
        raise ConfigProblem(
            "authentication.method", "BASIC", "it needs pessoa.authentication.users.file or pessoa.authentication.kafka"
        )
    log_unknown(log, properties, (Config, HttpSettings), (_PREFIX, LISTENERS))
    for_clients = {key: value for key, value in properties.items() if key not in _STORE_KEYS}
    clients = settings_below(for_clients, _PREFIX)
    return replace(config, http=http, client_settings=clients)
