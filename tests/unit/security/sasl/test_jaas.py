"""Parsing of `sasl.jaas.config`."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pessoa.security.sasl.jaas import MODULES, BadJaas, parse_jaas

PLAIN = MODULES["PLAIN"]


def test_the_options_of_a_plain_login_module_are_its_users_and_the_nodes_own_credentials() -> None:
    jaas = parse_jaas(f'{PLAIN} required username="node" password="n" user_ana="a;\\"b" user_bo=\'c d\';', "PLAIN")
    assert (jaas.username, jaas.password) == ("node", "n")
    assert jaas.users() == {"ana": 'a;"b', "bo": "c d"}


def test_a_login_module_without_options_has_no_users() -> None:
    jaas = parse_jaas(f"{MODULES['SCRAM-SHA-512']} required;", "SCRAM-SHA-512")
    assert jaas.users() == {}
    assert jaas.username is jaas.password is None


def test_lines_comments_and_unquoted_words_of_jaas_are_parsed_as_by_java() -> None:
    text = f"""
        {PLAIN} Required  // the module
        user_a-b=word /* two
        lines */ user_c="tab\\there\\101";
    """
    assert parse_jaas(text, "PLAIN").users() == {"a-b": "word", "c": "tab\thereA"}


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "names no login module"),
        (PLAIN, "`required` must follow"),
        (f'{PLAIN} perhaps user_a="b";', "`required` must follow"),
        (f'{PLAIN} required user_a="b"', "must end with a semicolon"),
        (f"{PLAIN} required user_a=;", "option 1 is not written name="),
        (f"{PLAIN} required user_a=5;", "values stand in quotes"),
        (f'{PLAIN} required ="b";', "option 1 is not written name="),
        (f'{PLAIN} required user_a="b"; {PLAIN} required;', "one login module"),
        ('com.sun.security.auth.module.JndiLoginModule required user.provider.url="ldap://x";', "none of"),
        ("os.system required;", "none of"),
        (f"{MODULES['SCRAM-SHA-256']} required;", "is not that of PLAIN"),
    ],
)
def test_a_jaas_syntax_error_is_reported_without_any_value(text: str, why: str) -> None:
    with pytest.raises(BadJaas, match=why):
        parse_jaas(text, "PLAIN")


def test_neither_repr_nor_error_shows_a_password() -> None:
    assert "hunter2" not in repr(parse_jaas(f'{PLAIN} required user_a="hunter2";', "PLAIN"))
    for text in ('user_a="hunter2" user_b=5;', "user_a=my hunter2;", "user_a=hunter2", 'hunter2="a" =;'):
        with pytest.raises(BadJaas) as raised:
            parse_jaas(f"{PLAIN} required {text}", "PLAIN")
        assert "hunter2" not in str(raised.value)


NAMES = st.text("abcdefghijklmnopqrstuvwxyzABC0123456789_-.", min_size=1)
VALUES = st.text(st.characters(codec="utf-8", exclude_characters="\r\n"))


@given(st.dictionaries(NAMES, VALUES))
def test_every_name_and_password_survives_quoting_in_jaas(users: dict[str, str]) -> None:
    quoted = {name: value.replace("\\", "\\\\").replace('"', '\\"') for name, value in users.items()}
    text = " ".join(f'user_{name}="{value}"' for name, value in quoted.items())
    assert parse_jaas(f"{PLAIN} required {text};", "PLAIN").users() == users


@given(st.text() | st.text("abc_=;\"'\\/* \n."))
def test_malformed_jaas_raises_only_the_expected_error(text: str) -> None:
    with pytest.raises(BadJaas):
        parse_jaas(text, "PLAIN")
