"""The settings of a registry, under the names that the JVM registry has for them.

A file of properties, and overrides of single keys. Settings for the connection to Kafka have the prefix `kafkastore.`:
`kafkastore.bootstrap.servers`, `kafkastore.security.protocol`, `kafkastore.sasl.*`, `kafkastore.ssl.*`. The rest is
about the service itself. A key that means nothing here (the JVM registry has some two hundred) is accepted and ignored,
so that an existing file can be used; what is ours alone starts with `pessoa.`.

    listeners                          http://0.0.0.0:8081; https:// with ssl.keystore.location (PEM, with the key)
    ssl.client.authentication=REQUIRED callers must show a certificate of ssl.truststore.location (PEM)
    host.name                          how other instances reach this one
    schema.registry.group.id           instances with the same group share the work and one leader
    authentication.method=BASIC        with pessoa.authentication.users.file (see web/auth.py)
    pessoa.group.session.timeout.ms    how long a leader that says nothing stays leader
"""

from __future__ import annotations

import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from pessoa.schema_registry.compatibility.levels import Level, parse_level

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


class BadConfig(Exception):
    """A setting that cannot be used; the sentence names it."""


@dataclass(frozen=True, slots=True)
class Config:
    bootstrap_servers: str = "localhost:9092"
    # For Kafka clients, under the names of the Java clients.
    client_settings: Mapping[str, str] = field(default_factory=dict)
    topic: str = "_schemas"
    replication_factor: int = 3
    timeout_ms: int = 500
    init_timeout_ms: int = 60_000
    group_id: str = "schema-registry"
    session_timeout_ms: int = 10_000
    listen_host: str = "0.0.0.0"  # noqa: S104 - as the JVM registry does
    listen_port: int = DEFAULT_PORT
    scheme: str = "http"
    host_name: str = field(default_factory=socket.gethostname)
    is_eligible: bool = True
    # How long a write waits for a leader to be there.
    leader_timeout_ms: int = 30_000
    default_level: Level = Level.BACKWARD
    mode_mutability: bool = True
    users_file: str | None = None
    realm: str = "SchemaRegistry"
    roles: tuple[str, ...] = ()
    certificate: str | None = None
    key_password: str | None = None
    # Whom this instance trusts: other instances, and with `wants_certificates` callers.
    authority: str | None = None
    wants_certificates: bool = False
    body_limit: int = 10 * 1024 * 1024


def make_config(properties: Mapping[str, str]) -> Config:
    reader = _Reader(properties)
    scheme, host, port = _listener(reader)
    default = Config()
    level = reader.text("schema.compatibility.level", "avro.compatibility.level", default="backward")
    parsed_level = parse_level(level)
    if parsed_level is None:
        raise BadConfig(f"schema.compatibility.level={level} is none of {', '.join(each.lower() for each in Level)}")
    method = reader.text("authentication.method", default="NONE").upper()
    users_file = reader.text("pessoa.authentication.users.file", default="") or None
    if method not in ("NONE", "BASIC"):
        raise BadConfig(f"authentication.method={method} is not NONE or BASIC")
    if method == "BASIC" and users_file is None:
        raise BadConfig("authentication.method=BASIC needs pessoa.authentication.users.file")
    certificate = reader.text("ssl.keystore.location", default="") or None
    if scheme == "https" and certificate is None:
        raise BadConfig("a https listener needs ssl.keystore.location: a PEM file with key and certificate")
    authority = reader.text("ssl.truststore.location", default="") or None
    wants_certificates = reader.text("ssl.client.authentication", default="NONE").upper() == "REQUIRED"
    if wants_certificates and authority is None:
        raise BadConfig("ssl.client.authentication=REQUIRED needs ssl.truststore.location: a PEM file of authorities")
    return Config(
        bootstrap_servers=reader.text(
            "kafkastore.bootstrap.servers", "bootstrap.servers", default=default.bootstrap_servers
        ),
        client_settings={
            key.removeprefix(_PREFIX): value
            for key, value in properties.items()
            if key.startswith(_PREFIX) and key not in _STORE_KEYS
        },
        topic=reader.text("kafkastore.topic", default=default.topic),
        replication_factor=reader.number("kafkastore.topic.replication.factor", default.replication_factor),
        timeout_ms=reader.number("kafkastore.timeout.ms", default.timeout_ms),
        init_timeout_ms=reader.number("kafkastore.init.timeout.ms", default.init_timeout_ms),
        group_id=reader.text("schema.registry.group.id", "kafkastore.group.id", default=default.group_id),
        session_timeout_ms=reader.number("pessoa.group.session.timeout.ms", default.session_timeout_ms),
        listen_host=host,
        listen_port=port,
        scheme=scheme,
        host_name=reader.text("host.name", default=default.host_name),
        is_eligible=reader.flag("leader.eligibility", "master.eligibility", default=True),
        leader_timeout_ms=reader.number("pessoa.leader.timeout.ms", default.leader_timeout_ms),
        default_level=parsed_level,
        mode_mutability=reader.flag("mode.mutability", default=True),
        users_file=users_file if method == "BASIC" else None,
        realm=reader.text("authentication.realm", default=default.realm),
        roles=tuple(role.strip() for role in reader.text("authentication.roles", default="*").split(",")),
        certificate=certificate if scheme == "https" else None,
        key_password=reader.text("ssl.key.password", default="") or None,
        authority=authority,
        wants_certificates=wants_certificates,
        body_limit=reader.number("pessoa.request.max.bytes", default.body_limit),
    )


def _listener(reader: _Reader) -> tuple[str, str, int]:
    listeners = reader.text("listeners", default="")
    if not listeners:
        return "http", "0.0.0.0", reader.number("port", DEFAULT_PORT)  # noqa: S104
    first = urlsplit(listeners.split(",")[0].strip())
    if first.scheme not in ("http", "https"):
        raise BadConfig(f"listeners={listeners}: a listener is http://host:port or https://host:port")
    try:
        port = first.port
    except ValueError:
        port = None
    if port is None:
        raise BadConfig(f"listeners={listeners}: the port is missing or no number")
    return first.scheme, first.hostname or "0.0.0.0", port  # noqa: S104


class _Reader:
    def __init__(self, properties: Mapping[str, str]) -> None:
        self._properties = properties

    def text(self, *keys: str, default: str) -> str:
        """The value of the first of these keys that is set."""
        return next((self._properties[key] for key in keys if key in self._properties), default)

    def number(self, key: str, default: int) -> int:
        text = self._properties.get(key, str(default))
        try:
            return int(text)
        except ValueError:
            raise BadConfig(f"{key}={text} is no number") from None

    def flag(self, *keys: str, default: bool) -> bool:
        text = self.text(*keys, default=str(default)).lower()
        if text not in ("true", "false"):
            raise BadConfig(f"{keys[0]}={text} is not true or false")
        return text == "true"
