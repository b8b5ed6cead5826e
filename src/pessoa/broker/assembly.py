"""Puts a broker together and runs it until it is told to stop: `pessoa broker`."""

from __future__ import annotations

import argparse
import asyncio
import logging
import signal
from collections.abc import Callable

from pessoa.broker.dispatch import Dispatcher
from pessoa.net.listener import Listener

log = logging.getLogger("pessoa.broker")

DEFAULT_PORT = 9092


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="pessoa broker",
        description="Run one broker in the foreground.",
        epilog="Example: pessoa broker --port 9092",
    )
    parser.add_argument("--host", default="127.0.0.1", help="the address to listen on (default: %(default)s)")
    parser.add_argument("--port", type=int, default=DEFAULT_PORT, help="the port; 0 takes any (default: %(default)s)")
    options = parser.parse_args(argv)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    try:
        _run(options.host, options.port)
    except OSError as error:
        log.error("cannot listen on %s:%s: %s", options.host, options.port, error.strerror)  # noqa: TRY400
        return 1
    return 0


def _run(host: str, port: int) -> None:
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        runner.run(run_until_stopped(host, port))


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop]:
    """uvloop is two to four times as fast, and is not there on every platform."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop
    return uvloop.new_event_loop


async def run_until_stopped(host: str, port: int) -> None:
    """Serve until SIGTERM or SIGINT; then close the connections and return."""
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped.set)
    async with Listener(host, port, Dispatcher(None).serve) as listener:
        log.info("listening on %s", listener.address)
        await stopped.wait()
        log.info("stopping")
