"""The gate before requests that change something: only the leader, which runs the connectors, serves them.

Requests that read are answered by every worker, from the topics. Those that change something are forwarded to the
leader, unless this worker is it; while the lead goes from one worker to another they wait, as Kafka's wait for a
rebalance.

A worker serves no request before it knows the leader (`wait_until_leader_known`): scripts take its first answer for the
sign that connectors can be created. Records from before it joined may name a worker that is gone. As each worker that
joins makes the group rebalance, and the leader then names itself again, only records from after the join count.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable

from starlette.requests import Request
from starlette.responses import Response

from pessoa.connect.herder import Herder
from pessoa.web.bodies import read_body
from pessoa.web.forwarding import Forwarder, LeaderUnreachable, as_answer, is_forwarded
from pessoa.web.problems import HttpProblem
from pessoa.web.routing import Handler

FORWARD_TIMEOUT_S = 90.0
# The group of a leader that has died rebalances after a session of ten seconds.
REBALANCE_TIMEOUT_S = 30.0
_LOOK_AGAIN_S = 0.02


class LeaderGate:
    def __init__(self, herder: Herder, url: str, trust: ssl.SSLContext | bool = True) -> None:
        self.herder = herder
        self.url = url
        self._forwarder = Forwarder(FORWARD_TIMEOUT_S, trust)
        # The count of records that had named a leader when this worker joined.
        self.old_leader_count = 0

    @property
    def knows_leader(self) -> bool:
        """Whether this worker leads, or knows another that does."""
        if self.herder.leads:
            return True
        state = self.herder.store.state
        return state.leader_count > self.old_leader_count and state.leader not in (None, self.url)

    async def wait_until_leader_known(self, timeout_s: float) -> bool:
        """Wait until the leader is known; False if that takes too long."""
        deadline_s = asyncio.get_running_loop().time() + timeout_s
        while not self.knows_leader:
            if asyncio.get_running_loop().time() > deadline_s:
                return False
            await asyncio.sleep(_LOOK_AGAIN_S)
        return True

    def on_leader(self, handle: Callable[[Request], Awaitable[Response]]) -> Handler:
        """Return a handler that the leader runs, and that every other worker forwards."""

        async def handle_or_forward(request: Request) -> Response:
            knows_leader = await self.wait_until_leader_known(REBALANCE_TIMEOUT_S)
            if self.herder.leads:
                return await handle(request)
            if not knows_leader or is_forwarded(request):
                raise HttpProblem(
                    409,
                    "Cannot complete request because of a conflicting operation (e.g. worker rebalance in progress)",
                )
            return await self._forward(request)

        return handle_or_forward

    async def _forward(self, request: Request) -> Response:
        leader = self.herder.store.state.leader
        assert leader is not None, "the leader is known, and not this worker"
        try:
            return as_answer(await self._forwarder.send(leader, request, await read_body(request)))
        except LeaderUnreachable as failure:
            raise HttpProblem(500, f"IO Error trying to forward REST request: {failure}") from None

    async def close(self) -> None:
        await self._forwarder.close()
