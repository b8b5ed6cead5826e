"""Streamed responses, when they cannot be written to the client."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

import pytest
from starlette.types import Message

from pessoa.ksql.server.api.streamed_answer import StreamedAnswer
from pessoa.web.websockets import WebsocketAnswer
from tests.unit.web.wire import in_loop


@in_loop
async def test_a_streamed_response_whose_head_cannot_be_sent_closes_its_generator() -> None:
    async def chunks(closed: list[str]) -> AsyncGenerator[bytes, None]:
        try:
            yield b""
            yield b"row"
        finally:
            closed.append("closed")

    async def send(_: Message) -> None:
        raise OSError("no head")

    async def receive() -> Message:
        await asyncio.Event().wait()
        raise AssertionError

    for make in (lambda made: StreamedAnswer(made, "text/plain"), lambda made: WebsocketAnswer(made, "key")):
        closed: list[str] = []
        made = chunks(closed)
        await anext(made)
        with pytest.raises(OSError, match="no head"):
            await make(made)({"type": "http"}, receive, send)
        assert closed == ["closed"]
