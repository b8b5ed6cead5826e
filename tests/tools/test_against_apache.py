"""Our tools and Apache's on Apache's broker and on ours: the same commands must have the same output and exit code."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.apache.tool_server import ToolServer
from tests.tools.stage import compare

SCRIPTS = Path(__file__).with_name("scripts")
NAMES = sorted(path.stem for path in SCRIPTS.glob("*.txt"))

# These leave groups and producer ids that other scripts would list, so they get a cluster that the others do not use.
UNTIDY = ("console", "console_mistakes", "measuring", "share_consumers", "verifiable")

# These need no cluster, or a controller with a listener.
ELSEWHERE = ("storage", "unreachable", "cluster", "verifiable_mistakes")

# The output of these depends on whether Java uses a class archive.
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
