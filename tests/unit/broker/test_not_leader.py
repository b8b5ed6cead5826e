"""What a broker that does not lead a partition answers, in every version that is served."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from pessoa.broker.handlers import fetch, produce
from pessoa.wire.api.fetch import FetchableTopicResponse, FetchResponse
from pessoa.wire.api.produce import ProduceResponse, TopicProduceResponse
from pessoa.wire.errors import ErrorCode

FOLLOWED: Any = SimpleNamespace(index=2, leader_id=5, leader_epoch=7)


@pytest.mark.parametrize("version", range(4, 19))
def test_fetch_names_the_leader_where_its_version_can(version: int) -> None:
    data = fetch.not_leader(FOLLOWED, version)
    response = FetchResponse(throttle_time_ms=0, responses=[FetchableTopicResponse(topic="t", partitions=[data])])
    read = FetchResponse.decode(response.encode(version), version)
    [answer] = read.responses[0].partitions
    assert answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert (answer.current_leader is not None) == (version >= 12)


@pytest.mark.parametrize("version", range(3, 14))
def test_produce_names_the_leader_where_its_version_can(version: int) -> None:
    data = produce.not_leader(FOLLOWED, 2, version)
    response = ProduceResponse(responses=[TopicProduceResponse(name="t", partition_responses=[data])])
    read = ProduceResponse.decode(response.encode(version), version)
    [answer] = read.responses[0].partition_responses
    assert answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert (answer.current_leader is not None) == (version >= 10)
