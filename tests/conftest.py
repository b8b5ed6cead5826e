"""What every test shares: Hypothesis profiles, and what becomes of a test that needs Apache Kafka.

Profiles: `ci` is the default and derandomised, so the same commit always runs the same examples, and a failure is
news about the code and not about luck. `fuzz` (`make fuzz`) draws new examples every time, PESSOA_FUZZ_EXAMPLES of
them, and prints the blob that replays a failure.

A test marked `apache` runs Apache Kafka's own programs. Where they cannot be had (no Java 17, no jars) it is skipped
with a sentence that says why; PESSOA_REQUIRE_APACHE=1 turns the skip into a failure, for machines where they must be.

The folders: unit/ mirrors the package; property/ compares with dumb or foreign implementations; simulation/ runs
clusters from a seed; differential/ runs one script on Apache Kafka and on us; conformance/ runs real clients;
services/, pipelines/ and browser/ go with what they name. apache/ holds no tests: it is Apache Kafka for the others.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

FUZZ_EXAMPLES = int(os.environ.get("PESSOA_FUZZ_EXAMPLES", "5000"))

settings.register_profile(
    "ci",
    derandomize=True,
    deadline=None,
    print_blob=True,
    # How long it takes to draw says something about the machine alone.
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile(
    "fuzz",
    # Said aloud, because Hypothesis has other defaults where the variable CI is set.
    derandomize=False,
    max_examples=FUZZ_EXAMPLES,
    deadline=None,
    print_blob=True,
    # With this many examples some draws are slow or large; that is the point.
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.load_profile("ci")

# A shell lets what it starts with & ignore Ctrl-C, and so would every program that a test starts and interrupts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_runtest_setup(item: pytest.Item) -> None:
    # Asked here and not at collection, because the question may download jars: only a test that runs should pay.
    if item.get_closest_marker("apache") is None:
        return
    from tests.apache.jars import why_unavailable

    reason = why_unavailable()
    if reason is None:
        return
    if os.environ.get("PESSOA_REQUIRE_APACHE") == "1":
        pytest.fail(f"PESSOA_REQUIRE_APACHE=1, but: {reason}", pytrace=False)
    pytest.skip(reason)


class _FailedTests:
    """Writes the name of every test that fails, and of every file that cannot be imported, into a file for
    `tools/run-tests`; and into another that the run came to its end, which it does not if a hanging test ends it."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._note_failure(report)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        self._note_failure(report)

    def _note_failure(self, report: pytest.TestReport | pytest.CollectReport) -> None:
        if report.failed:
            with self._path.open("a", encoding="utf-8") as file:
                file.write(f"{report.nodeid}\n")

    def pytest_sessionfinish(self) -> None:
        with self._path.with_name(f"{self._path.name}.ended").open("a", encoding="utf-8") as file:
            file.write("ended\n")


def pytest_configure(config: pytest.Config) -> None:
    # Not for the processes that this one starts: a test may run another pytest, and xdist's workers report to this one.
    path = os.environ.pop("PESSOA_FAILED_TESTS", None)
    if path and not hasattr(config, "workerinput"):
        config.pluginmanager.register(_FailedTests(Path(path)))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Show what the oracles compared. Tests put it into `user_properties`, which travel from xdist's workers."""
    for report in terminalreporter.getreports("passed"):
        if report.when == "call":
            for name, sentence in report.user_properties:
                if name in ("compared", "summary"):
                    terminalreporter.write_line(f"{name}: {sentence}")
