"""The linear-time regular expressions, compared with Python's `re` on the syntax in which both agree."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from pessoa.base.linear_regex import InvalidRegex
from pessoa.coordinator.bounded_regex import Regex

names = st.text(st.sampled_from("ab01_-."), min_size=1, max_size=12)
atoms = st.sampled_from(
    [
        "a",
        "b",
        "0",
        ".",
        r"\.",
        "-",
        "[ab]",
        "[^a]",
        "[a-z0-9]",
        r"\d",
        r"\w",
        r"\D",
        r"[\d_]",
        "^",
        "$",
        r"\b",
        r"\B",
        "",
    ]
)


def combine(parts: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    repeats = st.sampled_from(["*", "+", "?", "{2}", "{0,2}", "{1,}", "*?"])
    return st.one_of(
        st.tuples(parts, parts).map("".join),
        st.tuples(parts, parts).map(lambda pair: f"(?:{pair[0]}|{pair[1]})"),
        st.tuples(parts, repeats).map(lambda pair: f"({pair[0]}){pair[1]}"),
        parts.map(lambda part: f"(?i:{part})"),
    )


expressions = st.recursive(atoms, combine, max_leaves=8)


@given(expression=expressions, name=names)
def test_a_subscription_regex_matches_the_same_names_as_in_python(expression: str, name: str) -> None:
    expected = re.compile(expression, re.ASCII).fullmatch(name) is not None
    assert Regex(expression).matches(name) == expected


@given(text=st.text(st.sampled_from(r"ab.*+?|()[]{}^$\-,12dwpQEx:P<>i"), max_size=20), name=names)
def test_any_text_is_a_regex_or_refused(text: str, name: str) -> None:
    try:
        compiled = Regex(text)
    except InvalidRegex:
        return
    compiled.matches(name)
