from __future__ import annotations

from pathlib import Path

import pytest

from pessoa.platform.home import pessoa_home


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
