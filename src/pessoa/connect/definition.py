"""Tables of configuration keys: what a configuration means, and what is wrong with it.

A connector, a converter, a transform has a table. A row is a key:

    key("batch.size", INT, 2000, at_least(1), LOW, "How many lines are read at once.", group="File")

From the table follow the typed settings (`parse`, a `Config`), and the answer of `validate`: for every key its
definition, its value, the values that are recommended and a sentence for everything that is wrong. Kafka's types and
their spelling are those of `base.config_values`; the sentences are Kafka's own here, because tools and people look for
them in the answers of Connect.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypedDict

from pessoa.base.config_values import ConfigProblem, ConfigType, Rule, Value, parse, render

BOOLEAN = ConfigType.BOOLEAN
STRING = ConfigType.STRING
INT = ConfigType.INT
SHORT = ConfigType.SHORT
LONG = ConfigType.LONG
DOUBLE = ConfigType.DOUBLE
LIST = ConfigType.LIST
CLASS = ConfigType.CLASS
PASSWORD = ConfigType.PASSWORD
HIGH, MEDIUM, LOW = "HIGH", "MEDIUM", "LOW"
_RANKS = {HIGH: 0, MEDIUM: 1, LOW: 2}

# What an answer shows in place of a password.
HIDDEN = "[hidden]"


class _Required:
    def __repr__(self) -> str:
        return "REQUIRED"


# Instead of a default: the configuration must have the key.
REQUIRED = _Required()

Settings = Mapping[str, str]
# Given the key's value and all settings, returns what is wrong with the value; None if nothing is.
Check = Callable[[Value, Settings], str | None]


class Definition(TypedDict):
    """A configuration key as the responses of `validate` and `/connector-plugins` describe it."""

    name: str
    type: str
    required: bool
    default_value: str | None
    importance: str
    documentation: str
    group: str | None
    order_in_group: int
    width: str
    display_name: str
    dependents: list[str]


class CheckedValue(TypedDict):
    name: str
    value: str | None
    recommended_values: list[str]
    errors: list[str]
    visible: bool


class CheckedKey(TypedDict):
    definition: Definition
    value: CheckedValue


class Config(dict[str, Value]):
    """The typed value of every key of a table. There is a getter per type, as in Kafka's AbstractConfig."""

    # All settings as they were given, also those that the table has no row for: a prefix and a client's settings.
    originals: Mapping[str, str] = {}

    def boolean(self, name: str) -> bool:
        value = self[name]
        assert isinstance(value, bool), name
        return value

    def integer(self, name: str) -> int:
        value = self[name]
        assert isinstance(value, int), name
        return value

    def string(self, name: str) -> str:
        value = self[name]
        assert isinstance(value, str), name
        return value

    def optional_string(self, name: str) -> str | None:
        return None if self[name] is None else self.string(name)

    def entries(self, name: str) -> tuple[str, ...]:
        """Return the value of a LIST."""
        value = self[name]
        assert isinstance(value, tuple), name
        return value


@dataclass(frozen=True, slots=True)
class Key:
    name: str
    type: ConfigType
    default: Value | _Required = REQUIRED
    rule: Rule | None = None
    importance: str = MEDIUM
    doc: str = ""
    group: str | None = None
    order: int = -1
    width: str = "NONE"
    display_name: str = ""
    dependents: tuple[str, ...] = ()
    recommended: tuple[str, ...] = ()
    check: Check | None = None

    @property
    def is_required(self) -> bool:
        return self.default is REQUIRED

    @property
    def default_text(self) -> str | None:
        if self.is_required:
            return None
        return HIDDEN if self.type is PASSWORD and self.default is not None else render(self.default_value)

    @property
    def default_value(self) -> Value:
        """The default; None for a key that is required."""
        return None if isinstance(self.default, _Required) else self.default

    def definition(self) -> Definition:
        return {
            "name": self.name,
            "type": self.type.name,
            "required": self.is_required,
            "default_value": self.default_text,
            "importance": self.importance,
            "documentation": self.doc,
            "group": self.group,
            "order_in_group": self.order,
            "width": self.width,
            "display_name": self.display_name or self.name,
            "dependents": list(self.dependents),
        }


def key(
    name: str,
    kind: ConfigType,
    default: Value | _Required,
    *facts: Rule | Check | str,
    group: str | None = None,
    display: str = "",
    width: str = "NONE",
    dependents: Sequence[str] = (),
    recommended: Sequence[str] = (),
    order: int = -1,
) -> Key:
    """Return a row of a table. Rule, check, importance and text may come in any order after the default."""
    rule: Rule | None = None
    check: Check | None = None
    importance, doc = MEDIUM, ""
    for fact in facts:
        if isinstance(fact, Rule):
            rule = fact
        elif isinstance(fact, str):
            if fact in (HIGH, MEDIUM, LOW):
                importance = fact
            else:
                doc = fact
        else:
            check = fact
    return Key(
        name,
        kind,
        default,
        rule,
        importance,
        doc,
        group,
        order,
        width,
        display,
        tuple(dependents),
        tuple(recommended),
        check,
    )


@dataclass(slots=True)
class KeyReport:
    """One key of a validated configuration."""

    key: Key
    value: str | None = None
    errors: list[str] = field(default_factory=list)
    recommended: tuple[str, ...] = ()
    is_visible: bool = True

    def answer(self) -> CheckedKey:
        hide = self.key.type is PASSWORD and self.value is not None
        return {
            "definition": self.key.definition(),
            "value": {
                "name": self.key.name,
                "value": HIDDEN if hide else self.value,
                "recommended_values": list(self.recommended),
                "errors": self.errors,
                "visible": self.is_visible,
            },
        }


class Table:
    """Keys by name, in the order of the rows; keys of one group are numbered."""

    def __init__(self, *rows: Key | Iterable[Key]) -> None:
        self._keys: dict[str, Key] = {}
        orders: dict[str, int] = {}
        for row in rows:
            for each in (row,) if isinstance(row, Key) else row:
                if each.group is not None and each.order < 0:
                    orders[each.group] = orders.get(each.group, 0) + 1
                    each = replace(each, order=orders[each.group])
                assert each.name not in self._keys, each.name
                self._keys[each.name] = each

    def __iter__(self) -> Iterator[Key]:
        return iter(self._keys.values())

    def __contains__(self, name: object) -> bool:
        return name in self._keys

    def __getitem__(self, name: str) -> Key:
        return self._keys[name]

    def __len__(self) -> int:
        return len(self._keys)

    def __repr__(self) -> str:
        return f"<Table of {len(self._keys)} keys>"

    @property
    def groups(self) -> list[str]:
        return list(dict.fromkeys(each.group for each in self if each.group is not None))

    def with_prefix(self, prefix: str, group: str, first_order: int = 1) -> list[Key]:
        """Return the same keys below a prefix, as transforms and converters have them within a connector."""
        ordered = sorted(self, key=lambda each: (not each.is_required, _RANKS[each.importance], each.name))
        return [
            replace(
                each,
                name=prefix + each.name,
                group=group,
                order=order,
                display_name=each.display_name or each.name,
                dependents=tuple(prefix + name for name in each.dependents),
            )
            for order, each in enumerate(ordered, start=first_order)
        ]

    def parse(self, settings: Mapping[str, str]) -> Config:
        """Return the typed value of every key; raise ConfigProblem for the first one that is wrong."""
        found = Config()
        found.originals = dict(settings)
        for report in self.validate(settings):
            if report.errors:
                raise ConfigProblem(report.key.name, None, report.errors[0])
            found[report.key.name] = _value(report.key, settings.get(report.key.name))
        return found

    def validate(self, settings: Mapping[str, str | None]) -> list[KeyReport]:
        texts = {name: text for name, text in settings.items() if text is not None}
        return [_report(each, texts) for each in self]


def _value(row: Key, text: str | None) -> Value:
    return row.default_value if text is None else parse(row.name, row.type, text)


def _report(row: Key, settings: Mapping[str, str]) -> KeyReport:
    text = settings.get(row.name)
    report = KeyReport(row, recommended=row.recommended)
    if text is None:
        if row.is_required:
            report.errors.append(f'Missing required configuration "{row.name}" which has no default value.')
            return report
        # A password is hidden in the answer alone.
        value = row.default_value
        report.value = render(value)
    else:
        try:
            value = parse(row.name, row.type, text)
        except ConfigProblem as problem:
            report.errors.append(
                f"Invalid value {_text_for_error(row, text)} for configuration {row.name}: {_expectation(row, problem)}"
            )
            return report
        report.value = render(value)
    if text is not None and row.rule is not None and not row.rule.allows(value):
        report.errors.append(
            f"Invalid value {_text_for_error(row, text)} for configuration {row.name}: it must be {row.rule.allowed}"
        )
    elif row.check is not None:
        complaint = row.check(value, settings)
        if complaint:
            report.errors.append(
                f"Invalid value {_text_for_error(row, text)} for configuration {row.name}: {complaint}"
            )
    return report


def _text_for_error(row: Key, text: str | None) -> str:
    return HIDDEN if row.type is PASSWORD and text is not None else "null" if text is None else text


_EXPECTED = {
    INT: "Not a number of type INT",
    SHORT: "Not a number of type SHORT",
    LONG: "Not a number of type LONG",
    DOUBLE: "Not a number of type DOUBLE",
    BOOLEAN: "Expected value to be either true or false",
}


def _expectation(row: Key, problem: ConfigProblem) -> str:
    return _EXPECTED.get(row.type, problem.why)
