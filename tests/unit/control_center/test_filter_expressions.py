"""The filter language: which messages match, which expressions are refused; no expression runs as Python."""

from __future__ import annotations

import pytest

from pessoa.base.json_value import JsonValue
from pessoa.control_center.filter_expressions import BadFilter, compile_filter

MESSAGE: dict[str, JsonValue] = {
    "key": "order-7",
    "value": {"amount": 120, "city": "Évora", "items": [{"name": "tea"}, {"name": "rum"}], "paid": True, "note": None},
    "headers": {"trace": "t-1", "content-type": "json"},
    "partition": 2,
    "offset": 40,
    "timestamp": 1000,
    "topic": "orders",
    "size": 99,
}


@pytest.mark.parametrize(
    "text",
    [
        "value.amount > 100",
        "value.amount >= 120 and value.amount <= 120",
        'key == "order-7"',
        "key startswith 'order-' and not key endswith '8'",
        'value.items[1].name == "rum"',
        'value.items[-1].name in ["rum", "gin"]',
        "partition in [1, 2]",
        'headers."content-type" == "json"',
        "headers.trace exists",
        "not headers.missing exists",
        "value.note == null",
        "value.paid",
        'value contains "vora"',
        'value.city matches "^.vora$"',
        "(value.amount < 1 or partition == 2) and offset != 41",
        "value.amount > 1e1",
    ],
)
def test_a_filter_passes_the_messages_for_which_it_is_true(text: str) -> None:
    assert compile_filter(text)(MESSAGE)
    assert not compile_filter(f"not ({text})")(MESSAGE)


@pytest.mark.parametrize("text", ["value.city > 3", "value.nothing.at.all < 3", "key > 3", "value.amount < 'a'"])
def test_comparing_values_of_different_types_is_false(text: str) -> None:
    assert not compile_filter(text)(MESSAGE)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "empty"),
        ("amount > 3", "value.amount"),
        ("value.amount >", "expected a path"),
        ("value.amount 3", "expected one of"),
        ('(key == "a"', "`)`"),
        ("value.amount > 3 ;", "Column 18"),
        ("__import__('os')", "no field __import__"),
        ("value.__class__.__mro__ == value.x)", "Column 35"),
        ('key matches "("', "Column 13"),
        ("(" * 60 + "key" + ")" * 60, "nested"),
        ("value in " + "[" * 900 + "1" + "]" * 900, "nested"),
        ("x" * 3000, "at most"),
    ],
)
def test_a_filter_with_a_syntax_error_names_the_position_and_what_to_write(text: str, told: str) -> None:
    with pytest.raises(BadFilter) as caught:
        compile_filter(text)
    assert told in str(caught.value)


def test_a_path_reads_members_of_data_and_no_attributes_of_objects() -> None:
    assert not compile_filter("value.__class__ exists")(MESSAGE)
