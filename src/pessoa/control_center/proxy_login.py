"""Users who were logged in by a proxy before the control centre, which names them in a header.

    pessoa.control.center.proxy.user.header = X-Forwarded-User      the header; none by default
    pessoa.control.center.proxy.addresses   = 127.0.0.1,::1         from where it is believed

A connection from another address is not believed, whatever it says. A believed name gets a session like any other
user's, whose cookie is put into the request: pages, the API and the WebSocket see a user who is logged in.
"""

from __future__ import annotations

from collections import OrderedDict
from ipaddress import ip_address

from starlette.types import Scope

from pessoa.control_center.accounts import COOKIE, Accounts

MAX_NAMES = 10_000
_LONGEST = 128


class ProxyLogin:
    def __init__(self, accounts: Accounts, header: str, addresses: tuple[str, ...]) -> None:
        self._accounts = accounts
        self._header = header.lower().encode()
        self._addresses = {ip_address(one) for one in addresses}
        # The session of each user.
        self._sessions: OrderedDict[str, str] = OrderedDict()

    def __repr__(self) -> str:
        return f"<ProxyLogin by {self._header.decode()}>"

    def named(self, scope: Scope) -> str | None:
        """Return the user in the header of a trusted proxy; None if the request comes from elsewhere or has no such
        header."""
        client = scope.get("client")
        if client is None or ip_address(client[0]) not in self._addresses:
            return None
        names = [value.decode("utf-8", "replace").strip() for name, value in scope["headers"] if name == self._header]
        # Two headers are one of the proxy and one of the browser: none is believed.
        return names[0] if len(names) == 1 and 0 < len(names[0]) <= _LONGEST else None

    def with_session(self, scope: Scope) -> Scope:
        """Return the request with the session of the user that the proxy names as its only one; unchanged if no
        proxy names a user."""
        name = self.named(scope)
        if name is None:
            return scope
        token = self._sessions.get(name)
        if token is None or self._accounts.by_cookie(token) is None:
            token = self._sessions[name] = self._accounts.begin_session(name)
            while len(self._sessions) > MAX_NAMES:
                self._accounts.log_out(self._sessions.popitem(last=False)[1])
        kept = []
        for key, value in scope["headers"]:
            if key == b"cookie":
                others = [one for one in value.split(b";") if not one.strip().startswith(f"{COOKIE}=".encode())]
                value = b";".join(others)
            kept.append((key, value))
        return {**scope, "headers": [*kept, (b"cookie", f"{COOKIE}={token}".encode())]}
