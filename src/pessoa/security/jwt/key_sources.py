"""A key set that is kept fresh: out of a file, or from a URL.

    FileKeys   read again when the file has changed, which is looked at with every token
    UrlKeys    fetched at the start, then every `refresh_ms`, after a failure sooner; never while a token waits

A token that names an unknown key is refused, and makes the URL be fetched at once, because the issuer may have a new
key; the client's next token finds it. A client may send any key id. So there is one fetch per id in a minute,
16 ids are remembered, as in Kafka's `RefreshingHttpsJwks`, and while there are 16 no other one starts a fetch.
A fetch that fails, or gives what is no key set, leaves the keys as they are.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, NamedTuple, Protocol

from pessoa.security.jwt.json_web_keys import MAX_KEY_SET_BYTES, BadKeySet, KeySet, parse_key_set
from pessoa.security.jwt.key_reader import FileVersion, Unreadable

if TYPE_CHECKING:
    from pessoa.base.clock import Clock, Timer
    from pessoa.security.jwt.key_reader import KeyReader

log = logging.getLogger(__name__)

_UNKNOWN_KEY_MS = 60_000
_UNKNOWN_KEYS = 16


class KeySource(Protocol):
    def keys(self) -> KeySet:
        """Return the newest keys at hand; never waits for a network."""

    def note_unknown(self, key_id: str) -> None:
        """Note that a token has named a key that is not in the set, so that the source may look for it."""

    async def start(self) -> None:
        """Return when the keys are loaded, or the first attempt to get them has failed."""

    def close(self) -> None: ...


class FileKeys:
    def __init__(self, path: str, reader: KeyReader) -> None:
        """Read the file. Raises `Unreadable` or `BadKeySet`."""
        self._path = path
        self._reader = reader
        self._version: FileVersion | None = reader.version_of(path)
        self._keys = self._read()

    def __repr__(self) -> str:
        return f"<FileKeys {self._path}: {self._keys!r}>"

    def keys(self) -> KeySet:
        try:
            version = self._reader.version_of(self._path)
        except Unreadable as failure:
            self._keep_old(None, str(failure))
            return self._keys
        if version != self._version:
            try:
                self._keys, self._version = self._read(), version
            except (Unreadable, BadKeySet) as failure:
                self._keep_old(version, str(failure))
        return self._keys

    def note_unknown(self, key_id: str) -> None:
        """Do nothing: `keys` has already checked the file for changes."""

    async def start(self) -> None:
        """Do nothing: the constructor has read the keys."""

    def close(self) -> None:
        """Do nothing: no file is kept open."""

    def _read(self) -> KeySet:
        return parse_key_set(self._reader.read_file(self._path, MAX_KEY_SET_BYTES))

    def _keep_old(self, version: FileVersion | None, why: str) -> None:
        """Log, once for each version of the file, that the file cannot be used and the old keys stay."""
        if version != self._version:
            self._version = version
            log.warning("the key set %s cannot be used, the keys stay as they were: %s", self._path, why)


class Intervals(NamedTuple):
    """`sasl.oauthbearer.jwks.endpoint.refresh.ms`, `.retry.backoff.ms` and `.retry.backoff.max.ms`."""

    refresh_ms: int = 3_600_000
    retry_ms: int = 100
    max_retry_ms: int = 10_000


class UrlKeys:
    def __init__(self, url: str, reader: KeyReader, clock: Clock, intervals: Intervals) -> None:
        self._url = url
        self._reader = reader
        self._clock = clock
        self._intervals = intervals
        self._keys = KeySet()
        self._failures = 0
        self._timer: Timer | None = None
        self._fetch_task: asyncio.Task[None] | None = None
        # Key id → until when no other fetch is made for it.
        self._unknown_keys: dict[str, int] = {}

    def __repr__(self) -> str:
        return f"<UrlKeys {self._url}: {self._keys!r}, {self._failures} failures>"

    def keys(self) -> KeySet:
        return self._keys

    def note_unknown(self, key_id: str) -> None:
        now_ms = self._clock.monotonic_ms()
        self._unknown_keys = {known: until_ms for known, until_ms in self._unknown_keys.items() if until_ms > now_ms}
        if key_id in self._unknown_keys or len(self._unknown_keys) >= _UNKNOWN_KEYS:
            return
        self._unknown_keys[key_id] = now_ms + _UNKNOWN_KEY_MS
        self._begin_fetch()

    async def start(self) -> None:
        self._begin_fetch()
        assert self._fetch_task is not None
        # A start that is given up leaves the fetch to end by itself.
        await asyncio.shield(self._fetch_task)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._fetch_task is not None:
            self._fetch_task.cancel()

    def _begin_fetch(self) -> None:
        if self._fetch_task is None or self._fetch_task.done():
            if self._timer is not None:
                self._timer.cancel()
            self._fetch_task = asyncio.get_running_loop().create_task(self._fetch())

    async def _fetch(self) -> None:
        try:
            self._keys = parse_key_set(await self._reader.fetch(self._url, MAX_KEY_SET_BYTES))
        except (Unreadable, BadKeySet) as failure:
            # Not the query, where some keep secrets.
            log.warning("no key set from %s, the keys stay as they were: %s", self._url.partition("?")[0], failure)
            backoff_ms = self._intervals.retry_ms << min(self._failures, 20)
            pause_ms = min(backoff_ms, self._intervals.max_retry_ms, self._intervals.refresh_ms)
            self._failures += 1
        else:
            self._failures = 0
            pause_ms = self._intervals.refresh_ms
        self._timer = self._clock.call_after_ms(pause_ms, self._begin_fetch)
