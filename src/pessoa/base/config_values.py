"""Values of configuration keys: Kafka's nine types, from text and back, and what a key may allow.

A value is text in a file, in a request and in a metadata record; this module is where it becomes a Python value:

    BOOLEAN   true or false, in any case        STRING, CLASS   text without the blanks around it
    INT SHORT LONG   a signed whole number      LIST            text between commas, each once, as a tuple
    DOUBLE    what Java reads as a double       PASSWORD        text, which is never shown

A `Rule` says what a key allows beyond its type. It carries a phrase that ends a sentence ("at least -1"), so that
the refusal names the key, the value and what would have been right. That sentence is a `ConfigProblem`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from enum import IntEnum
from typing import NamedTuple

Value = bool | int | float | str | tuple[str, ...] | None


class ConfigType(IntEnum):
    """The type of a configuration value. The numbers are those of DescribeConfigs."""

    UNKNOWN = 0
    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


class ConfigProblem(ValueError):
    """The error for one wrong setting, in a sentence for the person who wrote it.

    Kafka answers most of them with INVALID_CONFIG, and with INVALID_REQUEST if the key may not be set at all;
    `is_invalid_request` is true for the latter.
    """

    def __init__(self, key: str, value: str | None, why: str, *, is_invalid_request: bool = False) -> None:
        self.key = key
        self.value = value
        self.why = why
        self.is_invalid_request = is_invalid_request
        super().__init__(f"{key}: {why}" if value is None else f"{key}={value}: {why}")


class Rule(NamedTuple):
    """A condition on a value, besides its type. `allowed` completes "it must be …"."""

    allowed: str
    allows: Callable[[Value], bool]


_BITS = {ConfigType.INT: 32, ConfigType.SHORT: 16, ConfigType.LONG: 64}
_WHOLE = re.compile(r"[+-]?[0-9]+")
# Java's doubles may end in a letter for their type. Infinity is a double like any other, NaN fits no rule.
_DOUBLE = re.compile(r"[+-]?(Infinity|([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?[fFdD]?)")
_COMMA = re.compile(r"\s*,\s*")

_EXPECTED = {
    ConfigType.BOOLEAN: "true or false",
    ConfigType.INT: "a whole number of 32 bits",
    ConfigType.SHORT: "a whole number of 16 bits",
    ConfigType.LONG: "a whole number of 64 bits",
    ConfigType.DOUBLE: "a number",
}


def parse(key: str, kind: ConfigType, text: str, rule: Rule | None = None) -> Value:
    """Return the value that the text stands for. Raises `ConfigProblem`."""
    value = _parse(kind, text.strip())
    if value is not None and (rule is None or rule.allows(value)):
        return value
    of_type = _EXPECTED[kind] if value is None else None
    allowed = ", ".join(filter(None, (of_type, rule and rule.allowed)))
    raise ConfigProblem(key, "[hidden]" if kind is ConfigType.PASSWORD else text, f"it must be {allowed}")


def _parse(kind: ConfigType, text: str) -> Value:
    """Return the value that the text stands for; None if the text is of another type."""
    match kind:
        case ConfigType.BOOLEAN:
            return {"true": True, "false": False}.get(text.lower())
        case ConfigType.INT | ConfigType.SHORT | ConfigType.LONG:
            limit = 1 << (_BITS[kind] - 1)
            # The length is looked at first, because int() takes quadratic time.
            number = int(text) if len(text) <= 40 and _WHOLE.fullmatch(text) else limit
            return number if -limit <= number < limit else None
        case ConfigType.DOUBLE:
            return float(text.rstrip("fFdD")) if _DOUBLE.fullmatch(text) else None
        case ConfigType.LIST:
            return split_list(text)
        case _:
            return text


def split_list(text: str) -> tuple[str, ...]:
    """Return the parts between commas, without repetitions."""
    text = text.strip()
    return tuple(dict.fromkeys(_COMMA.split(text))) if text else ()


def render(value: Value) -> str | None:
    """Return the text of a value, as Java would print it: the inverse of `parse`."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return _java_double(value)
    return ",".join(value)


def _java_double(value: float) -> str:
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        text = repr(value)
        return text if "e" not in text else f"{value:f}"
    # repr gives the shortest digits that mean this number, and so does Java; they write the exponent differently.
    digits, _, exponent = f"{value!r}".partition("e")
    if not exponent:
        digits, _, exponent = _to_scientific(digits).partition("e")
    mantissa = digits if "." in digits else f"{digits}.0"
    return f"{mantissa}E{int(exponent)}"


def _to_scientific(text: str) -> str:
    sign = "-" if text.startswith("-") else ""
    whole, _, fraction = text.lstrip("-").partition(".")
    digits = (whole + fraction).lstrip("0")
    exponent = len(whole) - 1 if whole.strip("0") else -1 - (len(fraction) - len(fraction.lstrip("0")))
    digits = digits.rstrip("0")
    return f"{sign}{digits[:1]}.{digits[1:] or '0'}e{exponent}"


# ---- Rules ----


def at_least(low: float) -> Rule:
    return Rule(f"at least {low}", lambda value: isinstance(value, int | float) and value >= low)


def between(low: float, high: float) -> Rule:
    return Rule(f"between {low} and {high}", lambda value: isinstance(value, int | float) and low <= value <= high)


def one_of(*choices: str) -> Rule:
    return Rule(_join_choices(choices), lambda value: value in choices)


def one_of_ignoring_case(*choices: str) -> Rule:
    known = {choice.lower() for choice in choices}
    return Rule(
        f"{_join_choices(choices)}, in any case", lambda value: isinstance(value, str) and value.lower() in known
    )


def any_of(*choices: str) -> Rule:
    """Return the rule that a value is a list, perhaps empty, of these choices."""
    return Rule(
        f"a list of {_join_choices(choices)}", lambda value: isinstance(value, tuple) and set(value) <= set(choices)
    )


def some_of(*choices: str) -> Rule:
    """Return the rule that a value is a list of at least one of these choices."""
    return Rule(
        f"a list of at least one of {', '.join(choices)}",
        lambda value: isinstance(value, tuple) and bool(value) and set(value) <= set(choices),
    )


def _join_choices(choices: tuple[str, ...]) -> str:
    *others, last = choices
    return f"{', '.join(others)} or {last}" if others else last


NOT_EMPTY = Rule("not empty", lambda value: bool(value) and value != ("",))
ENTRIES = Rule("a list without empty entries", lambda value: isinstance(value, tuple) and "" not in value)
SOME_ENTRIES = Rule(
    "a list of at least one entry, none of them empty",
    lambda value: isinstance(value, tuple) and bool(value) and "" not in value,
)
GZIP_LEVEL = Rule("between 1 and 9, or -1", lambda value: value == -1 or value in range(1, 10))
