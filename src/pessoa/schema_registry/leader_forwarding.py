"""A write that came to a follower goes to the leader, and the leader's answer goes back (web/forwarding.py).

The leader returns its offset in the topic in a header; the follower waits until it has read that offset, so that a
caller that wrote through it can read through it.

When the leader does not answer, the request waits for the next one: registering a schema twice gives the same id, and
the other writes can be repeated too, as far as the topic is concerned. The caller gets an error only after the timeout.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import ssl

import httpx
from starlette.requests import Request
from starlette.responses import Response

from pessoa.client.topic_creation import TopicUnavailable
from pessoa.schema_registry import registry_problems
from pessoa.schema_registry.registry import NotLeader, Registry
from pessoa.web.forwarding import Forwarder, LeaderUnreachable, as_answer, is_forwarded

log = logging.getLogger("pessoa.schema_registry")

OFFSET = "x-pessoa-offset"
_RETRY_S = 0.25
_CATCH_UP_S = 2.0
# The error codes of an instance that is not the leader, or has just lost a transaction.
_TRY_AGAIN = {50001, 50003, 50004}


class WriteForwarder:
    def __init__(self, registry: Registry, trust: ssl.SSLContext | bool = True) -> None:
        self._registry = registry
        self._forwarder = Forwarder(registry.config.leader_timeout_ms / 1000, trust)

    async def close(self) -> None:
        await self._forwarder.close()

    async def forward(self, request: Request, body: bytes) -> Response:
        """Return the leader's response. Raises NotLeader if this instance leads by now."""
        if is_forwarded(request):
            raise registry_problems.unknown_leader()
        registry = self._registry
        loop = asyncio.get_running_loop()
        deadline = loop.time() + registry.config.leader_timeout_ms / 1000
        trouble = "no leader was found"
        while loop.time() < deadline:
            await registry.wait_for_leader()
            if registry.is_leader:
                raise NotLeader
            leader = registry.leader
            if leader is None:
                continue
            try:
                answer = await self._forwarder.send(leader.url, request, body)
            except LeaderUnreachable as failure:
                trouble = str(failure)
            else:
                if answer.status_code != 500 or _code(answer) not in _TRY_AGAIN:
                    return await self._return_when_read(answer)
                trouble = answer.text
            await registry.wait_for_change(_RETRY_S)
        raise registry_problems.forwarding_failed(trouble)

    async def _return_when_read(self, answer: httpx.Response) -> Response:
        offset = answer.headers.get(OFFSET, "")
        if offset.isdigit():
            # Late is no reason to call a write that was done a failure.
            with contextlib.suppress(TopicUnavailable):
                await self._registry.store.wait_until(int(offset), _CATCH_UP_S)
        return as_answer(answer)


def _code(answer: httpx.Response) -> int:
    try:
        return int(answer.json()["error_code"])
    except (ValueError, KeyError, TypeError):
        return 0
