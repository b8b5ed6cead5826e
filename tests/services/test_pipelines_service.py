"""`pessoa pipelines serve` with a settings file, HTTPS and users. No query is started, so Spark does not run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import httpx
import pytest
from click.testing import CliRunner, Result

from pessoa.cli.pipelines import pipelines
from pessoa.testing import Broker
from pessoa.web.trust import tls_context
from tests.services.certificates import Authority
from tests.support.logged_process import LoggedProcess, pessoa

START_S = 60.0


class Stage(NamedTuple):
    url: str
    authority: str

    def get(self, path: str, auth: tuple[str, str] | None) -> httpx.Response:
        with httpx.Client(verify=tls_context(self.authority), auth=auth, timeout=START_S, trust_env=False) as http:
            return http.get(self.url + path)

    def list_queries(self, login: str) -> Result:
        url = self.url.replace("://", f"://{login}")
        return CliRunner().invoke(pipelines, ["list", "--url", url], env={"SSL_CERT_FILE": self.authority})


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    folder: Path = tmp_path_factory.mktemp("pipelines")
    authority = Authority(folder)
    (folder / "users").write_text("ada: secret, admin\nbob: builder, guest\n")
    with Broker() as broker:
        settings = {
            "bootstrap.servers": "127.0.0.1:1",
            "listeners": "https://127.0.0.1:0",
            "listeners.https.ssl.keystore.location": authority.sign("engine"),
            "pessoa.authentication.users.file": folder / "users",
            "pessoa.home": folder / "home",
        }
        (folder / "engine.properties").write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        command = pessoa(
            *("pipelines", "serve", folder / "engine.properties", "--override", "authentication.roles=admin"),
            *("--bootstrap-server", broker.bootstrap_servers),
        )
        with LoggedProcess(command, folder / "engine.log", name="the engine") as process:
            yield Stage(process.wait_for(r"is listening on (\S+)\n", START_S)[1], authority.path)


def test_engine_serves_a_user_with_the_role_over_https_and_refuses_one_without_it(stage: Stage) -> None:
    assert stage.url.startswith("https://")
    answer = stage.get("/queries", ("ada", "secret"))
    assert (answer.status_code, answer.json()) == (200, [])
    assert stage.get("/queries", ("bob", "builder")).status_code == 403


@pytest.mark.parametrize("path", ["/queries", "/task-slots", "/tables", "/metrics"])
def test_engine_refuses_a_caller_without_a_login(stage: Stage, path: str) -> None:
    for auth in (None, ("ada", "wrong")):
        answer = stage.get(path, auth)
        assert answer.status_code == 401, answer.text
        assert "www-authenticate" in answer.headers
    assert stage.get("/health", None).status_code == 200


def test_pipelines_commands_use_the_credentials_of_the_url_and_never_print_them(stage: Stage) -> None:
    assert stage.list_queries("ada:secret@").exit_code == 0
    refused = stage.list_queries("ada:wrong@")
    assert (refused.exit_code, refused.output) == (1, "Error: Unauthorized\n")
    gone = CliRunner().invoke(pipelines, ["list", "--url", "http://ada:secret@127.0.0.1:1"])
    assert gone.exit_code == 1
    assert "no engine answers at http://127.0.0.1:1 (" in gone.output
    assert "secret" not in gone.output


@pytest.mark.parametrize(
    ("override", "told"),
    [
        ("listeners=ftp://here:1", "listeners"),
        ("listeners=https://127.0.0.1:0", "ssl.keystore.location"),
        ("pessoa.authentication.kafka=true", "pessoa.authentication.kafka"),
        ("nothing", "write KEY=VALUE"),
    ],
)
def test_engine_refuses_to_start_and_names_the_wrong_setting(override: str, told: str, tmp_path: Path) -> None:
    words = ["serve", "--home", str(tmp_path), "--override", override]
    refused = CliRunner().invoke(pipelines, words)
    assert refused.exit_code in (1, 2)
    assert told in refused.output
