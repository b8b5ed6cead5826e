"""Requests about groups and offsets to Apache Kafka and to our coordinator: the same responses and records in the log.

One script is played to both, see `group_stage`. It has offset requests in every version, the classic protocol with
static members, the consumer protocol, and a group that changes between the two. Then `__consumer_offsets` is read on
both sides and compared record by record, without times; runs of records of one type are sorted, since Kafka takes
their order from a hash table. The hash of the topics in each record of Apache's is computed anew by us from Apache's
topic ids.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Iterator
from difflib import unified_diff
from itertools import groupby
from typing import Any, NamedTuple

import pytest
from confluent_kafka import Consumer, TopicPartition

from pessoa.base.ids import ZERO_UUID
from pessoa.coordinator.groups.classic.consumer_payloads import write_assignment
from pessoa.coordinator.groups.consumer.metadata_hash import group_hash, topic_hash
from pessoa.coordinator.groups.group_config import GroupCoordinatorConfig
from pessoa.records.batch import RecordBatch
from pessoa.records.record import records
from pessoa.wire.api.consumer_group_describe import ConsumerGroupDescribeRequest
from pessoa.wire.api.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, TopicPartitions
from pessoa.wire.api.delete_groups import DeleteGroupsRequest
from pessoa.wire.api.describe_groups import DescribeGroupsRequest
from pessoa.wire.api.heartbeat import HeartbeatRequest
from pessoa.wire.api.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from pessoa.wire.api.leave_group import LeaveGroupRequest, MemberIdentity
from pessoa.wire.api.list_groups import ListGroupsRequest
from pessoa.wire.api.offset_commit import OffsetCommitRequest, OffsetCommitRequestPartition, OffsetCommitRequestTopic
from pessoa.wire.api.offset_delete import OffsetDeleteRequest, OffsetDeleteRequestPartition, OffsetDeleteRequestTopic
from pessoa.wire.api.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from pessoa.wire.api.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from pessoa.wire.errors import ErrorCode
from pessoa.wire.schema import Message
from pessoa.wire.stored.group_records import ConsumerGroupMetadataValue
from pessoa.wire.stored.record_framing import GROUP_LOG, decode_coordinator_key, decode_coordinator_value
from tests.apache.broker import ApacheKafka
from tests.differential.group_stage import PATIENCE_S, TOPICS, ApacheSide, OurSide, Side, Words
from tests.unit.coordinator.groups.classic_client import subscription
from tests.unit.coordinator.images import FakeCluster, FakePartition, FakeTopic

pytestmark = pytest.mark.apache

# Long, because members may be unable to send heartbeats while the machine is busy.
SESSION_MS = 120_000
ORDERS = subscription("orders")


class Play:
    def __init__(self, side: Side) -> None:
        self.side = side
        self.words = Words(side.topic_ids)
        self.transcript: list[str] = []

    def say(self, *parts: object) -> None:
        self.transcript.append(
            " ".join(part if isinstance(part, str) else json.dumps(part, default=repr) for part in parts)
        )

    async def ask(self, actor: str, request: Message, version: int) -> Any:
        response = await self.side.ask(actor, request, version)
        self.say(f"{actor}: {type(request).__name__} v{version}:", self.words.of(response))
        return response

    # ── offsets ──

    async def commit(
        self,
        group: str,
        *places: tuple[str, int, int],
        version: int = 9,
        member: str = "",
        generation: int = -1,
        metadata: str | None = "",
        retention_ms: int = -1,
    ) -> None:
        by_id = version >= 10
        request = OffsetCommitRequest(
            group_id=group,
            generation_id_or_member_epoch=generation,
            member_id=member,
            retention_time_ms=retention_ms,
            topics=[
                OffsetCommitRequestTopic(
                    name="" if by_id else topic,
                    topic_id=self.side.topic_ids.get(topic, ZERO_UUID) if by_id else ZERO_UUID,
                    partitions=[
                        OffsetCommitRequestPartition(
                            partition_index=partition,
                            committed_offset=offset,
                            committed_leader_epoch=0,
                            committed_metadata=metadata,
                        )
                    ],
                )
                for topic, partition, offset in places
            ],
        )
        await self.ask("committer", request, version)

    async def fetch(
        self, group: str, topics: dict[str, list[int]] | None, version: int, member: str | None = None, epoch: int = -1
    ) -> None:
        if version < 8:
            request = OffsetFetchRequest(
                group_id=group,
                topics=None
                if topics is None
                else [OffsetFetchRequestTopic(name=name, partition_indexes=each) for name, each in topics.items()],
            )
        else:
            wanted = None
            if topics is not None:
                wanted = [
                    OffsetFetchRequestTopics(
                        name=name if version < 10 else "",
                        topic_id=self.side.topic_ids.get(name, ZERO_UUID) if version >= 10 else ZERO_UUID,
                        partition_indexes=indexes,
                    )
                    for name, indexes in topics.items()
                ]
            one = OffsetFetchRequestGroup(group_id=group, member_id=member, member_epoch=epoch, topics=wanted)
            request = OffsetFetchRequest(groups=[one])
        await self.ask("fetcher", request, version)

    async def delete_offsets(self, group: str, topic: str, *partitions: int) -> None:
        wanted = [OffsetDeleteRequestPartition(partition_index=index) for index in partitions]
        topics = [OffsetDeleteRequestTopic(name=topic, partitions=wanted)]
        await self.ask("admin", OffsetDeleteRequest(group_id=group, topics=topics), 0)

    # ── the classic protocol ──

    async def join(
        self,
        actor: str,
        group: str,
        member: str = "",
        *,
        instance: str | None = None,
        metadata: bytes = ORDERS,
        protocol: str = "range",
        protocol_type: str = "consumer",
        session_ms: int = SESSION_MS,
        version: int = 9,
    ) -> Any:
        request = JoinGroupRequest(
            group_id=group,
            session_timeout_ms=session_ms,
            rebalance_timeout_ms=120_000,
            member_id=member,
            group_instance_id=instance,
            protocol_type=protocol_type,
            protocols=[JoinGroupRequestProtocol(name=protocol, metadata=metadata)],
        )
        response = await self.side.ask(actor, request, version)
        if response.member_id:
            self.words.name(response.member_id)
        return response

    async def joined(self, *joins: Awaitable[Any]) -> list[Any]:
        """Await JoinGroup responses that come together, and write them down in the order of the requests."""
        responses = await asyncio.gather(*joins)
        for response in responses:
            self.say("joined:", self.words.of(response))
        return responses

    async def sync(
        self,
        actor: str,
        group: str,
        member: str,
        generation: int,
        assignments: dict[str, bytes] | None = None,
        *,
        instance: str | None = None,
        version: int = 5,
        protocol: str = "range",
    ) -> Any:
        request = SyncGroupRequest(
            group_id=group,
            generation_id=generation,
            member_id=member,
            group_instance_id=instance,
            protocol_type="consumer",
            protocol_name=protocol,
            assignments=[
                SyncGroupRequestAssignment(member_id=each, assignment=assignment)
                for each, assignment in (assignments or {}).items()
            ],
        )
        return await self.ask(actor, request, version)

    async def heartbeat(self, actor: str, group: str, member: str, generation: int, instance: str | None = None) -> Any:
        request = HeartbeatRequest(
            group_id=group, generation_id=generation, member_id=member, group_instance_id=instance
        )
        return await self.ask(actor, request, 4)

    async def wait_for_rebalance(self, actor: str, group: str, member: str, generation: int) -> None:
        """Wait until another member's JoinGroup, which is not answered yet, has reached the coordinator."""
        request = HeartbeatRequest(group_id=group, generation_id=generation, member_id=member)
        deadline = time.monotonic() + PATIENCE_S
        while (await self.side.ask(actor, request, 4)).error_code == ErrorCode.NONE:
            assert time.monotonic() < deadline
            await asyncio.sleep(0.01)

    async def leave(self, group: str, *members: tuple[str, str | None], version: int = 5) -> None:
        if version < 3:
            request = LeaveGroupRequest(group_id=group, member_id=members[0][0])
        else:
            identities = [MemberIdentity(member_id=each, group_instance_id=instance) for each, instance in members]
            request = LeaveGroupRequest(group_id=group, members=identities)
        await self.ask("leaver", request, version)

    async def new_member(self, actor: str, group: str) -> str:
        (response,) = await self.joined(self.join(actor, group))
        assert response.error_code == ErrorCode.MEMBER_ID_REQUIRED
        return str(response.member_id)

    # ── the consumer protocol ──

    async def beat(self, member: str, epoch: int, group: str = "modern", version: int = 1, **details: Any) -> Any:
        owned = details.pop("owned", None)
        if owned is not None:
            details["topic_partitions"] = [
                TopicPartitions(topic_id=self.side.topic_ids[name], partitions=indexes)
                for name, indexes in owned.items()
            ]
        request = ConsumerGroupHeartbeatRequest(group_id=group, member_id=member, member_epoch=epoch, **details)
        return await self.ask(member or "anonymous", request, version)

    async def enter(self, member: str, *topics: str, group: str = "modern", **details: Any) -> Any:
        details.setdefault("rebalance_timeout_ms", 60_000)
        details.setdefault("subscribed_topic_names", list(topics))
        return await self.beat(member, 0, group, owned={}, **details)

    # ── administration ──

    async def look(self, *groups: str) -> None:
        await self.ask("admin", ListGroupsRequest(), 5)
        for version in (0, 5, 6):
            await self.ask("admin", DescribeGroupsRequest(groups=list(groups)), version)
        request = ConsumerGroupDescribeRequest(group_ids=list(groups), include_authorized_operations=False)
        await self.ask("admin", request, 1)


async def offsets(play: Play) -> None:
    await play.commit("simple", ("orders", 0, 5), ("orders", 9, 1), ("nothing", 0, 1), metadata="note")
    await play.commit("simple", ("payments", 1, 7), version=2, retention_ms=86_400_000)
    await play.commit("simple", ("orders", 1, 6), version=10, metadata=None)
    await play.commit("simple", ("nothing", 0, 6), version=10)
    await play.commit("simple", ("orders", 0, 6), metadata="x" * 4097)
    await play.commit("simple", ("orders", 2, 6), metadata="é" * 4096)
    await play.commit("unknown", ("orders", 0, 1), member="m", generation=3, version=8)
    await play.commit("unknown", ("orders", 0, 1), member="m", generation=3, version=9)
    await play.commit("simple", ("orders", 0, 1), member="m", generation=3)
    await play.commit("simple", ("orders", 0, 8), member="m", generation=-1)
    for version in (1, 5, 7, 8, 9, 10):
        await play.fetch("simple", {"orders": [0, 1, 2, 7], "payments": [1]}, version)
        await play.fetch("unknown", {"orders": [0]}, version)
    for version in (2, 7, 9, 10):
        await play.fetch("simple", None, version)
    await play.fetch("simple", {"nothing": [0]}, 9)
    await play.fetch("simple", {"nothing": [0]}, 10)
    await play.look("simple", "unknown")
    await play.delete_offsets("simple", "orders", 0, 2, 9)
    await play.delete_offsets("simple", "nothing", 0)
    await play.delete_offsets("unknown", "orders", 0)
    await play.fetch("simple", None, 9)
    await play.ask("admin", DeleteGroupsRequest(groups_names=["simple", "unknown", "simple"]), 2)
    await play.fetch("simple", None, 9)


async def the_classic_protocol(play: Play) -> None:
    group = "classic"
    await play.joined(play.join("a", ""), play.join("a2", group, session_ms=100), play.join("a3", group, "ghost"))
    await play.joined(play.join("a", group, protocol_type=""))
    first = await play.new_member("a", group)
    await play.look(group)
    (response,) = await play.joined(play.join("a", group, first))
    await play.heartbeat("a", group, first, response.generation_id)
    await play.sync("a", group, first, 7)
    await play.sync("a", group, "ghost", 1)
    await play.sync("a", group, first, 1, protocol="other")
    await play.look(group)
    await play.commit(group, ("orders", 0, 1), member=first, generation=1)
    await play.sync("a", group, first, 1, {first: b"everything"})
    await play.look(group)
    await play.heartbeat("a", group, first, 1)
    await play.heartbeat("a", group, first, 2)
    await play.heartbeat("a", group, "ghost", 1)
    await play.heartbeat("a", "unknown", first, 1)
    await play.commit(group, ("orders", 0, 11), member=first, generation=1)
    await play.commit(group, ("orders", 0, 12), member=first, generation=0)
    await play.commit(group, ("orders", 0, 12))
    await play.delete_offsets(group, "orders", 0)
    await play.delete_offsets(group, "payments", 0)
    await play.ask("admin", DeleteGroupsRequest(groups_names=[group]), 2)
    await play.joined(play.join("b", group, protocol="other"), play.join("b2", group, protocol_type="connect"))
    second = await play.new_member("b", group)
    joining = asyncio.ensure_future(play.join("b", group, second))
    await play.wait_for_rebalance("a", group, first, 1)
    await play.look(group)
    await play.sync("a", group, first, 1)
    leader, _ = await play.joined(play.join("a", group, first), joining)
    syncing = asyncio.ensure_future(play.side.ask("b", _plain_sync(group, second, 2), 5))
    await play.sync("a", group, leader.member_id, 2, {first: b"A", second: b"B"})
    play.say("synced:", play.words.of(await syncing))
    await play.look(group)
    await play.joined(play.join("b", group, second))
    await play.leave(group, (second, None), ("ghost", None))
    await play.leave("unknown", ("m", "i"))
    (response,) = await play.joined(play.join("a", group, first))
    await play.leave(group, (first, None), version=2)
    await play.leave(group, (first, None), version=2)
    await play.look(group)
    await play.fetch(group, None, 9)


def _plain_sync(group: str, member: str, generation: int) -> SyncGroupRequest:
    return SyncGroupRequest(
        group_id=group,
        generation_id=generation,
        member_id=member,
        protocol_type="consumer",
        protocol_name="range",
        assignments=[],
    )


async def static_members(play: Play) -> None:
    group = "static"
    (response,) = await play.joined(play.join("a", group, instance="i"))
    first = response.member_id
    await play.sync("a", group, first, 1, {first: b"all"}, instance="i")
    (response,) = await play.joined(play.join("b", group, instance="i"))
    second = response.member_id
    await play.sync("b", group, second, 1, instance="i")
    await play.heartbeat("a", group, first, 1, "i")
    await play.heartbeat("a", group, first, 1)
    await play.heartbeat("b", group, second, 1, "i")
    await play.heartbeat("b", group, second, 1, "other")
    await play.joined(play.join("a", group, first, instance="i"))
    (response,) = await play.joined(play.join("c", group, instance="i", version=8))
    third = response.member_id
    await play.sync("c", group, third, 1, instance="i")
    await play.look(group)
    await play.leave(group, (first, "i"), ("", "other"), ("", "i"))
    await play.look(group)


async def the_consumer_protocol(play: Play) -> None:
    await play.beat("", 0, version=1)
    await play.beat("m", 0, group="")
    await play.beat("m", 0, subscribed_topic_names=["orders"], owned={})
    await play.beat("m", 0, rebalance_timeout_ms=1, owned={})
    await play.beat("m", 0, rebalance_timeout_ms=1, subscribed_topic_names=[])
    await play.beat("m", -3)
    await play.beat("m", -2)
    await play.enter("m", "orders", server_assignor="odd")
    await play.enter("m", subscribed_topic_regex="(orders", subscribed_topic_names=None)
    await play.beat("m", 5)
    await play.beat("m", -1)
    await play.enter("m1", "orders")
    await play.look("modern")
    await play.beat("m1", 2)
    await play.beat("m1", 1)
    await play.beat("m1", 3)
    await play.beat("ghost", 2)
    await play.commit("modern", ("orders", 0, 5), member="m1", generation=2)
    await play.commit("modern", ("orders", 0, 5), member="m1", generation=2, version=8)
    await play.commit("modern", ("orders", 0, 6), member="m1", generation=3)
    await play.commit("modern", ("orders", 0, 6), member="m1", generation=1)
    await play.commit("modern", ("orders", 0, 6), member="ghost", generation=2)
    await play.commit("modern", ("orders", 0, 6))
    await play.fetch("modern", {"orders": [0]}, 9, "m1", 2)
    await play.fetch("modern", {"orders": [0]}, 9, "m1", 1)
    await play.fetch("modern", None, 9, "ghost", 2)
    await play.enter("m2", "orders")
    await play.look("modern")
    await play.beat("m2", 3, owned={})
    await play.beat("m1", 2)
    await play.look("modern")
    await play.beat("m1", 2, owned={"orders": [0, 1, 2]})
    await play.beat("m1", 2, owned={"orders": [0, 1]})
    await play.beat("m1", 2, owned={"orders": [0, 1]})
    await play.beat("m1", 2, owned={"orders": [0, 2]})
    await play.beat("m2", 3, owned={})
    await play.beat("m2", 3, owned={"orders": [2]}, rebalance_timeout_ms=60_000, subscribed_topic_names=["orders"])
    await play.look("modern")
    await play.beat("m2", 3, subscribed_topic_names=["orders", "payments"], owned={"orders": [2]})
    await play.beat("m1", 3)
    await play.beat("m2", 4, server_assignor="range")
    await play.look("modern")
    await play.delete_offsets("modern", "orders", 0)
    await play.ask("admin", DeleteGroupsRequest(groups_names=["modern"]), 2)
    await play.beat("m1", -1)
    await play.beat("m2", 4, owned={"orders": [2], "payments": [0, 1]})
    await play.beat("m2", -1)
    await play.look("modern")
    await play.commit("modern", ("orders", 0, 9))
    await play.ask("admin", DeleteGroupsRequest(groups_names=["modern"]), 2)
    await play.look("modern")


async def static_members_of_the_consumer_protocol(play: Play) -> None:
    group = "modern static"
    await play.enter("s1", "orders", group=group, instance_id="i")
    await play.enter("s2", "orders", group=group, instance_id="i")
    await play.beat("s2", 2, group, instance_id="i")
    await play.beat("s1", 2, group, instance_id="other")
    await play.beat("s1", -2, group, instance_id="i")
    await play.look(group)
    await play.enter("s2", "orders", group=group, instance_id="i")
    await play.beat("s1", 2, group, instance_id="i")
    await play.look(group)
    await play.beat("s2", -1, group, instance_id="i")
    await play.look(group)


async def up_and_down(play: Play) -> None:
    group = "moving"
    first = await play.new_member("a", group)
    await play.joined(play.join("a", group, first))
    await play.sync("a", group, first, 1, {first: write_assignment([("orders", [0, 1, 2])], 1)})
    await play.enter("up", "orders", group=group)
    await play.look(group)
    await play.heartbeat("a", group, first, 1)
    await play.joined(play.join("a", group, first, metadata=subscription("orders", owned=[("orders", [0, 1, 2])])))
    await play.look(group)
    await play.sync("a", group, first, 1)
    await play.heartbeat("a", group, first, 1)
    await play.joined(play.join("a", group, first, metadata=subscription("orders", owned=[("orders", [0, 1])])))
    await play.sync("a", group, first, 2)
    await play.heartbeat("a", group, first, 2)
    await play.beat("up", 2, group, owned={})
    await play.look(group)
    await play.joined(play.join("b", group, protocol="other"), play.join("b2", group, protocol_type="connect"))
    await play.beat("up", -1, group)
    await play.look(group)
    await play.heartbeat("a", group, first, 2)
    await play.joined(play.join("a", group, first))
    await play.sync("a", group, first, 3, {first: b""})
    await play.look(group)
    await play.leave(group, (first, None))
    await play.enter("again", "orders", group=group)
    await play.beat("again", -1, group)
    last = await play.new_member("c", group)
    await play.joined(play.join("c", group, last))
    await play.leave(group, (last, None))
    await play.look(group)


SCENES: tuple[Callable[[Play], Awaitable[None]], ...] = (
    offsets,
    the_classic_protocol,
    static_members,
    the_consumer_protocol,
    static_members_of_the_consumer_protocol,
    up_and_down,
)


async def played(side: ApacheSide | OurSide) -> Play:
    await side.prepare()
    play = Play(side)
    for scene in SCENES:
        play.say("scene:", getattr(scene, "__name__", ""))
        await scene(play)
    side.close()
    return play


def stored(play: Play, found: list[tuple[bytes | None, bytes | None]]) -> list[str]:
    """Return the log's records in words, with runs of records of one type sorted."""
    told: list[tuple[str, str]] = []
    for key, value in found:
        assert key is not None
        what: Any = decode_coordinator_key(GROUP_LOG, key)
        meaning: Any = None if value is None else decode_coordinator_value(GROUP_LOG, what, value)
        version = "" if value is None else f" v{int.from_bytes(value[:2], 'big')}"
        if isinstance(meaning, ConsumerGroupMetadataValue) and meaning.metadata_hash:
            assert meaning.metadata_hash in possible_hashes(play), "the hash of the topics"
        words = json.dumps([play.words.of(what), play.words.of(meaning)], default=repr)
        told.append((f"{type(what).__name__}{version}", words))
    return [
        f"{kind} {words}"
        for kind, run in groupby(told, key=lambda each: each[0])
        for words in sorted(w for _, w in run)
    ]


def possible_hashes(play: Play) -> set[int]:
    """Return the topic hashes of all sets of topics."""
    hashes = {
        name: topic_hash(
            FakeTopic(name, play.side.topic_ids[name], {index: FakePartition() for index in range(size)}), FakeCluster()
        )
        for name, size in TOPICS.items()
    }
    return {
        group_hash({name: hashes[name] for name in names})
        for names in (("orders",), ("payments",), ("orders", "payments"))
    }


def read_apache(bootstrap_servers: str) -> Iterator[tuple[bytes | None, bytes | None]]:
    consumer = Consumer({"bootstrap.servers": bootstrap_servers, "group.id": "reader", "enable.auto.commit": False})
    partition = TopicPartition("__consumer_offsets", 0, 0)
    _, end = consumer.get_watermark_offsets(partition, timeout=PATIENCE_S)
    consumer.assign([partition])
    position = 0
    while position < end:
        message = consumer.poll(PATIENCE_S)
        assert message is not None
        assert message.error() is None
        offset = message.offset()
        assert offset is not None
        position = offset + 1
        yield message.key(), message.value()
    consumer.close()


class Performance(NamedTuple):
    play: Play
    log: list[tuple[bytes | None, bytes | None]]


class Both(NamedTuple):
    theirs: Performance
    ours: Performance


@pytest.fixture(scope="module")
def performances() -> Both:
    config = GroupCoordinatorConfig(group_initial_rebalance_delay_ms=0, group_consumer_assignment_interval_ms=0)
    side = OurSide(config)
    ours = asyncio.run(played(side))
    our_log = [(each.key, each.value) for batch in side.log.batches[0] for each in records(RecordBatch(batch))]
    with ApacheKafka(
        offsets_topic_num_partitions=1,
        group_initial_rebalance_delay_ms=0,
        group_consumer_assignment_interval_ms=0,
    ) as kafka:
        theirs = asyncio.run(played(ApacheSide(kafka.port)))
        their_log = list(read_apache(kafka.bootstrap_servers))
    return Both(Performance(theirs, their_log), Performance(ours, our_log))


def test_a_script_of_group_requests_gets_the_same_responses_as_from_apache(performances: Both) -> None:
    theirs, ours = (each.play.transcript for each in performances)
    difference = "\n".join(unified_diff(theirs, ours, "Apache Kafka", "Pessoa", lineterm="", n=1))
    assert not difference, difference


def test_a_script_of_group_requests_leaves_the_same_records_in_consumer_offsets_as_on_apache(
    performances: Both,
) -> None:
    theirs, ours = (stored(each.play, each.log) for each in performances)
    difference = "\n".join(unified_diff(theirs, ours, "Apache Kafka", "Pessoa", lineterm="", n=1))
    assert not difference, difference
