"""Responses of a broker that does not lead the partition, in every served version."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from pessoa.broker.partition_fetch import refused_with_leader
from pessoa.broker.produce_errors import not_leader
from pessoa.wire.api.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from pessoa.wire.api.produce import ProduceResponse, TopicProduceResponse
from pessoa.wire.errors import ErrorCode

FOLLOWED: Any = SimpleNamespace(index=2, leader_id=5, leader_epoch=7)


@pytest.mark.parametrize("version", range(4, 19))
def test_a_not_leader_error_of_fetch_names_the_current_leader_if_its_version_has_the_field(version: int) -> None:
    answer = _fetched(ErrorCode.NOT_LEADER_OR_FOLLOWER, version)
    assert answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert (answer.current_leader is not None) == (version >= 12)


@pytest.mark.parametrize("version", range(4, 19))
def test_a_fenced_epoch_error_of_fetch_names_the_current_leader_if_its_version_has_the_field(version: int) -> None:
    answer = _fetched(ErrorCode.FENCED_LEADER_EPOCH, version)
    assert answer.error_code == ErrorCode.FENCED_LEADER_EPOCH
    assert (answer.current_leader is not None) == (version >= 16)


def test_an_unknown_leader_epoch_error_of_fetch_names_no_leader() -> None:
    assert _fetched(ErrorCode.UNKNOWN_LEADER_EPOCH, 18).current_leader is None


def _fetched(error: ErrorCode, version: int) -> PartitionData:
    data = refused_with_leader(FOLLOWED, error, version)
    response = FetchResponse(throttle_time_ms=0, responses=[FetchableTopicResponse(topic="t", partitions=[data])])
    [answer] = FetchResponse.decode(response.encode(version), version).responses[0].partitions
    return answer


@pytest.mark.parametrize("version", range(3, 14))
def test_a_not_leader_error_of_produce_names_the_current_leader_if_its_version_has_the_field(version: int) -> None:
    data = not_leader(FOLLOWED, 2, version)
    response = ProduceResponse(responses=[TopicProduceResponse(name="t", partition_responses=[data])])
    read = ProduceResponse.decode(response.encode(version), version)
    [answer] = read.responses[0].partition_responses
    assert answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert (answer.current_leader is not None) == (version >= 10)
