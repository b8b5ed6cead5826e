"""When a majority of the controllers counts as unreachable, with real sockets."""

from __future__ import annotations

import asyncio

import pytest

from pessoa.base.clock import SystemClock
from pessoa.broker.quorum_reach import wait_until_majority_is_gone
from pessoa.net.network import SystemNetwork

TIMEOUT_S = 30


class Quorum:
    """Voters, each with a port; no voter listens on port 1."""

    def __init__(self, ports: dict[int, int]) -> None:
        self._ports = ports
        self.voters = tuple(ports)

    def endpoint_of(self, node_id: int) -> tuple[str, int] | None:
        return "127.0.0.1", self._ports[node_id]


async def is_gone(node_id: int, ports: dict[int, int]) -> bool:
    """Return whether the majority is found unreachable within a second."""
    waiting = wait_until_majority_is_gone(node_id, Quorum(ports), SystemNetwork(), SystemClock())
    try:
        async with asyncio.timeout(1.0):
            await waiting
    except TimeoutError:
        return False
    return True


@pytest.mark.parametrize(
    ("node_id", "open_voters", "expected"),
    [
        pytest.param(1, (), True, id="the last of three"),
        pytest.param(1, (2,), False, id="two of three can elect"),
        pytest.param(4, (1,), True, id="a broker beside the last controller"),
        pytest.param(4, (1, 3), False, id="a broker beside two controllers"),
    ],
)
def test_is_gone_is_true_when_too_few_controllers_for_a_majority_are_reachable(
    node_id: int, open_voters: tuple[int, ...], expected: bool
) -> None:
    async def scenario() -> None:
        server = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0)
        async with server:
            port = server.sockets[0].getsockname()[1]
            ports = {voter: port if voter in open_voters else 1 for voter in (1, 2, 3)}
            assert await is_gone(node_id, ports) is expected

    asyncio.run(asyncio.wait_for(scenario(), TIMEOUT_S))
