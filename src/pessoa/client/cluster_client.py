"""A cluster as a client sees it: some addresses to begin with, then every node by its id.

`ask` sends a request and returns its answer. It is patient: a node that refuses or loses the connection is tried
again, or another one in its place where any will do, until `default.api.timeout.ms` is over. What it does not do is to
look into answers: an error code in a response is the caller's affair, who knows which part of it matters. `retried`
is the loop for callers whose answer says "not now".

    any broker            ask(request, kind)                 metadata, and everything that KRaft brokers forward
    one broker            ask(request, kind, node=3)         log directories, ListOffsets at a leader, …
    a coordinator         coordinator("g")                   the node that looks after a group or transactional id

With `controllers=True` the addresses are controllers' (`--bootstrap-controller`), and "any" is the active one.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from pessoa.client.blocking_connection import Connection, ConnectionFailed
from pessoa.client.client_errors import BadSettings, RequestFailed, TimedOut, check
from pessoa.wire.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import TracebackType
    from typing import Self

    from pessoa.wire.schema import Message

R = TypeVar("R", bound="Message")
T = TypeVar("T")

# Kafka's defaults for the Java Admin: default.api.timeout.ms, request.timeout.ms and retry.backoff.ms.
API_TIMEOUT_MS = 60_000
REQUEST_TIMEOUT_MS = 30_000
RETRY_BACKOFF_MS = 100

# The errors of a controller that is not active, or no longer; then another one is the active controller.
_LOST_LEAD = (ErrorCode.NOT_CONTROLLER, ErrorCode.NOT_LEADER_OR_FOLLOWER)

_BROKERS = 1
_CONTROLLERS = 2


class Node(NamedTuple):
    node_id: int
    host: str
    port: int
    rack: str | None = None
    is_fenced: bool = False

    def __str__(self) -> str:
        """Return the text that the Java client prints for a node."""
        fenced = "true" if self.is_fenced else "false"
        return f"{self.host}:{self.port} (id: {self.node_id} rack: {self.rack or 'null'} isFenced: {fenced})"


class NodesAnswer(NamedTuple):
    cluster_id: str
    controller_id: int
    nodes: list[Node]


def parse_addresses(text: str) -> list[tuple[str, int]]:
    """Return the addresses in `host:port,host:port`; an IPv6 address stands in brackets. Raises BadSettings."""
    addresses = []
    for part in text.split(","):
        part = part.strip()
        if not part:
            continue
        # A protocol may stand before the address, as in a listener.
        host, colon, port = part.rpartition("//")[2].rpartition(":")
        if not colon or not port.isdigit() or not host or int(port) > 65535:
            raise BadSettings(f"Invalid url in bootstrap.servers: {part}")
        addresses.append((host.strip("[]"), int(port)))
    if not addresses:
        raise BadSettings("No resolvable bootstrap urls given in bootstrap.servers")
    return addresses


class Cluster:
    """A blocking client of a cluster: `with Cluster("localhost:9092") as cluster: cluster.ask(…)`. `settings` are
    those of Kafka's Java clients."""

    def __init__(
        self,
        addresses: str,
        settings: Mapping[str, str] | None = None,
        *,
        controllers: bool = False,
        on_silence: Callable[[str], None] | None = None,
    ) -> None:
        """Make the client. `on_silence` is called with the reason, once, if at first no broker answers at any of the
        addresses."""
        self._on_silence = on_silence
        self.settings = dict(settings or {})
        self._bootstrap = parse_addresses(addresses)
        self.asks_controllers = controllers
        self._client_id = self.settings.get("client.id", "adminclient-1")
        self.api_timeout_ms = self._number("default.api.timeout.ms", API_TIMEOUT_MS)
        self._request_timeout_ms = min(self._number("request.timeout.ms", REQUEST_TIMEOUT_MS), self.api_timeout_ms)
        self._backoff_s = self._number("retry.backoff.ms", RETRY_BACKOFF_MS) / 1000
        self._nodes: dict[int, Node] = {}
        self._by_node: dict[int, Connection] = {}
        self._any_connection: Connection | None = None

    def __repr__(self) -> str:
        return f"<Cluster at {self._bootstrap}, {len(self._nodes)} nodes known>"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        for connection in (*self._by_node.values(), *([self._any_connection] if self._any_connection else ())):
            connection.close()
        self._by_node.clear()
        self._any_connection = None

    # Requests.

    def ask(
        self,
        request: Message,
        answer: type[R],
        *,
        node: int | None = None,
        coordinator: int | None = None,
        name: str = "",
        timeout_ms: int | None = None,
        last_version: int | None = None,
    ) -> R:
        """Send a request to `node`, or to any node, and return the response. `name` is the Java client's name of the
        call, for the error message.

        Raises RequestFailed with NETWORK_EXCEPTION if `coordinator` cannot be reached: there may be another by now.
        """
        deadline = self.deadline(timeout_ms)
        target_node = node if coordinator is None else coordinator
        while True:
            connection: Connection | None = None
            try:
                connection = self._connection(target_node, deadline)
                waits = max(self._request_timeout_ms, timeout_ms or 0) / 1000
                version = None if last_version is None else min(last_version, connection.version_for(type(request)))
                return connection.send(request, answer, min(deadline, time.monotonic() + waits), version)
            except ConnectionFailed as failure:
                self._forget(connection)
                if coordinator is not None:
                    raise RequestFailed(ErrorCode.NETWORK_EXCEPTION, str(failure)) from failure
                self._wait_or_give_up(deadline, name, failure)

    def retried(self, attempt: Callable[[], T], *, name: str, timeout_ms: int | None = None) -> T:
        """Return what `attempt` returns; retriable errors are tried again until the deadline."""
        deadline = self.deadline(timeout_ms)
        while True:
            try:
                return attempt()
            except RequestFailed as failure:
                if not failure.code.retriable:
                    raise
                if time.monotonic() + self._backoff_s >= deadline:
                    raise TimedOut(f"Call(callName={name}) timed out: {failure}") from failure
                if self.asks_controllers and failure.code in _LOST_LEAD:
                    self._forget(self._any_connection)
                time.sleep(self._backoff_s)

    def deadline(self, timeout_ms: int | None = None) -> float:
        return time.monotonic() + (self.api_timeout_ms if timeout_ms is None else timeout_ms) / 1000

    # Nodes and coordinators.

    def describe(self, *, fenced: bool = False, name: str = "describeCluster") -> NodesAnswer:
        from pessoa.wire.api.describe_cluster import DescribeClusterRequest, DescribeClusterResponse

        kind = _CONTROLLERS if self.asks_controllers else _BROKERS
        request = DescribeClusterRequest(
            include_cluster_authorized_operations=False, endpoint_type=kind, include_fenced_brokers=fenced
        )
        found = self.ask(request, DescribeClusterResponse, name=name)
        check(found.error_code, found.error_message)
        nodes = [Node(one.broker_id, one.host, one.port, one.rack, one.is_fenced) for one in found.brokers]
        self._nodes.update((node.node_id, node) for node in nodes if not node.is_fenced)
        return NodesAnswer(found.cluster_id, found.controller_id, nodes)

    def nodes(self) -> list[Node]:
        """Return the live nodes, sorted by id."""
        return sorted(self.describe(name="listNodes").nodes)

    def remember(self, nodes: list[Node]) -> None:
        """Store the addresses of nodes that a Metadata or FindCoordinator response named."""
        self._nodes.update((node.node_id, node) for node in nodes)

    def node(self, node_id: int) -> Node:
        if node_id not in self._nodes:
            self.describe()
        return self._nodes[node_id]

    def coordinator(self, key: str, *, transactions: bool = False) -> int:
        """Return the id of the coordinator of a group or transactional id."""
        from pessoa.wire.api.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse

        request = FindCoordinatorRequest(key_type=1 if transactions else 0, coordinator_keys=[key])

        def attempt() -> int:
            found = self.ask(request, FindCoordinatorResponse, name="findCoordinator").coordinators[0]
            check(found.error_code, found.error_message or None)
            self.remember([Node(found.node_id, found.host, found.port)])
            return found.node_id

        return self.retried(attempt, name="findCoordinator")

    # Connections.

    def connection(self, node: int | None = None) -> Connection:
        """Return the connection to a node, for callers that need its API versions, or several responses of the same
        node."""
        return self._connection(node, self.deadline())

    def _connection(self, node_id: int | None, deadline: float) -> Connection:
        if node_id is None:
            if self._any_connection is None:
                self._any_connection = self._first_that_answers(deadline)
            return self._any_connection
        if node_id not in self._by_node:
            node = self._nodes.get(node_id)
            if node is None:
                self.describe(name="fetchMetadata")
                node = self._nodes.get(node_id)
            if node is None:
                raise ConnectionFailed(f"node {node_id} is not known to the cluster")
            shared = self._any_connection
            if shared is not None and (shared.host, shared.port) == (node.host, node.port):
                return shared
            self._by_node[node_id] = self._open(node.host, node.port, deadline)
        return self._by_node[node_id]

    def _first_that_answers(self, deadline: float) -> Connection:
        failure: ConnectionFailed | None = None
        for host, port in self._bootstrap:
            try:
                connection = self._open(host, port, deadline)
            except ConnectionFailed as error:
                failure = error
            else:
                return connection if not self.asks_controllers else self._active_controller(connection, deadline)
        assert failure is not None
        if self._on_silence is not None:
            on_silence, self._on_silence = self._on_silence, None
            on_silence(str(failure))
        raise failure

    def _active_controller(self, connection: Connection, deadline: float) -> Connection:
        from pessoa.wire.api.describe_cluster import DescribeClusterRequest, DescribeClusterResponse

        request = DescribeClusterRequest(include_cluster_authorized_operations=False, endpoint_type=_CONTROLLERS)
        found = connection.send(request, DescribeClusterResponse, deadline)
        check(found.error_code, found.error_message)
        active = next((one for one in found.brokers if one.broker_id == found.controller_id), None)
        if active is None or (active.host, active.port) == (connection.host, connection.port):
            return connection
        connection.close()
        return self._open(active.host, active.port, deadline)

    def _open(self, host: str, port: int, deadline: float) -> Connection:
        until = min(deadline, time.monotonic() + self._request_timeout_ms / 1000)
        return Connection(host, port, self._client_id, self.settings, until)

    def _forget(self, connection: Connection | None) -> None:
        if connection is None:
            return
        connection.close()
        if self._any_connection is connection:
            self._any_connection = None
        self._by_node = {node: kept for node, kept in self._by_node.items() if kept is not connection}

    def _wait_or_give_up(self, deadline: float, name: str, failure: ConnectionFailed) -> None:
        if time.monotonic() + self._backoff_s >= deadline:
            raise TimedOut(f"Timed out waiting for a node assignment. Call: {name}") from failure
        time.sleep(self._backoff_s)

    def _number(self, key: str, default: int) -> int:
        text = self.settings.get(key)
        if text is None:
            return default
        try:
            return int(text)
        except ValueError:
            raise BadSettings(f"Invalid value {text} for configuration {key}: Not a number of type INT") from None
