"""The settings of a service: a frozen dataclass is the table, and a field is a row.

    @dataclass(frozen=True, slots=True)
    class Config:
        topic: str = setting("kafkastore.topic", "_schemas", "Where schemas are kept.")
        timeout_ms: int = setting("kafkastore.timeout.ms", 500, "How long a write may take.", rule=at_least(1))

    config = read_settings(Config(), properties)

The type of a row is that of its default; None stands for a text that need not be there, and an empty one counts as
missing. Types, their spelling and the sentence about a wrong value (`ConfigProblem`) are those of `base.config_values`.

Files that were written for the services of the JVM are taken as they are, so a key that is in no table is no mistake.
`log_unknown` names such keys in the log: as a warning those that begin with `pessoa.`, which are ours alone.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from pessoa.base.config_values import ConfigType, Rule, Value, parse, render

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    D = TypeVar("D", bound=DataclassInstance)
    V = TypeVar("V", bound=Value)

OURS = "pessoa."
_ROW = "setting"


class Setting(NamedTuple):
    # The first that is set holds.
    names: tuple[str, ...]
    type: ConfigType
    default: Value
    rule: Rule | None
    doc: str


def setting(name: str, default: V, doc: str, *, also: str | None = None, rule: Rule | None = None) -> V:
    """Return a row of a settings table, as a dataclass field; `also` is an older name of the key."""
    names = (name,) if also is None else (name, also)
    return dataclasses.field(default=default, metadata={_ROW: Setting(names, _type_of(default), default, rule, doc)})


def _type_of(default: Value) -> ConfigType:
    match default:
        case bool():
            return ConfigType.BOOLEAN
        case int():
            return ConfigType.LONG
        case tuple():
            return ConfigType.LIST
    return ConfigType.STRING


def rows(table: DataclassInstance | type[DataclassInstance]) -> dict[str, Setting]:
    """Return the rows of a settings table by the names of their fields."""
    return {each.name: each.metadata[_ROW] for each in dataclasses.fields(table) if _ROW in each.metadata}


def default_texts(table: DataclassInstance | type[DataclassInstance]) -> dict[str, str]:
    """Return the defaults as texts for a properties file, without those that are empty."""
    texts = ((row.names[0], render(row.default)) for row in rows(table).values())
    return {name: text for name, text in texts if text}


def read_settings(defaults: D, properties: Mapping[str, str]) -> D:
    """Return the table with the values that are set in `properties`; `ConfigProblem` for a value that is not valid."""
    found: dict[str, Value] = {}
    for field, row in rows(defaults).items():
        name = next((name for name in row.names if name in properties), None)
        if name is not None and not (row.default is None and not properties[name].strip()):
            found[field] = parse(name, row.type, properties[name], row.rule)
    return dataclasses.replace(defaults, **found)


def settings_below(properties: Mapping[str, str], prefix: str) -> dict[str, str]:
    """Return the settings whose names begin with a prefix, without the prefix."""
    return {name.removeprefix(prefix): text for name, text in properties.items() if name.startswith(prefix)}


def log_unknown(
    log: logging.Logger,
    properties: Mapping[str, str],
    tables: Iterable[DataclassInstance | type[DataclassInstance]],
    prefixes: tuple[str, ...] = (),
) -> None:
    """Log the keys that no table has; keys with one of the prefixes are read elsewhere."""
    known = {name for table in tables for row in rows(table).values() for name in row.names}
    unknown = sorted(name for name in properties if name not in known and not name.startswith(prefixes))
    if theirs := [name for name in unknown if not name.startswith(OURS)]:
        log.info("these settings change nothing here: %s", ", ".join(theirs))
    if ours := [name for name in unknown if name.startswith(OURS)]:
        log.warning("there are no such settings: %s", ", ".join(ours))
