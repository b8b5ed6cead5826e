"""The source of a client's token: a file, or a token endpoint with client credentials."""

from __future__ import annotations

import base64
import pickle
import time
from pathlib import Path

import pytest

from pessoa.client.bearer_tokens import FileCallback, get_token, token_settings
from pessoa.client.client_errors import AuthenticationFailed, BadSettings
from pessoa.client.librdkafka import to_librdkafka
from tests.support.tokens import IdentityProvider, Issuer

MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
URL = "sasl.oauthbearer.token.endpoint.url"
ID, SECRET = (f"sasl.oauthbearer.client.credentials.client.{name}" for name in ("id", "secret"))
OAUTH = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "OAUTHBEARER"}
ANA = Issuer()


def refuse_warnings(text: str) -> None:
    raise AssertionError(text)


def test_token_of_a_file_is_read_for_each_login(tmp_path: Path) -> None:
    path = tmp_path / "token.jwt"
    settings = {URL: f"file://{path}"}
    with pytest.raises(AuthenticationFailed, match="no token from"):
        get_token(settings)
    for token in ("aaa.bbb.ccc", "ddd.eee.fff"):
        path.write_text(f"{token}\n")
        assert get_token(settings) == token
    path.write_text("a" * 40_000)
    with pytest.raises(AuthenticationFailed, match="more than 32768 bytes"):
        get_token(settings)


@pytest.mark.parametrize(
    "named",
    [
        {ID: "shop", SECRET: "the secret", "sasl.oauthbearer.scope": "kafka read"},
        {"sasl.jaas.config": f'{MODULE} required clientId="shop" clientSecret="the secret" scope="kafka read";'},
        {"sasl.oauthbearer.client.id": "shop", "sasl.oauthbearer.client.secret": "the secret",
         "sasl.oauthbearer.scope": "kafka read"},
    ],
)  # fmt: skip
def test_a_token_is_requested_with_client_credentials(named: dict[str, str]) -> None:
    with IdentityProvider(ANA).serving() as provider:
        settings = {URL: provider.url("/token"), **named}
        assert get_token(settings).count(".") == 2
        assert provider.forms == [{"grant_type": ["client_credentials"], "scope": ["kafka read"]}]
        assert provider.authorizations == ["Basic " + base64.b64encode(b"shop:the secret").decode()]
    assert "secret" not in repr(token_settings(settings))
    found = to_librdkafka({**OAUTH, **settings}, refuse_warnings)
    assert found == {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanisms": "OAUTHBEARER",
        "sasl.oauthbearer.method": "oidc",
        URL: settings[URL],
        "sasl.oauthbearer.client.id": "shop",
        "sasl.oauthbearer.client.secret": "the secret",
        "sasl.oauthbearer.scope": "kafka read",
    }


def test_a_token_response_without_a_token_is_an_error_that_does_not_show_the_response() -> None:
    settings = {ID: "shop", SECRET: "the secret"}
    with IdentityProvider(ANA).serving() as provider:
        with pytest.raises(AuthenticationFailed, match="status 404"):
            get_token({**settings, URL: provider.url("/elsewhere")})
        provider.make_token = lambda: "a" * 100_000
        with pytest.raises(AuthenticationFailed, match="more than") as refused:
            get_token({**settings, URL: provider.url("/token")})
        gone = provider.url("/token")
    assert "secret" not in str(refused.value)
    with pytest.raises(AuthenticationFailed):
        get_token({**settings, URL: gone})


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({}, "needs sasl.oauthbearer.token.endpoint.url"),
        ({URL: "/etc/passwd"}, "https:, http: or file:"),
        ({URL: "https://host/token"}, "client.id and .client.secret"),
        ({URL: "https://host/token", ID: "a"}, "client.id and .client.secret"),
        ({URL: "file:///x", "sasl.oauthbearer.jwt.retriever.class": "com.example.Mine"}, "must be one of"),
    ],
)
def test_settings_that_cannot_work_are_refused(settings: dict[str, str], why: str) -> None:
    with pytest.raises(BadSettings, match=why):
        get_token(settings)
    with pytest.raises(BadSettings, match=why):
        to_librdkafka({**OAUTH, **settings}, refuse_warnings)


def test_librdkafka_gets_the_token_of_a_file_and_its_end_through_a_callback(tmp_path: Path) -> None:
    path = tmp_path / "token.jwt"
    settings = {**OAUTH, URL: f"file:{path}", "sasl.jaas.config": f"{MODULE} required;"}
    callback = to_librdkafka(settings, refuse_warnings)["oauth_cb"]
    assert callback == FileCallback(str(path))
    # Settings travel to the processes of Spark.
    assert pickle.loads(pickle.dumps(callback)) == callback
    path.write_text(ANA.token(exp=2_000_000_000))
    assert callback("") == (path.read_text(), 2_000_000_000)
    for opaque in ("opaque", "a.b.c", f"a.{base64.urlsafe_b64encode(b'[]').decode()}.c"):
        path.write_text(opaque)
        token, end_s = callback("")
        assert token == opaque
        assert end_s > time.time()
