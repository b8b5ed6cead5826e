"""$PESSOA_HOME: every command and service uses the same folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from pessoa.base.home_folder import home_path, pessoa_home
from pessoa.connect import worker_config
from pessoa.ksql.server import server_config
from pessoa.streams import App
from pessoa.streams.running import home_of


def test_home_is_what_the_variable_says(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PESSOA_HOME", str(tmp_path))
    assert pessoa_home() == tmp_path


@pytest.mark.parametrize("value", [None, ""])
def test_home_is_in_the_users_home_when_the_variable_is_unset_or_empty(
    monkeypatch: pytest.MonkeyPatch, value: str | None
) -> None:
    monkeypatch.setenv("HOME", "/home/ophelia")
    monkeypatch.delenv("PESSOA_HOME", raising=False)
    if value is not None:
        monkeypatch.setenv("PESSOA_HOME", value)
    assert pessoa_home() == Path("/home/ophelia/.pessoa")


def test_a_relative_home_is_made_absolute(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PESSOA_HOME", "here")
    assert pessoa_home() == tmp_path / "here"


@pytest.mark.parametrize("value", ["here", "~/here", "", "/data/../here"])
def test_services_and_apps_have_their_folders_in_the_same_home(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, value: str
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", "/home/ophelia")
    monkeypatch.setenv("PESSOA_HOME", value)
    home = pessoa_home()
    assert home.is_absolute()
    assert home_path() == str(home)
    assert worker_config.make_config({}).settings["pessoa.home"] == str(home / "connect")
    assert server_config.make_config({}).settings["pessoa.home"] == str(home / "ksql")
    assert home_of(App("vendas")) == home / "streams" / "vendas"
