"""Our tools beside Apache's, on Apache's broker and on ours: the same commands must print the same and end the same."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.apache.tool_server import ToolServer
from tests.tools.stage import compare

SCRIPTS = Path(__file__).with_name("scripts")
NAMES = sorted(path.stem for path in SCRIPTS.glob("*.txt"))

# These leave groups and use up producer ids, which others list.
UNTIDY = ("console", "console_mistakes", "measuring", "share_consumers", "verifiable")

# These ask no cluster anything, or a controller that listens.
ELSEWHERE = ("storage", "unreachable", "cluster", "verifiable_mistakes")

# What these print depends on whether Java has an archive of classes.
AS_JAVA_IS = ("verifiable",)

pytestmark = pytest.mark.apache


def tools_for(name: str, request: pytest.FixtureRequest) -> ToolServer:
    server: ToolServer = request.getfixturevalue("plain_tools" if name in AS_JAVA_IS else "tools")
    return server


@pytest.mark.parametrize("name", NAMES)
def test_our_tools_print_the_same_as_apaches_on_an_apache_kafka_cluster(
    name: str, record_property: Callable[[str, object], None], request: pytest.FixtureRequest
) -> None:
    cluster = request.getfixturevalue("another_apache" if name in UNTIDY else "apache")
    count = compare((SCRIPTS / f"{name}.txt").read_text(), cluster, tools_for(name, request))
    record_property("compared", f"{count} commands of {name} on Apache Kafka")


@pytest.mark.parametrize("name", [name for name in NAMES if name not in ELSEWHERE])
def test_our_tools_print_the_same_as_apaches_on_our_cluster(
    name: str, record_property: Callable[[str, object], None], request: pytest.FixtureRequest
) -> None:
    cluster = request.getfixturevalue("another_of_ours" if name in UNTIDY else "ours")
    script = "\n".join(line for line in (SCRIPTS / f"{name}.txt").read_text().splitlines() if "@C" not in line)
    count = compare(script, cluster, tools_for(name, request))
    record_property("compared", f"{count} commands of {name} on Pessoa")
