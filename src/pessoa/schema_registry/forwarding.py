"""A write that came to a follower goes to the leader as it is, and the leader's answer goes back as it is.

The forwarded request carries `X-Forward: true`, as in the JVM registry: an instance that gets one and does not lead
says so instead of passing it on again. The leader says in a header how far the topic had got; the follower waits until
it has read as far, so that whoever wrote through it can read through it.

When the leader does not answer, the request waits for the next one: registering a schema twice gives the same id, and
the other writes can be repeated too, as far as the topic is concerned. Only when the time is up the caller hears of it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import ssl

import httpx
from starlette.requests import Request
from starlette.responses import Response

from pessoa.schema_registry import problems
from pessoa.schema_registry.registry import NotLeader, Registry
from pessoa.schema_registry.store import StoreFailed
from pessoa.web.answers import Answer

log = logging.getLogger("pessoa.schema_registry")

FORWARDED = "x-forward"
OFFSET = "x-pessoa-offset"
_PASSED = ("accept", "content-type", "authorization")
_RETRY_S = 0.25
_CATCH_UP_S = 2.0
# What a leader says when it is none, or has just lost a transaction.
_TRY_AGAIN = {50001, 50003, 50004}


class Forwarder:
    def __init__(self, registry: Registry, trust: ssl.SSLContext | bool = True) -> None:
        self._registry = registry
        # Whatever proxy the environment names is for the world outside, not for the leader next door.
        timeout_s = registry.config.leader_timeout_ms / 1000
        self._client = httpx.AsyncClient(timeout=timeout_s, verify=trust, trust_env=False)

    async def close(self) -> None:
        await self._client.aclose()

    async def forward(self, request: Request, body: bytes) -> Response:
        """The leader's answer; NotLeader if it turns out that this instance leads now."""
        if FORWARDED in request.headers:
            raise problems.unknown_leader()
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
                answer = await self._send(leader.url, request, body)
            except httpx.HTTPError as failure:
                trouble = f"{leader.url}: {str(failure) or type(failure).__name__}"
            else:
                if answer.status_code != 500 or _code(answer) not in _TRY_AGAIN:
                    return await self._returned(answer)
                trouble = answer.text
            await registry.wait_for_change(_RETRY_S)
        raise problems.forwarding_failed(trouble)

    async def _send(self, url: str, request: Request, body: bytes) -> httpx.Response:
        path = request.scope["raw_path"].decode("latin-1")
        query = request.scope["query_string"].decode("latin-1")
        headers = {name: request.headers[name] for name in _PASSED if name in request.headers}
        return await self._client.request(
            request.method,
            f"{url}{path}{'?' + query if query else ''}",
            content=body,
            headers={**headers, FORWARDED: "true"},
        )

    async def _returned(self, answer: httpx.Response) -> Response:
        offset = answer.headers.get(OFFSET, "")
        if offset.isdigit():
            # Late is no reason to call a write that was done a failure.
            with contextlib.suppress(StoreFailed):
                await self._registry.store.wait_until(int(offset), _CATCH_UP_S)
        return Answer(answer.content, answer.status_code, answer.headers.get("content-type"))


def _code(answer: httpx.Response) -> int:
    try:
        return int(answer.json()["error_code"])
    except (ValueError, KeyError, TypeError):
        return 0
