"""HTTPS of the control centre: client certificates, and requests to a schema registry behind HTTPS."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from starlette.requests import Request
from starlette.responses import Response

from pessoa.client.registry_client import subjects
from pessoa.control_center.center import Center
from pessoa.control_center.center_config import from_properties
from pessoa.serde.framing import frame
from pessoa.web.asgi_app import App, json_response, make_app
from pessoa.web.problems import HttpProblem
from pessoa.web.routing import Endpoint
from pessoa.web.serving import ThreadedServer, Tls
from pessoa.web.trust import tls_context
from tests.services.certificates import Authority
from tests.support.logged_process import LoggedProcess, pessoa

START_S = 60.0


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def url(authority: Authority, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Start `pessoa control-center` and return its URL; it answers /health without a broker."""
    settings = {
        "listeners": "https://127.0.0.1:0",
        "ssl.keystore.location": authority.sign("service"),
        "ssl.truststore.location": authority.path,
        "ssl.client.authentication": "REQUIRED",
        "pessoa.control.center.hosts": "127.0.0.1",
    }
    overrides = [word for key, value in settings.items() for word in ("--override", f"{key}={value}")]
    command = pessoa("control-center", "--bootstrap-server", "127.0.0.1:1", *overrides)
    log: Path = tmp_path_factory.mktemp("center") / "center.log"
    with LoggedProcess(command, log, name="the control centre") as process:
        yield process.wait_for(r"is listening on (\S+)\n", START_S)[1]


def client(authority: Authority, certificate: str | None) -> httpx.Client:
    return httpx.Client(verify=tls_context(authority.path, certificate), timeout=START_S, trust_env=False)


def test_control_center_refuses_a_caller_without_a_certificate(url: str, authority: Authority) -> None:
    with client(authority, None) as http, pytest.raises(httpx.TransportError):
        http.get(f"{url}/health")


def test_control_center_serves_a_caller_with_a_certificate_of_the_authority(url: str, authority: Authority) -> None:
    with client(authority, authority.sign("caller")) as http:
        answer = http.get(f"{url}/health")
        assert answer.status_code == 200, answer.text


async def make_registry() -> App:
    """Return a registry that answers only requests with the token or the password of ada."""

    async def answer(request: Request) -> Response:
        if request.headers.get("authorization") not in ("Bearer a.token", "Basic YWRhOnNlY3JldA=="):
            raise HttpProblem(401, "Unauthorized", 401)
        return json_response(request, ["s"] if request.url.path == "/subjects" else {"schema": '"string"'})

    return make_app("registry", [Endpoint("GET", "/schemas/ids/{id}", answer), Endpoint("GET", "/subjects", answer)])


@pytest.mark.parametrize(
    "login", [{"bearer.auth.token": "a.token"}, {"basic.auth.user.info": "ada:secret"}], ids=["bearer", "basic"]
)
@pytest.mark.parametrize("store", ["ssl.truststore.location", "schema.registry.ssl.truststore.location"])
def test_message_decoder_and_registry_client_reach_a_registry_behind_https_with_the_same_login(
    authority: Authority, login: dict[str, str], store: str
) -> None:
    certificate = authority.sign("registry")
    with ThreadedServer(make_registry, tls=Tls(certificate, certificate)) as server:
        given = {"confluent.controlcenter.schema.registry.url": server.url, store: authority.path, **login}
        center = Center(from_properties({"bootstrap.servers": "127.0.0.1:1", **given}))
        assert center.decoder.decode(frame(7, b"\x04hi")).value == "hi"

        async def ask() -> list[str]:
            try:
                return await center.services.registry.ask(subjects())
            finally:
                await center.services.registry.close()

        assert asyncio.run(ask()) == ["s"]
