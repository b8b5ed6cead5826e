"""`sasl.jaas.config` of clients: our own client, librdkafka and the token sources parse it as Java does."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pessoa.client.bearer_tokens import token_settings
from pessoa.client.client_errors import BadSettings
from pessoa.client.librdkafka import to_librdkafka
from pessoa.client.login_options import login_options
from pessoa.client.login_trial import with_user
from pessoa.client.security import _login
from pessoa.security.sasl.jaas import MODULES

# What was set before stands in a comment; escapes are those of a Java string.
TEXT = """
    com.example.OurLoginModule required
    // username="old" password="of last year"
    username='a\\'na' password="tab\\there\\101\\\\";
"""
USER, PASSWORD = "a'na", "tab\thereA\\"
SECRET = "planted-7Q"


def scram(text: str) -> dict[str, str]:
    return {"security.protocol": "SASL_SSL", "sasl.mechanism": "SCRAM-SHA-512", "sasl.jaas.config": text}


def refuse_warnings(text: str) -> None:
    raise AssertionError(text)


def test_our_client_and_librdkafka_read_the_same_login() -> None:
    found = _login(scram(TEXT))
    assert (found.user, found.password) == (USER, PASSWORD)
    theirs = to_librdkafka(scram(TEXT), refuse_warnings)
    assert (theirs["sasl.username"], theirs["sasl.password"]) == (USER, PASSWORD)


def test_the_options_of_tokens_are_read_by_the_same_rules() -> None:
    text = f"{MODULES['OAUTHBEARER']} required /* clientId='old' */ clientId=shop clientSecret=\"a\\tb\";"
    found = token_settings(
        {"sasl.jaas.config": text, "sasl.oauthbearer.token.endpoint.url": "https://id.example.com/token"}
    )
    assert (found.client_id, found.client_secret) == ("shop", "a\tb")


@pytest.mark.parametrize("text", ["", "  \n"])
def test_an_empty_jaas_text_has_no_options(text: str) -> None:
    assert login_options({"sasl.jaas.config": text}) == login_options({}) == {}


@pytest.mark.parametrize(
    "text",
    [
        f'X required username="ana" password="{SECRET}"',
        f'X username="ana" password="{SECRET}";',
        f'X required username="ana" password={SECRET}!;',
        f'X required username="ana" password="{SECRET};',
    ],
)
def test_a_jaas_text_that_java_would_refuse_is_refused_without_showing_it(text: str) -> None:
    for read in (_login, lambda settings: to_librdkafka(settings, refuse_warnings)):
        with pytest.raises(BadSettings, match=r"Invalid value for configuration sasl\.jaas\.config") as refused:
            read(scram(text))
        assert SECRET not in str(refused.value)


@given(st.text(), st.text())
def test_every_name_and_password_survives_being_written_to_jaas_and_parsed(name: str, password: str) -> None:
    found = login_options(with_user(scram(""), name, password))
    assert (found["username"], found["password"]) == (name, password)
