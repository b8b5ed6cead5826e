"""A principal without rights asks each API of share and streams groups, on a broker with an authorizer.

Its requests have no effect, and the responses do not reveal what exists: they are the same for an existing group and
for an unknown one.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from pessoa.base.ids import ZERO_UUID
from pessoa.security.acl import GROUP, READ
from pessoa.testing import Broker
from pessoa.wire.api import delete_share_group_state as delete_state
from pessoa.wire.api import initialize_share_group_state as initialize_state
from pessoa.wire.api import read_share_group_state as read_state
from pessoa.wire.api import read_share_group_state_summary as summary_state
from pessoa.wire.api import write_share_group_state as write_state
from pessoa.wire.api.alter_share_group_offsets import AlterShareGroupOffsetsResponse
from pessoa.wire.api.delete_share_group_offsets import DeleteShareGroupOffsetsResponse
from pessoa.wire.api.describe_share_group_offsets import DescribeShareGroupOffsetsResponse
from pessoa.wire.api.share_acknowledge import ShareAcknowledgeResponse
from pessoa.wire.api.share_fetch import ShareFetchResponse
from pessoa.wire.api.share_group_describe import ShareGroupDescribeResponse
from pessoa.wire.api.share_group_heartbeat import ShareGroupHeartbeatResponse
from pessoa.wire.api.streams_group_describe import StreamsGroupDescribeResponse
from pessoa.wire.api.streams_group_heartbeat import StreamsGroupHeartbeatResponse
from pessoa.wire.errors import ErrorCode
from pessoa.wire.schema import Message
from tests.cluster.test_authorization import ADMIN, CAF, GAF, SETTINGS, TAF, Stage
from tests.differential import streams_script
from tests.differential.share_script import (
    ACCEPT,
    acknowledge,
    altered,
    deleted,
    described,
    fetch,
    heartbeat,
    offsets_of,
)
from tests.support.clients import until
from tests.support.identities import believe_client_ids
from tests.unit.coordinator.groups.streams_client import subtopology, topology

EVE, CAROL = "User:eve", "User:carol"
THERE, SECRET = "there", "secret"
LOADING = (14, 15, 16)


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    """Yield a stage with a topic and a share group of the administrator; carol may use the group and no topic."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        believe_client_ids(monkeypatch)
        with Broker(SETTINGS | {"share.coordinator.state.topic.num.partitions": "1"}) as running:
            made = Stage(running)
            made.create(SECRET)
            made.find_coordinator(0)
            made.allow(CAROL, (READ, GROUP, THERE), (READ, GROUP, "absent"))
            request = heartbeat(THERE, "m", 0, SECRET)
            until(
                lambda: made.ask(ADMIN, request, ShareGroupHeartbeatResponse, 1).error_code,
                lambda code: code not in LOADING,
                "the group coordinator",
            )
            yield made


def members_of(stage: Stage, group: str) -> list[str]:
    answer = stage.ask(ADMIN, described(group), ShareGroupDescribeResponse, 1).groups[0]
    return [one.member_id for one in answer.members]


@pytest.mark.parametrize("group", [THERE, "absent"])
def test_a_share_group_is_not_joined_without_rights(stage: Stage, group: str) -> None:
    answer = stage.ask(EVE, heartbeat(group, "eve", 0, SECRET), ShareGroupHeartbeatResponse, 1)
    assert answer.error_code == GAF
    assert "eve" not in members_of(stage, group)


@pytest.mark.parametrize("topic", [SECRET, "absent"])
def test_a_share_group_is_not_joined_for_a_topic_without_rights(stage: Stage, topic: str) -> None:
    answer = stage.ask(CAROL, heartbeat(THERE, "carol", 0, topic), ShareGroupHeartbeatResponse, 1)
    assert answer.error_code == TAF
    assert "carol" not in members_of(stage, THERE)


@pytest.mark.parametrize("group", [THERE, "absent"])
def test_a_share_group_is_not_described_without_rights(stage: Stage, group: str) -> None:
    answer = stage.ask(EVE, described(group), ShareGroupDescribeResponse, 1).groups[0]
    assert (answer.error_code, answer.members, answer.group_epoch) == (GAF, [], 0)


@pytest.mark.parametrize("group", [THERE, "absent"])
def test_records_are_not_fetched_or_acknowledged_for_a_group_without_rights(stage: Stage, group: str) -> None:
    t = stage.ids[SECRET]
    answer = stage.ask(EVE, fetch(group, "eve", 0, [(t, 0)]), ShareFetchResponse, 2)
    assert (answer.error_code, answer.responses) == (GAF, [])
    said = stage.ask(EVE, acknowledge(group, "eve", 1, {(t, 0): [(0, 0, [ACCEPT])]}), ShareAcknowledgeResponse, 2)
    assert (said.error_code, said.responses) == (GAF, [])


def test_records_of_a_topic_without_rights_are_not_fetched_or_acknowledged(stage: Stage) -> None:
    t = stage.ids[SECRET]
    with stage.wire(CAROL) as wire:
        found: Any = wire.ask(fetch(THERE, "carol", 0, [(t, 0)]), ShareFetchResponse, 2)
        said: Any = wire.ask(acknowledge(THERE, "carol", 1, {(t, 0): [(0, 0, [ACCEPT])]}), ShareAcknowledgeResponse, 2)
    (one,) = found.responses[0].partitions
    assert (one.error_code, len(one.records), one.acquired_records) == (TAF, 0, [])
    assert [each.error_code for each in said.responses[0].partitions] == [TAF]


@pytest.mark.parametrize("group", [THERE, "absent"])
def test_offsets_of_a_share_group_are_not_told_moved_or_deleted_without_rights(stage: Stage, group: str) -> None:
    told = stage.ask(EVE, offsets_of(group, {SECRET: [0]}), DescribeShareGroupOffsetsResponse, 1).groups[0]
    assert (told.error_code, told.topics) == (GAF, [])
    told = stage.ask(EVE, offsets_of(group, None), DescribeShareGroupOffsetsResponse, 1).groups[0]
    assert (told.error_code, told.topics) == (GAF, [])
    moved = stage.ask(EVE, altered(group, {SECRET: {0: 5}}), AlterShareGroupOffsetsResponse, 0)
    assert (moved.error_code, moved.responses) == (GAF, [])
    gone = stage.ask(EVE, deleted(group, SECRET), DeleteShareGroupOffsetsResponse, 0)
    assert (gone.error_code, gone.responses) == (GAF, [])


def test_offsets_of_a_topic_without_rights_are_not_told_or_moved(stage: Stage) -> None:
    told = stage.ask(CAROL, offsets_of(THERE, {SECRET: [0]}), DescribeShareGroupOffsetsResponse, 1).groups[0]
    assert [one.error_code for each in told.topics for one in each.partitions] == [TAF]
    told = stage.ask(CAROL, offsets_of(THERE, None), DescribeShareGroupOffsetsResponse, 1).groups[0]
    assert (told.error_code, told.topics) == (ErrorCode.NONE, [])
    moved = stage.ask(CAROL, altered("absent", {SECRET: {0: 5}}), AlterShareGroupOffsetsResponse, 0)
    assert [one.error_code for each in moved.responses for one in each.partitions] == [TAF]


def state_requests(stage: Stage) -> list[tuple[Message, type[Message]]]:
    t = stage.ids.get(SECRET, ZERO_UUID)
    return [
        (
            initialize_state.InitializeShareGroupStateRequest(
                group_id=THERE,
                topics=[
                    initialize_state.InitializeStateData(
                        topic_id=t,
                        partitions=[initialize_state.PartitionData(partition=0, state_epoch=99, start_offset=7)],
                    )
                ],
            ),
            initialize_state.InitializeShareGroupStateResponse,
        ),
        (
            read_state.ReadShareGroupStateRequest(
                group_id=THERE,
                topics=[
                    read_state.ReadStateData(
                        topic_id=t, partitions=[read_state.PartitionData(partition=0, leader_epoch=99)]
                    )
                ],
            ),
            read_state.ReadShareGroupStateResponse,
        ),
        (
            write_state.WriteShareGroupStateRequest(
                group_id=THERE,
                topics=[
                    write_state.WriteStateData(
                        topic_id=t,
                        partitions=[
                            write_state.PartitionData(
                                partition=0,
                                state_epoch=99,
                                leader_epoch=99,
                                start_offset=7,
                                delivery_complete_count=0,
                                state_batches=[],
                            )
                        ],
                    )
                ],
            ),
            write_state.WriteShareGroupStateResponse,
        ),
        (
            delete_state.DeleteShareGroupStateRequest(
                group_id=THERE,
                topics=[delete_state.DeleteStateData(topic_id=t, partitions=[delete_state.PartitionData(partition=0)])],
            ),
            delete_state.DeleteShareGroupStateResponse,
        ),
        (
            summary_state.ReadShareGroupStateSummaryRequest(
                group_id=THERE,
                topics=[
                    summary_state.ReadStateSummaryData(
                        topic_id=t, partitions=[summary_state.PartitionData(partition=0, leader_epoch=0)]
                    )
                ],
            ),
            summary_state.ReadShareGroupStateSummaryResponse,
        ),
    ]


@pytest.mark.parametrize("index", range(5), ids=["initialize", "read", "write", "delete", "summary"])
@pytest.mark.parametrize("principal", [EVE, CAROL])
def test_what_is_stored_of_share_groups_is_for_nodes_alone(stage: Stage, index: int, principal: str) -> None:
    request, response = state_requests(stage)[index]
    answer = stage.ask(principal, request, response, request.versions.last)
    assert [one.error_code for each in answer.results for one in each.partitions] == [CAF]


@pytest.mark.parametrize("group", ["app", "absent"])
def test_a_streams_group_is_not_joined_or_described_without_rights(stage: Stage, group: str) -> None:
    shape = topology(subtopology("0", SECRET))
    answer = stage.ask(EVE, streams_script.heartbeat(group, "eve", 0, shape), StreamsGroupHeartbeatResponse, 0)
    assert (answer.error_code, answer.active_tasks) == (GAF, None)
    told = stage.ask(EVE, streams_script.described(group), StreamsGroupDescribeResponse, 0).groups[0]
    assert (told.error_code, told.members, told.topology) == (GAF, [], None)


@pytest.mark.parametrize("topic", [SECRET, "absent"])
def test_a_streams_group_is_not_joined_for_a_topic_without_rights(stage: Stage, topic: str) -> None:
    shape = topology(subtopology("0", topic))
    answer = stage.ask(CAROL, streams_script.heartbeat("absent", "carol", 0, shape), StreamsGroupHeartbeatResponse, 0)
    assert (answer.error_code, answer.active_tasks) == (TAF, None)
    told = stage.ask(ADMIN, streams_script.described("absent"), StreamsGroupDescribeResponse, 0).groups[0]
    assert told.error_code == ErrorCode.GROUP_ID_NOT_FOUND
