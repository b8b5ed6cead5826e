"""The verifier of tokens for brokers and services: rules and keys together, made from settings.

Where the keys are is said by the node's own configuration and must stand in a list of allowed places, which no request
can change (CVE-2025-27817: a URL out of a request made brokers read files and ask other hosts).
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import unquote, urlsplit

from pessoa.security.jwt.json_web_keys import BadKeySet
from pessoa.security.jwt.json_web_tokens import TokenRules, UnknownKey, ValidToken, validate
from pessoa.security.jwt.key_reader import Unreadable
from pessoa.security.jwt.key_sources import FileKeys, Intervals, KeySource, UrlKeys

if TYPE_CHECKING:
    from pessoa.base.clock import Clock
    from pessoa.security.jwt.key_reader import KeyReader


class BadKeyLocation(Exception):
    """Keys or tokens cannot be read from the place that a setting names; the message says why, for the user who set
    it."""


class KeyLocation(NamedTuple):
    """The location of a key set or a token: a file, or an http(s) URL."""

    text: str
    # Of a file.
    path: str | None

    def __repr__(self) -> str:
        return f"<KeyLocation {self.text.partition('?')[0]}>"


def parse_location(text: str) -> KeyLocation:
    """Return the location that `file:/path`, `file:///path` or an http(s) URL names. Raises `BadKeyLocation`."""
    parts = urlsplit(text.strip())
    if parts.scheme == "file":
        path = unquote(parts.path)
        if parts.netloc not in ("", "localhost") or not path.startswith("/"):
            raise BadKeyLocation("a file: URL names an absolute path, as in file:///etc/kafka/jwks.json")
        return KeyLocation(text.strip(), path)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise BadKeyLocation("it must be an https:, http: or file: URL")
    try:
        _ = parts.port
    except ValueError:
        raise BadKeyLocation("its port is no number") from None
    if parts.username is not None or any(character.isspace() or ord(character) < 32 for character in text.strip()):
        raise BadKeyLocation("it must hold neither a user nor spaces")
    return KeyLocation(text.strip(), None)


def is_allowed(location: KeyLocation, urls: Collection[str], files: Collection[str]) -> bool:
    """Return whether a list contains the location: a URL as exactly the same text, a file by its path or as a file:
    URL, in either list."""
    if location.path is None:
        return location.text in urls
    path = Path(location.path)
    listed = [Path(unquote(urlsplit(one).path) if one.startswith("file:") else one) for one in (*files, *urls)]
    return path in listed


class TokenVerifier:
    def __init__(self, source: KeySource, rules: TokenRules) -> None:
        self._source = source
        self._rules = rules

    def __repr__(self) -> str:
        return f"<TokenVerifier of {self._source!r}>"

    def verify(self, token: str, now_ms: int) -> ValidToken:
        """Return the claims of a valid token. Raises `BadToken`. Never waits."""
        try:
            return validate(token, self._source.keys(), self._rules, now_ms)
        except UnknownKey as unknown:
            self._source.note_unknown(unknown.key_id)
            raise

    async def start(self) -> None:
        await self._source.start()

    def close(self) -> None:
        self._source.close()


def open_verifier(
    location: KeyLocation, rules: TokenRules, reader: KeyReader, clock: Clock, intervals: Intervals
) -> TokenVerifier:
    """Return a verifier with the keys of this location. Raises `BadKeyLocation` for a file that cannot be read or is
    no key set; a URL is first read by `start`."""
    if location.path is None:
        return TokenVerifier(UrlKeys(location.text, reader, clock, intervals), rules)
    try:
        return TokenVerifier(FileKeys(location.path, reader), rules)
    except (Unreadable, BadKeySet) as failure:
        raise BadKeyLocation(f"no key set can be read from {location.path}: {failure}") from None
