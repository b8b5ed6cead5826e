"""What a step says while it lasts."""

from __future__ import annotations

import io
import time

import pytest

from pessoa.pipelines import slow_steps
from pessoa.streams import App, progress_report, running
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
        wait_for(out, "… Starting Spark: 0 s so far\n")
        progress.say("it runs\nin two queries")
        progress.rest()
    lines = out.getvalue().splitlines()
    assert lines[:2] == ["Starting Spark", "… Starting Spark: 0 s so far"]
    assert lines[-2:] == ["it runs", "in two queries"]


def test_the_engine_speaks_first_and_no_step_is_silent_for_more_than_two_seconds() -> None:
    assert slow_steps.INTERVAL_S < progress_report.INTERVAL_S
    assert progress_report.INTERVAL_S + progress_report.LOOK_S <= 2.0


def test_the_query_that_waited_for_spark_is_what_goes_on_when_spark_is_ready(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress_report, "INTERVAL_S", 0.02)
    out = io.StringIO()
    with ProgressReport(out) as progress:
        progress.say("Starting vendas-caras")
        progress.say("Starting Spark (local[256]); this takes some seconds")
        progress.say("Spark is ready after 6.2 s (local[256])")
        wait_for(out, "… Starting vendas-caras: 0 s so far\n")
    assert "… Spark is ready" not in out.getvalue()


def test_news_of_what_runs_are_said_once_and_a_new_start_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress_report, "INTERVAL_S", 0.02)
    out = io.StringIO()
    with ProgressReport(out) as progress:
        progress.say("it runs")
        progress.rest()
        progress.say("vendas has caught up")
        progress.say("Starting Spark")
        wait_for(out, "… Starting Spark")
        progress.say("Spark is ready")
    assert "… vendas" not in out.getvalue()
    assert out.getvalue().splitlines()[-1] == "Spark is ready"


def test_what_the_engine_says_of_a_slow_step_stands_in_place_of_the_repetition() -> None:
    out = Terminal()
    with ProgressReport(out) as progress:
        progress.say("Starting Spark")
        progress.say("Starting Spark: 2 s so far")
        progress.say("Starting Spark: 4 s so far (2 MB of log)")
    assert out.getvalue().count("\n") == 1
    assert "\r… Starting Spark: 2 s so far\r" in out.getvalue()
    assert "… Starting Spark: 4 s so far (2 MB of log)" in out.getvalue()


def test_on_a_terminal_the_repeated_line_takes_its_own_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress_report, "INTERVAL_S", 0.02)
    out = Terminal()
    with ProgressReport(out) as progress:
        progress.say("Starting")
        wait_for(out, "\r… Starting: 0 s so far\r")
        progress.say("Done")
    assert out.getvalue().startswith("\r\rStarting\n\r\r… Starting: 0 s so far")
    assert out.getvalue().count("\n") == 2


def test_run_says_what_it_looks_for_and_ends_with_a_sentence_if_no_broker_answers(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(running, "ADMIN_TIMEOUT_S", 0.5)
    app = App("loja", "127.0.0.1:1")
    app.stream("vendas", value="valor DOUBLE").to("copia")
    with pytest.raises(SystemExit) as ended:
        app.run()
    assert str(ended.value).startswith("loja: no broker answers at 127.0.0.1:1 within 0 s")
    assert capsys.readouterr().out.startswith("loja: looking at 127.0.0.1:1\n")


def test_ctrl_c_while_an_app_starts_ends_the_program_without_a_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(running, "Running", interrupt)
    app = App("loja", "127.0.0.1:1")
    app.stream("vendas", value="valor DOUBLE").to("copia")
    with pytest.raises(SystemExit) as ended:
        app.run()
    assert ended.value.code == 130
