"""The proxy's settings: the keys of `kafka-rest.properties`, read once.

Keys without a prefix are the proxy's own. Keys with one are for its Kafka clients: `client.` for all of them, then
`producer.`, `consumer.` or `admin.` for one kind. A few keys that start with `consumer.` are the proxy's all the same
(`consumer.request.timeout.ms`), as they always were; OWN names them.

Files written for the JVM proxy are taken as they are: the settings of its clients are said again in librdkafka's words.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from confluent_kafka import KafkaException

from pessoa.client.librdkafka import translated

logger = logging.getLogger(__name__)

ClientSettings = dict[str, str | int | float | bool]

DEFAULT_PORT = 8082
# `http://:8082`, as the JVM's listeners are often written.
ANY_ADDRESS = "0.0.0.0"  # noqa: S104

# The proxy's own keys among those that look like settings of a client.
OWN = frozenset(
    """
    consumer.request.timeout.ms consumer.request.max.bytes consumer.instance.timeout.ms consumer.threads
    consumer.iterator.backoff.ms consumer.iterator.timeout.ms producer.threads client.init.timeout.ms client.timeout.ms
    client.sasl.kerberos.service.name
    """.split()
)

# Settings of the JVM's producer that are not for a client here: the proxy serialises, and chooses partitions, itself.
_OWN_BUSINESS = frozenset(("schema.registry.url", "partitioner.class"))


class WrongSetting(ValueError):
    """A key or value that cannot be used; the text says which and why."""


@dataclass(frozen=True, slots=True)
class Listener:
    scheme: str
    host: str
    port: int


@dataclass(frozen=True, slots=True)
class Config:
    """What was configured; times in milliseconds, sizes in bytes."""

    bootstrap_servers: str = "localhost:9092"
    schema_registry_url: str = "http://localhost:8081"
    listener: Listener = Listener("http", "127.0.0.1", DEFAULT_PORT)
    # Both None: `base_uri` and v3's links name whatever host the caller used.
    host_name: str | None = None
    advertised: tuple[Listener, ...] = ()
    server_id: str = ""
    consumer_request_timeout_ms: int = 1000
    consumer_request_max_bytes: int = 64 * 1024 * 1024
    consumer_instance_timeout_ms: int = 300_000
    consumer_threads: int = 50
    fetch_min_bytes: int = -1
    v2_enabled: bool = True
    v3_enabled: bool = True
    blocked: frozenset[str] = frozenset()
    allowed: frozenset[str] = frozenset()
    batch_maximum_entries: int = 10
    # A body is held in memory whole, unlike a v3 stream.
    request_max_bytes: int = 10 * 1024 * 1024
    # How long one v3 stream may stay open.
    stream_timeout_ms: int = 3_600_000
    users_file: str | None = None
    roles: tuple[str, ...] = ()
    tls_certificate: str | None = None
    tls_key: str | None = None
    tls_key_password: str | None = None
    tls_client_authority: str | None = None
    registry_settings: Mapping[str, str] = field(default_factory=dict)
    producer: ClientSettings = field(default_factory=dict)
    consumer: ClientSettings = field(default_factory=dict)
    admin: ClientSettings = field(default_factory=dict)
    # The same again for our own client, which speaks the JVM's words.
    java_admin: Mapping[str, str] = field(default_factory=dict)


def from_properties(given: Mapping[str, str]) -> Config:
    defaults = Config()
    own = {key: value for key, value in given.items() if key in OWN or not key.startswith(CLIENT_PREFIXES)}
    for_clients = {key: value for key, value in given.items() if key not in own}
    bootstrap_servers = _without_protocols(own.get("bootstrap.servers", defaults.bootstrap_servers))

    def of_client(prefix: str) -> dict[str, str]:
        """`client.` first, so that a client's own keys win."""
        return {
            key.removeprefix(each): value
            for each in ("client.", prefix)
            for key, value in for_clients.items()
            if key.startswith(each)
        }

    def settings_of(prefix: str) -> ClientSettings:
        return {"bootstrap.servers": bootstrap_servers, **_in_librdkafkas_words(of_client(prefix))}

    return Config(
        bootstrap_servers=bootstrap_servers,
        schema_registry_url=own.get("schema.registry.url", defaults.schema_registry_url),
        listener=_listener(own),
        host_name=own.get("host.name") or None,
        advertised=tuple(_listeners(own.get("advertised.listeners", ""))),
        server_id=own.get("id", ""),
        consumer_request_timeout_ms=_number(own, "consumer.request.timeout.ms", 1000),
        consumer_request_max_bytes=_number(own, "consumer.request.max.bytes", defaults.consumer_request_max_bytes),
        consumer_instance_timeout_ms=_number(own, "consumer.instance.timeout.ms", 300_000),
        consumer_threads=max(1, _number(own, "consumer.threads", 50)),
        fetch_min_bytes=_number(own, "fetch.min.bytes", -1),
        v2_enabled=_flag(own, "api.v2.enable", True),
        v3_enabled=_flag(own, "api.v3.enable", True),
        blocked=_names(own.get("api.endpoints.blocklist", "")),
        allowed=_names(own.get("api.endpoints.allowlist", "")),
        batch_maximum_entries=_number(own, "api.v3.produce.batch.maximum.entries", 10),
        request_max_bytes=_number(own, "pessoa.request.max.bytes", defaults.request_max_bytes),
        stream_timeout_ms=_number(own, "pessoa.v3.produce.stream.timeout.ms", defaults.stream_timeout_ms),
        users_file=own.get("pessoa.authentication.users.file"),
        roles=tuple(sorted(_names(own.get("authentication.roles", "")))),
        tls_certificate=own.get("ssl.keystore.location"),
        tls_key=own.get("pessoa.ssl.key.location", own.get("ssl.keystore.location")),
        tls_key_password=own.get("ssl.key.password"),
        tls_client_authority=_client_authority(own),
        registry_settings={key: value for key, value in given.items() if key.startswith("schema.registry.")},
        producer=settings_of("producer."),
        consumer=settings_of("consumer."),
        admin=settings_of("admin."),
        java_admin=of_client("admin."),
    )


def _in_librdkafkas_words(java: Mapping[str, str]) -> dict[str, str]:
    wanted = {key: value for key, value in java.items() if key not in _OWN_BUSINESS}
    if "request.timeout.ms" in wanted:
        # librdkafka has a key of that name too, but it is only about acknowledgements.
        wanted["socket.timeout.ms"] = wanted.pop("request.timeout.ms")
    try:
        return translated(wanted, logger.warning)
    except KafkaException as wrong:
        raise WrongSetting(wrong.args[0].str()) from None
    except ValueError as wrong:
        raise WrongSetting(f"a setting of a client: {wrong}") from None


def _client_authority(own: Mapping[str, str]) -> str | None:
    """Whose certificates callers must show, if any: under the newer key, or under the older."""
    asked = own.get("ssl.client.authentication", "").upper() == "REQUIRED" or own.get("ssl.client.auth") == "true"
    if asked and "ssl.truststore.location" not in own:
        raise WrongSetting("callers need certificates: ssl.truststore.location must name a PEM file of authorities")
    return own["ssl.truststore.location"] if asked else None


CLIENT_PREFIXES = ("client.", "producer.", "consumer.", "admin.")


def _without_protocols(servers: str) -> str:
    """`PLAINTEXT://a:1,b:2` → `a:1,b:2`: the JVM proxy takes both."""
    return ",".join(server.strip().rpartition("://")[2] for server in servers.split(","))


def _listener(own: Mapping[str, str]) -> Listener:
    found = _listeners(own.get("listeners", ""))
    if found:
        return found[0]
    return Listener("http", Config().listener.host, _number(own, "port", DEFAULT_PORT))


def _listeners(text: str) -> list[Listener]:
    found = []
    for item in filter(None, (item.strip() for item in text.split(","))):
        parts = urlsplit(item)
        try:
            port = parts.port
        except ValueError:
            port = None
        if parts.scheme not in ("http", "https") or port is None:
            raise WrongSetting(f"{item!r} is not a listener; write http://host:port or https://host:port")
        found.append(Listener(parts.scheme, parts.hostname or ANY_ADDRESS, port))
    return found


def _names(text: str) -> frozenset[str]:
    return frozenset(name.strip() for name in text.split(",") if name.strip())


def _number(own: Mapping[str, str], key: str, default: int) -> int:
    try:
        return int(own.get(key, default))
    except ValueError:
        raise WrongSetting(f"{key} is {own[key]!r}; it must be a whole number") from None


def _flag(own: Mapping[str, str], key: str, default: bool) -> bool:
    text = own.get(key, str(default)).lower()
    if text not in ("true", "false"):
        raise WrongSetting(f"{key} is {own[key]!r}; it must be true or false")
    return text == "true"
