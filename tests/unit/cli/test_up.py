from __future__ import annotations

import sys
from pathlib import Path

import pytest

from pessoa.cli.up import where_the_commands_are


def test_who_has_the_commands_on_path_is_told_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    command = tmp_path / "kafka-topics"
    command.touch(mode=0o755)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setenv("PATH", str(tmp_path))
    assert where_the_commands_are() == ""


def test_who_has_not_activated_the_environment_is_told_how(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
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
