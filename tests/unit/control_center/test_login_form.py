"""The login form, whose requests need no login."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest
from starlette.types import Message

from pessoa.control_center.center import Center


class Visit:
    """A POST to /login whose body arrives in these pieces."""

    def __init__(self, pieces: list[bytes], *headers: tuple[bytes, bytes]) -> None:
        self.left = list(pieces)
        self.headers = headers
        self.logged_in: list[tuple[str, str]] = []
        self.sent: list[Message] = []

    async def log_in(self, name: str, password: str) -> str:
        self.logged_in.append((name, password))
        return "token"

    async def receive(self) -> Message:
        piece = self.left.pop(0)
        return {"type": "http.request", "body": piece, "more_body": bool(self.left)}

    async def send(self, message: Message) -> None:
        self.sent.append(message)

    def status(self) -> Any:
        pytest.importorskip("nicegui")
        from fastapi import FastAPI

        from pessoa.control_center.pages import login_page

        accounts, audit = SimpleNamespace(log_in=self.log_in), SimpleNamespace(note=lambda *_: None)
        app = FastAPI()
        login_page.register(cast(Center, SimpleNamespace(accounts=accounts, audit=audit, oidc=None)), app)
        scope = {
            "type": "http", "method": "POST", "path": "/login", "raw_path": b"/login", "query_string": b"",
            "root_path": "", "scheme": "http", "http_version": "1.1", "headers": [(b"host", b"x"), *self.headers],
            "server": ("x", 80), "client": None,
        }  # fmt: skip
        asyncio.run(app(scope, self.receive, self.send))
        return self.sent[0]["status"]


def test_a_login_form_that_arrives_in_pieces_is_accepted() -> None:
    visit = Visit([b"name=ada&pass", b"word=secret"])
    assert visit.status() == 303
    assert visit.logged_in == [("ada", "secret")]


@pytest.mark.parametrize("headers", [(), ((b"content-length", b"10000000"),)], ids=["in chunks", "of a length"])
def test_a_login_form_beyond_the_size_limit_is_refused_and_not_read_completely(
    headers: tuple[tuple[bytes, bytes], ...],
) -> None:
    visit = Visit([b"name=ada&password=secret&x=", *[b"y" * 1000] * 10_000], *headers)
    assert visit.status() == 413
    assert len(visit.left) > 9_990
    assert visit.logged_in == []
