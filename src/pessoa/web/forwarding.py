"""A request that only the leader of several instances may serve: sent to it as it is, and answered with its answer.

The forwarded request carries `X-Forward: true`, as in the JVM registry: an instance that gets one and does not lead
refuses it instead of sending it on again. Who leads, how long to wait for a leader and whether to try again is the
business of the service.
"""

from __future__ import annotations

import ssl

import httpx
from starlette.requests import Request

from pessoa.web.answers import Answer

FORWARDED = "x-forward"
_REQUEST_HEADERS = ("accept", "content-type", "authorization")
_ANSWER_HEADERS = ("location",)


class LeaderUnreachable(Exception):
    """The leader did not answer. Whether it has carried out the forwarded request is not known."""


class Forwarder:
    def __init__(self, timeout_s: float, trust: ssl.SSLContext | bool = True) -> None:
        # A proxy that the environment names is for the world outside, not for the leader next door.
        self._client = httpx.AsyncClient(timeout=timeout_s, verify=trust, trust_env=False)

    async def close(self) -> None:
        await self._client.aclose()

    async def send(self, leader_url: str, request: Request, body: bytes) -> httpx.Response:
        path = request.scope["raw_path"].decode("latin-1")
        query = request.scope["query_string"].decode("latin-1")
        headers = {name: request.headers[name] for name in _REQUEST_HEADERS if name in request.headers}
        try:
            return await self._client.request(
                request.method,
                f"{leader_url}{path}{'?' + query if query else ''}",
                content=body,
                headers={**headers, FORWARDED: "true"},
            )
        except httpx.HTTPError as failure:
            raise LeaderUnreachable(f"{leader_url}: {str(failure) or type(failure).__name__}") from None


def is_forwarded(request: Request) -> bool:
    return FORWARDED in request.headers


def as_answer(response: httpx.Response) -> Answer:
    headers = {name: response.headers[name] for name in _ANSWER_HEADERS if name in response.headers}
    return Answer(response.content, response.status_code, response.headers.get("content-type"), headers)
