"""Parsing and formatting of the values of configuration keys."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pessoa.base.config_values import (
    ENTRIES,
    GZIP_LEVEL,
    NOT_EMPTY,
    SOME_ENTRIES,
    ConfigProblem,
    ConfigType,
    Rule,
    Value,
    any_of,
    at_least,
    between,
    one_of,
    one_of_ignoring_case,
    parse,
    render,
    some_of,
    split_list,
)

LONG_MAX = (1 << 63) - 1


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (ConfigType.BOOLEAN, "true", True),
        (ConfigType.BOOLEAN, " FALSE ", False),
        (ConfigType.INT, "+7", 7),
        (ConfigType.INT, " -2147483648 ", -(1 << 31)),
        (ConfigType.SHORT, "32767", 32767),
        (ConfigType.LONG, str(LONG_MAX), LONG_MAX),
        (ConfigType.LONG, "007", 7),
        (ConfigType.DOUBLE, "1e-1", 0.1),
        (ConfigType.DOUBLE, "0.5f", 0.5),
        (ConfigType.DOUBLE, ".5", 0.5),
        (ConfigType.DOUBLE, "5.", 5.0),
        (ConfigType.STRING, " gzip ", "gzip"),
        (ConfigType.CLASS, "a.B", "a.B"),
        (ConfigType.PASSWORD, "secret", "secret"),
        (ConfigType.LIST, " compact , delete ", ("compact", "delete")),
        (ConfigType.LIST, "a,b,a", ("a", "b")),
        (ConfigType.LIST, "", ()),
    ],
)
def test_a_config_text_is_parsed_to_a_value_of_its_type(kind: ConfigType, text: str, value: Value) -> None:
    assert parse("k", kind, text) == value


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (ConfigType.BOOLEAN, "yes"),
        (ConfigType.BOOLEAN, ""),
        (ConfigType.INT, "2147483648"),
        (ConfigType.INT, "5_0"),
        (ConfigType.INT, "٣"),
        (ConfigType.INT, "1.0"),
        (ConfigType.SHORT, "32768"),
        (ConfigType.LONG, ""),
        (ConfigType.LONG, "9" * 100_000),
        (ConfigType.DOUBLE, "NaN"),
        (ConfigType.DOUBLE, "1e"),
        (ConfigType.DOUBLE, "abc"),
    ],
)
def test_a_config_text_of_another_type_is_refused(kind: ConfigType, text: str) -> None:
    with pytest.raises(ConfigProblem):
        parse("k", kind, text)


def test_a_config_problem_names_the_key_the_value_and_what_is_allowed() -> None:
    with pytest.raises(ConfigProblem) as not_a_number:
        parse("retention.ms", ConfigType.LONG, "abc", at_least(-1))
    assert str(not_a_number.value) == "retention.ms=abc: it must be a whole number of 64 bits, at least -1"
    with pytest.raises(ConfigProblem) as too_small:
        parse("retention.ms", ConfigType.LONG, "-2", at_least(-1))
    assert str(too_small.value) == "retention.ms=-2: it must be at least -1"
    assert (too_small.value.key, too_small.value.value) == ("retention.ms", "-2")


def test_a_config_problem_never_shows_a_password() -> None:
    with pytest.raises(ConfigProblem) as problem:
        parse("ssl.key.password", ConfigType.PASSWORD, "hunter2", one_of("other"))
    assert "hunter2" not in str(problem.value)


@pytest.mark.parametrize(
    ("rule", "allowed", "refused"),
    [
        (at_least(1), 1, 0),
        (between(0, 1), 1.0, 1.1),
        (one_of("a", "b"), "b", "B"),
        (one_of_ignoring_case("Upgrade"), "uPGRADE", "up"),
        (any_of("a", "b"), (), ("c",)),
        (some_of("a", "b"), ("a",), ()),
        (some_of("a", "b"), ("b", "a"), ("a", "c")),
        (NOT_EMPTY, "x", ""),
        (ENTRIES, (), ("a", "")),
        (SOME_ENTRIES, ("a",), ()),
        (GZIP_LEVEL, -1, 0),
        (GZIP_LEVEL, 9, 10),
    ],
)
def test_a_config_rule_allows_valid_values_and_refuses_others(rule: Rule, allowed: Value, refused: Value) -> None:
    assert rule.allows(allowed)
    assert not rule.allows(refused)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (True, "true"),
        (12, "12"),
        (0.5, "0.5"),
        (0.0, "0.0"),
        (1e7, "1.0E7"),
        (12345678.9, "1.23456789E7"),
        (0.001, "0.001"),
        (0.0001, "1.0E-4"),
        (0.00012, "1.2E-4"),
        (9999999.5, "9999999.5"),
        (-2.5e-7, "-2.5E-7"),
        (1.7976931348623157e308, "1.7976931348623157E308"),
        (float("inf"), "Infinity"),
        (("a", "b"), "a,b"),
        ((), ""),
        (None, None),
    ],
)
def test_a_value_is_written_as_java_writes_it(value: Value, text: str | None) -> None:
    assert render(value) == text


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_a_double_survives_being_written_and_read(value: float) -> None:
    text = render(value)
    assert text is not None
    assert parse("k", ConfigType.DOUBLE, text) == value


@given(st.lists(st.text(alphabet="ab .*:", max_size=4).map(str.strip).filter(bool), unique=True))
def test_a_list_survives_being_written_and_read(entries: list[str]) -> None:
    assert split_list(",".join(entries)) == tuple(entries)
