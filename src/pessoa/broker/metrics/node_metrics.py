"""The stage of a node that counts and shows: /metrics and /health, from the first moment of its start on."""

from __future__ import annotations

import json
import logging
import time
from typing import TYPE_CHECKING

from pessoa.broker.metrics.exposition import CONTENT_TYPE, Exposition
from pessoa.broker.metrics.http_endpoint import HttpEndpoint, Page, SharedPage
from pessoa.broker.metrics.metadata_counts import MetadataCounts
from pessoa.broker.metrics.page_guard import PageGuard
from pessoa.broker.metrics.recent_average import RecentAverage
from pessoa.broker.metrics.request_metrics import RequestMetrics

if TYPE_CHECKING:
    from pessoa.base.ids import Uuid
    from pessoa.broker.lifecycle import Broker
    from pessoa.broker.metrics.client_telemetry import ClientTelemetry
    from pessoa.broker.services import BrokerServices
    from pessoa.broker.stages.node_context import NodeContext
    from pessoa.broker.stages.node_listeners import NodeListeners
    from pessoa.quorum.batches import MetadataBatch
    from pessoa.quorum.raft_quorum import RaftQuorum

log = logging.getLogger("pessoa.broker")

_WATCHER, _TELEMETRY_WATCHER = "metrics", "telemetry"


async def open_metrics(node: NodeContext, broker: Broker) -> NodeMetrics:
    metrics = NodeMetrics(node, broker)
    try:
        await metrics.endpoint.open()
    except BaseException:
        metrics.abandon()
        raise
    scheme = "http" if metrics.endpoint.guard is None else "https"
    log.info("metrics are at %s://%s:%s/metrics", scheme, metrics.endpoint.host, metrics.endpoint.port)
    return metrics


class NodeMetrics:
    def __init__(self, node: NodeContext, broker: Broker) -> None:
        config = node.config.current
        self._node = node
        self._broker = broker
        self._requests = RequestMetrics(self._topic_name, self._is_topic)
        self._counts = MetadataCounts(config.node_id)
        # How long it took until what this node has appended to the metadata log was committed.
        self._commits = RecentAverage()
        # Of a broker.
        self._telemetry: ClientTelemetry | None = None
        # Of the process, and of the clock on the wall, at the last page.
        self._cpu_s, self._wall_s = time.process_time(), time.monotonic()
        self.page = SharedPage(self._make_metrics, node.clock)
        listener = config.pessoa_metrics_listener
        self._guard = None if listener is None else PageGuard(node, listener)
        self.endpoint = HttpEndpoint(
            node.network,
            config.pessoa_metrics_host,
            config.pessoa_metrics_port,
            {"/metrics": self.page.get, "/health": self._make_health},
            node.clock,
            self._guard,
        )
        node.publisher.subscribers.append(self._counts.follow)
        node.observers.put(_WATCHER, self._requests)

    def __repr__(self) -> str:
        return f"<NodeMetrics: {self.endpoint!r}, {self._requests!r}>"

    async def close(self) -> None:
        self.abandon()

    def abandon(self) -> None:
        self._node.observers.put(_WATCHER, None)
        if self._telemetry is not None:
            self._node.observers.put(_TELEMETRY_WATCHER, None)
            self._telemetry = None
        self.endpoint.close()
        self.page.close()
        if self._guard is not None:
            self._guard.close()

    def watch_quorum(self, quorum: RaftQuorum) -> None:
        clock, commits = self._node.clock, self._commits

        def note_commit(batch: MetadataBatch) -> None:
            commits.record(max(0, clock.now_ms() - batch.append_time_ms), clock.monotonic_ms())

        quorum.on_commit.append(note_commit)

    def accept_telemetry(self, services: BrokerServices, listeners: NodeListeners) -> None:
        """Let clients push their metrics to this broker."""
        from pessoa.broker.metrics.client_telemetry import ClientTelemetry

        def port_of(connection_id: int) -> str:
            connections = (one.connection for held in listeners.all for one in held.listener.connections)
            return next((one.peer.rpartition(":")[2] for one in connections if one.id == connection_id), "")

        node = self._node
        telemetry = ClientTelemetry(node.clock, node.new_uuid, node.config.current.telemetry_max_bytes, port_of)
        self._telemetry = services.telemetry = telemetry
        node.publisher.subscribers.append(telemetry.follow)
        listeners.watch_closed(telemetry.forget_connection)
        node.observers.put(_TELEMETRY_WATCHER, telemetry)

    def _topic_name(self, topic_id: Uuid) -> str | None:
        topic = self._node.publisher.image.topics.by_id.get(topic_id)
        return None if topic is None else topic.name

    def _is_topic(self, name: str) -> bool:
        return name in self._node.publisher.image.topics.by_name

    # Pages.

    async def _make_metrics(self) -> Page:
        out = Exposition(self._node.config.current.pessoa_metrics_names)
        await self._collect(out)
        pushed = ""
        if self._telemetry is not None:
            from pessoa.broker.metrics.collectors import pushed_lines

            pushed = await pushed_lines(self._telemetry, self._node.clock.monotonic_ms())
        return Page(200, CONTENT_TYPE, ("".join(out.lines()) + pushed).encode())

    async def _collect(self, out: Exposition) -> None:
        from pessoa.broker.logs.node_logs import NodeLogs
        from pessoa.broker.metrics import collectors

        broker, image, counts = self._broker, self._node.publisher.image, self._counts
        collectors.collect_requests(self._requests, time.perf_counter_ns(), out)
        collectors.collect_topics(self._requests.topics, image, out)
        collectors.collect_connections(broker.listeners, self._idle_share(), out)
        collectors.collect_directories(broker.directories, out)
        if broker.quorum is not None:
            collectors.collect_quorum(broker.quorum, self._commits, self._node.clock.monotonic_ms(), out)
        if broker.controller is not None:
            await collectors.collect_controller(image, counts, is_active=broker.controller.is_active, out=out)
        out.add("kafka_brokers", sum(1 for one in image.cluster.brokers.values() if not one.fenced))
        out.add("kafka_server_replicamanager_isrshrinks_total", counts.isr_shrinks)
        out.add("kafka_server_replicamanager_isrexpands_total", counts.isr_expands)
        logs = broker.find(NodeLogs)
        out.add("pessoa_log_lines_dropped_total", 0 if logs is None else logs.dropped)
        services = self._services()
        if services is not None:
            await self._collect_broker(services, out)

    async def _collect_broker(self, services: BrokerServices, out: Exposition) -> None:
        from pessoa.broker.metrics import collectors
        from pessoa.broker.metrics.group_lag import collect_groups
        from pessoa.broker.metrics.share_collector import collect_shares

        out.add("kafka_server_kafkaserver_brokerstate", collectors.broker_state(services))
        await collectors.collect_quotas(services, out)
        if services.telemetry is not None:
            collectors.collect_telemetry(services.telemetry, out)
        collectors.collect_group_states(services, out)
        collectors.collect_coordinators(services, out)
        await collect_shares(services, out)
        await collectors.collect_partitions(services, out)
        await collect_groups(services, out)

    def _services(self) -> BrokerServices | None:
        from pessoa.broker.stages.broker_role import BrokerRole

        role = self._broker.find(BrokerRole)
        return None if role is None else role.services

    def _idle_share(self) -> float:
        """Return the share of the time since the last page in which this process did not use the CPU."""
        cpu_s, wall_s = time.process_time(), time.monotonic()
        busy_s, passed_s = cpu_s - self._cpu_s, wall_s - self._wall_s
        self._cpu_s, self._wall_s = cpu_s, wall_s
        return 1.0 if passed_s <= 0 else round(min(1.0, max(0.0, 1 - busy_s / passed_s)), 4)

    async def _make_health(self) -> Page:
        """Return 200 if the node works: a broker that is not fenced, a controller that knows the leader of the
        quorum."""
        from pessoa.broker.metrics import collectors

        config, quorum = self._node.config.current, self._broker.quorum
        services = self._services() if config.is_broker else None
        state = collectors.STARTING if services is None else collectors.broker_state(services)
        has_leader = quorum is not None and quorum.leader_id >= 0
        is_well = has_leader and (state == collectors.RUNNING or not config.is_broker)
        answer = {
            "status": "ok" if is_well else "unavailable",
            "node_id": config.node_id,
            "cluster_id": self._broker.cluster_id,
            "roles": list(config.process_roles),
            "broker_state": state if config.is_broker else None,
            "quorum_leader": quorum.leader_id if quorum is not None else -1,
        }
        return Page(200 if is_well else 503, "application/json", json.dumps(answer).encode() + b"\n")
