"""What a step says while it lasts."""

from __future__ import annotations

import io
import time

import pytest

from pessoa.streams import progress_report
from pessoa.streams.progress_report import ProgressReport


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def wait_for(out: io.StringIO, text: str) -> str:
    deadline_s = time.monotonic() + 20
    while text not in out.getvalue():
        assert time.monotonic() < deadline_s, out.getvalue()
        time.sleep(0.005)
    return out.getvalue()


def test_a_step_that_lasts_is_said_again_until_nothing_is_under_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress_report, "INTERVAL_S", 0.02)
    out = io.StringIO()
    with ProgressReport(out) as progress:
        progress.say("Starting Spark")
        wait_for(out, "… Starting Spark: 0 s\n")
        progress.say("it runs\nin two queries")
        progress.rest()
    lines = out.getvalue().splitlines()
    assert lines[:2] == ["Starting Spark", "… Starting Spark: 0 s"]
    assert lines[-2:] == ["it runs", "in two queries"]


def test_on_a_terminal_the_repeated_line_takes_its_own_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress_report, "INTERVAL_S", 0.02)
    out = Terminal()
    with ProgressReport(out) as progress:
        progress.say("Starting")
        wait_for(out, "\r… Starting: 0 s\r")
        progress.say("Done")
    assert out.getvalue().startswith("\r\rStarting\n\r\r… Starting: 0 s")
    assert out.getvalue().count("\n") == 2
