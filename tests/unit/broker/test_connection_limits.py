"""The configuration of connection limits, and the listeners that it is for."""

from __future__ import annotations

import asyncio
from pathlib import Path

from pessoa.broker.config import BrokerConfig
from pessoa.broker.held_listener import is_counted, limits_of_clients, limits_of_listener
from pessoa.broker.lifecycle import Broker
from pessoa.net.connection_quota import UNLIMITED

LISTENERS = {
    "node.id": "1",
    "process.roles": "broker,controller",
    "log.dirs": "/data",
    "controller.quorum.voters": "1@127.0.0.1:9093",
    "controller.listener.names": "CONTROLLER",
    "listeners": "OUTSIDE://127.0.0.1:9092,INSIDE://127.0.0.1:9094,CONTROLLER://127.0.0.1:9093",
    "listener.security.protocol.map": "OUTSIDE:PLAINTEXT,INSIDE:PLAINTEXT,CONTROLLER:PLAINTEXT",
    "inter.broker.listener.name": "INSIDE",
}


def test_a_connection_limit_with_a_listener_prefix_applies_to_that_listener_only() -> None:
    config = BrokerConfig(
        {
            **LISTENERS,
            "max.connections": "100",
            "listener.name.outside.max.connections": "7",
            "listener.name.outside.max.connection.creation.rate": "20",
        }
    )
    outside, inside, controller = config.listeners
    assert limits_of_clients(config).max_connections == 100
    assert limits_of_listener(config, outside).max_connections == 7
    assert limits_of_listener(config, outside).max_creation_rate == 20
    assert limits_of_listener(config, inside).max_connections == UNLIMITED
    assert [is_counted(config, one) for one in (outside, inside, controller)] == [True, False, False]
    changed = config.with_overrides({"listener.name.outside.max.connections": "9"}, {})
    assert limits_of_listener(changed, outside).max_connections == 9


def test_listener_names_are_compared_in_lower_case() -> None:
    config = BrokerConfig({**LISTENERS, "controller.listener.names": "controller"})
    assert [is_counted(config, one) for one in config.listeners] == [True, False, False]


def test_broker_and_controller_listeners_do_not_use_the_receive_memory_of_clients(tmp_path: Path) -> None:
    ports = {"listeners": "OUTSIDE://127.0.0.1:0,INSIDE://127.0.0.1:0,CONTROLLER://127.0.0.1:0"}
    voters = {"controller.quorum.voters": "1@127.0.0.1:0"}
    config = BrokerConfig({**LISTENERS, **ports, **voters, "log.dirs": str(tmp_path)})

    async def main() -> None:
        broker = Broker(config)
        await broker.start()
        rooms = {held.endpoint.name: held.listener.room for held in broker.listeners}
        assert rooms["INSIDE"] is not rooms["OUTSIDE"]
        assert rooms["CONTROLLER"] is not rooms["OUTSIDE"]
        await broker.stop()

    asyncio.run(main())


def test_per_ip_overrides_apply_to_addresses_and_host_names_are_not_resolved() -> None:
    overrides = "127.0.0.1:3, [0:0:0:0:0:0:0:1]:4,somewhere.example:5"
    config = BrokerConfig({**LISTENERS, "max.connections.per.ip": "0", "max.connections.per.ip.overrides": overrides})
    limits = limits_of_clients(config)
    assert limits.max_connections_per_ip == 0
    assert limits.overrides == {"127.0.0.1": 3, "::1": 4}
