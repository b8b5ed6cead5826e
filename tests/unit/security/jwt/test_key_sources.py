"""Refresh of key sets: files that change, URLs that are fetched again, and a limit for fetches caused by strangers."""

from __future__ import annotations

import asyncio
import json
import logging
import os
from collections.abc import Awaitable, Callable, Coroutine
from functools import wraps
from pathlib import Path
from typing import ParamSpec

import pytest

from pessoa.base.clock import ManualClock
from pessoa.security.jwt.json_web_keys import BadKeySet
from pessoa.security.jwt.json_web_tokens import BadToken, TokenRules
from pessoa.security.jwt.key_reader import KeyReader, MemoryReader, SystemReader, Unreadable
from pessoa.security.jwt.key_sources import FileKeys, Intervals, UrlKeys
from pessoa.security.jwt.token_verifier import (
    BadKeyLocation,
    TokenVerifier,
    is_allowed,
    open_verifier,
    parse_location,
)
from tests.support.tokens import IdentityProvider, Issuer, rsa_key

P = ParamSpec("P")
URL = "https://issuer.test/jwks"
FIRST, SECOND = Issuer(), Issuer(key_id="second", key=rsa_key("second"))


def looped(test: Callable[P, Coroutine[None, None, None]]) -> Callable[P, None]:
    """Return a test that runs a coroutine in an event loop of its own."""

    @wraps(test)
    def run(*arguments: P.args, **named: P.kwargs) -> None:
        asyncio.run(test(*arguments, **named))

    return run


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


# The door: the same on disk and in memory.


def disk_place(folder: Path) -> tuple[KeyReader, Callable[[bytes], object], str]:
    path = folder / "jwks.json"

    def write(data: bytes) -> None:
        fresh = folder / "fresh"
        fresh.write_bytes(data)
        fresh.replace(path)

    return SystemReader(), write, str(path)


def memory_place(_: Path) -> tuple[KeyReader, Callable[[bytes], object], str]:
    reader = MemoryReader()
    return reader, lambda data: reader.write("/jwks.json", data), "/jwks.json"


@pytest.mark.parametrize("place", [disk_place, memory_place])
def test_the_key_reader_reads_files_within_bounds_and_detects_changes(
    place: Callable[[Path], tuple[KeyReader, Callable[[bytes], object], str]], tmp_path: Path
) -> None:
    reader, write, path = place(tmp_path)
    with pytest.raises(Unreadable):
        reader.version_of(path)
    with pytest.raises(Unreadable):
        reader.read_file(path, 10)
    write(b"12345")
    before = reader.version_of(path)
    assert reader.read_file(path, 5) == b"12345"
    with pytest.raises(Unreadable, match="more than 4 bytes"):
        reader.read_file(path, 4)
    assert reader.version_of(path) == before
    write(b"54321")
    assert reader.version_of(path) != before


async def of_http(check: Callable[[KeyReader, str, str], Awaitable[None]]) -> None:
    with IdentityProvider(FIRST).serving() as provider:
        await check(SystemReader(), provider.url("/jwks"), provider.url("/nothing"))


async def of_memory(check: Callable[[KeyReader, str, str], Awaitable[None]]) -> None:
    reader = MemoryReader()
    reader.write(URL, FIRST.key_set())
    await check(reader, URL, URL + "/nothing")


@pytest.mark.parametrize("place", [of_http, of_memory])
@looped
async def test_reader_fetches_urls_within_bounds(
    place: Callable[[Callable[[KeyReader, str, str], Awaitable[None]]], Awaitable[None]],
) -> None:
    async def check(reader: KeyReader, url: str, nothing: str) -> None:
        assert await reader.fetch(url, 100_000) == FIRST.key_set()
        with pytest.raises(Unreadable, match="more than 10 bytes"):
            await reader.fetch(url, 10)
        with pytest.raises(Unreadable):
            await reader.fetch(nothing, 100_000)

    await place(check)


@looped
async def test_redirects_are_not_followed_and_dead_hosts_are_unreadable() -> None:
    with IdentityProvider(FIRST).serving() as provider:
        with pytest.raises(Unreadable, match="status 302"):
            await SystemReader().fetch(provider.url("/redirect"), 100_000)
        assert provider.asked == ["/redirect"]
        gone = provider.url("/jwks")
    with pytest.raises(Unreadable):
        await SystemReader().fetch(gone, 100_000)


@looped
async def test_server_that_speaks_no_http_is_unreadable() -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readline()
        writer.write(b"hello\r\n" * 10)
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server:
        with pytest.raises(Unreadable):
            await SystemReader().fetch(f"http://127.0.0.1:{port}/jwks", 100_000)


# A file.


def test_file_is_read_again_when_it_has_changed(tmp_path: Path) -> None:
    path = FIRST.write(tmp_path / "jwks.json")
    keys = FileKeys(str(path), SystemReader())
    assert keys.keys().has_id("first")
    assert keys.keys() is keys.keys()
    SECOND.write(path)
    os.utime(path, (1, 1))
    assert keys.keys().has_id("second")
    assert not keys.keys().has_id("first")


def test_a_key_file_that_becomes_invalid_or_vanishes_leaves_the_loaded_keys(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = FIRST.write(tmp_path / "jwks.json")
    keys = FileKeys(str(path), SystemReader())
    with caplog.at_level(logging.WARNING):
        path.write_text("half a fi")
        assert all(keys.keys().has_id("first") for _ in range(3))
        path.unlink()
        assert all(keys.keys().has_id("first") for _ in range(3))
    assert len(caplog.records) == 2
    SECOND.write(path)
    assert keys.keys().has_id("second")


def test_file_without_keys_is_an_error_at_the_start(tmp_path: Path) -> None:
    with pytest.raises(Unreadable):
        FileKeys(str(tmp_path / "none"), SystemReader())
    (tmp_path / "empty").write_text('{"keys": []}')
    with pytest.raises(BadKeySet):
        FileKeys(str(tmp_path / "empty"), SystemReader())


# A URL.


@looped
async def test_url_is_fetched_at_the_start_and_then_at_each_interval() -> None:
    reader, clock = MemoryReader(), ManualClock()
    reader.write(URL, FIRST.key_set())
    keys = UrlKeys(URL, reader, clock, Intervals(refresh_ms=1000))
    await keys.start()
    assert keys.keys().has_id("first")
    reader.write(URL, SECOND.key_set())
    clock.advance_ms(999)
    await settle()
    assert reader.fetched == [URL]
    clock.advance_ms(1)
    await settle()
    # A key that the issuer has taken back verifies nothing from then on.
    assert keys.keys().has_id("second")
    assert not keys.keys().has_id("first")
    keys.close()
    clock.advance_ms(100_000)
    await settle()
    assert reader.fetched == [URL, URL]


@looped
async def test_fetch_that_fails_is_repeated_with_growing_pauses_and_keeps_the_keys() -> None:
    reader, clock = MemoryReader(), ManualClock()
    keys = UrlKeys(URL, reader, clock, Intervals(refresh_ms=60_000, retry_ms=100, max_retry_ms=400))
    await keys.start()
    assert len(keys.keys()) == 0
    for pause_ms, count in ((99, 1), (1, 2), (199, 2), (1, 3), (399, 3), (1, 4), (399, 4), (1, 5)):
        clock.advance_ms(pause_ms)
        await settle()
        assert len(reader.fetched) == count
    reader.write(URL, FIRST.key_set())
    clock.advance_ms(400)
    await settle()
    assert keys.keys().has_id("first")
    for broken in (b"<html>", b'{"keys": []}'):
        reader.write(URL, broken)
        clock.advance_ms(60_000)
        await settle()
        assert keys.keys().has_id("first")
    keys.close()


# Attack 18: a flood of key ids.


@looped
async def test_an_unknown_key_id_causes_one_fetch_in_a_minute_and_a_flood_of_ids_at_most_sixteen() -> None:
    reader, clock = MemoryReader(), ManualClock()
    reader.write(URL, FIRST.key_set())
    keys = UrlKeys(URL, reader, clock, Intervals())
    verifier = TokenVerifier(keys, TokenRules())
    await verifier.start()
    stranger = Issuer(key=rsa_key("stranger"))

    async def send(key_id: str) -> None:
        with pytest.raises(BadToken):
            verifier.verify(stranger.token({"kid": key_id}), clock.now_ms())
        await settle()

    for _ in range(3):
        await send("new")
    assert len(reader.fetched) == 2
    clock.advance_ms(60_000)
    await send("new")
    assert len(reader.fetched) == 3
    clock.advance_ms(60_000)
    for number in range(200):
        await send(f"flood-{number}")
    assert len(reader.fetched) == 3 + 16
    verifier.close()


@looped
async def test_a_key_that_the_issuer_has_added_is_found_by_the_second_token() -> None:
    reader, clock = MemoryReader(), ManualClock(1)
    reader.write(URL, FIRST.key_set())
    verifier = open_verifier(parse_location(URL), TokenRules(), reader, clock, Intervals())
    await verifier.start()
    both = json.dumps({"keys": [FIRST.jwk(), SECOND.jwk()]}).encode()
    reader.write(URL, both)
    token = SECOND.token()
    with pytest.raises(BadToken):
        verifier.verify(token, 1)
    await settle()
    assert verifier.verify(token, 1).subject == "ana"
    assert verifier.verify(FIRST.token(), 1).subject == "ana"
    verifier.close()


# Where keys may be.


@pytest.mark.parametrize(
    "text",
    ["", "jwks.json", "/etc/jwks.json", "ftp://host/x", "file:relative", "file://host/x", "https://", "http://a:b/",
     "https://user:secret@host/", "https://host/a b", "https://host/\r\nHost: x", "jndi:ldap://x"],
)  # fmt: skip
def test_a_key_location_that_is_no_http_or_file_url_is_refused(text: str) -> None:
    with pytest.raises(BadKeyLocation):
        parse_location(text)


def test_a_key_location_must_be_in_the_allowed_list() -> None:
    url, file = parse_location("https://host/jwks"), parse_location("file:///etc/kafka/jwks.json")
    assert is_allowed(url, ["https://host/jwks"], [])
    for other in (
        "https://host/jwks/",
        "https://host/",
        "https://HOST/jwks",
        "http://host/jwks",
        "https://host/jwks?x",
    ):
        assert not is_allowed(url, [other], [])
    assert not is_allowed(url, [], ["https://host/jwks"])
    for listed in ("/etc/kafka/jwks.json", "file:/etc/kafka/jwks.json", "file:///etc/kafka/jwks.json"):
        assert is_allowed(file, [], [listed])
    # Apache's guide lists file: URLs among the URLs.
    assert is_allowed(file, ["file:///etc/kafka/jwks.json"], [])
    for other in ("/etc/kafka", "/etc/kafka/../kafka/jwks.json", "/etc/kafka/jwks.json.old"):
        assert not is_allowed(file, [], [other])
    assert not is_allowed(parse_location("file:///etc/kafka/../shadow"), [], ["/etc/kafka", "/etc/shadow"])


def test_file_that_is_no_key_set_is_named_in_the_error(tmp_path: Path) -> None:
    with pytest.raises(BadKeyLocation, match="no key set can be read from"):
        open_verifier(parse_location(f"file:{tmp_path}/x"), TokenRules(), SystemReader(), ManualClock(), Intervals())
