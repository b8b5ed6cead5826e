"""Client telemetry (KIP-714): who may push what, and when. What was pushed is in `pushed_metrics.py`.

    GetTelemetrySubscriptions ──▶ instance id, subscription id, metrics, interval
    PushTelemetry             ──▶ accepted, once in each interval; or the client has to ask for its subscription again
    PushTelemetry             ──▶ accepted at any time, where the client says that it is the last (terminating)

A `ClientInstance` is what a broker remembers of a client between its requests: which subscriptions match it
(`telemetry_subscriptions.py`), when it last asked and pushed. All of it is in memory and can be forgotten: a client
that comes to a broker which does not know it begins anew there. So an instance is forgotten

- when the connection that it came with ends;
- when it has sent nothing for three intervals, a minute at least;
- when `MOST_INSTANCES` others have been used since. Ids are what clients say, so they may be invented.

When the subscriptions change, an instance begins anew at its next request: it is told of the change at once, whatever
its interval was.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from pessoa.base.ids import ZERO_UUID, Uuid
from pessoa.broker.api_row import AnyRow
from pessoa.broker.apis.api_versions import is_software
from pessoa.broker.logs.connection_logs import UNLOGGED_REQUEST
from pessoa.broker.metrics.otlp_metrics import MalformedMetrics, read_points
from pessoa.broker.metrics.pushed_metrics import Push, PushedMetrics
from pessoa.broker.metrics.telemetry_subscriptions import Subscriptions, Wanted
from pessoa.broker.observers import Begin
from pessoa.metadata.image import ConfigResource
from pessoa.records.compression import Codec, decompress
from pessoa.records.invalid_batch import InvalidBatch
from pessoa.wire.api.api_versions import FIRST_API_VERSIONS_WITH_SOFTWARE
from pessoa.wire.catalogue import ApiKey
from pessoa.wire.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable

    from pessoa.base.clock import Clock
    from pessoa.metadata.delta import MetadataDelta
    from pessoa.net.connection import Connection
    from pessoa.net.pending import Observation
    from pessoa.wire.api.push_telemetry import PushTelemetryRequest
    from pessoa.wire.request_context import RequestContext
    from pessoa.wire.schema import Message

log = logging.getLogger("pessoa.broker")

# Those that a broker prefers first; clients take the first that they know.
ACCEPTED_CODECS = (Codec.ZSTD, Codec.LZ4, Codec.GZIP, Codec.SNAPPY)
_KNOWN_CODECS = frozenset(map(int, Codec))
# As in Kafka.
MOST_INSTANCES = 16_384
_LEAST_EXPIRY_MS = 60_000
_MISSED_PUSHES = 3
_NEVER_MS = -(1 << 62)
# Kafka's own: the id that is none, and that of the metadata's topic.
_RESERVED = frozenset({ZERO_UUID, Uuid.of(1)})
# Errors of a push which tell the client to ask for its subscription, so it may before its time.
_ASK_AGAIN = frozenset({ErrorCode.UNKNOWN_SUBSCRIPTION_ID, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE})
_LONGEST_NAME = 256
_UNKNOWN = "unknown"
_SOURCE_PORT = "client_source_port"
# So many points are read before other requests have their turn.
_AT_A_TIME = 100


class Software(NamedTuple):
    name: str
    version: str


class ClientInstance:
    __slots__ = (
        "_pushed_ms",
        "_subscribed_ms",
        "attributes",
        "connection_id",
        "expires_ms",
        "id",
        "is_terminating",
        "last_error",
        "subscription_id",
        "version",
        "wanted",
    )

    def __init__(self, instance_id: Uuid, attributes: dict[str, str], wanted: Wanted, version: int) -> None:
        self.id = instance_id
        # What `match` of subscriptions can be about.
        self.attributes = attributes
        self.wanted = wanted
        self.subscription_id = wanted.subscription_id(instance_id)
        # Of the subscriptions.
        self.version = version
        self.connection_id = -1
        self.expires_ms = 0
        self.is_terminating = False
        self.last_error = ErrorCode.NONE
        self._subscribed_ms = self._pushed_ms = _NEVER_MS

    def __repr__(self) -> str:
        return f"<ClientInstance {self.id} of {self.attributes.get('client_id')!r}: {self.wanted!r}>"

    def may_subscribe(self, now_ms: int) -> bool:
        if now_ms - max(self._subscribed_ms, self._pushed_ms) < self.wanted.interval_ms:
            return False
        self._subscribed_ms = now_ms
        return True

    def may_push(self, now_ms: int) -> bool:
        """Return whether a push is allowed now. The first one after the subscription was fetched may come at any time:
        clients spread them at random."""
        if self._subscribed_ms <= self._pushed_ms and now_ms - self._pushed_ms < self.wanted.interval_ms:
            return False
        self._pushed_ms = now_ms
        return True


class ClientTelemetry:
    """The telemetry clients of one broker. `port_of` returns the client's port of a connection. It watches ApiVersions,
    where clients name their software."""

    def __init__(
        self, clock: Clock, new_uuid: Callable[[], Uuid], max_bytes: int, port_of: Callable[[int], str]
    ) -> None:
        self.max_bytes = max_bytes
        self.pushed = PushedMetrics()
        self.unknown_subscription_count = self.throttle_count = self.export_count = self.error_count = 0
        self._now_ms = clock.monotonic_ms
        self._new_uuid = new_uuid
        self._port_of = port_of
        self._subscriptions = Subscriptions()
        # By last use, the longest unused first.
        self._instances: OrderedDict[Uuid, ClientInstance] = OrderedDict()
        # Of open connections.
        self._of_connection: dict[int, Uuid] = {}
        self._software: dict[int, Software] = {}

    def __repr__(self) -> str:
        return f"<ClientTelemetry: {self._subscriptions!r}, {len(self._instances)} instances, {self.pushed!r}>"

    # What is known of clients.

    def watches(self, row: AnyRow) -> bool:
        return row.key is ApiKey.API_VERSIONS

    def begin_of(self, row: AnyRow) -> Begin:
        return self.begin

    def begin(self, context: RequestContext, request: Message, size: int) -> Observation:
        name: str = getattr(request, "client_software_name", "")
        version: str = getattr(request, "client_software_version", "")
        if context.version >= FIRST_API_VERSIONS_WITH_SOFTWARE and is_software(name) and is_software(version):
            self._software[context.connection_id] = Software(name[:_LONGEST_NAME], version[:_LONGEST_NAME])
        return UNLOGGED_REQUEST

    def follow(self, delta: MetadataDelta) -> None:
        for kind, name in delta.changed_configs:
            if kind == ConfigResource.CLIENT_METRICS:
                self._subscriptions.put(name, delta.new.configs.of(kind, name))

    def forget_connection(self, connection: Connection) -> None:
        self._software.pop(connection.id, None)
        instance_id = self._of_connection.pop(connection.id, None)
        if instance_id is not None:
            self._instances.pop(instance_id, None)

    def count_instances(self) -> int:
        """Return the number of client instances, after removing those that have expired."""
        now_ms = self._now_ms()
        for one in [one for one in self._instances.values() if one.expires_ms <= now_ms]:
            self._forget(one)
        return len(self._instances)

    # Requests.

    def subscribe(self, instance_id: Uuid, context: RequestContext) -> ClientInstance | ErrorCode:
        """Return the instance of a client that asks for its subscription; an error if it asks before its push interval
        is over."""
        now_ms = self._now_ms()
        if instance_id == ZERO_UUID:
            instance_id = self._new_uuid()
        instance = self._instance(instance_id, context, now_ms)
        if not instance.may_subscribe(now_ms) and instance.last_error not in _ASK_AGAIN:
            self.throttle_count += 1
            return ErrorCode.THROTTLING_QUOTA_EXCEEDED
        instance.last_error = ErrorCode.NONE
        return instance

    async def push(self, request: PushTelemetryRequest, context: RequestContext) -> ErrorCode:
        """Take over the pushed metrics of a client; return the error, or NONE."""
        if request.client_instance_id in _RESERVED:
            return ErrorCode.INVALID_REQUEST
        now_ms = self._now_ms()
        instance = self._instance(request.client_instance_id, context, now_ms)
        error = self._refusal(instance, request, now_ms)
        instance.is_terminating = request.terminating
        if not error and request.metrics:
            error = await self._export(instance, request, context)
        instance.last_error = error
        return error

    def _refusal(self, instance: ClientInstance, request: PushTelemetryRequest, now_ms: int) -> ErrorCode:
        if instance.is_terminating:
            return ErrorCode.INVALID_REQUEST
        if not instance.may_push(now_ms) and not request.terminating:
            self.throttle_count += 1
            return ErrorCode.THROTTLING_QUOTA_EXCEEDED
        if request.subscription_id != instance.subscription_id:
            self.unknown_subscription_count += 1
            return ErrorCode.UNKNOWN_SUBSCRIPTION_ID
        if request.compression_type not in _KNOWN_CODECS:
            return ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
        if len(request.metrics) > self.max_bytes:
            return ErrorCode.TELEMETRY_TOO_LARGE
        return ErrorCode.NONE

    async def _export(
        self, instance: ClientInstance, request: PushTelemetryRequest, context: RequestContext
    ) -> ErrorCode:
        push = Push()
        try:
            points = read_points(decompress(Codec(request.compression_type), request.metrics, self.max_bytes))
            while (some := list(islice(points, _AT_A_TIME))) and not push.is_full:
                for point in some:
                    push.add(point)
                await asyncio.sleep(0)
        except InvalidBatch as problem:
            self.error_count += 1
            is_large = problem.error is ErrorCode.MESSAGE_TOO_LARGE
            return ErrorCode.TELEMETRY_TOO_LARGE if is_large else ErrorCode.INVALID_RECORD
        except MalformedMetrics as problem:
            self.error_count += 1
            log.debug("the metrics that %r has pushed cannot be read: %s", instance, problem)
            return ErrorCode.INVALID_RECORD
        self.export_count += 1
        now_ms = self._now_ms()
        attributes = instance.attributes
        labels = {
            "client_instance_id": str(instance.id),
            "client_id": attributes.get("client_id", ""),
            "client_software_name": attributes["client_software_name"],
            "client_software_version": attributes["client_software_version"],
            "principal": context.principal,
        }
        self.pushed.put(instance.id, labels, push, now_ms, now_ms + _expiry_ms(instance.wanted))
        return ErrorCode.NONE

    # Instances.

    def _instance(self, instance_id: Uuid, context: RequestContext, now_ms: int) -> ClientInstance:
        instance = self._instances.get(instance_id)
        if instance is None or instance.expires_ms <= now_ms:
            instance = self._begin(instance_id, self._attributes(instance_id, context), context)
        elif instance.version != self._subscriptions.version:
            instance = self._begin(instance_id, instance.attributes, context)
        instance.expires_ms = now_ms + _expiry_ms(instance.wanted)
        self._instances.move_to_end(instance_id)
        return instance

    def _begin(self, instance_id: Uuid, attributes: dict[str, str], context: RequestContext) -> ClientInstance:
        # Looked for only where it matters.
        if _SOURCE_PORT not in attributes and self._subscriptions.are_about(_SOURCE_PORT):
            attributes[_SOURCE_PORT] = self._port_of(context.connection_id)
        wanted = self._subscriptions.wanted_of(attributes)
        instance = ClientInstance(instance_id, attributes, wanted, self._subscriptions.version)
        instance.connection_id = context.connection_id
        self._instances[instance_id] = instance
        self._of_connection[context.connection_id] = instance_id
        if len(self._instances) > MOST_INSTANCES:
            self._forget(next(iter(self._instances.values())))
        return instance

    def _forget(self, instance: ClientInstance) -> None:
        del self._instances[instance.id]
        if self._of_connection.get(instance.connection_id) == instance.id:
            del self._of_connection[instance.connection_id]

    def _attributes(self, instance_id: Uuid, context: RequestContext) -> dict[str, str]:
        software = self._software.get(context.connection_id, Software(_UNKNOWN, _UNKNOWN))
        attributes = {
            "client_instance_id": str(instance_id),
            "client_software_name": software.name,
            "client_software_version": software.version,
            "client_source_address": context.client_host,
        }
        if context.client_id is not None:
            attributes["client_id"] = context.client_id[:_LONGEST_NAME]
        return attributes


def _expiry_ms(wanted: Wanted) -> int:
    return max(_LEAST_EXPIRY_MS, _MISSED_PUSHES * wanted.interval_ms)
