"""Callers of a service with bearer tokens, with and without HTTP Basic as another way."""

from __future__ import annotations

import base64
import json
import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from starlette.requests import Request
from starlette.responses import Response

from pessoa.base.config_values import ConfigProblem
from pessoa.web.asgi_app import App, caller, json_response, make_app
from pessoa.web.auth import BearerCredentials
from pessoa.web.http_settings import HttpSettings, Listener, read_http_settings
from pessoa.web.routing import Endpoint
from pessoa.web.serving import ThreadedServer
from tests.support.clients import until
from tests.support.tokens import AUDIENCE, ISSUER, IdentityProvider, Issuer, rsa_key, sealed_with_secret, unsigned

HERE = Listener("http", "127.0.0.1", 0)
ANA, FOREIGN = Issuer(), Issuer(key=rsa_key("foreign"))
INVALID = 'Bearer realm="pessoa", error="invalid_token"'


async def who(request: Request) -> Response:
    found = caller(request)
    assert found is not None
    assert not isinstance(found.credentials, BearerCredentials) or found.credentials.token not in repr(found)
    return json_response(request, {"principal": found.principal, "kind": type(found.credentials).__name__})


def settings(folder: Path, **changes: str) -> HttpSettings:
    found = {
        "oauthbearer.jwks.endpoint.url": f"file:{ANA.write(folder / 'jwks.json')}",
        "oauthbearer.expected.audience": AUDIENCE,
        "oauthbearer.expected.issuer": ISSUER,
        **{name.replace("_", "."): text for name, text in changes.items()},
    }
    return read_http_settings(found, HERE)


def with_users(folder: Path) -> str:
    path = folder / "users"
    path.write_text("bob: builder, admin\n")
    return str(path)


@contextmanager
def serving(http: HttpSettings) -> Iterator[httpx.Client]:
    async def make() -> App:
        return make_app("small", [Endpoint("GET", "/who", who)], auth=http.authenticator("", {}))

    with ThreadedServer(make) as server, httpx.Client(base_url=server.url) as client:
        yield client


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def test_a_caller_with_a_valid_token_is_its_subject(tmp_path: Path) -> None:
    with serving(settings(tmp_path)) as client:
        answer = client.get("/who", headers=bearer(ANA.token()))
        assert answer.json() == {"principal": "User:ana", "kind": "BearerCredentials"}
        assert client.get("/who", headers={"Authorization": f"bearer   {ANA.token()}"}).status_code == 200
        # A token of a usual large size.
        assert client.get("/who", headers=bearer(ANA.token(groups="g" * 8000))).status_code == 200
        assert client.get("/health").status_code == 200


def test_a_caller_without_a_valid_token_gets_401_and_a_challenge(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    wrong = [
        FOREIGN.token(),
        ANA.token(exp=int(time.time()) - 100),
        ANA.token(aud="other"),
        ANA.token(iss="other"),
        unsigned(ANA.claims()),
        sealed_with_secret(ANA.claims(), ANA.key_set()),
        ANA.token({"crit": ["x"]}),
        "planted.secret.token",
    ]
    with caplog.at_level(logging.DEBUG, "pessoa"), serving(settings(tmp_path)) as client:
        for token in wrong:
            answer = client.get("/who", headers=bearer(token))
            assert answer.status_code == 401
            assert answer.headers["www-authenticate"].startswith(INVALID)
            assert token not in answer.text + answer.headers["www-authenticate"]
        for header in ({}, {"Authorization": "Basic YTpi"}, {"Authorization": "Negotiate x"}):
            answer = client.get("/who", headers=header)
            assert answer.status_code == 401
            assert answer.headers["www-authenticate"] == 'Bearer realm="pessoa"'
        long = client.get("/who", headers=bearer("a" * 1_000_000))
        assert long.status_code in (401, 431)
    said = "".join(record.getMessage() for record in caplog.records if record.name.startswith("pessoa"))
    assert not any(token in said for token in wrong)


def test_service_takes_basic_and_bearer_callers_side_by_side(tmp_path: Path) -> None:
    found = settings(tmp_path, pessoa_authentication_users_file=with_users(tmp_path))
    basic = {"Authorization": "Basic " + base64.b64encode(b"bob:builder").decode()}
    with serving(found) as client:
        assert client.get("/who", headers=basic).json() == {"principal": "User:bob", "kind": "PasswordCredentials"}
        assert client.get("/who", headers=bearer(ANA.token())).json()["principal"] == "User:ana"
        refused = client.get("/who")
        assert refused.headers["www-authenticate"] == 'Basic realm="pessoa", Bearer realm="pessoa"'
        wrong = {"Authorization": "Basic " + base64.b64encode(b"bob:x").decode()}
        assert client.get("/who", headers=wrong).status_code == 401


def test_roles_of_a_bearer_are_the_scopes_of_its_token(tmp_path: Path) -> None:
    with serving(settings(tmp_path, authentication_roles="admin,all")) as client:
        assert client.get("/who", headers=bearer(ANA.token())).status_code == 200
        assert client.get("/who", headers=bearer(ANA.token(scope="other more"))).status_code == 403
        assert client.get("/who", headers=bearer(ANA.token(scope=None))).status_code == 403


def test_the_keys_of_a_url_are_loaded_before_the_first_caller_and_new_ones_are_fetched() -> None:
    new = Issuer(key_id="new", key=rsa_key("new"))
    with IdentityProvider(ANA).serving() as provider:
        http = read_http_settings({"oauthbearer.jwks.endpoint.url": provider.url("/jwks")}, HERE)
        with serving(http) as client:
            assert client.get("/who", headers=bearer(ANA.token())).status_code == 200
            provider.key_set = json.dumps({"keys": [ANA.jwk(), new.jwk()]}).encode()
            until(
                lambda: client.get("/who", headers=bearer(new.token())).status_code,
                lambda status: status == 200,
                "the new key",
            )
            for number in range(50):
                assert client.get("/who", headers=bearer(FOREIGN.token({"kid": f"k{number}"}))).status_code == 401
        assert set(provider.asked) == {"/jwks"}
        assert len(provider.asked) <= 2 + 16


def test_a_service_whose_issuer_is_unreachable_starts_and_refuses_all_clients() -> None:
    with IdentityProvider(ANA).serving() as provider:
        gone = provider.url("/jwks")
    with serving(read_http_settings({"oauthbearer.jwks.endpoint.url": gone}, HERE)) as client:
        assert client.get("/who", headers=bearer(ANA.token())).status_code == 401


def test_the_required_kafka_operation_is_not_demanded_of_callers_with_tokens(tmp_path: Path) -> None:
    """It would be believed in, and every bearer would get past it."""
    with pytest.raises(ConfigProblem, match="says nothing about callers with tokens"):
        settings(tmp_path, pessoa_authentication_kafka="true", pessoa_authentication_kafka_operation="ALTER")


@pytest.mark.parametrize("url", ["/etc/passwd", "file:relative", "ldap://x", "file:///nowhere/jwks.json"])
def test_an_invalid_key_location_is_an_error_at_the_start(url: str) -> None:
    with pytest.raises(ConfigProblem, match=r"oauthbearer\.jwks\.endpoint\.url"):
        read_http_settings({"oauthbearer.jwks.endpoint.url": url}, HERE)
