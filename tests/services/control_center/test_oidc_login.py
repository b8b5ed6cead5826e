"""Logging in to the control centre through an OpenID provider, as a process, without a browser."""

from __future__ import annotations

import base64
import hashlib
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import httpx
import msgspec
import pytest

from pessoa.base.config_values import ConfigProblem
from pessoa.control_center.center_config import from_properties
from pessoa.testing import Broker
from tests.browser.center_process import ControlCenter
from tests.support.tokens import AUDIENCE, ISSUER, USER, Issuer

PREFIX = "pessoa.control.center.oidc."


@contextmanager
def token_endpoint(issuer: Issuer, challenges: list[str], subject: str) -> Iterator[str]:
    """Serve a token endpoint that returns an id token for the code `right` and the PKCE verifier of a started login."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            form = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
            digest = hashlib.sha256(form["code_verifier"][0].encode()).digest()
            challenge = base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
            is_right = form["code"] == ["right"] and form["client_secret"] == ["ours"] and challenge in challenges
            body = msgspec.json.encode({"id_token": issuer.token(sub=subject)} if is_right else {"error": "no"})
            self.send_response(200 if is_right else 400)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Print nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/token"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.mark.skipif(find_spec("nicegui") is None, reason="the console extra is not installed")
def test_a_user_logs_in_with_openid_and_a_wrong_code_or_a_state_of_another_login_is_refused(tmp_path: Path) -> None:
    issuer, challenges = Issuer(), list[str]()
    keys = issuer.write(tmp_path / "keys.json")
    with (
        Broker() as broker, token_endpoint(issuer, challenges, USER) as tokens,
        ControlCenter(
            tmp_path / "center.log", broker.bootstrap_servers, "", f"oauthbearer.jwks.endpoint.url={keys.as_uri()}",
            f"oauthbearer.expected.issuer={ISSUER}", f"oauthbearer.expected.audience={AUDIENCE}",
            f"{PREFIX}authorization.url=http://provider.test/authorize", f"{PREFIX}token.url={tokens}",
            f"{PREFIX}client.id=console", f"{PREFIX}client.secret=ours", "pessoa.control.center.role=reader",
            f"pessoa.control.center.editors={USER}",
        ) as center,
        httpx.Client(base_url=center.url) as browser,
    ):  # fmt: skip
        assert browser.get("/topics").headers["location"].startswith("/login?next=")
        closed = [browser.get(path).status_code for path in ("/metrics", "/api/docs", "/api/v1/topics")]
        assert closed == [401, 401, 401]
        assert browser.get("/health").status_code == 200
        assert "/login/oidc" in browser.get("/login").text
        asked = parse_qs(urlsplit(_begin(browser, challenges)).query)
        callback = "/login/oidc/callback"
        state = asked["state"][0]
        assert browser.get(callback, params={"code": "wrong", "state": state}).status_code == 502
        state = parse_qs(urlsplit(_begin(browser, challenges)).query)["state"][0]
        with httpx.Client(base_url=center.url) as stranger:
            refused = stranger.get(callback, params={"code": "right", "state": state})
            assert refused.status_code == 400
        state = parse_qs(urlsplit(_begin(browser, challenges)).query)["state"][0]
        done = browser.get(callback, params={"code": "right", "state": state})
        assert (done.status_code, "url=/topics" in done.text) == (200, True)
        assert browser.get("/api/v1/topics").status_code == 200
        assert browser.get("/metrics").status_code == 200
        made = browser.post("/api/v1/topics", json={"name": "by-editor", "partitions": 1})
        assert made.status_code == 201
        assert browser.delete("/api/v1/topics/by-editor").status_code == 403
        assert browser.get(callback, params={"code": "right", "state": state}).status_code == 400


def _begin(browser: httpx.Client, challenges: list[str]) -> str:
    location = browser.get("/login/oidc", params={"next": "/topics"}).headers["location"]
    assert location.startswith("http://provider.test/authorize?")
    challenges.append(parse_qs(urlsplit(location).query)["code_challenge"][0])
    return location


def test_openid_settings_without_a_jwks_endpoint_are_refused() -> None:
    with pytest.raises(ConfigProblem, match="jwks"):
        from_properties({f"{PREFIX}authorization.url": "https://provider.test"})
