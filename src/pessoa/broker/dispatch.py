"""The table of what this broker serves: API and versions. ApiVersions is answered from it.

The handler of an API is the function `handle` in the module of its name in `pessoa.broker.handlers`, imported at the
first request for it. For every (API, version) that is used, `Route` keeps at hand all that a request needs: decoders,
handler, encoder.

A frame comes in, the buffers of the answer go out, or an awaitable of them. What cannot be answered at all (an API or
version that is not in the table, a body that does not decode) is a `ProtocolViolation`, as in Kafka, which closes
such a connection too: without a known version there is no telling what form an answer would have. ApiVersions alone
is answered in any version.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from enum import Enum
from functools import partial
from importlib import import_module
from struct import Struct
from typing import TYPE_CHECKING, Any, NamedTuple

from pessoa.broker.context import Parked, Replicating, RequestContext
from pessoa.broker.slices import SLICED_FROM_BYTES, is_large, serve_in_slices
from pessoa.net.listener import Acknowledging, Later
from pessoa.wire.catalogue import ApiKey
from pessoa.wire.errors import ProtocolViolation
from pessoa.wire.frames import Buffer, response_frame
from pessoa.wire.headers import RequestHeader, peek_api, request_header_version
from pessoa.wire.schema import Message
from pessoa.wire.versions import Versions

if TYPE_CHECKING:
    from pessoa.net.listener import Connection, Served

Reply = Message | Awaitable[Message | None] | None


class Where(Enum):
    """Who answers: the module of the API's name in `handlers`, or whoever decides about such things."""

    HERE = "handlers"
    CONTROLLER = "controller"
    QUORUM = "metadata quorum"
    IMAGE = "the metadata image: a function of it and the request, beside the one that decides"
    GROUPS = "group coordinator"
    TRANSACTIONS = "transaction coordinator"


class Row(NamedTuple):
    key: ApiKey
    versions: Versions
    where: Where
    # Produce advertises 0 to 2 without serving them: librdkafka takes a broker that lacks them for too old.
    advertised: Versions
    # Whether brokers hand such a request on to the controller in an envelope.
    forwarded: bool = False


def _row(key: ApiKey, versions: str, where: Where = Where.HERE, advertised: str | None = None) -> Row:
    return Row(key, Versions.parse(versions), where, Versions.parse(advertised or versions))


def _forwarded(key: ApiKey, versions: str, where: Where = Where.CONTROLLER) -> Row:
    return _row(key, versions, where)._replace(forwarded=True)


_CONTROLLER = Where.CONTROLLER
_QUORUM = Where.QUORUM
_IMAGE = Where.IMAGE
_TRANSACTIONS = Where.TRANSACTIONS
_GROUPS = Where.GROUPS

TABLE: tuple[Row, ...] = (
    _row(ApiKey.PRODUCE, "3-13", advertised="0-13"),
    _row(ApiKey.FETCH, "4-18"),
    _row(ApiKey.LIST_OFFSETS, "1-11"),
    _row(ApiKey.METADATA, "0-13"),
    _row(ApiKey.OFFSET_COMMIT, "2-10", _GROUPS),
    _row(ApiKey.OFFSET_FETCH, "1-10", _GROUPS),
    _row(ApiKey.FIND_COORDINATOR, "0-6"),
    _row(ApiKey.JOIN_GROUP, "0-9", _GROUPS),
    _row(ApiKey.HEARTBEAT, "0-4", _GROUPS),
    _row(ApiKey.LEAVE_GROUP, "0-5", _GROUPS),
    _row(ApiKey.SYNC_GROUP, "0-5", _GROUPS),
    _row(ApiKey.DESCRIBE_GROUPS, "0-6", _GROUPS),
    _row(ApiKey.LIST_GROUPS, "0-5", _GROUPS),
    _row(ApiKey.SASL_HANDSHAKE, "0-1"),
    _row(ApiKey.API_VERSIONS, "0-4"),
    _row(ApiKey.CREATE_TOPICS, "2-7", _CONTROLLER),
    _row(ApiKey.DELETE_TOPICS, "1-6", _CONTROLLER),
    _row(ApiKey.DELETE_RECORDS, "0-2"),
    _row(ApiKey.INIT_PRODUCER_ID, "0-5", _TRANSACTIONS),
    _row(ApiKey.OFFSET_FOR_LEADER_EPOCH, "2-4"),
    _row(ApiKey.ADD_PARTITIONS_TO_TXN, "0-5", _TRANSACTIONS),
    _row(ApiKey.ADD_OFFSETS_TO_TXN, "0-4", _TRANSACTIONS),
    _row(ApiKey.END_TXN, "0-5", _TRANSACTIONS),
    _row(ApiKey.WRITE_TXN_MARKERS, "1-2"),
    _row(ApiKey.TXN_OFFSET_COMMIT, "0-5"),
    _row(ApiKey.DESCRIBE_ACLS, "1-3"),
    _row(ApiKey.CREATE_ACLS, "1-3"),
    _row(ApiKey.DELETE_ACLS, "1-3"),
    _row(ApiKey.DESCRIBE_CONFIGS, "1-4"),
    _row(ApiKey.ALTER_CONFIGS, "0-2", _CONTROLLER),
    _row(ApiKey.ALTER_REPLICA_LOG_DIRS, "1-2"),
    _row(ApiKey.DESCRIBE_LOG_DIRS, "1-5"),
    _row(ApiKey.SASL_AUTHENTICATE, "0-2"),
    _row(ApiKey.CREATE_PARTITIONS, "0-3", _CONTROLLER),
    _row(ApiKey.CREATE_DELEGATION_TOKEN, "1-3", _CONTROLLER),
    _row(ApiKey.RENEW_DELEGATION_TOKEN, "1-2", _CONTROLLER),
    _row(ApiKey.EXPIRE_DELEGATION_TOKEN, "1-2", _CONTROLLER),
    _row(ApiKey.DESCRIBE_DELEGATION_TOKEN, "1-3"),
    _row(ApiKey.DELETE_GROUPS, "0-2", _GROUPS),
    _row(ApiKey.ELECT_LEADERS, "0-2", _CONTROLLER),
    _row(ApiKey.INCREMENTAL_ALTER_CONFIGS, "0-1"),
    _row(ApiKey.ALTER_PARTITION_REASSIGNMENTS, "0-1", _CONTROLLER),
    _row(ApiKey.LIST_PARTITION_REASSIGNMENTS, "0", _CONTROLLER),
    _row(ApiKey.OFFSET_DELETE, "0", _GROUPS),
    _row(ApiKey.DESCRIBE_CLIENT_QUOTAS, "0-1", _IMAGE),
    _row(ApiKey.ALTER_CLIENT_QUOTAS, "0-1", _CONTROLLER),
    _row(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, "0", _IMAGE),
    _row(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, "0", _CONTROLLER),
    _row(ApiKey.DESCRIBE_QUORUM, "0-2", _CONTROLLER),
    _row(ApiKey.UPDATE_FEATURES, "0-2", _CONTROLLER),
    _row(ApiKey.DESCRIBE_CLUSTER, "0-2"),
    _row(ApiKey.DESCRIBE_PRODUCERS, "0"),
    _row(ApiKey.UNREGISTER_BROKER, "0", _CONTROLLER),
    _row(ApiKey.DESCRIBE_TRANSACTIONS, "0", _TRANSACTIONS),
    _row(ApiKey.LIST_TRANSACTIONS, "0-2", _TRANSACTIONS),
    _row(ApiKey.CONSUMER_GROUP_HEARTBEAT, "0-1", _GROUPS),
    _row(ApiKey.CONSUMER_GROUP_DESCRIBE, "0-1", _GROUPS),
    _row(ApiKey.LIST_CONFIG_RESOURCES, "0-1"),
    _row(ApiKey.DESCRIBE_TOPIC_PARTITIONS, "0"),
    _row(ApiKey.ADD_RAFT_VOTER, "0-1", _CONTROLLER),
    _row(ApiKey.REMOVE_RAFT_VOTER, "0", _CONTROLLER),
)

# Module and function in `pessoa.controller`, where what is described is also changed.
_FROM_IMAGE = {
    ApiKey.DESCRIBE_CLIENT_QUOTAS: ("quotas", "describe_client_quotas"),
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: ("scram", "describe_user_scram_credentials"),
}

_read_prefix = Struct(">hhi").unpack_from


# What a controller serves on its own listener: to other controllers, to brokers, and to tools that come to it directly.
CONTROLLER_TABLE: tuple[Row, ...] = (
    _row(ApiKey.FETCH, "4-18", _QUORUM),
    _row(ApiKey.SASL_HANDSHAKE, "0-1"),
    _row(ApiKey.API_VERSIONS, "0-4"),
    _forwarded(ApiKey.CREATE_TOPICS, "2-7"),
    _forwarded(ApiKey.DELETE_TOPICS, "1-6"),
    _row(ApiKey.DESCRIBE_ACLS, "1-3"),
    _forwarded(ApiKey.CREATE_ACLS, "1-3", Where.HERE),
    _forwarded(ApiKey.DELETE_ACLS, "1-3", Where.HERE),
    _row(ApiKey.DESCRIBE_CONFIGS, "1-4"),
    _forwarded(ApiKey.ALTER_CONFIGS, "0-2"),
    _row(ApiKey.SASL_AUTHENTICATE, "0-2"),
    _forwarded(ApiKey.CREATE_PARTITIONS, "0-3"),
    _forwarded(ApiKey.CREATE_DELEGATION_TOKEN, "1-3"),
    _forwarded(ApiKey.RENEW_DELEGATION_TOKEN, "1-2"),
    _forwarded(ApiKey.EXPIRE_DELEGATION_TOKEN, "1-2"),
    _row(ApiKey.DESCRIBE_DELEGATION_TOKEN, "1-3"),
    _forwarded(ApiKey.ELECT_LEADERS, "0-2"),
    _forwarded(ApiKey.INCREMENTAL_ALTER_CONFIGS, "0-1"),
    _forwarded(ApiKey.ALTER_PARTITION_REASSIGNMENTS, "0-1"),
    _forwarded(ApiKey.LIST_PARTITION_REASSIGNMENTS, "0"),
    _forwarded(ApiKey.ALTER_CLIENT_QUOTAS, "0-1"),
    _row(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, "0", _IMAGE),
    _forwarded(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, "0"),
    _row(ApiKey.VOTE, "0-2", _QUORUM),
    _row(ApiKey.BEGIN_QUORUM_EPOCH, "0-1", _QUORUM),
    _row(ApiKey.END_QUORUM_EPOCH, "0-1", _QUORUM),
    _forwarded(ApiKey.DESCRIBE_QUORUM, "0-2", _QUORUM),
    _row(ApiKey.ALTER_PARTITION, "2-3", _CONTROLLER),
    _forwarded(ApiKey.UPDATE_FEATURES, "0-2"),
    _row(ApiKey.ENVELOPE, "0"),
    _row(ApiKey.FETCH_SNAPSHOT, "0-1", _QUORUM),
    _row(ApiKey.DESCRIBE_CLUSTER, "0-2"),
    _row(ApiKey.BROKER_REGISTRATION, "0-4", _CONTROLLER),
    _row(ApiKey.BROKER_HEARTBEAT, "0-2", _CONTROLLER),
    _forwarded(ApiKey.UNREGISTER_BROKER, "0"),
    _forwarded(ApiKey.ALLOCATE_PRODUCER_IDS, "0"),
    _row(ApiKey.CONTROLLER_REGISTRATION, "0", _CONTROLLER),
    _row(ApiKey.ASSIGN_REPLICAS_TO_DIRS, "0", _CONTROLLER),
    _forwarded(ApiKey.ADD_RAFT_VOTER, "0-1", _QUORUM),
    _forwarded(ApiKey.REMOVE_RAFT_VOTER, "0", _QUORUM),
    _row(ApiKey.UPDATE_RAFT_VOTER, "0", _QUORUM),
)


def advertised(table: tuple[Row, ...] = TABLE) -> Iterator[tuple[ApiKey, Versions]]:
    return ((row.key, row.advertised) for row in table)


class Route:
    """Everything that serving one API in one version takes."""

    __slots__ = ("decode_header", "decode_request", "handle")

    def __init__(self, key: ApiKey, version: int, where: Where) -> None:
        kind = key.request
        self.decode_header = RequestHeader.decoder(request_header_version(kind, version))
        self.decode_request = kind.decoder(version)
        self.handle = _handler(key, where)


def _handler(key: ApiKey, where: Where) -> Callable[[Any, RequestContext, Any], Reply]:
    if where is Where.CONTROLLER:
        return lambda broker, context, request: broker.controller.submit(request, context)
    if where is Where.QUORUM:
        return lambda broker, context, request: broker.quorum.handle(request, context)
    if where is Where.GROUPS:
        return lambda broker, context, request: broker.groups.submit(request, context)
    if where is Where.TRANSACTIONS:
        return lambda broker, context, request: broker.transactions.submit(request, context)
    if where is Where.IMAGE:
        module, name = _FROM_IMAGE[key]
        describe = getattr(import_module(f"pessoa.controller.{module}"), name)
        return lambda broker, _, request: describe(broker.image, request)
    handle: Callable[[Any, RequestContext, Any], Reply] = import_module(
        f"pessoa.broker.handlers.{key.name.lower()}"
    ).handle
    return handle


class Dispatcher:
    """Serves the frames of all connections with the handlers of the table. `services` is what handlers work with."""

    def __init__(self, services: Any, table: tuple[Row, ...] = TABLE, listener: str = "PLAINTEXT") -> None:
        self._services = services
        self._rows = {int(row.key): row for row in table}
        self._listener = listener
        # (API key << 16 | version) → route
        self._routes: dict[int, Route] = {}

    def serve(self, connection: Connection, data: bytearray, start: int, end: int) -> Served:
        if end - start < _PREFIX_BYTES:
            peek_api(data, start, end)  # raises
        key, version, correlation_id = _read_prefix(data, start)
        route = self._routes.get(key << 16 | version)
        if route is None:
            route = self._find(key, version)
            if route is None:
                return _unsupported_api_versions(correlation_id)
        header, pos = route.decode_header(data, start, end)
        # Bytes behind the last field are passed over, as in Kafka: librdkafka sends some with Metadata version 13.
        request, _ = route.decode_request(data, pos, end)
        context = RequestContext(
            key, version, correlation_id, header.client_id, connection.host, connection.id, self._listener
        )
        reply: Reply
        if end - start > SLICED_FROM_BYTES and is_large(key, request):
            reply = serve_in_slices(key, request, partial(route.handle, self._services, context))
        else:
            reply = route.handle(self._services, context, request)
        if reply is None:
            return None
        if isinstance(reply, Message):
            return response_frame(reply, version, correlation_id)
        if isinstance(reply, Parked):
            return _ParkedAnswer(reply, version, correlation_id)
        framed = _framed_later(reply, version, correlation_id)
        return Acknowledging(framed) if isinstance(reply, Replicating) else framed

    def _find(self, key: int, version: int) -> Route | None:
        """The route, made at its first use. None for ApiVersions in a version that we do not speak."""
        row = self._rows.get(key)
        if row is None:
            raise ProtocolViolation(f"API {key} is not served here")
        if version not in row.versions:
            if row.key is ApiKey.API_VERSIONS:
                return None
            raise ProtocolViolation(f"{row.key.title} is served in versions {row.versions}, not {version}")
        route = self._routes[key << 16 | version] = Route(row.key, version, row.where)
        return route


_PREFIX_BYTES = 8


class _ParkedAnswer(Later):
    __slots__ = ("_correlation_id", "_parked", "_version")

    def __init__(self, parked: Parked, version: int, correlation_id: int) -> None:
        self._parked, self._version, self._correlation_id = parked, version, correlation_id

    def when_ready(self, call: Callable[[], None]) -> None:
        self._parked.when_ready(call)

    def cancel(self) -> None:
        self._parked.cancel()

    def answer(self) -> list[Buffer] | None:
        message = self._parked.reply()
        return None if message is None else response_frame(message, self._version, self._correlation_id)


async def _framed_later(reply: Awaitable[Message | None], version: int, correlation_id: int) -> list[Buffer] | None:
    message = await reply
    return None if message is None else response_frame(message, version, correlation_id)


def _unsupported_api_versions(correlation_id: int) -> list[Buffer]:
    from pessoa.broker.handlers.api_versions import respond_unsupported

    return response_frame(respond_unsupported(), 0, correlation_id)
