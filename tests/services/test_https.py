"""HTTPS of schema registry and REST proxy: client certificates, passwords, roles, and requests between the services."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

import httpx
import pytest

from pessoa.rest_proxy.proxy_app import rest_proxy_app
from pessoa.rest_proxy.proxy_config import from_properties
from pessoa.schema_registry.registry_config import make_config
from pessoa.schema_registry.registry_service import make_registry_app
from pessoa.testing.broker import Broker
from pessoa.web.asgi_app import App
from pessoa.web.serving import ThreadedServer, bind
from pessoa.web.trust import tls_context
from tests.services.certificates import Authority

AVRO = "application/vnd.kafka.avro.v2+json"
USERS = "alice: wonderland, admin\nbob: builder, guest\n"


class Stage(NamedTuple):
    """Two registries and a proxy that require a certificate and a password of every client."""

    registries: list[str]
    proxy: str
    authority: Authority

    def client(self, name: str | None, auth: tuple[str, str] | None = ("alice", "wonderland")) -> httpx.Client:
        context = tls_context(self.authority.path, None if name is None else self.authority.sign(name))
        return httpx.Client(verify=context, auth=auth, timeout=60, trust_env=False)


@contextmanager
def registry(bootstrap_servers: str, settings: dict[str, str]) -> Iterator[str]:
    listening = bind("127.0.0.1", 0)
    port = listening.getsockname()[1]
    config = make_config(
        {
            "listeners": f"https://127.0.0.1:{port}",
            "host.name": "127.0.0.1",
            "kafkastore.bootstrap.servers": bootstrap_servers,
            "ssl.client.authentication": "REQUIRED",
            **settings,
        }
    )

    async def make() -> App:
        return await make_registry_app(config)

    with ThreadedServer(make, tls=config.http.tls, listening=listening) as server:
        yield server.url


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    folder: Path = tmp_path_factory.mktemp("https")
    authority = Authority(folder)
    (folder / "users").write_text(USERS)
    shared = {
        "ssl.keystore.location": authority.sign("service"),
        "ssl.truststore.location": authority.path,
        "authentication.method": "BASIC",
        "authentication.roles": "admin",
        "pessoa.authentication.users.file": str(folder / "users"),
    }
    with Broker() as broker, ExitStack() as stack:
        servers = broker.bootstrap_servers
        registries = [stack.enter_context(registry(servers, shared)) for _ in range(2)]
        config = from_properties(
            {
                "bootstrap.servers": servers,
                "listeners": "https://127.0.0.1:0",
                "ssl.client.authentication": "REQUIRED",
                "schema.registry.url": ",".join(registries),
                "schema.registry.ssl.truststore.location": authority.path,
                "schema.registry.ssl.keystore.location": shared["ssl.keystore.location"],
                "schema.registry.basic.auth.user.info": "alice:wonderland",
                **shared,
            }
        )

        async def make() -> App:
            return rest_proxy_app(config)

        proxy = stack.enter_context(ThreadedServer(make, tls=config.http.tls))
        yield Stage(registries, proxy.url, authority)


def test_registry_leader_and_follower_both_register_schemas_over_https(stage: Stage) -> None:
    with stage.client("caller") as client:
        for number, url in enumerate(stage.registries):
            schema = {"schema": f'{{"type":"fixed","name":"F","size":{number + 1}}}'}
            answer = client.post(f"{url}/subjects/s{number}/versions", json=schema)
            assert answer.status_code == 200, answer.text


def test_rest_proxy_creates_a_topic_and_produces_with_a_schema_over_https(stage: Stage) -> None:
    with stage.client("caller") as client:
        [cluster] = client.get(f"{stage.proxy}/v3/clusters").json()["data"]
        assert cluster["metadata"]["self"].startswith("https://")
        made = client.post(f"{cluster['metadata']['self']}/topics", json={"topic_name": "secure"})
        assert made.status_code == 201, made.text
        body = {"value_schema": '"string"', "records": [{"value": "hello"}]}
        answer = client.post(f"{stage.proxy}/topics/secure", json=body, headers={"Content-Type": AVRO})
        assert answer.json()["offsets"][0]["offset"] == 0, answer.text


def test_a_client_without_a_certificate_cannot_connect(stage: Stage) -> None:
    with stage.client(None) as client:
        for url in (stage.registries[0], stage.proxy):
            with pytest.raises(httpx.TransportError):
                client.get(f"{url}/")


@pytest.mark.parametrize(
    ("auth", "status"), [(None, 401), (("alice", "wrong"), 401), (("mallory", "x"), 401), (("bob", "builder"), 403)]
)
def test_a_client_without_a_valid_password_gets_401_and_one_without_the_role_403(
    stage: Stage, auth: tuple[str, str] | None, status: int
) -> None:
    with stage.client("caller", auth) as client:
        for url in (f"{stage.registries[0]}/subjects", f"{stage.proxy}/topics"):
            answer = client.get(url)
            assert (answer.status_code, answer.json()["error_code"]) == (status, status)
            assert ("www-authenticate" in answer.headers) == (status == 401)


def test_a_plain_http_request_to_the_https_listener_fails(stage: Stage) -> None:
    with pytest.raises(httpx.TransportError):
        httpx.get(stage.proxy.replace("https", "http"), timeout=60, trust_env=False)
