"""The table of a broker's keys, their synonyms, and what may change while it runs.

A value comes from the first of these that has one (KIP-226):

    set for this broker while it runs  >  set for all brokers while they run  >  its own file  >  the default

Some keys say the same in several units, the finest first: `log.retention.ms`, `.minutes`, `.hours`. And every key may
have a listener's name before it, `listener.name.internal.max.connections`, which means this listener alone, and behind
that a SASL mechanism.

Unknown keys are allowed at run time too, as settings of plug-ins: they are kept, and never shown, for they
may be secrets.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from pessoa.base.config_keys import (
    group_coordinator_keys,
    network_keys,
    node_keys,
    operation_keys,
    pessoa_keys,
    remote_log_keys,
    replication_keys,
    security_keys,
    storage_keys,
    transaction_keys,
)
from pessoa.base.config_table import ConfigKey, ConfigTable, Defaults, Scope, no_value
from pessoa.base.config_values import ConfigProblem

BROKER_CONFIGS = ConfigTable(
    "broker",
    node_keys.KEYS,
    network_keys.KEYS,
    storage_keys.KEYS,
    replication_keys.KEYS,
    group_coordinator_keys.KEYS,
    transaction_keys.KEYS,
    security_keys.KEYS,
    operation_keys.KEYS,
    remote_log_keys.KEYS,
    pessoa_keys.KEYS,
)
BROKER_DEFAULTS = Defaults(BROKER_CONFIGS)

# Each key gives the value if those before it are not set.
_UNITS = (
    ("log.retention.ms", "log.retention.minutes", "log.retention.hours"),
    ("log.roll.ms", "log.roll.hours"),
    ("log.roll.jitter.ms", "log.roll.jitter.hours"),
)
_SYNONYMS = {name: names for names in _UNITS for name in names} | {
    "log.flush.interval.ms": ("log.flush.interval.ms", "log.flush.scheduler.interval.ms")
}

_LISTENER_KEY = re.compile(r"listener\.name\.[^.]*\.(.*)")
# What a listener may have once for each of its SASL mechanisms.
_PER_MECHANISM = (
    "sasl.server.callback.handler.class",
    "connections.max.reauth.ms",
    "sasl.login.callback.handler.class",
    "sasl.jaas.config",
    "sasl.login.class",
)
# Those of one mechanism alone, behind its name.
_OF_OAUTHBEARER = "oauthbearer.sasl.oauthbearer."
# Key stores belong to listeners; without one's name they cannot change while the broker runs.
_ONLY_PER_LISTENER = frozenset(
    """
    ssl.key.password ssl.keystore.certificate.chain ssl.keystore.key ssl.keystore.location ssl.keystore.password
    ssl.keystore.type ssl.truststore.certificates ssl.truststore.location ssl.truststore.password ssl.truststore.type
    """.split()
)
# Of the settings of one listener, those that make sense for all brokers alike.
_LISTENER_KEYS_OF_ALL_BROKERS = ("max.connections", "num.network.threads", "max.connection.creation.rate")


def base_name(name: str) -> str:
    """Return the key without its prefix `listener.name.<listener>.`, and without the SASL mechanism that may follow."""
    match = _LISTENER_KEY.fullmatch(name)
    if match is None:
        return name
    base: str = match.group(1)
    if base.startswith(_OF_OAUTHBEARER):
        return base.partition(".")[2]
    return next((one for one in _PER_MECHANISM if base.endswith(one)), base)


def synonyms(name: str) -> tuple[str, ...]:
    """Return the keys that can give `name` its value, the first that is set wins; `name` is always among them."""
    base = base_name(name)
    return _SYNONYMS.get(name, (name,)) if base == name else (name, base)


def find(name: str) -> ConfigKey | None:
    """Return the definition of a key, with a listener's prefix or without; None if the key does not exist."""
    return BROKER_CONFIGS.get(name) or BROKER_CONFIGS.get(base_name(name))


def validate_broker_configs(configs: Mapping[str, str | None], *, is_default: bool = False) -> ConfigProblem | None:
    """Return the first problem with settings of a running broker, or of all brokers (`is_default`); None if there is
    none."""
    for name, text in configs.items():
        problem = no_value(name) if text is None else _problem(name, text, is_default)
        if problem is not None:
            return problem
    return None


def _problem(name: str, text: str, is_default: bool) -> ConfigProblem | None:
    if name in _ONLY_PER_LISTENER:
        why = f"it can only change for one listener: listener.name.<listener>.{name}"
        return ConfigProblem(name, None, why, is_invalid_request=True)
    known = BROKER_CONFIGS.get(name)
    if known is not None and known.scope is Scope.READ_ONLY:
        return ConfigProblem(name, None, "it cannot change while the broker runs", is_invalid_request=True)
    if is_default and _is_per_broker(name):
        return ConfigProblem(name, None, "it can be set for one broker only, by its id", is_invalid_request=True)
    known = find(name)
    if known is not None:
        try:
            known.parse(text)
        except ConfigProblem as problem:
            return ConfigProblem(name, problem.value, problem.why, is_invalid_request=True)
    return None


def _is_per_broker(name: str) -> bool:
    base = base_name(name)
    if base != name:
        return base not in _LISTENER_KEYS_OF_ALL_BROKERS
    known = BROKER_CONFIGS.get(name)
    return known is not None and known.scope is Scope.PER_BROKER
