"""The service: guard, API and pages in one ASGI application, and the process around it.

    RequestGuard → /api, /health, /metrics → web/asgi_app.py
                 → everything else         → NiceGUI on FastAPI, with its WebSocket

NiceGUI keeps its pages in its module, so a process has one control centre.
"""

from __future__ import annotations

import asyncio
import signal
import socket
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from types import ModuleType
from typing import cast

import uvicorn
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from pessoa.control_center.api.endpoints import CALLER, caller_of, endpoints
from pessoa.control_center.api.tool_endpoint import tool_endpoint
from pessoa.control_center.center import Center
from pessoa.control_center.center_config import Config
from pessoa.control_center.proxy_login import ProxyLogin
from pessoa.control_center.request_guard import RequestGuard
from pessoa.net.freed_memory import bound_arenas
from pessoa.web.answers import Answer
from pessoa.web.asgi_app import JSON, App, error_body, make_app
from pessoa.web.problems import HttpProblem
from pessoa.web.routing import Endpoint
from pessoa.web.serving import UvicornServer, bind, loop_factory, tls_arguments

_OF_THE_API = ("/api/", "/health", "/metrics")
# What the pages use of `nicegui.ui`.
PAGE_ELEMENTS = (
    "add_body_html", "add_head_html", "button", "checkbox", "codemirror", "context", "dark_mode", "dialog", "download",
    "element", "expansion", "html", "input", "navigate", "notify", "number", "on", "page", "query", "run_javascript",
    "select", "switch", "textarea", "timer", "toggle", "tooltip", "upload",
)  # fmt: skip
_GRACE_S = 3


def api_app(center: Center) -> App:
    found: list[App] = []

    async def openapi(_: object) -> Answer:
        import msgspec

        return Answer(msgspec.json.encode(found[0].openapi()), content_type=JSON)

    async def docs(_: object) -> Answer:
        from pessoa.web.openapi import page

        return Answer(page(found[0].openapi()).encode(), content_type="text/html; charset=utf-8")

    async def trouble() -> str | None:
        return None

    api = endpoints(center)
    rows = [
        *api,
        tool_endpoint(api),
        Endpoint("GET", "/api/openapi.json", openapi, is_listed=False, produces=()),
        Endpoint("GET", "/api/docs", docs, is_listed=False, produces=()),
    ]
    found.append(make_app("control-center", rows, health=trouble))
    return found[0]


def pages_app(center: Center) -> ASGIApp:
    """Return the app of the pages. NiceGUI is slow to import, so it is imported here."""
    # python-socketio would import kafka-python for a manager that is not used here: 20 MB, where it is installed.
    sys.modules.setdefault("kafka", cast(ModuleType, None))
    from fastapi import FastAPI
    from fastapi.middleware.gzip import GZipMiddleware
    from nicegui import ui

    from pessoa.control_center.pages.page_table import register_pages

    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)
    register_pages(center, app)
    # NiceGUI imports an element when it is first used, which the first visitor would wait for.
    for name in PAGE_ELEMENTS:
        getattr(ui, name)
    ui.run_with(
        app, title="Pessoa", favicon="🖋️", tailwind=False, show_welcome_message=False, binding_refresh_interval=None,
        reconnect_timeout=30.0, dark=None, message_history_length=200,
        # The libraries of a first visit are compressed while it waits.
        gzip_middleware_factory=lambda inner: GZipMiddleware(inner, compresslevel=1),
    )  # fmt: skip
    return app


class CenterApp:
    def __init__(self, center: Center) -> None:
        self.center = center
        self._api = api_app(center)
        self._pages = pages_app(center)
        config = center.config
        self._proxy = (
            ProxyLogin(center.accounts, config.proxy_user_header, config.proxy_addresses)
            if config.proxy_user_header
            else None
        )
        self._guarded = RequestGuard(self._dispatch, center.config.allowed_hosts)

    def __repr__(self) -> str:
        return f"<CenterApp of {self.center!r}>"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            # FastAPI's lifespan starts NiceGUI; ours surrounds the whole process.
            await self._pages(scope, receive, send)
            return
        await self._guarded(scope, receive, send)

    async def _dispatch(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._proxy is not None and scope["type"] in ("http", "websocket"):
            scope = self._proxy.with_session(scope)
        is_api = scope["type"] == "http" and scope["path"].startswith(_OF_THE_API)
        # A slash at the end changes nothing for routes either.
        if is_api and scope["path"].strip("/") != "health":
            request = Request(scope)
            try:
                # Endpoints find the caller there, and need not try the login a second time.
                scope = {**scope, CALLER: await caller_of(self.center, request)}
            except HttpProblem as problem:
                body, kind = error_body(problem, JSON)
                await Response(body, problem.status, problem.headers, kind)(scope, receive, send)
                return
        await (self._api if is_api else self._pages)(scope, receive, send)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        if self.center.authenticator is not None:
            await self.center.authenticator.start()
        try:
            async with self.center.running():
                yield
        finally:
            if self.center.authenticator is not None:
                self.center.authenticator.close()


def serve(config: Config, tell: Callable[[str], object]) -> int:
    """Run as a process until SIGTERM or SIGINT; return the exit status."""
    # Each reading of messages has threads of its own.
    bound_arenas(2)
    listener = config.http.listener
    try:
        listening = bind(listener.host, listener.port)
    except OSError as failure:
        tell(str(failure.strerror))
        return 1
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        runner.run(_serve(config, listening, tell))
    return 0


async def _serve(config: Config, listening: socket.socket, tell: Callable[[str], object]) -> None:
    app = CenterApp(Center(config))
    tls = config.http.tls
    server = UvicornServer(
        uvicorn.Config(
            app, log_config=None, access_log=False, lifespan="on", server_header=False, proxy_headers=False,
            ws="websockets-sansio", ws_max_size=16 << 20, timeout_graceful_shutdown=_GRACE_S, timeout_keep_alive=30,
            **tls_arguments(tls),
        )
    )  # fmt: skip
    loop = asyncio.get_running_loop()
    for each in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(each, lambda: setattr(server, "should_exit", True))
    scheme, port = "https" if tls else "http", listening.getsockname()[1]
    async with app.running():
        server_task = asyncio.create_task(server.serve(sockets=[listening]))
        while not server.started and not server_task.done():
            await asyncio.wait([server_task], timeout=0.01)
        if server.started:
            tell(f"control-center is listening on {scheme}://{config.http.listener.host}:{port}")
        await server_task
