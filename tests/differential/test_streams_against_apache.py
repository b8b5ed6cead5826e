"""Requests about streams groups (KIP-1071) to Apache Kafka and to our broker: the same responses."""

from __future__ import annotations

import re
from difflib import unified_diff

import pytest

from pessoa.testing import Broker
from tests.apache.broker import ApacheKafka
from tests.differential.session_stage import INTERNAL_PARTITIONS, Player
from tests.differential.streams_script import play
from tests.differential.test_share_against_apache import lines

pytestmark = pytest.mark.apache

SETTINGS = {
    "offsets.topic.num.partitions": str(INTERNAL_PARTITIONS),
    "group.streams.initial.rebalance.delay.ms": "0",
    "group.streams.assignment.interval.ms": "0",
    "group.streams.min.assignment.interval.ms": "0",
    # Long, so that no session ends while the machine is busy.
    "group.streams.session.timeout.ms": "600000",
    "group.streams.max.session.timeout.ms": "600000",
}
# The sides raise this epoch at different times; clients only check whether it has changed.
EPOCH = re.compile(r"endpoint_information_epoch=\d+")


def played(port: int) -> dict[str, list[str]]:
    player = Player({1: port})
    try:
        player.open()
        play(player)
    finally:
        player.close()
    return player.transcript


def test_requests_about_streams_groups_are_answered_as_by_apache() -> None:
    with ApacheKafka(properties=SETTINGS) as apache:
        theirs = played(int(apache.bootstrap_servers.rpartition(":")[2]))
    with Broker(SETTINGS) as broker:
        ours = played(broker.port)
    expected, found = ([EPOCH.sub("", line) for line in lines(transcript)] for transcript in (theirs, ours))
    difference = list(unified_diff(expected, found, "Apache Kafka", "Pessoa", lineterm="", n=4))
    assert not difference, "\n".join(difference)
