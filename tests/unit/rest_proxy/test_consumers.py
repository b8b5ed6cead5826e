"""The table of consumer instances, with a librdkafka whose close() returns late or never."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from pessoa.base.clock import ManualClock
from pessoa.rest_proxy import consumer_instances
from pessoa.rest_proxy.caller_clients import Identity
from pessoa.rest_proxy.consumer_instances import Consumers, Key, Wanted
from pessoa.rest_proxy.instance import Instance
from pessoa.rest_proxy.media import Format
from pessoa.rest_proxy.proxy_config import Config
from pessoa.web.problems import HttpProblem

# Long enough for a busy machine, and far less than for ever.
PATIENCE_S = 20.0
# The proxy itself: it acts as no caller here.
OWN_LOGIN = Identity("", {}, {}, {}, {})


class StuckInstance(Instance):
    """An instance whose close() returns when the test lets it."""

    def __init__(self, wanted: Wanted, may_close: threading.Event) -> None:
        self.group, self.name, self.format = wanted.group, wanted.name, Format.BINARY
        self._may_close = may_close

    def __repr__(self) -> str:
        return f"<StuckInstance {self.group}/{self.name}>"

    def close(self) -> None:
        self._may_close.wait()


@pytest.fixture
def may_close(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    event = threading.Event()
    monkeypatch.setattr(consumer_instances, "CLOSE_TIMEOUT_S", 0.05)
    monkeypatch.setattr(consumer_instances, "make_instance", lambda wanted, *_: StuckInstance(wanted, event))
    return event


@asynccontextmanager
async def table(may_close: threading.Event, clock: ManualClock | None = None) -> AsyncIterator[Consumers]:
    found = Consumers(Config(consumer_threads=1), clock or ManualClock())
    try:
        yield found
    finally:
        may_close.set()
        async with asyncio.timeout(PATIENCE_S):
            await found.close()


def test_a_cancelled_call_keeps_its_turn_until_its_thread_has_left_the_consumer(may_close: threading.Event) -> None:
    """A close() beside a call that is still in librdkafka is two threads in one consumer."""
    entered, may_leave = threading.Event(), threading.Event()

    def work(_: Instance) -> None:
        entered.set()
        assert may_leave.wait(PATIENCE_S)

    async def main() -> None:
        async with table(may_close) as consumers:
            await consumers.create(Wanted("g", "n"), OWN_LOGIN)
            key = Key("", "g", "n")
            call = asyncio.create_task(consumers.call(key, work))
            await asyncio.to_thread(entered.wait, PATIENCE_S)
            call.cancel()
            closing = asyncio.create_task(consumers.delete(key))
            for _ in range(10):
                await asyncio.sleep(0)
            assert not call.done()
            assert closing_threads() == 0
            may_leave.set()
            with pytest.raises(asyncio.CancelledError):
                await call
            await closing

    asyncio.run(main())


def closing_threads() -> int:
    return sum(1 for thread in threading.enumerate() if thread.name == "pessoa-rest-close")


async def is_created(found: Consumers, name: str) -> bool:
    try:
        await found.create(Wanted("g", name), OWN_LOGIN)
    except HttpProblem:
        return False
    return True


def test_a_delete_is_answered_even_if_librdkafka_never_returns_from_close(may_close: threading.Event) -> None:
    async def scenario() -> None:
        async with table(may_close) as found, asyncio.timeout(PATIENCE_S):
            await found.create(Wanted("g", "one"), OWN_LOGIN)
            await found.delete(Key("", "g", "one"))
            assert len(found) == 0
            with pytest.raises(HttpProblem, match="not found"):
                found.find(Key("", "g", "one"))
            # The name is free again, and the only worker thread is not taken.
            await found.create(Wanted("g", "one"), OWN_LOGIN)
            assert await found.call(Key("", "g", "one"), lambda instance: instance.name) == "one"

    asyncio.run(scenario())


def test_instances_that_are_still_closing_count_for_the_limit(
    may_close: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consumer_instances, "MAX_INSTANCES", 2)

    async def scenario() -> None:
        async with table(may_close) as found, asyncio.timeout(PATIENCE_S):
            for name in ("one", "two"):
                await found.create(Wanted("g", name), OWN_LOGIN)
                await found.delete(Key("", "g", name))
            with pytest.raises(HttpProblem, match="2 consumer instances") as refused:
                await found.create(Wanted("g", "three"), OWN_LOGIN)
            assert refused.value.status == 429
            assert closing_threads() == 2
            may_close.set()
            while not await is_created(found, "three"):  # noqa: ASYNC110 - the table has no event for it
                await asyncio.sleep(0)

    asyncio.run(scenario())


def test_a_proxy_stops_even_if_librdkafka_never_returns_from_close(may_close: threading.Event) -> None:
    async def scenario() -> None:
        found = Consumers(Config(), ManualClock())
        for name in ("one", "two"):
            await found.create(Wanted("g", name), OWN_LOGIN)
        async with asyncio.timeout(PATIENCE_S):
            await found.close()
        assert len(found) == 0

    asyncio.run(scenario())
    assert closing_threads() == 2
    # They return from close() when the loop that waited for them is closed.
    threads = [thread for thread in threading.enumerate() if thread.name == "pessoa-rest-close"]
    may_close.set()
    for thread in threads:
        thread.join(PATIENCE_S)
        assert not thread.is_alive()


def test_an_idle_instance_that_does_not_close_does_not_prevent_others_from_expiring(may_close: threading.Event) -> None:
    async def scenario() -> None:
        clock = ManualClock()
        async with table(may_close, clock) as found, asyncio.timeout(PATIENCE_S):
            for name in ("one", "two"):
                await found.create(Wanted("g", name), OWN_LOGIN)
            expiry = asyncio.create_task(found.expire_forever())
            while len(found):
                clock.advance_ms(400_000)
                await asyncio.sleep(0)
            expiry.cancel()

    asyncio.run(scenario())


def test_a_consumer_instance_is_visible_to_its_owner_only_and_others_may_use_the_same_name(
    may_close: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consumer_instances, "MAX_INSTANCES_OF_ONE", 2)

    may_close.set()

    async def test() -> None:
        found = Consumers(Config(), ManualClock())
        ana, rui = (Identity(f"User:{name}", {}, {}, {}, {}) for name in ("ana", "rui"))
        await found.create(Wanted("g", "one"), ana)
        with pytest.raises(HttpProblem) as missing:
            found.find(Key(rui.owner, "g", "one"))
        assert (missing.value.status, missing.value.code) == (404, 40403)
        await found.create(Wanted("g", "one"), rui)
        with pytest.raises(HttpProblem) as there:
            await found.create(Wanted("g", "one"), ana)
        assert there.value.status == 409
        assert found.find(Key(ana.owner, "g", "one")) is not found.find(Key(rui.owner, "g", "one"))
        await found.create(Wanted("g", "two"), ana)
        with pytest.raises(HttpProblem) as full:
            await found.create(Wanted("g", "three"), ana)
        assert full.value.status == 429
        await found.create(Wanted("g", "two"), rui)
        await found.close()

    asyncio.run(test())
