"""A response that is written while it is produced: chunks are sent at once, and a client that disconnects ends it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from pessoa.web.answers import EXCHANGE_KEY


class StreamedAnswer(Response):
    """A response whose body is written while `chunks` yields it; `chunks` is closed in any case. With `watches` the
    request has no more body, and the response ends when the client disconnects."""

    # Not what Starlette's would do: nothing is rendered.
    def __init__(
        self, chunks: AsyncGenerator[bytes, None], content_type: str, *, watches: bool = True,
        headers: Mapping[str, str] | None = None,
    ) -> None:  # fmt: skip
        self._chunks = chunks
        self._watches = watches
        self.status_code = 200
        self.background = None
        named = {"content-type": content_type, **(headers or {})}
        self._head = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in named.items()]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        exchange = scope.get(EXCHANGE_KEY)
        if exchange is not None and self._watches:
            exchange.end_with_caller()
        writing = asyncio.create_task(self._write(send))
        watching = asyncio.create_task(_wait_for_end(receive)) if self._watches else None
        try:
            await asyncio.wait([writing, *([watching] if watching else [])], return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (writing, watching):
                if task is not None and not task.done():
                    task.cancel()
            await asyncio.wait([writing])
            await self._chunks.aclose()
        if not writing.cancelled() and (failure := writing.exception()) is not None:
            raise failure

    async def _write(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self._head})
        async for chunk in self._chunks:
            await send({"type": "http.response.body", "body": chunk, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _wait_for_end(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
