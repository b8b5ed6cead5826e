"""The syntax of RE2: what matches, what is an error, and that matching time is bounded."""

from __future__ import annotations

import pytest

from pessoa.base.linear_regex import InvalidRegex
from pessoa.coordinator.bounded_regex import Regex


@pytest.mark.parametrize(
    ("expression", "matching", "other"),
    [
        ("orders", ["orders"], ["orders2", "my-orders", "Orders"]),
        ("orders.*", ["orders", "orders-2024"], ["my-orders"]),
        (r"orders\.v[12]", ["orders.v1", "orders.v2"], ["orders-v1", "orders.v3"]),
        ("^orders$", ["orders"], ["orders1"]),
        (r"\Aorders\z", ["orders"], ["orders1"]),
        ("(?i)ORDERS", ["orders", "OrDeRs"], []),
        ("(?i:OR)ders", ["orders", "ORders"], ["orDERS"]),
        ("(?P<what>a|b)c", ["ac", "bc"], ["abc"]),
        ("(?<what>a|b)c", ["ac", "bc"], []),
        ("[[:alpha:]]+", ["abc"], ["abc1"]),
        ("[[:^digit:]]+", ["abc-_"], ["abc1"]),
        (r"\p{Lu}\pL+", ["Orders"], ["orders"]),
        (r"\p{Greek}", [], ["a"]),
        (r"\P{Nd}+", ["abc"], ["ab1"]),
        (r"\p{^L}+", ["123"], ["a"]),
        (r"\Qa.b\E+", ["a.b"], ["axb"]),
        (r"a{2,3}", ["aa", "aaa"], ["a", "aaaa"]),
        ("a{,2}", ["a{,2}"], ["aa"]),
        (r"\x61\x{62}\143", ["abc"], ["ab"]),
        ("[]a]+", ["a"], ["b"]),
        ("[a-]+", ["a-a"], ["b"]),
        (r"[\w.-]+", ["a_b.c-d"], []),
        (r"\borders\b.*", ["orders-x", "orders.x"], ["orders_x", "ordersx"]),
        ("", [""], ["a"]),
        ("a|", ["a", ""], ["b"]),
        ("(a*)*", ["", "aaa"], ["b"]),
        ("é.*", [], ["e"]),
        ("[^é]", ["a", "ã"], []),
        ("pagamentos-não.*", ["pagamentos-não-feitos"], ["pagamentos-nao"]),
    ],
)
def test_a_subscription_regex_matches_whole_topic_names(expression: str, matching: list[str], other: list[str]) -> None:
    compiled = Regex(expression)
    assert [name for name in matching + other if compiled.matches(name)] == matching


@pytest.mark.parametrize(
    "expression",
    [
        "(", ")", "a)", "[", "[a", "[z-a]", "*a", "a**", "a{2}{3}", "a{3,2}", "a{1001}", "a\\", r"\1", "(a)\\1",
        "(?=a)", "(?!a)", "(?<=a)", "(?<!a)", "(?>a)", "(?P=x)", "(?P<>a)", "(?", r"\p{Nonsense}",
        "[[:nonsense:]]", r"\y", r"\x{", r"\xg", "a" * 8_193, "((((a{99}){99}){99}){99})",
    ],
)  # fmt: skip
def test_a_regex_that_re2_does_not_support_is_an_error_with_a_reason(expression: str) -> None:
    with pytest.raises(InvalidRegex, match=r"."):
        Regex(expression)


def test_a_regex_of_hundreds_of_names_with_some_classes_and_repetitions_is_accepted() -> None:
    names = "|".join(f"team-{number}[.]orders[.]v[0-9]{{1,3}}" for number in range(200))
    assert Regex(names).matches("team-7.orders.v1")
    assert Regex("|".join([r"\pL"] * 32)).matches("o")
    assert Regex(r"\x{10348}|orders{0,999}").matches("orders")


@pytest.mark.parametrize(
    "expression", ["|".join([r"\pL"] * 33), "|".join(["x{1000}"] * 11), "|".join(["x{999,}"] * 11)]
)
def test_a_regex_with_too_many_repetitions_is_refused_before_it_is_compiled(expression: str) -> None:
    with pytest.raises(InvalidRegex, match=r"it (has|repeats) more than"):
        Regex(expression)


def test_a_regex_with_catastrophic_backtracking_is_matched_quickly() -> None:
    assert not Regex("(a+)+b").matches("a" * 249)
    assert Regex("(a|a)*").matches("a" * 249)
    assert not Regex("(.*.*.*.*.*.*.*.*)*x").matches("a" * 249)


def test_a_regex_whose_automaton_exceeds_the_cache_still_matches() -> None:
    compiled = Regex(r".*a.{12}")
    names = [f"{number:013b}".replace("0", "a").replace("1", "b") for number in range(3_000)]
    assert [compiled.matches(name) for name in names] == [name[0] == "a" for name in names]
