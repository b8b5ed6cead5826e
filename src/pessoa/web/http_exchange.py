"""One request and its answer, whatever version of HTTP carries them.

    the connection ──add, complete, lost──▶ Exchange ──receive──▶ the app
    the connection ◀──────────────────────  Exchange ◀──send, respond──  the app

The bytes of a body are kept here until the app takes them. The connection is called to stop reading (`_hold_back`),
when the app waits for more or for its caller to disconnect (`_invite`), and with how much it has taken (`_note_taken`).
How an answer is written is the business of the version: `http.py` and `http2.py` each have an exchange of their own.
`receive` and `send` are ASGI's, `respond` is the short way for a whole answer.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable

from starlette.types import Message, Scope

from pessoa.web.answers import Answer

log = logging.getLogger(__name__)

App = Callable[..., Awaitable[None]]
Header = tuple[bytes, bytes]
# The most bytes of a body that are held before the app asks for them.
HIGH_WATER_BYTES = 64 * 1024
# Statuses of answers that have no body.
NO_BODY = (204, 304)
EXPECT_CONTINUE = (b"expect", b"100-continue")
_BAD_VALUE = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")


def checked_value(value: bytes) -> bytes:
    """Return the header value; raise if a caller's text in it could end the header."""
    assert not _BAD_VALUE.search(value), f"no value of a header: {value!r}"
    return value


class Exchange:
    def __init__(self) -> None:
        self.scope: Scope = {}
        # The request has come whole.
        self.is_complete = False
        self.is_started = False
        self._is_lost = False
        self.is_answered = False
        self._body = bytearray()
        self._has_told_end = False
        self._arrival: asyncio.Future[None] | None = None

    def __repr__(self) -> str:
        state = "lost" if self._is_lost else "answered" if self.is_answered else "open"
        return f"<{type(self).__name__} {self.scope.get('method')} {self.scope.get('path')} {state}>"

    async def run(self, app: App) -> None:
        try:
            await app(self.scope, self.receive, self.send)
        except Exception:
            log.exception("the app failed outside of its own handling")
        if not self.is_answered and not self._is_lost:
            # An answer that is partly sent cannot be replaced by an error; it is left incomplete.
            self._break_off()

    # Receiving.

    def add(self, body: bytes) -> None:
        if self.is_answered:
            self._note_taken(len(body))
            return
        self._body += body
        if len(self._body) > HIGH_WATER_BYTES:
            self._hold_back()
        self._wake()

    def complete(self) -> None:
        self.is_complete = True
        self._wake()

    def lost(self) -> None:
        self._is_lost = True
        self._wake()

    def end_with_caller(self) -> None:
        """End the exchange when the caller sends EOF: an endless answer would go on without a reader."""

    def _wake(self) -> None:
        if self._arrival is not None and not self._arrival.done():
            self._arrival.set_result(None)

    def take_body(self) -> bytes:
        """Return the body that has arrived whole; nothing is left for `receive`."""
        assert self.is_complete
        self._has_told_end = True
        return self._take()

    def _take(self) -> bytes:
        body, self._body = bytes(self._body), bytearray()
        self._note_taken(len(body))
        return body

    async def receive(self) -> Message:
        while not self._is_lost and not self.is_answered and not self._body:
            if self.is_complete and not self._has_told_end:
                break
            self._invite()
            self._arrival = asyncio.get_running_loop().create_future()
            await self._arrival
        if self._is_lost or self.is_answered:
            return {"type": "http.disconnect"}
        body = self._take()
        self._has_told_end = self.is_complete
        return {"type": "http.request", "body": body, "more_body": not self.is_complete}

    def _expects_invitation(self) -> bool:
        """Whether the caller waits for 100 before it sends the body; True only once."""
        if self.is_started or self.is_complete or EXPECT_CONTINUE not in self.scope["headers"]:
            return False
        self.scope["headers"].remove(EXPECT_CONTINUE)
        return True

    def _mark_answered(self) -> None:
        self.is_answered = True
        self._take()
        self._wake()

    # What each version of HTTP does in its own way.

    def _hold_back(self) -> None:
        """Stop reading from the caller: more of the body has arrived than the app has asked for."""

    def _note_taken(self, size: int) -> None:
        """Note that the app has taken `size` bytes of the body."""

    def _invite(self) -> None:
        """Resume reading: the app waits for more of the body, or for the caller to disconnect."""
        raise NotImplementedError

    def _break_off(self) -> None:
        """End the exchange without completing its answer."""
        raise NotImplementedError

    def respond(self, answer: Answer) -> None:
        """Send the whole answer."""
        raise NotImplementedError

    async def send(self, message: Message) -> None:
        raise NotImplementedError
