"""One session with real brokers, Apache's and ours: the same responses, except for the differences listed here.

The session is a script of several hundred requests (`session_script`); the responses are written in words that are the
same on both sides (`session_stage`). `deviations` names each step whose responses differ, line by line, and the line of
docs/DEVIATIONS.md with the reason. A difference that is not in the table fails, and so does a listed one that no longer
exists.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

import pytest

from pessoa.testing import Broker, Cluster
from tests.apache.broker import ApacheKafka
from tests.differential.session_script import play
from tests.differential.session_stage import INTERNAL_PARTITIONS, Player

pytestmark = pytest.mark.apache

DOCUMENT = Path(__file__).parents[2] / "docs" / "DEVIATIONS.md"
# Few partitions of the internal topics, since each has to be created; and no initial rebalance delay.
SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.assignment.interval.ms": "0",
    "offsets.topic.num.partitions": str(INTERNAL_PARTITIONS),
    "transaction.state.log.num.partitions": str(INTERNAL_PARTITIONS),
    "default.replication.factor": "1",
    # Long timeouts: leaders, epochs and ISRs are compared, and must not change because the machine is busy.
    "broker.session.timeout.ms": "120000",
    "replica.lag.time.max.ms": "120000",
    "controller.quorum.fetch.timeout.ms": "60000",
}

Transcript = Mapping[str, list[str]]


class Deviation(NamedTuple):
    """The lines of a step that only Apache's transcript has, and those that only ours has."""

    apache: tuple[str, ...]
    ours: tuple[str, ...]
    # A part of the line in docs/DEVIATIONS.md.
    because: str


_NO_CLUSTER = "cluster_authorized_operations=-2147483648"
_EMPTY = "is_internal=False partitions=[] topic_authorized_operations=-2147483648"


def deviations(brokers: int = 1) -> dict[str, Deviation]:
    """Return the expected deviations by step."""
    return {
        "Metadata v13: by no id": Deviation(
            (
                f"answer: brokers=[] cluster_id=None controller_id=... {_NO_CLUSTER} error_code=UNKNOWN_SERVER_ERROR",
                f"  topics: error_code=UNKNOWN_SERVER_ERROR name='' topic_id=- {_EMPTY}",
            ),
            (
                f"answer: cluster_id=<cluster 1> controller_id=... {_NO_CLUSTER} error_code=NONE",
                *(
                    f"  brokers: node_id={node} host='127.0.0.1' port=<port {node}> rack=None"
                    for node in range(1, brokers + 1)
                ),
                f"  topics: error_code=UNKNOWN_TOPIC_ID name=None topic_id=- {_EMPTY}",
            ),
            "Metadata of a topic that is given neither a name nor an id",
        ),
        "IncrementalAlterConfigs v1: admin, an unknown operation": Deviation(
            ("  responses: error_code=UNKNOWN_SERVER_ERROR resource_type=2 resource_name='a'",),
            ("  responses: error_code=INVALID_REQUEST resource_type=2 resource_name='a'",),
            "an unknown operation in IncrementalAlterConfigs",
        ),
    }


def transcript(ports: Mapping[int, int]) -> Transcript:
    player = Player(ports)
    try:
        play(player)
    finally:
        player.close()
    return player.transcript


def differences(apache: Transcript, ours: Transcript) -> dict[str, tuple[list[str], list[str]]]:
    """Return step → the lines of Apache only, the lines of ours only; in the order of the session."""
    found = {}
    for title in {**apache, **ours}:
        theirs, own = Counter(apache.get(title, ["(no such step)"])), Counter(ours.get(title, ["(no such step)"]))
        if theirs != own:
            found[title] = (sorted((theirs - own).elements()), sorted((own - theirs).elements()))
    return found


def described(found: Mapping[str, tuple[list[str], list[str]]]) -> str:
    parts = []
    for title, (theirs, own) in found.items():
        parts += [title, *(f"  apache  {line}" for line in theirs), *(f"  ours    {line}" for line in own)]
    return "\n".join(parts)


def check(apache: Transcript, ours: Transcript, listed: Mapping[str, Deviation]) -> None:
    found = differences(apache, ours)
    expected = {title: (sorted(one.apache), sorted(one.ours)) for title, one in listed.items()}
    surprising = {title: lines for title, lines in found.items() if expected.get(title) != lines}
    assert not surprising, f"{len(surprising)} of {len(apache)} steps differ:\n{described(surprising)}"
    assert not (gone := sorted(expected.keys() - found.keys())), f"these no longer differ: {gone}"


def test_a_session_with_one_broker_has_the_same_transcript_as_with_one_of_apache(
    tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    with ApacheKafka(properties=SETTINGS) as kafka:
        apache = transcript({node.node_id: node.port for node in kafka.nodes})
    with Broker(SETTINGS, directory=tmp_path) as broker:
        ours = transcript({1: broker.port})
    check(apache, ours, deviations())
    record_property("compared", f"a session of {len(apache)} steps, one broker beside Apache's")


def test_a_session_with_three_brokers_has_the_same_transcript_as_with_three_of_apache(
    tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    with ApacheKafka(nodes=3, properties=SETTINGS) as kafka:
        apache = transcript({node.node_id: node.port for node in kafka.nodes})
    with Cluster(3, SETTINGS, directory=tmp_path) as cluster:
        ours = transcript({node: cluster[node].port for node in cluster})
    check(apache, ours, deviations(3))
    record_property("compared", f"a session of {len(apache)} steps, three brokers beside Apache's three")


@pytest.mark.parametrize("because", sorted({one.because for one in deviations().values()}))
def test_every_listed_difference_of_the_session_is_in_docs_deviations(because: str) -> None:
    assert because in DOCUMENT.read_text(encoding="utf-8")


def test_an_unlisted_difference_and_a_listed_one_that_no_longer_exists_both_fail() -> None:
    same, other = {"step": ["a", "b"]}, {"step": ["a", "c"]}
    listed = {"step": Deviation(("b",), ("c",), "")}
    check(same, other, listed)
    with pytest.raises(AssertionError, match="1 of 1 steps differ"):
        check(same, other, {})
    with pytest.raises(AssertionError, match="no longer differ"):
        check(same, same, listed)
