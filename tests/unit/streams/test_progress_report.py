"""The messages of a step while it runs."""

from __future__ import annotations

import io
import random
import time

import pytest

from pessoa.pipelines import slow_steps
from pessoa.streams import App, progress_report, running
from pessoa.streams.progress_report import ProgressReport


class FakeClock:
    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


class TimedOutput(io.StringIO):
    """An output that records each write with the time of the clock."""

    def __init__(self, clock: FakeClock) -> None:
        super().__init__()
        self._clock = clock
        self.lines: list[tuple[float, str]] = []

    def write(self, text: str) -> int:
        self.lines.append((self._clock(), text.rstrip("\n")))
        return len(text)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def wait_for(out: io.StringIO, text: str) -> str:
    deadline_s = time.monotonic() + 20
    while text not in out.getvalue():
        assert time.monotonic() < deadline_s, out.getvalue()
        time.sleep(0.005)
    return out.getvalue()


def test_a_step_that_takes_long_is_reported_repeatedly_until_it_ends(monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_the_engine_reports_first_and_no_step_is_silent_for_more_than_two_seconds() -> None:
    assert slow_steps.INTERVAL_S < progress_report.INTERVAL_S
    assert progress_report.INTERVAL_S + progress_report.LOOK_S <= 2.0


@pytest.mark.parametrize("seed", range(20))
def test_no_two_seconds_of_a_start_pass_in_silence_however_long_its_steps_take(seed: int) -> None:
    chance, clock = random.Random(seed), FakeClock()
    out = TimedOutput(clock)
    progress = ProgressReport(out, clock)
    began_s = clock.now_s

    def last(what: str) -> None:
        """Let the step take up to half a minute; the engine reports every other step too (`slow_steps`)."""
        is_told_by_the_engine = chance.random() < 0.5
        spoke_s = end_s = clock.now_s
        end_s += chance.choice((0.0, 0.3, 1.95, 2.05, 7.0, 30.0)) * chance.random()
        while clock.now_s < end_s:
            clock.now_s += progress_report.LOOK_S * chance.random()
            if is_told_by_the_engine and clock.now_s >= spoke_s + slow_steps.INTERVAL_S:
                spoke_s = clock.now_s
                progress.say(f"{what}: {spoke_s - began_s:.0f} s so far")
            progress.repeat_if_silent()

    for step in (
        "vendas-app: looking at localhost:9092",
        "Starting vendas-caras",
        "Starting Spark (local[256]); this takes some seconds",
        "Fetching Spark's jars for Kafka: 1 of 12 (3.0 MB)",
        "Spark is ready after 6.2 s (local[256])",
        "Starting vendas-por-minuto",
        "vendas-caras → vendas-caras: real-time\nvendas-por-minuto → vendas-por-minuto: real-time",
    ):
        progress.say(step)
        last(step)
    times = [began_s, *(when for when, _ in out.lines)]
    silences = [after - before for before, after in zip(times, [*times[1:], clock.now_s], strict=True)]
    assert max(silences) <= 2.0, out.lines


@pytest.mark.parametrize(
    "start", ["Starting Spark (local[256]); this takes some seconds", "Connecting to Spark at sc://localhost:15002"]
)
def test_the_query_that_waited_for_spark_is_what_goes_on_when_spark_is_ready(
    start: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress_report, "INTERVAL_S", 0.02)
    out = io.StringIO()
    with ProgressReport(out) as progress:
        progress.say("Starting vendas-caras")
        progress.say(start)
        progress.say("Spark is ready after 6.2 s (local[256])")
        wait_for(out, "… Starting vendas-caras: 0 s so far\n")
    assert "… Spark is ready" not in out.getvalue()


def test_news_of_a_running_query_is_printed_once_and_again_after_a_new_start(monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_the_engines_report_of_a_slow_step_replaces_the_repeated_line() -> None:
    out = Terminal()
    with ProgressReport(out) as progress:
        progress.say("Starting Spark")
        progress.say("Starting Spark: 2 s so far")
        progress.say("Starting Spark: 4 s so far (2 MB of log)")
    assert out.getvalue().count("\n") == 1
    assert "\r… Starting Spark: 2 s so far\r" in out.getvalue()
    assert "… Starting Spark: 4 s so far (2 MB of log)" in out.getvalue()


def test_on_a_terminal_the_repeated_line_is_overwritten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress_report, "INTERVAL_S", 0.02)
    out = Terminal()
    with ProgressReport(out) as progress:
        progress.say("Starting")
        wait_for(out, "\r… Starting: 0 s so far\r")
        progress.say("Done")
    assert out.getvalue().startswith("\r\rStarting\n\r\r… Starting: 0 s so far")
    assert out.getvalue().count("\n") == 2


def test_run_prints_what_it_waits_for_and_ends_with_an_error_message_if_no_broker_answers(
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
