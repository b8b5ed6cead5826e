"""Who calls a service: the caller that an Authorization header proves, with the credentials that prove it.

An `Authenticator` makes an `HttpCaller` of the header, or raises 401 with a challenge. It is awaited, since it may have
to ask elsewhere (`kafka_users.py` asks brokers). The caller keeps its credentials, so that a service may act as its
caller towards brokers: a name and password log in with PLAIN or SCRAM, a bearer token with OAUTHBEARER. Their `repr`
shows no secret.

Bearer tokens are verified as brokers verify them (`security/jwt/`), and name the same principal. A service may take
callers of both kinds; then the challenge names both.

HTTP Basic is checked against a table of users: a file in the form that Jetty's login module reads, which is what the
JVM services use:

    # name: password[, role …]
    alice: wonderland, admin
    bob: MD5:5f4dcc3b5aa765d61d8327deb882cf99

Roles are read and kept; which of them may come in is the service's `authentication.roles` (`*`, or nothing: any). The
roles of a bearer are the scopes of its token.
Passwords are compared in constant time, and a name that does not exist takes as long as a wrong password.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from pessoa.security.jwt.json_web_tokens import BadToken
from pessoa.web.problems import HttpProblem

if TYPE_CHECKING:
    from pessoa.security.jwt.token_verifier import TokenVerifier


@dataclass(frozen=True, slots=True)
class PasswordCredentials:
    username: str
    password: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class BearerCredentials:
    """A token whose signature and claims have been verified."""

    token: str = field(repr=False)
    # By the wall clock. What the service does as its caller must end then.
    expires_at_ms: int


@dataclass(frozen=True, slots=True)
class HttpCaller:
    """The sender of a request. The name is the user's, or the subject of the token."""

    name: str
    credentials: PasswordCredentials | BearerCredentials

    @property
    def principal(self) -> str:
        """The principal that brokers have for the same user."""
        return f"User:{self.name}"


class Authenticator(Protocol):
    async def caller_of(self, header: str | None) -> HttpCaller:
        """Return the caller that an Authorization header proves. Raises an `HttpProblem`: 401 without proof, 403 if
        the caller is known and not allowed, 429 or 503 if that cannot be checked at the moment."""

    async def start(self) -> None:
        """Prepare; called before the service takes requests."""

    def close(self) -> None:
        """Release resources; called when the service takes no more requests."""


@dataclass(frozen=True, slots=True)
class User:
    password: str = field(repr=False)
    roles: frozenset[str] = frozenset()

    def has_password(self, given: str) -> bool:
        kind, colon, digest = self.password.partition(":")
        if colon and kind == "MD5":
            # Jetty's format; kept for the files that exist.
            offered = hashlib.md5(given.encode(), usedforsecurity=False).hexdigest()
            return hmac.compare_digest(offered, digest.lower())
        return hmac.compare_digest(given.encode(), self.password.encode())


UNKNOWN_USER = User("")


class BasicAuth:
    def __init__(self, users: Mapping[str, User], *, realm: str = "pessoa", roles: Iterable[str] = ()) -> None:
        self._users = dict(users)
        self._challenge = {"WWW-Authenticate": f'Basic realm="{realm}"'}
        self._roles = frozenset(roles) - {"*", ""}

    def __repr__(self) -> str:
        return f"<BasicAuth {len(self._users)} users>"

    async def caller_of(self, header: str | None) -> HttpCaller:
        """Return the user in this Authorization header; 401 for an unknown user or wrong password, 403 for a user
        without a role."""
        credentials = basic_credentials(header)
        if credentials is None:
            raise HttpProblem(401, "Unauthorized", headers=self._challenge)
        name, password = credentials
        user = self._users.get(name, UNKNOWN_USER)
        if not user.has_password(password) or name not in self._users:
            raise HttpProblem(401, "Unauthorized", headers=self._challenge)
        if self._roles and not user.roles & self._roles:
            raise HttpProblem(403, "Forbidden")
        return HttpCaller(name, PasswordCredentials(name, password))

    async def start(self) -> None:
        """Do nothing: the users are read when the object is made."""

    def close(self) -> None:
        """Do nothing: nothing is open."""


class BearerAuth:
    """Authenticates bearer tokens, and names with passwords by `also`. `now_ms` is the wall clock."""

    def __init__(
        self,
        verifier: TokenVerifier,
        now_ms: Callable[[], int],
        *,
        realm: str = "pessoa",
        roles: Iterable[str] = (),
        also: Authenticator | None = None,
    ) -> None:
        self._verifier = verifier
        self._now_ms = now_ms
        self._password_auth = also
        self._bearer_challenge = f'Bearer realm="{realm}"'
        self._challenge = self._bearer_challenge if also is None else f'Basic realm="{realm}", {self._bearer_challenge}'
        self._roles = frozenset(roles) - {"*", ""}

    def __repr__(self) -> str:
        return f"<BearerAuth {self._verifier!r}, {self._password_auth!r}>"

    async def caller_of(self, header: str | None) -> HttpCaller:
        scheme, _, token = (header or "").partition(" ")
        if scheme.lower() == "basic" and self._password_auth is not None:
            return await self._password_auth.caller_of(header)
        if scheme.lower() != "bearer":
            raise _unauthorized(self._challenge)
        try:
            valid = self._verifier.verify(token.strip(), self._now_ms())
        except BadToken as bad:
            # RFC 6750 section 3; the sentence repeats nothing of the token.
            description = str(bad).replace('"', "'")
            raise _unauthorized(
                f'{self._bearer_challenge}, error="invalid_token", error_description="{description}"'
            ) from None
        if self._roles and not valid.scopes & self._roles:
            raise HttpProblem(403, "Forbidden")
        return HttpCaller(valid.subject, BearerCredentials(token.strip(), valid.expires_at_ms))

    async def start(self) -> None:
        await self._verifier.start()
        if self._password_auth is not None:
            await self._password_auth.start()

    def close(self) -> None:
        self._verifier.close()
        if self._password_auth is not None:
            self._password_auth.close()


def _unauthorized(challenge: str) -> HttpProblem:
    return HttpProblem(401, "Unauthorized", headers={"WWW-Authenticate": challenge})


def read_users(path: str | Path) -> dict[str, User]:
    return parse_users(Path(path).read_text(encoding="utf-8"))


def parse_users(text: str) -> dict[str, User]:
    users = {}
    for number, line in enumerate(text.splitlines(), 1):
        line = line.strip()
        if not line or line.startswith(("#", "!")):
            continue
        name, colon, rest = line.partition(":")
        if not colon or not name.strip():
            raise ValueError(f"line {number} of the user file is not `name: password[, role …]`")
        password, *roles = (part.strip() for part in rest.split(","))
        users[name.strip()] = User(password, frozenset(roles) - {""})
    return users


def basic_credentials(header: str | None) -> tuple[str, str] | None:
    """Return name and password of an Authorization header with HTTP Basic, None for any other."""
    scheme, _, encoded = (header or "").partition(" ")
    if scheme.lower() != "basic":
        return None
    try:
        name, colon, password = base64.b64decode(encoded.strip(), validate=True).decode().partition(":")
    except (binascii.Error, UnicodeDecodeError):
        return None
    return (name, password) if colon else None
