"""Regular expressions of clients: what they match, and that their cost is bounded."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pessoa.serde.patterns import MAX_WORK, BadPattern, Pattern

CATASTROPHES = [
    r"(a+)+$",
    r"^(a|a)*$",
    r"(a|aa)+$",
    r"(.*)*!",
    r"((a*)*)*b",
    r"(?:a?){500}a{500}b",
    r"(.*a){25}b",
    r"^(([a-z])+.)+[A-Z]([a-z])+$",
    r"(x+x+)+y",
    r".*.*.*.*.*.*.*.*=b",
    r"a[ab]{300}c",
    r"(\w+\s?)*:",
]


@pytest.mark.parametrize("text", CATASTROPHES)
def test_a_regex_with_catastrophic_backtracking_ends(text: str) -> None:
    assert not Pattern(text).is_found_in("a" * 10_000 + "\n")


@pytest.mark.parametrize(
    "text",
    [
        "((((((((a{1,1000}){1,1000}){1,1000}){1,1000}){1,1000}){1,1000}){1,1000}){1,1000})",
        r"\p{L}{1000}" * 300,
        "x" * 5000,
        "(" * 4000,
        "[b-a]",
        "\ud800",
        r"(?=(a+)+$)b",
        r"(a|b)*\1",
        r"(?!(x|y|z){1,9}){9}",
    ],
)
def test_an_unbounded_regex_is_refused(text: str) -> None:
    with pytest.raises(BadPattern):
        Pattern(text)


def test_a_text_that_is_too_long_for_a_large_expression_is_refused() -> None:
    pattern = Pattern("a[ab]{1000}c")
    with pytest.raises(BadPattern, match="too long"):
        pattern.is_found_in("ab" * MAX_WORK)


@pytest.mark.parametrize(
    ("text", "matching", "other"),
    [
        (r"^(?!.*admin).*$", "a user", "an admin"),
        (r"^(?=.*\d)(?=.*[a-z]).{8,}$", "abcdefg1", "abcdefgh"),
        (r"(ab|cd)-\1$", "ab-ab", "ab-cd"),
        (r"^\u00e9\p{L}+$", "été", "ete"),
        (r"^\\u00e9$", r"\u00e9", "é"),
        (r"^[^\x00-\x1f]{1,3}$", "añb", "a\n"),
        (r"^\/a\-b$", "/a-b", "a-b"),
        (r"(?<name>x)$", "ax", "xa"),
        (r"^.{1,2000}$", "x" * 2000, "x" * 2001),
    ],
)
def test_the_regex_syntax_of_json_schema_and_java_is_supported(text: str, matching: str, other: str) -> None:
    pattern = Pattern(text)
    assert pattern.is_found_in(matching)
    assert not pattern.is_found_in(other)


def test_lookahead_in_a_long_text_is_refused() -> None:
    with pytest.raises(BadPattern, match="too long"):
        Pattern(r"(?=.*a.*b.*c)x").is_found_in("a" * 100_000)


atoms = st.sampled_from(["a", "b", ".", "[ab]", "[^a]", r"\d", "a*", "b+", "a?", "(a|b)", "(ab)*", "x{0,2}", "^", "$"])


@given(st.lists(atoms, max_size=5).map("".join), st.text(alphabet="ab1x", max_size=8))
def test_a_regex_matches_the_same_texts_as_in_python(expression: str, text: str) -> None:
    pattern = Pattern(expression)
    assert pattern.is_found_in(text) == (re.search(expression, text) is not None)
    assert pattern.matches_whole(text) == (re.fullmatch(expression, text) is not None)
