"""Websockets, as far as a service needs them to send: the handshake, frames of text, pings and the end (RFC 6455).

    return WebsocketAnswer(texts, accept_key(request))

Each text becomes a message. What the caller sends is read for its end and for pings, and otherwise left alone.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
from collections.abc import AsyncGenerator

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from pessoa.web.answers import EXCHANGE_KEY
from pessoa.web.http1_exchange import SWITCHING
from pessoa.web.problems import HttpProblem

_GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
_TEXT, _CLOSE, _PING, _PONG = 0x1, 0x8, 0x9, 0xA
_FINAL, _MASKED = 0x80, 0x80
# Callers send only control frames, which have at most 125 bytes.
_MOST_HELD = 64 * 1024
NORMAL = 1000


def accept_key(request: Request) -> str:
    """Return the value of Sec-WebSocket-Accept; 426 for a request that is no websocket handshake."""
    key = request.headers.get("sec-websocket-key")
    if request.headers.get("upgrade", "").lower() != "websocket" or key is None:
        raise HttpProblem(426, "This address speaks websockets.", headers={"Upgrade": "websocket"})
    # SHA-1 is what the protocol says; nothing is secret here.
    return base64.b64encode(hashlib.sha1(key.encode("latin-1") + _GUID).digest()).decode()  # noqa: S324


def encode_frame(opcode: int, payload: bytes) -> bytes:
    size = len(payload)
    if size < 126:
        head = bytes([_FINAL | opcode, size])
    elif size < 1 << 16:
        head = bytes([_FINAL | opcode, 126]) + size.to_bytes(2, "big")
    else:
        head = bytes([_FINAL | opcode, 127]) + size.to_bytes(8, "big")
    return head + payload


def take_frame(data: bytearray) -> tuple[int, bytes] | None:
    """Remove the first frame from `data` and return its opcode and payload; None if it is incomplete."""
    if len(data) < 2:
        return None
    size, position = data[1] & 0x7F, 2
    if size >= 126:
        width = 2 if size == 126 else 8
        size, position = int.from_bytes(data[2 : 2 + width], "big"), 2 + width
    mask = bytes(data[position : position + 4]) if data[1] & _MASKED else b""
    position += len(mask)
    if len(data) < position + size or (data[1] & _MASKED and len(mask) < 4):
        return None
    payload = bytes(data[position : position + size])
    opcode = data[0] & 0x0F
    del data[: position + size]
    return opcode, bytes(byte ^ mask[at % 4] for at, byte in enumerate(payload)) if mask else payload


class WebsocketAnswer(Response):
    # Not what Starlette's would do: nothing is rendered.
    def __init__(self, texts: AsyncGenerator[bytes, None], accept: str) -> None:
        self._texts = texts
        self.status_code = SWITCHING
        self.background = None
        named = {"upgrade": "websocket", "connection": "Upgrade", "sec-websocket-accept": accept}
        self._head = [(name.encode(), value.encode("latin-1")) for name, value in named.items()]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        exchange = scope.get(EXCHANGE_KEY)
        if exchange is not None:
            exchange.end_with_caller()
        tasks: list[asyncio.Task[None]] = []
        try:
            await send({"type": "http.response.start", "status": SWITCHING, "headers": self._head})
            tasks = [asyncio.create_task(self._write(send)), asyncio.create_task(_listen(receive, send))]
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await self._texts.aclose()
        goodbye = encode_frame(_CLOSE, NORMAL.to_bytes(2, "big"))
        await send({"type": "http.response.body", "body": goodbye, "more_body": False})

    async def _write(self, send: Send) -> None:
        async for text in self._texts:
            await send({"type": "http.response.body", "body": encode_frame(_TEXT, text), "more_body": True})


async def _listen(receive: Receive, send: Send) -> None:
    """Return when the caller has disconnected or sent a close frame; answer its pings."""
    held = bytearray()
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return
        held += message.get("body", b"")
        while (frame := take_frame(held)) is not None:
            opcode, payload = frame
            if opcode == _CLOSE:
                return
            if opcode == _PING:
                await send({"type": "http.response.body", "body": encode_frame(_PONG, payload), "more_body": True})
        if len(held) > _MOST_HELD:
            return
