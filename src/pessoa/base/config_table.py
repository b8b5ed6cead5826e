"""Tables of configuration keys: what can be set, its type and default, what is allowed, and what it means.

There is one table for each kind of resource that has a configuration: topics, brokers, groups, client metrics. A key is
a row, written on two lines; everything else (parsing, checking, DescribeConfigs, the typed attributes of the broker's
configuration) is derived from the tables. Names, types, defaults and limits are Apache Kafka's.

    key("retention.ms", LONG, 604800000, at_least(-1),
        "How long records are kept at least; -1 keeps them for ever."),

`Scope` says when a key of a broker may change: with a restart only, or while it runs, for one broker or for all.
Internal keys can be set, and are described only where they are set.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping
from enum import Enum
from typing import NamedTuple, Protocol

from pessoa.base.config_values import ConfigProblem, ConfigType, Rule, Value, parse

BOOLEAN = ConfigType.BOOLEAN
STRING = ConfigType.STRING
INT = ConfigType.INT
SHORT = ConfigType.SHORT
LONG = ConfigType.LONG
DOUBLE = ConfigType.DOUBLE
LIST = ConfigType.LIST
CLASS = ConfigType.CLASS
PASSWORD = ConfigType.PASSWORD

MAX_INT = (1 << 31) - 1
MAX_LONG = (1 << 63) - 1
MAX_DOUBLE = sys.float_info.max


class Importance(Enum):
    HIGH = "high"
    MEDIUM = "medium"
    LOW = "low"


class Scope(Enum):
    """Whether a broker's key can change while brokers run, and for one broker or for all (KIP-226)."""

    READ_ONLY = "read-only"
    PER_BROKER = "per-broker"
    CLUSTER_WIDE = "cluster-wide"


HIGH, MEDIUM, LOW = Importance.HIGH, Importance.MEDIUM, Importance.LOW
PER_BROKER, CLUSTER_WIDE = Scope.PER_BROKER, Scope.CLUSTER_WIDE


class ConfigKey(NamedTuple):
    name: str
    type: ConfigType
    default: Value
    rule: Rule | None
    doc: str
    importance: Importance
    scope: Scope
    is_internal: bool
    is_required: bool

    @property
    def is_sensitive(self) -> bool:
        return self.type is PASSWORD

    def parse(self, text: str) -> Value:
        """Return the value of the text. Raises `ConfigProblem`."""
        return parse(self.name, self.type, text, self.rule)


def key(
    name: str,
    kind: ConfigType,
    default: Value,
    *facts: Rule | Importance | Scope | str,
    is_internal: bool = False,
    is_required: bool = False,
) -> ConfigKey:
    """Return a row of a table. The facts after the default may be left out and come in any order; the text among
    them is the doc."""
    rule: Rule | None = None
    importance, scope, doc = MEDIUM, Scope.READ_ONLY, ""
    for fact in facts:
        if isinstance(fact, Rule):
            rule = fact
        elif isinstance(fact, Importance):
            importance = fact
        elif isinstance(fact, Scope):
            scope = fact
        else:
            doc = fact
    return ConfigKey(name, kind, default, rule, doc, importance, scope, is_internal, is_required)


class ConfigTable:
    """Configuration keys by name, in the order in which they are declared."""

    def __init__(self, title: str, *groups: Iterable[ConfigKey]) -> None:
        self.title = title
        self._keys: dict[str, ConfigKey] = {}
        for group in groups:
            for one in group:
                assert one.name not in self._keys, one.name
                self._keys[one.name] = one

    def __repr__(self) -> str:
        return f"<ConfigTable {self.title}: {len(self._keys)} keys>"

    def __contains__(self, name: object) -> bool:
        return name in self._keys

    def __getitem__(self, name: str) -> ConfigKey:
        return self._keys[name]

    def __iter__(self) -> Iterator[ConfigKey]:
        return iter(self._keys.values())

    def __len__(self) -> int:
        return len(self._keys)

    def get(self, name: str) -> ConfigKey | None:
        return self._keys.get(name)

    def parse(self, name: str, text: str) -> Value:
        """Return the value that `name=text` means. Raises `ConfigProblem`, also for a key that does not exist."""
        found = self._keys.get(name)
        if found is None:
            raise ConfigProblem(name, text, f"there is no such {self.title} configuration")
        return found.parse(text)

    def problem(self, configs: Mapping[str, str | None]) -> ConfigProblem | None:
        """Return the first problem with these settings, each checked alone; None if there is none."""
        for name, text in configs.items():
            if text is None:
                return no_value(name)
            try:
                self.parse(name, text)
            except ConfigProblem as problem:
                return problem
        return None


class Settings(Protocol):
    """A source of the values of a broker's keys: its configuration, or the defaults alone."""

    def value(self, name: str) -> Value: ...


class Defaults:
    """The defaults of a table, as `Settings`."""

    def __init__(self, table: ConfigTable) -> None:
        self._table = table

    def value(self, name: str) -> Value:
        return self._table[name].default


def int_value(settings: Settings, name: str) -> int:
    """Return the value of a key of whole numbers."""
    value = settings.value(name)
    assert isinstance(value, int), f"{name} is {value!r}, and no whole number"
    return value


def no_value(name: str) -> ConfigProblem:
    return ConfigProblem(name, None, "a value is missing", is_invalid_request=True)
