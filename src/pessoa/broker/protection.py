"""Settings that would protect a cluster, and that nothing here enforces: a broker refuses them.

In Apache Kafka an authorizer keeps clients from what they may not do, TLS keeps others from reading along, and SASL
makes clients say who they are. A broker that took such a setting and went on without would leave its user believing
that the cluster is protected. So it does not start with one (`check_protection`), before anything is on its disk, and
takes none while it runs (`unenforced_change`).

TLS and SASL are enforced on the listeners that speak them (`node_tls.py`, `sasl_gate.py`). A setting of SASL is refused
where no such listener is there: it would have no effect. So are mechanisms that are not offered, and a
`sasl.jaas.config` without the listener and the mechanism that it is for, which nothing reads. And so are classes of
Java that would decide about logins, but those of Apache's guide to OAUTHBEARER: what they do is done here.

An authorizer is enforced (`authorization.py`; `authorizer_settings.py` says what it can be). Its settings are refused
where none is named, and while a broker runs.

Refused, too, is what Kafka itself passes over without an authorizer or a TLS listener (`super.users`,
`ssl.client.auth`): a user who wrote it believes in it. Key stores say nothing about who may do what, and are taken.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from pessoa.base.config_keys.broker_keys import BROKER_CONFIGS, base_name
from pessoa.base.config_values import ConfigProblem, split_list
from pessoa.broker.authorizer_settings import AUTHORIZER_KEYS, check_authorizer, has_authorizer
from pessoa.broker.config_listeners import SecurityProtocol
from pessoa.broker.oauth_settings import LOGIN_HANDLERS, SERVER_HANDLERS, VALIDATORS
from pessoa.broker.sasl_settings import changed_sasl_problem, has_sasl

if TYPE_CHECKING:
    from pessoa.broker.config import BrokerConfig

_ACCESS = "no authorizer is enforced, so every client could do everything"
_IDENTITY = "no client has to prove who it is"
_LOGIN = "no class of Java is asked, so who may log in would not depend on it"
_POLICY = "no class of Java is asked, so nothing would be refused"
_INSTEAD = "let only trusted clients reach the listeners"
_SECURE = frozenset(one.name for one in SecurityProtocol if one is not SecurityProtocol.PLAINTEXT)
_JAAS = "sasl.jaas.config"
# Enforced on listeners that speak SASL.
_SASL = (
    "sasl.enabled.mechanisms",
    _JAAS,
    "sasl.mechanism.inter.broker.protocol",
    "sasl.mechanism.controller.protocol",
)
_OF_LISTENER = re.compile(r"listener\.name\.([^.]*)\.(?:([^.]*)\.)?sasl\..*")


def _is_set(text: str) -> bool:
    return bool(text.strip())


def _is_not(harmless: str) -> Callable[[str], bool]:
    return lambda text: text.strip().lower() not in ("", harmless.lower())


# Key → whether a value of it protects, and what is the case instead. The most telling ones first.
_PROTECTING: dict[str, tuple[Callable[[str], bool], str]] = {
    "authorizer.class.name": (_is_set, _ACCESS),
    "super.users": (_is_set, _ACCESS),
    # In no table: it is the authorizer's own.
    "allow.everyone.if.no.acl.found": (_is_not("true"), _ACCESS),
    "ssl.client.auth": (_is_not("none"), _IDENTITY),
    **dict.fromkeys(_SASL, (_is_set, _IDENTITY)),
    "sasl.server.callback.handler.class": (_is_set, _LOGIN),
    "sasl.login.callback.handler.class": (_is_set, _LOGIN),
    "sasl.client.callback.handler.class": (_is_set, _LOGIN),
    "sasl.login.class": (_is_set, _LOGIN),
    "sasl.oauthbearer.jwt.validator.class": (lambda text: text.strip() not in ("", *VALIDATORS), _LOGIN),
    "principal.builder.class": (_is_not(str(BROKER_CONFIGS["principal.builder.class"].default)), _IDENTITY),
    "create.topic.policy.class.name": (_is_set, _POLICY),
    "alter.config.policy.class.name": (_is_set, _POLICY),
    "client.quota.callback.class": (_is_set, _POLICY),
}


def check_protection(config: BrokerConfig) -> None:
    """Raise a `ConfigProblem` that names every static security setting that this node would not enforce."""
    check_authorizer(config.static)
    enforced = AUTHORIZER_KEYS if has_authorizer(config.static) else ()
    found = [name for name in _protecting_settings(config.static, config) if name not in enforced]
    if found:
        raise _problem(config.static, found)


def unenforced_change(configs: Mapping[str, str], config: BrokerConfig | None = None) -> ConfigProblem | None:
    """Return the problem of a dynamic change with a security setting that would not be enforced; None if there is none.
    `config` is that of the node; without it, no listener counts as using SASL."""
    found = _protecting_settings(configs, config)
    if found:
        return _problem(configs, found)
    if config is not None and (problem := changed_sasl_problem(configs, config)) is not None:
        return problem
    for name, protocol_of in (("listeners", _named_protocol), ("listener.security.protocol.map", _mapped_protocol)):
        for entry in split_list(configs.get(name, "")):
            if protocol_of(entry) in _SECURE:
                why = f"a listener that is added while the broker runs speaks only PLAINTEXT; {_INSTEAD}"
                return ConfigProblem(name, entry, why, is_invalid_request=True)
    return None


def _named_protocol(endpoint: str) -> str:
    return endpoint.partition("://")[0].strip().upper()


def _mapped_protocol(entry: str) -> str:
    """Return the protocol that an entry of `listener.security.protocol.map` gives to a listener; "" if the listener has
    the name of its protocol, since the default map has such entries for listeners that do not exist."""
    name, _, protocol = (part.strip().upper() for part in entry.partition(":"))
    return "" if name == protocol else protocol


def _protecting_settings(settings: Mapping[str, str], config: BrokerConfig | None) -> list[str]:
    order = list(_PROTECTING)
    found = [
        name
        for name, text in settings.items()
        if _protects(base_name(name), text)
        and not (config is not None and (_is_enforced(config, name) or _is_known_handler(config, name, text)))
    ]
    return sorted(found, key=lambda name: order.index(base_name(name)))


def _is_known_handler(config: BrokerConfig, name: str, text: str) -> bool:
    """Return whether a Java class name is that of the token verifier, on a listener that uses SASL."""
    handlers = {
        "sasl.server.callback.handler.class": SERVER_HANDLERS,
        "sasl.login.callback.handler.class": LOGIN_HANDLERS,
    }
    listener = _OF_LISTENER.fullmatch(name)
    if listener is None or (listener[2] or "").lower() != "oauthbearer":
        return False
    return text.strip() in handlers.get(base_name(name), ()) and has_sasl(config, listener[1])


def _is_enforced(config: BrokerConfig, name: str) -> bool:
    """Return whether a SASL or TLS setting is for a listener that uses it, or for all listeners where one does."""
    if base_name(name) == "ssl.client.auth":
        with_tls = {one.name for one in config.listeners if one.security_protocol.has_tls}
        named = name.removeprefix("listener.name.").partition(".")[0].upper()
        return bool(with_tls) if name == "ssl.client.auth" else named in with_tls
    if base_name(name) not in _SASL:
        return False
    listener = _OF_LISTENER.fullmatch(name)
    if listener is not None:
        is_readable = base_name(name) != _JAAS or listener[2] is not None
        return is_readable and has_sasl(config, listener[1])
    names = [*(one.name for one in config.listeners), *config.controller_listener_names]
    return name != _JAAS and any(has_sasl(config, one) for one in names)


def _protects(base: str, text: str) -> bool:
    return base in _PROTECTING and _PROTECTING[base][0](text)


def _problem(settings: Mapping[str, str], found: list[str]) -> ConfigProblem:
    first, *others = found
    key = BROKER_CONFIGS.get(base_name(first))
    shown = None if key is not None and key.is_sensitive else settings[first]
    more = f" (and {', '.join(others)})" if others else ""
    why = f"{_PROTECTING[base_name(first)][1]}; remove it{more}, and {_instead(first)}"
    return ConfigProblem(first, shown, why, is_invalid_request=True)


def _instead(name: str) -> str:
    if base_name(name) in _SASL:
        return "demand a login with a listener that speaks SASL_SSL or SASL_PLAINTEXT and its listener.name.… settings"
    return _INSTEAD
