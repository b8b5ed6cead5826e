"""Requests about share groups (KIP-932) to Apache Kafka and to our broker: the same responses, but for `DIFFERENT`."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import unified_diff

import pytest

from pessoa.testing import Broker
from tests.apache.broker import ApacheKafka
from tests.differential.session_stage import INTERNAL_PARTITIONS, Player
from tests.differential.share_script import play

pytestmark = pytest.mark.apache

SETTINGS = {
    "offsets.topic.num.partitions": str(INTERNAL_PARTITIONS),
    "share.coordinator.state.topic.num.partitions": str(INTERNAL_PARTITIONS),
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "group.share.assignment.interval.ms": "0",
    "group.share.min.assignment.interval.ms": "0",
    # Long, so that no lock expires while the machine is busy.
    "group.share.record.lock.duration.ms": "600000",
    "group.share.max.record.lock.duration.ms": "600000",
    "group.share.session.timeout.ms": "600000",
    "group.share.max.session.timeout.ms": "600000",
}
# Steps whose responses differ → reason.
DIFFERENT = {
    "ShareFetch v2: unknown topic": "Apache fails with UNKNOWN_SERVER_ERROR, we name the topic that is unknown",
    "ShareFetch v2: the rest, by batches": "Apache begins a new entry where it had acquired before, we do not",
}


def played(port: int) -> dict[str, list[str]]:
    player = Player({1: port})
    try:
        player.open()
        play(player)
    finally:
        player.close()
    return player.transcript


def lines(transcript: Mapping[str, list[str]]) -> list[str]:
    return [line for title, answer in transcript.items() for line in (f"── {title}", *answer)]


def test_requests_about_share_groups_are_answered_as_by_apache() -> None:
    with ApacheKafka(properties=SETTINGS) as apache:
        theirs = played(int(apache.bootstrap_servers.rpartition(":")[2]))
    with Broker(SETTINGS) as broker:
        ours = played(broker.port)
    assert [title for title in DIFFERENT if theirs[title] == ours[title]] == []
    for title in DIFFERENT:
        del theirs[title], ours[title]
    difference = list(unified_diff(lines(theirs), lines(ours), "Apache Kafka", "Pessoa", lineterm="", n=4))
    assert not difference, "\n".join(difference)
