"""Whether enough controllers are there for one of them to lead.

A broker that stops asks the active controller to let it go. Where all nodes of a cluster stop at once, a moment comes
when too few controllers are left to elect one, and a broker that still waits for it waits in vain. That is seen from
their ports: a controller closes its own only after it has left the quorum.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Protocol, cast

from pessoa.base.clock import wait_at_most

if TYPE_CHECKING:
    from pessoa.base.clock import Clock
    from pessoa.net.network import Network

_LOOK_EVERY_MS = 100
# A controller that restarts is away for longer than this; a majority that does so at once is as good as gone.
_LOOKS_IN_A_ROW = 3
# A machine that is down refuses nothing. It is not there either.
_CONNECT_MS = 1_000


class Quorum(Protocol):
    @property
    def voters(self) -> tuple[int, ...]: ...

    def endpoint_of(self, node_id: int) -> tuple[str, int] | None: ...


async def wait_until_majority_is_gone(node_id: int, quorum: Quorum, network: Network, clock: Clock) -> None:
    """Return when no majority of the voters has accepted a connection several times in a row. Without voters, never."""
    failures = 0
    while failures < _LOOKS_IN_A_ROW:
        await clock.wait_ms(_LOOK_EVERY_MS)
        failures = 0 if await _has_majority(node_id, quorum, network, clock) else failures + 1


async def _has_majority(node_id: int, quorum: Quorum, network: Network, clock: Clock) -> bool:
    voters = quorum.voters
    others = [endpoint for one in voters if one != node_id and (endpoint := quorum.endpoint_of(one)) is not None]
    answers = await asyncio.gather(*(_accepts(network, clock, *endpoint) for endpoint in others))
    return (node_id in voters) + sum(answers) > len(voters) // 2 or not voters


async def _accepts(network: Network, clock: Clock, host: str, port: int) -> bool:
    connecting = asyncio.ensure_future(network.connect(_Knock, host, port))
    try:
        if not await wait_at_most(clock, connecting, _CONNECT_MS):
            return False
    except OSError:
        return False
    connecting.result().close()
    return True


class _Knock(asyncio.Protocol):
    """A TCP connection that sends nothing: it only shows that the port accepts connections."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports do not derive from asyncio's.
        self._transport = cast("asyncio.Transport", transport)

    def close(self) -> None:
        assert self._transport is not None
        self._transport.abort()
