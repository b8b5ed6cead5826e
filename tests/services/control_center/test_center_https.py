"""HTTPS in front of the control centre: a caller shows a certificate where `ssl.client.authentication` wants one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from pessoa.web.trust import tls_context
from tests.services.certificates import Authority
from tests.support.logged_process import LoggedProcess, pessoa

START_S = 60.0


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def url(authority: Authority, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Where `pessoa control-center` listens; it needs no broker to answer /health."""
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
