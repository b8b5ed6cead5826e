"""One request, from its head to its answer: the ASGI application that every service is.

    which row (routing.py) → who asks (auth.py) → which media types (negotiation.py) → the row's handler → Response

The application is a plain ASGI callable around Starlette's Request and Response, without Starlette's router (it
decodes paths before it cuts them, see routing.py) and without its middleware stack, each layer of which costs a
request more than a registry look-up does. Under our own protocol (http.py) a whole answer goes out in one call.
Every exception of a handler ends here: an `HttpProblem` as the error body that Kafka's services send, a caller who has
gone as nothing, and anything else as a logged mistake and 500.

Beside its own rows every app answers `/metrics`, `/health`, `/openapi.json` and `/docs`.

What a handler finds: `request.path_params`, `media_type(request)` for the type to answer in, and `caller(request)`.
"""

from __future__ import annotations

import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import msgspec
from starlette.datastructures import QueryParams
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from pessoa.web.answers import EXCHANGE_KEY, Answer
from pessoa.web.auth import Authenticator, HttpCaller
from pessoa.web.bodies import LIMIT_KEY, BodyLimit
from pessoa.web.metrics import RequestMetrics
from pessoa.web.negotiation import choose_media_type, consumes, essence
from pessoa.web.openapi import Document, document, page
from pessoa.web.problems import HttpProblem, plain_problem
from pessoa.web.routing import Endpoint, RouteTree

logger = logging.getLogger(__name__)

_encode = msgspec.json.Encoder().encode

JSON = "application/json"
MEDIA_TYPE_KEY = "pessoa.media_type"
CONTENT_TYPE_KEY = "pessoa.content_type"
CALLER_KEY = "pessoa.caller"
DEFAULT_BODY_LIMIT = 10 * 1024 * 1024
# As long as Jetty waits, which the JVM services run on.
BODY_TIMEOUT_S = 30.0

ErrorBody = Callable[[HttpProblem, str], tuple[bytes, str]]
Lifespan = Callable[[], AbstractAsyncContextManager[None]]
Health = Callable[[], Awaitable[str | None]]
# What is wrong, or None → the body of /health.
HealthBody = Callable[[str | None], object]


def error_body(problem: HttpProblem, media_type: str) -> tuple[bytes, str]:
    """Return the error body of Kafka's HTTP services, in the media type that the caller asked for."""
    return msgspec.json.encode({"error_code": problem.code, "message": problem.message}), media_type


class _Request(Request):
    """A Starlette Request that does not parse an empty query."""

    @property
    def query_params(self) -> QueryParams:
        return super().query_params if self.scope["query_string"] else _NO_QUERY


_NO_QUERY = QueryParams()


@asynccontextmanager
async def _no_lifespan() -> AsyncIterator[None]:
    yield


async def _always_well() -> str | None:
    return None


def _health_body(trouble: str | None) -> object:
    return {"status": "ok"} if trouble is None else {"status": "unavailable", "reason": trouble}


class App:
    """An ASGI application made of a table of endpoints; see `make_app`."""

    def __init__(
        self,
        name: str,
        endpoints: tuple[Endpoint, ...],
        *,
        consumes: tuple[str, ...],
        produces: tuple[str, ...],
        error_body: ErrorBody,
        auth: Authenticator | None,
        body_limit: BodyLimit,
        lifespan: Lifespan,
        health: Health,
        health_body: HealthBody,
        takes_http2: bool,
    ) -> None:
        self.name = name
        self.takes_http2 = takes_http2
        self.endpoints = endpoints
        self.metrics = RequestMetrics(name)
        self._tree = RouteTree([*endpoints, *self._own_endpoints()])
        self._consumes = consumes
        self._produces = produces
        self._error_body = error_body
        self._auth = auth
        self._body_limit = body_limit
        self._lifespan = lifespan
        self._health = health
        self._health_body = health_body

    def __repr__(self) -> str:
        return f"<App {self.name}, {len(self.endpoints)} endpoints>"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._run_lifespan(receive, send)
        elif scope["type"] == "http":
            await self._answer(scope, receive, send)

    @asynccontextmanager
    async def lifespan(self) -> AsyncIterator[None]:
        """Start the authenticator and enter the service's lifespan; leave both when the service stops."""
        if self._auth is not None:
            await self._auth.start()
        try:
            async with self._lifespan():
                yield
        finally:
            if self._auth is not None:
                self._auth.close()

    # One request.

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        started = time.perf_counter()
        scope[LIMIT_KEY] = self._body_limit
        scope[MEDIA_TYPE_KEY] = self._produces[0]
        request = _Request(scope, receive, send)
        method: str = scope["method"]
        endpoint: Endpoint | None = None
        try:
            endpoint = self._endpoint_of(scope, method)
            headers = dict(scope["headers"])
            if self._auth is not None and not endpoint.is_public:
                scope[CALLER_KEY] = await self._auth.caller_of(_text(headers.get(b"authorization")))
            self._negotiate(scope, headers, endpoint)
            response = await endpoint.handle(request)
        except HttpProblem as problem:
            response = self._response_for(problem, scope)
        except ClientDisconnect:
            logger.debug("%s: the caller of %s %s has gone", self.name, method, scope["path"])
            return
        except Exception:
            logger.exception("%s: %s %s failed", self.name, method, scope["path"])
            response = self._response_for(HttpProblem(500, "Internal Server Error"), scope)
        path = endpoint.path if endpoint is not None else "unknown"
        self.metrics.answered(method, path, response.status_code, time.perf_counter() - started)
        exchange = scope.get(EXCHANGE_KEY)
        if exchange is not None and isinstance(response, Answer):
            exchange.respond(response)
            return
        if method == "HEAD":
            response.body = b""
        await response(scope, receive, send)

    def _endpoint_of(self, scope: Scope, method: str) -> Endpoint:
        raw_path = scope.get("raw_path")
        match = self._tree.find(raw_path.decode("latin-1") if raw_path else scope["path"])
        if match is None:
            raise plain_problem(404)
        scope["path_params"] = match.parameters
        endpoint = match.methods.get("GET" if method == "HEAD" else method)
        if endpoint is None:
            raise plain_problem(405, {"Allow": ", ".join(sorted(match.methods))})
        return endpoint

    def _negotiate(self, scope: Scope, headers: dict[bytes, bytes], endpoint: Endpoint) -> None:
        produced = self._produces if endpoint.produces is None else endpoint.produces
        if produced:
            chosen = choose_media_type(_text(headers.get(b"accept")), produced)
            if chosen is None:
                raise plain_problem(406)
            scope[MEDIA_TYPE_KEY] = chosen
        if _has_body(scope, headers) and scope["method"] not in ("GET", "HEAD", "DELETE"):
            accepted = self._consumes if endpoint.consumes is None else endpoint.consumes
            given = _text(headers.get(b"content-type"))
            if not consumes(given, accepted):
                raise plain_problem(415)
            scope[CONTENT_TYPE_KEY] = given

    def _response_for(self, problem: HttpProblem, scope: Scope) -> Response:
        body, media_type = self._error_body(problem, scope[MEDIA_TYPE_KEY])
        return Answer(body, problem.status, media_type, problem.headers)

    # What every service has.

    def _own_endpoints(self) -> list[Endpoint]:
        async def metrics(_: Request) -> Response:
            body, media_type = self.metrics.page()
            return Answer(body, content_type=media_type)

        async def health(_: Request) -> Response:
            trouble = await self._health()
            return Answer(_encode(self._health_body(trouble)), 200 if trouble is None else 503, JSON)

        async def openapi(_: Request) -> Response:
            return Answer(msgspec.json.encode(self.openapi()), content_type=JSON)

        async def docs(_: Request) -> Response:
            return Answer(page(self.openapi()).encode(), content_type="text/html; charset=utf-8")

        return [
            Endpoint("GET", "/metrics", metrics, produces=()),
            Endpoint("GET", "/health", health, produces=(), is_public=True),
            Endpoint("GET", "/openapi.json", openapi, produces=()),
            Endpoint("GET", "/docs", docs, produces=()),
        ]

    def openapi(self) -> Document:
        listed = [endpoint for endpoint in self.endpoints if endpoint.is_listed]
        return document(self.name, listed, consumes=self._consumes, produces=self._produces)

    async def _run_lifespan(self, receive: Receive, send: Send) -> None:
        await receive()
        stage = "startup"
        try:
            async with self.lifespan():
                await send({"type": "lifespan.startup.complete"})
                stage = "shutdown"
                await receive()
        except Exception as failure:
            logger.exception("%s: %s failed", self.name, stage)
            await send({"type": f"lifespan.{stage}.failed", "message": str(failure)})
            return
        await send({"type": "lifespan.shutdown.complete"})


def make_app(
    name: str,
    endpoints: Iterable[Endpoint],
    *,
    consumes: tuple[str, ...] = (JSON,),
    produces: tuple[str, ...] = (JSON,),
    error_body: ErrorBody = error_body,
    auth: Authenticator | None = None,
    body_limit: int = DEFAULT_BODY_LIMIT,
    body_timeout_s: float = BODY_TIMEOUT_S,
    lifespan: Lifespan = _no_lifespan,
    health: Health = _always_well,
    health_body: HealthBody = _health_body,
    takes_http2: bool = False,
) -> App:
    """Return the app of a service from its table of endpoints. `lifespan` is entered before the service serves and
    left after it; `health` returns what is wrong. `takes_http2`: callers may also use HTTP/2 (http2.py), for which
    the library h2 must be installed."""
    return App(
        name,
        tuple(endpoints),
        consumes=consumes,
        produces=produces,
        error_body=error_body,
        auth=auth,
        body_limit=BodyLimit(body_limit, body_timeout_s),
        lifespan=lifespan,
        health=health,
        health_body=health_body,
        takes_http2=takes_http2,
    )


def media_type(request: Request) -> str:
    """Return the media type in which this request is answered."""
    chosen: str = request.scope[MEDIA_TYPE_KEY]
    return chosen


def content_type(request: Request) -> str:
    """Return the media type of the body, without parameters; empty if none is named or there is no body."""
    return essence(request.scope.get(CONTENT_TYPE_KEY) or "")


def caller(request: Request) -> HttpCaller | None:
    """Return the authenticated caller; None if the service needs no login, and at public endpoints."""
    found: HttpCaller | None = request.scope.get(CALLER_KEY)
    return found


def json_response(request: Request, value: object, status: int = 200) -> Answer:
    return Answer(_encode(value), status, request.scope[MEDIA_TYPE_KEY])


def _has_body(scope: Scope, headers: dict[bytes, bytes]) -> bool:
    if scope["http_version"] == "2" and not scope[EXCHANGE_KEY].is_complete:
        # It need not say so.
        return True
    return headers.get(b"content-length", b"0") != b"0" or b"transfer-encoding" in headers


def _text(header: bytes | None) -> str | None:
    return None if header is None else header.decode("latin-1")
