"""DescribeQuorum: leader, voters and how far they are (KIP-836).

Only the leader of the quorum can answer, and only about partition 0 of `__cluster_metadata`: a request that names
anything else gets UNKNOWN_TOPIC_OR_PARTITION for all it names. A leader counts as having fetched from itself this very
moment.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pessoa.base.ids import ZERO_UUID
from pessoa.quorum.single_voter import METADATA_TOPIC
from pessoa.wire.api.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    DescribeQuorumResponsePartitionData,
    DescribeQuorumResponseTopicData,
    Listener,
    Node,
    ReplicaState,
)
from pessoa.wire.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pessoa.metadata.cluster import Endpoint
    from pessoa.quorum.single_voter import SingleVoterQuorum


def describe_quorum(
    quorum: SingleVoterQuorum,
    request: DescribeQuorumRequest,
    endpoints: Mapping[int, Mapping[str, Endpoint]],
    now_ms: int,
) -> DescribeQuorumResponse:
    """`endpoints` are the controller listeners of each voter."""
    wanted = [(topic.topic_name, [one.partition_index for one in topic.partitions]) for topic in request.topics]
    if wanted != [(METADATA_TOPIC, [0])]:
        topics = [
            DescribeQuorumResponseTopicData(topic_name=name, partitions=[_unknown(index) for index in indexes])
            for name, indexes in wanted
        ]
        return DescribeQuorumResponse(error_code=ErrorCode.NONE, error_message="", topics=topics)
    voters = [
        ReplicaState(
            replica_id=voter,
            replica_directory_id=ZERO_UUID,
            log_end_offset=quorum.log_end_offset,
            last_fetch_timestamp=now_ms,
            last_caught_up_timestamp=now_ms,
        )
        for voter in quorum.voters
    ]
    partition = DescribeQuorumResponsePartitionData(
        partition_index=0,
        error_code=ErrorCode.NONE,
        error_message="",
        leader_id=quorum.leader_id,
        leader_epoch=quorum.epoch,
        high_watermark=quorum.high_watermark,
        current_voters=voters,
        observers=[],
    )
    nodes = [
        Node(
            node_id=voter,
            listeners=[
                Listener(name=name, host=endpoint.host, port=endpoint.port)
                for name, endpoint in endpoints.get(voter, {}).items()
            ],
        )
        for voter in quorum.voters
    ]
    topics = [DescribeQuorumResponseTopicData(topic_name=METADATA_TOPIC, partitions=[partition])]
    return DescribeQuorumResponse(error_code=ErrorCode.NONE, error_message="", topics=topics, nodes=nodes)


def _unknown(index: int) -> DescribeQuorumResponsePartitionData:
    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return DescribeQuorumResponsePartitionData(
        partition_index=index,
        error_code=code,
        error_message=code.text,
        leader_id=0,
        leader_epoch=0,
        high_watermark=0,
        current_voters=[],
        observers=[],
    )
