"""A small service over real sockets: every response that the shared parts generate."""

from __future__ import annotations

import asyncio
import base64
import logging
from collections.abc import Iterator
from contextlib import contextmanager

import httpx
import msgspec
import pytest
from starlette.requests import Request
from starlette.responses import Response

from pessoa.web.asgi_app import App, caller, json_response, make_app
from pessoa.web.auth import BasicAuth, PasswordCredentials, parse_users
from pessoa.web.bodies import read_json
from pessoa.web.problems import HttpProblem
from pessoa.web.routing import Endpoint, Query
from pessoa.web.serving import ThreadedServer

TYPES = ("application/vnd.small+json", "application/json")


class Sum(msgspec.Struct):
    left: int
    right: int


async def add(request: Request) -> Response:
    body = await read_json(request, Sum)
    return json_response(request, {"sum": body.left + body.right})


async def fail(request: Request) -> Response:
    if request.path_params["how"] == "problem":
        raise HttpProblem(422, "no such luck", 42299)
    raise KeyError("secret detail")


async def who(request: Request) -> Response:
    found = caller(request)
    return json_response(request, {"user": None if found is None else found.name})


ENDPOINTS = (
    Endpoint("POST", "/sum", add, "Adds.", body=Sum, answer=dict[str, int]),
    Endpoint("GET", "/fail/{how}", fail, query=(Query("why", help="is <ignored>"),)),
    Endpoint("GET", "/who", who),
)


@contextmanager
def serving(auth: BasicAuth | None = None) -> Iterator[httpx.Client]:
    async def make() -> App:
        return make_app("small", ENDPOINTS, consumes=TYPES, produces=TYPES, auth=auth, body_limit=1000)

    with ThreadedServer(make) as server, httpx.Client(base_url=server.url) as client:
        yield client


@pytest.fixture(scope="module")
def client() -> Iterator[httpx.Client]:
    with serving() as client:
        yield client


def problem(response: httpx.Response) -> tuple[int, int]:
    body = response.json()
    assert set(body) == {"error_code", "message"}
    return response.status_code, body["error_code"]


def test_a_response_has_the_content_type_that_was_requested(client: httpx.Client) -> None:
    for accept, got in (("*/*", TYPES[0]), ("application/json", "application/json")):
        response = client.post("/sum", json={"left": 1, "right": 2}, headers={"Accept": accept})
        assert (response.status_code, response.json()) == (200, {"sum": 3})
        assert response.headers["content-type"] == got


def test_errors_of_the_framework_have_the_error_body_of_the_service(client: httpx.Client) -> None:
    body = b'{"left": 1, "right": 2}'
    assert problem(client.get("/nowhere")) == (404, 404)
    assert problem(client.get("/sum")) == (405, 405)
    assert client.get("/sum").headers["allow"] == "POST"
    assert problem(client.post("/sum", content=body, headers={"Content-Type": "text/plain"})) == (415, 415)
    assert problem(client.post("/sum", json={}, headers={"Accept": "text/html"})) == (406, 406)


@pytest.mark.parametrize(
    ("body", "status"),
    [(b"", 400), (b"  ", 400), (b"{", 400), (b"\xff\xfe", 400), (b"[]", 422), (b'{"left": "x", "right": 1}', 422)],
)
def test_an_invalid_request_body_is_refused(client: httpx.Client, body: bytes, status: int) -> None:
    response = client.post("/sum", content=body, headers={"Content-Type": "application/json"})
    assert problem(response) == (status, status)


def test_a_body_over_the_limit_is_refused_with_or_without_a_content_length(client: httpx.Client) -> None:
    def chunks() -> Iterator[bytes]:
        for _ in range(11):
            yield b" " * 100

    headers = {"Content-Type": "application/json"}
    assert problem(client.post("/sum", content=b" " * 1001, headers=headers)) == (413, 413)
    assert problem(client.post("/sum", content=chunks(), headers=headers)) == (413, 413)
    assert client.post("/sum", json={"left": 1, "right": 1}).status_code == 200


def test_a_problem_has_its_error_code_and_an_unexpected_exception_reveals_nothing(
    client: httpx.Client, caplog: pytest.LogCaptureFixture
) -> None:
    assert problem(client.get("/fail/problem")) == (422, 42299)
    with caplog.at_level(logging.ERROR):
        response = client.get("/fail/bug")
    assert problem(response) == (500, 500)
    assert "secret" not in response.text
    assert "secret detail" in caplog.text


def test_a_head_request_has_no_body(client: httpx.Client) -> None:
    response = client.head("/who")
    assert (response.status_code, response.content) == (200, b"")


def test_metrics_count_by_row_and_never_by_path(client: httpx.Client) -> None:
    client.get("/fail/problem")
    page = client.get("/metrics").text
    assert 'http_requests_total{method="GET",path="/fail/{how}",status="422"}' in page
    assert "/fail/problem" not in page


def test_the_openapi_document_and_its_page_list_every_endpoint(client: httpx.Client) -> None:
    document = client.get("/openapi.json").json()
    assert set(document["paths"]) == {"/sum", "/fail/{how}", "/who"}
    assert set(document["components"]["schemas"]) == {"Sum", "Error"}
    page = client.get("/docs").text
    assert "/fail/{how}" in page
    assert "is &lt;ignored&gt;" in page


def test_health_is_ok(client: httpx.Client) -> None:
    assert client.get("/health").json() == {"status": "ok"}


USERS = """
# name: password[, role]
alice: wonder:land, admin
bob: MD5:5f4dcc3b5aa765d61d8327deb882cf99
"""


def basic(text: str) -> dict[str, str]:
    return {"Authorization": "Basic " + base64.b64encode(text.encode()).decode()}


def test_with_configured_users_only_they_are_authenticated() -> None:
    with serving(BasicAuth(parse_users(USERS), realm="small")) as client:
        refused = client.get("/who")
        assert problem(refused) == (401, 401)
        assert refused.headers["www-authenticate"] == 'Basic realm="small"'
        for wrong in ("alice:x", "carol:wonder:land", "nocolon", ":"):
            assert client.get("/who", headers=basic(wrong)).status_code == 401
        for broken in ("Basic !!", "Bearer abc", "Basic"):
            assert client.get("/who", headers={"Authorization": broken}).status_code == 401
        assert client.get("/who", headers=basic("alice:wonder:land")).json() == {"user": "alice"}
        assert client.get("/who", headers=basic("bob:password")).json() == {"user": "bob"}
        assert client.get("/health").status_code == 200


def test_with_configured_roles_only_users_that_have_one_are_allowed() -> None:
    with serving(BasicAuth(parse_users(USERS), roles=["admin"])) as client:
        assert client.get("/who", headers=basic("alice:wonder:land")).status_code == 200
        assert problem(client.get("/who", headers=basic("bob:password"))) == (403, 403)


def test_a_caller_carries_its_credentials_and_its_repr_shows_no_secret() -> None:
    auth = BasicAuth(parse_users(USERS))
    found = asyncio.run(auth.caller_of(basic("alice:wonder:land")["Authorization"]))
    assert found.principal == "User:alice"
    assert found.credentials == PasswordCredentials("alice", "wonder:land")
    assert "wonder" not in repr(found) + repr(auth) + repr(parse_users(USERS))


def test_an_invalid_line_of_the_user_file_is_named_in_the_error() -> None:
    with pytest.raises(ValueError, match="line 2"):
        parse_users("a: b\nnonsense\n")
