"""Who is at a page or the API, and what that user may do.

    reader   sees everything but what is masked, changes nothing
    editor   also produces messages, creates topics, resets offsets, runs connectors and queries
    admin    also deletes, changes configurations, ACLs, quotas, users, alerts and settings

Users and passwords are those of every service (`pessoa.authentication.users.file`, or the users of the cluster); the
roles of the file's users are written behind their passwords. Without logins there is one user, `anonymous`, with the
role of `pessoa.control.center.role`. A login makes a session: a random token in a cookie that scripts cannot read and
other sites cannot send, forgotten after a time without use.
"""

from __future__ import annotations

import base64
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import NamedTuple

from pessoa.web.auth import Authenticator, User
from pessoa.web.problems import HttpProblem

ROLES = ("reader", "editor", "admin")
COOKIE = "pessoa_session"
MAX_SESSIONS = 10_000


class Person(NamedTuple):
    name: str
    role: str

    def may(self, role: str) -> bool:
        return ROLES.index(self.role) >= ROLES.index(role)


class Accounts:
    def __init__(
        self,
        authenticator: Authenticator | None,
        users: Mapping[str, User],
        default_role: str,
        idle_s: float,
        named_roles: Mapping[str, str] | None = None,
        role_of: Callable[[str], str | None] | None = None,
        *,
        has_proxy: bool = False,
    ) -> None:
        """`named_roles` are the roles that the settings give to users by name, `role_of` returns those of an LDAP
        directory; with `has_proxy` a proxy logs users in."""
        self._has_proxy = has_proxy
        self._role_of_directory = role_of
        self._named_roles = named_roles or {}
        self._authenticator = authenticator
        self._users = users
        self._default_role = default_role
        self._idle_s = idle_s
        self._sessions: OrderedDict[str, tuple[Person, float]] = OrderedDict()

    def __repr__(self) -> str:
        return f"<Accounts: {len(self._sessions)} sessions>"

    @property
    def demands_login(self) -> bool:
        return self._authenticator is not None or self._has_proxy

    async def log_in(self, name: str, password: str) -> str:
        """Return the token of a new session. Raises the problem 401 for a wrong password."""
        text = base64.b64encode(f"{name}:{password}".encode()).decode()
        return await self.log_in_by(f"Basic {text}")

    async def log_in_by(self, header: str) -> str:
        """Return the token of a new session for the user of an Authorization header."""
        return self._new_session(await self.by_header(header))

    def begin_session(self, name: str) -> str:
        """Return the token of a new session for a user whom a proxy has logged in."""
        return self._new_session(Person(name, self._role_of(name)))

    def _new_session(self, person: Person) -> str:
        token = secrets.token_urlsafe(32)
        self._sessions[token] = (person, time.monotonic() + self._idle_s)
        while len(self._sessions) > MAX_SESSIONS:
            self._sessions.popitem(last=False)
        return token

    def log_out(self, token: str | None) -> None:
        self._sessions.pop(token or "", None)

    async def by_header(self, header: str | None) -> Person:
        if not self.demands_login:
            return Person("anonymous", self._default_role)
        if self._authenticator is None:
            raise HttpProblem(401, "The proxy before the control centre logs users in; it has named none.")
        caller = await self._authenticator.caller_of(header)
        return Person(caller.name, self._role_of(caller.name))

    def by_cookie(self, token: str | None) -> Person | None:
        """Return the user of a session and prolong it; None without a session."""
        found = self.of_session(token)
        if found is not None and self.demands_login:
            self._sessions[token or ""] = (found, time.monotonic() + self._idle_s)
        return found

    def of_session(self, token: str | None) -> Person | None:
        """Return the user of a session without prolonging it; None without a session. A role that the user has lost
        since the login is not returned; a higher one counts from the next login on."""
        if not self.demands_login:
            return Person("anonymous", self._default_role)
        known = self._sessions.get(token or "")
        if known is None or known[1] < time.monotonic():
            self._sessions.pop(token or "", None)
            return None
        name, role = known[0]
        return Person(name, min(role, self._role_of(name), key=ROLES.index))

    def seconds_left(self, token: str | None) -> float:
        """Return the seconds until the session expires without further use; 0 if it has. Does not prolong it."""
        known = self._sessions.get(token or "")
        return 0.0 if known is None else max(0.0, known[1] - time.monotonic())

    def _role_of(self, name: str) -> str:
        if name in self._named_roles:
            return self._named_roles[name]
        if self._role_of_directory is not None and (found := self._role_of_directory(name)) is not None:
            return found
        user = self._users.get(name)
        named = [role for role in ROLES if user is not None and role in user.roles]
        return named[-1] if named else self._default_role


def demand(person: Person, role: str) -> None:
    if not person.may(role):
        raise HttpProblem(403, f"{person.name} is a {person.role} here; this needs the role {role}.", 40302)
