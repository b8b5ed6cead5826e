"""A member of a streams group for the scripts of tests/tools, since none of Kafka's tools joins such a group.

streams-member join Aa-app Aa-orders     join with the topology of a count by key, until all tasks are assigned
streams-member commit Aa-app Aa-orders   commit offset 1 in every partition
streams-member leave Aa-app Aa-orders
"""

from __future__ import annotations

import time

from pessoa.client.client_errors import check
from pessoa.client.cluster_client import Cluster
from pessoa.client.group_admin import at_coordinator
from pessoa.wire.api.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from pessoa.wire.api.streams_group_describe import StreamsGroupDescribeRequest, StreamsGroupDescribeResponse
from pessoa.wire.api.streams_group_heartbeat import (
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
    TaskIds,
)
from pessoa.wire.errors import ErrorCode
from tests.unit.coordinator.groups.streams_client import subtopology, topic_info, topology

_TIMEOUT_S = 60.0
_POLL_S = 0.1
_LEAVE = -1
_COMMIT_VERSION = 9


def streams_member(servers: str, action: str, group: str, topic: str) -> None:
    with Cluster(servers) as cluster:
        if action == "join":
            _join(cluster, group, topic)
        elif action == "commit":
            _commit(cluster, group, topic)
        else:
            assert action == "leave", action
            _heartbeat(
                cluster,
                StreamsGroupHeartbeatRequest(
                    group_id=group, member_id=f"{group}-member", member_epoch=_LEAVE, endpoint_information_epoch=-1
                ),
            )


def _join(cluster: Cluster, group: str, topic: str) -> None:
    """Send heartbeats until the member has all tasks."""
    count = topology(
        subtopology("0", topic, writes=(f"{group}-by-key-repartition",)),
        subtopology(
            "1",
            changelogs=(topic_info(f"{group}-counts-changelog", configs={"cleanup.policy": "compact"}),),
            repartition=(topic_info(f"{group}-by-key-repartition"),),
        ),
    )
    request = StreamsGroupHeartbeatRequest(
        group_id=group,
        member_id=f"{group}-member",
        member_epoch=0,
        endpoint_information_epoch=-1,
        rebalance_timeout_ms=60_000,
        topology=count,
        active_tasks=[],
        standby_tasks=[],
        warmup_tasks=[],
        process_id=f"{group}-process",
        client_tags=[],
    )
    deadline = time.monotonic() + _TIMEOUT_S
    owned: list[TaskIds] = []
    while True:
        answer = _heartbeat(cluster, request)
        if answer.active_tasks is not None:
            owned = [
                TaskIds(subtopology_id=one.subtopology_id, partitions=one.partitions) for one in answer.active_tasks
            ]
        if {one.subtopology_id for one in owned} == {"0", "1"}:
            return
        assert time.monotonic() < deadline, f"{group} gets {owned}: {answer.status}"
        time.sleep(_POLL_S)
        request = StreamsGroupHeartbeatRequest(
            group_id=group,
            member_id=f"{group}-member",
            member_epoch=answer.member_epoch,
            endpoint_information_epoch=-1,
            active_tasks=owned,
            standby_tasks=[],
            warmup_tasks=[],
        )


def _heartbeat(cluster: Cluster, request: StreamsGroupHeartbeatRequest) -> StreamsGroupHeartbeatResponse:
    def attempt(node: int) -> StreamsGroupHeartbeatResponse:
        answer = cluster.ask(request, StreamsGroupHeartbeatResponse, coordinator=node, name="heartbeat")
        # A coordinator that is still loading raises a retriable error.
        check(answer.error_code, answer.error_message)
        return answer

    return at_coordinator(cluster, request.group_id, attempt)


def _commit(cluster: Cluster, group: str, topic: str) -> None:
    def attempt(node: int) -> None:
        asked = StreamsGroupDescribeRequest(group_ids=[group], include_authorized_operations=False)
        found = cluster.ask(asked, StreamsGroupDescribeResponse, node=node, name="describe").groups[0]
        (member,) = found.members
        count = max(len(one.partitions) for one in member.assignment.active_tasks if one.subtopology_id == "0")
        request = OffsetCommitRequest(
            group_id=group,
            member_id=member.member_id,
            generation_id_or_member_epoch=member.member_epoch,
            topics=[
                OffsetCommitRequestTopic(
                    name=topic,
                    partitions=[
                        OffsetCommitRequestPartition(partition_index=index, committed_offset=1, committed_metadata="")
                        for index in range(count)
                    ],
                )
            ],
        )
        answer = cluster.connection(node).send(request, OffsetCommitResponse, cluster.deadline(), _COMMIT_VERSION)
        codes = {one.error_code for each in answer.topics for one in each.partitions}
        assert codes == {ErrorCode.NONE}, codes

    at_coordinator(cluster, group, attempt)
