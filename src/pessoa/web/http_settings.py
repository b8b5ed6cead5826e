"""Where a service listens, which users it lets in and how large a body may be: the keys that all services have.

listeners                           http://0.0.0.0:8081; https:// with ssl.keystore.location. The first one counts.
port                                without listeners
ssl.keystore.location               PEM: certificate and key
ssl.client.authentication=REQUIRED  callers must show a certificate of ssl.truststore.location (PEM)
pessoa.authentication.users.file    who may come in, with HTTP Basic (auth.py); authentication.roles says which of them
pessoa.authentication.kafka         or who may log in to the Kafka cluster, by the same password (kafka_users.py)
oauthbearer.jwks.endpoint.url       the keys (JWKS: https:, http: or file:) of who gives out bearer tokens with which
                                    callers may come in; oauthbearer.expected.audience and .issuer say which tokens

The keys of oauthbearer.* are Confluent's. Brokers have a list of places that keys may come from; a service has not, for
nothing changes its settings but its own file.
"""

from __future__ import annotations

import ssl
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from urllib.parse import urlsplit

from pessoa.base.clock import SystemClock
from pessoa.base.config_values import ConfigProblem, at_least, between, one_of
from pessoa.client.login_trial import MECHANISMS, can_log_in
from pessoa.security.jwt.json_web_tokens import TokenRules
from pessoa.security.jwt.key_reader import SystemReader
from pessoa.security.jwt.key_sources import Intervals
from pessoa.security.jwt.token_verifier import BadKeyLocation, TokenVerifier, open_verifier, parse_location
from pessoa.web.asgi_app import App
from pessoa.web.auth import Authenticator, BasicAuth, BearerAuth, read_users
from pessoa.web.kafka_users import KafkaUsers, brokers_say
from pessoa.web.serving import Tls, bind, serve_until_signalled
from pessoa.web.settings import read_settings, setting
from pessoa.web.trust import tls_context

ANY_ADDRESS = "0.0.0.0"  # noqa: S104 - `http://:8082`, as the JVM's listeners are often written
LISTENERS = "listeners"
# Kafka's operations on a cluster, with their numbers.
OPERATIONS = {"NONE": None, "CREATE": 5, "ALTER": 7, "DESCRIBE": 8, "DESCRIBE_CONFIGS": 10, "ALTER_CONFIGS": 11}


@dataclass(frozen=True, slots=True)
class Listener:
    scheme: str
    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.scheme}://{self.host}:{self.port}"


def parse_listeners(
    text: str, *, key: str = LISTENERS, schemes: tuple[str, ...] = ("http", "https"), default_port: int | None = None
) -> list[Listener]:
    """Return the listeners in `http://host:port,https://…`; without a `default_port` each must have a port."""
    found = []
    for item in filter(None, (item.strip() for item in text.split(","))):
        parts = urlsplit(item)
        try:
            port = default_port if parts.port is None else parts.port
        except ValueError:
            port = None
        if parts.scheme not in schemes or port is None:
            raise ConfigProblem(key, item, f"it must be {' or '.join(f'{scheme}://host:port' for scheme in schemes)}")
        found.append(Listener(parts.scheme, parts.hostname or ANY_ADDRESS, port))
    return found


@dataclass(frozen=True, slots=True)
class HttpSettings:
    listener: Listener
    port: int = setting("port", -1, "Where to listen, if there are no listeners.", rule=between(-1, 65535))
    certificate: str | None = setting("ssl.keystore.location", None, "A PEM file: certificate and key.")
    key: str | None = setting("pessoa.ssl.key.location", None, "A PEM file with the key, if it stands by itself.")
    key_password: str | None = setting("ssl.key.password", None, "The password of the key.")
    authority: str | None = setting("ssl.truststore.location", None, "A PEM file: trusted certificates.")
    client_authentication: str = setting("ssl.client.authentication", "NONE", "REQUIRED: callers show a certificate.")
    client_auth: bool = setting("ssl.client.auth", False, "The older key for the same.")
    users_file: str | None = setting("pessoa.authentication.users.file", None, "Users, in Jetty's form.")
    kafka_users: bool = setting(
        "pessoa.authentication.kafka", False, "Whether callers are the users of the Kafka cluster."
    )
    kafka_operation: str = setting(
        "pessoa.authentication.kafka.operation", "NONE", "What they must be allowed to do to the cluster as well.",
        rule=one_of(*OPERATIONS),
    )  # fmt: skip
    remember_ms: int = setting(
        "pessoa.authentication.remember.ms", 30_000, "How long a login of such a user counts without another trial.",
        rule=at_least(0),
    )  # fmt: skip
    realm: str = setting("authentication.realm", "pessoa", "What a browser shows that asks for a password.")
    roles: tuple[str, ...] = setting("authentication.roles", (), "Which roles may come in; none, or *: all.")
    keys_url: str | None = setting("oauthbearer.jwks.endpoint.url", None, "The keys that verify bearer tokens.")
    audiences: tuple[str, ...] = setting("oauthbearer.expected.audience", (), "Of which a token must name one.")
    issuer: str | None = setting("oauthbearer.expected.issuer", None, "The issuer that a token must have.")
    subject_claim: str = setting("oauthbearer.sub.claim.name", "sub", "The claim that says who the caller is.")
    scope_claim: str = setting("oauthbearer.scope.claim.name", "scope", "The claim that has the scopes.")
    skew_s: int = setting("oauthbearer.clock.skew.seconds", 30, "How far clocks may be apart.", rule=at_least(0))
    refresh_ms: int = setting(
        "oauthbearer.jwks.endpoint.refresh.ms", 3_600_000, "How often keys are fetched again.", rule=at_least(1)
    )
    keys_authority: str | None = setting(
        "pessoa.oauthbearer.ssl.truststore.location", None, "A PEM file: whom the host of the keys is trusted by."
    )
    # A body is held in memory whole, unlike a stream.
    request_max_bytes: int = setting("pessoa.request.max.bytes", 10 * 1024 * 1024, "The largest body of a request.")

    @property
    def demands_certificates(self) -> bool:
        return self.client_auth or self.client_authentication.upper() == "REQUIRED"

    @property
    def tls(self) -> Tls | None:
        if self.listener.scheme != "https":
            return None
        assert self.certificate is not None
        demanded = self.authority if self.demands_certificates else None
        return Tls(self.certificate, self.key or self.certificate, self.key_password, demanded)

    @property
    def trust(self) -> ssl.SSLContext | bool:
        """What an instance of the service verifies another instance by: a TLS context with its own certificate; True
        without https."""
        if self.listener.scheme != "https":
            return True
        return tls_context(self.authority, self.certificate, self.key_password)

    @property
    def takes_passwords(self) -> bool:
        return self.kafka_users or self.users_file is not None

    @property
    def demands_logins(self) -> bool:
        return self.takes_passwords or self.keys_url is not None

    def authenticator(self, servers: str, client: Mapping[str, str]) -> Authenticator | None:
        """Return the authenticator; None if no login is needed. `client` are the service's own settings as a Kafka
        client, with Java's names. Raises a `ConfigProblem`."""
        with_password = self._of_passwords(servers, client)
        verifier = self.verifier()
        if verifier is None:
            return with_password
        return BearerAuth(verifier, SystemClock().now_ms, realm=self.realm, roles=self.roles, also=with_password)

    def _of_passwords(self, servers: str, client: Mapping[str, str]) -> Authenticator | None:
        if self.kafka_users:
            if not can_log_in(client):
                raise ConfigProblem(
                    "pessoa.authentication.kafka", "true",
                    "the service itself must log in to Kafka with security.protocol=SASL_SSL or SASL_PLAINTEXT and a"
                    f" sasl.mechanism of {', '.join(MECHANISMS)}; that is how the logins of callers are tried",
                )  # fmt: skip
            operation = OPERATIONS[self.kafka_operation]
            ask = brokers_say(servers, client, with_operations=operation is not None)
            return KafkaUsers(ask, self.remember_ms, self.realm, operation)
        if self.users_file is None:
            return None
        return BasicAuth(read_users(self.users_file), realm=self.realm, roles=self.roles)

    def verifier(self) -> TokenVerifier | None:
        """Return the verifier of bearer tokens; None if they are refused. Raises a `ConfigProblem`."""
        if self.keys_url is None:
            return None
        rules = TokenRules(frozenset(self.audiences), self.issuer, self.skew_s, self.subject_claim, self.scope_claim)
        reader = SystemReader(partial(tls_context, self.keys_authority)) if self.keys_authority else SystemReader()
        try:
            location = parse_location(self.keys_url)
            return open_verifier(location, rules, reader, SystemClock(), Intervals(refresh_ms=self.refresh_ms))
        except BadKeyLocation as problem:
            raise ConfigProblem("oauthbearer.jwks.endpoint.url", self.keys_url, str(problem)) from None


def read_http_settings(properties: Mapping[str, str], default: Listener, *, realm: str = "pessoa") -> HttpSettings:
    """Return the HTTP settings, which are the same for all services; `default` is the listener if none is set."""
    found = read_settings(HttpSettings(default, realm=realm), properties)
    listeners = parse_listeners(properties.get(LISTENERS, ""))
    if listeners:
        found = replace(found, listener=listeners[0])
    elif found.port >= 0:
        found = replace(found, listener=replace(default, port=found.port))
    if found.listener.scheme == "https" and found.certificate is None:
        raise ConfigProblem(
            "ssl.keystore.location", None, "an https listener needs it: a PEM file with certificate and key"
        )
    if found.kafka_users and found.users_file is not None:
        raise ConfigProblem(
            "pessoa.authentication.kafka", "true", "there is pessoa.authentication.users.file as well; take one of them"
        )
    if found.keys_url is not None and found.kafka_operation != "NONE":
        raise ConfigProblem(
            "pessoa.authentication.kafka.operation", found.kafka_operation,
            "it says nothing about callers with tokens; without it, authentication.roles can demand a scope of them",
        )  # fmt: skip
    # An error in the location of the keys is raised now.
    found.verifier()
    if found.demands_certificates and found.authority is None:
        raise ConfigProblem(
            "ssl.truststore.location", None, "callers need certificates: it must name a PEM file of authorities"
        )
    return found


def serve_service(make: Callable[[int], Awaitable[App]], http: HttpSettings, tell: Callable[[str], object]) -> int:
    """Run a service as a process until a signal stops it, and return the exit status. `make` is called with the
    port."""
    try:
        listening = bind(http.listener.host, http.listener.port)
    except OSError as failure:
        tell(str(failure.strerror))
        return 1

    async def make_app() -> App:
        return await make(listening.getsockname()[1])

    return serve_until_signalled(make_app, http.listener.host, 0, tls=http.tls, listening=listening, tell=tell)
