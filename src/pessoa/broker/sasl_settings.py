"""What the configuration of a node says about SASL.

A listener whose protocol is SASL_PLAINTEXT or SASL_SSL demands a login. For it:

    sasl.enabled.mechanisms                                what is offered; also under `listener.name.{listener}.`
    listener.name.{listener}.{mechanism}.sasl.jaas.config  the users of PLAIN, and what this node itself presents
    …connections.max.reauth.ms                             how long a session lasts, also with a mechanism before it

Brokers log in to each other through `inter.broker.listener.name` with `sasl.mechanism.inter.broker.protocol`, all nodes
to controllers with `sasl.mechanism.controller.protocol`; name and password are the `username` and `password` of the
same `sasl.jaas.config`. As in Kafka, one without listener and mechanism before it is never read. With OAUTHBEARER a
node presents a token out of a file; its settings are read by `oauth_settings.py`.

`check_sasl` refuses what could not work, before anything is on the disk: mechanisms that are not offered here, PLAIN
without users, OAUTHBEARER without keys, a node that could not log in to others.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple, cast

from pessoa.base.config_keys.broker_keys import base_name
from pessoa.base.config_values import ConfigProblem, split_list
from pessoa.broker.config_listeners import SecurityProtocol
from pessoa.broker.oauth_settings import changed_oauth_problem, check_tokens, has_keys
from pessoa.security.sasl.exchange import OAUTHBEARER
from pessoa.security.sasl.scram_keys import ALGORITHMS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pessoa.broker.config import BrokerConfig
    from pessoa.security.sasl.client_login import Credentials
    from pessoa.security.sasl.jaas import Jaas

PLAIN = "PLAIN"
SUPPORTED = (PLAIN, *ALGORITHMS, OAUTHBEARER)
_ENABLED = "sasl.enabled.mechanisms"
_JAAS = "sasl.jaas.config"
_REAUTH = "connections.max.reauth.ms"
_OF_LISTENER = re.compile(r"listener\.name\.([^.]*)\.")
_OF_MECHANISM = re.compile(r"listener\.name\.[^.]*\.([^.]*)\.sasl\.jaas\.config")


class _Route(NamedTuple):
    """How this node connects to brokers, or to controllers: the listener, and the key that names the mechanism."""

    listener: str
    key: str


_INTER_BROKER = "sasl.mechanism.inter.broker.protocol"
_CONTROLLER = "sasl.mechanism.controller.protocol"


def has_sasl(config: BrokerConfig, listener: str) -> bool:
    return config.protocols.get(listener.upper(), SecurityProtocol.PLAINTEXT).has_sasl


def enabled_mechanisms(config: BrokerConfig, listener: str) -> tuple[str, ...]:
    return cast("tuple[str, ...]", config.of_listener(listener, _ENABLED))


def max_session_ms(config: BrokerConfig, listener: str, mechanism: str) -> int:
    text = config.text_of_listener(listener, f"{mechanism.lower()}.{_REAUTH}")
    return int(text) if text is not None else cast("int", config.of_listener(listener, _REAUTH))


def jaas_key(listener: str, mechanism: str) -> str:
    return f"listener.name.{listener.lower()}.{mechanism.lower()}.{_JAAS}"


def jaas_text(config: BrokerConfig, listener: str, mechanism: str) -> str | None:
    return config.text_of_listener(listener, f"{mechanism.lower()}.{_JAAS}")


def find_jaas(config: BrokerConfig, listener: str, mechanism: str) -> Jaas | None:
    """Return the JAAS configuration of a listener and mechanism; None if there is none. Raises a `ConfigProblem` that
    does not show its value."""
    text = jaas_text(config, listener, mechanism)
    if text is None:
        return None
    from pessoa.security.sasl.jaas import BadJaas, parse_jaas

    try:
        return parse_jaas(text, mechanism)
    except BadJaas as problem:
        raise ConfigProblem(jaas_key(listener, mechanism), None, str(problem)) from None


def inter_broker_credentials(config: BrokerConfig) -> Credentials | None:
    """Return the credentials of this node for other brokers; None if no login is required."""
    return _credentials(config, _Route(config.inter_broker_listener_name, _INTER_BROKER))


def controller_credentials(config: BrokerConfig) -> Credentials | None:
    """Return the credentials of this node for controllers; None if no login is required."""
    return _credentials(config, _Route(_first_controller_listener(config), _CONTROLLER))


def passwords_of_nodes(config: BrokerConfig) -> dict[str, str]:
    """Return the passwords of the users as which nodes log in to brokers and controllers; empty if nodes need no login.
    With PLAIN these are all users of the listener, so that all nodes have the same even if each logs in as itself."""
    for route in _routes(config):
        credentials = _credentials(config, route)
        # A token is another one tomorrow.
        if credentials is not None and credentials.mechanism != OAUTHBEARER:
            jaas = find_jaas(config, route.listener, credentials.mechanism)
            users = {} if jaas is None else jaas.users()
            return users or {credentials.username: credentials.password}
    return {}


def _first_controller_listener(config: BrokerConfig) -> str:
    return config.controller_listener_names[0].upper()


def _credentials(config: BrokerConfig, route: _Route) -> Credentials | None:
    if not has_sasl(config, route.listener):
        return None
    mechanism = cast("str", config.of_listener(route.listener, route.key))
    if mechanism not in SUPPORTED:
        raise ConfigProblem(route.key, mechanism, f"it must be one of {', '.join(SUPPORTED)}")
    from pessoa.security.sasl.client_login import Credentials

    jaas = find_jaas(config, route.listener, mechanism)
    if mechanism == OAUTHBEARER:
        from pessoa.broker.oauth_verifier import node_token

        return Credentials(mechanism, "", node_token(config, route.listener))
    if jaas is None or not jaas.username or not jaas.password:
        why = f"it must have the username and password with which this node logs in ({route.key}={mechanism})"
        raise ConfigProblem(jaas_key(route.listener, mechanism), None, why)
    return Credentials(mechanism, jaas.username, jaas.password)


def check_sasl(config: BrokerConfig) -> None:
    """Raise a `ConfigProblem` for the first SASL setting that cannot work."""
    for endpoint in config.listeners:
        if endpoint.security_protocol.has_sasl:
            _check_listener(config, endpoint.name)
    routes = list(_routes(config))
    for route in routes:
        credentials = _credentials(config, route)
        is_own = any(one.name == route.listener for one in config.listeners)
        if credentials is not None and is_own:
            offered = enabled_mechanisms(config, route.listener)
            if credentials.mechanism not in offered:
                why = f"{route.listener} offers {', '.join(offered)} ({_ENABLED})"
                raise ConfigProblem(route.key, credentials.mechanism, why)


def _routes(config: BrokerConfig) -> Iterator[_Route]:
    if config.is_broker:
        yield _Route(config.inter_broker_listener_name, _INTER_BROKER)
    yield _Route(_first_controller_listener(config), _CONTROLLER)


def _check_listener(config: BrokerConfig, listener: str) -> None:
    offered = enabled_mechanisms(config, listener)
    strange = next((one for one in offered if one not in SUPPORTED), None)
    if strange is not None or not offered:
        why = f"the listener {listener} demands a login; set it to some of {', '.join(SUPPORTED)}"
        raise ConfigProblem(_ENABLED, ",".join(offered), why)
    for mechanism in offered:
        if find_jaas(config, listener, mechanism) is None and mechanism == PLAIN:
            raise ConfigProblem(jaas_key(listener, mechanism), None, 'it must name the users of PLAIN: user_NAME="…"')
    check_tokens(config, listener, is_offered=OAUTHBEARER in offered)


def changed_sasl_problem(configs: Mapping[str, str], config: BrokerConfig) -> ConfigProblem | None:
    """Return what is wrong with a dynamic change of SASL settings; None if nothing is."""
    if (problem := changed_oauth_problem(configs)) is not None:
        return problem
    for name, text in configs.items():
        base = base_name(name)
        why = None
        if base == _ENABLED and (strange := [one for one in split_list(text) if one not in SUPPORTED]):
            why = f"{strange[0]} is not offered; there are {', '.join(SUPPORTED)}"
        elif base == _ENABLED and OAUTHBEARER in split_list(text):
            why = _why_no_token_keys(config, name)
        elif base == _JAAS and (listener := _OF_MECHANISM.fullmatch(name)) is not None:
            why = _jaas_problem(text, listener[1].upper())
        if why is not None:
            return ConfigProblem(name, None, why, is_invalid_request=True)
    return None


def _why_no_token_keys(config: BrokerConfig, name: str) -> str | None:
    """Return why this key cannot enable OAUTHBEARER: a listener that it is for has no keys to verify tokens with. None
    if all have."""
    named = _OF_LISTENER.match(name)
    listeners = [one.name for one in config.listeners if one.security_protocol.has_sasl]
    about = [one for one in listeners if named is None or named[1].upper() == one]
    without = [one for one in about if not has_keys(config, one)]
    return f"the file of this node has no sasl.oauthbearer.jwks.endpoint.url for {without[0]}" if without else None


def _jaas_problem(text: str, mechanism: str) -> str | None:
    from pessoa.security.sasl.jaas import BadJaas, parse_jaas

    try:
        parse_jaas(text, mechanism)
    except BadJaas as problem:
        return str(problem)
    return None
