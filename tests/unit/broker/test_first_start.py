"""Nodes with empty directories: which start a quorum, which join one, and which lack the settings for both."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from pessoa.broker.assembly import make_broker, memory_disk
from pessoa.broker.config import BrokerConfig
from pessoa.broker.lifecycle import Broker
from pessoa.log.simulated_disk import SimulatedDisk
from pessoa.quorum.formatting import WrongDirectory
from tests.apache.broker import reserve_port

TIMEOUT_S = 60


def node(node_id: int, servers: str, controller_port: int, roles: str = "broker,controller", **more: str) -> Broker:
    disk = SimulatedDisk()
    disk.make_directory("/data")
    listeners = f"PLAINTEXT://127.0.0.1:0,CONTROLLER://:{controller_port}"
    if roles == "controller":
        listeners = f"CONTROLLER://127.0.0.1:{controller_port}"
    settings = {
        "process.roles": roles,
        "node.id": str(node_id),
        "listeners": listeners,
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.bootstrap.servers": servers,
        "log.dirs": "/data",
        **{key.replace("_", "."): value for key, value in more.items()},
    }
    if roles != "controller":
        settings["advertised.listeners"] = f"PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:{controller_port}"
    return Broker(BrokerConfig(settings), disk=disk)


def run(scenario: Callable[[], Awaitable[None]]) -> None:
    async def main() -> None:
        async with asyncio.timeout(TIMEOUT_S):
            await scenario()

    asyncio.run(main())


def voters(broker: Broker) -> tuple[int, ...]:
    assert broker.quorum is not None
    return broker.quorum.voters


def test_a_controller_that_is_its_own_bootstrap_server_begins_a_quorum_and_others_join_it() -> None:
    async def scenario() -> None:
        port, another = reserve_port(), reserve_port()
        first = node(1, f"localhost:{port}", port)
        await first.start()
        assert voters(first) == (1,)
        second = node(2, f"127.0.0.1:{port}", another, "controller", controller_quorum_auto_join_enable="true")
        await second.start()
        assert second.cluster_id == first.cluster_id
        while voters(first) != (1, 2):  # noqa: ASYNC110 (there is no event for it)
            await asyncio.sleep(0.05)
        await second.stop()
        await first.stop()

    run(scenario)


@pytest.mark.parametrize("roles", ["controller", "broker,controller"])
def test_a_node_whose_bootstrap_server_does_not_answer_creates_no_cluster_id(roles: str) -> None:
    async def scenario() -> None:
        closed_port = f"127.0.0.1:{reserve_port()}"
        lost = node(1, closed_port, reserve_port(), roles, initial_broker_registration_timeout_ms="300")
        with pytest.raises(WrongDirectory, match="kafka-storage"):
            await lost.start()
        await lost.stop()

    run(scenario)


def test_a_damaged_bootstrap_checkpoint_stops_only_a_node_without_a_metadata_log() -> None:
    async def scenario() -> None:
        disk = memory_disk("/data")
        settings = {"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": "/data"}
        first = make_broker(settings, disk)
        await first.start()
        await first.stop()
        disk.write_file("/data/bootstrap.checkpoint", b"\x00")
        again = make_broker(settings, disk)
        await again.start()
        await again.stop()
        disk.remove_tree("/data/__cluster_metadata-0")
        beginner = make_broker(settings, disk)
        with pytest.raises(WrongDirectory, match=r"/data/bootstrap\.checkpoint is damaged"):
            await beginner.start()
        await beginner.stop()

    run(scenario)
