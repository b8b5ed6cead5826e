"""Sockets, TLS and signals around an app: uvicorn, started and stopped by us.

Three ways to run one:

    async with Server(app, port=0) as server:      in a loop that the caller owns
    with ThreadedServer(make) as server:           in a thread with a loop of its own, for tests and notebooks
    serve_until_signalled(make, …)                 as a process: until SIGTERM or SIGINT

The socket is bound before anything else happens, so port 0 gives a port that is known at once, and two services that
want the same port fail with a sentence and not with a traceback. On the way out requests in progress are given
`GRACE_S` to end.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
import ssl
import threading
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self, TypedDict, cast

import uvicorn

from pessoa.web.asgi_app import App
from pessoa.web.http import Limits, Watch

GRACE_S = 5
START_TIMEOUT_S = 60.0
# As many as Kafka's own listeners let wait.
BACKLOG = 1024

MakeApp = Callable[[], Awaitable[App]]


@dataclass(frozen=True, slots=True)
class Tls:
    certificate: str
    key: str
    password: str | None = None
    # With an authority, callers must show a certificate that it signed.
    client_authority: str | None = None


class TlsArguments(TypedDict):
    ssl_certfile: str | None
    ssl_keyfile: str | None
    ssl_keyfile_password: str | None
    ssl_ca_certs: str | None
    ssl_cert_reqs: int


def tls_arguments(tls: Tls | None) -> TlsArguments:
    """Return the arguments of `uvicorn.Config` that are about TLS, for every server of this repository."""
    return {
        "ssl_certfile": tls.certificate if tls else None,
        "ssl_keyfile": tls.key if tls else None,
        "ssl_keyfile_password": tls.password if tls else None,
        "ssl_ca_certs": tls.client_authority if tls else None,
        "ssl_cert_reqs": ssl.CERT_REQUIRED if tls and tls.client_authority else ssl.CERT_NONE,
    }


class UvicornServer(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals alone: the code that owns the process decides what they mean."""
        yield


class Server:
    def __init__(
        self,
        app: App,
        host: str = "127.0.0.1",
        port: int = 0,
        *,
        tls: Tls | None = None,
        listening: socket.socket | None = None,
        limits: Limits | None = None,
    ) -> None:
        """Bind the socket, or take `listening`, for callers that must know their port before there is an app: see
        `bind`."""
        self._socket = listening or bind(host, port)
        self.host = host
        self.port: int = self._socket.getsockname()[1]
        self.scheme = "https" if tls else "http"
        # We enter and leave the lifespan: uvicorn would end the process when a start fails, without the reason.
        self._lifespan = app.lifespan()
        config = uvicorn.Config(
            app,
            # uvicorn takes any callable that makes protocols, though it says classes.
            http=cast(Any, Watch(limits or Limits(), takes_http2=app.takes_http2).protocol),
            log_config=None,
            access_log=False,
            lifespan="off",
            server_header=False,
            date_header=False,
            proxy_headers=False,
            timeout_graceful_shutdown=GRACE_S,
            ws="none",
            **tls_arguments(tls),
        )
        config.load()
        if config.ssl is not None and app.takes_http2:
            config.ssl.set_alpn_protocols(["h2", "http/1.1"])
        self._uvicorn = UvicornServer(config)
        self._task: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        return f"<Server {self.url} {'serving' if self._uvicorn.started else 'stopped'}>"

    @property
    def url(self) -> str:
        return f"{self.scheme}://{self.host}:{self.port}"

    async def __aenter__(self) -> Self:
        try:
            await self._lifespan.__aenter__()
        except BaseException:
            self._socket.close()
            raise
        self._task = asyncio.create_task(self._uvicorn.serve(sockets=[self._socket]))
        while not self._uvicorn.started:
            # uvicorn has no event for this; its start-up is a handful of loop turns.
            await asyncio.wait([self._task], timeout=0.005)
            if self._task.done():
                await self.__aexit__(None, None, None)
                raise RuntimeError(f"{self.url} could not start; the log says why")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._task is not None
        self._uvicorn.should_exit = True
        try:
            await self._task
        finally:
            self._socket.close()
            await self._lifespan.__aexit__(kind, error, trace)


def bind(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((host, port))
    except OSError as failure:
        listening.close()
        raise OSError(failure.errno, f"cannot listen on {host}:{port}: {failure.strerror}") from None
    listening.listen(BACKLOG)
    listening.setblocking(False)
    return listening


class ThreadedServer:
    """A server with a thread and a loop of its own. `make` is called, and everything of the app lives, in that loop."""

    def __init__(
        self,
        make: MakeApp,
        host: str = "127.0.0.1",
        port: int = 0,
        *,
        tls: Tls | None = None,
        listening: socket.socket | None = None,
        limits: Limits | None = None,
    ) -> None:
        self._make = make
        self._listening = listening
        self._limits = limits
        self._host = host
        self._port = port
        self._tls = tls
        self._ready: Future[tuple[Server, asyncio.AbstractEventLoop, asyncio.Event]] = Future()
        self._thread = threading.Thread(target=self._run, name="pessoa-web", daemon=True)
        self._failure: BaseException | None = None

    def __enter__(self) -> Self:
        self._thread.start()
        self._server, self._loop, self._stop = self._ready.result(START_TIMEOUT_S)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(START_TIMEOUT_S)
        assert not self._thread.is_alive(), "the server's thread did not end"
        if self._failure is not None:
            raise self._failure

    @property
    def url(self) -> str:
        return self._server.url

    @property
    def port(self) -> int:
        return self._server.port

    def _run(self) -> None:
        try:
            with asyncio.Runner(loop_factory=loop_factory()) as runner:
                runner.run(self._serve())
        except BaseException as failure:  # noqa: BLE001 - handed to the thread that waits
            if self._ready.done():
                self._failure = failure
            else:
                self._ready.set_exception(failure)

    async def _serve(self) -> None:
        stop = asyncio.Event()
        app = await self._make()
        async with Server(
            app, self._host, self._port, tls=self._tls, listening=self._listening, limits=self._limits
        ) as server:
            self._ready.set_result((server, asyncio.get_running_loop(), stop))
            await stop.wait()


def serve_until_signalled(
    make: MakeApp,
    host: str,
    port: int,
    *,
    tls: Tls | None = None,
    listening: socket.socket | None = None,
    tell: Callable[[str], object] = print,
) -> int:
    """Run as a process until SIGTERM or SIGINT; return the exit status."""

    async def serve() -> None:
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        starting = asyncio.current_task()
        assert starting is not None

        def on_signal() -> None:
            stop.set()
            if not is_serving:
                # A service that waits for Kafka to come up has nothing to end in order yet.
                starting.cancel()

        is_serving = False
        for each in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(each, on_signal)
        app = await make()
        async with Server(app, host, port, tls=tls, listening=listening) as server:
            is_serving = True
            tell(f"{app.name} is listening on {server.url}")
            await stop.wait()

    try:
        with asyncio.Runner(loop_factory=loop_factory()) as runner:
            runner.run(serve())
    except (OSError, RuntimeError) as failure:
        tell(str(failure))
        return 1
    except asyncio.CancelledError:
        return 0
    return 0


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop]:
    """Return uvloop's loop factory if it is installed, else asyncio's."""
    try:
        import uvloop
    except ModuleNotFoundError:
        return asyncio.new_event_loop
    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory
