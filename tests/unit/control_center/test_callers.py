"""Every path of the API except /health demands a login, however many slashes it ends with."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.responses import PlainTextResponse

from pessoa.control_center import center_app
from pessoa.control_center.center import Center
from pessoa.control_center.center_app import CenterApp
from pessoa.control_center.center_config import from_properties

PATHS = ("/metrics", "/api/docs", "/api/openapi.json", "/api/mcp", "/api/v1/filters", "/api/v1/nowhere")


@pytest.fixture
def app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CenterApp:
    users = tmp_path / "users"
    users.write_text("ada: secret, admin\n")
    users.chmod(0o600)
    monkeypatch.setattr(center_app, "pages_app", lambda _: PlainTextResponse("a page"))
    given = {"bootstrap.servers": "localhost:1", "pessoa.authentication.users.file": str(users)}
    return CenterApp(Center(from_properties(given)))


def ask(app: CenterApp, paths: list[str], auth: tuple[str, str] | None = None) -> list[httpx.Response]:
    async def act() -> list[httpx.Response]:
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost:9021", auth=auth) as http:
            return [await http.get(path) for path in paths]

    return asyncio.run(act())


def test_no_path_of_the_api_but_health_answers_without_a_login(app: CenterApp) -> None:
    paths = [path + end for path in PATHS for end in ("", "/", "//", "%2F", "/?a=b")]
    found = {path: one.status_code for path, one in zip(paths, ask(app, paths), strict=True)}
    assert found == dict.fromkeys(paths, 401)
    assert [one.status_code for one in ask(app, ["/health", "/health/"])] == [200, 200]


def test_an_unauthenticated_api_request_gets_json_that_explains_how_to_log_in(app: CenterApp) -> None:
    (refused,) = ask(app, ["/api/v1/filters"])
    body: Any = refused.json()
    assert set(body) == {"error_code", "message"}
    assert "www-authenticate" in refused.headers


def test_an_authenticated_caller_is_answered_with_and_without_a_trailing_slash(app: CenterApp) -> None:
    found = ask(app, ["/metrics/", "/api/openapi.json/", "/api/v1/filters"], ("ada", "secret"))
    assert [one.status_code for one in found] == [200, 200, 200]
