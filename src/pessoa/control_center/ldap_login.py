"""Logging in with the users of an LDAP directory (RFC 4511): a password is right if the directory binds with it.

    ldap.user.dn = uid={name},ou=people,dc=example,dc=org     the user's entry, by a pattern; or found by a search:
    ldap.search.base, .search.attribute (uid)                 with .bind.dn and .bind.password, where the directory asks
    ldap.groups.base, .groups.attribute (member)              the groups of a user, whose cn gives a role:
    ldap.admin.groups, .editor.groups                         (all keys begin with pessoa.control.center.)

Three operations are spoken, each written as BER: a simple bind, a search by equality, an unbind. Names become values of
BER, never parts of a filter's text; in the pattern they are escaped as RFC 4514 wants it. An empty password is refused
here, for a directory takes it as an anonymous bind and says yes. Messages are bounded (_MAX_BYTES), waits too.
"""

from __future__ import annotations

import socket
import ssl
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Self
from urllib.parse import urlsplit

from pessoa.base.config_values import ConfigProblem
from pessoa.client.blocking_connection import ConnectionFailed

TIMEOUT_S = 5.0
MAX_USERS = 10_000
_MAX_BYTES = 1 << 20
_MAX_ENTRIES = 1000
_PORTS = {"ldap": 389, "ldaps": 636}
_INVALID_CREDENTIALS, _NO_SUCH_OBJECT, _INVALID_DN = 49, 32, 34
# Tags of BER, and of the operations.
_INTEGER, _OCTETS, _ENUMERATED, _SEQUENCE, _BOOLEAN = 0x02, 0x04, 0x0A, 0x30, 0x01
_BIND, _BOUND, _UNBIND, _SEARCH, _ENTRY, _DONE = 0x60, 0x61, 0x42, 0x63, 0x64, 0x65
_SIMPLE, _EQUALITY = 0x80, 0xA3


@dataclass(frozen=True, slots=True)
class LdapSettings:
    url: str
    user_dn: str = ""
    search_base: str = ""
    search_attribute: str = "uid"
    bind_dn: str = ""
    bind_password: str = field(default="", repr=False)
    groups_base: str = ""
    groups_attribute: str = "member"
    admin_groups: tuple[str, ...] = ()
    editor_groups: tuple[str, ...] = ()

    def check(self) -> None:
        """Raise a `ConfigProblem` if settings are missing or contradict each other."""
        parts = urlsplit(self.url)
        if parts.scheme not in _PORTS or not parts.hostname:
            raise ConfigProblem("pessoa.control.center.ldap.url", self.url, "it must be ldap://host or ldaps://host")
        if "{name}" not in self.user_dn and not self.search_base:
            raise ConfigProblem(
                "pessoa.control.center.ldap.user.dn", self.user_dn,
                "it needs {name} where the user's name stands, or ldap.search.base to search below",
            )  # fmt: skip


class LdapRefused(Exception):
    """The directory answered with an error; `code` is LDAP's."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message or f"LDAP's error {code}")
        self.code = code


class LdapDirectory:
    """The LDAP directory as a source of users and roles. `log_in` blocks, so it is for the threads that try logins.
    `role_of` knows the users who have logged in."""

    def __init__(self, settings: LdapSettings, trust: Callable[[], ssl.SSLContext]) -> None:
        self._settings = settings
        self._trust = trust
        self._roles: OrderedDict[str, str | None] = OrderedDict()

    def __repr__(self) -> str:
        return f"<LdapDirectory at {self._settings.url}>"

    def role_of(self, name: str) -> str | None:
        return self._roles.get(name)

    def log_in(self, name: str, password: str) -> int | None:
        """Return 0 for a right password, None for a wrong one. `ConnectionFailed` if the directory does not answer."""
        if not name or not password:
            return None
        try:
            with LdapConnection(self._settings.url, self._trust) as link:
                entry = self._entry_of(link, name)
                if entry is None:
                    return None
                try:
                    link.bind(entry, password)
                except LdapRefused as refused:
                    if refused.code in (_INVALID_CREDENTIALS, _NO_SUCH_OBJECT, _INVALID_DN):
                        return None
                    raise
                self._roles[name] = self._role(link, name, entry)
        except LdapRefused as refused:
            raise ConnectionFailed(f"the directory refuses: {refused}") from refused
        except (OSError, ValueError) as failure:
            raise ConnectionFailed(f"the directory does not answer: {failure}") from failure
        while len(self._roles) > MAX_USERS:
            self._roles.popitem(last=False)
        return 0

    def _entry_of(self, link: LdapConnection, name: str) -> str | None:
        given = self._settings
        if not given.search_base:
            return given.user_dn.replace("{name}", escaped(name))
        if given.bind_dn:
            link.bind(given.bind_dn, given.bind_password)
        found = link.search(given.search_base, given.search_attribute, name, "1.1")
        # Two entries of one name are not one user.
        return found[0][0] if len(found) == 1 else None

    def _role(self, link: LdapConnection, name: str, entry: str) -> str | None:
        given = self._settings
        if not given.groups_base:
            return None
        if given.bind_dn:
            link.bind(given.bind_dn, given.bind_password)
        value = name if given.groups_attribute.lower() == "memberuid" else entry
        groups = {text for _, names in link.search(given.groups_base, given.groups_attribute, value, "cn")
                  for text in names}  # fmt: skip
        if groups & set(given.admin_groups):
            return "admin"
        return "editor" if groups & set(given.editor_groups) else None


class LdapConnection:
    """A connection to an LDAP directory, for one operation at a time."""

    def __init__(self, url: str, trust: Callable[[], ssl.SSLContext]) -> None:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port or _PORTS[parts.scheme]
        self._socket = socket.create_connection((host, port), TIMEOUT_S)
        if parts.scheme == "ldaps":
            self._socket = trust().wrap_socket(self._socket, server_hostname=host)
        self._buffer = b""
        self._number = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self._send(tlv(_UNBIND, b""))
        except OSError:
            # The directory has closed the connection first.
            pass
        finally:
            self._socket.close()

    def bind(self, entry: str, password: str) -> None:
        """Bind as this user. Raises LdapRefused."""
        body = integer(3) + octets(entry) + tlv(_SIMPLE, password.encode())
        self._send(tlv(_BIND, body))
        tag, value = self._receive()
        if tag != _BOUND:
            raise ValueError(f"an answer of kind {tag:#x} to a bind")
        _check(value)

    def search(self, base: str, attribute: str, value: str, wanted: str) -> list[tuple[str, list[str]]]:
        """Return the entries below `base` whose attribute has this value: their names, and the values of the wanted
        attribute."""
        filter_ = tlv(_EQUALITY, octets(attribute) + octets(value))
        body = (
            octets(base) + tlv(_ENUMERATED, b"\x02") + tlv(_ENUMERATED, b"\x00") + integer(_MAX_ENTRIES)
            + integer(int(TIMEOUT_S)) + tlv(_BOOLEAN, b"\x00") + filter_ + tlv(_SEQUENCE, octets(wanted))
        )  # fmt: skip
        self._send(tlv(_SEARCH, body))
        found: list[tuple[str, list[str]]] = []
        while True:
            tag, answer = self._receive()
            if tag == _ENTRY:
                found.append(_entry(answer))
            elif tag == _DONE:
                _check(answer)
                return found
            if len(found) > _MAX_ENTRIES:
                raise ValueError(f"more than {_MAX_ENTRIES} entries")

    def _send(self, operation: bytes) -> None:
        self._number += 1
        self._socket.sendall(tlv(_SEQUENCE, integer(self._number) + operation))

    def _receive(self) -> tuple[int, bytes]:
        """Return tag and content of the next operation that the directory sends."""
        while True:
            whole = _split(self._buffer)
            if whole is not None:
                break
            more = self._socket.recv(65536)
            if not more:
                raise OSError("the connection was closed")
            self._buffer += more
        tag, message, size = whole
        self._buffer = self._buffer[size:]
        if tag != _SEQUENCE:
            raise ValueError(f"a message begins with {tag:#x}")
        (_, _), (kind, value), *_ = elements(message)
        return kind, value


# BER.


def tlv(tag: int, value: bytes) -> bytes:
    size = len(value)
    if size < 128:
        return bytes((tag, size)) + value
    length = size.to_bytes((size.bit_length() + 7) // 8, "big")
    return bytes((tag, 0x80 | len(length))) + length + value


def integer(number: int) -> bytes:
    return tlv(_INTEGER, number.to_bytes(number.bit_length() // 8 + 1, "big"))


def octets(text: str) -> bytes:
    return tlv(_OCTETS, text.encode())


def elements(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Return tags and contents, in order. ValueError for malformed BER."""
    while data:
        found = _split(data)
        if found is None:
            raise ValueError("an element is cut")
        tag, value, size = found
        yield tag, value
        data = data[size:]


def _split(data: bytes) -> tuple[int, bytes, int] | None:
    """Return tag and content of the first element, and its length; None while it is incomplete."""
    if len(data) < 2:
        return None
    size, start = data[1], 2
    if size & 0x80:
        count = size & 0x7F
        if not 1 <= count <= 4:
            raise ValueError("a length of another form than LDAP's")
        start += count
        if len(data) < start:
            return None
        size = int.from_bytes(data[2:start], "big")
    if size > _MAX_BYTES:
        raise ValueError(f"an element of {size} bytes")
    if len(data) < start + size:
        return None
    return data[0], data[start : start + size], start + size


def _check(result: bytes) -> None:
    (_, code), _, (_, message), *_ = elements(result)
    number = int.from_bytes(code, "big")
    if number != 0:
        raise LdapRefused(number, message.decode(errors="replace")[:200])


def _entry(data: bytes) -> tuple[str, list[str]]:
    (_, name), (_, attributes), *_ = elements(data)
    values = []
    for _, attribute in elements(attributes):
        (_, _), (_, found), *_ = elements(attribute)
        values += [value.decode(errors="replace") for _, value in elements(found)]
    return name.decode(errors="replace"), values


def escaped(name: str) -> str:
    """Return a value as text of a distinguished name (RFC 4514): everything but letters and digits as \\xx."""
    return "".join(
        each if each.isascii() and each.isalnum() else "".join(f"\\{one:02x}" for one in each.encode())
        for each in name
    )  # fmt: skip
