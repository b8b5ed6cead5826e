"""Nodes with one role each: controllers that are no brokers, and brokers that are observers of the quorum."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping

import pytest

from pessoa.base.ids import ZERO_UUID
from pessoa.broker.config import BrokerConfig
from pessoa.broker.lifecycle import Broker
from pessoa.broker.registration import RegistrationRefused
from pessoa.log.simulated_disk import SimulatedDisk
from pessoa.net.channel import Channel
from pessoa.net.network import SystemNetwork
from pessoa.wire.api.api_versions import ApiVersionsRequest, ApiVersionsResponse
from pessoa.wire.api.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from pessoa.wire.api.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from pessoa.wire.api.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
)
from pessoa.wire.api.describe_quorum import PartitionData as WantedPartition
from pessoa.wire.api.describe_quorum import TopicData as WantedTopic
from pessoa.wire.api.metadata import MetadataRequest, MetadataResponse
from pessoa.wire.catalogue import ApiKey
from pessoa.wire.errors import ErrorCode
from pessoa.wire.schema import Message
from tests.support.controller_listeners import bootstrap_controllers

TIMEOUT_S = 120
CONTROLLERS = 2


def node(
    node_id: int, roles: str, voters: str, disk: SimulatedDisk | None = None, more: Mapping[str, str] | None = None
) -> Broker:
    if disk is None:
        disk = SimulatedDisk()
        disk.make_directory("/data")
    listeners = {
        "controller": "CONTROLLER://127.0.0.1:0",
        "broker": "PLAINTEXT://127.0.0.1:0",
        "broker,controller": "PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0",
    }[roles]
    settings = {
        "process.roles": roles,
        "node.id": str(node_id),
        "listeners": listeners,
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.voters": voters,
        "log.dirs": "/data",
        **(more or {}),
    }
    return Broker(BrokerConfig(settings), disk=disk)


def run(scenario: Callable[[], Awaitable[None]]) -> None:
    async def main() -> None:
        async with asyncio.timeout(TIMEOUT_S):
            await scenario()

    asyncio.run(main())


async def ask(servers: str, request: Message, version: int | None = None) -> Message:
    host, _, port = servers.partition(":")
    channel = Channel(SystemNetwork(), host, int(port), "tester")
    try:
        return await channel.send(request, request.versions.last if version is None else version, TIMEOUT_S * 1000)
    finally:
        channel.close()


async def started(*nodes: Broker) -> None:
    await asyncio.gather(*(one.start() for one in nodes))


async def controller_alone() -> tuple[Broker, str]:
    """Return a controller, and its entry in controller.quorum.voters."""
    controller = node(100, "controller", "100@127.0.0.1:0")
    await controller.start()
    return controller, f"100@{bootstrap_controllers(controller)}"


def test_broker_only_nodes_join_the_cluster_of_a_controller_only_node() -> None:
    async def scenario() -> None:
        controller, voters = await controller_alone()
        brokers = [node(1, "broker", voters), node(2, "broker", voters)]
        await started(*brokers)
        for broker in brokers:
            topic = CreatableTopic(
                name=f"of-{broker.config.node_id}", num_partitions=1, replication_factor=2, assignments=[], configs=[]
            )
            created = await ask(broker.bootstrap_servers, CreateTopicsRequest(topics=[topic], timeout_ms=60_000))
            assert isinstance(created, CreateTopicsResponse)
            assert created.topics[0].error_code == ErrorCode.NONE
        metadata = await ask(brokers[0].bootstrap_servers, MetadataRequest(topics=[]))
        assert isinstance(metadata, MetadataResponse)
        assert [one.node_id for one in metadata.brokers] == [1, 2]
        assert metadata.controller_id in (1, 2)
        assert metadata.cluster_id == controller.cluster_id
        for broker in brokers:
            await broker.stop()
        await controller.stop()

    run(scenario)


def test_a_controller_listener_serves_the_apis_of_apaches_controllers() -> None:
    async def scenario() -> None:
        controller, _ = await controller_alone()
        servers = bootstrap_controllers(controller)
        versions = await ask(servers, ApiVersionsRequest(client_software_name="tester", client_software_version="1"))
        assert isinstance(versions, ApiVersionsResponse)
        served = {one.api_key for one in versions.api_keys}
        assert {ApiKey.VOTE, ApiKey.ENVELOPE, ApiKey.BROKER_HEARTBEAT, ApiKey.CREATE_TOPICS} <= served
        assert not {ApiKey.PRODUCE, ApiKey.METADATA, ApiKey.JOIN_GROUP} & served
        question = DescribeClusterRequest(include_cluster_authorized_operations=False, endpoint_type=CONTROLLERS)
        cluster = await ask(servers, question)
        assert isinstance(cluster, DescribeClusterResponse)
        assert (cluster.cluster_id, cluster.controller_id) == (controller.cluster_id, 100)
        # Java's Admin gives up on controllers whose answer is about brokers.
        assert cluster.endpoint_type == CONTROLLERS
        wrong = await ask(servers, DescribeClusterRequest(include_cluster_authorized_operations=False))
        assert isinstance(wrong, DescribeClusterResponse)
        assert wrong.error_code == ErrorCode.MISMATCHED_ENDPOINT_TYPE
        await controller.stop()

    run(scenario)


def test_a_broker_forwards_describe_quorum_to_the_quorum_leader() -> None:
    async def scenario() -> None:
        controller, voters = await controller_alone()
        broker = node(1, "broker", voters)
        await broker.start()
        wanted = [WantedTopic(topic_name="__cluster_metadata", partitions=[WantedPartition(partition_index=0)])]
        quorum = await ask(broker.bootstrap_servers, DescribeQuorumRequest(topics=wanted))
        assert isinstance(quorum, DescribeQuorumResponse)
        partition = quorum.topics[0].partitions[0]
        assert partition.leader_id == 100
        assert [one.replica_id for one in partition.current_voters] == [100]
        assert [one.replica_id for one in partition.observers] == [1]
        await broker.stop()
        await controller.stop()

    run(scenario)


@pytest.mark.parametrize("version", [0, 1, 2])
def test_every_version_of_describe_quorum_lists_a_broker_as_observer(version: int) -> None:
    async def scenario() -> None:
        controller, voters = await controller_alone()
        broker = node(1, "broker", voters)
        await broker.start()
        wanted = [WantedTopic(topic_name="__cluster_metadata", partitions=[WantedPartition(partition_index=0)])]
        for servers in (broker.bootstrap_servers, bootstrap_controllers(controller)):
            quorum = await ask(servers, DescribeQuorumRequest(topics=wanted), version)
            assert isinstance(quorum, DescribeQuorumResponse)
            (observer,) = quorum.topics[0].partitions[0].observers
            assert observer.replica_id == 1
            assert (observer.replica_directory_id != ZERO_UUID) is (version >= 2)
            assert (observer.last_fetch_timestamp >= 0) is (version >= 1)
            assert [one.node_id for one in quorum.nodes] == ([100] if version >= 2 else [])
        await broker.stop()
        await controller.stop()

    run(scenario)


def test_a_broker_refuses_describe_quorum_when_no_controller_answers() -> None:
    async def scenario() -> None:
        controller, voters = await controller_alone()
        broker = node(1, "broker", voters, more={"request.timeout.ms": "200"})
        await broker.start()
        controller.abandon()
        for version in range(3):
            quorum = await ask(broker.bootstrap_servers, DescribeQuorumRequest(topics=[]), version)
            assert isinstance(quorum, DescribeQuorumResponse)
            assert quorum.error_code == ErrorCode.REQUEST_TIMED_OUT
        broker.abandon()

    run(scenario)


def test_a_broker_with_another_cluster_id_cannot_register() -> None:
    async def scenario() -> None:
        controller, voters = await controller_alone()
        disk = SimulatedDisk()
        disk.make_directory("/data")
        stranger = node(1, "broker,controller", "1@127.0.0.1:0", disk)
        await stranger.start()
        await stranger.stop()
        moved = node(1, "broker", voters, disk)
        moved.config.initial_broker_registration_timeout_ms = 1_000
        with pytest.raises(RegistrationRefused):
            await moved.start()
        await moved.stop()
        await controller.stop()

    run(scenario)
