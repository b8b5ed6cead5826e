"""A service as a process: the effect of signals."""

from __future__ import annotations

import asyncio
import os
import signal

from pessoa.web.asgi_app import App, make_app
from pessoa.web.serving import serve_until_signalled

DEADLINE_S = 60.0


def test_a_service_that_gets_sigterm_while_it_starts_ends_even_if_its_app_factory_swallows_the_cancellation() -> None:
    in_vain = []

    def tell_again() -> None:
        in_vain.append(True)
        os.kill(os.getpid(), signal.SIGTERM)

    async def make() -> App:
        loop = asyncio.get_running_loop()
        loop.call_later(DEADLINE_S, tell_again)
        os.kill(os.getpid(), signal.SIGTERM)
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return make_app("small", [], consumes=(), produces=())
        raise AssertionError("that event is never set")

    assert serve_until_signalled(make, "127.0.0.1", 0, tell=lambda sentence: None) == 0
    assert in_vain == []
