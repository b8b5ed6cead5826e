"""What stands before pages and API: foreign pages, foreign names and foreign scripts are kept out.

- A request must name a host that the service is known by. A page that lets its own name point to 127.0.0.1 (DNS
  rebinding) would otherwise be of the same origin as we are.
- What changes something, and every WebSocket, must come from our own pages: an Origin of another host is refused.
  Programs send none.
- Answers say what a page may load (nothing from elsewhere), and that no other page may frame it.

Pure ASGI, around everything.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from urllib.parse import urlsplit

import msgspec
from starlette.types import ASGIApp, Message, Receive, Scope, Send

_LOCAL = frozenset(("localhost", "127.0.0.1", "::1"))
_READS = ("GET", "HEAD", "OPTIONS")
# NiceGUI's Vue needs inline scripts and `eval` for its templates; what matters is that nothing comes from, or goes,
# elsewhere.
_POLICY = (
    "default-src 'self'; script-src 'self' 'unsafe-inline' 'unsafe-eval'; style-src 'self' 'unsafe-inline';"
    " img-src 'self' data:; font-src 'self' data:; connect-src 'self'{sockets}; object-src 'none'; base-uri 'self';"
    " form-action 'self'; frame-ancestors 'none'"
)
_HOST = re.compile(r"[A-Za-z0-9.:\[\]_-]+")
_HEADERS = [
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"same-origin"),
]


class RequestGuard:
    def __init__(self, app: ASGIApp, hosts: Iterable[str]) -> None:
        self._app = app
        self._hosts = _LOCAL | {host.lower() for host in hosts}
        self._takes_any_host = "*" in self._hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        headers = {name: value.decode("latin-1") for name, value in scope["headers"]}
        reason = self.refusal(scope["type"], scope.get("method", "GET"), headers.get(b"host"), headers.get(b"origin"))
        if reason is not None:
            await _refuse(scope, send, reason)
            return

        added = [(b"content-security-policy", policy(headers.get(b"host")).encode()), *_HEADERS]

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                message = {**message, "headers": [*message.get("headers", ()), *added]}
            await send(message)

        await self._app(scope, receive, send_with_headers)

    def refusal(self, kind: str, method: str, host: str | None, origin: str | None) -> str | None:
        """Return why a request is refused; None if it is not."""
        name = urlsplit(f"//{host or ''}").hostname or ""
        if not self._takes_any_host and name.lower() not in self._hosts:
            return f"The host {name!r} is not one of this service; pessoa.control.center.hosts names more."
        is_read = kind == "http" and method in _READS
        if origin is None or is_read:
            return None
        origin_parts = urlsplit(origin)
        if origin_parts.netloc.lower() != (host or "").lower():
            return "This request comes from the page of another site."
        return None


def policy(host: str | None) -> str:
    """Return the Content-Security-Policy of this host; not all browsers take 'self' for its WebSockets."""
    is_name = host is not None and _HOST.fullmatch(host) is not None
    return _POLICY.format(sockets=f" ws://{host} wss://{host}" if is_name else "")


async def _refuse(scope: Scope, send: Send, reason: str) -> None:
    if scope["type"] == "websocket":
        await send({"type": "websocket.close", "code": 1008, "reason": reason[:100]})
        return
    body = msgspec.json.encode({"error_code": 403, "message": reason})
    policy_header = (b"content-security-policy", policy(None).encode())
    headers = [(b"content-type", b"application/json"), policy_header, *_HEADERS]
    await send({"type": "http.response.start", "status": 403, "headers": headers})
    await send({"type": "http.response.body", "body": body})
