"""Stages of a node's start: after a failed start a stop releases everything, in the opposite order."""

from __future__ import annotations

import asyncio
import socket

import pytest

from pessoa.broker.config import BrokerConfig
from pessoa.broker.lifecycle import Broker
from pessoa.broker.stages.cluster_member import ClusterMember
from pessoa.broker.stages.node_listeners import NodeListeners
from pessoa.log.simulated_disk import SimulatedDisk
from pessoa.quorum.formatting import WrongDirectory
from tests.support.controller_listeners import bootstrap_controllers

TIMEOUT_S = 60.0


def disk_with_directory() -> SimulatedDisk:
    disk = SimulatedDisk()
    disk.make_directory("/data")
    return disk


def node(disk: SimulatedDisk, port: int = 0, cluster_id: str | None = None) -> Broker:
    settings = {
        "node.id": "1",
        "process.roles": "broker,controller",
        "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:0",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.voters": "1@127.0.0.1:0",
        "log.dirs": "/data",
    }
    return Broker(BrokerConfig(settings), disk=disk, cluster_id=cluster_id)


async def start_and_stop(broker: Broker) -> None:
    await broker.start()
    await broker.stop()


def test_a_start_that_fails_because_its_port_is_in_use_releases_everything() -> None:
    async def scenario() -> None:
        disk = disk_with_directory()
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            broker = node(disk, taken.getsockname()[1])
            with pytest.raises(OSError, match="address already in use"):
                await broker.start()
            assert broker.find(ClusterMember) is not None, "the start went that far"
            assert broker.find(NodeListeners) is not None, "the port of the controller was open"
            await broker.stop()
            host, _, port = bootstrap_controllers(broker).rpartition(":")
            with pytest.raises(ConnectionRefusedError):
                await asyncio.open_connection(host, int(port))
        await start_and_stop(node(disk))

    asyncio.run(asyncio.wait_for(scenario(), TIMEOUT_S))


def test_directories_of_another_cluster_are_released() -> None:
    async def scenario() -> None:
        disk = disk_with_directory()
        await start_and_stop(node(disk, cluster_id="here"))
        with pytest.raises(WrongDirectory):
            await node(disk, cluster_id="elsewhere").start()
        await start_and_stop(node(disk, cluster_id="here"))

    asyncio.run(asyncio.wait_for(scenario(), TIMEOUT_S))


def test_start_stages_are_closed_and_abandoned_in_reverse_order() -> None:
    ended: list[str] = []

    class Recorded:
        def __init__(self, name: str) -> None:
            self._name = name

        async def close(self) -> None:
            ended.append(f"close {self._name}")

        def abandon(self) -> None:
            ended.append(f"abandon {self._name}")

    broker = node(disk_with_directory())
    for name in ("first", "second"):
        broker._enter(Recorded(name))
    asyncio.run(broker.stop())
    broker.abandon()
    assert ended == ["close second", "close first", "abandon second", "abandon first"]
