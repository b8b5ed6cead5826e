"""The proxy's settings: the keys of `kafka-rest.properties`, read once.

Keys without a prefix are the proxy's own. Keys with one are for its Kafka clients: `client.` for all of them, then
`producer.`, `consumer.` or `admin.` for one kind. A few keys that start with `consumer.` are the proxy's all the same
(`consumer.request.timeout.ms`), as they always were; OWN names them.

Files written for the JVM proxy are taken as they are: the settings of its clients are said again in librdkafka's words.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from confluent_kafka import KafkaException

from pessoa.base.config_values import ConfigProblem, at_least, one_of
from pessoa.client.client_errors import BadSettings
from pessoa.client.librdkafka import serialiser_settings, to_librdkafka
from pessoa.client.login_trial import MECHANISMS, can_log_in
from pessoa.client.registry_client import URL as REGISTRY_URL
from pessoa.web.http_settings import LISTENERS, HttpSettings, Listener, parse_listeners, read_http_settings
from pessoa.web.settings import log_unknown, read_settings, setting

logger = logging.getLogger(__name__)

# The last is the callback that gives out tokens.
ClientSettings = dict[str, str | int | float | bool | Callable[[str], tuple[str, float]]]

DEFAULT_PORT = 8082
ADVERTISED = "advertised.listeners"

# The proxy's own keys among those that look like settings of a client.
OWN = frozenset(
    """
    consumer.request.timeout.ms consumer.request.max.bytes consumer.instance.timeout.ms consumer.threads
    consumer.iterator.backoff.ms consumer.iterator.timeout.ms producer.threads client.init.timeout.ms client.timeout.ms
    client.sasl.kerberos.service.name
    """.split()
)

# Settings of the JVM's producer that are not for a client here: the proxy serialises, and chooses partitions, itself.
_OWN_BUSINESS = frozenset((REGISTRY_URL, "partitioner.class"))


@dataclass(frozen=True, slots=True)
class Config:
    """The settings of the proxy; times in milliseconds, sizes in bytes."""

    http: HttpSettings = HttpSettings(Listener("http", "127.0.0.1", DEFAULT_PORT))  # noqa: RUF009 - frozen
    bootstrap_servers: str = setting("bootstrap.servers", "localhost:9092", "Where Kafka is: host:port,…")
    # Both without a value: `base_uri` and v3's links name the host that the caller used.
    host_name: str | None = setting("host.name", None, "How callers reach this proxy.")
    advertised: tuple[Listener, ...] = ()
    server_id: str = setting("id", "", "The name of this proxy in the names of consumer instances.")
    consumer_request_timeout_ms: int = setting("consumer.request.timeout.ms", 1000, "How long a read may take.")
    consumer_request_max_bytes: int = setting("consumer.request.max.bytes", 64 * 1024 * 1024, "How large it may be.")
    consumer_instance_timeout_ms: int = setting("consumer.instance.timeout.ms", 300_000, "When an idle one is closed.")
    consumer_threads: int = setting("consumer.threads", 50, "How many instances are served at a time.")
    fetch_min_bytes: int = setting("fetch.min.bytes", -1, "What a read waits for; -1 is all of its time.")
    v2_enabled: bool = setting("api.v2.enable", True, "Whether the v2 API is served.")
    v3_enabled: bool = setting("api.v3.enable", True, "Whether the v3 API is served.")
    blocked: tuple[str, ...] = setting("api.endpoints.blocklist", (), "Endpoints, or families of them, to leave out.")
    allowed: tuple[str, ...] = setting("api.endpoints.allowlist", (), "The only endpoints to serve, if any are named.")
    batch_maximum_entries: int = setting("api.v3.produce.batch.maximum.entries", 10, "The records of a v3 batch.")
    stream_timeout_ms: int = setting(
        "pessoa.v3.produce.stream.timeout.ms", 3_600_000, "How long one v3 stream may stay open."
    )
    propagates: str = setting(
        "confluent.rest.auth.propagate.method", "NONE",
        "JETTY_AUTH: the proxy logs in to Kafka as its callers, with what they logged in to the proxy with.",
        rule=one_of("NONE", "JETTY_AUTH"),
    )  # fmt: skip
    callers_max: int = setting(
        "pessoa.caller.clients.max", 50, "The callers that have clients at once.", rule=at_least(1)
    )
    callers_idle_ms: int = setting("pessoa.caller.clients.idle.ms", 300_000, "When those of a caller are closed.")
    # For client/registry_client.py, as serialisers are told.
    registry_settings: Mapping[str, str] = field(default_factory=lambda: {REGISTRY_URL: "http://localhost:8081"})
    producer: ClientSettings = field(default_factory=dict)
    consumer: ClientSettings = field(default_factory=dict)
    admin: ClientSettings = field(default_factory=dict)
    # The same settings for our own client, under the JVM's names.
    java_admin: Mapping[str, str] = field(default_factory=dict)

    @property
    def acts_as_callers(self) -> bool:
        return self.propagates == "JETTY_AUTH"


def from_properties(given: Mapping[str, str]) -> Config:
    own = {key: value for key, value in given.items() if key in OWN or not key.startswith(CLIENT_PREFIXES)}
    for_clients = {key: value for key, value in given.items() if key not in own}
    config = read_settings(Config(), own)
    bootstrap_servers = _without_protocols(config.bootstrap_servers)

    def of_client(prefix: str) -> dict[str, str]:
        """Return the settings of one kind of client: those with `client.` first, so that the keys with `prefix` win."""
        return {
            key.removeprefix(each): value
            for each in ("client.", prefix)
            for key, value in for_clients.items()
            if key.startswith(each)
        }

    def settings_of(prefix: str) -> ClientSettings:
        return {"bootstrap.servers": bootstrap_servers, **_to_librdkafka_settings(of_client(prefix))}

    log_unknown(logger, own, (Config, HttpSettings), (LISTENERS, ADVERTISED, *serialiser_settings(own), *OWN))
    http = read_http_settings(own, config.http.listener)
    if config.acts_as_callers:
        _check_propagation(http, of_client("admin."))
    return replace(
        config,
        bootstrap_servers=bootstrap_servers,
        http=http,
        advertised=tuple(parse_listeners(own.get(ADVERTISED, ""), key=ADVERTISED)),
        consumer_threads=max(1, config.consumer_threads),
        registry_settings={**config.registry_settings, **serialiser_settings(given)},
        producer=settings_of("producer."),
        consumer=settings_of("consumer."),
        admin=settings_of("admin."),
        java_admin=of_client("admin."),
    )


def _check_propagation(http: HttpSettings, client: Mapping[str, str]) -> None:
    key = "confluent.rest.auth.propagate.method"
    if not http.demands_logins:
        raise ConfigProblem(key, "JETTY_AUTH", "callers must log in: set pessoa.authentication.kafka or …users.file")
    if not client.get("security.protocol", "").upper().startswith("SASL_"):
        raise ConfigProblem(key, "JETTY_AUTH", "client.security.protocol must be SASL_SSL or SASL_PLAINTEXT")
    # Callers with tokens log in with OAUTHBEARER, however the proxy does; callers with passwords as the proxy does.
    if http.takes_passwords and not can_log_in(client):
        raise ConfigProblem(key, "JETTY_AUTH", f"client.sasl.mechanism must be {' or '.join(MECHANISMS)}")


def _to_librdkafka_settings(java: Mapping[str, str]) -> dict[str, str]:
    wanted = {key: value for key, value in java.items() if key not in _OWN_BUSINESS}
    if "request.timeout.ms" in wanted:
        # librdkafka has a key of that name too, but it is only about acknowledgements.
        wanted["socket.timeout.ms"] = wanted.pop("request.timeout.ms")
    try:
        return to_librdkafka(wanted, logger.warning)
    except KafkaException as wrong:
        raise ConfigProblem("a setting of a client", None, wrong.args[0].str()) from None
    except (ValueError, BadSettings) as wrong:
        raise ConfigProblem("a setting of a client", None, str(wrong)) from None


CLIENT_PREFIXES = ("client.", "producer.", "consumer.", "admin.")


def _without_protocols(servers: str) -> str:
    """Return `a:1,b:2` for `PLAINTEXT://a:1,b:2`: the JVM proxy takes both."""
    return ",".join(server.strip().rpartition("://")[2] for server in servers.split(","))
