"""A checkpoint in a store that only Spark reaches: Spark removes it, and a message says if it remains."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from pessoa.pipelines import traces
from pessoa.pipelines.traces import Traces

PLACE = "s3a://bucket/checkpoints"


@pytest.fixture
def emptied(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    places: list[str] = []
    monkeypatch.setattr(traces, "empty_folder", lambda _, place: places.append(place))
    return places


def test_a_remote_checkpoint_is_emptied_by_spark(tmp_path: Path, emptied: list[str]) -> None:
    session: Any = object()
    Traces(tmp_path, {}, PLACE, lambda: session).remove("copy", has_markers=False)
    assert emptied == [f"{PLACE}/copy"]


def test_a_local_checkpoint_is_removed_without_spark(tmp_path: Path, emptied: list[str]) -> None:
    checkpoint = tmp_path / "shared" / "copy"
    checkpoint.mkdir(parents=True)
    Traces(tmp_path / "home", {}, str(tmp_path / "shared")).remove("copy", has_markers=False)
    assert emptied == []
    assert not checkpoint.exists()


@pytest.mark.parametrize("has_session", [True, False])
def test_a_checkpoint_that_cannot_be_emptied_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, has_session: bool
) -> None:
    def refuse(*_: object) -> None:
        raise RuntimeError("access denied")

    monkeypatch.setattr(traces, "empty_folder", refuse)
    session: Any = object() if has_session else None
    with caplog.at_level(logging.WARNING):
        Traces(tmp_path, {}, PLACE, lambda: session).remove("copy", has_markers=False)
    assert f"remove {PLACE}/copy" in caplog.text
    assert ("access denied" in caplog.text) == has_session
