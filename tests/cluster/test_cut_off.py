"""A broker that clients can reach and other brokers cannot: it makes its clients look for new leaders.

librdkafka refreshes the leader after NOT_LEADER_OR_FOLLOWER and not after a timeout, and a client whose FindCoordinator
names the same broker goes there again. So a broker that is cut off must not go on answering as before.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator

import pytest

from pessoa.net.channel import Channel
from pessoa.net.network import SystemNetwork
from pessoa.records.builder import build_batch
from pessoa.records.record import Record
from pessoa.testing import Cluster
from pessoa.wire.api.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from pessoa.wire.api.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from pessoa.wire.api.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from pessoa.wire.api.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from pessoa.wire.errors import ErrorCode
from pessoa.wire.schema import Message
from tests.cluster.conftest import TIMEOUT_S, create_topic

# How long a coordinator waits for its writes.
SETTINGS = {"offsets.commit.timeout.ms": "500"}
GROUP = "g"
# The newest in which topics have names.
BY_NAME = {ProduceRequest: 12, OffsetCommitRequest: 9, OffsetFetchRequest: 9, FindCoordinatorRequest: 3}


class Client:
    """A client that sends requests to one broker only, also if another one leads."""

    def __init__(self, cluster: Cluster, broker_id: int) -> None:
        self.broker_id = broker_id
        host, _, port = cluster[broker_id].bootstrap_servers.partition(":")
        self.channel = Channel(SystemNetwork(), host, int(port), "tester")

    async def ask(self, request: Message) -> Message:
        return await self.channel.send(request, BY_NAME[type(request)], TIMEOUT_S * 1000)

    async def produce(self) -> ErrorCode:
        batch = memoryview(build_batch([Record(offset=0, timestamp=0, key=None, value=b"x", headers=())]))
        data = TopicProduceData(name="t", partition_data=[PartitionProduceData(index=0, records=batch)])
        answer = await self.ask(ProduceRequest(acks=-1, timeout_ms=500, topic_data=[data]))
        assert isinstance(answer, ProduceResponse)
        return ErrorCode.of(answer.responses[0].partition_responses[0].error_code)

    async def coordinator_of(self, group: str) -> tuple[ErrorCode, int]:
        answer = await self.ask(FindCoordinatorRequest(key=group, key_type=0))
        assert isinstance(answer, FindCoordinatorResponse)
        return ErrorCode.of(answer.error_code), answer.node_id

    async def commit(self, group: str) -> ErrorCode:
        partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=1, committed_metadata="")
        topic = OffsetCommitRequestTopic(name="t", partitions=[partition])
        answer = await self.ask(OffsetCommitRequest(group_id=group, member_id="", topics=[topic]))
        assert isinstance(answer, OffsetCommitResponse)
        return ErrorCode.of(answer.topics[0].partitions[0].error_code)

    async def stable_offset(self, group: str) -> tuple[ErrorCode, int]:
        wanted = OffsetFetchRequestTopics(name="t", partition_indexes=[0])
        request = OffsetFetchRequest(
            groups=[OffsetFetchRequestGroup(group_id=group, topics=[wanted])], require_stable=True
        )
        answer = await self.ask(request)
        assert isinstance(answer, OffsetFetchResponse)
        (found,) = answer.groups
        if found.error_code:
            return ErrorCode.of(found.error_code), -1
        return ErrorCode.NONE, found.topics[0].partitions[0].committed_offset


async def answers_until(ask: Callable[[], Awaitable[ErrorCode]], wanted: ErrorCode) -> set[ErrorCode]:
    """Repeat the request until it gets this answer, and return the other answers before it."""
    before = set()
    async with asyncio.timeout(TIMEOUT_S):
        while (code := await ask()) is not wanted:
            before.add(code)
            await asyncio.sleep(0.02)
    return before


async def leader_that_leads(cluster: Cluster) -> Client:
    """Return the number of a broker that has answered as leader: on a busy machine the leader may change at any
    time."""
    async with asyncio.timeout(TIMEOUT_S):
        while True:
            client = Client(cluster, cluster.leader_of("t", 0))
            if await client.produce() is ErrorCode.NONE:
                return client
            client.channel.close()


async def coordinator_that_writes(cluster: Cluster) -> Client:
    first = Client(cluster, 1)
    async with asyncio.timeout(TIMEOUT_S):
        while True:
            code, broker_id = await first.coordinator_of(GROUP)
            if code is ErrorCode.NONE:
                client = Client(cluster, broker_id)
                if await client.commit(GROUP) is ErrorCode.NONE:
                    first.channel.close()
                    return client
                client.channel.close()


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster(3, SETTINGS) as running:
        create_topic(running, "t")
        yield running


def test_an_isolated_leader_answers_its_producers_that_others_may_lead(cluster: Cluster) -> None:
    async def main() -> None:
        client = await leader_that_leads(cluster)
        cluster.isolate(client.broker_id)
        before = await answers_until(client.produce, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        assert before <= {ErrorCode.REQUEST_TIMED_OUT}
        client.channel.close()

    asyncio.run(main())


def test_an_isolated_coordinator_that_cannot_write_does_not_name_itself(cluster: Cluster) -> None:
    async def main() -> None:
        client = await coordinator_that_writes(cluster)
        cluster.isolate(client.broker_id)
        await answers_until(lambda: client.commit(GROUP), ErrorCode.COORDINATOR_NOT_AVAILABLE)

        async def asked() -> ErrorCode:
            return (await client.coordinator_of(GROUP))[0]

        assert await answers_until(asked, ErrorCode.COORDINATOR_NOT_AVAILABLE) <= {ErrorCode.NONE}
        client.channel.close()

    asyncio.run(main())


def test_an_isolated_coordinator_does_not_return_offsets_from_memory(cluster: Cluster) -> None:
    """A producer that has fenced another would go on where the other was before its last transaction."""

    async def main() -> None:
        async with asyncio.timeout(TIMEOUT_S):
            client = await coordinator_that_writes(cluster)
            while await client.stable_offset(GROUP) != (ErrorCode.NONE, 1):
                client.channel.close()
                client = await coordinator_that_writes(cluster)
        cluster.isolate(client.broker_id)
        assert await client.stable_offset(GROUP) == (ErrorCode.NOT_COORDINATOR, -1)
        client.channel.close()

    asyncio.run(main())
