"""The way of a request from its frame to the handler of its API, and of the response back.

The row of an API (`api_row`) has its versions and its handlers; its file in `pessoa.broker.apis` is imported at the
first request for it. For every (API, version) that is used, `Route` keeps at hand all that a request needs.

A frame comes in, the buffers of the response go out, or a `Pending`. What cannot be answered at all (an API or
version that has no row, a body that does not decode) is a `ProtocolViolation`, as in Kafka, which closes
such a connection too: without a known version there is no telling what form an answer would have. ApiVersions alone
is answered in any version.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from struct import Struct
from typing import TYPE_CHECKING, Any

from pessoa.broker.api_row import Quota
from pessoa.broker.api_table import find_row
from pessoa.broker.authorization import denial_response
from pessoa.broker.slices import SLICED_FROM_BYTES, serve_in_slices
from pessoa.net.pending import Pending, PendingTask
from pessoa.wire.catalogue import ApiKey
from pessoa.wire.errors import ProtocolViolation
from pessoa.wire.frames import Buffer, response_frame
from pessoa.wire.message_headers import RequestHeader, peek_api, request_header_version
from pessoa.wire.request_context import RequestContext
from pessoa.wire.schema import Message

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from pessoa.broker.api_row import AnyRow, AnyServices, Reply
    from pessoa.broker.controller_services import ControllerServices
    from pessoa.broker.observers import Begin, Observers
    from pessoa.broker.throttling import RequestCharge
    from pessoa.net.connection import Connection
    from pessoa.net.pending import Observation
    from pessoa.security.authorizer import Authorizer

# Of one of the two kinds of services, and of the request of its API.
Handle = Callable[[Any, RequestContext, Any], "Reply"]

_read_prefix = Struct(">hhi").unpack_from
_PREFIX_BYTES = 8
# For so long a controller holds a request of a client while it has not read the access control lists: most clients give
# up after 30 s.
_LONGEST_WAIT_FOR_ACLS_MS = 20_000
# A client id is up to 32 KiB; every connection would keep a copy of it.
_MAX_KEPT_TAIL_BYTES = 256


class Route:
    """The decoders, the handler and the checks of one API in one version."""

    __slots__ = ("begin", "checked", "decode_header", "decode_request", "handle", "is_flexible", "row", "sliced")

    def __init__(self, row: AnyRow, version: int, handle: Handle, *, is_checked: bool) -> None:
        kind = row.key.request
        self.is_flexible = version in kind.flexible
        self.decode_header = RequestHeader.decoder(request_header_version(kind, version))
        self.decode_request = kind.decoder(version)
        self.handle = handle
        self.row = row
        self.sliced = row.sliced
        # The row, if it says what a client must be allowed to do to make such a request here.
        self.checked = row if is_checked else None
        # Called before a request is served; None if no watcher looks at requests of this API.
        self.begin: Begin | None = None


class Dispatcher:
    """Serves the frames of all connections of a listener. `services` is what handlers work with."""

    def __init__(
        self,
        services: AnyServices,
        observers: Observers,
        listener: str = "PLAINTEXT",
        *,
        is_of_controller: bool = False,
    ) -> None:
        self._services = services
        self._observers = observers
        self._listener = listener
        self._is_of_controller = is_of_controller
        # (API key << 16 | version) → route
        self._routes: dict[int, Route] = {}
        observers.on_change.append(self._refresh_observers)

    def serve(self, connection: Connection, data: bytearray, start: int, end: int) -> list[Buffer] | Pending | None:
        if end - start < _PREFIX_BYTES:
            peek_api(data, start, end)  # raises
        key, version, correlation_id = _read_prefix(data, start)
        route = self._routes.get(key << 16 | version)
        if route is None:
            route = self._find(key, version)
            if route is None:
                return _unsupported_api_versions(correlation_id)
        tail = connection.header_tail
        if tail and route.is_flexible and data.startswith(tail, start + _PREFIX_BYTES, end):
            pos = start + _PREFIX_BYTES + len(tail)
        else:
            pos = _read_header(connection, route, data, start, end)
        # Bytes behind the last field are passed over, as in Kafka: librdkafka sends some with Metadata version 13.
        request, _ = route.decode_request(data, pos, end)
        context = RequestContext(
            key,
            version,
            correlation_id,
            connection.client_id,
            connection.host,
            connection.id,
            self._listener,
            connection.principal,
            connection.is_token_authenticated,
        )
        observation = None if route.begin is None else route.begin(context, request, end - start)
        charge = None
        if (throttling := self._services.throttling) is not None and (quota := route.row.quota) is not Quota.NONE:
            charge = throttling.begin(quota, connection, context, request, end - start)
        reply: Reply
        try:
            denied = None if route.checked is None else self._denial_response(route.checked, request, context)
            if denied is not None:
                reply = denied
            elif end - start > SLICED_FROM_BYTES and (sliced := route.sliced) is not None and sliced.is_large(request):
                reply = serve_in_slices(sliced, request, partial(route.handle, self._services, context))
            else:
                reply = route.handle(self._services, context, request)
        except Exception:
            if observation is not None:
                observation.lose()
            if charge is not None:
                charge.lose()
            raise
        if reply is not None and not isinstance(reply, Message):
            return _make_pending(reply, context, charge, observation)
        if charge is not None:
            reply = charge.settle(reply)
        frames = None if reply is None else response_frame(reply, version, correlation_id)
        if observation is not None:
            observation.end(reply, frames)
        return frames

    def _find(self, key: int, version: int) -> Route | None:
        """Return the route, which is made at its first use; None for ApiVersions in a version that is not supported."""
        row = find_row(key)
        if row is None:
            raise ProtocolViolation(f"API {key} is not served")
        handle = row.handle_on_controller if self._is_of_controller else row.handle
        if handle is None:
            raise ProtocolViolation(f"{row.key.title} is not served here")
        if version not in row.versions:
            if row.key is ApiKey.API_VERSIONS:
                return None
            raise ProtocolViolation(f"{row.key.title} is served in versions {row.versions}, not {version}")
        # What is forwarded is checked by the controller.
        checks = row.authorised_on_controller if self._is_of_controller else row.authorised
        is_checked = bool(checks) and (self._is_of_controller or not row.is_forwarded)
        if self._is_of_controller and row.key is not ApiKey.API_VERSIONS:
            handle, is_checked = partial(self._handle_with_acls, row if is_checked else None, handle), False
        route = self._routes[key << 16 | version] = Route(row, version, handle, is_checked=is_checked)
        route.begin = self._observers.begin_of(row)
        return route

    def _handle_with_acls(
        self,
        checked: AnyRow | None,
        handle: Handle,
        node: ControllerServices,
        context: RequestContext,
        request: Message,
    ) -> Reply:
        """Handle the request when the ACLs are loaded. A controller serves before it has read them, since an election
        needs it. Until then it cannot authorise clients, and a denial would be wrong, so their requests wait."""
        authorizer = node.authorizer
        if authorizer is not None and not authorizer.can_decide_about(context.principal):
            return self._handle_later(authorizer, checked, handle, node, context, request)
        denied = None if checked is None else self._denial_response(checked, request, context)
        return handle(node, context, request) if denied is None else denied

    async def _handle_later(
        self,
        authorizer: Authorizer,
        checked: AnyRow | None,
        handle: Handle,
        node: ControllerServices,
        context: RequestContext,
        request: Message,
    ) -> Message | None:
        await node.progress.wait_until(
            lambda: authorizer.can_decide_about(context.principal), _LONGEST_WAIT_FOR_ACLS_MS
        )
        denied = None if checked is None else self._denial_response(checked, request, context)
        reply = handle(node, context, request) if denied is None else denied
        return reply if reply is None or isinstance(reply, Message) else await reply

    def _denial_response(self, row: AnyRow, request: Message, context: RequestContext) -> Message | None:
        return denial_response(self._services.authorizer, row, request, context, on_controller=self._is_of_controller)

    def _refresh_observers(self) -> None:
        """Find the observers of every API again: they have changed."""
        for route in self._routes.values():
            route.begin = self._observers.begin_of(route.row)


def _make_pending(
    reply: Pending | Awaitable[Message | None],
    context: RequestContext,
    charge: RequestCharge | None,
    observation: Observation | None,
) -> Pending:
    """Return a `Pending` for the reply, with what it needs to be sent, charged and observed."""
    if charge is not None:
        charge.pause_timing()
        reply = reply if isinstance(reply, Pending) else charge.timed(reply)
    pending = reply if isinstance(reply, Pending) else PendingTask(reply)
    pending.charge = charge
    if observation is not None:
        observation.wait()
    pending.version, pending.correlation_id, pending.observation = context.version, context.correlation_id, observation
    return pending


def _read_header(connection: Connection, route: Route, data: bytearray, start: int, end: int) -> int:
    """Take over the client id of a request, and keep its header for the next requests; return the position after it."""
    header, pos = route.decode_header(data, start, end)
    connection.client_id = header.client_id
    tail_bytes = pos - start - _PREFIX_BYTES
    keeps = route.is_flexible and tail_bytes <= _MAX_KEPT_TAIL_BYTES
    connection.header_tail = bytes(data[start + _PREFIX_BYTES : pos]) if keeps else b""
    return pos


def _unsupported_api_versions(correlation_id: int) -> list[Buffer]:
    from pessoa.broker.apis.api_versions import respond_unsupported

    return response_frame(respond_unsupported(), 0, correlation_id)
