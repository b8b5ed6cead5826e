"""Access to /metrics of a node: logins with the credentials in its metadata, and the authorizer's decision."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pytest

from pessoa.base.clock import SystemClock
from pessoa.base.config_values import ConfigProblem
from pessoa.broker.metrics import page_guard
from pessoa.broker.metrics.page_guard import PageGuard
from pessoa.security.sasl.scram_keys import NUMBERS, StoredCredential, keys_of_password

if TYPE_CHECKING:
    from pessoa.broker.stages.node_context import NodeContext

SECRET = "planted-9K"


class Node:
    """The parts of a node that the guard uses."""

    def __init__(self) -> None:
        self.credentials: dict[tuple[str, int], StoredCredential] = {}
        self.describers = {"User:ana"}
        self.clock = SystemClock()
        self.tls = SimpleNamespace(server=lambda name: object() if name == "SECURE" else None)
        self.publisher = SimpleNamespace(image=SimpleNamespace(scram=SimpleNamespace(credentials=self.credentials)))
        self.authorizer = self

    def decide(self, principal: str, *_: object) -> SimpleNamespace:
        return SimpleNamespace(is_allowed=principal in self.describers)

    def add(self, name: str, password: str = SECRET, mechanism: str = "SCRAM-SHA-512") -> None:
        self.credentials[name, NUMBERS[mechanism]] = keys_of_password(
            mechanism, password, b"salt of " + name.encode(), 4096
        )


def run(test: Callable[[Node, PageGuard], Awaitable[None]]) -> None:
    async def main() -> None:
        node = Node()
        guard = PageGuard(cast("NodeContext", node), "SECURE")
        try:
            await test(node, guard)
        finally:
            guard.close()

    asyncio.run(main())


async def status(guard: PageGuard, *login: str, path: str = "/metrics") -> int:
    header = "Basic " + base64.b64encode(":".join(login).encode()).decode() if login else None
    page = await guard.refusal(path, header, "127.0.0.1")
    return 200 if page is None else page.status


def test_a_user_with_the_right_password_and_describe_on_the_cluster_is_let_in() -> None:
    async def test(node: Node, guard: PageGuard) -> None:
        node.add("ana")
        node.add("rui", mechanism="SCRAM-SHA-256")
        assert await status(guard) == 401
        assert await status(guard, "ana", "wrong") == 401
        assert await status(guard, "nobody", SECRET) == 401
        assert await status(guard, "ana", SECRET) == 200
        assert await status(guard, "rui", SECRET) == 403
        for path in ("/health",):
            assert await status(guard, path=path) == 200
        assert SECRET not in repr(guard) + repr(vars(guard))

    run(test)


def test_a_cached_login_ends_when_the_credential_of_its_user_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []

    def count(mechanism: str, password: str, salt: bytes, iterations: int) -> object:
        made.append(password)
        return keys_of_password(mechanism, password, salt, iterations)

    monkeypatch.setattr(page_guard, "keys_of_password", count)

    async def test(node: Node, guard: PageGuard) -> None:
        node.add("ana")
        assert [await status(guard, "ana", SECRET) for _ in range(3)] == [200] * 3
        assert len(made) == 1
        node.add("ana", "another")
        assert await status(guard, "ana", SECRET) == 401
        node.add("ana")
        assert await status(guard, "ana", SECRET) == 200
        node.credentials.clear()
        assert await status(guard, "ana", SECRET) == 401

    run(test)


def test_a_metrics_request_without_a_valid_basic_login_is_answered_401() -> None:
    async def test(node: Node, guard: PageGuard) -> None:
        node.add("ana")
        for header in ("", "Basic", "Basic !!", "Bearer x", "Basic " + base64.b64encode(b"ana").decode()):
            page = await guard.refusal("/metrics", header, "127.0.0.1")
            assert page is not None
            assert (page.status, "WWW-Authenticate" in page.more_head) == (401, True)

    run(test)


def test_a_listener_without_tls_cannot_guard_the_metrics_page() -> None:
    async def main() -> None:
        with pytest.raises(ConfigProblem, match=r"pessoa\.metrics\.listener=OPEN"):
            PageGuard(cast("NodeContext", Node()), "OPEN")

    asyncio.run(main())
