"""An event loop whose time stands still while anything is ready, and then jumps to the next timer.

A test that waits for seconds takes no real time, and a busy machine changes nothing: timers fire in their order. Worker
threads are simulated too: their calls run on the loop, a millisecond later.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from pessoa.base.clock import Timer

_WORK_S = 0.001


class _Selector(selectors.SelectSelector):
    """A selector that advances the time instead of waiting."""

    def __init__(self) -> None:
        super().__init__()
        self.now_s = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise RuntimeError("every task waits, and no timer is set")
        self.now_s += max(0.0, timeout)
        return super().select(0)


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._virtual = _Selector()
        super().__init__(self._virtual)

    def time(self) -> float:
        return self._virtual.now_s

    def run_in_executor(  # type: ignore[override]
        self, _executor: object, work: Callable[..., Any], *arguments: Any
    ) -> asyncio.Future[Any]:
        done = self.create_future()

        def do() -> None:
            try:
                result = work(*arguments)
            except BaseException as error:  # noqa: BLE001  # it belongs to the waiter
                if not done.done():
                    done.set_exception(error)
            else:
                if not done.done():
                    done.set_result(result)

        self.call_later(_WORK_S, do)
        return done


class VirtualClock:
    """The time of the running loop."""

    def now_ms(self) -> int:
        return 1_700_000_000_000 + self.monotonic_ms()

    def monotonic_ms(self) -> int:
        # With a margin for rounding: when a timer fires, this must not be less than its deadline.
        return int(asyncio.get_running_loop().time() * 1000 + 1e-6)

    def call_after_ms(self, duration_ms: int, call: Callable[[], object]) -> Timer:
        return asyncio.get_running_loop().call_later(duration_ms / 1000, call)

    async def wait_ms(self, duration_ms: int) -> None:
        await asyncio.sleep(duration_ms / 1000)


def run(body: Callable[[], Awaitable[None]]) -> None:
    async def main() -> None:
        await body()

    _run(main())


def _run(main: Coroutine[Any, Any, None]) -> None:
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        runner.run(main)
