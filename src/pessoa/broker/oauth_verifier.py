"""What verifies the tokens of a listener, and the token that this node presents, as `oauth_settings.py` finds them set.

It is imported where OAUTHBEARER is used: reading tokens and keys takes a JSON decoder and an HTTP client, which are
megabytes of memory.

The authorities that an https: URL is trusted by are the system's, or those of `ssl.truststore.location` among the
options of the listener's `sasl.jaas.config`, where Kafka has them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from pessoa.base.config_keys.broker_keys import BROKER_CONFIGS
from pessoa.base.config_values import ConfigProblem
from pessoa.broker.oauth_settings import KEYS_URL, PREFIX, find_setting, has_keys
from pessoa.security.jwt.json_web_tokens import MAX_TOKEN_CHARACTERS, TokenRules
from pessoa.security.jwt.key_reader import KeyReader, SystemReader, Unreadable
from pessoa.security.jwt.key_sources import Intervals
from pessoa.security.jwt.token_verifier import (
    BadKeyLocation,
    KeyLocation,
    TokenVerifier,
    is_allowed,
    open_verifier,
    parse_location,
)

if TYPE_CHECKING:
    import ssl
    from collections.abc import Mapping

    from pessoa.base.clock import Clock
    from pessoa.base.config_values import Value
    from pessoa.broker.config import BrokerConfig

_TOKEN_URL = f"{PREFIX}token.endpoint.url"
# Our name, and the one that Apache Kafka has for the same.
_ALLOWED_URLS = ("pessoa.sasl.oauthbearer.allowed.urls", "org.apache.kafka.sasl.oauthbearer.allowed.urls")
_ALLOWED_FILES = ("pessoa.sasl.oauthbearer.allowed.files", "org.apache.kafka.sasl.oauthbearer.allowed.files")


def check_verifier(config: BrokerConfig, listener: str) -> None:
    """Raise a `ConfigProblem` if the token settings of a listener with keys are invalid."""
    _allowed_location(config, listener, KEYS_URL)
    _rules(config, listener)
    _intervals(config, listener)


def make_verifier(
    config: BrokerConfig,
    listener: str,
    clock: Clock,
    reader: KeyReader | None = None,
    jaas_options: Mapping[str, str] | None = None,
) -> TokenVerifier | None:
    """Return the verifier of a listener's tokens; None if it has no keys. Reads a file. Raises a `ConfigProblem`."""
    if not has_keys(config, listener):
        return None
    location = _allowed_location(config, listener, KEYS_URL)
    reader = reader or _system_reader(jaas_options or {})
    try:
        return open_verifier(location, _rules(config, listener), reader, clock, _intervals(config, listener))
    except BadKeyLocation as problem:
        raise ConfigProblem(find_setting(config, listener, KEYS_URL).key, location.text, str(problem)) from None


def node_token(config: BrokerConfig, listener: str) -> str:
    """Return the token with which this node logs in to others on a listener. Raises a `ConfigProblem`."""
    key = find_setting(config, listener, _TOKEN_URL).key
    if not find_setting(config, listener, _TOKEN_URL).value:
        raise ConfigProblem(key, None, "it must be the file: URL of the token with which this node logs in to others")
    location = _allowed_location(config, listener, _TOKEN_URL)
    if location.path is None:
        raise ConfigProblem(key, location.text, "a node takes its token from a file: URL")
    try:
        return SystemReader().read_file(location.path, MAX_TOKEN_CHARACTERS).decode("ascii", "replace").strip()
    except Unreadable as failure:
        raise ConfigProblem(key, location.text, f"no token can be read: {failure}") from None


def _allowed_location(config: BrokerConfig, listener: str, name: str) -> KeyLocation:
    key, value = find_setting(config, listener, name)
    text = str(value)
    try:
        location = parse_location(text)
    except BadKeyLocation as problem:
        raise ConfigProblem(key, text, str(problem)) from None
    if not is_allowed(location, _allowed_locations(config, _ALLOWED_URLS), _allowed_locations(config, _ALLOWED_FILES)):
        ours, apaches = _ALLOWED_URLS if location.path is None else _ALLOWED_FILES
        why = f"it must be among {ours}, or {apaches} as Apache Kafka calls it; add it there"
        raise ConfigProblem(key, text, why)
    return location


def _allowed_locations(config: BrokerConfig, keys: tuple[str, ...]) -> list[str]:
    return [
        text for key in keys for text in cast("tuple[str, ...]", BROKER_CONFIGS[key].parse(config.static.get(key, "")))
    ]


def _rules(config: BrokerConfig, listener: str) -> TokenRules:
    def find(name: str) -> Value:
        return find_setting(config, listener, PREFIX + name).value

    issuer = find("expected.issuer")
    return TokenRules(
        frozenset(cast("tuple[str, ...]", find("expected.audience"))),
        None if issuer is None else str(issuer),
        cast("int", find("clock.skew.seconds")),
        str(find("sub.claim.name")),
        str(find("scope.claim.name")),
    )


def _intervals(config: BrokerConfig, listener: str) -> Intervals:
    names = ("refresh.ms", "retry.backoff.ms", "retry.backoff.max.ms")
    found = [find_setting(config, listener, f"{PREFIX}jwks.endpoint.{name}") for name in names]
    for key, value in found:
        if cast("int", value) < 1:
            raise ConfigProblem(key, str(value), "it must be at least 1")
    return Intervals(*(cast("int", value) for _, value in found))


def _system_reader(options: Mapping[str, str]) -> SystemReader:
    from pessoa.security.tls.settings import TlsSettings

    settings = TlsSettings.of(options)
    if not settings.has_trust_store:
        return SystemReader()

    def context() -> ssl.SSLContext:
        from pessoa.security.tls.contexts import client_context

        return client_context(settings)

    # Now, so that what is wrong with the store is said at the start.
    context()
    return SystemReader(context)
