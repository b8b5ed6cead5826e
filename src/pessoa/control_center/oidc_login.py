"""Logging in through an OpenID provider: the authorization code flow with PKCE (RFC 7636).

    /login/oidc → the provider → /login/oidc/callback?code=…&state=… → the token endpoint → an id token

The id token is verified as a bearer token of the API is (`oauthbearer.*`: keys, issuer, audience), and names the user.
The `state` is of this login alone: it is kept here and in a cookie of the browser that began it, so that no user can be
logged in as another by a link. A login that was begun counts for ten minutes; at most PENDING are under way.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
import time
from collections import OrderedDict
from typing import NamedTuple
from urllib.parse import urlencode

import httpx

from pessoa.web.problems import HttpProblem

PENDING = 1000
LOGIN_S = 600.0
_TIMEOUT_S = 10.0


class Provider(NamedTuple):
    authorization_url: str
    token_url: str
    client_id: str
    client_secret: str

    def __repr__(self) -> str:
        return f"<Provider at {self.authorization_url}>"


class _PendingLogin(NamedTuple):
    verifier: str
    after: str
    until_s: float


class OidcLogin:
    def __init__(self, provider: Provider) -> None:
        self._provider = provider
        self._pending: OrderedDict[str, _PendingLogin] = OrderedDict()

    def __repr__(self) -> str:
        return f"<OidcLogin with {self._provider!r}, {len(self._pending)} begun>"

    def begin(self, callback: str, after: str) -> tuple[str, str]:
        """Return the provider's URL to redirect to, and the state that the browser must bring back."""
        state, verifier = secrets.token_urlsafe(24), secrets.token_urlsafe(48)
        self._pending[state] = _PendingLogin(verifier, after, time.monotonic() + LOGIN_S)
        while len(self._pending) > PENDING:
            self._pending.popitem(last=False)
        challenge = base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).rstrip(b"=").decode()
        query = {
            "response_type": "code", "client_id": self._provider.client_id, "redirect_uri": callback,
            "scope": "openid", "state": state, "code_challenge": challenge, "code_challenge_method": "S256",
        }  # fmt: skip
        joint = "&" if "?" in self._provider.authorization_url else "?"
        return f"{self._provider.authorization_url}{joint}{urlencode(query)}", state

    async def finish(self, code: str, state: str, cookie: str, callback: str) -> tuple[str, str]:
        """Return the id token, and the page that the user wanted. Raises the problem 400 for a login that this
        browser did not begin."""
        login = self._pending.pop(state, None)
        if login is None or login.until_s < time.monotonic() or not hmac.compare_digest(state, cookie):
            raise HttpProblem(400, "This login was not begun here, or too long ago; please begin again.")
        form = {
            "grant_type": "authorization_code", "code": code, "redirect_uri": callback,
            "client_id": self._provider.client_id, "client_secret": self._provider.client_secret,
            "code_verifier": login.verifier,
        }  # fmt: skip
        try:
            async with httpx.AsyncClient(timeout=_TIMEOUT_S, follow_redirects=False) as http:
                answer = (await http.post(self._provider.token_url, data=form)).raise_for_status().json()
            token = answer["id_token"]
        except (httpx.HTTPError, ValueError, KeyError, TypeError):
            # The provider's response may contain secrets.
            raise HttpProblem(502, "The provider of logins gave no token for this login.") from None
        return str(token), login.after
