from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from click.testing import CliRunner

from pessoa.cli.main import main
from pessoa.cli.up import where_the_commands_are


def test_up_does_not_mention_the_commands_if_they_are_on_path(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    command = tmp_path / "kafka-topics"
    command.touch(mode=0o755)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setenv("PATH", str(tmp_path))
    assert where_the_commands_are() == ""


def test_up_explains_how_to_activate_the_environment_if_the_commands_are_not_on_path(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("kafka-topics", "activate"):
        (tmp_path / name).touch(mode=0o755)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setenv("PATH", "/nowhere")
    assert where_the_commands_are().startswith(f"In another terminal, `. {tmp_path}/activate` lets you type")


def test_an_installation_without_a_virtual_environment_names_its_folder(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "kafka-topics").touch(mode=0o755)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setenv("PATH", "/nowhere")
    assert f"`export PATH={tmp_path}:$PATH`" in where_the_commands_are()


@pytest.fixture
def home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("PESSOA_HOME", str(tmp_path))
    return tmp_path


@pytest.mark.parametrize("options", [[], ["--detach"]])
def test_a_full_disk_gives_one_error_line_and_an_exit_code(
    home: Path, monkeypatch: pytest.MonkeyPatch, options: list[str]
) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=3 * 2**20))
    refused = CliRunner().invoke(main, ["up", "--services", "none", *options])
    assert refused.exit_code == 1
    assert refused.output == (
        f"Error: The disk is full: {home} has 3 MB left, and Pessoa needs 64 MB to start. Free some space, or set"
        " PESSOA_HOME to another disk.\n"
    )


@pytest.mark.parametrize("options", [[], ["--detach"]])
def test_data_of_another_cluster_gives_one_error_line_and_an_exit_code(home: Path, options: list[str]) -> None:
    (home / "platform.properties").write_text("cluster.id=mine\nbrokers=1\n")
    (home / "broker-1").mkdir()
    (home / "broker-1" / "meta.properties").write_text("version=1\ncluster.id=theirs\nnode.id=1\n")
    refused = CliRunner().invoke(main, ["up", "--services", "none", *options])
    assert refused.exit_code == 1
    assert refused.output == (
        f"Error: {home}/broker-1 belongs to another cluster (theirs, and this one is mine). Move that directory away,"
        " or set PESSOA_HOME to the home that it came from.\n"
    )


def test_a_home_that_is_not_writable_gives_one_error_line(home: Path) -> None:
    (home / "file").write_text("")
    refused = CliRunner().invoke(main, ["up", "--services", "none"], env={"PESSOA_HOME": str(home / "file")})
    assert refused.exit_code == 1
    assert refused.output == f"Error: {home}/file cannot be used for data and logs: Not a directory.\n"
