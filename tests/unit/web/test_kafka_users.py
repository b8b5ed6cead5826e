"""Logins of HTTP callers that brokers check: caching, limits, and that no password is stored."""

from __future__ import annotations

import asyncio
import base64
import threading
from collections.abc import Awaitable, Callable

import pytest

from pessoa.base.clock import ManualClock
from pessoa.client.blocking_connection import ConnectionFailed
from pessoa.web import kafka_users
from pessoa.web.auth import PasswordCredentials
from pessoa.web.kafka_users import KafkaUsers
from pessoa.web.problems import HttpProblem

REMEMBER_MS = 30_000


def header(name: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{name}:{password}".encode()).decode()


class Brokers:
    """Fake brokers with users and passwords that record login attempts. They block while `gate` is closed."""

    def __init__(self, **users: str) -> None:
        self.users = users
        self.operations: dict[str, int] = {}
        self.tried: list[tuple[str, str]] = []
        self.are_away = False
        self.gate = threading.Event()
        self.gate.set()
        self.under_way = self.most_under_way = 0
        self._lock = threading.Lock()

    def __call__(self, name: str, password: str) -> int | None:
        with self._lock:
            self.tried.append((name, password))
            self.under_way += 1
            self.most_under_way = max(self.most_under_way, self.under_way)
        assert self.gate.wait(60)
        with self._lock:
            self.under_way -= 1
        if self.are_away:
            raise ConnectionFailed("no broker is there")
        return self.operations.get(name, 0) if self.users.get(name) == password else None


def run(test: Callable[[Brokers, KafkaUsers, ManualClock], Awaitable[None]], **users: str) -> None:
    async def main() -> None:
        brokers, clock = Brokers(**users), ManualClock()
        await test(brokers, KafkaUsers(brokers, REMEMBER_MS, "small", clock=clock), clock)

    asyncio.run(main())


async def status(users: KafkaUsers, name: str, password: str) -> int:
    try:
        await users.caller_of(header(name, password))
    except HttpProblem as problem:
        return problem.status
    return 200


def test_a_right_login_is_tried_at_kafka_once_and_again_when_its_cache_entry_has_expired() -> None:
    async def test(brokers: Brokers, users: KafkaUsers, clock: ManualClock) -> None:
        for _ in range(3):
            caller = await users.caller_of(header("ana", "pass:word"))
            assert (caller.name, caller.credentials) == ("ana", PasswordCredentials("ana", "pass:word"))
        assert len(brokers.tried) == 1
        del brokers.users["ana"]
        clock.advance_ms(REMEMBER_MS - 1)
        assert await status(users, "ana", "pass:word") == 200
        clock.advance_ms(1)
        assert await status(users, "ana", "pass:word") == 401
        assert len(brokers.tried) == 2

    run(test, ana="pass:word")


def test_a_repeated_wrong_password_is_tried_at_kafka_once_a_second() -> None:
    async def test(brokers: Brokers, users: KafkaUsers, clock: ManualClock) -> None:
        for _ in range(100):
            assert await status(users, "ana", "wrong") == 401
        assert len(brokers.tried) == 1
        # The right one is another login.
        assert await status(users, "ana", "right") == 200
        clock.advance_ms(kafka_users.WRONG_MS)
        brokers.users["ana"] = "wrong"
        assert await status(users, "ana", "wrong") == 200

    run(test, ana="right")


@pytest.mark.parametrize(
    "given", [None, "", "Basic", "Basic !!", "Bearer abc", header("", "x"), header("ana", ""), header("a\0na", "x"),
              header("ana", "x\ny"), header("ana", "x" * 2000)],
)  # fmt: skip
def test_a_malformed_login_is_refused_and_not_tried_at_kafka(given: str | None) -> None:
    async def test(brokers: Brokers, users: KafkaUsers, clock: ManualClock) -> None:
        with pytest.raises(HttpProblem) as refused:
            await users.caller_of(given)
        assert refused.value.status == 401
        assert refused.value.headers == {"WWW-Authenticate": 'Basic realm="small"'}
        assert not brokers.tried

    run(test, ana="right")


def test_requests_with_the_same_login_share_one_trial_even_if_one_of_them_is_cancelled() -> None:
    async def test(brokers: Brokers, users: KafkaUsers, clock: ManualClock) -> None:
        brokers.gate.clear()
        first = asyncio.create_task(status(users, "ana", "right"))
        others = [asyncio.create_task(status(users, "ana", "right")) for _ in range(20)]
        await asyncio.sleep(0)
        first.cancel()
        brokers.gate.set()
        assert await asyncio.gather(*others) == [200] * 20
        assert len(brokers.tried) == 1

    run(test, ana="right")


def test_a_flood_of_wrong_passwords_is_bounded_and_does_not_lock_out_cached_users() -> None:
    async def test(brokers: Brokers, users: KafkaUsers, clock: ManualClock) -> None:
        assert await status(users, "ana", "right") == 200
        clock.advance_ms(REMEMBER_MS)
        brokers.gate.clear()
        flood = [asyncio.create_task(status(users, f"name-{n}", "x")) for n in range(500)]
        await asyncio.sleep(0)
        # Her login is no longer remembered and has to be tried, past all that stand in line.
        ana = asyncio.create_task(status(users, "ana", "right"))
        refused = [one for one in await _done_of(flood) if one == 429]
        assert len(refused) == 500 - kafka_users.TRIALS - kafka_users.WAITING
        brokers.gate.set()
        assert await ana == 200
        assert set(await asyncio.gather(*flood)) == {401, 429}
        assert brokers.most_under_way <= kafka_users.TRIALS + kafka_users.KNOWN_TRIALS
        # Afterwards there is room for anyone.
        assert await status(users, "ana", "another wrong one") == 401
        assert not users._trials
        assert not users._names

    run(test, ana="right")


def test_guesses_at_one_user_name_leave_room_for_other_users() -> None:
    async def test(brokers: Brokers, users: KafkaUsers, clock: ManualClock) -> None:
        brokers.gate.clear()
        guesses = [asyncio.create_task(status(users, "ana", f"guess {n}")) for n in range(200)]
        await asyncio.sleep(0)
        rui = asyncio.create_task(status(users, "rui", "right"))
        assert (await _done_of(guesses)).count(429) == 200 - kafka_users.NAME_TRIALS
        brokers.gate.set()
        assert await rui == 200
        await asyncio.gather(*guesses)

    run(test, ana="right", rui="right")


def test_without_brokers_a_cached_login_is_accepted_for_a_while_and_others_get_503() -> None:
    async def test(brokers: Brokers, users: KafkaUsers, clock: ManualClock) -> None:
        assert await status(users, "ana", "right") == 200
        brokers.are_away = True
        clock.advance_ms(REMEMBER_MS)
        assert await status(users, "ana", "right") == 200
        assert await status(users, "rui", "right") == 503
        clock.advance_ms(kafka_users.GRACE_MS)
        assert await status(users, "ana", "right") == 503

    run(test, ana="right", rui="right")


def test_a_user_without_the_operation_that_callers_need_is_forbidden_until_it_has_it() -> None:
    async def test(brokers: Brokers, _: KafkaUsers, clock: ManualClock) -> None:
        users = KafkaUsers(brokers, REMEMBER_MS, "small", 7, clock)
        brokers.operations = {"ana": 1 << 8, "rui": 1 << 8 | 1 << 7}
        assert [await status(users, name, "right") for name in ("ana", "rui", "ana")] == [403, 200, 403]
        assert await status(users, "ana", "wrong") == 401
        brokers.operations["ana"] |= 1 << 7
        clock.advance_ms(REMEMBER_MS)
        assert await status(users, "ana", "right") == 200

    run(test, ana="right", rui="right")


def test_the_login_cache_is_bounded_and_holds_no_password(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kafka_users, "MAX_REMEMBERED", 5)

    async def test(brokers: Brokers, users: KafkaUsers, clock: ManualClock) -> None:
        brokers.users |= {f"u{n}": "planted" for n in range(20)}
        for n in range(20):
            assert await status(users, f"u{n}", "planted") == 200
            assert await status(users, f"u{n}", "planted wrong") == 401
        assert (len(users._accepted_logins), len(users._refused_until_ms)) == (5, 5)
        assert "planted" not in repr(users) + repr(vars(users)["_accepted_logins"]) + repr(
            vars(users)["_refused_until_ms"]
        )
        assert "planted" not in repr(await users.caller_of(header("u19", "planted")))

    run(test)


async def _done_of(tasks: list[asyncio.Task[int]]) -> list[int]:
    """Return the results of the tasks that end while the others wait for the brokers."""
    for _ in range(5):
        await asyncio.sleep(0)
    return [task.result() for task in tasks if task.done()]
