"""How far consumer groups are behind, under the names of kafka_exporter, for the groups that this broker coordinates.

Lag is the high watermark of a partition less the offset that the group has committed. Where this broker has a replica,
it knows the high watermark itself, as a follower a moment late; about other partitions it asks their leaders, and
leaves out those that do not answer soon.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from typing import TYPE_CHECKING

from pessoa.broker.metrics.collectors import group_shards
from pessoa.broker.metrics.exposition import label_text
from pessoa.net.channel import ChannelFailed
from pessoa.wire.api.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pessoa.broker.metrics.exposition import Exposition
    from pessoa.broker.services import BrokerServices
    from pessoa.coordinator.groups.committed_offsets import CommittedOffset
    from pessoa.coordinator.groups.group_registry import Group

TopicPartition = tuple[str, int]

# Clients make groups as they like: the lag is shown of so many, and of the others only their number.
MAX_GROUPS = 1_000
_LATEST = -1
_CONSUMER = -1
_LIST_OFFSETS_VERSION = 7
_TIMEOUT_MS = 2_000
_PURPOSE = "metrics"


async def collect_groups(broker: BrokerServices, out: Exposition) -> None:
    groups, left_out = _groups_here(broker)
    out.add("pessoa_metrics_groups_left_out", left_out)
    wanted = {(topic, index) for _, offsets in groups.values() for topic, found in offsets.items() for index in found}
    ends = await _end_offsets(broker, wanted)
    for number, (group_id, (group, offsets)) in enumerate(groups.items()):
        if group is not None:
            out.add("kafka_consumergroup_members", len(group.members), consumergroup=group_id)
        for topic, found in offsets.items():
            _add_topic(out, group_id, topic, found, ends)
        if number % 100 == 99:
            await asyncio.sleep(0)


Groups = dict[str, tuple["Group | None", "Mapping[str, Mapping[int, CommittedOffset]]"]]


def _groups_here(broker: BrokerServices) -> tuple[Groups, int]:
    """Return the groups that this broker coordinates, up to `MAX_GROUPS`, and how many more there are."""
    found: Groups = {}
    left_out = 0
    for shard in group_shards(broker):
        registry, committed = shard.registry.groups, shard.offsets.committed
        for group_id in dict.fromkeys([*registry, *committed]):
            if len(found) < MAX_GROUPS:
                offsets = {topic: dict(partitions) for topic, partitions in committed.get(group_id, {}).items()}
                found[group_id] = registry.get(group_id), offsets
            else:
                left_out += 1
    return found, left_out


def _add_topic(
    out: Exposition,
    group_id: str,
    topic: str,
    committed: Mapping[int, CommittedOffset],
    ends: Mapping[TopicPartition, int],
) -> None:
    lag_sum = 0
    for index, offset in sorted(committed.items()):
        labels = label_text(consumergroup=group_id, topic=topic, partition=index)
        out.add_labelled("kafka_consumergroup_current_offset", offset.offset, labels)
        end = ends.get((topic, index))
        if end is not None:
            # An offset may be committed behind the end, and the end be heard of a moment late.
            lag = max(0, end - offset.offset)
            lag_sum += lag
            out.add_labelled("kafka_consumergroup_lag", lag, labels)
    out.add("kafka_consumergroup_lag_sum", lag_sum, consumergroup=group_id, topic=topic)


async def _end_offsets(broker: BrokerServices, wanted: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
    found: dict[TopicPartition, int] = {}
    elsewhere: defaultdict[int, list[TopicPartition]] = defaultdict(list)
    for topic, index in sorted(wanted):
        # Reading metrics creates no log: a partition that is pending here is left out until its turn has come.
        replica = broker.replicas.by_name.get(topic, {}).get(index)
        if replica is not None and not replica.is_offline:
            found[topic, index] = replica.log.high_watermark
            continue
        image = broker.image.topics.by_name.get(topic)
        partition = None if image is None else image.partitions.get(index)
        if partition is not None and partition.leader not in (-1, broker.node_id):
            elsewhere[partition.leader].append((topic, index))
    for answers in await asyncio.gather(
        *(_fetch_high_watermarks(broker, leader, some) for leader, some in elsewhere.items())
    ):
        found |= answers
    return found


async def _fetch_high_watermarks(
    broker: BrokerServices, leader: int, partitions: list[TopicPartition]
) -> dict[TopicPartition, int]:
    """Return the high watermarks of partitions that another broker leads; none if it does not answer."""
    channel = broker.peers.channel_to(leader, _PURPOSE)
    if channel is None:
        return {}
    by_topic: defaultdict[str, list[ListOffsetsPartition]] = defaultdict(list)
    for topic, index in partitions:
        by_topic[topic].append(ListOffsetsPartition(partition_index=index, timestamp=_LATEST))
    topics = [ListOffsetsTopic(name=name, partitions=found) for name, found in by_topic.items()]
    request = ListOffsetsRequest(replica_id=_CONSUMER, topics=topics)
    try:
        response = await channel.send(request, _LIST_OFFSETS_VERSION, _TIMEOUT_MS)
    except ChannelFailed:
        return {}
    assert isinstance(response, ListOffsetsResponse)
    return {
        (topic.name, one.partition_index): one.offset
        for topic in response.topics
        for one in topic.partitions
        if not one.error_code
    }
