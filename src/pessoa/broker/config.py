"""The configuration of a broker: what its file says, what was set while it runs, and what holds.

    server.properties  ──┐
    --set key=value    ──┴─► static ──┐
    set for all brokers ──────────────┼──► values: every key of the table, with its Python value
    set for this broker ──────────────┘

A `BrokerConfig` is a value: a change while the broker runs makes a new one (`with_overrides`), and code that reads it
reads it anew. The attributes are Kafka's keys with underscores. Only those that the code reads are declared below; any
other key is had with `value`. The declarations are checked against the table by a test, so that a type here cannot be
wrong.

Without a file a broker is a cluster of its own: see `single_node_properties`. What the file or the command line get
wrong stops the start with a `ConfigProblem`; an unknown key is a warning, since plug-ins have keys of their
own.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Self

from pessoa.base.config_keys.broker_keys import BROKER_CONFIGS, find, validate_broker_configs
from pessoa.base.config_values import ConfigProblem, Value
from pessoa.base.properties import MalformedProperties, parse_properties
from pessoa.broker.authorizer_settings import AUTHORIZER_KEYS
from pessoa.broker.config_checks import check
from pessoa.broker.config_listeners import (
    ListenerEndpoint,
    SecurityProtocol,
    parse_endpoints,
    parse_protocol_map,
)

if TYPE_CHECKING:
    from pathlib import Path

log = logging.getLogger("pessoa.broker")

CONTROLLER = "CONTROLLER"
BROKER_PORT = 9092
CONTROLLER_PORT = 9093

_NOTHING: Mapping[str, str] = MappingProxyType({})


class BrokerConfig:
    # ---- The node ----
    process_roles: tuple[str, ...]
    node_id: int
    broker_rack: str | None
    broker_heartbeat_interval_ms: int
    broker_session_timeout_ms: int
    initial_broker_registration_timeout_ms: int
    controlled_shutdown_enable: bool
    controller_listener_names: tuple[str, ...]
    controller_quorum_voters: tuple[str, ...]
    controller_quorum_bootstrap_servers: tuple[str, ...]
    controller_quorum_auto_join_enable: bool
    controller_quorum_election_timeout_ms: int
    controller_quorum_election_backoff_max_ms: int
    controller_quorum_fetch_timeout_ms: int
    controller_quorum_fetch_max_bytes: int
    controller_quorum_fetch_snapshot_max_bytes: int
    controller_quorum_request_timeout_ms: int
    controller_quorum_retry_backoff_ms: int
    metadata_log_segment_bytes: int
    metadata_log_segment_ms: int
    metadata_log_max_record_bytes_between_snapshots: int
    metadata_log_max_snapshot_interval_ms: int
    metadata_max_retention_bytes: int
    metadata_max_retention_ms: int

    # ---- Network ----
    socket_send_buffer_bytes: int
    socket_receive_buffer_bytes: int
    socket_listen_backlog_size: int
    socket_request_max_bytes: int
    max_connections: int
    max_connections_per_ip: int
    max_connection_creation_rate: int
    connections_max_idle_ms: int
    queued_max_request_bytes: int
    request_timeout_ms: int
    fetch_max_bytes: int
    max_incremental_fetch_session_cache_slots: int
    max_request_partition_size_limit: int
    telemetry_max_bytes: int

    # ---- Storage ----
    num_partitions: int
    auto_create_topics_enable: bool
    message_max_bytes: int
    log_flush_scheduler_interval_ms: int
    log_flush_offset_checkpoint_interval_ms: int
    log_flush_start_offset_checkpoint_interval_ms: int
    log_initial_task_delay_ms: int
    log_retention_check_interval_ms: int
    log_cleaner_enable: bool
    log_cleaner_threads: int
    log_cleaner_backoff_ms: int
    log_cleaner_dedupe_buffer_size: int
    log_cleaner_io_buffer_load_factor: float
    log_cleaner_io_max_bytes_per_second: float

    # ---- Replication ----
    min_insync_replicas: int
    num_replica_fetchers: int
    replica_lag_time_max_ms: int
    replica_fetch_min_bytes: int
    replica_fetch_wait_max_ms: int
    replica_fetch_max_bytes: int
    replica_fetch_response_max_bytes: int
    replica_fetch_backoff_ms: int
    replica_socket_timeout_ms: int
    replica_high_watermark_checkpoint_interval_ms: int

    # ---- Groups ----
    group_coordinator_rebalance_protocols: tuple[str, ...]
    group_initial_rebalance_delay_ms: int
    group_min_session_timeout_ms: int
    group_max_session_timeout_ms: int
    group_max_size: int
    group_consumer_session_timeout_ms: int
    group_consumer_heartbeat_interval_ms: int
    group_consumer_assignment_interval_ms: int
    group_consumer_max_size: int
    group_consumer_assignors: tuple[str, ...]
    group_consumer_migration_policy: str
    group_consumer_regex_refresh_interval_ms: int
    offset_metadata_max_bytes: int
    offsets_commit_timeout_ms: int
    offsets_retention_minutes: int
    offsets_retention_check_interval_ms: int
    offsets_load_buffer_size: int
    offsets_topic_num_partitions: int
    offsets_topic_replication_factor: int
    offsets_topic_segment_bytes: int
    offsets_topic_compression_codec: int
    group_share_session_timeout_ms: int
    group_share_min_session_timeout_ms: int
    group_share_max_session_timeout_ms: int
    group_share_heartbeat_interval_ms: int
    group_share_min_heartbeat_interval_ms: int
    group_share_max_heartbeat_interval_ms: int
    group_share_assignment_interval_ms: int
    group_share_min_assignment_interval_ms: int
    group_share_max_assignment_interval_ms: int
    group_share_max_size: int
    group_share_initialize_retry_interval_ms: int
    group_share_max_share_sessions: int
    group_streams_session_timeout_ms: int
    group_streams_min_session_timeout_ms: int
    group_streams_max_session_timeout_ms: int
    group_streams_heartbeat_interval_ms: int
    group_streams_min_heartbeat_interval_ms: int
    group_streams_max_heartbeat_interval_ms: int
    group_streams_assignment_interval_ms: int
    group_streams_min_assignment_interval_ms: int
    group_streams_max_assignment_interval_ms: int
    group_streams_initial_rebalance_delay_ms: int
    group_streams_max_size: int
    group_streams_num_standby_replicas: int
    group_streams_max_standby_replicas: int
    share_coordinator_snapshot_update_records_per_snapshot: int
    share_coordinator_cold_partition_snapshot_interval_ms: int
    share_coordinator_write_timeout_ms: int
    share_coordinator_load_buffer_size: int
    share_coordinator_state_topic_prune_interval_ms: int
    share_coordinator_state_topic_compression_codec: int
    share_coordinator_state_topic_min_isr: int
    share_coordinator_state_topic_num_partitions: int
    share_coordinator_state_topic_replication_factor: int
    share_coordinator_state_topic_segment_bytes: int

    # ---- Transactions ----
    transaction_max_timeout_ms: int
    transactional_id_expiration_ms: int
    transaction_abort_timed_out_transaction_cleanup_interval_ms: int
    transaction_remove_expired_transaction_cleanup_interval_ms: int
    add_partitions_to_txn_retry_backoff_ms: int
    add_partitions_to_txn_retry_backoff_max_ms: int
    transaction_state_log_load_buffer_size: int
    transaction_state_log_num_partitions: int
    transaction_state_log_replication_factor: int
    transaction_state_log_min_isr: int
    transaction_state_log_segment_bytes: int
    producer_id_expiration_check_interval_ms: int

    # ---- Keys of Pessoa alone ----
    pessoa_logs: tuple[str, ...]
    pessoa_logs_dir: str | None
    pessoa_logs_format: str
    pessoa_logs_max_bytes: int
    pessoa_logs_max_files: int
    pessoa_metrics_host: str
    pessoa_metrics_listener: str | None
    pessoa_metrics_names: str
    pessoa_metrics_port: int

    # ---- What is derived from several keys ----
    listeners: tuple[ListenerEndpoint, ...]
    advertised_listeners: tuple[ListenerEndpoint, ...]
    inter_broker_listener_name: str
    protocols: dict[str, SecurityProtocol]
    log_dirs: tuple[str, ...]
    metadata_log_dir: str

    def __init__(
        self,
        static: Mapping[str, str],
        cluster_defaults: Mapping[str, str] = _NOTHING,
        broker_overrides: Mapping[str, str] = _NOTHING,
    ) -> None:
        """The static settings are checked here. The dynamic ones must be valid one by one."""
        self.static = _with_both_ids(static)
        self.cluster_defaults = cluster_defaults
        self.broker_overrides = broker_overrides
        self._values: dict[str, Value] = {one.name: one.default for one in BROKER_CONFIGS}
        for settings in (self.static, cluster_defaults, broker_overrides):
            for name, text in settings.items():
                known = BROKER_CONFIGS.get(name)
                if known is not None:
                    self._values[name] = known.parse(text)
                elif (base := find(name)) is not None:
                    base.parse(text)
        for one in BROKER_CONFIGS:
            if one.is_required and self._values[one.name] is None:
                raise ConfigProblem(one.name, None, "it must be set")
        for attribute, name in _PLAIN_ATTRIBUTES.items():
            setattr(self, attribute, self._values[name])
        self._derive()
        check(self)

    def __repr__(self) -> str:
        return (
            f"<BrokerConfig of node {self.node_id}: {', '.join(map(str, self.listeners))} in {','.join(self.log_dirs)}>"
        )

    def value(self, name: str) -> Value:
        """Return the value of a key: as set, or its default."""
        return self._values[name]

    def of_listener(self, listener: str, name: str) -> Value:
        """Return the value for one listener: set under its prefix, or for all listeners."""
        text = self.text_of_listener(listener, name)
        return self._values[name] if text is None else BROKER_CONFIGS[name].parse(text)

    def text_of_listener(self, listener: str, name: str) -> str | None:
        """Return the text of `listener.name.{listener}.{name}`; None if it is not set. The name may begin with that of
        a SASL mechanism."""
        key = listener_key(listener, name)
        for settings in (self.broker_overrides, self.cluster_defaults, self.static):
            if key in settings:
                return settings[key]
        return None

    @property
    def is_broker(self) -> bool:
        return "broker" in self.process_roles

    @property
    def is_controller(self) -> bool:
        return "controller" in self.process_roles

    @property
    def unknown_keys(self) -> list[str]:
        """Return the static keys that are in no table, and are not the authorizer's own."""
        return [name for name in self.static if find(name) is None and name not in AUTHORIZER_KEYS]

    def with_overrides(self, cluster_defaults: Mapping[str, str], broker_overrides: Mapping[str, str]) -> Self:
        """Return this configuration with other dynamic settings. Invalid ones are ignored with a warning: they were
        checked when they were set, but perhaps by another version, and a running broker must go on."""
        try:
            return self._overridden(cluster_defaults, broker_overrides)
        except ConfigProblem as problem:
            log.warning("the settings of the running broker contradict each other and stay as they are: %s", problem)
            return self

    def contradiction(
        self, cluster_defaults: Mapping[str, str], broker_overrides: Mapping[str, str]
    ) -> ConfigProblem | None:
        """Return why this broker could not have these dynamic settings together; None if it could."""
        try:
            self._overridden(cluster_defaults, broker_overrides)
        except ConfigProblem as problem:
            return problem
        return None

    def _overridden(self, cluster_defaults: Mapping[str, str], broker_overrides: Mapping[str, str]) -> Self:
        usable = _usable(cluster_defaults, is_default=True), _usable(broker_overrides, is_default=False)
        return type(self)(self.static, *usable)

    def _derive(self) -> None:
        protocols = self.protocols = self._protocols()
        self.listeners = parse_endpoints("listeners", self._list("listeners"), protocols)
        advertised = self._list("advertised.listeners")
        if advertised:
            self.advertised_listeners = parse_endpoints("advertised.listeners", advertised, protocols)
        else:
            self.advertised_listeners = tuple(_with_a_host(one) for one in self.listeners)
        named = self._values["inter.broker.listener.name"]
        self.inter_broker_listener_name = str(named or self._values["security.inter.broker.protocol"]).upper()
        self.log_dirs = self._list("log.dirs") or self._list("log.dir")
        self.metadata_log_dir = str(self._values["metadata.log.dir"] or self.log_dirs[0])

    def _protocols(self) -> dict[str, SecurityProtocol]:
        text = self._values["listener.security.protocol.map"]
        assert isinstance(text, str)
        protocols = parse_protocol_map(text)
        if "listener.security.protocol.map" not in self.static:
            # As in Kafka, a controller listener without a security protocol is PLAINTEXT.
            for name in self.controller_listener_names:
                protocols.setdefault(name.upper(), SecurityProtocol.PLAINTEXT)
        return protocols

    def _list(self, name: str) -> tuple[str, ...]:
        value = self._values[name]
        assert value is None or isinstance(value, tuple)
        return value or ()


_DERIVED_ATTRIBUTES = frozenset(
    ("listeners", "advertised_listeners", "inter_broker_listener_name", "protocols", "log_dirs", "metadata_log_dir")
)
# Attribute → key, for all that are taken from the table as they are.
_PLAIN_ATTRIBUTES = {
    attribute: attribute.replace("_", ".")
    for attribute in BrokerConfig.__annotations__
    if attribute not in _DERIVED_ATTRIBUTES
}


def listener_key(listener: str, name: str) -> str:
    return f"listener.name.{listener.lower()}.{name}"


def _with_both_ids(static: Mapping[str, str]) -> dict[str, str]:
    """Return the settings with both `node.id` and its old name `broker.id`, if one of them is set."""
    ids = {name: static[name] for name in ("node.id", "broker.id") if name in static}
    either = next(iter(ids.values()), None)
    return dict(static) if either is None else {"node.id": either, "broker.id": either, **static}


def _with_a_host(endpoint: ListenerEndpoint) -> ListenerEndpoint:
    """Return an endpoint that can be advertised: a listener on all addresses gets the name of the machine as its
    host."""
    return endpoint if endpoint.host else endpoint._replace(host=socket.gethostname())


def _usable(settings: Mapping[str, str], *, is_default: bool) -> dict[str, str]:
    usable = {}
    for name, text in settings.items():
        problem = validate_broker_configs({name: text}, is_default=is_default)
        if problem is None:
            usable[name] = text
        else:
            log.warning("a setting of the running broker is passed over: %s", problem)
    return usable


# ---- From a file, a command line, or nothing ----


def load(
    text: str | None,
    settings: Mapping[str, str],
    home: str | Path,
    *,
    file_name: str = "server.properties",
) -> BrokerConfig:
    """Return the configuration in the text of a file, or that of a single node without a file; `settings` override
    both."""
    if text is None:
        static = single_node_properties(settings, home)
    else:
        try:
            static = {**parse_properties(text), **settings}
        except MalformedProperties as problem:
            raise ConfigProblem(file_name, None, str(problem)) from problem
    config = BrokerConfig(static)
    for name in config.unknown_keys:
        from difflib import get_close_matches

        near = get_close_matches(name, [one.name for one in BROKER_CONFIGS], n=1, cutoff=0.8)
        hint = f"; is {near[0]} meant?" if near else ""
        log.warning("the configuration key %s is not known and has no effect%s", name, hint)
    return config


def parse_settings(items: Iterable[str]) -> dict[str, str]:
    """Return the settings of `key=value` arguments; the last one of a key wins."""
    settings = {}
    for item in items:
        name, separator, text = item.partition("=")
        if not separator or not name.strip():
            raise ConfigProblem(item, None, "a setting is written key=value")
        settings[name.strip()] = text.strip()
    return settings


def single_node_properties(settings: Mapping[str, str], home: str | Path) -> dict[str, str]:
    """Return the settings of a broker without a file, completed so that it is a whole cluster on this machine. Kafka's
    own defaults need three brokers: the internal topics have three replicas each. As in the file that Kafka ships for a
    single node they have one here, unless the settings name other voters, so that there will be more nodes."""
    node_id = settings.get("node.id", settings.get("broker.id", "1"))
    properties = {
        "process.roles": "broker,controller",
        "node.id": node_id,
        "listeners": f"PLAINTEXT://127.0.0.1:{BROKER_PORT}",
        "controller.listener.names": CONTROLLER,
        "log.dirs": f"{home}/broker-{node_id}",
        **settings,
    }
    if "controller" in properties["process.roles"] and f"{CONTROLLER}://" not in properties["listeners"]:
        # With `listeners` set but no controller listener, the controller of a single node may listen on any port.
        port = 0 if "listeners" in settings else CONTROLLER_PORT
        properties["listeners"] += f",{CONTROLLER}://127.0.0.1:{port}"
    if "controller.quorum.voters" in settings or "controller.quorum.bootstrap.servers" in settings:
        return properties
    alone = {
        "controller.quorum.voters": f"{node_id}@127.0.0.1:{_controller_port(properties['listeners'])}",
        "offsets.topic.replication.factor": "1",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "share.coordinator.state.topic.replication.factor": "1",
        "share.coordinator.state.topic.min.isr": "1",
    }
    return alone | properties


def _controller_port(listeners: str) -> str:
    controller = next((one for one in listeners.split(",") if one.strip().startswith(f"{CONTROLLER}://")), "")
    return controller.rpartition(":")[2].strip() or "0"
