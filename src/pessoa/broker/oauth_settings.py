"""What the configuration of a node says about OAUTHBEARER: which tokens a listener takes, and which one nodes present.

    sasl.oauthbearer.jwks.endpoint.url          the keys that verify tokens: https:, http: or file:
    sasl.oauthbearer.expected.audience, .expected.issuer, .clock.skew.seconds, .sub.claim.name, .scope.claim.name
    sasl.oauthbearer.jwks.endpoint.refresh.ms, .retry.backoff.ms, .retry.backoff.max.ms
    sasl.oauthbearer.token.endpoint.url         a file: with the token that this node presents to others
    pessoa.sasl.oauthbearer.allowed.urls, .files  which of those places are allowed

Each but the last is looked for as in Kafka: under `listener.name.{listener}.oauthbearer.`, then `listener.name.
{listener}.`, then by itself. All of them come from the node's file, and no request changes them: a client that could
would choose whose tokens are accepted, and make the node read files and connect to hosts (CVE-2025-27817).

What is made of them where a listener has keys is in `oauth_verifier.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from pessoa.base.config_keys.broker_keys import BROKER_CONFIGS
from pessoa.base.config_values import ConfigProblem

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pessoa.base.config_values import Value
    from pessoa.broker.config import BrokerConfig

PREFIX = "sasl.oauthbearer."
KEYS_URL = f"{PREFIX}jwks.endpoint.url"
_PACKAGE = "org.apache.kafka.common.security.oauthbearer."
# Classes of Apache Kafka that do what is done here, by the names of Kafka 4 and of Kafka 3.
SERVER_HANDLERS = tuple(f"{_PACKAGE}{part}OAuthBearerValidatorCallbackHandler" for part in ("", "secured."))
LOGIN_HANDLERS = tuple(f"{_PACKAGE}{part}OAuthBearerLoginCallbackHandler" for part in ("", "secured."))
VALIDATORS = (f"{_PACKAGE}DefaultJwtValidator", f"{_PACKAGE}BrokerJwtValidator")


class FoundSetting(NamedTuple):
    key: str
    value: Value


def find_setting(config: BrokerConfig, listener: str, name: str) -> FoundSetting:
    """Return the value for a listener in the node's own file, and the key under which it stands."""
    before = f"listener.name.{listener.lower()}."
    for key in (f"{before}oauthbearer.{name}", f"{before}{name}", name):
        if key in config.static:
            try:
                return FoundSetting(key, BROKER_CONFIGS[name].parse(config.static[key]))
            except ConfigProblem as problem:
                raise ConfigProblem(key, problem.value, problem.why) from None
    return FoundSetting(f"{before}oauthbearer.{name}", BROKER_CONFIGS[name].default)


def has_keys(config: BrokerConfig, listener: str) -> bool:
    """Return whether a listener has a setting for the key set that verifies its tokens."""
    return bool(find_setting(config, listener, KEYS_URL).value)


def check_tokens(config: BrokerConfig, listener: str, *, is_offered: bool) -> None:
    """Raise a `ConfigProblem` if the listener offers OAUTHBEARER without keys, or names a file or URL that is not
    allowed."""
    if not has_keys(config, listener):
        if is_offered:
            key = find_setting(config, listener, KEYS_URL).key
            why = "OAUTHBEARER needs it: without keys no token could be verified (https:, http: or file: URL of a JWKS)"
            raise ConfigProblem(key, None, why)
        return
    # Most nodes have no keys, and need not load what reads tokens.
    from pessoa.broker.oauth_verifier import check_verifier

    check_verifier(config, listener)


def changed_oauth_problem(configs: Mapping[str, str]) -> ConfigProblem | None:
    """Return what is wrong with a dynamic change of OAUTHBEARER settings; None if nothing is."""
    for name in configs:
        if PREFIX in name:
            why = "it can stand in the file of a node alone: it says whose tokens are taken"
            return ConfigProblem(name, None, why, is_invalid_request=True)
    return None
