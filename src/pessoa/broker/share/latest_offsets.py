"""Where logs end: asks the leaders of partitions, for the lag of share groups (KIP-1226)."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from pessoa.net.channel import ChannelFailed
from pessoa.wire.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pessoa.broker.peers import Peers
    from pessoa.broker.services import BrokerServices
    from pessoa.wire.api.list_offsets import ListOffsetsResponse

_CHANNEL = "latest-offsets"
# A leader that does not answer so soon leaves the lag of its partitions unknown.
_TIMEOUT_MS = 5_000
_CONSUMER = -1
_LATEST = -1
_ANY_EPOCH = -1


async def latest_offsets(
    broker: BrokerServices, peers: Peers, partitions: Sequence[tuple[str, int]]
) -> Mapping[tuple[str, int], int]:
    """Return the high watermark of each partition whose leader has answered in time."""
    by_leader: dict[int, dict[str, list[int]]] = {}
    topics = broker.image.topics.by_name
    for name, index in partitions:
        topic = topics.get(name)
        if topic is not None and index in topic.partitions:
            by_leader.setdefault(topic.partitions[index].leader, {}).setdefault(name, []).append(index)
    found = _own(broker, by_leader.pop(broker.node_id, {}))
    answers = await asyncio.gather(*(_list_offsets(peers, leader, wanted) for leader, wanted in by_leader.items()))
    return found | {
        (topic.name, one.partition_index): one.offset
        for answer in answers
        if answer is not None
        for topic in answer.topics
        for one in topic.partitions
        if one.error_code == ErrorCode.NONE
    }


def _own(broker: BrokerServices, wanted: Mapping[str, Sequence[int]]) -> dict[tuple[str, int], int]:
    found = {}
    for name, indexes in wanted.items():
        for index in indexes:
            partition = broker.replicas.ensure(name, index)
            if partition is not None and partition.is_leader and not partition.is_high_watermark_behind_epoch:
                found[name, index] = partition.log.high_watermark
    return found


async def _list_offsets(peers: Peers, leader: int, wanted: Mapping[str, Sequence[int]]) -> ListOffsetsResponse | None:
    from pessoa.wire.api.list_offsets import (
        ListOffsetsPartition,
        ListOffsetsRequest,
        ListOffsetsResponse,
        ListOffsetsTopic,
    )

    request = ListOffsetsRequest(
        replica_id=_CONSUMER,
        isolation_level=0,
        topics=[
            ListOffsetsTopic(
                name=name,
                partitions=[
                    ListOffsetsPartition(partition_index=index, current_leader_epoch=_ANY_EPOCH, timestamp=_LATEST)
                    for index in indexes
                ],
            )
            for name, indexes in wanted.items()
        ],
        timeout_ms=_TIMEOUT_MS,
    )
    channel = peers.channel_to(leader, _CHANNEL)
    if channel is None:
        return None
    try:
        response = await channel.send(request, request.versions.last, _TIMEOUT_MS)
    except ChannelFailed:
        return None
    assert isinstance(response, ListOffsetsResponse)
    return response
