"""A configuration as it is shown to people: each key with its value, where that comes from, and what stands behind it.

The synonyms of an entry are all the places that could have given its value, from the one that did down to the default:

    retention.ms = 5            retention.ms      = 5      set for the topic
                                log.retention.ms  = 6000   set for this broker
                                log.retention.ms  = 5000   set for all brokers
                                log.retention.hours = 168  default

As in Kafka the list begins only at the broker's key of the same meaning. So a retention that comes from
`log.retention.hours` alone has no synonyms, and claims to be a default.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import IntEnum
from itertools import dropwhile
from typing import NamedTuple

from pessoa.base.config_keys.broker_keys import BROKER_CONFIGS, find, synonyms
from pessoa.base.config_keys.client_metrics_keys import CLIENT_METRICS_CONFIGS
from pessoa.base.config_keys.group_keys import GROUP_CONFIGS, broker_key
from pessoa.base.config_table import ConfigKey, ConfigTable, Scope
from pessoa.base.config_values import ConfigProblem, ConfigType, Value, render
from pessoa.base.log_levels import logger_levels
from pessoa.broker.config import BrokerConfig
from pessoa.log.topic_config import BROKER_KEYS, TOPIC_CONFIGS, default_value


class ConfigSource(IntEnum):
    """The source of a config value; the numbers are the protocol's."""

    TOPIC = 1
    BROKER = 2
    ALL_BROKERS = 3
    STATIC = 4
    DEFAULT = 5
    LOGGER = 6
    CLIENT_METRICS = 7
    GROUP = 8


class Synonym(NamedTuple):
    name: str
    value: str | None
    source: ConfigSource


class Entry(NamedTuple):
    name: str
    value: str | None
    source: ConfigSource
    is_read_only: bool
    is_sensitive: bool
    synonyms: list[Synonym]
    type: ConfigType
    doc: str | None


def topic_entries(overrides: Mapping[str, str], config: BrokerConfig) -> Iterator[Entry]:
    for name in _names(TOPIC_CONFIGS, overrides):
        key = TOPIC_CONFIGS.get(name)
        candidates = broker_synonyms(BROKER_KEYS[name], config) if name in BROKER_KEYS else []
        default = None if key is None else default_value(name, config)
        yield _entry(name, key, overrides, default, ConfigSource.TOPIC, candidates)


def group_entries(overrides: Mapping[str, str], config: BrokerConfig) -> Iterator[Entry]:
    for name in _names(GROUP_CONFIGS, overrides):
        key = GROUP_CONFIGS.get(name)
        of_broker = broker_key(name)
        if of_broker is not None:
            default, candidates = config.value(of_broker), broker_synonyms(of_broker, config)
        else:
            default = None if key is None else key.default
            candidates = [] if default is None else [Synonym(name, render(default), ConfigSource.DEFAULT)]
        yield _entry(name, key, overrides, default, ConfigSource.GROUP, candidates)


def client_metrics_entries(overrides: Mapping[str, str]) -> Iterator[Entry]:
    for name in _names(CLIENT_METRICS_CONFIGS, overrides):
        key = CLIENT_METRICS_CONFIGS.get(name)
        yield _entry(name, key, overrides, None if key is None else key.default, ConfigSource.CLIENT_METRICS, [])


def broker_entries(config: BrokerConfig) -> Iterator[Entry]:
    set_values = {**config.static, **config.cluster_defaults, **config.broker_overrides}
    for name in _names(BROKER_CONFIGS, set_values):
        key = BROKER_CONFIGS.get(name)
        value = set_values.get(name) if key is None or key.is_internal else render(config.value(name))
        yield _broker_entry(name, value, broker_synonyms(name, config))


def cluster_default_entries(config: BrokerConfig) -> Iterator[Entry]:
    """Yield the configs that are set for all brokers, and no others."""
    for name, text in config.cluster_defaults.items():
        candidates = [one for one in broker_synonyms(name, config) if one.source is ConfigSource.ALL_BROKERS]
        yield _broker_entry(name, text, candidates)


def logger_entries() -> Iterator[Entry]:
    for name, level in logger_levels().items():
        yield Entry(name, level, ConfigSource.LOGGER, False, False, [], ConfigType.UNKNOWN, "")


def broker_synonyms(name: str, config: BrokerConfig) -> list[Synonym]:
    """Return the sources of the value of a broker's key, by precedence."""
    names = synonyms(name)
    is_sensitive = _is_sensitive(find(name))
    found = [
        Synonym(one, None if is_sensitive else settings[one], source)
        for settings, source in (
            (config.broker_overrides, ConfigSource.BROKER),
            (config.cluster_defaults, ConfigSource.ALL_BROKERS),
            (config.static, ConfigSource.STATIC),
        )
        for one in names
        if one in settings
    ]
    for one in names:
        key = BROKER_CONFIGS.get(one)
        if key is not None and key.default is not None:
            found.append(Synonym(one, None if is_sensitive else render(key.default), ConfigSource.DEFAULT))
    return list(dropwhile(lambda synonym: synonym.name != name, found))


def _names(table: ConfigTable, overrides: Mapping[str, str]) -> list[str]:
    """Return all keys but internal ones, and the internal ones that were set."""
    return list(dict.fromkeys([*(key.name for key in table if not key.is_internal), *overrides]))


def _is_sensitive(key: ConfigKey | None) -> bool:
    """Return whether the value must be hidden: also that of an unknown key, which may be a secret."""
    return key is None or key.is_sensitive


def _entry(
    name: str,
    key: ConfigKey | None,
    overrides: Mapping[str, str],
    default: Value,
    own_source: ConfigSource,
    candidates: list[Synonym],
) -> Entry:
    """Return the entry of a key of a resource whose own configs are `overrides`."""
    is_sensitive = _is_sensitive(key)
    value = render(default)
    if name in overrides:
        value = _normal(key, overrides[name])
        candidates = [Synonym(name, None if is_sensitive else value, own_source), *candidates]
    return Entry(
        name,
        None if is_sensitive else value,
        candidates[0].source if candidates else ConfigSource.DEFAULT,
        False,
        is_sensitive,
        candidates,
        ConfigType.UNKNOWN if key is None else key.type,
        None if key is None else key.doc,
    )


def _normal(key: ConfigKey | None, text: str) -> str | None:
    """Return the value in its canonical form, without the blanks and capitals that it was set with."""
    if key is None:
        return text
    try:
        return render(key.parse(text))
    except ConfigProblem:
        # Another version allowed it; people should see what is there.
        return text


def _broker_entry(name: str, value: str | None, candidates: list[Synonym]) -> Entry:
    key = BROKER_CONFIGS.get(name)
    known = find(name)
    is_sensitive = _is_sensitive(known)
    return Entry(
        name,
        None if is_sensitive else value,
        candidates[0].source if candidates else ConfigSource.DEFAULT,
        key is None or key.scope is Scope.READ_ONLY,
        is_sensitive,
        candidates,
        ConfigType.UNKNOWN if known is None else known.type,
        None if key is None else key.doc,
    )
