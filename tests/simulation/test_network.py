"""The simulated network: order, partitions in one direction, resets, power loss, and requests that arrive late."""

from __future__ import annotations

import asyncio
from random import Random

import pytest

from tests.simulation.loop import Process, new_loop
from tests.simulation.network import Fabric, HostNetwork


class Recorder(asyncio.Protocol):
    def __init__(self) -> None:
        self.data = b""
        self.lost: list[Exception | None] = []
        self.transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.data += data

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost.append(exc)


class World:
    """Two hosts, a listener on the second one, and the connections that it accepted."""

    def __init__(self) -> None:
        self.loop = new_loop()
        self.fabric = Fabric(self.loop, Random(1))
        self.near, self.far = self.loop.new_process("a"), self.loop.new_process("b")
        self.accepted: list[Recorder] = []

    def accept(self) -> Recorder:
        self.accepted.append(Recorder())
        return self.accepted[-1]

    async def connect(self) -> tuple[Recorder, Recorder]:
        await self.network(self.far).listen(self.accept, "b", 9092)
        caller = await self.network(self.near).connect(Recorder, "b", 9092)
        return caller, self.accepted[0]

    def network(self, process: Process) -> HostNetwork:
        return HostNetwork(self.fabric, process.name, process)


@pytest.fixture
def world() -> World:
    return World()


def test_a_connection_keeps_its_order_however_late_its_bytes_are(world: World) -> None:
    async def story() -> None:
        caller, listener = await world.connect()
        world.fabric.weather.late, world.fabric.weather.late_s, world.fabric.weather.split = 0.5, 1.0, 0.5
        sent = b"".join(b"%d," % number for number in range(200))
        for number in range(200):
            caller.transport.write(b"%d," % number)
        await asyncio.sleep(10)
        assert listener.data == sent

    world.loop.run_until_complete(story())


def test_a_connection_to_a_port_without_a_listener_is_refused(world: World) -> None:
    async def story() -> None:
        with pytest.raises(ConnectionRefusedError):
            await world.network(world.near).connect(Recorder, "b", 9092)

    world.loop.run_until_complete(story())


def test_a_partition_in_one_direction_lets_the_other_direction_pass(world: World) -> None:
    async def story() -> None:
        caller, listener = await world.connect()
        world.fabric.cut("a", "b")
        caller.transport.write(b"question")
        listener.transport.write(b"news")
        await asyncio.sleep(1)
        assert (caller.data, listener.data) == (b"news", b"")

    world.loop.run_until_complete(story())


def test_bytes_sent_into_a_network_partition_arrive_when_it_heals_or_the_connection_is_lost(world: World) -> None:
    async def story() -> None:
        outcomes = set()
        await world.network(world.far).listen(world.accept, "b", 9092)
        for _ in range(20):
            caller = await world.network(world.near).connect(Recorder, "b", 9092)
            world.fabric.cut("a", "b")
            caller.transport.write(b"late")
            await asyncio.sleep(1)
            listener = world.accepted[-1]
            assert listener.data == b""
            world.fabric.heal()
            await asyncio.sleep(1)
            outcomes.add((listener.data, bool(listener.lost), bool(caller.lost)))
            caller.transport.abort()
        assert outcomes == {(b"late", False, False), (b"", True, True)}

    world.loop.run_until_complete(story())


def test_connecting_through_a_network_partition_takes_long_and_fails(world: World) -> None:
    async def story() -> None:
        await world.network(world.far).listen(world.accept, "b", 9092)
        world.fabric.cut("b", "a")
        with pytest.raises(TimeoutError):
            await world.network(world.near).connect(Recorder, "b", 9092)
        assert world.loop.now_s > 1

    world.loop.run_until_complete(story())


def test_the_peer_of_a_killed_process_gets_a_connection_reset(world: World) -> None:
    async def story() -> None:
        caller, _ = await world.connect()
        world.loop.kill(world.far)
        world.fabric.kill(world.far, "b", is_power_loss=False)
        await asyncio.sleep(1)
        assert isinstance(caller.lost[0], ConnectionResetError)

    world.loop.run_until_complete(story())


def test_a_machine_without_power_sends_nothing_until_it_is_back(world: World) -> None:
    async def story() -> None:
        caller, _ = await world.connect()
        world.loop.kill(world.far)
        world.fabric.kill(world.far, "b", is_power_loss=True)
        caller.transport.write(b"hello?")
        await asyncio.sleep(100)
        assert caller.lost == []
        world.fabric.power_on("b")
        await asyncio.sleep(1)
        assert isinstance(caller.lost[0], ConnectionResetError)

    world.loop.run_until_complete(story())


def test_a_held_request_arrives_late_on_a_new_connection_after_the_original_was_reset_or_delivered_it(
    world: World,
) -> None:
    async def story() -> None:
        weather = world.fabric.weather
        await world.network(world.far).listen(world.accept, "b", 9092)
        request = b"\x00\x00\x00\x10\x00\x1a" + bytes(14)
        outcomes = set()
        for _ in range(20):
            weather.hold = 0.0
            world.accepted.clear()
            caller = await world.network(world.near).connect(Recorder, "b", 9092)
            weather.hold, weather.hold_s, weather.held_apis = 1.0, 5.0, frozenset((26,))
            caller.transport.write(request)
            await asyncio.sleep(10)
            first, *later = world.accepted
            assert [one.data for one in later] == [request]
            outcomes.add((first.data, bool(caller.lost)))
        assert outcomes == {(b"", True), (request, False)}

    world.loop.run_until_complete(story())


def test_a_writer_is_paused_when_its_peer_does_not_read(world: World) -> None:
    class Writer(Recorder):
        stops = 0
        goes = 0

        def pause_writing(self) -> None:
            self.stops += 1

        def resume_writing(self) -> None:
            self.goes += 1

    async def story() -> None:
        await world.network(world.far).listen(world.accept, "b", 9092)
        caller = await world.network(world.near).connect(Writer, "b", 9092)
        world.accepted[0].transport.pause_reading()
        caller.transport.write(bytes(100_000))
        await asyncio.sleep(1)
        assert (caller.stops, caller.goes) == (1, 0)
        world.accepted[0].transport.resume_reading()
        await asyncio.sleep(1)
        assert (caller.stops, caller.goes) == (1, 1)

    world.loop.run_until_complete(story())
