"""What the configuration of a node says about OAUTHBEARER: which tokens a listener takes, and which one nodes present.

    sasl.oauthbearer.jwks.endpoint.url          the keys that verify tokens: https:, http: or file:
    sasl.oauthbearer.expected.audience, .expected.issuer, .clock.skew.seconds, .sub.claim.name, .scope.claim.name
    sasl.oauthbearer.jwks.endpoint.refresh.ms, .retry.backoff.ms, .retry.backoff.max.ms
    sasl.oauthbearer.token.endpoint.url         a file: with the token that this node presents to others
    pessoa.sasl.oauthbearer.allowed.urls, .files  which of those places are allowed

Each but the last is looked for as in Kafka: under `listener.name.{listener}.oauthbearer.`, then `listener.name.
{listener}.`, then by itself. All of them hold as the file of the node has them, and no request changes them: whoever
could would choose whose tokens are taken, and make the node read files and ask hosts (CVE-2025-27817).

The authorities that an https: URL is trusted by are the system's, or those of `ssl.truststore.location` among the
options of the listener's `sasl.jaas.config`, where Kafka has them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, cast

from pessoa.base.config_keys.broker_keys import BROKER_CONFIGS
from pessoa.base.config_values import ConfigProblem
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

_PREFIX = "sasl.oauthbearer."
_KEYS_URL = f"{_PREFIX}jwks.endpoint.url"
_TOKEN_URL = f"{_PREFIX}token.endpoint.url"
# Our name, and the one that Apache Kafka has for the same.
_ALLOWED_URLS = ("pessoa.sasl.oauthbearer.allowed.urls", "org.apache.kafka.sasl.oauthbearer.allowed.urls")
_ALLOWED_FILES = ("pessoa.sasl.oauthbearer.allowed.files", "org.apache.kafka.sasl.oauthbearer.allowed.files")
_PACKAGE = "org.apache.kafka.common.security.oauthbearer."
# Classes of Apache Kafka that do what is done here, by the names of Kafka 4 and of Kafka 3.
SERVER_HANDLERS = tuple(f"{_PACKAGE}{part}OAuthBearerValidatorCallbackHandler" for part in ("", "secured."))
LOGIN_HANDLERS = tuple(f"{_PACKAGE}{part}OAuthBearerLoginCallbackHandler" for part in ("", "secured."))
VALIDATORS = (f"{_PACKAGE}DefaultJwtValidator", f"{_PACKAGE}BrokerJwtValidator")


class _Found(NamedTuple):
    key: str
    value: Value


def _value(config: BrokerConfig, listener: str, name: str) -> _Found:
    """The value for a listener out of the node's own file, and the key that has it."""
    before = f"listener.name.{listener.lower()}."
    for key in (f"{before}oauthbearer.{name}", f"{before}{name}", name):
        if key in config.static:
            try:
                return _Found(key, BROKER_CONFIGS[name].parse(config.static[key]))
            except ConfigProblem as problem:
                raise ConfigProblem(key, problem.value, problem.why) from None
    return _Found(f"{before}oauthbearer.{name}", BROKER_CONFIGS[name].default)


def has_keys(config: BrokerConfig, listener: str) -> bool:
    """Whether a listener has been told where the keys are."""
    return bool(_value(config, listener, _KEYS_URL).value)


def check_tokens(config: BrokerConfig, listener: str, *, is_offered: bool) -> None:
    """Raise a `ConfigProblem` if the listener offers OAUTHBEARER without keys, or names what it may not."""
    if not has_keys(config, listener):
        if is_offered:
            key = _value(config, listener, _KEYS_URL).key
            why = "OAUTHBEARER needs it: without keys no token could be verified (https:, http: or file: URL of a JWKS)"
            raise ConfigProblem(key, None, why)
        return
    _allowed_location(config, listener, _KEYS_URL)
    _rules(config, listener)
    _intervals(config, listener)


def make_verifier(
    config: BrokerConfig,
    listener: str,
    clock: Clock,
    reader: KeyReader | None = None,
    jaas_options: Mapping[str, str] | None = None,
) -> TokenVerifier | None:
    """What verifies the tokens of a listener; None if it has no keys. A file is read. Raises a `ConfigProblem`."""
    if not has_keys(config, listener):
        return None
    location = _allowed_location(config, listener, _KEYS_URL)
    reader = reader or _system_reader(jaas_options or {})
    try:
        return open_verifier(location, _rules(config, listener), reader, clock, _intervals(config, listener))
    except BadKeyLocation as problem:
        raise ConfigProblem(_value(config, listener, _KEYS_URL).key, location.text, str(problem)) from None


def node_token(config: BrokerConfig, listener: str) -> str:
    """The token that this node presents where it reaches others through a listener. Raises a `ConfigProblem`."""
    key = _value(config, listener, _TOKEN_URL).key
    if not _value(config, listener, _TOKEN_URL).value:
        raise ConfigProblem(key, None, "it must be the file: URL of the token with which this node logs in to others")
    location = _allowed_location(config, listener, _TOKEN_URL)
    if location.path is None:
        raise ConfigProblem(key, location.text, "a node takes its token from a file: URL")
    try:
        return SystemReader().read_file(location.path, MAX_TOKEN_CHARACTERS).decode("ascii", "replace").strip()
    except Unreadable as failure:
        raise ConfigProblem(key, location.text, f"no token can be read: {failure}") from None


def changed_oauth_problem(configs: Mapping[str, str]) -> ConfigProblem | None:
    """What is wrong with settings that are to change while a broker runs, if they are of OAUTHBEARER."""
    for name in configs:
        if _PREFIX in name:
            why = "it can stand in the file of a node alone: it says whose tokens are taken"
            return ConfigProblem(name, None, why, is_invalid_request=True)
    return None


def _allowed_location(config: BrokerConfig, listener: str, name: str) -> KeyLocation:
    key, value = _value(config, listener, name)
    text = str(value)
    try:
        location = parse_location(text)
    except BadKeyLocation as problem:
        raise ConfigProblem(key, text, str(problem)) from None
    if not is_allowed(location, _allowed(config, _ALLOWED_URLS), _allowed(config, _ALLOWED_FILES)):
        ours, apaches = _ALLOWED_URLS if location.path is None else _ALLOWED_FILES
        why = f"it must be among {ours}, or {apaches} as Apache Kafka calls it; add it there"
        raise ConfigProblem(key, text, why)
    return location


def _allowed(config: BrokerConfig, keys: tuple[str, ...]) -> list[str]:
    return [
        text for key in keys for text in cast("tuple[str, ...]", BROKER_CONFIGS[key].parse(config.static.get(key, "")))
    ]


def _rules(config: BrokerConfig, listener: str) -> TokenRules:
    def find(name: str) -> Value:
        return _value(config, listener, _PREFIX + name).value

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
    found = [_value(config, listener, f"{_PREFIX}jwks.endpoint.{name}") for name in names]
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
