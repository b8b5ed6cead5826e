"""What every test shares: Hypothesis profiles, and the rule for tests that need Apache Kafka.

Profiles: `ci` is the default and derandomised, so the same commit always runs the same examples, and a new failure
comes from a change of the code. `fuzz` (`make fuzz`) draws new examples every time, PESSOA_FUZZ_EXAMPLES of them, and
prints the blob that replays a failure.

A test marked `apache` runs Apache Kafka's own programs. Where they are not available (no Java 17, no jars) it is
skipped with the reason; PESSOA_REQUIRE_APACHE=1 turns the skip into a failure, for machines that must have them.

The folders: unit/ mirrors the package; property/ compares with simple or foreign implementations; simulation/ runs
clusters from a seed; differential/ runs one script on Apache Kafka and on us; conformance/ runs real clients;
services/, pipelines/ and browser/ test what they are named after. apache/ has no tests: it runs Apache Kafka for
others.
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
    # The time of drawing examples depends on the machine only.
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile(
    "fuzz",
    # Explicit, because Hypothesis has other defaults where the variable CI is set.
    derandomize=False,
    max_examples=FUZZ_EXAMPLES,
    deadline=None,
    print_blob=True,
    # With this many examples some draws are slow or large, which is intended.
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.load_profile("ci")

# A shell makes programs that it starts with & ignore SIGINT, and every program that a test starts would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_runtest_setup(item: pytest.Item) -> None:
    # Checked here and not at collection, because the check may download jars: only a test that runs should wait for
    # that.
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
    `tools/run-tests`; at the end of a run, which a hanging test can prevent, it creates another file."""

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
    # Only for this process: a test may run another pytest, and xdist's workers report to this one.
    path = os.environ.pop("PESSOA_FAILED_TESTS", None)
    if path and not hasattr(config, "workerinput"):
        config.pluginmanager.register(_FailedTests(Path(path)))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print how much was compared with other implementations. Tests put it into `user_properties`, which xdist's
    workers send here."""
    for report in terminalreporter.getreports("passed"):
        if report.when == "call":
            for name, sentence in report.user_properties:
                if name in ("compared", "summary"):
                    terminalreporter.write_line(f"{name}: {sentence}")
