"""Tables of configuration keys, and what can be said about a configuration that somebody wrote.

A connector, a converter, a transform has a table. A row is a key:

    key("batch.size", INT, 2000, at_least(1), LOW, "How many lines are read at once.", group="File")

From the table follow the typed settings (`parse`), and the answer of `validate`: for every key its definition, its
value, the values that are recommended and a sentence for everything that is wrong. Kafka's types and their spelling
are those of `base.config_values`; the sentences are Kafka's own here, because tools and people look for them in the
answers of Connect.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

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

# What a password looks like to whoever asks.
HIDDEN = "[hidden]"


class _Required:
    def __repr__(self) -> str:
        return "REQUIRED"


# Instead of a default: somebody must say it.
REQUIRED = _Required()

Settings = Mapping[str, str]
# Told all settings; may complain about this key.
Check = Callable[[Value, Settings], str | None]


@dataclass(frozen=True, slots=True)
class Key:
    name: str
    type: ConfigType
    default: Any = REQUIRED
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
        return HIDDEN if self.type is PASSWORD and self.default is not None else render(self.default)

    def definition(self) -> dict[str, Any]:
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
    default: Any,
    *facts: Rule | Check | str,
    group: str | None = None,
    display: str = "",
    width: str = "NONE",
    dependents: Sequence[str] = (),
    recommended: Sequence[str] = (),
    order: int = -1,
) -> Key:
    """One row. Rule, check, importance and text may come in any order after the default."""
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

    def answer(self) -> dict[str, Any]:
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
    """Keys by name, in the order in which they were written; keys of one group are numbered."""

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
        """The same keys below a prefix, as transforms and converters have them within a connector."""
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

    def parse(self, settings: Mapping[str, str]) -> dict[str, Any]:
        """Typed values for every key; the first thing that is wrong is raised."""
        found = {}
        for report in self.validate(settings):
            if report.errors:
                raise ConfigProblem(report.key.name, None, report.errors[0])
            found[report.key.name] = _value(report.key, settings.get(report.key.name))
        return found

    def validate(self, settings: Mapping[str, str | None]) -> list[KeyReport]:
        texts = {name: text for name, text in settings.items() if text is not None}
        return [_report(each, texts) for each in self]


def _value(row: Key, text: str | None) -> Any:
    if text is None:
        return None if row.is_required else row.default
    return _parsed(row, text)


def _parsed(row: Key, text: str) -> Value:
    return parse(row.name, row.type, text)


def _report(row: Key, settings: Mapping[str, str]) -> KeyReport:
    text = settings.get(row.name)
    report = KeyReport(row, recommended=row.recommended)
    if text is None:
        if row.is_required:
            report.errors.append(f'Missing required configuration "{row.name}" which has no default value.')
            return report
        report.value = row.default_text if row.type is not PASSWORD else row.default
        value = row.default
    else:
        report.value = text.strip() if row.type is not PASSWORD else text
        try:
            value = _parsed(row, text)
        except ConfigProblem as problem:
            report.value = None
            report.errors.append(
                f"Invalid value {_said(row, text)} for configuration {row.name}: {_expected(row, problem)}"
            )
            return report
        report.value = render(value)
    if text is not None and row.rule is not None and not row.rule.allows(value):
        report.errors.append(
            f"Invalid value {_said(row, text)} for configuration {row.name}: it must be {row.rule.allowed}"
        )
    elif row.check is not None:
        complaint = row.check(value, settings)
        if complaint:
            report.errors.append(f"Invalid value {_said(row, text)} for configuration {row.name}: {complaint}")
    return report


def _said(row: Key, text: str | None) -> str:
    return HIDDEN if row.type is PASSWORD and text is not None else "null" if text is None else text


_EXPECTED = {
    INT: "Not a number of type INT",
    SHORT: "Not a number of type SHORT",
    LONG: "Not a number of type LONG",
    DOUBLE: "Not a number of type DOUBLE",
    BOOLEAN: "Expected value to be either true or false",
}


def _expected(row: Key, problem: ConfigProblem) -> str:
    return _EXPECTED.get(row.type, problem.why)
